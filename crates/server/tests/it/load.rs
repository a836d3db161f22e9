//! A thousand pairs at once: nothing lost, and the memory comes back.

use std::{collections::BTreeSet, time::Duration};

use bluetick_client::RawConnection;
use bluetick_protocol::*;

use crate::{deployment::PAIRS, harness::*};

fn token(secret: &str, user: &str) -> String {
    let claims = serde_json::json!({"sub": user, "exp": 4_000_000_000u64});
    let key = jsonwebtoken::EncodingKey::from_secret(secret.trim().as_bytes());
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

async fn join(url: &str, token: String) -> RawConnection {
    let mut wire = RawConnection::connect(url).await.unwrap();
    wire.hello(&token, &DeviceId::new("phone").unwrap(), None).await.unwrap();
    wire.next_where(SOON * 4, |f| matches!(f, ServerFrame::CaughtUp(_)).then_some(())).await.unwrap();
    wire
}

async fn receive(mut wire: RawConnection, count: u64) -> RawConnection {
    let mut seen = BTreeSet::new();
    while (seen.len() as u64) < count {
        if let ServerFrame::Message(m) = wire.next_frame(SOON * 8).await.unwrap() {
            assert!(seen.insert(m.seq), "seq {} came twice", m.seq);
            assert_eq!(seen.len() as u64, m.seq, "in order");
            let ack = Receipt { reference: None, conversation_id: m.conversation_id, seq: m.seq };
            wire.send_frame(&ClientFrame::Ack(ack)).await.unwrap();
        }
    }
    wire
}

async fn send(mut wire: RawConnection, to: String, count: u64) -> RawConnection {
    let (mut sent, mut delivered) = (0, 0);
    for n in 0..count {
        wire.feed_frame(&ClientFrame::Send(send_frame(&to, &format!("number {n} of a long conversation"))))
            .await
            .unwrap();
    }
    wire.flush().await.unwrap();
    while sent < count || delivered < count {
        match wire.next_frame(SOON * 8).await.unwrap() {
            ServerFrame::Sent(_) => sent += 1,
            ServerFrame::Ticks(t) => delivered = t.last_delivered_seq,
            ServerFrame::Error(e) => panic!("{:?}", e.error),
            _ => {}
        }
    }
    wire
}

/// The memory in use once what a round set off (compactions, the last sessions' ends) is over: the least of some readings.
async fn settled(server: &Server) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        least = least.min(server.rss());
    }
    least
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pairs_lose_nothing_and_the_memory_comes_back() {
    let quick = std::env::var_os("BLUETICK_TEST_QUICK").is_some();
    let (pairs, messages) = if quick { PAIRS.min((100, 10)) } else { PAIRS };
    let server = Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "0")]);
    server.token("alice");
    let secret = std::fs::read_to_string(server.data().join("jwt.secret")).unwrap();
    let url = server.url();
    let mut rss = Vec::new();
    for round in 0..4 {
        let mut tasks = Vec::new();
        for pair in 0..pairs {
            let (a, b) = (format!("r{round}-a{pair}"), format!("r{round}-b{pair}"));
            let (url, ta, tb) = (url.clone(), token(&secret, &a), token(&secret, &b));
            tasks.push(tokio::spawn(async move {
                let (sender, receiver) = (join(&url, ta).await, join(&url, tb).await);
                let (sender, receiver) = tokio::join!(send(sender, b, messages), receive(receiver, messages));
                sender.close().await;
                receiver.close().await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let key = std::fs::read_to_string(server.data().join("admin.key")).unwrap();
        let checkpoint =
            crate::http::client().post(server.http("/admin/v1/checkpoint")).bearer_auth(key.trim());
        assert!(checkpoint.send().await.unwrap().status().is_success());
        rss.push(settled(&server).await >> 20);
    }
    println!("MiB of memory after each round: {rss:?}");
    // The first two rounds fill caches; what a session or a message left behind would be there twice more by the last.
    let chance = 8 + 16 * pairs as u64 / 1000;
    assert!(rss[3] <= rss[0].max(rss[1]) + chance, "memory grows from round to round: {rss:?} MiB");
}
