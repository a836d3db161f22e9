//! Decoding client frames and encoding server frames.

use bluetick_protocol::{
    Boundaries, ClientFrame, DecodeError, InboxEntry, InboxPage, MessageFrame, MessageId, Ref, Sent,
    ServerFrame, Ticks, UserCard, decode,
};
use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    server::{BODY, NOW, conversation, user},
};

type Decoded = Result<ClientFrame, DecodeError>;

fn decoded(text: &str) -> Decoded {
    let frame = counted(|| decode(text));
    assert!(frame.is_ok(), "{frame:?}");
    frame
}

fn written(frame: ServerFrame) -> String {
    counted(|| frame.to_text())
}

#[library_benchmark]
fn decode_hello() -> Decoded {
    decoded(
        r#"{"type":"hello","token":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlLW9mLTMyLWJ5dGVz","device":"phone","cursor":"238001112064000"}"#,
    )
}

#[library_benchmark]
fn decode_send() -> Decoded {
    decoded(
        r#"{"type":"send","ref":7,"client_msg_id":"0b8e4c1e-7a3d-4c2f-9f6e-1a2b3c4d5e6f","to":"bob","body":"Shall we meet at the station at half past six?","seen_seq":41}"#,
    )
}

#[library_benchmark]
fn decode_ack() -> Decoded {
    decoded(r#"{"type":"ack","conversation_id":"alice~bob","seq":42}"#)
}

#[library_benchmark]
fn write_sent() -> String {
    written(ServerFrame::Sent(Sent {
        reference: Some(Ref::Number(7)),
        client_msg_id: "0b8e4c1e-7a3d-4c2f-9f6e-1a2b3c4d5e6f".parse().expect("an id"),
        conversation_id: conversation(),
        seq: 42,
        message_id: MessageId::at(NOW),
        ts: NOW,
        duplicate: false,
    }))
}

#[library_benchmark]
fn write_message() -> String {
    written(ServerFrame::Message(MessageFrame {
        conversation_id: conversation(),
        seq: 42,
        message_id: MessageId::at(NOW),
        client_msg_id: "0b8e4c1e-7a3d-4c2f-9f6e-1a2b3c4d5e6f".parse().expect("an id"),
        sender: user("alice"),
        receiver: user("bob"),
        body: BODY.into(),
        ts: NOW,
        attachment: None,
        meta: None,
    }))
}

#[library_benchmark]
fn write_ticks() -> String {
    written(ServerFrame::Ticks(Ticks {
        conversation_id: conversation(),
        user_id: user("bob"),
        last_delivered_seq: 42,
        last_read_seq: 41,
    }))
}

#[library_benchmark]
fn write_inbox_of_20() -> String {
    let entry = |n: u64| InboxEntry {
        conversation_id: conversation(),
        peer: UserCard {
            user_id: user("bob"),
            name: Some(format!("Bob {n}")),
            avatar_url: Some(format!("https://example.org/avatars/{n}.png")),
        },
        last_message_preview: BODY.into(),
        last_message_ts: NOW - n,
        last_seq: 40 + n,
        last_sender: user("bob"),
        unread_count: n,
        peer_status: Boundaries { last_delivered_seq: 40, last_read_seq: 39 },
    };
    written(ServerFrame::Inbox(InboxPage {
        reference: Some(Ref::Number(7)),
        conversations: (0..20).map(entry).collect(),
        next: Some("MTc2MDAwMDAwMDAwMA".into()),
    }))
}

library_benchmark_group!(
    name = codec_group,
    benchmarks =
        [decode_hello, decode_send, decode_ack, write_sent, write_message, write_ticks, write_inbox_of_20]
);
