//! The differential test: the same random operations on a store and on the memory model leave the
//! same rows.

use std::sync::Arc;

use bluetick_protocol::{
    Boundaries, ConversationId, DeviceId, Json, Mute, Profile, PushContent, PushRegistration, PushTarget,
    Seq, Side, UserId,
};

use super::fixture::{Dice, Fixture, all};
use crate::{
    Advanced, Clock, Committed, ConversationRow, DeviceRow, ManualClock, Message, NewMessage, Noted,
    OwedPush, PageLimit, PendingRow, StatusRow, Store, StoreError, testing::message,
};

const STEPS: usize = 250;

pub async fn random_operations_leave_the_rows_of_the_model(t: &Fixture) {
    let model = Store::memory(t.clock.clone());
    for seed in 1..=4 {
        same_as_model(&t.store, &model, &t.clock, seed).await;
    }
}

/// Runs a random sequence of operations on both stores, which share a clock, and compares each
/// answer and, after each step, every row of everybody involved. Message ids differ between stores,
/// so only their order is looked at. The users are named after the seed: one pair of stores serves
/// any number of seeds.
pub async fn same_as_model(store: &Store, model: &Store, clock: &ManualClock, seed: u64) {
    let mut dice = Dice::new(seed);
    let people = People::of(seed);
    for step in 0..STEPS {
        let operation = people.any_operation(&mut dice, model, clock.now_ms()).await;
        let told = |what: &str| format!("seed {seed}, step {step}, {operation:?}: {what}");
        if let Operation::Wait(ms) = operation {
            clock.advance(ms);
        }
        let (answer, expected) = (operation.run(store).await, operation.run(model).await);
        assert_eq!(answer, expected, "{}", told("the answers differ"));
        same_rows(store, model, clock, &people, told).await;
    }
}

/// Compares every row of everybody whom [`same_as_model`] involved with this seed.
pub async fn still_same_as_model(store: &Store, model: &Store, clock: &ManualClock, seed: u64) {
    same_rows(store, model, clock, &People::of(seed), |what| format!("seed {seed}: {what}")).await;
}

async fn same_rows(
    store: &Store,
    model: &Store,
    clock: &ManualClock,
    people: &People,
    told: impl Fn(&str) -> String,
) {
    for id in &people.conversations {
        let (rows, expected) = (in_conversation(store, id).await, in_conversation(model, id).await);
        assert_eq!(rows, expected, "{}", told(id.as_str()));
    }
    for user in &people.users {
        let now_ms = clock.now_ms();
        let (rows, expected) = (of_user(store, user, now_ms).await, of_user(model, user, now_ms).await);
        assert_eq!(rows, expected, "{}", told(user.as_str()));
    }
}

/// Four users, and the six conversations between them.
struct People {
    users: Vec<UserId>,
    conversations: Vec<ConversationId>,
}

#[derive(Debug, Clone)]
enum Operation {
    Send(Vec<NewMessage>),
    Advance(UserId, ConversationId, Seq, Seq),
    Note(UserId, ConversationId, Seq),
    Settle(UserId, ConversationId, Seq, Option<Seq>),
    CloseHole(ConversationId, Seq),
    PutProfile(UserId, Profile),
    Block(UserId, UserId, bool),
    Mute(UserId, Mute),
    Unmute(UserId, ConversationId),
    Register(DeviceRow),
    Unregister(UserId, DeviceId, Option<u64>),
    RaiseNotified(UserId, ConversationId, Seq),
    Owe(OwedPush),
    /// At what time, until when, and whose rows are looked at: those of other seeds may be due too.
    Claim(u64, u64, Vec<UserId>),
    Postpone(OwedPush),
    Paid(OwedPush),
    Recount(UserId, ConversationId),
    EraseMember(UserId, ConversationId),
    EraseUser(UserId),
    Checkpoint,
    Wait(u64),
}

impl People {
    fn of(seed: u64) -> People {
        let users: Vec<UserId> =
            ["a", "b", "c", "d"].map(|name| UserId::new(&format!("{name}{seed}")).unwrap()).into();
        let pairs =
            users.iter().enumerate().flat_map(|(n, low)| users[n + 1..].iter().map(move |high| (low, high)));
        let conversations = pairs.filter_map(|(low, high)| ConversationId::between(low, high)).collect();
        People { users, conversations }
    }

    /// The model is asked for what an operation needs to hit something: the seqs there are, the row
    /// to settle.
    async fn any_operation(&self, dice: &mut Dice, model: &Store, now_ms: u64) -> Operation {
        let id = dice.pick(&self.conversations).clone();
        let user = id.member(dice.side());
        let last = model.messages.last_seq(&id).await.unwrap();
        match dice.below(125) {
            0..45 => {
                let batch = 1 + dice.below(4);
                let mut sends = Vec::new();
                for _ in 0..batch {
                    let to = if dice.one_in(2) { &id } else { dice.pick(&self.conversations) };
                    sends.push(any_message(dice, to.clone(), last, now_ms));
                }
                Operation::Send(sends)
            }
            45..62 => {
                let read = if dice.one_in(2) { dice.below(last + 3) } else { 0 };
                Operation::Advance(user, id, dice.below(last + 3), read)
            }
            62..67 => Operation::Note(user, id, 1 + dice.below(last + 1)),
            67..75 => {
                let row = model.pending.pending_row(&user, &id).await.unwrap();
                let expected = row.filter(|_| !dice.one_in(4)).unwrap_or(1 + dice.below(last + 1));
                let to = dice.one_in(2).then(|| expected + dice.below(4));
                Operation::Settle(user, id, expected, to)
            }
            75..77 => Operation::CloseHole(id, if last == 0 { 0 } else { 1 + dice.below(last) }),
            77..80 => {
                let name = (!dice.one_in(3)).then(|| format!("name {}", dice.below(100)));
                Operation::PutProfile(user, Profile { name, avatar_url: None })
            }
            80..83 => Operation::Block(user, dice.pick(&self.users).clone(), !dice.one_in(3)),
            83..85 => Operation::Recount(user, id),
            85..88 => Operation::EraseMember(user, id),
            88 => Operation::EraseUser(user),
            89..92 => Operation::Checkpoint,
            // Long enough for every client_msg_id so far to be forgotten.
            92 => Operation::Wait(31 * 24 * 60 * 60 * 1000 + now_ms % 7),
            93..96 => {
                let until = dice.one_in(2).then(|| now_ms + dice.below(1_000));
                Operation::Mute(user, Mute { conversation_id: id, until })
            }
            96..98 => Operation::Unmute(user, id),
            98..103 => Operation::Register(any_device(dice, user)),
            103..105 => {
                let devices = model.devices.devices_of(&user).await.unwrap();
                let row = devices.first().cloned().unwrap_or_else(|| any_device(dice, user));
                let at = dice.one_in(2).then(|| row.registered_at + dice.below(2));
                Operation::Unregister(row.user_id, row.device, at)
            }
            105..108 => Operation::RaiseNotified(user, id, dice.below(last + 2)),
            108..115 => {
                let owed = model.push_outbox.owed_to(&user).await.unwrap().into_iter().next();
                let owed = owed.unwrap_or(any_owed(dice, user, id, last, now_ms));
                let seq = (owed.seq + dice.below(3)).saturating_sub(1);
                let owed = OwedPush { seq, clear: owed.clear != dice.one_in(5), ..owed };
                match dice.below(3) {
                    0 => Operation::Owe(OwedPush { attempts: 0, ..owed }),
                    1 => Operation::Paid(owed),
                    _ => {
                        let devices = vec![any_device(dice, owed.user_id.clone()).device];
                        let due_at = now_ms + dice.below(5_000);
                        Operation::Postpone(OwedPush { attempts: owed.attempts + 1, devices, due_at, ..owed })
                    }
                }
            }
            115..119 => Operation::Claim(now_ms, now_ms + dice.below(9_000), self.users.clone()),
            _ => Operation::Wait(dice.below(5_000)),
        }
    }
}

/// The ids are few, so that some sends are duplicates.
fn any_message(dice: &mut Dice, conversation_id: ConversationId, last: Seq, now_ms: u64) -> NewMessage {
    let json = |dice: &mut Dice| {
        dice.one_in(6).then(|| Json::from_text(&format!(r#"{{"n":{}}}"#, dice.below(100))).unwrap())
    };
    // A client cannot have seen what goes in the same batch; `status` covers what lies beyond the
    // end.
    message(&conversation_id, dice.side(), &format!("m{}", dice.below(60)))
        .body("word ".repeat(dice.below(40) as usize))
        .attachment(json(dice))
        .meta(json(dice))
        .withheld(dice.one_in(6))
        .seen_seq(dice.one_in(2).then(|| dice.below(last + 1)))
        .undelivered(dice.one_in(3))
        .push_due(dice.one_in(2).then(|| now_ms + dice.below(3_000)))
}

/// The tokens are few, so that some are taken from others, those of other seeds among them.
fn any_device(dice: &mut Dice, user_id: UserId) -> DeviceRow {
    let token = format!("token-{}", dice.below(6));
    let target = match dice.one_in(2) {
        true => PushTarget::Fcm { token },
        false => PushTarget::Webhook { token },
    };
    DeviceRow {
        user_id,
        device: DeviceId::new(dice.pick::<&str>(&["phone", "tablet"])).unwrap(),
        registration: PushRegistration { target, content: PushContent::Preview },
        registered_at: dice.below(5),
    }
}

fn any_owed(
    dice: &mut Dice,
    user_id: UserId,
    conversation_id: ConversationId,
    last: Seq,
    now_ms: u64,
) -> OwedPush {
    OwedPush {
        user_id,
        conversation_id,
        seq: 1 + dice.below(last + 2),
        clear: dice.one_in(4),
        attempts: 0,
        devices: Vec::new(),
        due_at: now_ms + dice.below(3_000),
    }
}

type SentAnswer = Result<(Message, bool, Option<Advanced>), String>;

#[derive(Debug, PartialEq)]
enum OperationAnswer {
    /// Of each send what it became, or the error of an id that names another message.
    Sent(Vec<SentAnswer>),
    Advanced(Advanced),
    Noted(Noted),
    Settled(bool),
    Recounted((u64, u64)),
    Erased(u64),
    Taken(Option<(UserId, DeviceId)>),
    Claimed(Vec<OwedPush>),
    Did(bool),
    Done,
}

impl Operation {
    async fn run(&self, store: &Store) -> OperationAnswer {
        match self.clone() {
            Operation::Send(sends) => {
                let results = store.messages.commit_sends(sends).await;
                OperationAnswer::Sent(results.into_iter().map(sent).collect())
            }
            Operation::Advance(user, id, delivered, read) => {
                OperationAnswer::Advanced(store.status.advance(&user, &id, delivered, read).await.unwrap())
            }
            Operation::Note(user, id, seq) => {
                OperationAnswer::Noted(store.pending.note_undelivered(&user, &id, seq).await.unwrap())
            }
            Operation::Settle(user, id, expected, to) => {
                OperationAnswer::Settled(store.pending.settle(&user, &id, expected, to).await.unwrap())
            }
            Operation::Recount(user, id) => {
                OperationAnswer::Recounted(store.conversations.recount(&user, &id).await.unwrap())
            }
            Operation::EraseMember(user, id) => {
                OperationAnswer::Erased(store.maintenance.erase_member(&user, &id).await.unwrap())
            }
            Operation::CloseHole(id, seq) => done(store.messages.close_hole(&id, seq).await),
            Operation::PutProfile(user, profile) => done(store.users.put_profile(&user, profile).await),
            Operation::Block(user, other, blocked) => {
                done(store.users.set_block(&user, &other, blocked).await)
            }
            Operation::Mute(user, mute) => done(store.users.mute(&user, mute).await),
            Operation::Unmute(user, id) => done(store.users.unmute(&user, &id).await),
            Operation::Register(row) => OperationAnswer::Taken(store.devices.register(row).await.unwrap()),
            Operation::Unregister(user, device, registered_at) => {
                OperationAnswer::Did(store.devices.unregister(&user, &device, registered_at).await.unwrap())
            }
            Operation::RaiseNotified(user, id, seq) => {
                done(store.status.raise_notified(&user, &id, seq).await)
            }
            Operation::Owe(owed) => done(store.push_outbox.owe(owed).await),
            Operation::Claim(now, until, of) => {
                let mut claimed = store.push_outbox.claim(now, until, usize::MAX).await.unwrap();
                claimed.retain(|owed| of.contains(&owed.user_id));
                claimed.sort_by_key(|owed| (owed.user_id.clone(), owed.conversation_id.clone()));
                OperationAnswer::Claimed(claimed)
            }
            Operation::Postpone(owed) => {
                OperationAnswer::Did(store.push_outbox.postpone(&owed, &owed).await.unwrap())
            }
            Operation::Paid(owed) => done(store.push_outbox.paid(&owed).await),
            Operation::EraseUser(user) => done(store.maintenance.erase_user(&user).await),
            Operation::Checkpoint => done(store.maintenance.checkpoint().await),
            Operation::Wait(_) => OperationAnswer::Done,
        }
    }
}

fn done(result: crate::Result<()>) -> OperationAnswer {
    result.expect("the operation succeeds");
    OperationAnswer::Done
}

fn sent(result: crate::Result<Committed>) -> SentAnswer {
    match result {
        Ok(committed) => Ok((without_id(&committed.message), committed.duplicate, committed.implied_read)),
        Err(StoreError::ClientMsgIdConflict(why)) => Err(why),
        Err(error) => panic!("the send succeeds: {error}"),
    }
}

fn without_id(message: &Arc<Message>) -> Message {
    Message { message_id: Default::default(), ..(**message).clone() }
}

#[derive(Debug, PartialEq)]
struct ConversationState {
    messages: Vec<Message>,
    newest: Vec<Seq>,
    last_seq: Seq,
    members: Vec<OfMember>,
}

#[derive(Debug, PartialEq)]
struct OfMember {
    status: (Boundaries, Seq),
    pending: Option<Seq>,
    row: Option<ConversationRow>,
    mute: Option<Mute>,
}

async fn in_conversation(store: &Store, id: &ConversationId) -> ConversationState {
    let messages = all(store, id).await;
    assert!(messages.is_sorted_by(|a, b| a.message_id < b.message_id), "ids of {id} grow with the seq");
    let newest = store.messages.read_before(id, Seq::MAX, PageLimit::messages(3)).await.unwrap();
    let mut members = Vec::new();
    for side in Side::BOTH {
        let member = id.member(side);
        let (status, notified) = store.status.notified(&member, id).await.unwrap();
        assert_eq!(store.status.status(&member, id).await.unwrap(), status);
        if store.status.has_acked_all(&member, id).await.unwrap() {
            let not_acked = messages.iter().filter(|m| m.seq > status.last_delivered_seq);
            let mut owed = not_acked.filter(|m| m.from != side && m.visible_to(side));
            assert_eq!(owed.next(), None, "{member} has acked all");
        }
        members.push(OfMember {
            status: (status.boundaries(), notified),
            pending: store.pending.pending_row(&member, id).await.unwrap(),
            row: store.conversations.conversation(&member, id).await.unwrap(),
            mute: store.users.muted(&member, id).await.unwrap(),
        });
    }
    ConversationState {
        messages: messages.iter().map(without_id).collect(),
        newest: newest.iter().map(|m| m.seq).collect(),
        last_seq: store.messages.last_seq(id).await.unwrap(),
        members,
    }
}

#[derive(Debug, PartialEq)]
struct OfUser {
    conversations: Vec<ConversationRow>,
    inbox: Vec<(Vec<ConversationRow>, bool)>,
    active: Vec<(ConversationId, Seq)>,
    total_unread: u64,
    pending: Vec<PendingRow>,
    statuses: Vec<StatusRow>,
    profile: Profile,
    blocked: Vec<UserId>,
    mutes: Vec<Mute>,
    devices: Vec<DeviceRow>,
    /// Without the time: a claim need not outlive a restart, and what is claimed is compared by
    /// itself.
    owed: Vec<OwedPush>,
    memberships: Vec<ConversationId>,
}

async fn of_user(store: &Store, user: &UserId, now_ms: u64) -> OfUser {
    OfUser {
        conversations: store.conversations.conversations_of(user).await.unwrap(),
        inbox: inbox_in_pages(store, user).await,
        active: active(store, user, now_ms.saturating_sub(10_000)).await,
        total_unread: store.conversations.total_unread(user).await.unwrap(),
        pending: store.pending.pending_of(user).await.unwrap(),
        statuses: store.status.statuses_of(user).await.unwrap(),
        profile: store.users.profile(user).await.unwrap(),
        blocked: store.users.blocked_by(user).await.unwrap(),
        mutes: store.users.mutes_of(user).await.unwrap(),
        devices: store.devices.devices_of(user).await.unwrap(),
        owed: owed_at_some_time(store, user).await,
        memberships: store.maintenance.memberships(user).await.unwrap(),
    }
}

async fn owed_at_some_time(store: &Store, user: &UserId) -> Vec<OwedPush> {
    let owed = store.push_outbox.owed_to(user).await.unwrap();
    owed.into_iter().map(|owed| OwedPush { due_at: 0, ..owed }).collect()
}

async fn inbox_in_pages(store: &Store, user: &UserId) -> Vec<(Vec<ConversationRow>, bool)> {
    let mut pages: Vec<(Vec<ConversationRow>, bool)> = Vec::new();
    loop {
        let last = pages.last().and_then(|(rows, _)| rows.last());
        let after = last.map(|row| crate::InboxPosition {
            last_message_ts: row.last_message_ts,
            conversation_id: row.conversation_id.clone(),
        });
        let page = store.conversations.inbox(user, after.as_ref(), 2).await.unwrap();
        let more = page.1 && !page.0.is_empty();
        assert!(pages.len() < 100, "the inbox of {user} ends");
        pages.push(page);
        if !more {
            return pages;
        }
    }
}

/// Without the ids, each of which must be that of the message it speaks of.
async fn active(store: &Store, user: &UserId, since_ms: u64) -> Vec<(ConversationId, Seq)> {
    let listed = store.conversations.active_since(user, since_ms, 5).await.unwrap();
    for one in &listed {
        let page = store
            .messages
            .read_from(&one.conversation_id, one.last_seq, PageLimit::messages(1))
            .await
            .unwrap();
        assert_eq!(page[0].message_id, one.last_message_id, "the head of {} for {user}", one.conversation_id);
    }
    listed.into_iter().map(|one| (one.conversation_id, one.last_seq)).collect()
}
