//! Handing a committed message to live sessions, and the offline path where there is none (R2, R3, R12).

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use bluetick_store::{Committed, Message, OwedPush, SessionEntry, StatusRow};

use futures_util::future::{Either, join};

use crate::{
    AppResult, ChatService, HandOver, SessionEvent,
    fanout::{Fanout, InFlight},
    wire,
};

impl ChatService {
    pub(crate) async fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        self.fanout.sessions_of(user).await
    }

    /// The steps after the commit, for messages of one conversation: look the receiver up and hand over to every session
    /// at once. It returns when the promise of `sent` holds: one session has accepted, or the pending row is written.
    /// If no session accepts within `patience`, the row is written while the hand-overs go on; a session that accepts
    /// later finds the row by the wake that follows it. `patience` is zero afterwards.
    pub(crate) async fn deliver_to_receiver(
        &self,
        receiver: &UserId,
        committed: &[&Committed],
        row_written: bool,
        patience: &mut Duration,
    ) -> AppResult<()> {
        let messages: Arc<[Arc<Message>]> = committed.iter().map(|c| c.message.clone()).collect();
        if row_written {
            self.observer.pending_row_committed(receiver, committed);
        }
        // The first run of what is repeated may have left a row, and nobody who knows of it.
        let look_for_row = row_written || committed.iter().any(|c| c.duplicate);
        let sessions = self.sessions_of(receiver).await;
        self.observer.looked_again(receiver, sessions.len(), &messages);
        let (mut accepted, mut unanswered) = (false, Vec::new());
        for session in &sessions {
            let event = SessionEvent::Messages {
                messages: messages.clone(),
                row_written: look_for_row,
                origin: None,
            };
            match self.fanout.begin(session, event) {
                Either::Left(HandOver::Taken) => {
                    accepted = true;
                    self.observer.handed_over(session, &messages);
                }
                Either::Left(_) => {}
                Either::Right(hand_over) => unanswered.push((session.session_id, hand_over)),
            }
        }
        let (mut slow, mut rest) = (Vec::new(), None);
        if !unanswered.is_empty() {
            let mut in_flight = InFlight::new(&self.fanout, &messages, unanswered);
            // This lookup is the one after the row: every session it finds should hear of the row before the answer,
            // because nobody repeats it if this process dies.
            let all = row_written;
            if all || !accepted {
                accepted |= in_flight.wait(all, *patience).await;
            }
            if !accepted && !in_flight.unanswered().is_empty() {
                *patience = Duration::ZERO;
                self.observer.hand_over_hedged();
                slow.extend_from_slice(in_flight.unanswered());
            }
            rest = in_flight.leave();
        }
        let done = match accepted || row_written {
            true => Ok(()),
            false => self.leave_for_later(receiver, committed, &messages, &slow).await,
        };
        if row_written && let Some(push) = &self.push {
            // What is owed with the row is decided here, even if a session has taken the messages meanwhile.
            for message in messages.iter() {
                push.decide_soon(OwedPush::of_message(message, push.due_at()));
            }
        }
        if let Some(rest) = rest {
            rest.await;
        }
        done
    }

    /// No session has accepted the messages: writes the pending row, looks once more, and wakes whom that finds. It does
    /// not wait for `slow` sessions.
    async fn leave_for_later(
        &self,
        receiver: &UserId,
        committed: &[&Committed],
        messages: &[Arc<Message>],
        slow: &[SessionId],
    ) -> AppResult<()> {
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
        self.observer.nobody_accepted();
        let id = &first.conversation_id;
        let (noted, owed) = join(
            self.note_and_wake(receiver, id, first.seq, slow),
            self.owe_push(receiver, id, last.seq, false),
        )
        .await;
        noted?;
        // The row stands for the others too, now that it is there.
        let others = nobody_has.iter().copied().filter(|message| message.seq != first.seq);
        self.observer.pending_row_covers(receiver, others);
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
    ) -> AppResult<()> {
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

    /// Writes the pending row, then looks the receiver up once more and wakes every session it finds (R2). It does not wait
    /// for `slow` sessions.
    pub(crate) async fn note_and_wake(
        &self,
        receiver: &UserId,
        id: &ConversationId,
        seq: Seq,
        slow: &[SessionId],
    ) -> AppResult<()> {
        let (noted, written) = match self.store.pending.note_undelivered(receiver, id, seq).await {
            Ok(row) => (Ok(()), row.written),
            // It may have been written all the same, and then somebody must look for it.
            Err(e) => (Err(wire(e)), false),
        };
        self.observer.pending_row_noted(receiver, id, seq, written);
        self.wake(receiver, id, slow).await;
        noted
    }

    /// Echoes and ticks are no part of the promise of `sent`: they go out in the background, and the answer does not wait
    /// for them. In one process, where nothing hangs, they go out at once.
    pub(crate) async fn echo_and_tick(
        &self,
        sender: &UserId,
        origin: Option<SessionId>,
        own: Arc<[Arc<Message>]>,
        read: Option<&StatusRow>,
    ) {
        match self.fanout.background.slot() {
            None => echo_and_tick(&self.fanout, sender, origin, own, read).await,
            Some(slot) => {
                let (fanout, sender, read) = (self.fanout.clone(), sender.clone(), read.cloned());
                slot.run(async move { echo_and_tick(&fanout, &sender, origin, own, read.as_ref()).await });
            }
        }
    }
}

async fn echo_and_tick(
    fanout: &Arc<Fanout>,
    sender: &UserId,
    origin: Option<SessionId>,
    own: Arc<[Arc<Message>]>,
    read: Option<&StatusRow>,
) {
    let echo = async {
        if !own.is_empty() {
            fanout.echo_to_sender(sender, origin, own).await;
        }
    };
    let tick = async {
        if let Some(row) = read {
            fanout.tell_ticks(row, None).await;
        }
    };
    join(echo, tick).await;
}
