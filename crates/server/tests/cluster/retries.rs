//! An app server dies in the middle of a request, between two steps of the rules. The gateway asks the other one, and
//! nobody notices: each message is told once, stored once and delivered.

use std::{collections::BTreeMap, os::unix::process::ExitStatusExt, time::Duration};

use bluetick_protocol::*;

use crate::harness::*;

/// Rounds until the point was surely passed: half of the requests go to the app server that is to die.
const ROUNDS: usize = 40;

/// Bob as his phone keeps him: it drops what it has seen.
#[derive(Default)]
struct Phone {
    seen: BTreeMap<Seq, String>,
}

impl Phone {
    fn take(&mut self, message: &MessageFrame) {
        let before = self.seen.insert(message.seq, message.body.clone());
        assert!(before.is_none_or(|b| b == message.body), "seq {} changed", message.seq);
    }
}

async fn dies_at(point: &str) {
    let mut server = Server::start();
    let app = &mut server.deployment.cluster().apps[0];
    app.kill();
    app.launch_armed(&format!("{point}:2"));
    app.wait_until_it_listens();
    app.wait_until_ready();
    let (url, token) = (server.url(), server.mint("bob"));
    let mut alice = server.connect("alice", "phone").await;
    let (mut phone, mut sent, mut left) = (Phone::default(), Vec::new(), 3);
    for round in 0.. {
        assert!(round < ROUNDS, "{point} was never passed");
        // While bob is away: a row is written, drained, acked and settled.
        sent.push(send_once(&mut alice, &format!("{round} while away")).await);
        let mut bob = Person::open(&url, &token, "bob", "phone", None).await;
        let (messages, _) = bob.caught_up().await;
        messages.iter().for_each(|message| phone.take(message));
        bob.ack_seq("alice~bob", *sent.last().unwrap()).await;
        ticked(&mut alice, *sent.last().unwrap()).await;
        // While he is there: it is handed over.
        sent.push(send_once(&mut alice, &format!("{round} while there")).await);
        while !phone.seen.contains_key(sent.last().unwrap()) {
            phone.take(&bob.message().await);
        }
        bob.ack_seq("alice~bob", *sent.last().unwrap()).await;
        ticked(&mut alice, *sent.last().unwrap()).await;
        no_rows(&server, "bob").await;
        bob.leave().await;
        // A few rounds more after it died.
        let app = &mut server.deployment.cluster().apps[0];
        if app.is_running() {
            if let Some(status) = app.ended(Duration::from_millis(1)).await {
                assert_eq!(status.signal(), Some(9), "{point}: {status:?}");
            }
        } else {
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    let seqs: Vec<Seq> = phone.seen.keys().copied().collect();
    assert_eq!(seqs, sent, "{point}: bob has what alice was told of, once and in order");
    let stored = alice.history("alice~bob", None, None, 200).await;
    let stored: Vec<_> = stored.messages.iter().map(|m| (m.seq, m.body.clone())).collect();
    assert_eq!(stored, phone.seen.into_iter().collect::<Vec<_>>(), "{point}: each is stored once");
}

/// Sends, and hears of it exactly once.
async fn send_once(alice: &mut Person, body: &str) -> Seq {
    let sent = alice.send("bob", body).await;
    let again = |f| if let ServerFrame::Sent(sent) = f { Some(sent) } else { None };
    assert!(alice.wire.next_where(Duration::from_millis(5), again).await.is_err(), "told twice: {body}");
    sent.seq
}

/// Waits until bob's device is known to have a message. Ticks are state: one that was lost is in the status.
async fn ticked(alice: &mut Person, seq: Seq) {
    let ticks = |f| match f {
        ServerFrame::Ticks(t) if t.user_id.as_str() == "bob" && t.last_delivered_seq >= seq => Some(()),
        _ => None,
    };
    if alice.wire.next_where(Duration::from_secs(5), ticks).await.is_err() {
        panic!("nobody told alice that bob has {seq}; the status is {:?}", alice.status("alice~bob").await);
    }
}

async fn no_rows(server: &Server, name: &str) {
    for _ in 0..200 {
        if server.rows("pending", name).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} has acked all and still has {:?}", server.rows("pending", name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_is_made_again_elsewhere_when_its_app_server_dies_after_the_commit() {
    dies_at("send.committed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_is_made_again_elsewhere_when_its_app_server_dies_after_it() {
    dies_at("deliver.handed_over").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_is_made_again_elsewhere_when_its_app_server_dies_after_storing_it() {
    dies_at("ack.stored").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_settled_again_elsewhere_when_its_app_server_dies_after_removing_it() {
    dies_at("settle.row_removed").await;
}
