//! R14 when things go wrong: providers that are down, tokens that are gone, app servers that die. At least once at the
//! provider, with the same id, and nothing is lost.

use std::time::Duration;

use bluetick_chat::{PushApi, PushConfig, Pushed, SendApi, SendRequest};
use bluetick_protocol::{PushContent, PushTarget};
use bluetick_store::PageLimit;

use crate::harness::{Setup, StoreMethod, World, conversation, later, message, tablet, user};

const SECOND: Duration = Duration::from_secs(1);

async fn with_bobs_phone() -> World {
    let world = World::with(Setup { push: Some(PushConfig::default()), ..Setup::default() });
    world.registers("bob", "phone", "bobs-phone").await;
    world
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_did_not_take_goes_out_when_it_is_back_with_the_last_of_each_conversation() {
    let world = with_bobs_phone().await;
    world.phones.set_down("fcm", true);
    for round in 1..=10 {
        for friend in ["alice", "carol", "dave"] {
            world.send(friend, "bob", &format!("m{round}")).await;
        }
        world.pass(6 * SECOND).await;
    }
    assert_eq!(world.phones.got().len(), 0);
    assert_eq!(world.owed("bob").await, 3, "one row a conversation, however many messages");
    let tried = world.phones.tried().len();
    assert!(tried < 40, "a provider that is down is left alone: {tried} tries");
    world.phones.set_down("fcm", false);
    world.pass(600 * SECOND).await;
    let mut shown = world.phones.shown();
    shown.sort();
    assert_eq!(shown, ["alice: m10", "carol: m10", "dave: m10"]);
    assert!(world.phones.got().iter().all(|got| got.note.badge == 30));
    assert_eq!(world.owed("bob").await, 0);
    // And then as before.
    world.send("alice", "bob", "after").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown().last().unwrap(), "alice: after");
}

#[tokio::test(start_paused = true)]
async fn one_providers_outage_is_not_anothers() {
    let world = with_bobs_phone().await;
    let target = PushTarget::Webhook { token: "bobs-hook".into() };
    world.registers_as("bob", "hook", target, PushContent::Preview).await;
    world.phones.set_down("fcm", true);
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
        world.pass(3 * SECOND).await;
    }
    let expected: Vec<_> = (1..=5).map(|n| format!("alice: m{n}")).collect();
    assert_eq!(world.phones.shown_on("bobs-hook"), expected, "once each");
    world.phones.set_down("fcm", false);
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.shown_on("bobs-hook").len(), 5, "what has it is not sent it again");
    assert_eq!(world.phones.shown_on("bobs-phone"), ["alice: m5"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_provider_does_not_hold_up_another() {
    let config = PushConfig { concurrency: 2, ..PushConfig::default() };
    let world = World::with(Setup { push: Some(config), ..Setup::default() });
    for n in 0..50 {
        world.registers(&format!("user{n}"), "phone", &format!("token{n}")).await;
    }
    let target = PushTarget::Webhook { token: "bobs-hook".into() };
    world.registers_as("bob", "hook", target, PushContent::Preview).await;
    world.phones.set_slow_on("fcm", 30 * SECOND);
    for n in 0..50 {
        world.send("alice", &format!("user{n}"), "hi").await;
    }
    world.pass(3 * SECOND).await;
    world.send("alice", "bob", "one").await;
    world.pass(3 * SECOND).await;
    assert_eq!(world.phones.shown_on("bobs-hook"), ["alice: one"]);
    world.pass(4_000 * SECOND).await;
    assert_eq!(world.phones.got().len(), 51);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_for_a_pause_gets_it() {
    let world = with_bobs_phone().await;
    world.phones.answer("bobs-phone", [later(Some(120))]);
    world.send("alice", "bob", "one").await;
    world.pass(60 * SECOND).await;
    world.send("carol", "bob", "two").await;
    world.pass(50 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 1);
    let routes = world.service.as_ref().unwrap().push.routes();
    assert!(routes[0].paused_ms > 0 && routes[0].failing.is_some(), "{routes:?}");
    world.pass(60 * SECOND).await;
    let mut shown = world.phones.shown();
    shown.sort();
    assert_eq!(shown, ["alice: one", "carol: two"]);
    let got = world.phones.tried();
    assert_eq!(got[0].note.id, got.iter().rfind(|got| got.shown() == "alice: one").unwrap().note.id);
    assert_eq!(world.service.as_ref().unwrap().push.routes()[0].failing, None);
}

#[tokio::test(start_paused = true)]
async fn what_was_under_way_does_not_end_a_pause_that_was_asked_for() {
    let world = with_bobs_phone().await;
    world.registers("carol", "phone", "carols-phone").await;
    world.phones.set_slow(3 * SECOND);
    world.phones.answer("bobs-phone", [later(Some(120))]);
    world.send("alice", "bob", "one").await;
    world.pass(SECOND).await;
    world.send("alice", "carol", "two").await;
    world.pass(10 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: two"], "it had set out before");
    world.phones.set_slow(Duration::ZERO);
    world.send("alice", "carol", "three").await;
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: two"]);
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.shown().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_wrong_loses_nothing() {
    let world = with_bobs_phone().await;
    let wrong = || Pushed::Misconfigured { why: "InvalidProviderToken".into() };
    world.phones.answer("bobs-phone", [wrong(), wrong(), wrong()]);
    world.send("alice", "bob", "one").await;
    world.pass(3 * SECOND).await;
    let routes = world.service.as_ref().unwrap().push.routes();
    assert_eq!(routes[0].misconfigured.as_deref(), Some("InvalidProviderToken"));
    assert_eq!(world.owed("bob").await, 1);
    assert_eq!(world.tokens_of("bob").await, ["bobs-phone"], "the token is not to blame");
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    assert_eq!(world.service.as_ref().unwrap().push.routes()[0].misconfigured, None);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_gone_is_removed_unless_it_was_renewed() {
    let world = with_bobs_phone().await;
    let registered = world.cursor_now().ms();
    world.clock.advance(1_000);
    let gone = |since: Option<u64>| Pushed::Gone { since, why: "Unregistered".into() };
    world.phones.answer("bobs-phone", [gone(Some(registered - 1))]);
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    assert_eq!(
        world.tokens_of("bob").await,
        ["bobs-phone"],
        "it was registered after what the provider speaks of"
    );
    assert_eq!(world.owed("bob").await, 0);

    // The token is renewed while the provider's answer is on its way: it is tried again with the new one.
    world.phones.answer("bobs-phone", [gone(None)]);
    world.phones.set_slow(10 * SECOND);
    world.send("alice", "bob", "two").await;
    world.pass(3 * SECOND).await;
    world.registers("bob", "phone", "bobs-phone").await;
    world.phones.set_slow(Duration::ZERO);
    world.pass(20 * SECOND).await;
    assert_eq!(world.tokens_of("bob").await, ["bobs-phone"]);
    assert_eq!(world.phones.shown(), ["alice: two"]);

    world.phones.answer("bobs-phone", [gone(None)]);
    world.send("alice", "bob", "three").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.tokens_of("bob").await, [] as [&str; 0]);
    world.send("alice", "bob", "four").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 4, "nobody is left to notify");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_moves_is_notified_for_its_new_user_only() {
    let world = with_bobs_phone().await;
    world.registers("carol", "phone", "bobs-phone").await;
    world.send("alice", "bob", "for-bob").await;
    world.send("alice", "carol", "for-carol").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: for-carol"]);
}

#[tokio::test(start_paused = true)]
async fn a_device_whose_token_does_not_fit_holds_up_nobody() {
    let world = with_bobs_phone().await;
    let unfit = || Pushed::NotThisDevice { after: None, why: "SENDER_ID_MISMATCH".into() };
    for name in ["mallory", "mallet", "trudy"] {
        world.registers(name, "phone", name).await;
        world.phones.answer(name, std::iter::repeat_with(unfit).take(1_000));
        world.send("alice", name, "hi").await;
    }
    world.pass(10 * SECOND).await;
    world.send("alice", "bob", "one").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    assert_eq!(world.owed("mallory").await, 1, "the operator may yet put it right");
    world.pass(87_200 * SECOND).await;
    assert_eq!(world.owed("mallory").await, 0);
    let tries = world.phones.tried().len();
    assert!(tries < 1_000, "{tries} tries in a day");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_tried_again() {
    let world = with_bobs_phone().await;
    world.phones.answer("bobs-phone", [Pushed::Refused { why: "PayloadTooLarge".into() }]);
    world.send("alice", "bob", "one").await;
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 1);
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_given_up() {
    let config = PushConfig { max_age: 60 * SECOND, ..PushConfig::default() };
    let world = World::with(Setup { push: Some(config), ..Setup::default() });
    world.registers("bob", "phone", "bobs-phone").await;
    world.phones.set_down("fcm", true);
    world.send("alice", "bob", "one").await;
    world.pass(50 * SECOND).await;
    assert_eq!(world.owed("bob").await, 1);
    world.pass(300 * SECOND).await;
    assert_eq!(world.owed("bob").await, 0);
    world.phones.set_down("fcm", false);
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.got().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_ack_cancels_what_waits_for_its_provider() {
    let world = with_bobs_phone().await;
    world.phones.set_down("fcm", true);
    world.send("alice", "bob", "one").await;
    world.pass(10 * SECOND).await;
    let tablet = world.connected(tablet("bob")).await;
    assert_eq!(tablet.bodies(), ["one"]);
    world.phones.set_down("fcm", false);
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.got().len(), 0);
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_row_and_the_notification_loses_nothing() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.service.as_ref().unwrap().crash();
    world.pass(30 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 0);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    let _other = world.service(PushConfig::default());
    world.pass(90 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
    let id = conversation("alice~bob");
    let stored = world.store.messages.read_from(&id, 1, PageLimit::messages(1));
    assert_eq!(world.phones.got()[0].note.id, stored.await.unwrap()[0].message_id.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_provider_took_it_repeats_it_under_its_id() {
    let world = with_bobs_phone().await;
    // The process dies before it can write down that the provider has it.
    let mut writing = world.steps.stop_before(StoreMethod::RaiseNotified, "bob");
    world.send("alice", "bob", "one").await;
    world.pass(3 * SECOND).await;
    writing.reached().await;
    assert_eq!(world.phones.got().len(), 1);
    world.service.as_ref().unwrap().crash();
    let _other = world.service(PushConfig::default());
    world.pass(120 * SECOND).await;
    let got = world.phones.got();
    assert_eq!(got.len(), 2, "at least once");
    assert_eq!((&got[0].note.id, &got[0].note.collapse_id), (&got[1].note.id, &got[1].note.collapse_id));
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.got().len(), 2, "and no more once it is written down");
}

#[tokio::test(start_paused = true)]
async fn two_app_servers_make_one_decision_each() {
    let world = with_bobs_phone().await;
    let second = world.service(PushConfig::default());
    for (n, node) in [&world.node, &second.node, &world.node, &second.node].into_iter().enumerate() {
        let sends = vec![message("bob", &format!("m{n}"))];
        world.clock.advance(1);
        node.send(SendRequest { user: user("alice"), session: None, sends }).await.remove(0).unwrap();
        world.pass(2 * SECOND).await;
    }
    world.pass(300 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: m0", "alice: m1", "alice: m2", "alice: m3"]);
}

#[tokio::test(start_paused = true)]
async fn two_app_servers_share_what_an_outage_left() {
    let world = with_bobs_phone().await;
    let _second = world.service(PushConfig::default());
    world.phones.set_down("fcm", true);
    for n in 0..40 {
        world.send(&format!("friend{n}"), "bob", "hi").await;
    }
    world.pass(60 * SECOND).await;
    world.phones.set_down("fcm", false);
    world.pass(600 * SECOND).await;
    assert_eq!(world.phones.got().len(), 40, "each once, by one of them");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_only_makes_it_later() {
    let config = PushConfig { queue_max: 5, concurrency: 1, ..PushConfig::default() };
    let world = World::with(Setup { push: Some(config), ..Setup::default() });
    world.registers("bob", "phone", "bobs-phone").await;
    world.phones.set_slow(SECOND / 10);
    for n in 0..50 {
        world.send(&format!("friend{n}"), "bob", "hi").await;
    }
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.got().len(), 50);
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_provider_gets_a_conversations_messages_in_order() {
    let world = with_bobs_phone().await;
    world.phones.set_slow(3 * SECOND);
    for n in 0..5 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.pass(30 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: m0", "alice: m1", "alice: m2", "alice: m3", "alice: m4"]);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_down_is_not_sent_again() {
    let world = with_bobs_phone().await;
    for _ in 0..3 {
        world.steps.fail(StoreMethod::RaiseNotified, "bob");
    }
    world.send("alice", "bob", "one").await;
    world.pass(600 * SECOND).await;
    assert_eq!(world.phones.tried().len(), 1);
    assert_eq!(world.owed("bob").await, 0);
    world.send("alice", "bob", "two").await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one", "alice: two"]);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_lacks_it_gets_it_although_nothing_could_be_written_down() {
    let world = with_bobs_phone().await;
    let target = PushTarget::Webhook { token: "bobs-hook".into() };
    world.registers_as("bob", "hook", target, PushContent::Preview).await;
    world.phones.answer("bobs-phone", [later(None)]);
    world.steps.fail(StoreMethod::RaiseNotified, "bob");
    world.send("alice", "bob", "one").await;
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.shown_on("bobs-phone"), ["alice: one"]);
    assert_eq!(world.phones.shown_on("bobs-hook"), ["alice: one"], "and who had it not once more");
    assert_eq!(world.owed("bob").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_the_send_does_not_forget_who_lacks_it() {
    let world = with_bobs_phone().await;
    let target = PushTarget::Webhook { token: "bobs-hook".into() };
    world.registers_as("bob", "hook", target, PushContent::Preview).await;
    world.phones.set_down("fcm", true);
    world.try_send("alice", "bob", "one").await.unwrap();
    world.pass(3 * SECOND).await;
    for _ in 0..3 {
        world.try_send("alice", "bob", "one").await.unwrap();
        world.pass(3 * SECOND).await;
    }
    assert_eq!(world.phones.shown_on("bobs-hook"), ["alice: one"]);
    world.phones.set_down("fcm", false);
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.shown_on("bobs-phone"), ["alice: one"]);
    assert_eq!(world.phones.shown_on("bobs-hook"), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_decision_behind_itself_does_not_forget_who_lacks_it() {
    let world = with_bobs_phone().await;
    let target = PushTarget::Webhook { token: "bobs-hook".into() };
    world.registers_as("bob", "hook", target, PushContent::Preview).await;
    world.phones.set_slow(3 * SECOND);
    world.phones.answer("bobs-phone", [later(None)]);
    world.try_send("alice", "bob", "one").await.unwrap();
    world.pass(2 * SECOND).await;
    world.try_send("alice", "bob", "one").await.unwrap();
    world.pass(60 * SECOND).await;
    assert_eq!(world.phones.shown_on("bobs-phone"), ["alice: one"]);
    assert_eq!(world.phones.shown_on("bobs-hook"), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn when_a_provider_is_back_all_that_waited_goes_out_soon() {
    let world = with_bobs_phone().await;
    world.phones.set_down("fcm", true);
    for n in 0..100 {
        world.send(&format!("friend{n}"), "bob", "hi").await;
    }
    world.pass(3_600 * SECOND).await;
    world.phones.set_down("fcm", false);
    world.pass(150 * SECOND).await;
    assert_eq!(world.phones.got().len(), 100, "a minute of pause, and what one try costs");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_once_costs_seconds() {
    let world = with_bobs_phone().await;
    world.send("alice", "bob", "one").await;
    world.steps.take_down(&[StoreMethod::ReadFrom]);
    world.pass(3 * SECOND).await;
    world.steps.bring_up();
    assert_eq!(world.phones.tried().len(), 0);
    world.pass(10 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: one"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_puts_off_the_last_of_its_conversation_by_seconds() {
    let world = with_bobs_phone().await;
    world.phones.set_slow(2 * SECOND);
    world.phones.answer("bobs-phone", [later(None)]);
    for n in 1..=3 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.pass(12 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: m3"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_finishes_and_leaves_the_rest_to_others_at_once() {
    let world = with_bobs_phone().await;
    world.phones.set_slow(5 * SECOND);
    world.send("alice", "bob", "under-way").await;
    world.pass(2 * SECOND).await;
    world.send("carol", "bob", "waiting").await;
    // Given back at once, although something is still under way.
    world.service.as_ref().unwrap().push.stop();
    let _other = world.service(PushConfig::default());
    world.pass(3 * SECOND).await;
    assert_eq!(world.phones.busy(), 2);
    world.pass(10 * SECOND).await;
    assert_eq!(world.phones.shown(), ["alice: under-way", "carol: waiting"]);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_registers_anew_during_an_outage_gets_what_is_owed() {
    let world = with_bobs_phone().await;
    world.phones.set_down("fcm", true);
    world.send("alice", "bob", "one").await;
    world.pass(10 * SECOND).await;
    let bobs_phone = bluetick_protocol::DeviceId::new("phone").unwrap();
    world.node.delete_push(user("bob"), bobs_phone).await.unwrap();
    world.registers("bob", "new-phone", "new-token").await;
    world.phones.set_down("fcm", false);
    world.pass(120 * SECOND).await;
    assert_eq!(world.phones.shown_on("new-token"), ["alice: one"]);
}
