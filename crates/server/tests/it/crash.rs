//! `kill -9` under load: every acked message is there, and no seq is used twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bluetick_client::RawConnection;
use bluetick_protocol::*;

use crate::harness::*;

/// Sends until the connection breaks. Remembers what it was told is sent.
async fn write_until_broken(
    url: String,
    token: String,
    name: String,
    to: String,
    sent: Arc<Mutex<Vec<(Sent, String)>>>,
) {
    let Ok(mut wire) = RawConnection::connect(&url).await else {
        return;
    };
    if wire.hello(&token, &DeviceId::new("phone").unwrap(), None).await.is_err() {
        return;
    }
    let mut bodies = BTreeMap::new();
    for n in 0.. {
        for k in 0..8 {
            let frame = send_frame(&to, &format!("{name} {n} {k}"));
            bodies.insert(frame.client_msg_id.clone(), frame.body.clone());
            if wire.feed_frame(&ClientFrame::Send(frame)).await.is_err() {
                return;
            }
        }
        if wire.flush().await.is_err() {
            return;
        }
        let mut answered = 0;
        while answered < 8 {
            match wire.next_frame(SOON).await {
                Ok(ServerFrame::Sent(s)) => {
                    answered += 1;
                    let body = bodies[&s.client_msg_id].clone();
                    sent.lock().unwrap().push((s, body));
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_under_load_lose_no_acked_message() {
    const PAIRS: usize = 4;
    let mut server = Server::with(&[
        ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
        // Small, so that checkpoints run all the time and are hit too.
        ("BLUETICK_STORE__CHECKPOINT_BYTES", "200000"),
    ]);
    let sent = Arc::new(Mutex::new(Vec::new()));
    for round in 0..10u64 {
        let mut writers = Vec::new();
        for pair in 0..PAIRS {
            let (name, to) = (format!("a{pair}"), format!("b{pair}"));
            let token = server.token(&name);
            writers.push(tokio::spawn(write_until_broken(server.url(), token, name, to, sent.clone())));
        }
        tokio::time::sleep(Duration::from_millis(150 + round * 37)).await;
        server.kill();
        for writer in writers {
            writer.await.unwrap();
        }
        server.restart();
    }
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    assert!(sent.len() > 200, "there was load: {}", sent.len());
    let mut by_place: BTreeMap<(ConversationId, Seq), (MessageId, String)> = BTreeMap::new();
    for (s, body) in sent {
        let before = by_place.insert((s.conversation_id.clone(), s.seq), (s.message_id, body));
        assert!(before.is_none(), "seq {} of {} was given twice", s.seq, s.conversation_id);
    }
    for pair in 0..PAIRS {
        let (a, b) = (format!("a{pair}"), format!("b{pair}"));
        let id = format!("{a}~{b}");
        let mut bob = server.open(&b, "phone", None).await;
        let (mut stored, mut after) = (BTreeMap::new(), 0);
        loop {
            let page = bob.history(&id, Some(after), None, 200).await;
            stored.extend(page.messages.iter().map(|m| (m.seq, (m.message_id, m.body.clone()))));
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        let seqs: Vec<_> = stored.keys().copied().collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no holes in {id}");
        for ((conversation, seq), what) in by_place.iter().filter(|((c, _), _)| c.as_str() == id) {
            assert_eq!(stored.get(seq), Some(what), "{conversation} {seq} was acked and is gone or changed");
        }
        let unread = server.inspect("conversations", &b)[0]["unread_count"].as_u64();
        assert_eq!(unread, Some(seqs.len() as u64), "unread is what a count says");
        assert_eq!(server.pending(&b), [(id.clone(), 1)]);
    }
}
