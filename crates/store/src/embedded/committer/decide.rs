//! What each write comes to, decided over the rows as the group leaves them so far: which seq, a duplicate or not, which
//! row, which small rows. The loop around it gathers, makes durable and answers.

use super::*;

impl Committer {
    pub(super) fn take_sends(&mut self, prepared: PreparedSends, reply: ReplySender<Vec<SendOutcome>>) {
        let now = self.shared.clock.now_ms();
        let PreparedSends { sends, read, looked_up_at } = prepared;
        let mut outcomes = Vec::with_capacity(sends.len());
        for (new, read) in sends.into_iter().zip(read) {
            match self.send(new, read, looked_up_at, now) {
                Ok(outcome) => outcomes.push(outcome),
                Err(e) => {
                    // What this call stored before the error stays stored; a retry finds it by its client_msg_id.
                    self.answer(Err::<Vec<SendOutcome>, _>(e), reply);
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
    ) -> Result<SendOutcome> {
        if let Some(seq) = self.known_id(hash, looked_up_at, now)? {
            return Ok(SendOutcome::Duplicate(seq, Box::new(new)));
        }
        let id = new.conversation_id.clone();
        let (seq, mut counted, implied_read, read_before) = {
            let conv = &self.conv(&id)?.published.conv;
            let sender = conv.member(new.from);
            // A reply implies read up to what the client had seen, or up to what was delivered to it (R10).
            let seen = match seen {
                Some((asked, _)) if asked >= conv.last_visible(new.from) => conv.end_mark(new.from),
                Some((_, mark)) => mark,
                None => sender.delivered,
            };
            let implied_read = Some(seen).filter(|mark| mark.seq > sender.read.seq);
            (conv.last_seq + 1, conv.counted, implied_read, sender.read.seq)
        };
        if !new.withheld {
            counted[new.from.index()] += 1;
        }
        self.last_id = MessageId::mint(self.last_id, now, self.shared.config.node);
        let (from, push_due) = (new.from, new.push_due);
        let pending = Some(seq).filter(|_| new.undelivered && !new.withheld);
        // The id's time, which never falls back: the inbox's order and a cursor must agree.
        let message = Arc::new(new.into_message(seq, self.last_id, self.last_id.ms()));
        let entry = MessageEntry { message: message.clone(), counted };
        self.write(&id, WalRecord::Send { entry, pending, implied_read })?;
        self.ids_in_group.push(hash);
        self.ids.insert(hash, (seq, now));
        if pending.is_some() {
            self.owe(&id, from.other(), seq, push_due)?;
        }
        let implied_read = match implied_read {
            Some(_) => {
                let row = self.conv(&id)?.published.conv.status_row(from);
                Some(Advanced { row, read_before, moved: true })
            }
            None => None,
        };
        Ok(SendOutcome::Stored { message, implied_read })
    }

    /// The seq that this client_msg_id has within the window (R9).
    fn known_id(&self, hash: u128, looked_up_at: u64, now: u64) -> Result<Option<Seq>> {
        let oldest = now.saturating_sub(self.shared.config.idempotency_window_ms);
        let checkpoints = self.shared.checkpoints.load(Ordering::Acquire);
        // What a checkpoint wrote that was done when the caller asked the engine was in its answer.
        let answered = looked_up_at == checkpoints;
        let [last, before] = &self.older_ids;
        let generations = [
            Some(&self.ids),
            (self.frozen || !answered).then_some(&**last),
            (self.frozen && !answered).then_some(&**before),
        ];
        let mut known = generations.into_iter().flatten().filter_map(|ids| ids.get(&hash));
        if let Some((seq, _)) = known.find(|(_, ts)| *ts >= oldest) {
            return Ok(Some(*seq));
        }
        match checkpoints > looked_up_at + 1 {
            // So many checkpoints passed since the caller asked the engine that memory may have let go of it.
            true => self.shared.engine.sent_id(hash, now),
            false => Ok(None),
        }
    }

    pub(super) fn advance(
        &mut self,
        id: &ConversationId,
        side: Side,
        delivered: Mark,
        read: Mark,
    ) -> Result<Advanced> {
        let conv = &self.conv(id)?.published.conv;
        let member = conv.member(side);
        let read_before = member.read.seq;
        let new_read = member.read.raised_to(read);
        let new_delivered = member.delivered.raised_to(delivered).raised_to(new_read);
        if new_read == member.read && new_delivered == member.delivered {
            return Ok(Advanced { row: conv.status_row(side), read_before, moved: false });
        }
        let record = WalRecord::Receipt { id: id.clone(), side, delivered: new_delivered, read: new_read };
        self.write(id, record)?;
        Ok(Advanced { row: self.conv(id)?.published.conv.status_row(side), read_before, moved: true })
    }

    pub(super) fn note(
        &mut self,
        id: &ConversationId,
        side: Side,
        seq: Seq,
        push_due: Option<u64>,
    ) -> Result<Noted> {
        self.owe(id, side, seq, push_due)?;
        match self.conv(id)?.published.conv.member(side).pending {
            Some(row) if row <= seq => Ok(Noted { first_undelivered_seq: row, written: false }),
            _ => {
                self.write(id, WalRecord::Pending { id: id.clone(), side, row: Some(seq) })?;
                Ok(Noted { first_undelivered_seq: seq, written: true })
            }
        }
    }

    /// A notification is owed to a member, unless they had it: in the group of the pending row that asks for it.
    fn owe(&mut self, id: &ConversationId, side: Side, seq: Seq, push_due: Option<u64>) -> Result<()> {
        let Some(due_at) = push_due else { return Ok(()) };
        if self.conv(id)?.published.conv.member(side).notified >= seq {
            return Ok(());
        }
        let owed = OwedPush::new(id.member(side), id.clone(), seq, due_at);
        self.transact(|tx| tx.owe(&owed))
    }

    pub(super) fn raise_notified(&mut self, id: &ConversationId, side: Side, seq: Seq) -> Result<()> {
        match self.conv(id)?.published.conv.member(side).notified < seq {
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
        if self.conv(id)?.published.conv.member(side).pending != Some(expected) {
            return Ok(false);
        }
        if to != Some(expected) {
            self.write(id, WalRecord::Pending { id: id.clone(), side, row: to })?;
        }
        Ok(true)
    }

    pub(super) fn recount(&mut self, id: &ConversationId, side: Side, read: Mark) -> Result<()> {
        let member = self.conv(id)?.published.conv.member(side).clone();
        // A read that came in between has a count of its own, and a later recount looks at that.
        if member.read.seq != read.seq || member.read.counted == read.counted {
            return Ok(());
        }
        self.write(id, WalRecord::Receipt { id: id.clone(), side, delivered: member.delivered, read })
    }

    pub(super) fn erase(&mut self, id: &ConversationId, side: Side) -> Result<()> {
        let up_to = self.conv(id)?.published.conv.last_seq;
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

    /// Changes small rows beside something else of the same group.
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
    use crate::{
        EmbeddedConfig, Maintenance, ManualClock,
        embedded::{Embedded, rows::tests::send},
    };

    use super::*;

    const NOW: u64 = 1_760_000_000_000;

    /// A committer that does what it is told and when, over a store's engine.
    struct ByHand {
        committer: Committer,
        done: Sender<CheckpointDone>,
        _jobs: Receiver<CheckpointJob>,
        _store: Embedded,
        _dir: tempfile::TempDir,
    }

    impl ByHand {
        fn new() -> ByHand {
            let dir = tempfile::tempdir().unwrap();
            let clock = Arc::new(ManualClock::new(NOW));
            let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
            let (jobs, _jobs) = std::sync::mpsc::channel();
            let (done, done_in) = std::sync::mpsc::channel();
            let wal = Wal::open(&dir.path().join("by-hand"), 1 << 20, 7, 1, |_, _| Ok(())).unwrap();
            let committer = Committer::new(store.shared.clone(), wal, MessageId(0), jobs, done_in);
            ByHand { committer, done, _jobs, _store: store, _dir: dir }
        }

        fn begin_checkpoint(&mut self) {
            self.committer.checkpoint_wanted = true;
            self.committer.maybe_checkpoint();
            assert!(self.committer.frozen);
        }

        fn end_checkpoint(&mut self) {
            self.done.send(CheckpointDone { segments_removed: true }).unwrap();
            self.committer.collect_checkpoint(Duration::from_secs(5));
            assert!(!self.committer.frozen);
        }

        fn knows(&self, hash: u128, looked_up_at: u64) -> bool {
            self.committer.known_id(hash, looked_up_at, NOW).unwrap().is_some()
        }
    }

    /// Nothing reaches the engine here, so what is known is known from memory.
    #[test]
    fn memory_knows_what_the_engine_did_not_have_when_it_was_asked() {
        let mut by_hand = ByHand::new();
        by_hand.committer.ids.insert(1, (1, NOW));
        assert!(by_hand.knows(1, 0));
        by_hand.begin_checkpoint();
        assert!(by_hand.knows(1, 0), "it is being written");
        by_hand.end_checkpoint();
        assert!(by_hand.knows(1, 0), "it was written since");
        assert!(!by_hand.knows(1, 1), "who asked after that was told by the engine");
        by_hand.committer.ids.insert(2, (2, NOW));
        by_hand.begin_checkpoint();
        assert!(by_hand.knows(1, 0), "written since, and another checkpoint is under way");
        assert!(!by_hand.knows(1, 1));
        assert!(by_hand.knows(2, 1));
        by_hand.end_checkpoint();
        assert!(by_hand.knows(2, 1) && !by_hand.knows(2, 2));
        assert!(!by_hand.knows(1, 0), "memory has let go of it");
        let engine = &by_hand.committer.shared.engine;
        engine.sent_ids.ingest([(1, 1, NOW)].into_iter(), NOW).unwrap();
        assert!(by_hand.knows(1, 0), "and the engine is asked once more");
    }

    /// However long ago a caller asked the engine, a send that was stored since is known.
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
            assert!(matches!(commit(first).await, SendOutcome::Stored { .. }));
            let log_bytes = store.health().await.log_bytes;
            checkpoint(since).await;
            assert_eq!(
                store.health().await.log_bytes < log_bytes,
                since > 0,
                "the log lets go of what was written"
            );
            let outcome = commit(second).await;
            assert!(matches!(outcome, SendOutcome::Duplicate(1, _)), "{before} and {since}: {outcome:?}");
            // Who asks now hears it from the engine, or finds it among what the engine does not have.
            let (again, known) = prepare();
            match since {
                0 => assert!(matches!(commit(again).await, SendOutcome::Duplicate(1, _))),
                _ => assert_eq!(known.iter().map(|k| (k.place, k.seq)).collect::<Vec<_>>(), [(0, 1)]),
            }
            store.shut().await.unwrap();
        }
    }
}
