//! Writing a message frame straight from the stored message.

use bluetick_protocol::MessageText;
use bluetick_store::Message;

pub(super) fn message_text(m: &Message) -> String {
    let frame = MessageText {
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
    frame.to_text()
}
