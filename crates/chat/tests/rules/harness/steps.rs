//! The fault policy of the rules tests: stops a call of the store, fails it, or loses its answer.

use std::{collections::BTreeSet, fmt::Debug, time::Duration};

use bluetick_store::{
    Result, StoreError,
    testing::faults::{FaultPolicy, StoreCall, StoreMethod},
};
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

enum FaultKind {
    Stop { reached: oneshot::Sender<()>, open: oneshot::Receiver<()> },
    Fail,
}

/// The fault of the next call that matches. It strikes once.
struct PlannedFault {
    method: StoreMethod,
    subject: String,
    when: When,
    fault: FaultKind,
}

/// Holds a call of the store.
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

/// The planned faults. A call is told from others of its method by its
/// [subject](StoreCall::subject).
#[derive(Default)]
pub struct PlannedFaults {
    planned: Mutex<Vec<PlannedFault>>,
    down: Mutex<BTreeSet<StoreMethod>>,
}

impl PlannedFaults {
    /// Stops the next such call before it does anything.
    pub fn stop_before(&self, method: StoreMethod, subject: &str) -> Gate {
        self.stop(method, subject, When::Before)
    }

    /// Stops the next such call when it is done, before its caller has the answer.
    pub fn stop_after(&self, method: StoreMethod, subject: &str) -> Gate {
        self.stop(method, subject, When::After)
    }

    fn stop(&self, method: StoreMethod, subject: &str, when: When) -> Gate {
        let (tell_reached, reached) = oneshot::channel();
        let (open, opened) = oneshot::channel();
        self.plan(method, subject, when, FaultKind::Stop { reached: tell_reached, open: opened });
        Gate { name: format!("{when:?} {method:?} of {subject}"), reached, open }
    }

    /// Fails the next such call: nothing is done.
    pub fn fail(&self, method: StoreMethod, subject: &str) {
        self.plan(method, subject, When::Before, FaultKind::Fail);
    }

    /// Loses the answer of the next such call: it is done, and its caller gets an error.
    pub fn lose_answer(&self, method: StoreMethod, subject: &str) {
        self.plan(method, subject, When::After, FaultKind::Fail);
    }

    fn plan(&self, method: StoreMethod, subject: &str, when: When, fault: FaultKind) {
        self.planned.lock().push(PlannedFault { method, subject: subject.to_owned(), when, fault });
    }

    /// Fails all these calls until [`bring_up`](Self::bring_up).
    pub fn take_down(&self, methods: &[StoreMethod]) {
        self.down.lock().extend(methods);
    }

    pub fn bring_up(&self) {
        self.down.lock().clear();
    }

    pub(super) async fn reach(&self, method: StoreMethod, when: When, subject: &str) -> Result<()> {
        let is_down = self.down.lock().contains(&method);
        if is_down {
            return Err(unavailable(method));
        }
        let fault = {
            let mut planned = self.planned.lock();
            let matches =
                |p: &PlannedFault| (p.method, p.when, p.subject.as_str()) == (method, when, subject);
            let at = planned.iter().position(matches);
            at.map(|at| planned.remove(at).fault)
        };
        match fault {
            None => Ok(()),
            Some(FaultKind::Fail) => Err(unavailable(method)),
            Some(FaultKind::Stop { reached, open }) => {
                let _ = reached.send(());
                let _ = open.await;
                Ok(())
            }
        }
    }
}

impl FaultPolicy for PlannedFaults {
    async fn run<T: Debug + Send + 'static>(
        &self,
        call: StoreCall<'_>,
        op: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.reach(call.method, When::Before, call.subject()).await?;
        let answer = op.await;
        self.reach(call.method, When::After, call.subject()).await?;
        answer
    }
}

fn unavailable(method: StoreMethod) -> StoreError {
    StoreError::unavailable(format!("{method:?}, as the test planned,"))
}
