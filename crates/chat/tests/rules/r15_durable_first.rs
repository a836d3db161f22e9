//! R15, as far as it can be seen here: nothing of a message shows before its commit has answered.

use bluetick_chat::InboxApi;
use bluetick_protocol::{ErrorCode, UserId};

use crate::harness::{Client, StoreMethod, World, phone, tablet, user};

async fn assert_nothing_shows(world: &World, sessions: &[&Client]) {
    world.quiet().await;
    for session in sessions {
        assert!(session.messages().is_empty() && session.ticks().is_empty() && session.sent().is_empty());
    }
    let members: [UserId; 2] = [user("alice"), user("bob")];
    for member in members {
        assert!(world.inbox(member.as_str()).await.is_empty());
        let status = world.node.status(member, crate::harness::conversation("alice~bob")).await;
        assert_eq!(status.unwrap_err().code, ErrorCode::NotFound);
    }
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_shows_while_the_commit_is_under_way() {
    let world = World::new();
    let (alice, bob) = (world.connected(phone("alice")).await, world.connected(phone("bob")).await);
    let on_tablet = world.connected(tablet("alice")).await;
    let mut committing = world.steps.stop_before(StoreMethod::CommitSends, "hello");
    alice.send("bob", "hello");
    committing.reached().await;
    assert_nothing_shows(&world, &[&alice, &on_tablet, &bob]).await;
    committing.open();
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, false)]);
    assert_eq!((bob.bodies(), on_tablet.bodies()), (vec!["hello".to_owned()], vec!["hello".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn nothing_shows_of_a_commit_that_failed() {
    let world = World::new();
    let (alice, bob) = (world.connected(phone("alice")).await, world.connected(phone("bob")).await);
    world.steps.fail(StoreMethod::CommitSends, "hello");
    alice.send("bob", "hello");
    assert_nothing_shows(&world, &[&alice, &bob]).await;
    assert_eq!(alice.errors(), [ErrorCode::Unavailable]);
    alice.send("bob", "hello");
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, false)], "a retry is the first to be stored");
    assert_eq!(bob.bodies(), ["hello"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_sent_before_the_row_is_written_or_a_session_has_it() {
    let world = World::new();
    world.leave_stale_entry("bob").await;
    let alice = world.connected(phone("alice")).await;
    let mut noting = world.steps.stop_before(StoreMethod::NoteUndelivered, "bob");
    alice.send("bob", "hello");
    noting.reached().await;
    world.quiet().await;
    assert!(alice.sent().is_empty());
    noting.open();
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, false)]);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_written_is_an_error_and_not_sent() {
    let world = World::new();
    world.leave_stale_entry("bob").await;
    let alice = world.connected(phone("alice")).await;
    world.steps.fail(StoreMethod::NoteUndelivered, "bob");
    alice.send("bob", "hello");
    world.quiet().await;
    assert_eq!((alice.sent().len(), alice.errors()), (0, vec![ErrorCode::Unavailable]));
    alice.send("bob", "hello");
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, true)]);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
}
