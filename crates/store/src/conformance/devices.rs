//! `devices`: one registration a device, and one device a token.

use bluetick_protocol::{DeviceId, PushContent, PushKeys, PushRegistration, PushSubscription, PushTarget};

use super::fixture::Fixture;
use crate::{DeviceRow, testing::user};

fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn row(name: &str, on: &str, target: PushTarget, registered_at: u64) -> DeviceRow {
    let registration = PushRegistration { target, content: PushContent::Sender };
    DeviceRow { user_id: user(name), device: device(on), registration, registered_at }
}

fn fcm(token: &str) -> PushTarget {
    PushTarget::Fcm { token: token.into() }
}

pub async fn registrations_are_kept_as_they_were_given(t: &Fixture) {
    let devices = &t.store.devices;
    let keys = PushKeys { p256dh: "p".repeat(87), auth: "a".repeat(22) };
    let subscription = PushSubscription { endpoint: "https://push.example/é?x=1".into(), keys };
    let rows = [
        row("alice", "a", fcm("one"), 5),
        row(
            "alice",
            "b",
            PushTarget::Apns { token: "00ff".into(), topic: Some("org.x".into()), sandbox: true },
            6,
        ),
        row("alice", "c", PushTarget::Webpush { subscription }, 7),
        row("alice", "d", PushTarget::Webhook { token: "t".into() }, 8),
    ];
    for row in rows.iter().rev() {
        assert_eq!(devices.register(row.clone()).await.unwrap(), None);
    }
    assert_eq!(devices.devices_of(&user("alice")).await.unwrap(), rows, "in order of device");
    assert_eq!(devices.devices_of(&user("alice2")).await.unwrap(), []);
    assert_eq!(devices.devices_of(&user("alic")).await.unwrap(), []);

    let renewed = row("alice", "b", fcm("two"), 9);
    assert_eq!(devices.register(renewed.clone()).await.unwrap(), None);
    assert_eq!(
        devices.devices_of(&user("alice")).await.unwrap()[1],
        renewed,
        "a device has one registration"
    );
}

pub async fn a_token_belongs_to_one_device(t: &Fixture) {
    let devices = &t.store.devices;
    devices.register(row("alice", "phone", fcm("shared"), 1)).await.unwrap();
    devices.register(row("alice", "tablet", fcm("other"), 1)).await.unwrap();
    // The same string at another provider is another token.
    let webhook = row("carol", "phone", PushTarget::Webhook { token: "shared".into() }, 1);
    assert_eq!(devices.register(webhook.clone()).await.unwrap(), None);
    // And nobody gives out those of a webhook: whoever says one has it for themselves.
    let guessed = row("mallory", "phone", PushTarget::Webhook { token: "shared".into() }, 1);
    assert_eq!(devices.register(guessed).await.unwrap(), None);
    let apns = |token: &str| PushTarget::Apns { token: token.into(), topic: None, sandbox: false };
    devices.register(row("zoe", "one", apns("00FF"), 1)).await.unwrap();
    let taken = devices.register(row("zoe", "two", apns("00ff"), 2)).await.unwrap();
    assert_eq!(taken, Some((user("zoe"), device("one"))), "digits are the same in either case");

    let taken = devices.register(row("bob", "phone", fcm("shared"), 2)).await.unwrap();
    assert_eq!(taken, Some((user("alice"), device("phone"))), "it is taken from whom it had belonged to");
    let left = devices.devices_of(&user("alice")).await.unwrap();
    assert_eq!(left, [row("alice", "tablet", fcm("other"), 1)]);
    assert_eq!(devices.devices_of(&user("carol")).await.unwrap(), [webhook]);

    let taken = devices.register(row("bob", "new-phone", fcm("shared"), 3)).await.unwrap();
    assert_eq!(taken, Some((user("bob"), device("phone"))), "and so between the devices of one user");
    assert_eq!(devices.devices_of(&user("bob")).await.unwrap(), [row("bob", "new-phone", fcm("shared"), 3)]);

    // What a device no longer uses is free again.
    devices.register(row("bob", "new-phone", fcm("fresh"), 4)).await.unwrap();
    assert_eq!(devices.register(row("alice", "phone", fcm("shared"), 5)).await.unwrap(), None);
    assert_eq!(devices.devices_of(&user("bob")).await.unwrap(), [row("bob", "new-phone", fcm("fresh"), 4)]);
    assert!(devices.unregister(&user("alice"), &device("phone"), None).await.unwrap());
    assert_eq!(devices.register(row("zoe", "phone", fcm("shared"), 6)).await.unwrap(), None);
}

pub async fn a_token_at_once_in_many_hands_ends_in_one(t: &Fixture) {
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = t.store.clone();
            tokio::spawn(async move {
                store.devices.register(row(&format!("user{n}"), "phone", fcm("shared"), n)).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut owners = 0;
    for n in 0..8 {
        owners += t.store.devices.devices_of(&user(&format!("user{n}"))).await.unwrap().len();
    }
    assert_eq!(owners, 1);
}

pub async fn a_renewed_registration_is_not_removed(t: &Fixture) {
    let (devices, alice, phone) = (&t.store.devices, user("alice"), device("phone"));
    devices.register(row("alice", "phone", fcm("one"), 1)).await.unwrap();
    devices.register(row("alice", "phone", fcm("one"), 2)).await.unwrap();
    assert!(!devices.unregister(&alice, &phone, Some(1)).await.unwrap(), "it has been renewed since");
    assert_eq!(devices.devices_of(&alice).await.unwrap().len(), 1);
    assert!(devices.unregister(&alice, &phone, Some(2)).await.unwrap());
    assert_eq!(devices.devices_of(&alice).await.unwrap(), []);
    assert!(!devices.unregister(&alice, &phone, None).await.unwrap(), "there is nothing to remove");
}

pub async fn erasing_a_user_forgets_their_devices(t: &Fixture) {
    t.store.devices.register(row("alice", "phone", fcm("one"), 1)).await.unwrap();
    t.store.devices.register(row("bob", "phone", fcm("two"), 1)).await.unwrap();
    t.store.maintenance.erase_user(&user("alice")).await.unwrap();
    assert_eq!(t.store.devices.devices_of(&user("alice")).await.unwrap(), []);
    assert_eq!(t.store.devices.devices_of(&user("bob")).await.unwrap().len(), 1);
    assert_eq!(t.store.devices.register(row("carol", "phone", fcm("one"), 2)).await.unwrap(), None);
}
