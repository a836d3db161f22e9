//! Hand-overs run concurrently, and `sent` waits only for its promise: one session that accepted, or the pending row
//! (R2, R12). A gateway that hangs delays it by the hedge, however many sessions it has.

use std::time::Duration;

use bluetick_chat::{PresenceApi, ReceiptApi, ReceiptRequest, SendApi, SendRequest};
use tokio::time::Instant;

use crate::harness::{Client, TestDevice, World, conversation, message, phone, tablet, user};

const HEDGE: Duration = Duration::from_millis(250);
const DEADLINE: Duration = Duration::from_secs(2);
/// More than any step here takes by itself: time passes only where somebody waits for it.
const A_MOMENT: Duration = Duration::from_millis(20);
/// Sessions notice within a heartbeat that their entry is gone.
const HEARTBEAT: Duration = Duration::from_secs(21);

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let done = work.await;
    (done, began.elapsed())
}

fn is_hedge(waited: Duration) -> bool {
    (HEDGE..HEDGE + A_MOMENT).contains(&waited)
}

async fn eight_devices_at(world: &World, gateway: &str) -> Vec<Client> {
    let mut devices = Vec::new();
    for n in 0..8 {
        devices.push(world.connected(TestDevice::new("bob", &format!("d{n}")).at_gateway(gateway)).await);
    }
    devices
}

#[tokio::test(start_paused = true)]
async fn a_session_that_hangs_delays_sent_by_the_hedge() {
    let world = World::new();
    let bob = world.connected(phone("bob").at_gateway("far")).await;
    world.silence("far");
    let (_, waited) = timed(world.send("alice", "bob", "hello")).await;
    assert!(is_hedge(waited), "the sender waited {waited:?}");
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "the promise holds by the row");
    assert_eq!(world.registered("bob").await, ["phone"], "it may yet answer");
    world.pass(DEADLINE).await;
    assert!(world.registered("bob").await.is_empty(), "it did not");
    world.unsilence("far");
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bodies(), ["hello"]);
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn eight_sessions_that_hang_delay_it_no_more_than_one() {
    let world = World::new();
    let devices = eight_devices_at(&world, "far").await;
    world.silence("far");
    for n in 1..=5 {
        let (_, waited) = timed(world.send("alice", "bob", &n.to_string())).await;
        assert!(is_hedge(waited), "{n}: the sender waited {waited:?}");
    }
    world.pass(DEADLINE).await;
    assert!(world.registered("bob").await.is_empty(), "all of them missed the same deadline");
    let (_, waited) = timed(world.send("alice", "bob", "6")).await;
    assert!(waited < A_MOMENT, "nobody is there to be waited for: {waited:?}");
    world.unsilence("far");
    world.pass(HEARTBEAT).await;
    for device in devices {
        assert_eq!(device.bodies(), ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(device.seqs(), [1, 2, 3, 4, 5, 6], "each once");
    }
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn one_session_that_accepts_is_enough() {
    let world = World::new();
    let far = eight_devices_at(&world, "far").await;
    let near = world.connected(phone("bob").at_gateway("near")).await;
    world.silence("far");
    for (body, answers_after) in [("hello", None), ("again", Some(Duration::from_millis(5)))] {
        if let Some(delay) = answers_after {
            world.slow_down("near", delay);
        }
        let (_, waited) = timed(world.send("alice", "bob", body)).await;
        assert!(waited < A_MOMENT, "the sender waited {waited:?}");
        assert_eq!(world.row("bob", "alice~bob").await, None, "a session has it");
    }
    world.pass(DEADLINE).await;
    assert_eq!(near.bodies(), ["hello", "again"]);
    assert_eq!(world.registered("bob").await, ["phone"]);
    world.unsilence("far");
    world.pass(HEARTBEAT).await;
    for device in far {
        assert_eq!(device.bodies(), ["hello", "again"], "it missed its entry, and drained anew");
    }
}

#[tokio::test(start_paused = true)]
async fn echoes_and_ticks_do_not_delay_sent() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let _his_other = world.connected(tablet("bob").at_gateway("far")).await;
    let alice = world.connected(phone("alice")).await;
    let _her_other = world.connected(tablet("alice").at_gateway("far")).await;
    world.send("bob", "alice", "question").await;
    world.quiet().await;
    world.silence("far");
    let mut reply = message("bob", "answer");
    // It implies a read, of which all sessions of both are told.
    reply.seen_seq = Some(1);
    let (sent, waited) = timed(world.send_frame("alice", reply)).await;
    assert_eq!(sent.unwrap().seq, 2);
    assert!(waited < A_MOMENT, "the sender waited {waited:?}");
    world.quiet().await;
    assert_eq!(alice.bodies(), ["question", "answer"], "her phone is not kept waiting by her tablet");
    let hers = bob.ticks().into_iter().rfind(|ticks| ticks.user_id == user("alice"));
    assert_eq!(hers.map(|ticks| ticks.last_read_seq), Some(1), "nor is he by his");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_accepts_late_gets_it_once_and_leaves_no_row() {
    let world = World::new();
    let bob = world.connected(phone("bob").at_gateway("far")).await;
    world.slow_down("far", HEDGE + Duration::from_millis(150));
    for n in 1..=3 {
        let (_, waited) = timed(world.send("alice", "bob", &n.to_string())).await;
        assert!(is_hedge(waited), "{n}: the sender waited {waited:?}");
    }
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(DEADLINE).await;
    assert_eq!(bob.seqs(), [1, 2, 3], "each once, in order");
    assert_eq!(world.row("bob", "alice~bob").await, None, "it was told of the row");
    assert_eq!(world.registered("bob").await, ["phone"], "it was never taken for gone");
}

#[tokio::test(start_paused = true)]
async fn a_later_message_that_overtakes_is_put_in_order() {
    let world = World::new();
    let bob = world.connected(phone("bob").at_gateway("far")).await;
    world.slow_down("far", Duration::from_secs(1));
    world.send("alice", "bob", "one").await;
    world.slow_down("far", Duration::ZERO);
    world.send("alice", "bob", "two").await;
    world.pass(DEADLINE).await;
    assert_eq!(bob.seqs(), [1, 2]);
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn many_messages_at_once_wait_for_the_hedge_once() {
    let world = World::new();
    let bob = world.connected(phone("bob").at_gateway("far")).await;
    world.silence("far");
    // Handed over in several portions.
    let sends = (0..60).map(|n| {
        let mut send = message("bob", &n.to_string());
        send.body = "x".repeat(15_000);
        send
    });
    let request = SendRequest { user: user("alice"), session: None, sends: sends.collect() };
    let (answers, waited) = timed(world.node.send(request)).await;
    assert!(answers.iter().all(Result::is_ok));
    assert!(is_hedge(waited), "the sender waited {waited:?}");
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "the row keeps the lowest");
    world.pass(DEADLINE).await;
    world.unsilence("far");
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.seqs(), (1..=60).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn acks_and_typing_are_delayed_by_the_hedge_at_most() {
    let world = World::new();
    for n in 0..8 {
        world.connected(TestDevice::new("alice", &format!("d{n}")).at_gateway("far")).await;
    }
    world.send("alice", "bob", "hello").await;
    world.silence("far");
    let id = conversation("alice~bob");
    let ack = ReceiptRequest {
        user: user("bob"),
        session: None,
        conversation_id: id.clone(),
        seq: 1,
        again: false,
    };
    let (acked, waited) = timed(world.node.ack(ack)).await;
    assert!(acked.is_ok() && is_hedge(waited), "{acked:?} after {waited:?}");
    let (typed, waited) = timed(world.node.typing(user("bob"), id)).await;
    assert!(typed.is_ok() && is_hedge(waited), "{typed:?} after {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_goes_on_in_the_background() {
    let world = World::new();
    let _bob = world.connected(phone("bob").at_gateway("far")).await;
    let background = world.node.background();
    let ((), waited) = timed(background.idle()).await;
    assert!(waited < A_MOMENT, "there is nothing: {waited:?}");
    world.silence("far");
    world.send("alice", "bob", "hello").await;
    let ((), waited) = timed(background.idle()).await;
    assert!(waited >= DEADLINE - HEDGE && waited < DEADLINE * 2, "until the last deadline: {waited:?}");
    assert!(world.registered("bob").await.is_empty());
}
