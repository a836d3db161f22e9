//! Links, who may open them, and processes of several roles in one test process: real RPC on loopback, one store in
//! memory that they share.

mod cluster;
mod guards;
mod impostors;
mod links;
mod requests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use super::{
    guard::Guard,
    link::{LinkConfig, LinkPeer, LinkStatus, PeerLink},
    listener::{Dispatcher, RpcListener},
};

/// Long enough for anything that works.
const SOON: Duration = Duration::from_secs(10);

async fn listen(guard: Guard, dispatcher: Arc<dyn Dispatcher>) -> (RpcListener, SocketAddr) {
    crate::tls::install_provider();
    let tcp = RpcListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = tcp.local_addr().unwrap();
    (RpcListener::start(tcp, guard, &format!("{address}#test"), dispatcher).unwrap(), address)
}

fn link_to(address: impl ToString, guard: Guard, config: LinkConfig) -> PeerLink {
    PeerLink::open(LinkPeer::configured(&address.to_string()), guard, config, Arc::new(Notify::new()))
}

fn within(time: Duration) -> Instant {
    Instant::now() + time
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = within(SOON);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Answers with the payload it was sent: never if it begins with "hang", and once it is let go if with "wait".
#[derive(Default)]
struct Echo {
    asked: Notify,
    go: Notify,
}

#[async_trait]
impl Dispatcher for Echo {
    async fn dispatch(&self, payload: Bytes) -> Bytes {
        self.asked.notify_one();
        if payload.starts_with(b"hang") {
            std::future::pending::<()>().await;
        }
        if payload.starts_with(b"wait") {
            self.go.notified().await;
        }
        payload
    }
}

async fn is_up(link: &PeerLink) {
    until("the link comes up", || link.status() == LinkStatus::Up).await;
}
