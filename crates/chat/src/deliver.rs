//! Handing a committed message to live sessions, and the offline path where there is none (R2, R3, R12).

use std::sync::Arc;

use bluetick_protocol::{ConversationId, DeviceId, Seq, SessionId, Ticks, UserId};
use bluetick_store::{Committed, Message, OwedPush, SessionEntry, StatusRow};

use futures_util::future::{join, poll_immediate};

use crate::{Answer, Event, HandOver, Node, Step, rules::rule, trace::Glimpse, wire};

impl Node {
    /// A user's live sessions. A session store that is down means that everybody is offline: messages queue, nothing
    /// fails (R12).
    pub(crate) async fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        match self.store.sessions.lookup(user).await {
            Ok(sessions) => sessions,
            Err(e) => {
                tracing::warn!(error = %e, "the session store does not answer; taking the offline path");
                Vec::new()
            }
        }
    }

    /// Hands an event to one session, by its deadline. A session that is not there is taken out of the session
    /// store, if the entry still names it (R12).
    pub(crate) async fn hand_over(&self, to: &SessionEntry, event: Event) -> HandOver {
        let mut handing = self.gateways.hand_over(to, event);
        // A session of this process takes it at once.
        let outcome = match poll_immediate(&mut handing).await {
            Some(outcome) => outcome,
            None => {
                let handed = tokio::time::timeout(self.config.hand_over_deadline, handing).await;
                handed.unwrap_or(HandOver::Refused)
            }
        };
        if outcome == HandOver::Refused {
            metrics::counter!("bluetick_stale_sessions_total").increment(1);
            if rule!(self.rules, R12) {
                let _ = self.store.sessions.unregister(&to.user_id, to.session_id).await;
            } else {
                return HandOver::Taken;
            }
        }
        outcome
    }

    /// The steps after the commit, for messages of one conversation: look the receiver up and hand over; if no session took
    /// them, make sure of the pending row, look once more, and wake whom that finds.
    pub(crate) async fn deliver_to_receiver(
        &self,
        receiver: &UserId,
        committed: &[&Committed],
        row_written: bool,
    ) -> Answer<()> {
        let messages: Arc<[Arc<Message>]> = committed.iter().map(|c| c.message.clone()).collect();
        let show = async |step, device: Option<&DeviceId>, sessions: Option<usize>| {
            let glimpse = Glimpse { device, count: sessions, ..Glimpse::new(step, receiver) };
            self.show_each(glimpse, messages.iter()).await;
        };
        if row_written {
            let new = || committed.iter().filter(|c| !c.duplicate).map(|c| &c.message);
            metrics::counter!("bluetick_pending_rows_written_total").increment(new().count() as u64);
            self.show_each(Glimpse::new(Step::PendingRow, receiver), new()).await;
            if !rule!(self.rules, R2) {
                return Ok(());
            }
        }
        // The first run of what is repeated may have left a row, and nobody who knows of it.
        let look_for_row = row_written || committed.iter().any(|c| c.duplicate);
        let mut taken = false;
        let sessions = self.sessions_of(receiver).await;
        show(Step::LookedAgain, None, Some(sessions.len())).await;
        for session in sessions {
            let event =
                Event::Messages { messages: messages.clone(), row_written: look_for_row, origin: None };
            if self.hand_over(&session, event).await == HandOver::Taken {
                taken = true;
                self.meters.hand_overs.increment(messages.len() as u64);
                bluetick_store::failpoint::hit("deliver.handed_over");
                show(Step::HandedOver, Some(&session.device), None).await;
            }
        }
        if row_written {
            // What is owed with the row is decided here, even if a session has taken the messages meanwhile.
            if let Some(push) = &self.push {
                for message in messages.iter() {
                    push.decide_soon(OwedPush::of_message(message, push.due_at()));
                }
            }
            return Ok(());
        }
        if taken {
            return Ok(());
        }
        // What a device has acked and was sent again needs no row; where it cannot be known, it gets one.
        let acked = match committed.iter().any(|c| c.duplicate) {
            true => self.acked_by(receiver, &messages[0].conversation_id).await,
            false => 0,
        };
        let nobody_has: Vec<&Arc<Message>> =
            committed.iter().filter(|c| !c.duplicate || c.message.seq > acked).map(|c| &c.message).collect();
        // The row keeps the minimum (R3), and a notification tells of the latest.
        let by_seq = |message: &&&Arc<Message>| message.seq;
        let (Some(first), Some(last)) =
            (nobody_has.iter().min_by_key(by_seq), nobody_has.iter().max_by_key(by_seq))
        else {
            return Ok(());
        };
        bluetick_store::failpoint::hit("deliver.nobody_took_it");
        let id = &first.conversation_id;
        let (noted, owed) =
            join(self.note_and_wake(receiver, id, first.seq), self.owe_push(receiver, id, last.seq, false))
                .await;
        noted?;
        // The row stands for the others too, now that it is there.
        let others = nobody_has.iter().copied().filter(|message| message.seq != first.seq);
        self.show_each(Glimpse::new(Step::PendingRow, receiver), others).await;
        owed
    }

    /// Owes a notification beside the row that asks for it, so that both share the store's fsync. It is decided a moment
    /// later, when the row is there (R14).
    pub(crate) async fn owe_push(
        &self,
        user: &UserId,
        id: &ConversationId,
        seq: Seq,
        overdue: bool,
    ) -> Answer<()> {
        match &self.push {
            Some(push) => push.owe(user, id, seq, overdue).await,
            None => Ok(()),
        }
    }

    /// Up to where a device of the receiver's has acked. Repeating the delivery of that serves those that lack it, and leaves no row,
    /// which would bring all that came after it once more.
    async fn acked_by(&self, receiver: &UserId, id: &ConversationId) -> Seq {
        let status = self.store.status.status(receiver, id).await;
        status.map_or(0, |status| status.last_delivered_seq)
    }

    /// Writes the pending row, then looks the receiver up once more and wakes every session it finds (R2).
    pub(crate) async fn note_and_wake(&self, receiver: &UserId, id: &ConversationId, seq: Seq) -> Answer<()> {
        if rule!(self.rules, R3) {
            let noted = self.store.pending.note_undelivered(receiver, id, seq).await.map_err(wire)?;
            if noted.written {
                metrics::counter!("bluetick_pending_rows_written_total").increment(1);
            }
        } else if self.store.pending.pending_row(receiver, id).await.map_err(wire)?.is_none() {
            // Get, then put: what the notes do.
            self.store.pending.note_undelivered(receiver, id, seq).await.map_err(wire)?;
        }
        self.show(Glimpse::new(Step::PendingRow, receiver).message(id, seq)).await;
        bluetick_store::failpoint::hit("deliver.row_written");
        if rule!(self.rules, R2) {
            self.wake(receiver, id).await;
        }
        Ok(())
    }

    /// Own sends reach the user's other devices; the session that sent it only learns that the seq is taken.
    pub(crate) async fn echo_to_sender(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        messages: Arc<[Arc<Message>]>,
    ) {
        for session in self.sessions_of(sender).await {
            let event = Event::Messages { messages: messages.clone(), row_written: false, origin };
            self.hand_over(&session, event).await;
        }
    }

    /// Tells all sessions of both members how far one of them is (R10); the one whose receipt it was may wait.
    pub(crate) async fn tell_ticks(&self, row: &StatusRow, origin: Option<SessionId>) {
        let ticks = Ticks {
            conversation_id: row.conversation_id.clone(),
            user_id: row.user_id.clone(),
            last_delivered_seq: row.last_delivered_seq,
            last_read_seq: row.last_read_seq,
        };
        let peer = row.conversation_id.peer_of(&row.user_id);
        for user in [peer, Some(row.user_id.clone())].into_iter().flatten() {
            for session in self.sessions_of(&user).await {
                let event = match origin == Some(session.session_id) {
                    true => Event::OwnTicks(ticks.clone()),
                    false => Event::Ticks(ticks.clone()),
                };
                self.hand_over(&session, event).await;
            }
        }
    }
}
