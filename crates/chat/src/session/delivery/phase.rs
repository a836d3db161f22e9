//! The life of a session, as delivery sees it.
//!
//! ```text
//! Registering ──first plan──▶ Draining ──everything planned is sent──▶ Live
//!      │                          │                                     │
//!      └──────────────────────────┴─────────────── close ───────────────┴──▶ Closing
//! ```

use std::collections::BTreeMap;

use bluetick_protocol::{CaughtUp, ConversationId, Seq};

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// The session registers and reads its plan, in this order (R1). It takes hand-overs and sends
    /// nothing.
    #[default]
    Registering,
    /// What the plan named is read and sent, in one ordered stream with what arrives meanwhile
    /// (R7).
    Draining(Drain),
    /// `caught_up` was sent: the device's cursor moves with its acks.
    Live,
    /// Hand-overs are refused, and their senders take the offline path (R5).
    Closing,
}

/// What is to be sent before `caught_up`.
#[derive(Debug)]
pub(super) struct Drain {
    /// The seq that each conversation must pass.
    pub targets: BTreeMap<ConversationId, Seq>,
    /// The frame to send at the end.
    pub caught_up: CaughtUp,
    /// The plan continues after this conversation, once its first part is drained.
    pub rest: Option<ConversationId>,
}

impl Phase {
    /// Registering → Draining: the first plan is here.
    pub(super) fn begin_drain(&mut self, drain: Drain) {
        if matches!(self, Phase::Registering) {
            *self = Phase::Draining(drain);
        }
    }

    /// Draining → Live, if everything planned is sent. Returns the frame that says so.
    pub(super) fn end_drain(&mut self) -> Option<CaughtUp> {
        match self {
            Phase::Draining(drain) if drain.targets.is_empty() && drain.rest.is_none() => {}
            _ => return None,
        }
        match std::mem::replace(self, Phase::Live) {
            Phase::Draining(drain) => Some(drain.caught_up),
            _ => None,
        }
    }

    /// Any → Closing.
    pub(super) fn close(&mut self) {
        *self = Phase::Closing;
    }

    pub(super) fn drain(&self) -> Option<&Drain> {
        match self {
            Phase::Draining(drain) => Some(drain),
            _ => None,
        }
    }

    pub(super) fn drain_mut(&mut self) -> Option<&mut Drain> {
        match self {
            Phase::Draining(drain) => Some(drain),
            _ => None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Phase::Live)
    }
}
