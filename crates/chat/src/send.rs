//! Sending: check, look up, commit, deliver. When this answers `sent`, the message is durable and its pending row is
//! written or a live session has taken it.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, ErrorCode, Json, Send as SendFrame, Sent, SessionId, Side, UserId, WireError,
};
use bluetick_store::{Advanced, Committed, Message, NewMessage, StoreError};
use futures_util::future::{join, join_all};
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::{
    AppResult, ChatService, Exhausted, SendApi, SendCost, SendRequest, Step, rate_limited, rules::rule,
    trace::Glimpse, wire,
};

/// Messages that are handed to a session at once, by their weight.
const PORTION_BYTES: usize = 256 * 1024;
/// About what an attachment's description takes in a message.
const ATTACHMENT_BYTES: usize = 512;

/// A send that is stored, and its place among those it came with.
struct Stored {
    place: usize,
    committed: Committed,
}

/// What is known of a receiver when a batch of sends comes for them.
struct Receiver {
    user: UserId,
    /// They block the sender: their messages are stored and not shown to them.
    withheld: bool,
    /// No session was found: the pending row rides along with each message.
    offline: bool,
}

/// The sends of a batch that go to one receiver.
struct Lane {
    receiver: AppResult<Receiver>,
    stored: Vec<Stored>,
}

/// What became of a lane.
struct Delivered {
    stored: Vec<Stored>,
    all: AppResult<()>,
    /// What was done for those that had been sent before, beyond the others.
    repeated: AppResult<()>,
}

#[async_trait]
impl SendApi for ChatService {
    /// Commits the sends together and delivers each; the answers are in the order of the sends.
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let SendRequest { user, session, sends } = request;
        let began = Instant::now();
        let mut answers: Vec<Option<AppResult<Sent>>> = Vec::with_capacity(sends.len());
        let mut references = Vec::with_capacity(sends.len());
        let (mut news, mut places) = (Vec::with_capacity(sends.len()), Vec::with_capacity(sends.len()));
        let mut lanes: BTreeMap<ConversationId, Lane> = BTreeMap::new();
        let mut between: Option<(UserId, ConversationId)> = None;
        let mut limited: Option<WireError> = None;
        for mut send in sends {
            references.push(send.reference.take());
            if let Some(refused) = &limited {
                // A later one that the budget has room for must not overtake one that was refused.
                answers.push(Some(Err(refused.clone())));
                continue;
            }
            // Sends that come together mostly go to one and the same.
            match &between {
                Some((to, id)) if send.to.as_ref() == Some(to) => send.conversation_id = Some(id.clone()),
                _ => {
                    if let Some(to) = &send.to
                        && let Some(id) = ConversationId::between(&user, to)
                    {
                        between = Some((to.clone(), id.clone()));
                        send.conversation_id = Some(id);
                    }
                }
            }
            match self.check(&user, send, &mut lanes).await {
                Ok(new) => {
                    places.push(answers.len());
                    news.push(new);
                    answers.push(None);
                }
                Err(e) => {
                    limited = Some(&e).filter(|e| e.code == ErrorCode::RateLimited).cloned();
                    answers.push(Some(Err(e)));
                }
            }
        }
        let committed = match news.is_empty() {
            true => Vec::new(),
            false => self.store.messages.commit_sends(news).await,
        };
        let mut failed = false;
        for (place, committed) in places.into_iter().zip(committed) {
            match committed {
                Ok(committed) => {
                    bluetick_store::failpoint::hit("send.committed");
                    if let Some(lane) = lanes.get_mut(&committed.message.conversation_id) {
                        lane.stored.push(Stored { place, committed });
                    }
                }
                Err(e) => {
                    failed |= !matches!(e, StoreError::ClientMsgIdConflict(_));
                    answers[place] = Some(Err(wire(e)));
                }
            }
        }
        if failed && rule!(self.rules, R2) {
            // What failed may be stored, with the row that rode along. Its sender may not try again.
            let wake = lanes.iter().filter_map(|(id, lane)| {
                let receiver = lane.receiver.as_ref().ok().filter(|receiver| receiver.offline)?;
                Some(self.wake(&receiver.user, id, &[]))
            });
            join_all(wake).await;
        }
        let stored: usize = lanes.values().map(|lane| lane.stored.len()).sum();
        self.meters.sends.increment(stored as u64);
        // The conversations side by side: a receiver whose gateway hangs holds up nobody else.
        let deliver = lanes.into_values().map(|lane| self.deliver_lane(&user, session, lane));
        for Delivered { stored, all, repeated } in join_all(deliver).await {
            for Stored { place, committed } in stored {
                let reference = references[place].take();
                let done = if committed.duplicate { all.clone().and(repeated.clone()) } else { all.clone() };
                answers[place] = Some(done.map(|()| sent(&committed, reference)));
            }
        }
        self.meters.send_seconds.record(began.elapsed().as_secs_f64());
        let lost = || Err(WireError::new(ErrorCode::Internal, "this send got lost in the server"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }
}

impl ChatService {
    async fn deliver_lane(&self, sender: &UserId, origin: Option<SessionId>, lane: Lane) -> Delivered {
        let Lane { receiver, stored } = lane;
        let all = match receiver {
            Ok(receiver) if !stored.is_empty() => self.deliver_new(sender, origin, &receiver, &stored).await,
            // Nothing was stored for them.
            _ => Ok(()),
        };
        let repeated = match stored.iter().find(|stored| stored.committed.duplicate) {
            Some(stored) if all.is_ok() => self.repeat_ticks(sender, &stored.committed.message).await,
            _ => Ok(()),
        };
        if all.is_ok() {
            let messages = stored.iter().map(|stored| &stored.committed.message);
            self.show_each(Glimpse::new(Step::Sent, sender), messages).await;
        }
        Delivered { stored, all, repeated }
    }

    /// What a send must fulfil before it is committed.
    async fn check(
        &self,
        user: &UserId,
        mut send: SendFrame,
        lanes: &mut BTreeMap<ConversationId, Lane>,
    ) -> AppResult<NewMessage> {
        let id = match (&send.to, send.conversation_id.take()) {
            (_, Some(id)) => id,
            (Some(_), None) => {
                return Err(WireError::new(ErrorCode::ToSelf, "you cannot write to yourself"));
            }
            (None, None) => {
                return Err(ChatService::bad_request("give either \"to\" or \"conversation_id\""));
            }
        };
        let from = id.side_of(user).ok_or_else(WireError::not_found)?;
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
        if let Some(meta) = &send.meta {
            check_user_meta(meta)?;
        }
        self.take_from_budget(user, bytes_of(&send)).await?;
        if !lanes.contains_key(&id) {
            let receiver = self.look_up(user, &id, from).await;
            lanes.insert(id.clone(), Lane { receiver, stored: Vec::new() });
        }
        let receiver = lanes.get(&id).map(|lane| lane.receiver.as_ref());
        let Receiver { withheld, offline, .. } = match receiver {
            Some(Ok(receiver)) => receiver,
            Some(Err(e)) => return Err(e.clone()),
            None => return Err(WireError::not_found()),
        };
        let (withheld, offline) = (*withheld, *offline);
        let attachment = match &send.attachment {
            Some(said) => Some(self.attach(user, &id, said).await?),
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
            // Without R3 the row is got and put after the commit, as the notes do.
            undelivered: offline && rule!(self.rules, R3),
            push_due: self.push.as_ref().filter(|_| offline).map(|push| push.due_at()),
        })
    }

    /// Whether the two may write to each other, and whether the receiver is there. This is the first lookup. It decides only
    /// whether the pending row rides along with the message; whom the message is handed to is decided by a lookup after
    /// the commit (R2).
    async fn look_up(&self, sender: &UserId, id: &ConversationId, from: Side) -> AppResult<Receiver> {
        let user = id.member(from.other());
        let users = &self.store.users;
        let (blocks, blocked) = join(users.blocks(sender, &user), users.blocks(&user, sender)).await;
        if blocks.map_err(wire)? {
            return Err(WireError::new(ErrorCode::Blocked, "you block this user; unblock before you write"));
        }
        let withheld = blocked.map_err(wire)?;
        let offline = !withheld && {
            let sessions = self.sessions_of(&user).await.len();
            self.show(Glimpse::new(Step::LookedUp, &user).conversation(id).count(sessions)).await;
            sessions == 0
        };
        Ok(Receiver { user, withheld, offline })
    }

    /// One send of so many bytes.
    pub(crate) async fn take_from_budget(&self, user: &UserId, bytes: u32) -> AppResult<()> {
        let cost = SendCost { messages: 1, bytes };
        self.budget.take(user, cost).await.map_err(|ms| rate_limited(Exhausted::Sends, ms))
    }

    /// Everything after the commit, for the sends of a batch to one receiver.
    async fn deliver_new(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        receiver: &Receiver,
        stored: &[Stored],
    ) -> AppResult<()> {
        let stored: Vec<&Committed> = stored
            .iter()
            .map(|stored| &stored.committed)
            .filter(|committed| !committed.duplicate || rule!(self.rules, R9))
            .collect();
        let new = stored.iter().filter(|committed| !committed.duplicate).map(|committed| &committed.message);
        self.show_each(Glimpse::new(Step::Stored, sender), new).await;
        let theirs: Vec<&Committed> =
            stored.iter().copied().filter(|c| !c.message.withheld && !c.message.void).collect();
        let row_written = receiver.offline && rule!(self.rules, R3);
        // In slow motion one after another.
        let paced = !self.trace.onlookers.pace_of(&receiver.user).is_zero();
        // A gateway that hangs is waited for once, not for each portion.
        let mut patience = self.fanout.hedge;
        for portion in portions(&theirs, if paced { 1 } else { usize::MAX }) {
            self.deliver_to_receiver(&receiver.user, portion, row_written, &mut patience).await?;
        }
        let own: Arc<[_]> = stored.iter().filter(|c| !c.message.void).map(|c| c.message.clone()).collect();
        // Boundaries only grow: the last one stands for all, from where the first began.
        let implied = || stored.iter().filter_map(|committed| committed.implied_read.as_ref());
        let last = implied().max_by_key(|read| read.row.last_read_seq);
        if let Some(last) = last {
            let read_before = implied().map(|read| read.read_before).min().unwrap_or_default();
            self.clear_read(&Advanced { read_before, ..last.clone() }, origin, false);
        }
        self.echo_and_tick(sender, origin, own, last.map(|read| &read.row)).await;
        Ok(())
    }

    /// The first run of what was sent again may have moved the boundary and died before it told anybody.
    async fn repeat_ticks(&self, sender: &UserId, message: &Message) -> AppResult<()> {
        if rule!(self.rules, R9) {
            let row = self.store.status.status(sender, &message.conversation_id).await.map_err(wire)?;
            if row.last_read_seq > 0 {
                self.echo_and_tick(sender, None, Arc::new([]), Some(&row)).await;
            }
        }
        Ok(())
    }
}

/// What a send counts for in the budget of bytes.
fn bytes_of(send: &SendFrame) -> u32 {
    let meta = send.meta.as_ref().map_or(0, |meta| meta.as_str().len());
    let attachment = if send.attachment.is_some() { ATTACHMENT_BYTES } else { 0 };
    (send.body.len() + meta + attachment).try_into().unwrap_or(u32::MAX)
}

/// Keys of `meta` that begin with `_` are the server's: what a user writes must not look like the host's.
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
    // A key may be written with an escape. Without either there is nothing to look for.
    if !text.contains(['_', '\\']) {
        return None;
    }
    // What is no object was refused before.
    let keys: BTreeMap<String, IgnoredAny> = serde_json::from_str(text).ok()?;
    keys.into_keys().find(|key| key.starts_with('_'))
}

/// Cuts messages into what is handed over at once: at most so many, and not more than a gateway takes in well before its deadline.
fn portions<'a>(messages: &'a [&'a Committed], most: usize) -> impl Iterator<Item = &'a [&'a Committed]> {
    let mut left = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = left.iter().take(most).take_while(|committed| {
            bytes += committed.message.weight();
            bytes <= PORTION_BYTES
        });
        let (portion, rest) = left.split_at_checked(fitting.count().max(1))?;
        left = rest;
        Some(portion)
    })
}

fn sent(committed: &Committed, reference: Option<bluetick_protocol::Ref>) -> Sent {
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
