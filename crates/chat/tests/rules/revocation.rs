//! A revocation and the sessions of one device: whoever takes the place of another session takes it down with it.

use bluetick_chat::{SessionApi, token_revoked};
use bluetick_protocol::ErrorCode;

use crate::harness::{StoreMethod, World, phone, user};

#[tokio::test(start_paused = true)]
async fn a_session_that_finds_itself_revoked_ends_those_it_displaced() {
    let world = World::new();
    let live = world.connected(phone("bob")).await;
    // The revocation is written, and its lookup comes when the second session has taken the first one's entry.
    world.store.users.raise_not_before(&user("bob"), 1).await.unwrap();
    let late = world.connect(phone("bob"));
    world.quiet().await;
    assert_eq!(late.bye(), Some(ErrorCode::TokenRevoked));
    assert_eq!(live.bye(), Some(ErrorCode::TokenRevoked));
    assert!(world.registered("bob").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_told_so_while_it_registers_ends_those_it_displaced() {
    let world = World::new();
    let live = world.connected(phone("bob")).await;
    let mut registered = world.steps.stop_after(StoreMethod::Register, "bob");
    let late = world.connect(phone("bob"));
    registered.reached().await;
    world.store.users.raise_not_before(&user("bob"), 1).await.unwrap();
    let found = world.store.sessions.lookup(&user("bob")).await.unwrap();
    world.node.end_sessions(found, token_revoked()).await;
    world.quiet().await;
    registered.open();
    world.quiet().await;
    assert_eq!(late.bye(), Some(ErrorCode::TokenRevoked));
    assert_eq!(live.bye(), Some(ErrorCode::TokenRevoked));
}
