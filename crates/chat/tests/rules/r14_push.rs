//! R14: one decision a message, after its row is written: who is told, what of, and who need not be.

use std::time::Duration;

use bluetick_chat::{NotificationKind, PushApi, PushConfig, ReceiptApi, ReceiptRequest, UserApi};
use bluetick_protocol::{ErrorCode, Json, Mute, Profile, PushContent, PushTarget, Send as SendFrame};

use crate::harness::{Setup, World, conversation, message, phone, tablet, user};

const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::with(Setup { push: Some(PushConfig::default()), ..Setup::default() })
}

async fn with_bobs_phone() -> World {
    let world = world();
    world.registers("bob", "phone", "bobs-phone").await;
    world
}

async fn read(world: &World, who: &str, id: &str, seq: u64) {
    let request = ReceiptRequest {
        user: user(who),
        session: None,
        conversation_id: conversation(id),
        seq,
        again: false,
    };
    world.node.read(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn three_messages_are_three_notifications_that_replace_each_other() {
    let world = with_bobs_phone().await;
    let alice = Profile { name: Some("Alice".into()), avatar_url: None };
    world.node.put_profile(user("alice"), alice).await.unwrap();
    for body in ["hi", "are-you-there?", "where-are-you?"] {
        world.send("alice", "bob", body).await;
    }
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["Alice: hi", "Alice: are-you-there?", "Alice: where-are-you?"]);
    let got = world.phones.got();
    assert_eq!(got.iter().map(|got| got.note.badge).max(), Some(3));
    assert_eq!(got[2].note.badge, 3, "the badge is what is unread");
    let collapse_id = &got[0].note.collapse_id;
    assert!(got.iter().all(|got| got.note.collapse_id == *collapse_id));
    let ids: Vec<_> = got.iter().map(|got| got.note.id.clone()).collect();
    let id = conversation("alice~bob");
    let stored = world.store.messages.read_from(&id, 1, bluetick_store::PageLimit::messages(9));
    let messages: Vec<_> = stored.await.unwrap().iter().map(|m| m.message_id.to_string()).collect();
    assert_eq!(ids, messages, "each is named by its message");
    match &got[2].note.kind {
        NotificationKind::Alert { seq: 3, about: Some(about), .. } => {
            assert_eq!(about.conversation_id, conversation("alice~bob"));
            assert_eq!(about.sender, Some(user("alice")));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.owed("bob").await, 0);

    world.send("carol", "bob", "and-me").await;
    world.pass(2 * SECOND).await;
    let last = world.phones.got().pop().unwrap();
    assert_eq!(
        (last.shown(), last.note.badge),
        ("carol: and-me".into(), 4),
        "the badge counts all conversations"
    );
    assert_ne!(last.note.collapse_id, got[0].note.collapse_id);
}

#[tokio::test(start_paused = true)]
async fn who_is_connected_is_not_notified() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    let _bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "two").await;
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_in_time_cancels_it() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(SECOND / 2).await;
    let tablet = world.connected(tablet("bob")).await;
    assert_eq!(tablet.bodies(), ["one"]);
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 0, "another device of his has it");
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_and_does_not_ack_is_notified_in_the_end() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(SECOND / 2).await;
    let _tablet = world.connected(tablet("bob").without_acks()).await;
    world.pass(15 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 0, "it may yet ack");
    world.pass(10 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_again_and_again_and_never_acks_is_notified_all_the_same() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    for _ in 0..6 {
        let flapping = world.connected(tablet("bob").without_acks()).await;
        world.pass(10 * SECOND).await;
        flapping.vanish().await;
    }
    assert_eq!(world.phones.shown(), ["alice: one"]);
    world.send("carol", "bob", "two").await;
    for _ in 0..70 {
        let flapping = world.connected(tablet("bob").without_acks()).await;
        world.pass(SECOND).await;
        flapping.vanish().await;
    }
    assert_eq!(world.phones.shown(), ["alice: one", "carol: two"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_half_open_counts_for_nothing_after_20_seconds() {
    let world = with_bobs_phone().await;
    let half_open = world.connected(phone("bob").without_acks()).await;
    world.pass(30 * SECOND).await;
    world.send("alice", "bob", "one").await;
    world.pass(19 * SECOND).await;
    assert_eq!(half_open.bodies(), ["one"], "it was handed over");
    assert_eq!(world.phones.tried().len(), 0);
    assert_eq!(world.row("bob", "alice~bob").await, None);
    world.pass(3 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "and it has its row");
    world.pass(5 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 1, "once");
    assert_eq!(half_open.bye(), None, "the session may yet turn out to live");
    half_open.ack("alice~bob", 1);
    world.pass(SECOND).await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "and then settles what it has");
}

#[tokio::test(start_paused = true)]
async fn each_message_has_its_own_20_seconds() {
    let world = with_bobs_phone().await;
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "one").await;
    world.pass(15 * SECOND).await;
    world.send("carol", "bob", "two").await;
    world.pass(8 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    bob.ack("bob~carol", 1);
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"], "what was acked in time is not notified");
}

#[tokio::test(start_paused = true)]
async fn a_steady_stream_to_a_half_open_session_does_not_put_it_off() {
    let world = with_bobs_phone().await;
    let _half_open = world.connected(phone("bob").without_acks()).await;
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
        world.pass(5 * SECOND).await;
    }
    assert_eq!(world.phones.tried().len(), 1, "after 20 seconds without an ack");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_closes_leaves_what_it_had_not_acked_to_the_phone() {
    let world = with_bobs_phone().await;
    let bob = world.connected(tablet("bob").without_acks()).await;
    world.send("alice", "bob", "one").await;
    world.quiet().await;
    bob.vanish().await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_the_same_message_is_the_same_decision() {
    let world = with_bobs_phone().await;
    for _ in 0..3 {
        world.try_send("alice", "bob", "one").await.unwrap();
        world.pass(3 * SECOND).await;
    }
    assert_eq!(world.phones.shown(), ["alice: one"]);
    // While it waits, too.
    for _ in 0..3 {
        world.try_send("alice", "bob", "two").await.unwrap();
    }
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "alice: two"]);
}

#[tokio::test(start_paused = true)]
async fn muted_conversations_and_blocked_senders_notify_nobody() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    let id = conversation("alice~bob");
    let mute = |until: Option<u64>| Mute { conversation_id: id.clone(), until };
    world.node.mute(user("bob"), mute(None)).await.unwrap();
    world.send("alice", "bob", "muted").await;
    world.pass(2 * SECOND).await;
    world.node.unmute(user("bob"), id.clone()).await.unwrap();
    let until = world.cursor_now().ms() + 60_000;
    world.node.mute(user("bob"), mute(Some(until))).await.unwrap();
    world.send("alice", "bob", "muted-for-a-minute").await;
    world.pass(61 * SECOND).await;
    world.send("alice", "bob", "two").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "alice: two"]);
    assert_eq!(world.phones.got()[1].note.badge, 4, "what is muted is unread all the same");

    world.node.set_block(user("bob"), user("alice"), true).await.unwrap();
    world.send("alice", "bob", "withheld").await;
    world.node.set_block(user("bob"), user("carol"), false).await.unwrap();
    world.send("carol", "bob", "blocked-at-the-last-moment").await;
    world.node.set_block(user("bob"), user("carol"), true).await.unwrap();
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown().len(), 2);
    assert_eq!(world.owed("bob").await, 0);

    let refused = world.node.mute(user("mallory"), mute(None)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound, "who is not a member learns nothing");
    let past = world.node.mute(user("bob"), mute(Some(1))).await.unwrap_err();
    assert_eq!(past.code, ErrorCode::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_device_shows_no_more_than_it_allows() {
    let world = world();
    let fcm = |token: &str| PushTarget::Fcm { token: token.into() };
    world.registers_as("bob", "a", fcm("all"), PushContent::Preview).await;
    world.registers_as("bob", "b", fcm("sender"), PushContent::Sender).await;
    world.registers_as("bob", "c", fcm("none"), PushContent::None).await;
    world.send("alice", "bob", "secret").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown_on("all"), ["alice: secret"]);
    assert_eq!(world.phones.shown_on("sender"), ["alice: New message"]);
    assert_eq!(world.phones.shown_on("none"), ["New message"]);
    let whole = format!("{:?}", world.phones.got().iter().find(|got| got.token == "none").unwrap().note);
    assert!(!whole.contains("alice") && !whole.contains("secret"), "not even to the provider: {whole}");
}

#[tokio::test(start_paused = true)]
async fn the_server_may_allow_less_than_the_device() {
    let config =
        PushConfig { content: PushContent::Sender, text: "Neue Nachricht".into(), ..PushConfig::default() };
    let world = World::with(Setup { push: Some(config), ..Setup::default() });
    world.registers("bob", "phone", "bobs-phone").await;
    world.send("alice", "bob", "secret").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: Neue Nachricht"]);
}

#[tokio::test(start_paused = true)]
async fn an_encrypted_body_is_never_shown() {
    let world = with_bobs_phone().await;
    for (n, meta) in [r#"{"encrypted":true}"#, r#"{"encrypted":"yes","v":1}"#, r#"{"encrypted":false}"#]
        .into_iter()
        .enumerate()
    {
        let meta: Json = serde_json::from_str(meta).unwrap();
        let send = SendFrame { meta: Some(meta), ..message("bob", &format!("body{n}")) };
        world.send_frame("alice", send).await.unwrap();
    }
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: New message", "alice: New message", "alice: body2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_read_elsewhere_is_cleared() {
    let world = with_bobs_phone().await;
    world.registers("bob", "tablet", "bobs-tablet").await;
    world.send("alice", "bob", "one").await;
    world.send("alice", "bob", "two").await;
    world.send("carol", "bob", "three").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.got().len(), 6);
    let tablet = world.connected(tablet("bob")).await;
    tablet.read("alice~bob", 1);
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.got().len(), 6, "the phone still shows what is not read");
    tablet.read("alice~bob", 2);
    world.pass(2 * SECOND).await;
    let cleared: Vec<_> = world.phones.got().split_off(6);
    assert_eq!(cleared.len(), 1, "once, and not the device that read it: {cleared:?}");
    assert_eq!((cleared[0].token.as_str(), cleared[0].shown().as_str()), ("bobs-phone", "(clear)"));
    assert_eq!(cleared[0].note.badge, 1, "what is left unread");
    match &cleared[0].note.kind {
        NotificationKind::Clear { seq: 2, about: Some(about) } => {
            assert_eq!(about.conversation_id, conversation("alice~bob"));
        }
        other => panic!("{other:?}"),
    }
    // What nobody was notified of needs no clearing.
    world.send("alice", "bob", "live").await;
    world.pass(SECOND).await;
    read(&world, "bob", "alice~bob", 3).await;
    world.pass(5 * SECOND).await;
    assert_eq!(world.phones.got().len(), 7);
    drop(tablet);
}

#[tokio::test(start_paused = true)]
async fn what_is_read_while_its_notification_is_on_its_way_is_cleared_too() {
    let world = with_bobs_phone().await;
    world.phones.set_slow(5 * SECOND);
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    read(&world, "bob", "alice~bob", 1).await;
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "(clear)"]);
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn replies_that_come_together_clear_what_the_first_reads() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    let tablet = world.connected(tablet("bob")).await;
    world.send("alice", "bob", "two").await;
    world.quiet().await;
    for (id, seen) in [("a", 1), ("b", 2)] {
        let send = serde_json::json!({"type": "send", "client_msg_id": id, "to": "alice", "body": id, "seen_seq": seen});
        tablet.say(send);
    }
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "(clear)"]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_clears_what_it_reads() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    let send = SendFrame { seen_seq: Some(1), ..message("alice", "reply") };
    world.send_frame("bob", send).await.unwrap();
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "(clear)"]);
    let send = SendFrame { seen_seq: Some(1), ..message("alice", "another") };
    world.send_frame("bob", send).await.unwrap();
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_ones_own_messages_nobody_is_told() {
    let world = with_bobs_phone().await;
    let bob = world.connected(tablet("bob").without_acks()).await;
    world.send("alice", "bob", "one").await;
    world.quiet().await;
    // His own comes after it, and is the last when the session ends without an ack.
    world.send("bob", "alice", "two").await;
    bob.vanish().await;
    world.pass(3 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    read(&world, "bob", "alice~bob", 1).await;
    world.pass(3 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "(clear)"]);
}

#[tokio::test(start_paused = true)]
async fn a_user_without_devices_is_owed_nothing() {
    let world = world();
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.owed("bob").await, 0);
    world.registers("bob", "phone", "bobs-phone").await;
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_devices_goes() {
    let world = world();
    for n in 0..22 {
        world.registers("bob", &format!("device{n}"), &format!("token{n:02}")).await;
        world.clock.advance(1);
    }
    let tokens = world.tokens_of("bob").await;
    assert_eq!(tokens.len(), 20);
    assert!(!tokens.contains(&"token00".to_owned()) && !tokens.contains(&"token01".to_owned()));
}
