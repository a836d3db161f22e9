//! An app server: what the operations of [`App`](crate::App) need. Each file of operations implements its own trait.

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, ErrorCode, Side, UserId, WireError, limits};
use bluetick_store::{Clock, Message, Store};

use crate::{
    AppResult, Background, Gateways, ProfileRules, Push, Rules, SendBudget, Spawner, Trace, Uploads,
    fanout::Fanout, presence::TypingLimit, trace::Glimpse,
};

#[derive(Debug, Clone)]
pub struct ChatConfig {
    pub max_body_bytes: usize,
    /// A hand-over not confirmed by then counts as refused (R12).
    pub hand_over_deadline: Duration,
    /// How long a request waits for hand-overs to be confirmed. A send that no session has accepted by then writes the
    /// pending row and is answered (R2).
    pub hand_over_hedge: Duration,
    /// How far before a device's cursor reading begins (R6).
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
    pub(crate) trace: Arc<Trace>,
    /// `None` where notifications are off.
    pub(crate) push: Option<Arc<Push>>,
    /// `None` where attachments are off.
    pub(crate) uploads: Option<Arc<dyn Uploads>>,
    pub(crate) rules: Rules,
    pub(crate) meters: ServiceMetrics,
    pub(crate) typing: TypingLimit,
}

/// Metric handles, looked up once because they are used with every message.
pub(crate) struct ServiceMetrics {
    pub sends: metrics::Counter,
    pub send_seconds: metrics::Histogram,
    pub acks: metrics::Counter,
    pub reads: metrics::Counter,
}

impl ServiceMetrics {
    fn new() -> ServiceMetrics {
        ServiceMetrics {
            sends: metrics::counter!("bluetick_sends_total"),
            send_seconds: metrics::histogram!("bluetick_send_seconds"),
            acks: metrics::counter!("bluetick_acks_total"),
            reads: metrics::counter!("bluetick_reads_total"),
        }
    }
}

impl ChatService {
    pub fn new(
        store: Store,
        gateways: Arc<dyn Gateways>,
        clock: Arc<dyn Clock>,
        config: ChatConfig,
        budget: Arc<dyn SendBudget>,
    ) -> ChatService {
        let trace = Arc::new(Trace::default());
        let fanout = Fanout {
            sessions: store.sessions.clone(),
            gateways,
            clock: clock.clone(),
            trace: trace.clone(),
            rules: Rules::default(),
            background: Arc::default(),
            deadline: config.hand_over_deadline,
            hedge: config.hand_over_hedge.min(config.hand_over_deadline),
            hand_overs: metrics::counter!("bluetick_hand_overs_total"),
            hedged: metrics::counter!("bluetick_hand_overs_hedged_total"),
        };
        ChatService {
            store,
            fanout: Arc::new(fanout),
            clock,
            config,
            budget,
            trace,
            push: None,
            uploads: None,
            rules: Rules::default(),
            meters: ServiceMetrics::new(),
            typing: TypingLimit::default(),
        }
    }

    #[cfg(feature = "sim")]
    pub fn with_rules(mut self, rules: Rules) -> ChatService {
        Arc::make_mut(&mut self.fanout).rules = rules.clone();
        self.rules = rules;
        self
    }

    /// Lets a request be answered before hand-overs that it does not depend on are confirmed. Without a spawner it waits
    /// for all of them, which is right where every session is in this process.
    pub fn with_spawner(mut self, spawner: Arc<dyn Spawner>) -> ChatService {
        Arc::make_mut(&mut self.fanout).set_spawner(spawner);
        self
    }

    /// The work that goes on after answers, for a shutdown to wait for.
    pub fn background(&self) -> Arc<Background> {
        self.fanout.background.clone()
    }

    /// Notifies receivers without a live session (R14).
    pub fn with_push(mut self, push: Arc<Push>) -> ChatService {
        self.push = Some(push);
        self
    }

    /// Allows attachments.
    pub fn with_uploads(mut self, uploads: Arc<dyn Uploads>) -> ChatService {
        self.uploads = Some(uploads);
        self
    }

    pub fn trace(&self) -> Arc<Trace> {
        self.trace.clone()
    }

    /// A step that this node has just made.
    pub(crate) async fn show(&self, glimpse: Glimpse<'_>) {
        self.trace.show(&*self.clock, glimpse).await;
    }

    /// The same of several messages.
    pub(crate) async fn show_each(
        &self,
        glimpse: Glimpse<'_>,
        messages: impl Iterator<Item = &Arc<Message>>,
    ) {
        self.trace.show_each(&*self.clock, glimpse, messages).await;
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
