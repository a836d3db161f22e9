//! Encodes the most frequent server frames directly into one string. A general serializer checks every byte of every
//! name and id for characters to escape.

use crate::{Json, MessageId, Ref, Sent, Seq, Ticks};

/// The most bytes that names, numbers and punctuation take in a message frame.
pub const MESSAGE_FRAME_BYTES: usize = 256;

/// The length of a text as a JSON string, without its quotes.
pub fn json_text_bytes(text: &str) -> usize {
    // No branch for each byte, so that the compiler vectorises the loop.
    let added = |b: u8| match b {
        b'"' | b'\\' | 0x08 | b'\t' | b'\n' | 0x0c | b'\r' => 1,
        0x00..0x20 => 5,
        _ => 0usize,
    };
    text.len() + text.bytes().map(added).sum::<usize>()
}

/// The fields of a message frame, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct MessageText<'a> {
    pub conversation_id: &'a str,
    pub seq: Seq,
    pub message_id: MessageId,
    pub client_msg_id: &'a str,
    pub sender: &'a str,
    pub receiver: &'a str,
    pub body: &'a str,
    pub ts: u64,
    pub attachment: Option<&'a Json>,
    pub meta: Option<&'a Json>,
}

impl MessageText<'_> {
    /// The frame as it goes over the wire.
    pub fn to_text(self) -> String {
        let json = |json: Option<&Json>| json.map_or(0, |json| json.as_str().len());
        let names = self.client_msg_id.len() + 2 * self.conversation_id.len();
        let mut text = Text::begin(
            "{\"type\":\"message\"",
            self.body.len() + names + json(self.attachment) + json(self.meta),
        );
        text.id(name!("conversation_id"), self.conversation_id);
        text.number(name!("seq"), self.seq);
        text.message_id(self.message_id);
        text.text(name!("client_msg_id"), self.client_msg_id);
        text.id(name!("sender"), self.sender);
        text.id(name!("receiver"), self.receiver);
        text.text(name!("body"), self.body);
        text.number(name!("ts"), self.ts);
        text.json(name!("attachment"), self.attachment);
        text.json(name!("meta"), self.meta);
        text.end()
    }
}

pub(crate) fn sent(frame: &Sent) -> String {
    let mut text = Text::begin("{\"type\":\"sent\"", 128);
    match &frame.reference {
        Some(Ref::Number(number)) => text.raw(name!("ref"), itoa::Buffer::new().format(*number)),
        Some(Ref::Text(reference)) => text.text(name!("ref"), reference),
        None => {}
    }
    text.text(name!("client_msg_id"), frame.client_msg_id.as_str());
    text.id(name!("conversation_id"), frame.conversation_id.as_str());
    text.number(name!("seq"), frame.seq);
    text.message_id(frame.message_id);
    text.number(name!("ts"), frame.ts);
    text.raw(name!("duplicate"), if frame.duplicate { "true" } else { "false" });
    text.end()
}

pub(crate) fn ticks(frame: &Ticks) -> String {
    let mut text = Text::begin("{\"type\":\"ticks\"", 96);
    text.id(name!("conversation_id"), frame.conversation_id.as_str());
    text.id(name!("user_id"), frame.user_id.as_str());
    text.number(name!("last_delivered_seq"), frame.last_delivered_seq);
    text.number(name!("last_read_seq"), frame.last_read_seq);
    text.end()
}

/// A name with the punctuation around it.
macro_rules! name {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
use name;

/// Writes a JSON object.
struct Text(String);

impl Text {
    /// The length of a frame's names, numbers and punctuation.
    const FRAME_BYTES: usize = 224;

    fn begin(kind: &str, bytes: usize) -> Text {
        let mut text = String::with_capacity(Self::FRAME_BYTES + bytes);
        text.push_str(kind);
        Text(text)
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    // Inlined: the length of a name is a constant at the call, so the copy needs no call.
    #[inline(always)]
    fn raw(&mut self, name: &str, value: &str) {
        self.0.push_str(name);
        self.0.push_str(value);
    }

    /// A text without characters to escape.
    #[inline(always)]
    fn id(&mut self, name: &str, value: &str) {
        self.0.push_str(name);
        self.0.push('"');
        self.0.push_str(value);
        self.0.push('"');
    }

    #[inline(always)]
    fn text(&mut self, name: &str, value: &str) {
        if is_plain(value) {
            self.id(name, value);
        } else {
            // Writing a string cannot fail.
            self.raw(name, &serde_json::to_string(value).unwrap_or_default());
        }
    }

    #[inline(always)]
    fn number(&mut self, name: &str, value: u64) {
        self.raw(name, itoa::Buffer::new().format(value));
    }

    fn message_id(&mut self, id: MessageId) {
        self.id(name!("message_id"), itoa::Buffer::new().format(id.0));
    }

    fn json(&mut self, name: &str, value: Option<&Json>) {
        if let Some(json) = value {
            self.raw(name, json.as_str());
        }
    }
}

/// Whether a text needs no escapes in JSON. No early exit, so that the compiler vectorises the loop.
fn is_plain(text: &str) -> bool {
    !text.bytes().fold(false, |escaped, b| escaped | (b < 0x20) | (b == b'"') | (b == b'\\'))
}

#[cfg(test)]
mod tests {
    use crate::{ClientMsgId, ConversationId, MessageFrame, ServerFrame, UserId};

    use super::*;

    fn as_value(text: &str) -> serde_json::Value {
        serde_json::from_str(text).unwrap()
    }

    /// The frame as serde writes it.
    fn by_name(frame: &ServerFrame) -> serde_json::Value {
        serde_json::to_value(frame).unwrap()
    }

    fn id() -> ConversationId {
        ConversationId::new("alice~bob@x.y_z-1").unwrap()
    }

    #[test]
    fn they_are_what_a_serializer_writes() {
        for (reference, duplicate) in [
            (None, false),
            (Some(Ref::Number(i64::MIN)), true),
            (Some(Ref::Text("a \"quoted\"\n\\ ref é".into())), false),
        ] {
            let frame = ServerFrame::Sent(Sent {
                reference,
                client_msg_id: ClientMsgId::new("c\"1\\2").unwrap(),
                conversation_id: id(),
                seq: u64::MAX,
                message_id: MessageId(i64::MAX as u64),
                ts: 1,
                duplicate,
            });
            assert_eq!(as_value(&frame.to_text()), by_name(&frame));
        }
        let user_id = UserId::new("alice").unwrap();
        let ticks = Ticks { conversation_id: id(), user_id, last_delivered_seq: 7, last_read_seq: 0 };
        let frame = ServerFrame::Ticks(ticks);
        assert_eq!(as_value(&frame.to_text()), by_name(&frame));
    }

    #[test]
    fn a_text_takes_as_many_bytes_as_a_serializer_writes() {
        let all: String = (0..0x500u32).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\u{1}\u{1}", "a\"b\\c\n\t\r\u{8}\u{c}\u{7f}", "é💬\u{2028}", &all] {
            assert_eq!(json_text_bytes(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn a_message_is_what_a_serializer_writes() {
        let json = |text: &str| Some(Json::from_text(text).unwrap());
        let bodies = ["", "plain é 💬", "\"", "\\", "a\nb\tc", "\u{0}\u{1f}\u{7f}\u{2028}", "</script>"];
        for (body, attachment, meta) in
            bodies.map(|body| (body, None, None)).into_iter().chain([("x", json("{\"a\":[1]}"), json("{}"))])
        {
            let frame = MessageFrame {
                conversation_id: id(),
                seq: 3,
                message_id: MessageId(9),
                client_msg_id: ClientMsgId::new("~\"").unwrap(),
                sender: UserId::new("alice").unwrap(),
                receiver: UserId::new("bob@x.y_z-1").unwrap(),
                body: body.to_owned(),
                ts: 12,
                attachment,
                meta,
            };
            let text = MessageText {
                conversation_id: frame.conversation_id.as_str(),
                seq: frame.seq,
                message_id: frame.message_id,
                client_msg_id: frame.client_msg_id.as_str(),
                sender: frame.sender.as_str(),
                receiver: frame.receiver.as_str(),
                body: &frame.body,
                ts: frame.ts,
                attachment: frame.attachment.as_ref(),
                meta: frame.meta.as_ref(),
            };
            assert_eq!(as_value(&text.to_text()), by_name(&ServerFrame::Message(frame)), "{body:?}");
        }
    }
}
