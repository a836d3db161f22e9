//! Decodes client frames. The common ones take a fast path (`usual.rs`); the others are parsed by their `type`.

mod usual;

use std::borrow::Cow;

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, value::RawValue};

use crate::{
    Auth, ErrorCode, Hello, HistoryQuery, InConversation, InboxQuery, Json, Ping, Receipt, Ref, Send, Watch,
    WireError, ids::INVALID_ID_MARK, limits,
};

/// Everything a client may send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame {
    Hello(Hello),
    Auth(Auth),
    Send(Send),
    Ack(Receipt),
    Read(Receipt),
    Typing(InConversation),
    Inbox(InboxQuery),
    History(HistoryQuery),
    Status(InConversation),
    Watch(Watch),
    Ping(Ping),
}

impl ClientFrame {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn reference(&self) -> Option<&Ref> {
        match self {
            ClientFrame::Hello(f) => f.reference.as_ref(),
            ClientFrame::Auth(f) => f.reference.as_ref(),
            ClientFrame::Send(f) => f.reference.as_ref(),
            ClientFrame::Ack(f) | ClientFrame::Read(f) => f.reference.as_ref(),
            ClientFrame::Typing(f) | ClientFrame::Status(f) => f.reference.as_ref(),
            ClientFrame::Inbox(f) => f.reference.as_ref(),
            ClientFrame::History(f) => f.reference.as_ref(),
            ClientFrame::Watch(f) => f.reference.as_ref(),
            ClientFrame::Ping(f) => f.reference.as_ref(),
        }
    }
}

/// Why a frame could not be read. Only a frame that is not JSON ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    pub reference: Option<Ref>,
    pub error: WireError,
}

impl DecodeError {
    pub fn is_fatal(&self) -> bool {
        self.error.code == ErrorCode::NotJson
    }
}

#[derive(Deserialize)]
struct FrameHead<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(rename = "ref", borrow, default)]
    reference: Option<&'a RawValue>,
}

/// Reads one text frame.
pub fn decode(text: &str) -> Result<ClientFrame, DecodeError> {
    match usual::read(text) {
        Some(frame) => Ok(frame),
        None => decode_any(text),
    }
}

/// Reads `type` and `ref` first, so that an error can name the frame and what is wrong with it.
fn decode_any(text: &str) -> Result<ClientFrame, DecodeError> {
    // serde reads a struct from an array too.
    if text.trim_start().starts_with('[') {
        return Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => refuse(None, ErrorCode::BadRequest, "a frame is an object".into()),
            Err(e) => not_json(&e),
        });
    }
    let head: FrameHead<'_> = match serde_json::from_str(text) {
        Ok(head) => head,
        Err(e) if e.is_data() => return Err(refuse(None, ErrorCode::BadRequest, plain(&e))),
        Err(e) => return Err(not_json(&e)),
    };
    let reference = match head.reference.map(read_ref) {
        None => None,
        Some(Ok(reference)) => reference,
        Some(Err(why)) => return Err(refuse(None, ErrorCode::BadRequest, why.into())),
    };
    let Some(kind) = head.kind else {
        return Err(refuse(reference, ErrorCode::BadRequest, "the frame has no \"type\"".into()));
    };
    let frame = match &*kind {
        "hello" => parse(text).map(ClientFrame::Hello),
        "auth" => parse(text).map(ClientFrame::Auth),
        "send" => parse(text).and_then(check_send).map(ClientFrame::Send),
        "ack" => parse(text).map(ClientFrame::Ack),
        "read" => parse(text).map(ClientFrame::Read),
        "typing" => parse(text).map(ClientFrame::Typing),
        "inbox" => parse(text).map(ClientFrame::Inbox),
        "history" => parse(text).map(ClientFrame::History),
        "status" => parse(text).map(ClientFrame::Status),
        "watch" => parse(text).and_then(check_watch).map(ClientFrame::Watch),
        "ping" => parse(text).map(ClientFrame::Ping),
        other => {
            let shown: String = other.chars().take(32).collect();
            Err(WireError::new(ErrorCode::UnknownType, format!("no frame is called {shown:?}")))
        }
    };
    frame.map_err(|error| DecodeError { reference, error })
}

fn not_json(e: &serde_json::Error) -> DecodeError {
    refuse(None, ErrorCode::NotJson, format!("the frame is not JSON: {e}"))
}

fn refuse(reference: Option<Ref>, code: ErrorCode, message: String) -> DecodeError {
    DecodeError { reference, error: WireError::new(code, message) }
}

fn read_ref(raw: &RawValue) -> Result<Option<Ref>, &'static str> {
    const WRONG: &str = "\"ref\" must be a string of at most 64 characters or an integer";
    if raw.get() == "null" {
        return Ok(None);
    }
    match serde_json::from_str::<Ref>(raw.get()) {
        Ok(Ref::Text(text)) if text.len() > limits::REF_MAX_BYTES => Err(WRONG),
        Ok(reference) => Ok(Some(reference)),
        Err(_) => Err(WRONG),
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, WireError> {
    serde_json::from_str(text).map_err(|e| {
        let message = plain(&e);
        match message.strip_prefix(INVALID_ID_MARK) {
            Some(why) => WireError::new(ErrorCode::InvalidId, why),
            None => WireError::new(ErrorCode::BadRequest, message),
        }
    })
}

/// serde_json's message without the position, which does not help with a single line.
fn plain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Checks a send for what does not depend on the server's settings. HTTP bodies are checked here too.
pub fn check_send(send: Send) -> Result<Send, WireError> {
    if send.to.is_some() == send.conversation_id.is_some() {
        return Err(WireError::new(ErrorCode::BadRequest, "give either \"to\" or \"conversation_id\""));
    }
    if let Some(meta) = &send.meta {
        check_meta(meta)?;
    }
    Ok(send)
}

fn check_meta(meta: &Json) -> Result<(), WireError> {
    let text = meta.as_str();
    let wrong = if !text.starts_with('{') {
        "\"meta\" must be an object"
    } else if text.len() > limits::META_MAX_BYTES {
        "\"meta\" is longer than 4096 bytes"
    } else if depth(text) > limits::META_MAX_DEPTH {
        "\"meta\" is nested more than 16 deep"
    } else if serde_json::from_str::<Value>(text).is_err() {
        // Raw text: escapes and numbers in it are not checked yet. A strict parser of a receiver would fail on the whole
        // message, again at every reconnect.
        "\"meta\" holds half of a surrogate pair or a number out of range"
    } else {
        return Ok(());
    };
    Err(WireError::new(ErrorCode::BadRequest, wrong))
}

/// The nesting depth of valid JSON.
fn depth(text: &str) -> usize {
    let (mut deepest, mut now, mut quoted, mut escaped) = (0usize, 0usize, false, false);
    for b in text.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' if !quoted => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn check_watch(watch: Watch) -> Result<Watch, WireError> {
    if watch.users.len() > limits::WATCH_MAX_USERS {
        return Err(WireError::new(ErrorCode::BadRequest, "\"users\" may name at most 256"));
    }
    Ok(watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> ErrorCode {
        decode(text).expect_err(text).error.code
    }

    /// The fast path and the general one read a frame alike, however it is written.
    #[test]
    fn both_ways_of_reading_agree() {
        let ack = r#""conversation_id":"a~b","seq":3"#;
        let send = r#""client_msg_id":"c","to":"b","body":"x""#;
        let long = "r".repeat(65);
        for text in [
            format!(r#"{{"type":"ack",{ack}}}"#),
            format!(r#"{{{ack},"type":"ack"}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":7}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":null}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":1.5}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":"{long}"}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":1,"ref":2}}"#),
            format!(r#"{{"type":"ack",{ack},"type":"send"}}"#),
            format!(r#"{{"type":"ack",{ack},"\u0074ype":"send"}}"#),
            format!(r#"{{"type":"ack",{ack}}} x"#),
            format!(r#"{{"type":"read",{ack},"more":[1,{{}}]}}"#),
            format!(r#"{{"type":"send",{send}}}"#),
            format!(r#"{{"type":"send",{send},"conversation_id":"a~b"}}"#),
            format!(r#"{{"type":"send",{send},"meta":{{"type":"x"}}}}"#),
            format!(r#"{{"type":"send",{send},"meta":[]}}"#),
            format!(r#"{{"type":"send",{send},"body":"twice"}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":-7}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":-0}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":007}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":+7}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":9223372036854775808}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":"7"}}"#),
            format!(r#"{{"type":"ack",{ack},"ref":"a\"b"}}"#),
            format!(r#"{{"type":"ack",{ack},}}"#),
            format!(r#"{{"type":"ack",{ack}"#),
            format!(r#"{{"type":"ack",{ack}}}}}"#),
            format!(r#"{{"type":"ack",{ack}}} "#),
            format!(r#"{{"type":"ack" ,{ack}}}"#),
            format!("{{\"type\":\"ack\",{ack}}}\n"),
            r#"{"type":"ack"}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":"3"}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":3.0}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":-3}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":18446744073709551615}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":18446744073709551616}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"b~a","seq":3}"#.to_owned(),
            r#"{"type":"ack","conversation_id":"a~b","seq":3,"seq":3}"#.to_owned(),
            format!(r#"{{"type":"send",{send},"seen_seq":4}}"#),
            format!(r#"{{"type":"send",{send},"seen_seq":null}}"#),
            r#"{"type":"send","client_msg_id":"c","to":"b"}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":""}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":7}"#.to_owned(),
            r#"{"type":"send","client_msg_id":7,"to":"b","body":"x"}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c\"\\","to":"b","body":"say \"hi\"\n\\ é 💬 \u00e9 \/"}"#
                .to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":"ends in \\"}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":"never ends \"}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":"bad \x escape"}"#.to_owned(),
            "{\"type\":\"send\",\"client_msg_id\":\"c\",\"to\":\"b\",\"body\":\"a\tb\"}".to_owned(),
            "{\"type\":\"send\",\"client_msg_id\":\"c\",\"to\":\"b\",\"body\":\"\\n\t\"}".to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"not ok","body":"x"}"#.to_owned(),
            r#"{"type":"send","client_msg_id":"c","to":"b","body":"\ud83d"}"#.to_owned(),
        ] {
            assert_eq!(decode(&text), decode_any(&text), "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]
        /// The same for pieces of frames in any order.
        #[test]
        fn both_ways_of_reading_agree_on_pieces(
            kind in proptest::sample::select(vec!["send", "ack", "read", "ping"]),
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                ",", "\"", ":", "}", "{", "\\", " ", "0", "-", "7", "null",
                ",\"ref\":1", ",\"ref\":\"r\"", ",\"seq\":3", ",\"conversation_id\":\"a~b\"",
                ",\"client_msg_id\":\"c\"", ",\"to\":\"b\"", ",\"body\":\"x\"", ",\"body\":\"\\\"\"",
                ",\"seen_seq\":2", ",\"meta\":{}", ",\"type\":\"ack\"",
            ]), 0..7),
            closed in proptest::bool::weighted(0.8),
        ) {
            let text = format!("{{\"type\":\"{kind}\"{}{}", pieces.concat(), if closed { "}" } else { "" });
            proptest::prop_assert_eq!(decode(&text), decode_any(&text), "{}", text);
        }
    }

    #[test]
    fn what_is_not_a_frame_is_told_apart() {
        assert_eq!(code("hello"), ErrorCode::NotJson);
        assert_eq!(code(""), ErrorCode::NotJson);
        assert_eq!(code("{\"type\":\"ping\""), ErrorCode::NotJson);
        assert_eq!(code("[]"), ErrorCode::BadRequest);
        assert_eq!(code("5"), ErrorCode::BadRequest);
        assert_eq!(code(r#"["ping"]"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"["ack","a~b",1]"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"["ping""#), ErrorCode::NotJson);
        assert_eq!(code("{}"), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"type":7}"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"type":"nope"}"#), ErrorCode::UnknownType);
        assert_eq!(code(r#"{"type":"ack","conversation_id":"a~b","seq":-1}"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"type":"ack","conversation_id":"a~b","seq":1e300}"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"type":"ack","conversation_id":"b~a","seq":1}"#), ErrorCode::InvalidId);
        assert_eq!(code(r#"{"type":"send","client_msg_id":"x","to":"","body":"hi"}"#), ErrorCode::InvalidId);
        assert_eq!(code(r#"{"type":"send","client_msg_id":"x","body":"hi"}"#), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"type":"ping","ref":[1]}"#), ErrorCode::BadRequest);
    }

    #[test]
    fn the_ref_comes_back_with_the_error() {
        let e = decode(r#"{"type":"nope","ref":"r7"}"#).unwrap_err();
        assert_eq!(e.reference, Some(Ref::Text("r7".into())));
        let e = decode(r#"{"ref":-3,"type":"send","client_msg_id":5}"#).unwrap_err();
        assert_eq!(e.reference, Some(Ref::Number(-3)));
    }

    #[test]
    fn deep_nesting_is_refused_without_a_deep_stack() {
        let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(decode(&deep).is_err());
        let meta = format!(
            r#"{{"type":"send","client_msg_id":"x","to":"b","body":"y","meta":{{"a":{}1{}}}}}"#,
            "[".repeat(17),
            "]".repeat(17)
        );
        assert_eq!(code(&meta), ErrorCode::BadRequest);
    }

    #[test]
    fn meta_that_a_strict_parser_would_choke_on_is_refused() {
        for value in [r#""\ud800""#, r#""\udc00\ud800""#, "1e999", "-1e999"] {
            let text = format!(
                r#"{{"type":"send","client_msg_id":"x","to":"b","body":"y","meta":{{"a":{value}}}}}"#
            );
            assert_eq!(code(&text), ErrorCode::BadRequest, "{value}");
        }
    }

    #[test]
    fn frames_survive_the_way_to_text_and_back() {
        let text = r#"{"type":"send","ref":1,"client_msg_id":"m-1","to":"bob","body":"hé","meta":{"k":[1]},"seen_seq":4}"#;
        let frame = decode(text).unwrap();
        assert_eq!(decode(&frame.to_text()).unwrap(), frame);
    }
}
