//! Anything a client can send gets an error code or a `bye`; never a panic, never silence.

use std::time::Duration;

use bluetick_client::RawConnection;
use bluetick_protocol::*;

use crate::harness::*;

/// Says something to a session and expects an error, after which the session lives.
async fn refused(person: &mut Person, text: &str) -> ErrorCode {
    person.wire.send_text(text).await.unwrap();
    let code = person.error().await.code;
    person.say(ClientFrame::Ping(Ping::default())).await;
    person.wait(|f| matches!(f, ServerFrame::Pong(_)).then_some(())).await;
    code
}

#[tokio::test]
async fn a_bad_frame_gets_a_code_and_the_connection_lives() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let long = "x".repeat(129);
    let deep = format!(
        r#"{{"type":"send","client_msg_id":"d","to":"bob","body":"b","meta":{{"a":{}1{}}}}}"#,
        "[".repeat(40),
        "]".repeat(40)
    );
    let body = "x".repeat(16 * 1024 + 1);
    let cases: Vec<(String, ErrorCode)> = vec![
        ("{}".into(), ErrorCode::BadRequest),
        ("[1,2]".into(), ErrorCode::BadRequest),
        ("\"text\"".into(), ErrorCode::BadRequest),
        (r#"{"type":"dance"}"#.into(), ErrorCode::UnknownType),
        (r#"{"type":5}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"send"}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"send","client_msg_id":"a","to":5,"body":"x"}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"send","client_msg_id":"a","to":"","body":"x"}"#.into(), ErrorCode::InvalidId),
        (r#"{"type":"send","client_msg_id":"","to":"bob","body":"x"}"#.into(), ErrorCode::InvalidId),
        (
            format!(r#"{{"type":"send","client_msg_id":"{long}","to":"bob","body":"x"}}"#),
            ErrorCode::InvalidId,
        ),
        (format!(r#"{{"type":"send","client_msg_id":"a","to":"{long}","body":"x"}}"#), ErrorCode::InvalidId),
        (r#"{"type":"send","client_msg_id":"a","to":"alice","body":"x"}"#.into(), ErrorCode::ToSelf),
        (r#"{"type":"send","client_msg_id":"a","to":"bob","body":""}"#.into(), ErrorCode::EmptyBody),
        (r#"{"type":"send","client_msg_id":"a","to":"bob"}"#.into(), ErrorCode::EmptyBody),
        (r#"{"type":"send","client_msg_id":"a","to":"bob","body":["x"]}"#.into(), ErrorCode::BadRequest),
        (
            format!(r#"{{"type":"send","client_msg_id":"a","to":"bob","body":"{body}"}}"#),
            ErrorCode::BodyTooLarge,
        ),
        (
            r#"{"type":"send","client_msg_id":"a","conversation_id":"bob~carol","body":"x"}"#.into(),
            ErrorCode::NotFound,
        ),
        (
            r#"{"type":"send","client_msg_id":"a","to":"bob","conversation_id":"alice~bob","body":"x"}"#
                .into(),
            ErrorCode::BadRequest,
        ),
        (
            r#"{"type":"send","client_msg_id":"a","to":"bob","body":"x","meta":[1]}"#.into(),
            ErrorCode::BadRequest,
        ),
        (deep, ErrorCode::BadRequest),
        (r#"{"type":"ack","conversation_id":"alice~bob","seq":-1}"#.into(), ErrorCode::BadRequest),
        (
            r#"{"type":"ack","conversation_id":"alice~bob","seq":99999999999999999999999}"#.into(),
            ErrorCode::BadRequest,
        ),
        (r#"{"type":"ack","conversation_id":"alice~bob","seq":1.5}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"ack","conversation_id":"bob~alice","seq":1}"#.into(), ErrorCode::InvalidId),
        (r#"{"type":"ack","conversation_id":"alice~bob","seq":1}"#.into(), ErrorCode::NotFound),
        (
            r#"{"type":"history","conversation_id":"alice~bob","after_seq":1,"before_seq":2}"#.into(),
            ErrorCode::BadRequest,
        ),
        (r#"{"type":"inbox","limit":0}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"inbox","before":"nonsense"}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"hello","token":"x","device":"d"}"#.into(), ErrorCode::BadRequest),
        (r#"{"type":"auth","token":"x"}"#.into(), ErrorCode::Unauthorized),
        (r#"{"type":"ping","ref":{"a":1}}"#.into(), ErrorCode::BadRequest),
    ];
    for (text, expected) in cases {
        let shown: String = text.chars().take(100).collect();
        assert_eq!(refused(&mut alice, &text).await, expected, "{shown}");
    }
    assert_eq!(server.inspect("conversations", "alice"), serde_json::json!([]), "nothing was stored");
}

#[tokio::test]
async fn the_ref_is_echoed_unchanged_in_answers_and_errors() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    for (text, reference) in [
        (r#"{"type":"nope","ref":"é 1"}"#, Ref::Text("é 1".into())),
        (r#"{"type":"send","ref":-7,"client_msg_id":"a","to":"alice","body":"x"}"#, Ref::Number(-7)),
    ] {
        alice.wire.send_text(text).await.unwrap();
        let got = alice.wait(|f| if let ServerFrame::Error(e) = f { Some(e.reference) } else { None }).await;
        assert_eq!(got, Some(reference));
    }
    let mut send = send_frame("bob", "x");
    send.reference = Some(Ref::Number(42));
    assert_eq!(alice.send_as(send).await.reference, Some(Ref::Number(42)));
}

async fn bye_of(wire: &mut RawConnection) -> ErrorCode {
    let bye = wire.next_where(SOON, |f| if let ServerFrame::Bye(b) = f { Some(b) } else { None }).await;
    let code = bye.expect("a bye before the close").code;
    assert!(wire.next_frame(SOON).await.is_err(), "and then the close");
    code
}

#[tokio::test]
async fn what_cannot_be_read_ends_the_connection_with_a_bye() {
    let server = Server::start();
    let token = server.token("alice");
    let phone = DeviceId::new("phone").unwrap();
    // In a session.
    for (frame, expected) in [("{not json", ErrorCode::NotJson), ("", ErrorCode::NotJson)] {
        let mut wire = RawConnection::connect(&server.url()).await.unwrap();
        wire.hello(&token, &phone, None).await.unwrap();
        wire.send_text(frame).await.unwrap();
        assert_eq!(bye_of(&mut wire).await, expected);
    }
    let mut wire = RawConnection::connect(&server.url()).await.unwrap();
    wire.hello(&token, &phone, None).await.unwrap();
    wire.send_binary(vec![0, 1, 2]).await.unwrap();
    assert_eq!(bye_of(&mut wire).await, ErrorCode::NotJson);
    let mut wire = RawConnection::connect(&server.url()).await.unwrap();
    wire.hello(&token, &phone, None).await.unwrap();
    let _ = wire.send_text("x".repeat(200 * 1024)).await;
    assert_eq!(bye_of(&mut wire).await, ErrorCode::FrameTooLarge);
    // Before hello.
    for (frame, expected) in [
        (r#"{"type":"ping"}"#.to_owned(), ErrorCode::HelloExpected),
        (r#"{"type":"hello","token":"garbage","device":"phone"}"#.to_owned(), ErrorCode::Unauthorized),
        (format!(r#"{{"type":"hello","token":"{token}","device":"no spaces"}}"#), ErrorCode::InvalidId),
        (format!(r#"{{"type":"hello","token":"{token}","device":"d","cursor":5}}"#), ErrorCode::BadRequest),
        ("junk".to_owned(), ErrorCode::NotJson),
    ] {
        let mut wire = RawConnection::connect(&server.url()).await.unwrap();
        wire.send_text(frame.clone()).await.unwrap();
        assert_eq!(bye_of(&mut wire).await, expected, "{frame}");
    }
}

#[tokio::test]
async fn silence_after_connecting_ends_with_hello_timeout() {
    let server = Server::with(&[("BLUETICK_LIMITS__HELLO_DEADLINE_SECS", "1")]);
    let mut wire = RawConnection::connect(&server.url()).await.unwrap();
    assert_eq!(bye_of(&mut wire).await, ErrorCode::HelloTimeout);
}

#[tokio::test]
async fn too_many_sends_are_told_when_to_come_back() {
    let server =
        Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "10"), ("BLUETICK_LIMITS__SEND_BURST", "20")]);
    let mut alice = server.connect("alice", "phone").await;
    for n in 0..30 {
        alice.say(ClientFrame::Send(send_frame("bob", &format!("{n}")))).await;
    }
    let (mut sent, mut limited) = (0, 0);
    while sent + limited < 30 {
        match alice.wait(Some).await {
            ServerFrame::Sent(_) => sent += 1,
            ServerFrame::Error(e) => {
                assert_eq!(e.error.code, ErrorCode::RateLimited);
                assert!(e.error.retry_after_ms.is_some_and(|ms| ms > 0 && ms < 10_000));
                limited += 1;
            }
            _ => {}
        }
    }
    assert!(sent >= 20 && limited > 0, "{sent} sent, {limited} limited");
    tokio::time::sleep(Duration::from_millis(400)).await;
    alice.send("bob", "the connection lives").await;
}

#[tokio::test]
async fn a_foreign_origin_is_refused_and_an_absent_one_is_not() {
    let server = Server::start();
    assert!(RawConnection::connect(&server.url()).await.is_ok());
    let own = format!("http://{}", server.address);
    assert!(RawConnection::connect_with(&server.url(), &[("Origin", &own)]).await.is_ok());
    let foreign = RawConnection::connect_with(&server.url(), &[("Origin", "https://evil.example")]).await;
    assert!(foreign.is_err(), "a page from elsewhere must not connect");
}
