//! A server in one process and without sockets: the embedded store in a directory of its own, an app server and a gateway.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{
    ChatConfig, ChatService, Gateway, Unlimited,
    session::{Identity, SessionConfig, SessionHost, TokenCheck},
};
use bluetick_protocol::{ConversationId, Side, UserId, WireError};
use bluetick_store::{EmbeddedConfig, ManualClock, NewMessage, Store, testing::message};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::line::Device;

/// A time in 2025, which stands still, so that every run writes the same digits.
pub const NOW: u64 = 1_760_000_000_000;
pub const BODY: &str = "Shall we meet at the station at half past six?";

pub fn user(id: &str) -> UserId {
    UserId::new(id).expect("a user id")
}

/// Alice is its low side, Bob its high one.
pub fn conversation() -> ConversationId {
    ConversationId::between(&user("alice"), &user("bob")).expect("two users")
}

pub struct Server {
    pub store: Store,
    host: Arc<SessionHost>,
    /// One thread, so that what it does comes in the same order every time.
    runtime: Runtime,
    _dir: TempDir,
}

/// The token is the user's id.
struct TokenIsUser;

#[async_trait]
impl TokenCheck for TokenIsUser {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        Ok(Identity { user: user(token), expires_at: None, profile: None, issued_at: None })
    }
}

impl Server {
    /// Starts with so many messages from Alice to Bob, none of which has reached him, so that nothing happens for the first
    /// time when it counts.
    pub fn with_messages(messages: u64) -> Server {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(ManualClock::new(NOW));
        let store = Store::embedded(EmbeddedConfig::new(dir.path()), clock.clone()).expect("a store");
        let gateway = Arc::new(Gateway::new("gateway"));
        let node = ChatService::new(
            store.clone(),
            gateway.clone(),
            clock.clone(),
            ChatConfig::default(),
            Arc::new(Unlimited),
        );
        let host = SessionHost {
            observer: node.observer(),
            app: Arc::new(node),
            registry: store.sessions.clone(),
            gateway,
            tokens: Arc::new(TokenIsUser),
            clock,
            // A session that ends would wait, and a thread of the store works meanwhile.
            config: SessionConfig { offline_after: Duration::ZERO, ..SessionConfig::default() },
            budget: Arc::new(Unlimited),
        };
        let server = Server { store, host: Arc::new(host), runtime, _dir: dir };
        let sends = (0..messages).map(|n| new_message("before", n)).collect();
        let committed = server.wait_for(server.store.messages.commit_sends(sends));
        assert!(committed.iter().all(Result::is_ok));
        server
    }

    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Connects a device. Its session runs while something is waited for.
    pub fn connect(&self, user: &str) -> Device {
        let (source, sink, device) = Device::line(user);
        let host = self.host.clone();
        let seed = user.len() as u64;
        device(self.runtime.spawn(async move { host.run(source, sink, seed).await }))
    }
}

/// The nth message from Alice to Bob of its kind, as it is committed when nobody could tell Bob.
pub fn new_message(kind: &str, n: u64) -> NewMessage {
    message(&conversation(), Side::Low, &format!("{kind}-{n:04}")).body(BODY).undelivered(true)
}
