//! What each operation changes, decided over the rows as the group leaves them so far: which seq,
//! whether it is a duplicate, which rows.

use std::sync::{Arc, atomic::Ordering};

use bluetick_protocol::{ConversationId, MessageId, Seq, Side, UserId};

use super::{Committer, DuplicateSend, PreparedSends, ReadForSend, ReplySender};
use crate::{
    Advanced, Committed, NewMessage, Noted, OwedPush, Result,
    embedded::{
        conversation::Boundary,
        engine::user_key,
        entry::MessageEntry,
        record::WalRecord,
        rows::{RowChange, RowSpace, RowTransaction, user_prefix},
    },
};

/// Most small rows in a record. More go into several records of the same group.
const RECORD_MAX_ROWS: usize = 1000;

impl Committer {
    pub(super) fn take_sends(
        &mut self,
        prepared: PreparedSends,
        reply: ReplySender<Vec<Result<Committed, DuplicateSend>>>,
    ) {
        let now = self.shared.clock.now_ms();
        let PreparedSends { sends, read, looked_up_at } = prepared;
        let mut outcomes = Vec::with_capacity(sends.len());
        for (new, read) in sends.into_iter().zip(read) {
            match self.send(new, read, looked_up_at, now) {
                Ok(outcome) => outcomes.push(outcome),
                Err(e) => {
                    // Earlier sends of this call stay stored; a retry finds them by their
                    // client_msg_id.
                    self.answer(Err(e), reply);
                    return;
                }
            }
        }
        self.answer(Ok(outcomes), reply);
    }

    fn send(
        &mut self,
        new: NewMessage,
        ReadForSend { hash, seen }: ReadForSend,
        looked_up_at: u64,
        now: u64,
    ) -> Result<Result<Committed, DuplicateSend>> {
        if let Some(seq) = self.known_id(hash, looked_up_at, now)? {
            return Ok(Err(DuplicateSend { seq, new: Box::new(new) }));
        }
        let id = new.conversation_id.clone();
        let conv = &self.conv(&id)?.dirty.conv;
        let (seq, mut counted) = (conv.last_seq + 1, conv.counted);
        let implied_read = conv.implied_read(new.from, seen);
        let read_before = conv.member(new.from).read.seq;
        if !new.withheld {
            counted[new.from.index()] += 1;
        }
        self.last_id = MessageId::mint(self.last_id, now, self.shared.config.node);
        let (from, push_due) = (new.from, new.push_due);
        let pending = Some(seq).filter(|_| new.undelivered && !new.withheld);
        // The time in the id never goes back: the inbox order and a cursor must agree.
        let message = Arc::new(new.into_message(seq, self.last_id, self.last_id.ms()));
        let entry = MessageEntry { message: message.clone(), counted };
        self.write(&id, WalRecord::Send { entry, pending, implied_read })?;
        self.recent_sends.insert(hash, seq, now);
        if pending.is_some() {
            self.owe(&id, from.other(), seq, push_due)?;
        }
        let implied_read = match implied_read {
            Some(_) => {
                let row = self.conv(&id)?.dirty.conv.status_row(from);
                Some(Advanced { row, read_before, moved: true })
            }
            None => None,
        };
        Ok(Ok(Committed { message, duplicate: false, implied_read }))
    }

    /// The seq of an earlier send with this hash within the idempotency window (R9).
    fn known_id(&self, hash: u128, looked_up_at: u64, now: u64) -> Result<Option<Seq>> {
        let oldest = now.saturating_sub(self.shared.config.idempotency_window_ms);
        let checkpoints = self.shared.checkpoints.load(Ordering::Acquire);
        let engine_is_current = looked_up_at == checkpoints;
        let recent = self.recent_sends.find(hash, oldest, self.checkpoint.is_running, engine_is_current);
        if recent.is_some() {
            return Ok(recent);
        }
        match checkpoints > looked_up_at + 1 {
            // Two checkpoints or more since the caller's lookup: memory may have dropped the
            // record.
            true => self.shared.engine.sent_id(hash, now),
            false => Ok(None),
        }
    }

    pub(super) fn advance(
        &mut self,
        id: &ConversationId,
        side: Side,
        delivered: Boundary,
        read: Boundary,
    ) -> Result<Advanced> {
        let conv = &self.conv(id)?.dirty.conv;
        let member = conv.member(side);
        let read_before = member.read.seq;
        let new_read = member.read.raised_to(read);
        let new_delivered = member.delivered.raised_to(delivered).raised_to(new_read);
        if new_read == member.read && new_delivered == member.delivered {
            return Ok(Advanced { row: conv.status_row(side), read_before, moved: false });
        }
        let record = WalRecord::Receipt { id: id.clone(), side, delivered: new_delivered, read: new_read };
        self.write(id, record)?;
        Ok(Advanced { row: self.conv(id)?.dirty.conv.status_row(side), read_before, moved: true })
    }

    pub(super) fn note(
        &mut self,
        id: &ConversationId,
        side: Side,
        seq: Seq,
        push_due: Option<u64>,
    ) -> Result<Noted> {
        self.owe(id, side, seq, push_due)?;
        match self.conv(id)?.dirty.conv.member(side).pending {
            Some(row) if row <= seq => Ok(Noted { first_undelivered_seq: row, written: false }),
            _ => {
                self.write(id, WalRecord::Pending { id: id.clone(), side, row: Some(seq) })?;
                Ok(Noted { first_undelivered_seq: seq, written: true })
            }
        }
    }

    /// Owes a notification to a member, unless they had it, in the same group as the pending row.
    fn owe(&mut self, id: &ConversationId, side: Side, seq: Seq, push_due: Option<u64>) -> Result<()> {
        let Some(due_at) = push_due else { return Ok(()) };
        if self.conv(id)?.dirty.conv.member(side).notified >= seq {
            return Ok(());
        }
        let owed = OwedPush::new(id.member(side), id.clone(), seq, due_at);
        self.transact(|tx| tx.owe(&owed))
    }

    pub(super) fn raise_notified(&mut self, id: &ConversationId, side: Side, seq: Seq) -> Result<()> {
        match self.conv(id)?.dirty.conv.member(side).notified < seq {
            true => self.write(id, WalRecord::Notified { id: id.clone(), side, seq }),
            false => Ok(()),
        }
    }

    pub(super) fn settle(
        &mut self,
        id: &ConversationId,
        side: Side,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        if self.conv(id)?.dirty.conv.member(side).pending != Some(expected) {
            return Ok(false);
        }
        if to != Some(expected) {
            self.write(id, WalRecord::Pending { id: id.clone(), side, row: to })?;
        }
        Ok(true)
    }

    pub(super) fn recount(&mut self, id: &ConversationId, side: Side, read: Boundary) -> Result<()> {
        let member = self.conv(id)?.dirty.conv.member(side).clone();
        // A read that came in between has its own count; a later recount covers it.
        if member.read.seq != read.seq || member.read.counted == read.counted {
            return Ok(());
        }
        self.write(id, WalRecord::Receipt { id: id.clone(), side, delivered: member.delivered, read })
    }

    pub(super) fn erase(&mut self, id: &ConversationId, side: Side) -> Result<()> {
        let up_to = self.conv(id)?.dirty.conv.last_seq;
        self.write(id, WalRecord::Erase { id: id.clone(), side, up_to })?;
        let key = user_key(id.member_str(side), id);
        self.transact(|tx| {
            tx.forget(RowSpace::Mutes, key.clone())?;
            tx.forget(RowSpace::PushOutbox, key)
        })
    }

    pub(super) fn erase_user(&mut self, user: &UserId) -> Result<()> {
        self.change_user(WalRecord::EraseUser { user: user.clone() }, user)?;
        self.transact(|tx| {
            tx.forget_devices(user)?;
            let prefix = user_prefix(user.as_str());
            tx.forget_under(RowSpace::Mutes, &prefix)?;
            tx.forget_under(RowSpace::PushOutbox, &prefix)
        })
    }

    /// Runs a transaction over small rows as part of the current operation.
    fn transact(&mut self, decide: impl FnOnce(&mut RowTransaction<'_>) -> Result<()>) -> Result<()> {
        let mut tx = RowTransaction::new(&self.shared, &self.rows, &self.overlay);
        decide(&mut tx)?;
        let changes = tx.into_changes();
        self.write_rows(changes);
        Ok(())
    }

    pub(super) fn write_rows(&mut self, mut changes: Vec<RowChange>) {
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(RECORD_MAX_ROWS));
            let record = WalRecord::Rows(changes);
            self.group.push(|out| record.encode(out));
            self.lsn += 1;
            if let WalRecord::Rows(changes) = record {
                changes.into_iter().for_each(|change| self.rows.set(change));
            }
            changes = rest;
        }
    }

    pub(super) fn change_user(&mut self, record: WalRecord, user: &UserId) -> Result<()> {
        let row = self.user(user)?;
        let before = row.clone();
        row.apply(&record);
        if *row != before {
            self.group.push(|out| record.encode(out));
            self.lsn += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, Sender},
        time::Duration,
    };

    use super::*;
    use crate::{
        EmbeddedConfig, Maintenance, ManualClock,
        embedded::{
            Embedded,
            checkpoint::{CheckpointDone, CheckpointJob},
            committer::WriteOp,
            rows::tests::send,
            wal::Wal,
        },
    };

    const NOW: u64 = 1_760_000_000_000;

    /// A committer that runs step by step in the test's thread.
    struct ManualCommitter {
        committer: Committer,
        done: Sender<CheckpointDone>,
        _jobs: Receiver<CheckpointJob>,
        _store: Embedded,
        _dir: tempfile::TempDir,
    }

    impl ManualCommitter {
        fn new() -> ManualCommitter {
            let dir = tempfile::tempdir().unwrap();
            let clock = Arc::new(ManualClock::new(NOW));
            let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
            let (jobs, _jobs) = std::sync::mpsc::channel();
            let (done, done_in) = std::sync::mpsc::channel();
            let wal = Wal::open(&dir.path().join("manual"), 1 << 20, 7, 1, |_, _| Ok(())).unwrap();
            let committer = Committer::new(store.shared.clone(), wal, MessageId(0), jobs, done_in);
            ManualCommitter { committer, done, _jobs, _store: store, _dir: dir }
        }

        fn begin_checkpoint(&mut self) {
            self.committer.checkpoint.is_requested = true;
            self.committer.maybe_checkpoint();
            assert!(self.committer.checkpoint.is_running);
        }

        fn end_checkpoint(&mut self) {
            self.done.send(CheckpointDone { segments_removed: true }).unwrap();
            self.committer.collect_checkpoint(Duration::from_secs(5));
            assert!(!self.committer.checkpoint.is_running);
        }

        fn knows(&self, hash: u128, looked_up_at: u64) -> bool {
            self.committer.known_id(hash, looked_up_at, NOW).unwrap().is_some()
        }
    }

    /// Nothing reaches the engine here, so every hit comes from memory.
    #[test]
    fn memory_knows_what_the_engine_did_not_have_when_it_was_asked() {
        let mut manual = ManualCommitter::new();
        manual.committer.recent_sends.replay(1, 1, NOW);
        assert!(manual.knows(1, 0));
        manual.begin_checkpoint();
        assert!(manual.knows(1, 0), "it is being written");
        manual.end_checkpoint();
        assert!(manual.knows(1, 0), "it was written since");
        assert!(!manual.knows(1, 1), "a later lookup finds it in the engine");
        manual.committer.recent_sends.replay(2, 2, NOW);
        manual.begin_checkpoint();
        assert!(manual.knows(1, 0), "written since, and another checkpoint is running");
        assert!(!manual.knows(1, 1));
        assert!(manual.knows(2, 1));
        manual.end_checkpoint();
        assert!(manual.knows(2, 1) && !manual.knows(2, 2));
        assert!(!manual.knows(1, 0), "memory has dropped it");
        let engine = &manual.committer.shared.engine;
        engine.sent_ids.ingest([(1, 1, NOW)].into_iter(), NOW).unwrap();
        assert!(manual.knows(1, 0), "the engine is asked again");
    }

    /// A send that was stored since is found, however long ago the caller asked the engine.
    #[tokio::test]
    async fn a_duplicate_is_known_however_many_checkpoints_passed_since_it_was_looked_for() {
        for (before, since) in [(0, 0), (0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)] {
            let dir = tempfile::tempdir().unwrap();
            let clock = Arc::new(ManualClock::new(NOW));
            let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
            let checkpoint = async |times: u32| {
                for _ in 0..times {
                    store.ask(WriteOp::Checkpoint).await.unwrap();
                }
            };
            let prepare = || {
                let sends = vec![send("m1")];
                let hashes = store.shared.hashes(&sends);
                let (looked_up_at, known) = store.shared.look_up(&hashes).unwrap();
                let read = vec![ReadForSend { hash: hashes[0], seen: None }];
                (PreparedSends { sends, read, looked_up_at }, known)
            };
            let commit = async |prepared: PreparedSends| {
                store.ask(|reply| WriteOp::Sends(prepared, reply)).await.unwrap().remove(0)
            };
            checkpoint(before).await;
            let [first, second] = [prepare().0, prepare().0];
            assert!(commit(first).await.is_ok_and(|stored| !stored.duplicate));
            let log_bytes = store.health().await.log_bytes;
            checkpoint(since).await;
            assert_eq!(
                store.health().await.log_bytes < log_bytes,
                since > 0,
                "the checkpoint removes log segments"
            );
            let outcome = commit(second).await;
            assert!(
                matches!(outcome, Err(DuplicateSend { seq: 1, .. })),
                "{before} and {since}: {outcome:?}"
            );
            // A later lookup finds it in the engine, or in memory if no checkpoint wrote it.
            let (again, known) = prepare();
            match since {
                0 => assert!(matches!(commit(again).await, Err(DuplicateSend { seq: 1, .. }))),
                _ => assert_eq!(known.iter().map(|k| (k.index, k.seq)).collect::<Vec<_>>(), [(0, 1)]),
            }
            store.shut().await.unwrap();
        }
    }
}
