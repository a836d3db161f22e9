//! What the settings mean to the parts of the server: paths, switches, and the configurations of
//! `chat` and `store`.

use std::{path::PathBuf, time::Duration};

use bluetick_chat::{ChatConfig, session::SessionConfig};
use bluetick_store::EmbeddedConfig;

use super::{Backend, Config, Switch};

impl Config {
    pub fn listens_on_loopback(&self) -> bool {
        self.server.listen.ip().to_canonical().is_loopback()
    }

    /// Whether the demo (its page and its tokens) is on.
    pub fn demo_is_on(&self) -> bool {
        match self.demo.enabled {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => self.listens_on_loopback() && !self.auth.is_configured(),
        }
    }

    /// Whether `/` serves the chat page.
    pub fn chat_page_is_on(&self) -> bool {
        match self.pages.chat {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => self.demo_is_on(),
        }
    }

    pub fn jwt_secret_path(&self) -> PathBuf {
        self.server.data_dir.join("jwt.secret")
    }

    pub fn admin_key_path(&self) -> PathBuf {
        self.server.data_dir.join("admin.key")
    }

    pub fn embedded_store(&self) -> EmbeddedConfig {
        let mut embedded = EmbeddedConfig::new(self.server.data_dir.clone());
        embedded.idempotency_window_ms = self.store.idempotency_days * 86_400_000;
        embedded.free_space_floor_bytes = self.store.free_space_floor_bytes;
        embedded.checkpoint_bytes = self.store.checkpoint_bytes;
        embedded.cache_bytes = self.store.cache_bytes;
        embedded
    }

    pub fn chat(&self) -> ChatConfig {
        ChatConfig {
            max_body_bytes: self.limits.body_max_bytes,
            hand_over_deadline: Duration::from_millis(self.sessions.hand_over_deadline_ms),
            hand_over_hedge: Duration::from_millis(self.sessions.hand_over_hedge_ms),
            resume_overlap: Duration::from_secs(self.sessions.overlap_secs),
            resume_max_age: Duration::from_secs(self.sessions.resume_max_age_days * 86_400),
            resume_max_conversations: self.sessions.resume_max_conversations,
            profiles: self.profiles.rules(),
            ..ChatConfig::default()
        }
    }

    pub fn notifications(&self) -> bluetick_chat::PushConfig {
        bluetick_chat::PushConfig {
            content: self.push.content,
            text: self.push.text.clone(),
            delay: Duration::from_millis(self.push.delay_ms),
            unacked: Duration::from_secs(self.push.unacked_secs),
            max_age: Duration::from_secs(self.push.max_age_secs),
            concurrency: self.push.concurrency,
            claim_for: Duration::from_secs(self.push.claim_secs),
            // A sweep is free on the embedded store and costs read units on DynamoDB.
            sweep_every: match self.store.backend {
                Backend::Embedded => Duration::from_secs(1),
                Backend::Dynamodb => Duration::from_secs(10),
            },
            ..bluetick_chat::PushConfig::default()
        }
    }

    pub fn session(&self) -> SessionConfig {
        SessionConfig {
            heartbeat: Duration::from_secs(self.sessions.heartbeat_secs),
            ttl: Duration::from_secs(self.sessions.ttl_secs),
            hello_deadline: Duration::from_secs(self.limits.hello_deadline_secs),
            window: self.sessions.window_messages,
            ack_timeout: Duration::from_secs(self.sessions.ack_timeout_secs),
            // Missing acks matter only where they start a notification.
            unacked_after: self.push.is_configured().then(|| Duration::from_secs(self.push.unacked_secs)),
            write_timeout: Duration::from_secs(self.sessions.write_timeout_secs),
            min_read_bytes_per_sec: self.sessions.min_read_bytes_per_sec,
            max_sessions: self.limits.max_sessions,
            max_body_bytes: self.limits.body_max_bytes,
            reconnect_spread: Duration::from_secs(self.sessions.reconnect_spread_secs),
            // Reconciling finds messages whose lookup or hand-over failed. In one process neither
            // fails, so it is only a safety net. Over a network both do, and it must run before the
            // overlap of a cursor ends.
            reconcile_every: match self.is_one_process() {
                true => Duration::from_secs(600),
                false => Duration::from_secs(self.sessions.overlap_secs),
            },
            overlap: Duration::from_secs(self.sessions.overlap_secs),
            ..SessionConfig::default()
        }
    }
}
