//! An app server: what the operations of [`App`](crate::App) need. Each file of operations implements its own trait.

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, ErrorCode, Side, UserId, WireError, limits};
use bluetick_store::{Clock, Store};

use crate::{
    AppResult, Background, DeliveryObserver, Gateways, ProfileRules, Push, SendBudget, Spawner, Uploads,
    fanout::Fanout, presence::TypingLimit,
};

#[derive(Debug, Clone)]
pub struct ChatConfig {
    pub max_body_bytes: usize,
    /// A hand-over not confirmed by then counts as refused (R12).
    pub hand_over_deadline: Duration,
    /// A request waits so long for hand-overs to be confirmed. A send that no session has accepted by then writes the
    /// pending row and is answered (R2).
    pub hand_over_hedge: Duration,
    /// How far before its cursor a device is read again (R6).
    pub resume_overlap: Duration,
    /// A cursor older than this gets a `reset`.
    pub resume_max_age: Duration,
    /// A cursor with more active conversations behind it gets a `reset`.
    pub resume_max_conversations: usize,
    /// How long a reader waits for a hole to be filled before it closes it (R8).
    pub hole_wait: Duration,
    /// Who sets names and avatars, and what they may be.
    pub profiles: ProfileRules,
}

impl Default for ChatConfig {
    fn default() -> Self {
        ChatConfig {
            max_body_bytes: limits::BODY_DEFAULT_MAX_BYTES,
            hand_over_deadline: Duration::from_secs(2),
            hand_over_hedge: Duration::from_millis(250),
            resume_overlap: Duration::from_secs(60),
            resume_max_age: Duration::from_secs(30 * 24 * 3600),
            resume_max_conversations: 5_000,
            hole_wait: Duration::from_millis(200),
            profiles: ProfileRules::default(),
        }
    }
}

pub struct ChatService {
    pub(crate) store: Store,
    pub(crate) fanout: Arc<Fanout>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: ChatConfig,
    pub(crate) budget: Arc<dyn SendBudget>,
    pub(crate) observer: Arc<DeliveryObserver>,
    /// Nothing where nobody is to be notified.
    pub(crate) push: Option<Arc<Push>>,
    /// Nothing where messages have no attachments.
    pub(crate) uploads: Option<Arc<dyn Uploads>>,
    pub(crate) typing: TypingLimit,
}

impl ChatService {
    pub fn new(
        store: Store,
        gateways: Arc<dyn Gateways>,
        clock: Arc<dyn Clock>,
        config: ChatConfig,
        budget: Arc<dyn SendBudget>,
    ) -> ChatService {
        let observer = Arc::new(DeliveryObserver::new(clock.clone()));
        let fanout = Fanout {
            sessions: store.sessions.clone(),
            gateways,
            observer: observer.clone(),
            background: Arc::default(),
            deadline: config.hand_over_deadline,
            hedge: config.hand_over_hedge.min(config.hand_over_deadline),
        };
        ChatService {
            store,
            fanout: Arc::new(fanout),
            clock,
            config,
            budget,
            observer,
            push: None,
            uploads: None,
            typing: TypingLimit::default(),
        }
    }

    /// Lets requests be answered before the hand-overs that they do not depend on are confirmed. Without it they wait
    /// for all of them, which is right where every session is in this process.
    pub fn with_spawner(mut self, spawner: Arc<dyn Spawner>) -> ChatService {
        Arc::make_mut(&mut self.fanout).set_spawner(spawner);
        self
    }

    /// What still runs after the answers, for a shutdown to wait for.
    pub fn background(&self) -> Arc<Background> {
        self.fanout.background.clone()
    }

    /// Notifies those whom no live session tells of a message (R14).
    pub fn with_push(mut self, push: Arc<Push>) -> ChatService {
        self.push = Some(push);
        self
    }

    /// Lets messages have attachments.
    pub fn with_uploads(mut self, uploads: Arc<dyn Uploads>) -> ChatService {
        self.uploads = Some(uploads);
        self
    }

    pub fn observer(&self) -> Arc<DeliveryObserver> {
        self.observer.clone()
    }

    /// The side a user is on in a conversation that exists, or the one error for all others.
    pub(crate) async fn member_of(&self, user: &UserId, id: &ConversationId) -> AppResult<Side> {
        let side = id.side_of(user).ok_or_else(WireError::not_found)?;
        match self.store.messages.last_seq(id).await.map_err(crate::wire)? {
            0 => Err(WireError::not_found()),
            _ => Ok(side),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> WireError {
        WireError::new(ErrorCode::BadRequest, message)
    }
}
