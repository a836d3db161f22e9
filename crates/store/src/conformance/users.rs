//! What is kept of a user: the profile with its copies, the blocks, the mutes and the revocations.

use bluetick_protocol::{Mute, Profile, Side};

use super::fixture::Fixture;
use crate::testing::{conversation, message, user};

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
    t.send_many(&ac, Side::Low, 1).await;
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

pub async fn an_inbox_shows_a_profile_once_its_owner_has_written(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let ab = conversation("alice~bob");
    t.store.users.put_profile(&bob, profile("Bob")).await.unwrap();
    t.send_many(&ab, Side::Low, 2).await;
    let row = t.row(&alice, &ab).await.unwrap();
    assert_eq!((row.peer_wrote, row.peer_name, row.avatar_url), (false, None, None), "bob has not answered");
    assert!(t.row(&bob, &ab).await.unwrap().peer_wrote);
    t.store.users.put_profile(&bob, profile("Robert")).await.unwrap();
    assert_eq!(t.row(&alice, &ab).await.unwrap().peer_name, None, "nor does a change reach alice");

    t.send_many(&ab, Side::High, 1).await;
    let (rows, _) = t.store.conversations.inbox(&alice, None, 5).await.unwrap();
    assert_eq!((rows[0].peer_wrote, &rows[0].peer_name), (true, &profile("Robert").name));
    assert_eq!(t.row(&alice, &ab).await.unwrap(), rows[0]);
    t.store.users.put_profile(&bob, profile("Bobby")).await.unwrap();
    assert_eq!(t.row(&alice, &ab).await.unwrap().peer_name, profile("Bobby").name);

    t.store.maintenance.erase_member(&bob, &ab).await.unwrap();
    let row = t.row(&alice, &ab).await.unwrap();
    assert_eq!((row.peer_wrote, row.peer_name), (false, None), "what bob wrote is gone");
}

pub async fn a_withheld_message_shows_no_profile(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let ab = conversation("alice~bob");
    t.store.users.put_profile(&bob, profile("Bob")).await.unwrap();
    t.send_many(&ab, Side::Low, 1).await;
    // Alice blocks bob: what he writes does not reach her, and so neither does who he is.
    t.store.users.set_block(&alice, &bob, true).await.unwrap();
    let withheld = message(&ab, Side::High, "unseen").withheld(true);
    t.send(withheld).await;
    let row = t.row(&alice, &ab).await.unwrap();
    assert_eq!((row.peer_wrote, row.peer_name), (false, None));
}

pub async fn a_block_freezes_the_copy_that_the_other_has(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let ab = conversation("alice~bob");
    let users = &t.store.users;
    users.put_profile(&alice, profile("before")).await.unwrap();
    t.send_many(&ab, Side::Low, 1).await;
    t.send_many(&ab, Side::High, 1).await;
    for _ in 0..2 {
        users.set_block(&alice, &bob, true).await.unwrap();
        users.put_profile(&alice, profile("after")).await.unwrap();
    }
    let row = t.row(&bob, &ab).await.unwrap();
    assert_eq!((row.peer_name, row.avatar_url), (profile("before").name, profile("before").avatar_url));
    t.send_many(&ab, Side::High, 1).await;
    let (rows, _) = t.store.conversations.inbox(&bob, None, 5).await.unwrap();
    assert_eq!(rows[0].peer_name, profile("before").name, "what he sends does not bring it up to date");
    assert_eq!(users.profile(&alice).await.unwrap(), profile("after"), "only the copy is old");

    users.set_block(&alice, &bob, false).await.unwrap();
    let row = t.row(&bob, &ab).await.unwrap();
    assert_eq!((row.peer_name, row.avatar_url), (profile("after").name, profile("after").avatar_url));
    users.put_profile(&alice, profile("later")).await.unwrap();
    assert_eq!(t.row(&bob, &ab).await.unwrap().peer_name, profile("later").name);

    // Blocked before there was a conversation: what is shown is from then, too.
    let (carol, ac) = (user("carol"), conversation("alice~carol"));
    users.set_block(&alice, &carol, true).await.unwrap();
    users.put_profile(&alice, profile("latest")).await.unwrap();
    t.send_many(&ac, Side::Low, 1).await;
    assert_eq!(t.row(&carol, &ac).await.unwrap().peer_name, profile("later").name);
    t.store.maintenance.erase_user(&alice).await.unwrap();
    assert_eq!(t.row(&carol, &ac).await.unwrap().peer_name, None, "an erasure takes frozen copies along");
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

pub async fn not_before_only_grows_and_outlives_an_erasure(t: &Fixture) {
    let (bob, users) = (user("bob"), &t.store.users);
    assert_eq!(users.not_before(&bob).await.unwrap(), None, "nothing was revoked");
    users.raise_not_before(&bob, 1_700_000_000).await.unwrap();
    assert_eq!(users.not_before(&bob).await.unwrap(), Some(1_700_000_000));
    for lower in [1_699_999_999, 1_700_000_000] {
        users.raise_not_before(&bob, lower).await.unwrap();
        assert_eq!(users.not_before(&bob).await.unwrap(), Some(1_700_000_000));
    }
    users.raise_not_before(&bob, 1_700_000_001).await.unwrap();
    for other in ["bo", "bob2"] {
        assert_eq!(users.not_before(&user(other)).await.unwrap(), None, "it is one user's");
    }
    let mute = Mute { conversation_id: conversation("alice~bob"), until: None };
    users.mute(&bob, mute.clone()).await.unwrap();
    assert_eq!(users.mutes_of(&bob).await.unwrap(), [mute]);
    assert_eq!(users.blocked_by(&bob).await.unwrap(), []);
    t.store.maintenance.erase_user(&bob).await.unwrap();
    assert_eq!(users.not_before(&bob).await.unwrap(), Some(1_700_000_001), "an erased user stays revoked");
}
