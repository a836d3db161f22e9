//! The rules of delivery, each of which can be taken out by name.
//!
//! A rule that makes several demands has one switch for each of them, because each is broken by a different
//! interleaving. With a switch off the model does the obvious simpler thing, which is mostly what the notes do.

/// What a rule demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A session registers before it reads `pending_deliveries`. Off: the other way round.
    R1RegisterThenRead,
    /// A sender stores first and looks the recipient up afterwards. Off: it uses what a lookup found before the store.
    R2StoreThenLookUp,
    /// Who wrote a pending row looks the recipient up once more and wakes whom it finds. Off: it does not.
    R2LookAgain,
    /// The wake goes to sessions whose hand-over is still unanswered as well. Off: it leaves them
    /// out.
    R2WakeTheSlow,
    /// A sender that no session has answered writes the pending row before it answers. Off: it
    /// relies on the hand-over that is under way.
    R2RowBeforeAnswer,
    /// The pending row is one conditional write that keeps the minimum. Off: get, then put.
    R3KeepMinimum,
    /// A pending row goes only after all that was drained for it is acked. Off: when it has been sent.
    R4AckThenDelete,
    /// A pending row goes only if it still holds what was read. Off: whatever it holds.
    R4DeleteIfEqual,
    /// After the delete the messages are read once more. Off: they are not.
    R4ReadAgain,
    /// A closing session writes down what it owes. Off: it just leaves the session store.
    R5PayDebts,
    /// What may lie behind a row that a closing session has deleted and not read past is a debt too. Off: it is not.
    R5SettlingIsDebt,
    /// A device with a cursor also gets what its inbox says happened since. Off: pending rows only.
    R6ResumeByCursor,
    /// A device without a cursor also gets what the rows say no device has acked. Off: pending rows only.
    R6Undelivered,
    /// What is known to be owed before the first read does not hide what the cursor asks for. Off: the lane begins at it.
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
    /// A lane begins no later than at the first message that no device has acked. Off: at its row, its cursor or its
    /// first live message.
    R10BeginAtFirstUnacked,
    /// A session that is not there counts as a miss, and its entry goes. Off: the hand-over counts as taken.
    R12StaleIsMiss,
    /// A session that finds its entry gone registers and drains anew. Off: it puts the entry back.
    R12DrainAnew,
    /// A session looks for what it missed from time to time. It finds what nobody told it of,
    /// because the app server crashed that was about to. Off: it does not.
    PeriodicLook,
}

/// The rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    off: u32,
}

impl Rules {
    pub fn all() -> Rules {
        Rules { off: 0 }
    }

    /// Every rule but the one that brings a device without a cursor what has no pending row. It heals most of what is wrong
    /// with a row, so what the rows need shows without it.
    pub fn rows_alone() -> Rules {
        Rules::all().without(Rule::R6Undelivered)
    }

    pub fn without(self, rule: Rule) -> Rules {
        Rules { off: self.off | 1 << rule as u32 }
    }

    /// The write flow, the pending row's cleanup and the reconnect as the notes have them, word for word: the steps
    /// of a send run side by side, the row is got and then put, and it is deleted once what it led to has been
    /// delivered. What the notes do not speak of is left in, so that nothing but their own flow can be to blame.
    pub fn the_notes() -> Rules {
        Rules::rows_alone()
            .without(Rule::R2StoreThenLookUp)
            .without(Rule::R2LookAgain)
            .without(Rule::R3KeepMinimum)
            .without(Rule::R4AckThenDelete)
            .without(Rule::R4DeleteIfEqual)
            .without(Rule::R4ReadAgain)
            .without(Rule::R5PayDebts)
    }

    pub fn hold(self, rule: Rule) -> bool {
        self.off & 1 << rule as u32 == 0
    }
}
