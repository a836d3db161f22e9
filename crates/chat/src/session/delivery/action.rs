//! What delivery asks of the session, and what comes of it.

use std::{collections::VecDeque, sync::Arc};

use bluetick_protocol::{CaughtUp, ConversationId, Seq};
use bluetick_store::Message;

use crate::{AppResult, Debt, MessageRange, Plan, ReadFrom, Settled};

/// What the session is to do for delivery.
#[derive(Debug)]
pub(in crate::session) enum Action {
    Send(VecDeque<Out>),
    Read(Vec<LaneRead>),
    Background(BackgroundAction),
    /// Wait until the socket has taken what was sent: more is ready to go out.
    AwaitRoom,
    /// Wait for the next event.
    Wait,
}

/// What the session is to do for delivery besides reading and sending, one action at a time.
#[derive(Debug)]
pub(in crate::session) enum BackgroundAction {
    /// Ask for the next part of the plan: the conversations after this one.
    ContinuePlan(ConversationId),
    /// Treat these messages as not handed over: their acks are overdue (R14).
    ReportOverdue(Vec<Debt>),
    /// Look up the pending rows of these conversations.
    LookUpRows(Vec<ConversationId>),
    /// Remove these pending rows, each if it still has this value, and then read the conversation's
    /// last seq (R4).
    SettleRows(Vec<(ConversationId, Seq)>),
}

/// What came of an [`Action`].
#[derive(Debug)]
pub(in crate::session) enum ActionOutcome {
    Read(Vec<(ConversationId, AppResult<MessageRange>)>),
    PlanContinued(AppResult<Plan>),
    /// The messages that could not be reported.
    OverdueReported(Vec<Debt>),
    RowsLookedUp(Vec<(ConversationId, AppResult<Option<Seq>>)>),
    RowsSettled(Vec<(ConversationId, AppResult<Settled>)>),
}

/// A frame that goes out.
#[derive(Debug, Clone)]
pub(in crate::session) enum Out {
    Message {
        message: Arc<Message>,
        /// Whether it goes out before `caught_up`.
        is_drained: bool,
    },
    CaughtUp(CaughtUp),
}

/// A read of the next messages of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::session) struct LaneRead {
    pub conversation_id: ConversationId,
    pub from: ReadFrom,
    pub max_messages: usize,
    pub max_bytes: usize,
}

/// What the session has room for in one turn of its loop.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Capacity {
    /// Frames, and their encoded bytes, that may go to the socket's queue.
    pub frames: usize,
    pub bytes: usize,
    /// Whether reads may start.
    pub may_read: bool,
    /// Whether a background action may start.
    pub may_start: bool,
}
