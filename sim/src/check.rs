//! What must be true when the faults are over and everything has had its time.

use bluetick_protocol::{ConversationId, Seq, Side, UserId};
use bluetick_store::{Conversations, Message, MessageStatus, Messages, PageLimit, PendingDeliveries};

use crate::world::World;

/// Everything that is wrong now; nothing, if the promise is kept.
pub async fn is_right(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    devices_are_home(world, &mut wrong);
    what_was_sent_is_stored(world, &mut wrong).await;
    what_was_sent_has_arrived(world, &mut wrong);
    for user in world.devices.iter().flatten().map(|device| &device.user) {
        no_row_is_left(world, user, &mut wrong).await;
    }
    for id in world.conversations() {
        for side in Side::BOTH {
            boundaries_are_true(world, &id, side, &mut wrong).await;
        }
    }
    wrong.dedup();
    wrong
}

/// Whether nothing is wrong but that there are pending rows of messages that were delivered.
pub async fn only_rows_are_left(world: &World) -> bool {
    let mut rows = Vec::new();
    for user in world.devices.iter().flatten().map(|device| &device.user) {
        no_row_is_left(world, user, &mut rows).await;
    }
    rows.dedup();
    is_right(world).await == rows
}

fn devices_are_home(world: &World, wrong: &mut Vec<String>) {
    for device in world.devices.iter().flatten() {
        let seen = device.seen.lock();
        if !seen.is_caught_up {
            wrong.push(format!("{}'s {} has not caught up", device.user, device.name));
        }
        if seen.outbox_len > 0 {
            wrong.push(format!("{}'s {} still has {} to send", device.user, device.name, seen.outbox_len));
        }
    }
}

async fn what_was_sent_is_stored(world: &World, wrong: &mut Vec<String>) {
    let sent = world.sim.history.lock().sent.clone();
    for ((id, seq), message_id) in sent {
        let found = all_of(world, &id).await.into_iter().find(|m| m.seq == seq);
        if found.is_none_or(|m| m.void || m.message_id != message_id) {
            wrong.push(format!("{id} {seq} was told sent and is not stored"));
        }
    }
}

/// By the user: some device has got it. By the device: whatever was stored after it first caught up.
fn what_was_sent_has_arrived(world: &World, wrong: &mut Vec<String>) {
    let history = world.sim.history.lock();
    for place in history.sent.keys() {
        let Some(stored) = history.stored.get(place) else { continue };
        let (id, seq) = place;
        let body = &stored.client_msg_id;
        if !history.received.contains(&(stored.receiver.clone(), place.clone())) {
            wrong.push(format!("LOST: {id} {seq} ({body}) reached no device of {}", stored.receiver));
        }
        for device in world.devices.iter().flatten().filter(|device| device.user == stored.receiver) {
            let seen = device.seen.lock();
            let is_due = seen.caught_up_at.is_some_and(|at| at < stored.at_ms);
            if is_due && !seen.has(id, *seq) {
                wrong.push(format!("LOST: {id} {seq} ({body}) is not on {}'s {}", device.user, device.name));
            }
        }
    }
}

async fn no_row_is_left(world: &World, user: &UserId, wrong: &mut Vec<String>) {
    for row in world.memory.pending_of(user).await.unwrap_or_default() {
        let (id, seq) = (&row.conversation_id, row.first_undelivered_seq);
        wrong.push(format!("the pending row of {user} for {id} is still there, at {seq}"));
    }
}

/// The ticks that were told still hold, every message that arrived has its double tick, and unread is what a recount
/// gives.
async fn boundaries_are_true(world: &World, id: &ConversationId, side: Side, wrong: &mut Vec<String>) {
    let user = id.member(side);
    let (Ok(status), Ok(row)) =
        (world.memory.status(&user, id).await, world.memory.conversation(&user, id).await)
    else {
        return wrong.push(format!("the rows of {user} for {id} cannot be read"));
    };
    let (delivered, read) = (status.last_delivered_seq, status.last_read_seq);
    let told = world.sim.history.lock().told.get(&(user.clone(), id.clone())).copied();
    if told.is_some_and(|(told_delivered, told_read)| told_delivered > delivered || told_read > read) {
        wrong.push(format!("{id}: {user} was told to be at {told:?} and is at {:?}", (delivered, read)));
    }
    let theirs: Vec<Seq> = all_of(world, id)
        .await
        .into_iter()
        .filter(|m| m.from != side && m.visible_to(side))
        .map(|m| m.seq)
        .collect();
    let sent = |seq: Seq| world.sim.history.lock().sent.contains_key(&(id.clone(), seq));
    if let Some(&last) = theirs.iter().rev().find(|&&seq| sent(seq))
        && delivered < last
    {
        wrong.push(format!("{id}: {user} holds {last}, and the double tick says {delivered}"));
    }
    let unread = theirs.iter().filter(|&&seq| seq > read).count() as u64;
    let shown = row.map_or(0, |row| row.unread_count);
    if shown != unread {
        wrong.push(format!("{id}: {user} has {unread} unread, and the row says {shown}"));
    }
}

async fn all_of(world: &World, id: &ConversationId) -> Vec<Message> {
    let limit = PageLimit { messages: usize::MAX, bytes: usize::MAX };
    let page = world.memory.read_from(id, 1, limit).await.unwrap_or_default();
    page.iter().map(|m| (**m).clone()).collect()
}
