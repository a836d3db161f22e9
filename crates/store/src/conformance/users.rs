//! What is kept of a user: the profile with its copies, the blocks and the mutes.

use bluetick_protocol::{Mute, Profile, Side};

use super::fixture::{Fixture, conversation, user};

fn profile(name: &str) -> Profile {
    Profile { name: Some(name.into()), avatar_url: Some(format!("https://example.org/{name}.png")) }
}

pub async fn profiles_are_kept(t: &Fixture) {
    let alice = user("alice");
    assert_eq!(t.store.users.profile(&alice).await.unwrap(), Profile::default(), "empty where none was set");
    t.store.users.put_profile(&alice, profile("Álice")).await.unwrap();
    assert_eq!(t.store.users.profile(&alice).await.unwrap(), profile("Álice"));
    let half = Profile { name: None, ..profile("x") };
    t.store.users.put_profile(&alice, half.clone()).await.unwrap();
    assert_eq!(t.store.users.profile(&alice).await.unwrap(), half, "it is set as a whole");
    assert_eq!(t.store.users.profile(&user("alice2")).await.unwrap(), Profile::default());
}

pub async fn profiles_are_copied_into_the_inboxes_of_others(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let (ab, ac) = (conversation("alice~bob"), conversation("alice~carol"));
    t.store.users.put_profile(&alice, profile("before")).await.unwrap();
    t.send_many(&ab, Side::Low, 1).await;
    let row = t.row(&bob, &ab).await.unwrap();
    assert_eq!((row.peer_name, row.avatar_url), (profile("before").name, profile("before").avatar_url));
    let row = t.row(&alice, &ab).await.unwrap();
    assert_eq!((row.peer_name, row.avatar_url), (None, None), "bob said nothing of himself");

    t.send_many(&ac, Side::High, 1).await;
    t.store.users.put_profile(&alice, profile("after")).await.unwrap();
    for (name, id) in [("bob", &ab), ("carol", &ac)] {
        let (rows, _) = t.store.conversations.inbox(&user(name), None, 5).await.unwrap();
        assert_eq!(rows[0].peer_name, profile("after").name, "a change reaches {name}'s inbox");
        assert_eq!(rows[0].avatar_url, profile("after").avatar_url);
        assert_eq!(t.row(&user(name), id).await.unwrap(), rows[0]);
    }
    t.store.users.put_profile(&alice, Profile::default()).await.unwrap();
    assert_eq!(t.row(&bob, &ab).await.unwrap().peer_name, None, "and so does taking it back");
}

pub async fn blocks_are_kept_in_order(t: &Fixture) {
    let alice = user("alice");
    let users = &t.store.users;
    assert!(!users.blocks(&alice, &user("bob")).await.unwrap());
    for name in ["zoe", "bob", "mike", "bob"] {
        users.set_block(&alice, &user(name), true).await.unwrap();
    }
    assert_eq!(users.blocked_by(&alice).await.unwrap(), ["bob", "mike", "zoe"].map(user));
    assert!(users.blocks(&alice, &user("bob")).await.unwrap());
    assert!(!users.blocks(&user("bob"), &alice).await.unwrap(), "a block has a direction");
    assert!(!users.blocks(&alice, &user("bo")).await.unwrap());
    for name in ["bob", "bob", "nobody"] {
        users.set_block(&alice, &user(name), false).await.unwrap();
    }
    assert_eq!(users.blocked_by(&alice).await.unwrap(), ["mike", "zoe"].map(user));
    assert!(!users.blocks(&alice, &user("bob")).await.unwrap());
    assert_eq!(users.blocked_by(&user("alice2")).await.unwrap(), []);
}

pub async fn mutes_are_kept_in_order(t: &Fixture) {
    let (bob, users) = (user("bob"), &t.store.users);
    let mute = |id: &str, until: Option<u64>| Mute { conversation_id: conversation(id), until };
    assert_eq!(users.muted(&bob, &conversation("alice~bob")).await.unwrap(), None);
    for given in [mute("bob~zoe", Some(5)), mute("alice~bob", None), mute("bob~zoe", Some(9))] {
        users.mute(&bob, given).await.unwrap();
    }
    users.set_block(&bob, &user("mike"), true).await.unwrap();
    assert_eq!(users.mutes_of(&bob).await.unwrap(), [mute("alice~bob", None), mute("bob~zoe", Some(9))]);
    assert_eq!(users.blocked_by(&bob).await.unwrap(), [user("mike")]);
    assert_eq!(users.muted(&bob, &conversation("bob~zoe")).await.unwrap(), Some(mute("bob~zoe", Some(9))));
    assert_eq!(users.muted(&user("zoe"), &conversation("bob~zoe")).await.unwrap(), None, "it is one side's");
    for _ in 0..2 {
        users.unmute(&bob, &conversation("bob~zoe")).await.unwrap();
    }
    assert_eq!(users.mutes_of(&bob).await.unwrap(), [mute("alice~bob", None)]);
    t.store.maintenance.erase_user(&bob).await.unwrap();
    assert_eq!(users.mutes_of(&bob).await.unwrap(), []);
}
