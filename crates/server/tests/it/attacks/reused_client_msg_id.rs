//! One `client_msg_id` for two different messages. Answered as a duplicate, the second text would be lost without a
//! word.

use bluetick_protocol::*;
use serde_json::json;

use crate::{harness::*, http::api};

#[tokio::test]
async fn another_body_under_a_known_id_is_refused_and_not_stored() {
    let mut server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let original = Send {
        client_msg_id: ClientMsgId::new("order-17").unwrap(),
        meta: Some(Json::from_text(r#"{"a":1,"b":2}"#).unwrap()),
        ..send_frame("bob", "your parcel is on its way")
    };
    let sent = alice.send_as(original.clone()).await;
    assert_eq!(bob.message().await.body, original.body);
    let other = Send { body: "your parcel is lost".into(), ..original.clone() };
    for again in [false, true] {
        if again {
            server.kill();
            server.restart();
            alice = server.connect("alice", "phone").await;
            bob = server.connect("bob", "phone").await;
        }
        let error = alice.send_refused(other.clone()).await;
        assert_eq!(error.code, ErrorCode::ClientMsgIdConflict);
        for named in ["order-17", "message 1 of alice~bob", "body"] {
            assert!(error.message.contains(named), "{error}");
        }
        let other_meta = Send { meta: None, ..original.clone() };
        assert!(alice.send_refused(other_meta).await.message.contains("meta"));
        let repeated = Send { meta: Json::from_text(r#"{"b":2, "a":1}"#).ok(), ..original.clone() };
        let repeated = alice.send_as(repeated).await;
        assert!(repeated.duplicate, "the same content, spelt otherwise, is the same message");
        assert_eq!((repeated.seq, repeated.message_id), (sent.seq, sent.message_id));
        bob.hears_no(|frame| match frame {
            ServerFrame::Message(message) if message.body != original.body => Some(message),
            _ => None,
        })
        .await;
    }
    let page = alice.history("alice~bob", None, None, 50).await;
    assert_eq!(bodies(&page.messages), ["your parcel is on its way"]);
}

#[tokio::test]
async fn over_http_it_is_a_409() {
    let server = Server::start();
    let alice = api(&server, "alice");
    let message = |body: &str| json!({"client_msg_id": "m-1", "to": "bob", "body": body});
    assert_eq!(alice.post("/v1/messages", message("one")).await.0, 200);
    let (status, refused) = alice.post("/v1/messages", message("two")).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (409, Some("client_msg_id_conflict")));
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("m-1") && why.contains("message 1 of alice~bob"), "{why}");
    let (status, repeated) = alice.post("/v1/messages", message("one")).await;
    assert_eq!((status, &repeated["duplicate"]), (200, &json!(true)));
    let (_, page) = alice.get("/v1/conversations/alice~bob/messages").await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 1, "{page}");
}

#[tokio::test]
async fn of_two_bodies_at_once_one_wins_and_the_other_hears_of_it() {
    let server = Server::start();
    let mut tasks = Vec::new();
    for n in 0..6 {
        let mut device = server.connect("alice", &format!("device-{n}")).await;
        let send = Send {
            client_msg_id: ClientMsgId::new("the-one").unwrap(),
            ..send_frame("bob", ["this", "that"][n % 2])
        };
        tasks.push(tokio::spawn(async move {
            device.say(ClientFrame::Send(send.clone())).await;
            let answer = device.wait(|frame| match frame {
                ServerFrame::Sent(sent) => Some(Ok(sent.duplicate)),
                ServerFrame::Error(e) => Some(Err(e.error.code)),
                _ => None,
            });
            (send.body, answer.await)
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let page = server.connect("alice", "reader").await.history("alice~bob", None, None, 50).await;
    let [stored] = &page.messages[..] else { panic!("{page:?}") };
    assert_eq!(answers.iter().filter(|(_, answer)| *answer == Ok(false)).count(), 1, "{answers:?}");
    for (body, answer) in &answers {
        match *body == stored.body {
            true => assert!(answer.is_ok(), "{answers:?}"),
            false => assert_eq!(*answer, Err(ErrorCode::ClientMsgIdConflict), "{answers:?}"),
        }
    }
}
