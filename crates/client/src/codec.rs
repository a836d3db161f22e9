//! Decodes a frame of the server: `type` first, then the struct of that type.
//!
//! The derived `Deserialize` of [`ServerFrame`] buffers the frame to find its tag, and raw JSON
//! (`meta`, `attachment`) cannot be read from such a buffer.

use std::borrow::Cow;

use bluetick_protocol::ServerFrame;
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error as _},
};

/// Why a text is not a valid frame of a server.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It is not JSON, or lacks a field of its type.
    #[error("malformed frame from the server: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A newer server may send frames that this client does not know. Ignore them.
    #[error("unknown frame type from the server: {0:?}")]
    UnknownType(String),
}

#[derive(Deserialize)]
struct FrameHeader<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Decodes one text frame of the server.
///
/// [`Client`](crate::Client) and [`RawConnection`](crate::RawConnection) call it themselves. It is public
/// for applications with their own socket.
pub fn decode(text: &str) -> Result<ServerFrame, FrameError> {
    // serde would accept a list as a struct without field names.
    if text.trim_start().starts_with('[') {
        return Err(serde_json::Error::custom("a frame is an object").into());
    }
    let peek: FrameHeader<'_> = serde_json::from_str(text)?;
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
        other => return Err(FrameError::UnknownType(other.chars().take(32).collect())),
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
        assert!(matches!(decode("nope"), Err(FrameError::Malformed(_))));
        assert!(matches!(decode(r#"{"type":"sent"}"#), Err(FrameError::Malformed(_))));
        assert!(matches!(decode(r#"{"type":"novel"}"#), Err(FrameError::UnknownType(_))));
    }
}
