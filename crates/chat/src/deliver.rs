//! Delivers committed messages: to live sessions, or by a pending row where no session accepts them
//! ([`R2`](crate::rules::Rule::R2), [`R3`](crate::rules::Rule::R3),
//! [`R12`](crate::rules::Rule::R12)).

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use bluetick_store::{Committed, Message, OwedPush, SessionEntry};
use futures_util::future::join;

use crate::{AppResult, ChatService, fanout::HandedOver, wire};

impl ChatService {
    pub(crate) async fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        self.fanout.sessions_of(user).await
    }

    /// Delivers committed messages of one conversation: looks the receiver up again and hands them
    /// to every session concurrently. Returns when the promise of `sent` holds: one session has
    /// accepted, or the pending row is written. If no session accepts within `wait_budget`, the row
    /// is written while the hand-overs go on; a session that accepts later finds the row by the
    /// wake that follows it.
    ///
    /// With `row_written` the pending row was committed with the messages.
    pub(crate) async fn deliver_to_receiver(
        &self,
        receiver: &UserId,
        committed: &[&Committed],
        row_written: bool,
        wait_budget: &mut Duration,
    ) -> AppResult<()> {
        let messages: Arc<[Arc<Message>]> = committed.iter().map(|c| c.message.clone()).collect();
        if row_written {
            self.observer.pending_row_committed(receiver, committed);
        }
        let sessions = self.sessions_of(receiver).await;
        self.observer.looked_again(receiver, sessions.len(), &messages);
        // The first run of a repeated send may have left a row that no session knows of.
        let may_have_row = row_written || committed.iter().any(|c| c.duplicate);
        // With the row already written, this is the lookup after it: every session should hear of
        // the row before the answer, because nobody repeats it if this process dies.
        let wait_for_all = row_written;
        let handed_over =
            self.fanout.hand_over_messages(&sessions, &messages, may_have_row, wait_for_all, wait_budget);
        let HandedOver { accepted, slow, rest } = handed_over.await;
        let done = match accepted || row_written {
            true => Ok(()),
            false => self.take_offline_path(receiver, committed, &messages, &slow).await,
        };
        if row_written && let Some(push) = &self.push {
            // The notification was owed with the row, so it is decided here even if a session has
            // accepted the messages meanwhile.
            for message in messages.iter() {
                push.decide_soon(OwedPush::of_message(message, push.due_at()));
            }
        }
        if let Some(rest) = rest {
            rest.await;
        }
        done
    }

    /// No session has accepted the messages: writes the pending row, looks the receiver up once
    /// more and wakes the sessions found. It does not wait for `slow` sessions.
    async fn take_offline_path(
        &self,
        receiver: &UserId,
        committed: &[&Committed],
        messages: &[Arc<Message>],
        slow: &[SessionId],
    ) -> AppResult<()> {
        // A repeated send that a device has acked needs no row. If the boundary cannot be read, it
        // gets one.
        let acked = match committed.iter().any(|c| c.duplicate) {
            true => self.acked_by(receiver, &messages[0].conversation_id).await,
            false => 0,
        };
        let undelivered: Vec<&Arc<Message>> =
            committed.iter().filter(|c| !c.duplicate || c.message.seq > acked).map(|c| &c.message).collect();
        // The row keeps the minimum (R3), and a notification tells of the latest.
        let by_seq = |message: &&&Arc<Message>| message.seq;
        let (Some(first), Some(last)) =
            (undelivered.iter().min_by_key(by_seq), undelivered.iter().max_by_key(by_seq))
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
        let others = undelivered.iter().copied().filter(|message| message.seq != first.seq);
        self.observer.pending_row_covers(receiver, others);
        owed
    }

    /// Records that a notification is owed, concurrently with the row, so that both share the
    /// store's fsync. It is decided a moment later, when the row is there
    /// ([`R14`](crate::rules::Rule::R14)).
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

    /// Up to where a device of the receiver has acked. A row for a message before that would replay
    /// everything after it.
    async fn acked_by(&self, receiver: &UserId, id: &ConversationId) -> Seq {
        let status = self.store.status.status(receiver, id).await;
        status.map_or(0, |status| status.last_delivered_seq)
    }

    /// Writes the pending row, then looks the receiver up once more and wakes every session found
    /// ([`R2`](crate::rules::Rule::R2)). It does not wait for `slow` sessions.
    pub(crate) async fn note_and_wake(
        &self,
        receiver: &UserId,
        id: &ConversationId,
        seq: Seq,
        slow: &[SessionId],
    ) -> AppResult<()> {
        let (noted, written) = match self.store.pending.note_undelivered(receiver, id, seq).await {
            Ok(row) => (Ok(()), row.written),
            // It may have been written all the same, so the sessions are woken.
            Err(e) => (Err(wire(e)), false),
        };
        self.observer.pending_row_noted(receiver, id, seq, written);
        self.wake(receiver, id, slow).await;
        noted
    }
}
