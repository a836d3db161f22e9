//! What an operator does with a store: erasure above all.

use bluetick_protocol::{Json, Profile, Side};

use super::fixture::Fixture;
use crate::{
    PendingRow,
    testing::{conversation, message, user},
};

pub async fn a_fresh_store_takes_sends(t: &Fixture) {
    let health = t.store.maintenance.health().await;
    assert_eq!(health.refusing, None);
    assert!(!health.backend.is_empty(), "a backend says its name");
}

pub async fn erasing_a_member_voids_what_they_wrote(t: &Fixture) {
    let (alice, id) = (user("alice"), conversation("alice~bob"));
    let meta = Some(Json::from_text(r#"{"k":1}"#).unwrap());
    t.send(message(&id, Side::Low, "a1").meta(meta.clone()).attachment(meta)).await;
    t.send(message(&id, Side::High, "b2")).await;
    t.send(message(&id, Side::Low, "a3")).await;
    let before = t.all(&id).await;
    assert_eq!(t.store.maintenance.erase_member(&alice, &id).await.unwrap(), 2, "two messages become void");
    let after = t.all(&id).await;
    assert_eq!(after[1], before[1], "what the other wrote stays");
    for n in [0, 2] {
        let (was, is) = (&before[n], &after[n]);
        assert!(is.void && is.body.is_empty() && is.meta.is_none() && is.attachment.is_none(), "{is:?}");
        assert_eq!((is.seq, is.from, &is.client_msg_id), (was.seq, was.from, &was.client_msg_id));
        assert_eq!(is.message_id, was.message_id, "a void keeps its place in the order");
    }
    let found = t.store.messages.find(before[0].message_id).await.unwrap();
    assert!(found.is_none_or(|m| m.void && m.body.is_empty()), "nor does a search bring the text back");
    let retry = t.send(message(&id, Side::Low, "a1")).await;
    assert!(retry.duplicate && retry.message.void, "a retry of what was erased does not send it again");
}

pub async fn erasing_a_member_removes_their_rows_only(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let (ab, ac) = (conversation("alice~bob"), conversation("alice~carol"));
    for id in [&ab, &ac] {
        t.send(message(id, Side::Low, "a1").undelivered(true)).await;
        t.send(message(id, Side::High, "b2").undelivered(true)).await;
        t.send(message(id, Side::Low, "a3")).await;
        t.store.status.advance(&alice, id, 2, 2).await.unwrap();
        t.store.status.advance(&id.member(Side::High), id, 1, 0).await.unwrap();
    }
    t.store.maintenance.erase_member(&alice, &ab).await.unwrap();

    assert_eq!(t.row(&alice, &ab).await, None, "alice's row is gone");
    let left = t.store.conversations.conversations_of(&alice).await.unwrap();
    assert_eq!(left.iter().map(|r| &r.conversation_id).collect::<Vec<_>>(), [&ac], "her others stay");
    let (inbox, _) = t.store.conversations.inbox(&alice, None, 10).await.unwrap();
    assert_eq!(inbox, left);
    assert!(t.store.status.statuses_of(&alice).await.unwrap().iter().all(|r| r.conversation_id == ac));
    assert_eq!(t.store.pending.pending_row(&alice, &ab).await.unwrap(), None);
    assert_eq!(t.store.maintenance.memberships(&alice).await.unwrap(), [ac.clone()]);

    let row = t.row(&bob, &ab).await.expect("bob wrote something, so his row stays");
    assert_eq!((row.last_seq, row.last_message_preview.as_str()), (3, ""), "the erased text is not shown");
    assert_eq!(row.unread_count, 0, "voids are not unread");
    assert_eq!(t.store.conversations.total_unread(&bob).await.unwrap(), 0);
    let pending =
        PendingRow { receiver_id: bob.clone(), conversation_id: ab.clone(), first_undelivered_seq: 1 };
    assert_eq!(t.store.pending.pending_of(&bob).await.unwrap(), [pending], "bob's pending row stays");
    assert_eq!(t.store.status.status(&bob, &ab).await.unwrap().last_delivered_seq, 1, "and so do his ticks");
    assert_eq!(t.store.maintenance.memberships(&bob).await.unwrap(), [ab]);
}

pub async fn erasing_leaves_no_row_to_a_peer_who_wrote_nothing(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 3).await;
    t.store.maintenance.erase_member(&alice, &id).await.unwrap();
    assert_eq!(t.row(&bob, &id).await, None, "nothing is left that it could show");
    assert_eq!(t.store.conversations.inbox(&bob, None, 10).await.unwrap(), (vec![], false));
    assert_eq!(t.store.conversations.active_since(&bob, 0, 10).await.unwrap(), []);
    assert_eq!(t.store.messages.last_seq(&id).await.unwrap(), 3, "the seqs are in use for ever");
}

pub async fn an_erased_member_can_come_back(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 2).await;
    t.send_many(&id, Side::High, 1).await;
    t.store.maintenance.erase_member(&alice, &id).await.unwrap();
    t.clock.advance(10);
    let sent = t.send(message(&id, Side::High, "hello-again")).await;
    assert_eq!(sent.message.seq, 4, "seqs go on where they were");
    for name in [&alice, &bob] {
        let row = t.row(name, &id).await.expect("a new message makes the rows anew");
        assert_eq!((row.last_seq, row.last_message_preview.as_str()), (4, "hello-again"));
    }
    assert_eq!(t.store.maintenance.memberships(&alice).await.unwrap(), [id.clone()]);
    let sent = t.send(message(&id, Side::Low, "back")).await;
    assert_eq!(sent.message.seq, 5);
    assert_eq!(t.unread(&bob, &id).await, 1, "the voids stay uncounted");
}

pub async fn erasing_again_changes_nothing(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 2).await;
    t.send_many(&id, Side::High, 1).await;
    t.store.maintenance.erase_member(&alice, &id).await.unwrap();
    let before = (t.all(&id).await, t.row(&bob, &id).await);
    assert_eq!(t.store.maintenance.erase_member(&alice, &id).await.unwrap(), 0);
    assert_eq!((t.all(&id).await, t.row(&bob, &id).await), before);
    assert_eq!(t.store.maintenance.erase_member(&alice, &conversation("alice~zoe")).await.unwrap(), 0);
    assert_eq!(t.store.maintenance.memberships(&user("zoe")).await.unwrap(), [], "an erasure makes nothing");
}

pub async fn memberships_list_withheld_conversations(t: &Fixture) {
    let bob = user("bob");
    t.send(message(&conversation("alice~bob"), Side::Low, "hidden").withheld(true)).await;
    t.send_many(&conversation("bob~carol"), Side::High, 1).await;
    t.send_many(&conversation("alice~carol"), Side::High, 1).await;
    let listed = t.store.maintenance.memberships(&bob).await.unwrap();
    assert_eq!(
        listed,
        ["alice~bob", "bob~carol"].map(conversation),
        "an erasure must find what bob never saw"
    );
    assert_eq!(t.store.maintenance.memberships(&user("dave")).await.unwrap(), []);
}

pub async fn erasing_a_user_forgets_profile_and_blocks(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 1).await;
    t.store
        .users
        .put_profile(&alice, Profile { name: Some("Alice".into()), avatar_url: None })
        .await
        .unwrap();
    t.store.users.set_block(&alice, &user("carol"), true).await.unwrap();
    t.store.users.set_block(&bob, &alice, true).await.unwrap();
    t.store.maintenance.erase_user(&alice).await.unwrap();
    assert_eq!(t.store.users.profile(&alice).await.unwrap(), Profile::default());
    assert_eq!(t.store.users.blocked_by(&alice).await.unwrap(), []);
    assert!(!t.store.users.blocks(&alice, &user("carol")).await.unwrap());
    assert!(t.store.users.blocks(&bob, &alice).await.unwrap(), "bob's blocks are his own");
    let row = t.row(&bob, &id).await.expect("conversations are erased one by one, not by this");
    assert_eq!(row.peer_name, None, "the copies of the profile go with it");
    t.store.maintenance.erase_user(&user("nobody")).await.unwrap();
}

pub async fn a_checkpoint_changes_nothing(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    for round in 1..=3 {
        t.send(message(&id, Side::Low, &format!("r{round}")).undelivered(true)).await;
        t.store.status.advance(&bob, &id, 0, round - 1).await.unwrap();
        t.store.users.set_block(&alice, &user("carol"), true).await.unwrap();
        let see = async || {
            (
                t.all(&id).await,
                t.store.conversations.inbox(&bob, None, 10).await.unwrap(),
                t.store.status.statuses_of(&bob).await.unwrap(),
                t.store.pending.pending_of(&bob).await.unwrap(),
                t.store.users.blocked_by(&alice).await.unwrap(),
            )
        };
        let before = see().await;
        t.store.maintenance.checkpoint().await.unwrap();
        assert_eq!(see().await, before, "round {round}");
        assert!(
            t.send(message(&id, Side::Low, &format!("r{round}"))).await.duplicate,
            "ids are remembered across it"
        );
    }
    assert_eq!(t.store.messages.last_seq(&id).await.unwrap(), 3);
}

pub async fn a_closed_store_takes_no_sends(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 1).await;
    t.store.maintenance.close().await.unwrap();
    let results = t.store.messages.commit_sends(vec![message(&id, Side::Low, "late")]).await;
    assert!(results.len() == 1 && results[0].is_err(), "a send is refused, not lost in silence");
}
