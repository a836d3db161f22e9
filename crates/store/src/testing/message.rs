//! The builder for messages: [`message`] gives a plain one, and each method sets the field of its
//! name.

use bluetick_protocol::{ConversationId, Json, Seq, Side};

use super::client_msg_id;
use crate::NewMessage;

/// A plain message whose body is its `client_msg_id`, to a receiver who is online.
pub fn message(conversation: &ConversationId, from: Side, id: &str) -> NewMessage {
    NewMessage {
        conversation_id: conversation.clone(),
        from,
        client_msg_id: client_msg_id(id),
        body: id.to_owned(),
        attachment: None,
        meta: None,
        withheld: false,
        seen_seq: None,
        undelivered: false,
        push_due: None,
    }
}

impl NewMessage {
    pub fn body(self, body: impl Into<String>) -> Self {
        NewMessage { body: body.into(), ..self }
    }

    pub fn attachment(self, attachment: impl Into<Option<Json>>) -> Self {
        NewMessage { attachment: attachment.into(), ..self }
    }

    pub fn meta(self, meta: impl Into<Option<Json>>) -> Self {
        NewMessage { meta: meta.into(), ..self }
    }

    pub fn withheld(self, withheld: bool) -> Self {
        NewMessage { withheld, ..self }
    }

    pub fn seen_seq(self, seen_seq: impl Into<Option<Seq>>) -> Self {
        NewMessage { seen_seq: seen_seq.into(), ..self }
    }

    pub fn undelivered(self, undelivered: bool) -> Self {
        NewMessage { undelivered, ..self }
    }

    pub fn push_due(self, due_at: impl Into<Option<u64>>) -> Self {
        NewMessage { push_due: due_at.into(), ..self }
    }
}
