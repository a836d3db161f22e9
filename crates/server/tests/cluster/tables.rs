//! The tables of one cluster, under a name that no other has. They are dropped with it.

use std::sync::atomic::{AtomicU64, Ordering};

use bluetick_store::dynamo::{CreateOptions, Dynamo, DynamoConfig, Table, create_tables};

use crate::plain_http;

/// Where a service of the tests is.
pub fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
    })
}

pub struct Tables {
    endpoint: String,
    pub prefix: String,
}

impl Tables {
    /// A name for them; they are not made yet.
    pub fn named() -> Tables {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let (pid, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let prefix = format!("c{}x{pid}x{nth}-", since.as_micros());
        Tables { endpoint: service("BLUETICK_TEST_DYNAMODB"), prefix }
    }

    pub fn make(&self) {
        let config = DynamoConfig {
            endpoint: Some(self.endpoint.clone()),
            table_prefix: self.prefix.clone(),
            ..DynamoConfig::default()
        };
        let options = CreateOptions {
            ttl: false,
            point_in_time_recovery: false,
            deletion_protection: false,
            ..CreateOptions::default()
        };
        // A runtime of its own, in a thread of its own: the test may be in one already.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dynamo = Dynamo::new(config).await.unwrap();
            create_tables(&dynamo, &options).await.expect("the tables are made");
        });
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let Some(address) = self.endpoint.strip_prefix("http://") else { return };
        // DynamoDB Local wants to see a signature and does not check it.
        let headers = "Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: DynamoDB_20120810.DeleteTable\r\n\
                       Authorization: AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, \
                       SignedHeaders=host, Signature=0\r\n";
        for table in Table::ALL {
            let name = format!("{}{}", self.prefix, table.name());
            let _ = plain_http::post(address, headers, &format!("{{\"TableName\":\"{name}\"}}"));
        }
    }
}
