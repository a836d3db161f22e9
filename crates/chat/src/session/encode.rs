//! Writing a message frame straight from the stored message.

use bluetick_protocol::{Json, MessageId, Seq};
use bluetick_store::Message;
use serde::Serialize;

#[derive(Serialize)]
struct Frame<'a> {
    r#type: &'static str,
    conversation_id: &'a str,
    seq: Seq,
    message_id: MessageId,
    client_msg_id: &'a str,
    sender: &'a str,
    receiver: &'a str,
    body: &'a str,
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachment: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Json>,
}

pub(super) fn message_text(m: &Message) -> String {
    let frame = Frame {
        r#type: "message",
        conversation_id: m.conversation_id.as_str(),
        seq: m.seq,
        message_id: m.message_id,
        client_msg_id: m.client_msg_id.as_str(),
        sender: m.conversation_id.member_str(m.from),
        receiver: m.conversation_id.member_str(m.from.other()),
        body: &m.body,
        ts: m.ts,
        attachment: m.attachment.as_ref(),
        meta: m.meta.as_ref(),
    };
    // Strings, numbers and JSON that was parsed before: writing them cannot fail.
    serde_json::to_string(&frame).unwrap_or_default()
}
