//! The load on servers that speak XMPP, over plain TCP on loopback: the same work that `bluetick bench` does.

mod client;
mod idle;
mod offline;
mod online;
mod stanza;

use std::{future::Future, net::SocketAddr, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;

use crate::{process::Tree, results::Latency};
use client::Client;

pub use idle::idle;
pub use offline::{Plan as OfflinePlan, drain, store};
pub use online::{Plan as OnlinePlan, online};

pub const HOST: &str = "localhost";
pub const PASSWORD: &str = "secret";
const RESOURCE: &str = "bench";
/// A server that says nothing for so long, while something is owed, has lost it.
/// One connection may wait while the server works through what all the others have sent.
const PATIENCE: Duration = Duration::from_secs(120);
/// Users that log in at a time.
const AT_ONCE: usize = 64;

/// The server under load, and how its cost is seen.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub address: SocketAddr,
    pub tree: Tree,
}

pub fn user(n: u32) -> String {
    format!("bench-{n}")
}

fn sender_of(pair: u32) -> String {
    user(2 * pair)
}

fn receiver_of(pair: u32) -> String {
    user(2 * pair + 1)
}

/// Logs many in, in their order.
async fn log_in(target: Target, users: impl Iterator<Item = String>) -> Result<Vec<Client>, String> {
    let joining = users.map(|user| async move { Client::log_in(target.address, &user).await });
    stream::iter(joining).buffered(AT_ONCE).try_collect().await
}

/// Runs a task for each and waits for all; the first that fails ends the others.
async fn all<T: Send + 'static, F>(tasks: impl IntoIterator<Item = F>) -> Result<Vec<T>, String>
where
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for task in tasks {
        running.spawn(task);
    }
    let mut done = Vec::with_capacity(running.len());
    while let Some(task) = running.join_next().await {
        done.push(task.map_err(|e| e.to_string())??);
    }
    Ok(done)
}

/// A message's text says which it is and when it was sent, as in `bluetick bench`.
fn body(n: u32, micros: u64, bytes: usize) -> String {
    let mut body = format!("{n} {micros} ");
    let padding = bytes.saturating_sub(body.len());
    body.extend(std::iter::repeat_n('x', padding));
    body
}

fn read_body(body: &str) -> Option<(u32, u64)> {
    let mut parts = body.split(' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Keeps account of what one receiver got: each message once, in order?
#[derive(Debug, Default)]
struct Account {
    received: u32,
    next: u32,
    out_of_order: u64,
    strange: u64,
}

impl Account {
    /// Takes a message, and says which it was and when it was sent.
    fn take(&mut self, text: Option<&str>) -> Option<(u32, u64)> {
        let Some((n, begun)) = text.and_then(read_body) else {
            self.strange += 1;
            return None;
        };
        self.received += 1;
        self.out_of_order += u64::from(n != self.next);
        self.next = n + 1;
        Some((n, begun))
    }
}

/// What the accounts of a stage add up to, in words, if something was wrong.
fn complaints(sent: u64, accounts: &[Account]) -> Vec<String> {
    let received: u64 = accounts.iter().map(|a| u64::from(a.received)).sum();
    let out_of_order: u64 = accounts.iter().map(|a| a.out_of_order).sum();
    let strange: u64 = accounts.iter().map(|a| a.strange).sum();
    let mut complaints = Vec::new();
    if received < sent {
        complaints.push(format!("{} of {sent} messages were lost", sent - received));
    }
    if received > sent {
        complaints.push(format!("{} messages came more than once", received - sent));
    }
    if out_of_order > 0 {
        complaints.push(format!("{out_of_order} of {sent} messages came out of order"));
    }
    if strange > 0 {
        complaints.push(format!("{strange} messages came that nobody had sent"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_length_and_is_read_back() {
        let text = body(17, 123_456, 200);
        assert_eq!(text.len(), 200);
        assert_eq!(read_body(&text), Some((17, 123_456)));
        assert_eq!(read_body("hello"), None);
    }

    #[test]
    fn what_was_lost_is_said() {
        let mut account = Account::default();
        for n in [0, 1, 3, 2] {
            account.take(Some(&body(n, 0, 40)));
        }
        assert_eq!(complaints(4, &[account]), ["2 of 4 messages came out of order"]);
        let mut account = Account::default();
        account.take(Some(&body(0, 0, 40)));
        account.take(None);
        assert_eq!(
            complaints(2, &[account]),
            ["1 of 2 messages were lost", "1 messages came that nobody had sent"]
        );
    }
}
