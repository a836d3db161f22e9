//! Reading a server's frame: `type` first, then that one struct.
//!
//! The derived reader of [`ServerFrame`] buffers a frame to find its tag, and raw JSON (`meta`, `attachment`)
//! cannot be read from such a buffer; this one can.

use std::borrow::Cow;

use bluetick_protocol::ServerFrame;
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error as _},
};

/// Why a text is no frame of a server's.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON, or lacks what a frame of its type must have.
    #[error("the server's frame is not what it should be: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A newer server may send frames that this client has not heard of.
    #[error("the server sent an unknown frame {0:?}")]
    UnknownType(String),
}

#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Reads one text frame of the server's.
///
/// [`Client`](crate::Client) and [`RawConnection`](crate::RawConnection) do it by themselves; this is for those who bring
/// a socket of their own.
pub fn decode(text: &str) -> Result<ServerFrame, DecodeError> {
    // A list would pass for a struct whose fields have lost their names.
    if text.trim_start().starts_with('[') {
        return Err(serde_json::Error::custom("a frame is an object").into());
    }
    let peek: Peek<'_> = serde_json::from_str(text)?;
    Ok(match &*peek.kind {
        "welcome" => ServerFrame::Welcome(parse(text)?),
        "sent" => ServerFrame::Sent(parse(text)?),
        "message" => ServerFrame::Message(parse(text)?),
        "caught_up" => ServerFrame::CaughtUp(parse(text)?),
        "reset" => ServerFrame::Reset(parse(text)?),
        "ticks" => ServerFrame::Ticks(parse(text)?),
        "typing" => ServerFrame::Typing(parse(text)?),
        "presence" => ServerFrame::Presence(parse(text)?),
        "inbox" => ServerFrame::Inbox(parse(text)?),
        "history" => ServerFrame::History(parse(text)?),
        "status" => ServerFrame::Status(parse(text)?),
        "done" => ServerFrame::Done(parse(text)?),
        "error" => ServerFrame::Error(parse(text)?),
        "bye" => ServerFrame::Bye(parse(text)?),
        "pong" => ServerFrame::Pong(parse(text)?),
        other => return Err(DecodeError::UnknownType(other.chars().take(32).collect())),
    })
}

fn parse<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_json_inside_a_message_survives() {
        let text = concat!(
            r#"{"type":"message","conversation_id":"a~b","seq":1,"message_id":"9","client_msg_id":"x","#,
            r#""sender":"a","receiver":"b","body":"hi","ts":5,"meta":{"k":[1,2]}}"#
        );
        let frame = decode(text).unwrap();
        let ServerFrame::Message(message) = &frame else { panic!("{frame:?}") };
        assert_eq!(message.meta.as_ref().map(|m| m.as_str()), Some(r#"{"k":[1,2]}"#));
        assert_eq!(decode(&frame.to_text()).unwrap(), frame);
    }

    #[test]
    fn every_kind_of_frame_is_read_back() {
        let texts = [
            r#"{"type":"error","ref":"m-1","code":"rate_limited","message":"slow down","retry_after_ms":20}"#,
            r#"{"type":"bye","code":"replaced","reason":"x","reconnect_after_ms":0}"#,
            r#"{"type":"done","ref":7}"#,
            r#"{"type":"caught_up","cursor":"12","heads":[{"conversation_id":"a~b","last_seq":4}]}"#,
            r#"{"type":"presence","user_id":"a","online":false,"last_seen":null}"#,
            r#"{"type":"pong","server_time":1}"#,
        ];
        for text in texts {
            assert_eq!(decode(text).unwrap().to_text(), text);
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error_and_not_a_panic() {
        assert!(matches!(decode("nope"), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode(r#"{"type":"sent"}"#), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode(r#"{"type":"novel"}"#), Err(DecodeError::UnknownType(_))));
    }
}
