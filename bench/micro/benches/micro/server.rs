//! A server in one process and without sockets: the embedded store in a directory of its own, an
//! app server and a gateway.

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

use crate::line::BenchDevice;

/// A fixed time in 2025, so that every run writes the same digits.
pub const NOW: u64 = 1_760_000_000_000;
pub const BODY: &str = "Shall we meet at the station at half past six?";

pub fn user(id: &str) -> UserId {
    UserId::new(id).expect("a user id")
}

/// Alice is the low side, Bob the high one.
pub fn conversation() -> ConversationId {
    ConversationId::between(&user("alice"), &user("bob")).expect("two users")
}

pub struct BenchServer {
    pub store: Store,
    host: Arc<SessionHost>,
    /// One thread, so that the order of work is the same in every run.
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

impl BenchServer {
    /// Starts with this many undelivered messages from Alice to Bob, so that nothing counted
    /// happens for the first time.
    pub fn with_messages(messages: u64) -> BenchServer {
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
            // A session would linger at its end, and the store's threads would work meanwhile.
            config: SessionConfig { offline_after: Duration::ZERO, ..SessionConfig::default() },
            budget: Arc::new(Unlimited),
        };
        let server = BenchServer { store, host: Arc::new(host), runtime, _dir: dir };
        let sends = (0..messages).map(|n| new_message("before", n)).collect();
        let committed = server.wait_for(server.store.messages.commit_sends(sends));
        assert!(committed.iter().all(Result::is_ok));
        server
    }

    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Connects a device. Its session runs during `wait_for`.
    pub fn connect(&self, user: &str) -> BenchDevice {
        let (source, sink, device) = BenchDevice::line(user);
        let host = self.host.clone();
        let seed = user.len() as u64;
        device(self.runtime.spawn(async move { host.run(source, sink, seed).await }))
    }
}

/// The nth message from Alice to Bob of its kind, as it is committed when Bob is offline.
pub fn new_message(kind: &str, n: u64) -> NewMessage {
    message(&conversation(), Side::Low, &format!("{kind}-{n:04}")).body(BODY).undelivered(true)
}
