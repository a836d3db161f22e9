//! The same `client_msg_id` is the same message, however often it is sent.

use bluetick_protocol::*;

use crate::{deployment::VOIDS, harness::*};

#[tokio::test]
async fn the_same_client_msg_id_twenty_times_at_once_and_after_a_restart() {
    let mut server = Server::start();
    let mut send = send_frame("bob", "only once");
    send.client_msg_id = ClientMsgId::new("the-one").unwrap();
    let mut tries = Vec::new();
    for n in 0..20 {
        // Ten devices at most: each carries two of the tries.
        let device = format!("device-{}", n % 10);
        if n < 10 {
            let person = server.connect("alice", &device).await;
            tries.push(person);
        }
    }
    let mut tasks = Vec::new();
    for mut person in tries {
        let send = send.clone();
        tasks.push(tokio::spawn(async move {
            person.say(ClientFrame::Send(send.clone())).await;
            person.say(ClientFrame::Send(send)).await;
            let mut got = Vec::new();
            while got.len() < 2 {
                got.push(person.wait(|f| if let ServerFrame::Sent(s) = f { Some(s) } else { None }).await);
            }
            got
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await.unwrap());
    }
    assert_eq!(answers.len(), 20);
    let told = |sent: &Sent| (sent.seq, sent.message_id, sent.ts);
    assert!(answers.iter().all(|sent| told(sent) == told(&answers[0])), "{answers:?}");
    // Where seqs are handed out before the write, those of the other tries may be left out.
    assert!(VOIDS || answers[0].seq == 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|s| !s.duplicate).count(), 1);

    server.kill();
    server.restart();
    let mut alice = server.connect("alice", "phone").await;
    let again = alice.send_as(send).await;
    assert!(again.duplicate);
    assert_eq!(told(&again), told(&answers[0]));
    assert_eq!(alice.history("alice~bob", None, None, 50).await.messages.len(), 1);
    let mut bob = server.open("bob", "phone", None).await;
    assert_eq!(bodies(&bob.caught_up().await.0), ["only once"]);
    assert_eq!(server.inspect("conversations", "bob")[0]["unread_count"], 1);
}

#[tokio::test]
async fn two_senders_may_use_the_same_client_msg_id() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let id = ClientMsgId::new("same").unwrap();
    let mut from_alice = send_frame("bob", "a");
    from_alice.client_msg_id = id.clone();
    let mut from_bob = send_frame("alice", "b");
    from_bob.client_msg_id = id;
    assert_eq!(alice.send_as(from_alice).await.seq, 1);
    let sent = bob.send_as(from_bob).await;
    assert_eq!((sent.seq, sent.duplicate), (2, false));
}
