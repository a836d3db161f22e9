//! Fuzz targets: arbitrary text as a client frame and as a server frame. What decodes is within the
//! limits, and encodes and decodes to the same value; what is refused has an error code.

use bluetick_fuzz::fuzz;
use bluetick_protocol::{ClientFrame, ErrorCode, Ref, limits};
use serde_json::Value;

#[test]
fn client_frame() {
    fuzz("client_frame", 100_000, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match bluetick_protocol::decode(&text) {
            Ok(frame) => {
                keeps_limits(&frame);
                let again = bluetick_protocol::decode(&frame.to_text());
                assert_eq!(again.as_ref(), Ok(&frame), "written as {}", frame.to_text());
                true
            }
            Err(e) => {
                let parses = serde_json::from_str::<Value>(&text);
                match e.error.code {
                    ErrorCode::NotJson => assert!(parses.is_err(), "this is JSON: {}", e.error.message),
                    ErrorCode::BadRequest | ErrorCode::UnknownType | ErrorCode::InvalidId => {}
                    code => panic!("{code} is no answer to a frame that cannot be read"),
                }
                assert!(e.error.message.len() < 1024 + text.len(), "the answer outgrows the question");
                e.reference.as_ref().inspect(|r| keeps_ref(r));
                false
            }
        }
    });
}

fn keeps_limits(frame: &ClientFrame) {
    if let Some(reference) = frame.reference() {
        keeps_ref(reference);
    }
    match frame {
        ClientFrame::Send(send) => {
            assert!(send.to.is_some() != send.conversation_id.is_some());
            assert!(send.client_msg_id.as_str().len() <= limits::ID_MAX_BYTES);
            if let Some(meta) = &send.meta {
                assert!(meta.as_str().len() <= limits::META_MAX_BYTES);
                // Clients may read it with another parser.
                let value: Value = serde_json::from_str(meta.as_str()).expect("meta is JSON");
                assert!(value.is_object());
                assert!(depth(&value) <= limits::META_MAX_DEPTH);
            }
        }
        ClientFrame::Watch(watch) => assert!(watch.users.len() <= limits::WATCH_MAX_USERS),
        ClientFrame::Hello(hello) => assert!(hello.device.as_str().len() <= limits::ID_MAX_BYTES),
        _ => {}
    }
}

fn keeps_ref(reference: &Ref) {
    if let Ref::Text(text) = reference {
        assert!(text.len() <= limits::REF_MAX_BYTES);
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(items) => 1 + items.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn server_frame() {
    fuzz("server_frame", 100_000, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(frame) = bluetick_client::decode(&text) else {
            return false;
        };
        let written = frame.to_text();
        match bluetick_client::decode(&written) {
            Ok(again) => assert_eq!(again, frame, "written as {written}"),
            Err(e) => panic!("{e}; written as {written}"),
        }
        true
    });
}
