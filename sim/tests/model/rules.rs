//! The parts of the rules of delivery, each of which the model can leave out.
//!
//! A rule with several requirements has one switch for each of them, because each is broken by a
//! different interleaving. With a switch off the model does the obvious simpler thing.

/// One requirement of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePart {
    /// A session registers before it reads `pending_deliveries`. Off: the other way round.
    R1RegisterThenRead,
    /// A sender stores first and looks the recipient up afterwards. Off: it uses what a lookup
    /// found before the store.
    R2StoreThenLookUp,
    /// The writer of a pending row looks the recipient up once more and wakes the sessions found.
    /// Off: it does not.
    R2LookAgain,
    /// The wake goes to sessions whose hand-over is still unanswered as well. Off: it leaves them
    /// out.
    R2WakeTheSlow,
    /// A sender that no session has answered writes the pending row before it answers. Off: it
    /// relies on the hand-over in flight.
    R2RowBeforeAnswer,
    /// The pending row is one conditional write that keeps the minimum. Off: get, then put.
    R3KeepMinimum,
    /// A pending row is removed only after everything drained for it is acked. Off: when it has
    /// been sent.
    R4AckThenDelete,
    /// A pending row is removed only if it still holds the value that was read. Off: whatever it
    /// holds.
    R4DeleteIfEqual,
    /// After the delete the messages are read once more. Off: they are not.
    R4ReadAgain,
    /// A closing session writes down what it owes. Off: it just leaves the session store.
    R5PayDebts,
    /// Messages after a row that a closing session has deleted and not read past are a debt too.
    /// Off: they are not.
    R5SettlingIsDebt,
    /// A device with a cursor also gets what its inbox says happened since. Off: pending rows only.
    R6ResumeByCursor,
    /// A device without a cursor also gets what the rows say no device has acked. Off: pending rows
    /// only.
    R6Undelivered,
    /// What is known to be owed before the first read does not hide what the cursor asks for. Off:
    /// the lane begins at it.
    R6RowAndCursor,
    /// A live message that is not the next one waits for a read. Off: it goes straight out.
    R7OneStream,
    /// A message is put under a seq only if nothing is there. Off: it is put.
    R8FenceSeqs,
    /// A reader waits at a hole and closes it with a void. Off: it reads on behind it.
    R8CloseHoles,
    /// The `client_msg_id` is remembered with the message. Off: a retry is a new message.
    R9RememberSends,
    /// A retry runs the delivery steps again. Off: it only gets its answer.
    R9DeliverAgain,
    /// A lane begins no later than at the first message that no device has acked. Off: at its row,
    /// its cursor or its first live message.
    R10BeginAtFirstUnacked,
    /// A session that is gone counts as a miss, and its entry is removed. Off: the hand-over counts
    /// as taken.
    R12StaleIsMiss,
    /// A session that finds its entry gone registers and drains again. Off: it restores the entry.
    R12DrainAnew,
    /// A session reconciles from time to time. It finds messages whose notice was lost with an app
    /// server. Off: it does not.
    PeriodicLook,
}

/// The rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleParts {
    off: u32,
}

impl RuleParts {
    pub fn all() -> RuleParts {
        RuleParts { off: 0 }
    }

    /// Every rule but the one that serves a device without a cursor from what has no pending row.
    /// It repairs most of what is wrong with a row and so hides a broken rule about rows.
    pub fn rows_alone() -> RuleParts {
        RuleParts::all().without(RulePart::R6Undelivered)
    }

    pub fn without(self, rule: RulePart) -> RuleParts {
        RuleParts { off: self.off | 1 << rule as u32 }
    }

    /// The textbook flow: the steps of a send run in parallel, the row is read and then written,
    /// and it is deleted once its messages have been sent. Every other rule holds, so that only
    /// this flow can be to blame.
    pub fn textbook_flow() -> RuleParts {
        RuleParts::rows_alone()
            .without(RulePart::R2StoreThenLookUp)
            .without(RulePart::R2LookAgain)
            .without(RulePart::R3KeepMinimum)
            .without(RulePart::R4AckThenDelete)
            .without(RulePart::R4DeleteIfEqual)
            .without(RulePart::R4ReadAgain)
            .without(RulePart::R5PayDebts)
    }

    pub fn hold(self, rule: RulePart) -> bool {
        self.off & 1 << rule as u32 == 0
    }
}
