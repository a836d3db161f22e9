//! Users that are there and do nothing: what each of them costs the server in memory.

use std::time::Duration;

use super::{Target, log_in, user};

/// What a log-in leaves behind is gone after this long.
const SETTLE: Duration = Duration::from_secs(3);

/// Bytes of the server's memory for each of so many connections.
pub async fn idle(target: Target, connections: u32) -> Result<u64, String> {
    let before = target.tree.rss_bytes();
    let mut clients = log_in(target, (0..connections).map(user)).await?;
    for client in &mut clients {
        client.appear();
        client.round_trip(|_| ()).await?;
    }
    tokio::time::sleep(SETTLE).await;
    Ok(target.tree.rss_bytes().saturating_sub(before) / u64::from(connections))
}
