//! `bluetick health`: whether a server takes traffic now, for containers and scripts.

use std::time::Duration;

use bluetick_client::Lost;
use clap::Args;

use super::{
    Failure, Outcome,
    trust::{CERTIFICATE_HINT, Trust},
};

/// Ask a server whether it is ready; exit code 0 if it is
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// The server's address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", env = "BLUETICK_HEALTH_URL")]
    url: String,
    /// How long it may take to answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    timeout: u64,
    #[command(flatten)]
    trust: Trust,
}

pub async fn run(args: HealthArgs) -> Outcome {
    let url = format!("{}/readyz", args.url.trim_end_matches('/'));
    let failed = |why: String| Failure::Failed(format!("{url}: {why}"));
    let http = reqwest::Client::builder().timeout(Duration::from_secs(args.timeout.max(1))).no_proxy();
    let http = args.trust.http(&url, http)?.build().map_err(|error| failed(error.to_string()))?;
    let answer = http.get(&url).send().await.map_err(|error| match Lost::of(&error) {
        Lost::Certificate(why) => failed(format!("{why}; {CERTIFICATE_HINT}")),
        Lost::Connection(why) => failed(why),
    })?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    let told: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    match (status.is_success(), told["reason"].as_str()) {
        (true, _) => {
            println!("ready");
            Ok(())
        }
        (false, Some(why)) => Err(failed(format!("not ready: {why}"))),
        (false, None) => Err(failed(format!("not ready ({status})"))),
    }
}
