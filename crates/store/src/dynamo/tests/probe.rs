//! The operations of an endpoint: of one that has them all, and of one that lacks some.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{super::client::Scan, *};

/// One request or answer of HTTP/1.1, whole. Nothing at the end of the connection.
async fn one_message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let head_end = message.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = head_end {
            let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if message.len() >= end + length {
                return Some(message);
            }
        }
        match from.read(&mut piece).await {
            Ok(read) if read > 0 => message.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}

/// Passes everything on to an endpoint but one operation, which it does not know. Gives its
/// address.
async fn endpoint_without(operation: &'static str, behind: &str) -> String {
    let behind = behind.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", tcp.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = tcp.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(&behind).await.unwrap();
                while let Some(request) = Box::pin(one_message(&mut client)).await {
                    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
                    let target = format!(".{}\r\n", operation.to_ascii_lowercase());
                    if head.contains(&target) {
                        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#UnknownOperationException","message":"Unsupported operation"}"#;
                        let answer = format!(
                            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        client.write_all(answer.as_bytes()).await.unwrap();
                        continue;
                    }
                    server.write_all(&request).await.unwrap();
                    let Some(answer) = Box::pin(one_message(&mut server)).await else { return };
                    client.write_all(&answer).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn what_an_endpoint_lacks_is_named_and_nothing_is_left_behind() {
    let t = world().await;
    let dynamo = &t.rows.dynamo;
    let probed = probe_operations(dynamo).await;
    assert_eq!(probed.len(), 9);
    assert!(probed.iter().all(|one| one.lacking.is_none()), "{probed:#?}");
    for lacking in ["TransactWriteItems", "UpdateItem", "BatchWriteItem"] {
        let endpoint = endpoint_without(lacking, &service("BLUETICK_TEST_DYNAMODB")).await;
        let table_prefix = dynamo.name_of(Table::Users).replace("users", "");
        let config = DynamoConfig { endpoint: Some(endpoint), table_prefix, ..DynamoConfig::default() };
        let probed = probe_operations(&Dynamo::new(config).await.unwrap()).await;
        let missing: Vec<_> = probed.iter().filter(|one| one.lacking.is_some()).collect();
        assert_eq!(missing.len(), 1, "{probed:#?}");
        assert_eq!(missing[0].operation, lacking);
        assert_eq!(missing[0].optional, lacking == "BatchWriteItem");
        let text = missing[0].to_string();
        assert!(text.contains("UnknownOperationException"), "{text}");
    }
    for table in [Table::SentIds, Table::Messages, Table::Users] {
        let (left, _) = dynamo.scan(&Scan::of(table)).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}
