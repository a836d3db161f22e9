//! The path of a send, from a user's request to the answer `sent`.
//!
//! 1. **Check.** [`check`](ChatService::check) validates the frame, and the user's budget pays for
//!    it. A send that is refused here is answered and goes no further.
//! 2. **Look up.** Once per conversation of the batch: do the two users block each other, and has
//!    the receiver a live session? If not, the pending row is committed with the message.
//! 3. **Commit.** [`commit_sends`](bluetick_store::Messages::commit_sends) makes the whole batch
//!    durable and gives every message its seq. A known `client_msg_id` stores nothing and returns
//!    the original ([`R9`](crate::rules::Rule::R9)).
//! 4. **Deliver.** `deliver.rs` looks the receiver up again and hands the messages to every live
//!    session ([`R2`](crate::rules::Rule::R2)). If none accepts, it writes the pending row and wakes
//!    the sessions that registered meanwhile. The conversations of a batch are delivered
//!    concurrently.
//! 5. **Echo.** The sender's other devices get the message, and both members the ticks of the read
//!    that a reply implies. The answer does not wait for these.
//! 6. **Answer.** `sent`, in the order of the request: the message is durable, and its pending row
//!    is written or a live session has accepted it.
//!
//! From there the message is in the receiver's session: `session/delivery.rs`.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, ErrorCode, Json, Ref, Send as SendFrame, Sent, SessionId, Side, UserId, WireError,
};
use bluetick_store::{Advanced, Committed, Message, NewMessage, StoreError};
use futures_util::future::{join, join_all};
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::{AppResult, ChatService, Exhausted, SendApi, SendCost, SendRequest, rate_limited, wire};

/// Messages are handed to a session in chunks of at most this weight.
const CHUNK_MAX_BYTES: usize = 256 * 1024;
/// About what an attachment's description takes in a message.
const ATTACHMENT_BYTES: usize = 512;

/// The sends of one request, which are committed together.
struct SendBatch {
    sender: UserId,
    /// The session that they came through.
    origin: Option<SessionId>,
    /// The clients' references, in the order of the request.
    references: Vec<Option<Ref>>,
    /// In the order of the request. `None` until the send is refused or delivered.
    answers: Vec<Option<AppResult<Sent>>>,
    /// An error where the two users may not write to each other.
    conversations: BTreeMap<ConversationId, AppResult<ConversationBatch>>,
}

/// The sends of a batch that go to one conversation.
struct ConversationBatch {
    receiver: UserId,
    /// The receiver blocks the sender: messages are stored and not shown to them.
    withheld: bool,
    /// No session was found: the pending row is committed with each message.
    offline: bool,
    committed: Vec<Committed>,
    /// The position of each in the request.
    positions: Vec<usize>,
}

#[async_trait]
impl SendApi for ChatService {
    /// Commits the sends together and delivers each. The answers are in the order of the sends.
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let began = Instant::now();
        let SendRequest { user, session, sends } = request;
        let mut batch = SendBatch {
            sender: user,
            origin: session,
            references: Vec::with_capacity(sends.len()),
            answers: Vec::with_capacity(sends.len()),
            conversations: BTreeMap::new(),
        };
        let (positions, new) = self.prepare_all(&mut batch, sends).await;
        if !new.is_empty() {
            self.commit_all(&mut batch, positions, new).await;
            self.deliver_all(&mut batch).await;
        }
        self.observer.batch_answered(began.elapsed());
        let lost = || Err(WireError::new(ErrorCode::Internal, "this send got lost in the server"));
        batch.answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }
}

impl ChatService {
    /// Steps 1 and 2: checks the sends and looks their receivers up. Returns the messages to commit
    /// and their positions in the request.
    async fn prepare_all(
        &self,
        batch: &mut SendBatch,
        sends: Vec<SendFrame>,
    ) -> (Vec<usize>, Vec<NewMessage>) {
        let (mut positions, mut new) = (Vec::with_capacity(sends.len()), Vec::with_capacity(sends.len()));
        let mut last_conversation = None;
        let mut limited: Option<WireError> = None;
        for mut send in sends {
            batch.references.push(send.reference.take());
            let prepared = match &limited {
                // A later send that the budget has room for must not overtake one that was refused.
                Some(refused) => Err(refused.clone()),
                None => self.prepare(batch, send, &mut last_conversation).await,
            };
            batch.answers.push(match prepared {
                Ok(message) => {
                    positions.push(batch.answers.len());
                    new.push(message);
                    None
                }
                Err(e) => {
                    limited = Some(&e).filter(|e| e.code == ErrorCode::RateLimited).cloned();
                    Some(Err(e))
                }
            });
        }
        (positions, new)
    }

    /// Steps 1 and 2 of one send.
    async fn prepare(
        &self,
        batch: &mut SendBatch,
        mut send: SendFrame,
        last_conversation: &mut Option<(UserId, ConversationId)>,
    ) -> AppResult<NewMessage> {
        let SendBatch { sender, conversations, .. } = batch;
        let id = conversation_of(sender, &mut send, last_conversation)?;
        let from = id.side_of(sender).ok_or_else(WireError::not_found)?;
        self.check(&send)?;
        self.take_from_budget(sender, bytes_of(&send)).await?;
        let conversation = match conversations.get(&id) {
            Some(known) => known,
            None => {
                let looked_up = self.look_up(sender, &id, from).await;
                conversations.entry(id.clone()).or_insert(looked_up)
            }
        };
        let &ConversationBatch { withheld, offline, .. } = conversation.as_ref().map_err(WireError::clone)?;
        let attachment = match &send.attachment {
            Some(said) => Some(self.attach(sender, &id, said).await?),
            None => None,
        };
        Ok(NewMessage {
            conversation_id: id,
            from,
            client_msg_id: send.client_msg_id,
            body: send.body,
            attachment,
            meta: send.meta,
            withheld,
            seen_seq: send.seen_seq,
            undelivered: offline,
            push_due: self.push.as_ref().filter(|_| offline).map(|push| push.due_at()),
        })
    }

    /// Whether the content of a send is acceptable.
    fn check(&self, send: &SendFrame) -> AppResult<()> {
        if send.attachment.is_some() && self.uploads.is_none() {
            return Err(crate::attachments::no_uploads());
        }
        if send.body.is_empty() && send.attachment.is_none() {
            let why = "\"body\" must not be empty where there is no attachment";
            return Err(WireError::new(ErrorCode::EmptyBody, why));
        }
        if send.body.len() > self.config.max_body_bytes {
            let message = format!("\"body\" may be at most {} bytes long", self.config.max_body_bytes);
            return Err(WireError::new(ErrorCode::BodyTooLarge, message));
        }
        match &send.meta {
            Some(meta) => check_user_meta(meta),
            None => Ok(()),
        }
    }

    /// Takes one send of so many bytes from the user's budget.
    pub(crate) async fn take_from_budget(&self, user: &UserId, bytes: u32) -> AppResult<()> {
        let cost = SendCost { messages: 1, bytes };
        self.budget.take(user, cost).await.map_err(|ms| rate_limited(Exhausted::Sends, ms))
    }

    /// Whether the two may write to each other, and whether the receiver is online. This is the
    /// first lookup. It only decides whether the pending row is committed with the message; the
    /// sessions that get the message are found by a lookup after the commit
    /// ([`R2`](crate::rules::Rule::R2)).
    async fn look_up(
        &self,
        sender: &UserId,
        id: &ConversationId,
        from: Side,
    ) -> AppResult<ConversationBatch> {
        let user = id.member(from.other());
        let users = &self.store.users;
        let (blocks, blocked) = join(users.blocks(sender, &user), users.blocks(&user, sender)).await;
        if blocks.map_err(wire)? {
            return Err(WireError::new(ErrorCode::Blocked, "you block this user; unblock before you write"));
        }
        let withheld = blocked.map_err(wire)?;
        let offline = !withheld && {
            let sessions = self.sessions_of(&user).await.len();
            self.observer.looked_up(&user, id, sessions);
            sessions == 0
        };
        Ok(ConversationBatch {
            receiver: user,
            withheld,
            offline,
            committed: Vec::new(),
            positions: Vec::new(),
        })
    }

    /// Step 3: makes the messages durable and sorts them by conversation. A message that is not
    /// stored is answered here.
    async fn commit_all(&self, batch: &mut SendBatch, positions: Vec<usize>, new: Vec<NewMessage>) {
        let (mut stored, mut may_be_stored) = (0, false);
        let committed = self.store.messages.commit_sends(new).await;
        for (position, committed) in positions.into_iter().zip(committed) {
            match committed {
                Ok(committed) => {
                    self.observer.committed();
                    let id = &committed.message.conversation_id;
                    if let Some(Ok(conversation)) = batch.conversations.get_mut(id) {
                        stored += 1;
                        conversation.positions.push(position);
                        conversation.committed.push(committed);
                    }
                }
                Err(e) => {
                    may_be_stored |= !matches!(e, StoreError::ClientMsgIdConflict(_));
                    batch.answers[position] = Some(Err(wire(e)));
                }
            }
        }
        if may_be_stored {
            self.wake_offline_receivers(batch).await;
        }
        self.observer.batch_committed(stored);
    }

    /// A commit that failed may have succeeded, with the pending row that was part of it. The
    /// sender may not retry, so every session that can serve the row is woken
    /// ([`R2`](crate::rules::Rule::R2)).
    async fn wake_offline_receivers(&self, batch: &SendBatch) {
        let wake = batch.conversations.iter().filter_map(|(id, conversation)| {
            let offline = conversation.as_ref().ok().filter(|conversation| conversation.offline)?;
            Some(self.wake(&offline.receiver, id, &[]))
        });
        join_all(wake).await;
    }

    /// Steps 4 to 6: delivers the conversations concurrently, so that a receiver whose gateway
    /// hangs delays nobody else, and answers their sends.
    async fn deliver_all(&self, batch: &mut SendBatch) {
        let SendBatch { sender, origin, references, answers, conversations } = batch;
        let stored = || conversations.values().flatten().filter(|c| !c.committed.is_empty());
        let outcomes = join_all(stored().map(|c| self.deliver_conversation(sender, *origin, c))).await;
        for (conversation, (delivered, repeated)) in stored().zip(outcomes) {
            for (&position, committed) in conversation.positions.iter().zip(&conversation.committed) {
                let outcome = match committed.duplicate {
                    true => delivered.clone().and(repeated.clone()),
                    false => delivered.clone(),
                };
                answers[position] = Some(outcome.map(|()| sent(committed, references[position].take())));
            }
        }
    }

    /// Steps 4 and 5 of one conversation. Returns the outcome of the delivery, and that of
    /// repeating the ticks, which concerns only repeated sends.
    async fn deliver_conversation(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        conversation: &ConversationBatch,
    ) -> (AppResult<()>, AppResult<()>) {
        let stored = &conversation.committed;
        self.observer.stored(sender, stored);
        if let Err(e) = self.deliver_chunks(conversation).await {
            return (Err(e), Ok(()));
        }
        self.echo(sender, origin, stored).await;
        let repeated = match stored.iter().find(|committed| committed.duplicate) {
            Some(committed) => self.repeat_ticks(sender, &committed.message).await,
            None => Ok(()),
        };
        let messages = stored.iter().map(|committed| &committed.message);
        self.observer.sent(sender, messages);
        (Ok(()), repeated)
    }

    /// Hands the receiver what is theirs to see.
    async fn deliver_chunks(&self, conversation: &ConversationBatch) -> AppResult<()> {
        let ConversationBatch { receiver, offline: row_written, committed, .. } = conversation;
        let theirs: Vec<&Committed> =
            committed.iter().filter(|c| !c.message.withheld && !c.message.void).collect();
        // Shared by all chunks: a gateway that hangs is waited for once.
        let mut wait_budget = self.fanout.hedge;
        for chunk in chunks(&theirs) {
            self.deliver_to_receiver(receiver, chunk, *row_written, &mut wait_budget).await?;
        }
        Ok(())
    }

    /// Tells the sender's other devices of the messages, and everybody of the read that they imply
    /// ([`R10`](crate::rules::Rule::R10)).
    async fn echo(&self, sender: &UserId, origin: Option<SessionId>, stored: &[Committed]) {
        let own: Arc<[_]> = stored.iter().filter(|c| !c.message.void).map(|c| c.message.clone()).collect();
        // Boundaries only grow: the last one stands for all, from where the first began.
        let implied = || stored.iter().filter_map(|committed| committed.implied_read.as_ref());
        let last = implied().max_by_key(|read| read.row.last_read_seq);
        if let Some(last) = last {
            let read_before = implied().map(|read| read.read_before).min().unwrap_or_default();
            self.clear_read(&Advanced { read_before, ..last.clone() }, origin, false);
        }
        self.fanout.echo_and_tick(sender, origin, own, last.map(|read| &read.row)).await;
    }

    /// The first run of a repeated send may have moved the read boundary and died before it told
    /// anybody ([`R9`](crate::rules::Rule::R9)).
    async fn repeat_ticks(&self, sender: &UserId, message: &Message) -> AppResult<()> {
        let row = self.store.status.status(sender, &message.conversation_id).await.map_err(wire)?;
        if row.last_read_seq > 0 {
            self.fanout.echo_and_tick(sender, None, Arc::new([]), Some(&row)).await;
        }
        Ok(())
    }
}

/// The conversation that a send names. Consecutive sends mostly go to the same user, so the last
/// id is reused.
fn conversation_of(
    sender: &UserId,
    send: &mut SendFrame,
    last: &mut Option<(UserId, ConversationId)>,
) -> AppResult<ConversationId> {
    if let Some(to) = &send.to {
        match last {
            Some((last_to, id)) if last_to == to => return Ok(id.clone()),
            _ => {}
        }
        if let Some(id) = ConversationId::between(sender, to) {
            *last = Some((to.clone(), id.clone()));
            return Ok(id);
        }
    }
    match (send.conversation_id.take(), &send.to) {
        (Some(id), _) => Ok(id),
        (None, Some(_)) => Err(WireError::new(ErrorCode::ToSelf, "you cannot write to yourself")),
        (None, None) => Err(ChatService::bad_request("give either \"to\" or \"conversation_id\"")),
    }
}

/// What a send costs in the budget of bytes.
fn bytes_of(send: &SendFrame) -> u32 {
    let meta = send.meta.as_ref().map_or(0, |meta| meta.as_str().len());
    let attachment = if send.attachment.is_some() { ATTACHMENT_BYTES } else { 0 };
    (send.body.len() + meta + attachment).try_into().unwrap_or(u32::MAX)
}

/// Keys of `meta` that begin with `_` belong to the server: a user must not forge them.
fn check_user_meta(meta: &Json) -> AppResult<()> {
    match reserved_key(meta) {
        None => Ok(()),
        Some(key) => {
            let shown: String = key.chars().take(64).collect();
            let why = format!("\"meta\" has the key {shown:?}: keys that begin with \"_\" are the server's");
            Err(WireError::new(ErrorCode::ReservedMeta, why))
        }
    }
}

/// The first key of the object that begins with `_`.
fn reserved_key(meta: &Json) -> Option<String> {
    let text = meta.as_str();
    // A key may be written with an escape. Without either character there is nothing to find.
    if !text.contains(['_', '\\']) {
        return None;
    }
    // Anything but an object was refused before.
    let keys: BTreeMap<String, IgnoredAny> = serde_json::from_str(text).ok()?;
    keys.into_keys().find(|key| key.starts_with('_'))
}

/// Cuts messages into chunks of no more bytes than a gateway takes well before its deadline.
fn chunks<'a>(messages: &'a [&'a Committed]) -> impl Iterator<Item = &'a [&'a Committed]> {
    let mut left = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = left.iter().take_while(|committed| {
            bytes += committed.message.weight();
            bytes <= CHUNK_MAX_BYTES
        });
        let (chunk, rest) = left.split_at_checked(fitting.count().max(1))?;
        left = rest;
        Some(chunk)
    })
}

fn sent(committed: &Committed, reference: Option<Ref>) -> Sent {
    let message = &committed.message;
    Sent {
        reference,
        client_msg_id: message.client_msg_id.clone(),
        conversation_id: message.conversation_id.clone(),
        seq: message.seq,
        message_id: message.message_id,
        ts: message.ts,
        duplicate: committed.duplicate,
    }
}
