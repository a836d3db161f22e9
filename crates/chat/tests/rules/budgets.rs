//! Budgets, and what they must not do: change the order of sends, or starve receipts.

use std::{future::ready, sync::Arc, time::Duration};

use bluetick_chat::{RequestBudget, SendApi, SendBudget, SendCost, SendRequest, Taking, units};
use bluetick_protocol::{ErrorCode, Send as SendFrame, UserId};
use futures_util::future::Either;

use crate::harness::{Setup, World, message, phone, user};

/// Has room for short messages only.
struct ShortOnly;

impl SendBudget for ShortOnly {
    fn take<'a>(&'a self, _user: &'a UserId, cost: SendCost) -> Taking<'a> {
        Either::Left(ready(if cost.bytes > 100 { Err(1_000) } else { Ok(()) }))
    }

    fn take_profile_change<'a>(&'a self, _user: &'a UserId) -> Taking<'a> {
        Either::Left(ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_the_budget_has_room_for_does_not_overtake_one_that_was_refused() {
    let world = World::with(Setup { sends: Some(Arc::new(ShortOnly)), ..Setup::default() });
    let long = SendFrame { body: "long".repeat(100), ..message("bob", "long") };
    let sends = vec![message("bob", "before"), long, message("bob", "after")];
    let answers = world.node.send(SendRequest { user: user("alice"), session: None, sends }).await;
    let codes: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(|e| e.code)).collect();
    assert_eq!(codes, [None, Some(ErrorCode::RateLimited), Some(ErrorCode::RateLimited)]);
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["before"]);
}

/// All of it is spent elsewhere: there is never enough for a receipt.
struct NeverForReceipts;

impl RequestBudget for NeverForReceipts {
    fn take(&self, _user: &UserId, taken: u32) -> Result<(), u64> {
        if taken == units::RECEIPT { Err(60_000) } else { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn acks_are_stored_however_much_a_user_asks_for_elsewhere() {
    let world = World::with(Setup { requests: Some(Arc::new(NeverForReceipts)), ..Setup::default() });
    let bob = world.connected(phone("bob")).await;
    for n in 1..=3 {
        world.send("alice", "bob", &format!("m{n}")).await;
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(world.status("bob", "alice~bob").await.own.last_delivered_seq, n);
    }
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(bob.bye(), None, "it is not taken for a slow reader");
}
