//! The frames of a message's way, read and written as cheaply as a load generator needs: nothing is copied that is only
//! looked at, and only the fields that are verified are parsed.

use std::{borrow::Cow, fmt::Write};

use bluetick_protocol::{Seq, ServerFrame};
use serde::Deserialize;

const PADDING: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

#[derive(Debug, Deserialize)]
pub struct Sent<'a> {
    #[serde(rename = "ref")]
    pub n: Option<u32>,
    #[serde(borrow)]
    pub client_msg_id: Cow<'a, str>,
    pub seq: Seq,
    #[serde(default)]
    pub duplicate: bool,
}

#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    #[serde(borrow)]
    pub conversation_id: Cow<'a, str>,
    pub seq: Seq,
    #[serde(borrow)]
    pub client_msg_id: Cow<'a, str>,
    #[serde(borrow)]
    pub sender: Cow<'a, str>,
    #[serde(borrow)]
    pub body: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
pub struct Ticks<'a> {
    #[serde(borrow)]
    pub user_id: Cow<'a, str>,
    pub last_delivered_seq: Seq,
}

#[derive(Debug)]
pub enum Frame<'a> {
    Sent(Sent<'a>),
    Message(Message<'a>),
    Ticks(Ticks<'a>),
    Other(Box<ServerFrame>),
}

/// Reads a frame of the server's.
pub fn read(text: &str) -> Result<Frame<'_>, String> {
    // The server writes the type first; a frame that is written in another way is read all the same, more slowly.
    let kind = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
    let frame = match kind {
        Some("sent") => serde_json::from_str(text).map(Frame::Sent),
        Some("message") => serde_json::from_str(text).map(Frame::Message),
        Some("ticks") => serde_json::from_str(text).map(Frame::Ticks),
        _ => return slowly(text),
    };
    frame.map_err(|e| format!("the server's frame is not what it should be: {e}: {text}"))
}

fn slowly(text: &str) -> Result<Frame<'_>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{e}: {text}");
    Ok(match bluetick_client::decode(text).map_err(|e| wrong(&e))? {
        ServerFrame::Sent(_) => Frame::Sent(serde_json::from_str(text).map_err(|e| wrong(&e))?),
        ServerFrame::Message(_) => Frame::Message(serde_json::from_str(text).map_err(|e| wrong(&e))?),
        ServerFrame::Ticks(_) => Frame::Ticks(serde_json::from_str(text).map_err(|e| wrong(&e))?),
        other => Frame::Other(Box::new(other)),
    })
}

/// A message's number, and when it was to be sent.
pub fn read_body(body: &str) -> Option<(u32, u64)> {
    let mut parts = body.split(' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A send whose body says which message it is and when it was to be sent. Ids that are made here need no escaping.
pub fn send(n: u32, run: u64, to: &str, micros: u64, body_bytes: usize) -> String {
    let mut text = String::with_capacity(body_bytes + 128);
    // Writing into a string cannot fail.
    let _ = write!(
        text,
        r#"{{"type":"send","ref":{n},"client_msg_id":"{run:x}-{n}","to":"{to}","body":"{n} {micros} "#
    );
    let mut missing = body_bytes.saturating_sub(digits(n.into()) + digits(micros) + 2);
    while missing > 0 {
        let some = missing.min(PADDING.len());
        text.push_str(&PADDING[..some]);
        missing -= some;
    }
    text.push_str("\"}");
    text
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

pub fn ack(conversation_id: &str, seq: Seq) -> String {
    format!(r#"{{"type":"ack","conversation_id":"{conversation_id}","seq":{seq}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bluetick_protocol::{ClientFrame, Ref, decode};

    #[test]
    fn what_is_written_is_what_the_server_reads() {
        let text = send(7, 0xbeef, "bench-1", 1234, 200);
        let Ok(ClientFrame::Send(frame)) = decode(&text) else { panic!("{text}") };
        assert_eq!(frame.reference, Some(Ref::Number(7)));
        assert_eq!(frame.client_msg_id.as_str(), "beef-7");
        assert_eq!(frame.body.len(), 200);
        assert_eq!(read_body(&frame.body), Some((7, 1234)));
        let text = ack("bench-0~bench-1", 9);
        let Ok(ClientFrame::Ack(receipt)) = decode(&text) else { panic!("{text}") };
        assert_eq!((receipt.conversation_id.to_string(), receipt.seq), ("bench-0~bench-1".into(), 9));
    }

    #[test]
    fn frames_are_read_in_whatever_order_their_fields_come() {
        for text in [
            r#"{"type":"ticks","conversation_id":"a~b","user_id":"b","last_delivered_seq":4,"last_read_seq":0}"#,
            r#"{"conversation_id":"a~b","user_id":"b","last_delivered_seq":4,"last_read_seq":0,"type":"ticks"}"#,
        ] {
            assert!(matches!(read(text), Ok(Frame::Ticks(Ticks { last_delivered_seq: 4, .. }))), "{text}");
        }
        assert!(matches!(read(r#"{"type":"done","ref":7}"#), Ok(Frame::Other(_))));
        assert!(read(r#"{"type":"sent","seq":"x"}"#).is_err());
    }
}
