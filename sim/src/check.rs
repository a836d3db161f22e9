//! What must be true when the faults are over and everything has had its time.

use std::fmt;

use bluetick_protocol::{ConversationId, Seq, SessionId, Side, UserId};
use bluetick_store::{Conversations, Message, MessageStatus, Messages, PageLimit, PendingDeliveries};

use crate::world::SimWorld;

/// Something that is not as it must be.
pub struct Wrong {
    what: String,
    /// A notice that would have prevented it was lost with an app server. The next drain repairs
    /// it.
    pub is_excused: bool,
}

impl From<String> for Wrong {
    fn from(what: String) -> Wrong {
        Wrong { what, is_excused: false }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Everything that is wrong now; nothing, if the promise is kept.
pub async fn is_right(world: &SimWorld) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    devices_are_home(world, &mut wrong);
    what_was_sent_is_stored(world, &mut wrong).await;
    what_was_sent_has_arrived(world, &mut wrong).await;
    for user in world.users() {
        no_row_is_left(world, &user, &mut wrong).await;
    }
    for id in world.conversations() {
        for side in Side::BOTH {
            boundaries_are_true(world, &id, side, &mut wrong).await;
        }
    }
    wrong
}

fn devices_are_home(world: &SimWorld, wrong: &mut Vec<Wrong>) {
    for device in world.devices.iter().flatten() {
        let seen = device.seen.lock();
        if !seen.is_caught_up {
            wrong.push(format!("{}'s {} has not caught up", device.user, device.name).into());
        }
        if seen.outbox_len > 0 {
            let unsent = seen.outbox_len;
            wrong.push(format!("{}'s {} still has {unsent} to send", device.user, device.name).into());
        }
    }
}

async fn what_was_sent_is_stored(world: &SimWorld, wrong: &mut Vec<Wrong>) {
    let sent = world.sim.history.lock().sent.clone();
    for ((id, seq), message_id) in sent {
        let found = all_of(world, &id).await.into_iter().find(|m| m.seq == seq);
        if found.is_none_or(|m| m.void || m.message_id != message_id) {
            wrong.push(format!("{id} {seq} was told sent and is not stored").into());
        }
    }
}

/// By the user: some device has got it. By the device: whatever was stored after it first caught
/// up.
async fn what_was_sent_has_arrived(world: &SimWorld, wrong: &mut Vec<Wrong>) {
    let mut missing = Vec::new();
    {
        let history = world.sim.history.lock();
        for place @ (id, seq) in history.sent.keys() {
            let Some(stored) = history.stored.get(place) else { continue };
            let (user, body) = (&stored.receiver, &stored.client_msg_id);
            if !history.received.contains(&(user.clone(), place.clone())) {
                let what = format!("LOST: {id} {seq} ({body}) reached no device of {user}");
                missing.push((what, user.clone(), place.clone(), None));
            }
            for device in world.devices.iter().flatten().filter(|device| device.user == *user) {
                let seen = device.seen.lock();
                let is_due = seen.caught_up_at.is_some_and(|at| at < stored.at_ms);
                if is_due && !seen.has(id, *seq) {
                    let what = format!("LOST: {id} {seq} ({body}) is not on {user}'s {}", device.name);
                    missing.push((what, user.clone(), place.clone(), Some(&device.name)));
                }
            }
        }
    }
    for (what, user, (id, seq), device) in missing {
        let sessions = world.sessions_of(&user);
        let sessions = sessions.iter().filter(|entry| device.is_none_or(|device| entry.device == *device));
        let sessions: Vec<_> = sessions.map(|entry| entry.session_id).collect();
        let is_excused = may_lack(world, &user, &id, seq, &sessions).await;
        wrong.push(Wrong { what, is_excused });
    }
}

/// Whether one of the user's live sessions is excused for not having delivered a message.
async fn may_lack(world: &SimWorld, user: &UserId, id: &ConversationId, seq: Seq, by: &[SessionId]) -> bool {
    let row = world.memory.pending_row(user, id).await.unwrap_or_default();
    let notices = &world.sim.notices;
    by.iter().any(|&session| notices.excuse_message(user, id, seq, row, session))
}

async fn no_row_is_left(world: &SimWorld, user: &UserId, wrong: &mut Vec<Wrong>) {
    let sessions: Vec<_> = world.sessions_of(user).iter().map(|entry| entry.session_id).collect();
    for row in world.memory.pending_of(user).await.unwrap_or_default() {
        let (id, seq) = (&row.conversation_id, row.first_undelivered_seq);
        let what = format!("the pending row of {user} for {id} is still there, at {seq}");
        let is_excused = world.sim.notices.excuse_row(user, id, &sessions);
        wrong.push(Wrong { what, is_excused });
    }
}

/// The ticks that were told still hold, every message that arrived has its double tick, and unread
/// is what a recount gives.
async fn boundaries_are_true(world: &SimWorld, id: &ConversationId, side: Side, wrong: &mut Vec<Wrong>) {
    let user = id.member(side);
    let (Ok(status), Ok(row)) =
        (world.memory.status(&user, id).await, world.memory.conversation(&user, id).await)
    else {
        return wrong.push(format!("the rows of {user} for {id} cannot be read").into());
    };
    let (delivered, read) = (status.last_delivered_seq, status.last_read_seq);
    let told = world.sim.history.lock().told.get(&(user.clone(), id.clone())).copied();
    if told.is_some_and(|(told_delivered, told_read)| told_delivered > delivered || told_read > read) {
        let is = (delivered, read);
        wrong.push(format!("{id}: {user} was told to be at {told:?} and is at {is:?}").into());
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
        let what = format!("{id}: {user} holds {last}, and the double tick says {delivered}");
        let is_held = world.sim.history.lock().received.contains(&(user.clone(), (id.clone(), last)));
        let sessions: Vec<_> = world.sessions_of(&user).iter().map(|entry| entry.session_id).collect();
        let is_excused = !is_held && may_lack(world, &user, id, last, &sessions).await;
        wrong.push(Wrong { what, is_excused });
    }
    let unread = theirs.iter().filter(|&&seq| seq > read).count() as u64;
    let shown = row.map_or(0, |row| row.unread_count);
    if shown != unread {
        wrong.push(format!("{id}: {user} has {unread} unread, and the row says {shown}").into());
    }
}

async fn all_of(world: &SimWorld, id: &ConversationId) -> Vec<Message> {
    let limit = PageLimit { messages: usize::MAX, bytes: usize::MAX };
    let page = world.memory.read_from(id, 1, limit).await.unwrap_or_default();
    page.iter().map(|m| (**m).clone()).collect()
}
