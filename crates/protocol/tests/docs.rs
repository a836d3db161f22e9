//! The protocol page says what the code does: its examples are frames, every frame has one, every code is explained.

use std::collections::BTreeSet;

use bluetick_protocol::{
    Bye, CaughtUp, ClientFrame, Done, ErrorCode, ErrorFrame, HistoryPage, InboxPage, MessageFrame, Pong,
    Presence, PushProvider, PushRegistration, Reset, Sent, ServerFrame, StatusAnswer, Ticks, Typing, Welcome,
    decode,
};
use serde::de::DeserializeOwned;

const PAGE: &str = include_str!("../../../docs/protocol.md");

/// What stands in the blocks that are marked as `json <side>`.
fn examples(side: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line.trim_end() == format!("```json {side}") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            examples.push(block.join("\n"));
        }
    }
    examples
}

fn type_of(text: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    value["type"].as_str().unwrap_or_else(|| panic!("no type: {text}")).to_owned()
}

/// The name a client's frame has on the wire. No arm is missing, or this does not compile: a new frame wants an
/// example, and its name in the list below.
fn client_name(frame: &ClientFrame) -> &'static str {
    match frame {
        ClientFrame::Hello(_) => "hello",
        ClientFrame::Auth(_) => "auth",
        ClientFrame::Send(_) => "send",
        ClientFrame::Ack(_) => "ack",
        ClientFrame::Read(_) => "read",
        ClientFrame::Typing(_) => "typing",
        ClientFrame::Inbox(_) => "inbox",
        ClientFrame::History(_) => "history",
        ClientFrame::Status(_) => "status",
        ClientFrame::Watch(_) => "watch",
        ClientFrame::Ping(_) => "ping",
    }
}

const CLIENT_FRAMES: [&str; 11] =
    ["hello", "auth", "send", "ack", "read", "typing", "inbox", "history", "status", "watch", "ping"];

fn server_name(frame: &ServerFrame) -> &'static str {
    match frame {
        ServerFrame::Welcome(_) => "welcome",
        ServerFrame::Sent(_) => "sent",
        ServerFrame::Message(_) => "message",
        ServerFrame::CaughtUp(_) => "caught_up",
        ServerFrame::Reset(_) => "reset",
        ServerFrame::Ticks(_) => "ticks",
        ServerFrame::Typing(_) => "typing",
        ServerFrame::Presence(_) => "presence",
        ServerFrame::Inbox(_) => "inbox",
        ServerFrame::History(_) => "history",
        ServerFrame::Status(_) => "status",
        ServerFrame::Done(_) => "done",
        ServerFrame::Error(_) => "error",
        ServerFrame::Bye(_) => "bye",
        ServerFrame::Pong(_) => "pong",
    }
}

const SERVER_FRAMES: [&str; 15] = [
    "welcome",
    "sent",
    "message",
    "caught_up",
    "reset",
    "ticks",
    "typing",
    "presence",
    "inbox",
    "history",
    "status",
    "done",
    "error",
    "bye",
    "pong",
];

/// A server's frame, by its type: raw JSON inside a tagged enum cannot be read through serde's buffer.
fn server_frame(text: &str) -> ServerFrame {
    fn read<T: DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
    match type_of(text).as_str() {
        "welcome" => ServerFrame::Welcome(read::<Welcome>(text)),
        "sent" => ServerFrame::Sent(read::<Sent>(text)),
        "message" => ServerFrame::Message(read::<MessageFrame>(text)),
        "caught_up" => ServerFrame::CaughtUp(read::<CaughtUp>(text)),
        "reset" => ServerFrame::Reset(read::<Reset>(text)),
        "ticks" => ServerFrame::Ticks(read::<Ticks>(text)),
        "typing" => ServerFrame::Typing(read::<Typing>(text)),
        "presence" => ServerFrame::Presence(read::<Presence>(text)),
        "inbox" => ServerFrame::Inbox(read::<InboxPage>(text)),
        "history" => ServerFrame::History(read::<HistoryPage>(text)),
        "status" => ServerFrame::Status(read::<StatusAnswer>(text)),
        "done" => ServerFrame::Done(read::<Done>(text)),
        "error" => ServerFrame::Error(read::<ErrorFrame>(text)),
        "bye" => ServerFrame::Bye(read::<Bye>(text)),
        "pong" => ServerFrame::Pong(read::<Pong>(text)),
        other => panic!("no server frame is called {other}"),
    }
}

/// As a JSON value, so that the order of fields does not matter.
fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn every_client_frame_has_an_example_that_decodes() {
    let mut shown = BTreeSet::new();
    for text in examples("client") {
        let frame = decode(&text).unwrap_or_else(|e| panic!("{}: {text}", e.error));
        assert_eq!(client_name(&frame), type_of(&text));
        assert_eq!(value(&frame.to_text()), value(&text), "a field is not understood");
        shown.insert(client_name(&frame));
    }
    assert_eq!(shown, BTreeSet::from(CLIENT_FRAMES));
}

#[test]
fn every_server_frame_has_an_example_that_is_one() {
    let mut shown = BTreeSet::new();
    for text in examples("server") {
        let frame = server_frame(&text);
        assert_eq!(server_name(&frame), type_of(&text));
        assert_eq!(value(&frame.to_text()), value(&text), "the server would write it otherwise");
        shown.insert(server_name(&frame));
    }
    assert_eq!(shown, BTreeSet::from(SERVER_FRAMES));
}

#[test]
fn every_provider_has_a_registration_that_is_good() {
    let shown: BTreeSet<PushProvider> = examples("push")
        .iter()
        .map(|text| {
            let registration: PushRegistration =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(registration.target.check(), Ok(()), "{text}");
            registration.target.provider()
        })
        .collect();
    assert_eq!(shown, BTreeSet::from(PushProvider::ALL));
}

/// A row of the table: the code, its HTTP status, and the close code where it ends a connection.
#[test]
fn every_error_code_is_in_the_table_with_its_statuses() {
    for code in ErrorCode::ALL {
        let begins = format!("| `{code}` | {} |", code.http_status());
        let row = PAGE.lines().find(|line| line.starts_with(&begins));
        let row = row.unwrap_or_else(|| panic!("no row begins with {begins}"));
        if let Some((_, after)) = row.split_once("bye ") {
            let close: String = after.chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(close, code.close_code().to_string(), "{code}");
        }
    }
}

#[test]
fn every_block_of_json_is_json() {
    let marked = PAGE.lines().filter(|line| line.starts_with("```json")).count();
    let plain: Vec<_> = PAGE.split("```json\n").skip(1).collect();
    assert_eq!(
        marked,
        ["client", "server", "push"].map(|side| examples(side).len()).iter().sum::<usize>() + plain.len()
    );
    for block in plain {
        value(block.split("```").next().unwrap_or_default());
    }
}
