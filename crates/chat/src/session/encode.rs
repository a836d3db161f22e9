//! Encodes a message frame straight from the stored message.

use bluetick_protocol::{MessageText, Side};
use bluetick_store::Message;

pub(super) fn message_text(m: &Message) -> String {
    let (low, high) = m.conversation_id.halves();
    let (sender, receiver) = match m.from {
        Side::Low => (low, high),
        Side::High => (high, low),
    };
    let frame = MessageText {
        conversation_id: m.conversation_id.as_str(),
        seq: m.seq,
        message_id: m.message_id,
        client_msg_id: m.client_msg_id.as_str(),
        sender,
        receiver,
        body: &m.body,
        ts: m.ts,
        attachment: m.attachment.as_ref(),
        meta: m.meta.as_ref(),
    };
    frame.to_text()
}
