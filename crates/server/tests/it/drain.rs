//! Coming back: one ordered stream, however the connection ends on the way.

use std::collections::BTreeMap;

use bluetick_protocol::*;

use crate::{deployment::FLAP, harness::*};

#[tokio::test]
async fn three_conversations_come_as_one_ordered_stream() {
    let server = Server::start();
    let mut people = Vec::new();
    for name in ["alice", "carol", "dave"] {
        people.push(server.connect(name, "phone").await);
    }
    let mut expected = Vec::new();
    for round in 0..10 {
        for person in &mut people {
            let sent = person.send("bob", &format!("{round} of {}", person.name)).await;
            expected.push((sent.conversation_id, sent.seq));
        }
    }
    assert_eq!(server.pending("bob").len(), 3);
    let mut bob = server.open("bob", "phone", None).await;
    let (messages, caught_up) = bob.caught_up().await;
    let got: Vec<_> = messages.iter().map(|m| (m.conversation_id.clone(), m.seq)).collect();
    assert_eq!(got, expected, "in the order of their message ids");
    assert!(messages.is_sorted_by_key(|m| m.message_id));
    assert_eq!(caught_up.heads.len(), 3);
    for id in ["alice~bob", "bob~carol", "bob~dave"] {
        bob.ack_seq(id, 10).await;
    }
    server.pending_becomes("bob", &[]).await;
    bob.hears_no(|f| matches!(f, ServerFrame::CaughtUp(_)).then_some(())).await;
}

#[tokio::test]
async fn a_closing_session_leaves_a_row_for_what_it_did_not_get_acked() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    for n in 1..=5 {
        alice.send("bob", &format!("{n}")).await;
    }
    assert_eq!(server.pending("bob"), [], "a live session took them");
    bob.ack_seq("alice~bob", 2).await;
    bob.leave().await;
    server.pending_becomes("bob", &[("alice~bob", 3)]).await;
    // A device without a cursor gets them from the row.
    let mut tablet = server.open("bob", "tablet", None).await;
    assert_eq!(bodies(&tablet.caught_up().await.0), ["3", "4", "5"]);
}

#[tokio::test]
async fn a_cursor_that_cannot_be_served_gets_a_reset_and_caught_up() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "one").await;
    for cursor in [MessageId(1), MessageId::MAX] {
        let mut bob = server.open("bob", "phone", Some(cursor)).await;
        let mut reset = false;
        bob.wait(|f| match f {
            ServerFrame::Reset(_) => {
                reset = true;
                None
            }
            ServerFrame::CaughtUp(_) => Some(()),
            _ => None,
        })
        .await;
        assert!(reset, "cursor {cursor}");
        bob.leave().await;
        gone(&server, "bob").await;
    }
}

#[tokio::test]
async fn a_recipient_that_flaps_while_two_devices_write_misses_nothing() {
    const EACH: usize = 300;
    let server = Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "0")]);
    let url = server.url();
    let mut writers = Vec::new();
    for device in ["phone", "laptop"] {
        let mut alice = server.connect("alice", device).await;
        writers.push(tokio::spawn(async move {
            let mut sent = Vec::new();
            for n in 0..EACH {
                sent.push(alice.send("bob", &format!("{device} {n}")).await.seq);
            }
            sent
        }));
    }
    let token = server.token("bob");
    let flapping = tokio::spawn(async move {
        let (mut seen, mut cursor, mut turn) = (BTreeMap::new(), None, 0u32);
        while seen.len() < 2 * EACH {
            turn += 1;
            assert!(turn < 2000, "only {} of {} came", seen.len(), 2 * EACH);
            let mut bob = Person::open(&url, &token, "bob", "phone", cursor).await;
            let life = FLAP * (turn % 7 * 3 + 1);
            let until = tokio::time::Instant::now() + life;
            while let Some(left) = until.checked_duration_since(tokio::time::Instant::now()) {
                match bob.wire.next_frame(left).await {
                    Ok(ServerFrame::Message(m)) => {
                        if turn % 3 != 0 {
                            let ack = Receipt {
                                reference: None,
                                conversation_id: m.conversation_id.clone(),
                                seq: m.seq,
                            };
                            if bob.wire.send_frame(&ClientFrame::Ack(ack)).await.is_err() {
                                break;
                            }
                            bob.cursor = bob.cursor.max(Some(m.message_id));
                        }
                        let before = seen.insert(m.seq, m.body.clone());
                        assert!(before.is_none_or(|b| b == m.body), "seq {} changed", m.seq);
                    }
                    Ok(ServerFrame::CaughtUp(c)) => bob.cursor = bob.cursor.max(Some(c.cursor)),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            cursor = bob.cursor;
            if turn.is_multiple_of(2) { bob.vanish() } else { bob.leave().await }
        }
        seen
    });
    let mut sent: Vec<Seq> = Vec::new();
    for writer in writers {
        sent.extend(writer.await.unwrap());
    }
    sent.sort_unstable();
    assert_eq!(sent, (1..=2 * EACH as u64).collect::<Vec<_>>(), "no seq twice, none left out");
    let seen = flapping.await.unwrap();
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), sent);
}
