//! Writing a message frame straight from the stored message.

use bluetick_protocol::{Json, MessageId, Seq};
use bluetick_store::Message;
use serde::Serialize;

/// What a frame usually takes beside its body.
const FRAME_BYTES: usize = 320;

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
    let mut text = Vec::with_capacity(m.body.len() + FRAME_BYTES);
    // Strings, numbers and JSON that was parsed before: writing them cannot fail, and gives text.
    match serde_json::to_writer(&mut text, &frame) {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => String::new(),
    }
}
