//! The steps of the store at which a test can stop a call, fail it, or lose its answer.

use std::{collections::BTreeSet, time::Duration};

use bluetick_store::{Result, StoreError};
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

/// A method of the store. A call is told from others by whom it concerns: the user of a row or an entry, the
/// conversation of a read, the `client_msg_id` of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    CommitSends,
    /// A writer of a late message has its seq and has not written it.
    SeqTaken,
    ReadFrom,
    LastSeq,
    Note,
    PendingOf,
    PendingRow,
    Settle,
    Advance,
    RaiseNotified,
    Register,
    Refresh,
    Unregister,
    Lookup,
}

impl Step {
    pub const SESSION_STORE: [Step; 4] = [Step::Register, Step::Refresh, Step::Unregister, Step::Lookup];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

enum What {
    Stop { reached: oneshot::Sender<()>, open: oneshot::Receiver<()> },
    Fail,
}

/// What happens to the next call that matches; then it is used up.
struct Planned {
    step: Step,
    of: String,
    when: When,
    what: What,
}

/// Holds a call at a step.
pub struct Gate {
    name: String,
    reached: oneshot::Receiver<()>,
    open: oneshot::Sender<()>,
}

impl Gate {
    /// Resolves when a call stands at the gate.
    pub async fn reached(&mut self) {
        let reached = timeout(Duration::from_secs(120), &mut self.reached).await;
        assert!(matches!(reached, Ok(Ok(()))), "no call came to {}", self.name);
    }

    /// Lets the call go on.
    pub fn open(self) {
        let _ = self.open.send(());
    }
}

#[derive(Default)]
pub struct Steps {
    planned: Mutex<Vec<Planned>>,
    down: Mutex<BTreeSet<Step>>,
}

impl Steps {
    /// Stops the next such call before it does anything.
    pub fn stop_before(&self, step: Step, of: &str) -> Gate {
        self.stop(step, of, When::Before)
    }

    /// Stops the next such call when it is done, before its caller has the answer.
    pub fn stop_after(&self, step: Step, of: &str) -> Gate {
        self.stop(step, of, When::After)
    }

    fn stop(&self, step: Step, of: &str, when: When) -> Gate {
        let (tell_reached, reached) = oneshot::channel();
        let (open, opened) = oneshot::channel();
        self.plan(step, of, when, What::Stop { reached: tell_reached, open: opened });
        Gate { name: format!("{when:?} {step:?} of {of}"), reached, open }
    }

    /// Fails the next such call: nothing is done.
    pub fn fail(&self, step: Step, of: &str) {
        self.plan(step, of, When::Before, What::Fail);
    }

    /// Loses the answer of the next such call: it is done, and its caller gets an error.
    pub fn lose_answer(&self, step: Step, of: &str) {
        self.plan(step, of, When::After, What::Fail);
    }

    fn plan(&self, step: Step, of: &str, when: When, what: What) {
        self.planned.lock().push(Planned { step, of: of.to_owned(), when, what });
    }

    /// Fails all these calls until they are brought up.
    pub fn take_down(&self, steps: &[Step]) {
        self.down.lock().extend(steps);
    }

    pub fn bring_up(&self) {
        self.down.lock().clear();
    }

    pub(super) async fn reach(&self, step: Step, when: When, of: &str) -> Result<()> {
        let down = self.down.lock().contains(&step);
        if down {
            return Err(unavailable(step));
        }
        let next = {
            let mut planned = self.planned.lock();
            let at = planned.iter().position(|p| (p.step, p.when, p.of.as_str()) == (step, when, of));
            at.map(|at| planned.remove(at).what)
        };
        match next {
            None => Ok(()),
            Some(What::Fail) => Err(unavailable(step)),
            Some(What::Stop { reached, open }) => {
                let _ = reached.send(());
                let _ = open.await;
                Ok(())
            }
        }
    }
}

fn unavailable(step: Step) -> StoreError {
    StoreError::unavailable(format!("{step:?}, by the test's wish,"))
}
