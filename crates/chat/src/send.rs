//! Sending: check, look up, commit, deliver. When this answers `sent`, the message is durable and its pending row is
//! written or a live session has taken it.

use std::collections::BTreeMap;

use bluetick_protocol::{ConversationId, ErrorCode, Send as SendFrame, Sent, SessionId, UserId, WireError};
use bluetick_store::{Committed, Message, NewMessage};
use futures_util::future::{join, join_all};
use tokio::time::Instant;

use crate::{Answer, Node, SendRequest, Step, rules::rule, trace::Glimpse, wire};

/// A send that may be committed, and for whom.
struct Checked {
    new: NewMessage,
    receiver: UserId,
}

/// A send that is stored, and its place among those it came with.
struct Stored {
    place: usize,
    row_written: bool,
    committed: Committed,
}

impl Node {
    /// Commits the sends together and delivers each; the answers are in the order of the sends.
    pub(crate) async fn send_all(&self, request: SendRequest) -> Vec<Answer<Sent>> {
        let SendRequest { user, session, sends } = request;
        let began = Instant::now();
        let references: Vec<_> = sends.iter().map(|send| send.reference.clone()).collect();
        let mut answers: Vec<Option<Answer<Sent>>> = Vec::with_capacity(sends.len());
        let (mut news, mut places) = (Vec::new(), Vec::new());
        for send in sends {
            match self.check(&user, send).await {
                Ok(Checked { new, receiver }) => {
                    places.push((answers.len(), receiver, new.undelivered));
                    news.push(new);
                    answers.push(None);
                }
                Err(e) => answers.push(Some(Err(e))),
            }
        }
        let committed = match news.is_empty() {
            true => Vec::new(),
            false => self.store.messages.commit_sends(news).await,
        };
        // One after another within a conversation, and the conversations side by side: a receiver whose gateway hangs
        // holds up nobody else.
        let mut lanes: BTreeMap<UserId, Vec<Stored>> = BTreeMap::new();
        for ((place, receiver, row_written), committed) in places.into_iter().zip(committed) {
            match committed {
                Ok(committed) => {
                    bluetick_store::failpoint::hit("send.committed");
                    lanes.entry(receiver).or_default().push(Stored { place, row_written, committed });
                }
                Err(e) => answers[place] = Some(Err(wire(e))),
            }
        }
        let deliver = lanes.iter().map(|(receiver, lane)| self.deliver_lane(&user, session, receiver, lane));
        let delivered = join_all(deliver).await;
        for (stored, delivered) in
            lanes.values().zip(delivered).flat_map(|(lane, done)| lane.iter().zip(done))
        {
            let reference = references[stored.place].clone();
            answers[stored.place] = Some(delivered.map(|()| sent(&stored.committed, reference)));
        }
        metrics::histogram!("bluetick_send_seconds").record(began.elapsed().as_secs_f64());
        let lost = || Err(WireError::new(ErrorCode::Internal, "this send got lost in the server"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    async fn deliver_lane(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        receiver: &UserId,
        lane: &[Stored],
    ) -> Vec<Answer<()>> {
        let mut delivered = Vec::with_capacity(lane.len());
        for Stored { row_written, committed, .. } in lane {
            metrics::counter!("bluetick_sends_total").increment(1);
            let answer = self.deliver_new(sender, origin, receiver, *row_written, committed).await;
            if answer.is_ok() {
                let Message { conversation_id: id, seq, .. } = &*committed.message;
                self.show(Glimpse::new(Step::Sent, sender).message(id, *seq)).await;
            }
            delivered.push(answer);
        }
        delivered
    }

    async fn check(&self, user: &UserId, send: SendFrame) -> Answer<Checked> {
        let id = match (&send.to, send.conversation_id) {
            (Some(to), _) => ConversationId::between(user, to)
                .ok_or_else(|| WireError::new(ErrorCode::ToSelf, "you cannot write to yourself"))?,
            (None, Some(id)) => id,
            (None, None) => return Err(Node::bad_request("give either \"to\" or \"conversation_id\"")),
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
        self.take_from_budget(user).await?;
        let receiver = id.member(from.other());
        let users = &self.store.users;
        let (blocks, blocked) = join(users.blocks(user, &receiver), users.blocks(&receiver, user)).await;
        if blocks.map_err(wire)? {
            return Err(WireError::new(ErrorCode::Blocked, "you block this user; unblock before you write"));
        }
        let withheld = blocked.map_err(wire)?;
        // The first lookup. It decides only whether the pending row rides along with the message; whom the message
        // is handed to is decided by a lookup after the commit (R2).
        let offline = !withheld && {
            let sessions = self.sessions_of(&receiver).await.len();
            let looked_up = Glimpse::new(Step::LookedUp, &receiver).conversation(&id).count(sessions);
            self.show(looked_up).await;
            sessions == 0
        };
        let attachment = match &send.attachment {
            Some(said) => Some(self.attach(user, &id, said).await?),
            None => None,
        };
        let new = NewMessage {
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
        };
        Ok(Checked { new, receiver })
    }

    pub(crate) async fn take_from_budget(&self, user: &UserId) -> Answer<()> {
        self.budget.take(user, 1).await.map_err(|ms| {
            metrics::counter!("bluetick_rate_limited_total").increment(1);
            WireError::new(ErrorCode::RateLimited, "too many messages in a short time").retry_after(ms)
        })
    }

    async fn deliver_new(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        receiver: &UserId,
        row_written: bool,
        committed: &Committed,
    ) -> Answer<()> {
        if committed.duplicate && !rule!(self.rules, R9) {
            return Ok(());
        }
        let message = &committed.message;
        if !committed.duplicate {
            let stored = Glimpse::new(Step::Stored, sender);
            self.show(stored.message(&message.conversation_id, message.seq)).await;
        }
        if !message.withheld && !message.void {
            self.deliver_to_receiver(receiver, committed, row_written).await?;
        }
        if !message.void {
            self.echo_to_sender(sender, origin, message).await;
        }
        match &committed.implied_read {
            Some(read) => {
                self.tell_ticks(&read.row).await;
                self.clear_read(read, origin, false);
            }
            // The first run may have moved the boundary and died before it told anybody.
            None if committed.duplicate => {
                let row = self.store.status.status(sender, &message.conversation_id).await.map_err(wire)?;
                if row.last_read_seq > 0 {
                    self.tell_ticks(&row).await;
                }
            }
            None => {}
        }
        Ok(())
    }
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
