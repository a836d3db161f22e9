//! What a client has of being connected to the process itself: the demo's tokens, which no proxy passes on, and a resume
//! that costs nothing, because what a device acked is still in this gateway's memory.

use std::collections::BTreeMap;

use bluetick_protocol::*;
use serde_json::{Value, json};

use crate::{harness::*, http::client};

#[tokio::test]
async fn the_demo_token_is_for_loopback_pages_only() {
    let server = Server::start();
    let url = server.http("/demo/token");
    let ask = |host: Option<&'static str>| {
        let request = client().post(&url).header("x-bluetick-demo", server.demo_key());
        let mut request = request.json(&json!({"user": "alice"}));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        request.send()
    };
    let answer = ask(None).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let token = answer.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned();
    let person = Person::open(&server.url(), &token, "alice", "page", None).await;
    assert_eq!(person.welcome.user_id, user("alice"));
    assert_ne!(ask(Some("evil.example")).await.unwrap().status().as_u16(), 200, "a rebound name gets none");
}

#[tokio::test]
async fn a_connection_lost_in_the_middle_of_a_drain_loses_nothing() {
    let server = Server::with(&[("BLUETICK_SESSIONS__WINDOW_MESSAGES", "10")]);
    let mut alice = server.connect("alice", "phone").await;
    for n in 1..=100 {
        alice.send("bob", &format!("{n}")).await;
    }
    let (mut seen, mut cursor, mut session) = (BTreeMap::new(), None, None);
    let token = server.token("bob");
    // A phone that dies every few messages, sometimes properly.
    for round in 0.. {
        // An ack that goes down with its connection costs a round; how many do is a matter of chance.
        assert!(round < 400, "the drain never ends; seen {}", seen.len());
        let mut bob = Person::open_again(&server.url(), &token, "bob", "phone", cursor, session).await;
        session = Some(bob.welcome.session_id);
        for _ in 0..7 {
            let frame = bob.wait(Some).await;
            match frame {
                ServerFrame::Message(m) => {
                    bob.ack(&m).await;
                    seen.insert(m.seq, m.body);
                }
                ServerFrame::CaughtUp(_) => break,
                _ => {}
            }
        }
        cursor = bob.cursor;
        match round % 2 {
            0 => bob.vanish(),
            _ => bob.leave().await,
        }
        if seen.len() == 100 {
            break;
        }
    }
    let seqs: Vec<_> = seen.keys().copied().collect();
    assert_eq!(seqs, (1..=100).collect::<Vec<_>>());
    assert!(seen.iter().all(|(seq, body)| *body == seq.to_string()));
}
