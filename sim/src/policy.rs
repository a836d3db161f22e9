//! The fault policy of one process: every call on a system is a step over the network, with the
//! faults of the seed.

use std::{
    any::Any,
    fmt::{self, Debug},
    sync::Arc,
};

use bluetick_protocol::{ConversationId, UserId};
use bluetick_store::{
    Memory, MemorySessions, Message, PendingDeliveries as _, Result, SessionEntry, SessionStore as _,
    testing::faults::{FaultPolicy, StoreCall, StoreMethod},
};
use futures_util::FutureExt;

use crate::{process::Process, sim::Sim};

/// The systems in memory answer at once.
pub fn now<T>(call: impl Future<Output = T>) -> T {
    match call.now_or_never() {
        Some(answer) => answer,
        None => unreachable!("a system in memory does not wait"),
    }
}

#[derive(Clone)]
pub struct SeededFaults {
    pub sim: Arc<Sim>,
    pub process: Arc<Process>,
    pub memory: Arc<Memory>,
    pub sessions: Arc<MemorySessions>,
    /// The system always answers.
    pub reliable: bool,
}

impl FaultPolicy for SeededFaults {
    async fn run<T: Debug + Send + 'static>(
        &self,
        call: StoreCall<'_>,
        op: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (policy, watched) = (self.clone(), Watched::by(&call));
        let op = move || policy.report_changes(&watched, || now(op)).map(Brief);
        let what = || call.to_string();
        let answer = match self.reliable {
            true => self.sim.reliable_step(&self.process, what, op).await,
            false => self.sim.step(&self.process, what, op).await,
        };
        answer.map(|brief| brief.0)
    }
}

/// What a call may change that the checks must learn in the same moment.
enum Watched {
    Nothing,
    Row(UserId, ConversationId),
    Sessions(UserId),
}

impl Watched {
    fn by(call: &StoreCall<'_>) -> Watched {
        match (call.method, call.user, call.conversation) {
            (StoreMethod::NoteUndelivered | StoreMethod::Settle, Some(user), Some(id)) => {
                Watched::Row(user.clone(), id.clone())
            }
            (StoreMethod::Register, Some(user), _) => Watched::Sessions(user.clone()),
            _ => Watched::Nothing,
        }
    }
}

impl SeededFaults {
    fn report_changes<T>(&self, watched: &Watched, op: impl FnOnce() -> T) -> T {
        match watched {
            Watched::Nothing => op(),
            Watched::Row(user, id) => {
                let row = || now(self.memory.pending_row(user, id)).unwrap_or_default();
                let (before, answer) = (row(), op());
                match row() {
                    after if after == before => {}
                    Some(_) => self.sim.notices.row_written(user, id),
                    None => self.sim.notices.row_removed(user, id),
                }
                answer
            }
            Watched::Sessions(user) => {
                let sessions = || now(self.sessions.lookup(user)).unwrap_or_default();
                let (before, answer) = (sessions(), op());
                for new in sessions() {
                    if !before.iter().any(|old| old.session_id == new.session_id) {
                        self.sim.notices.registered(new.session_id);
                    }
                }
                answer
            }
        }
    }
}

/// An answer, which the trace shows short: messages as their seqs, sessions as their devices.
struct Brief<T>(T);

impl<T: Debug + 'static> Debug for Brief<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer: &dyn Any = &self.0;
        if let Some(messages) = answer.downcast_ref::<Vec<Arc<Message>>>() {
            let seq = |m: &Arc<Message>| if m.void { format!("{} void", m.seq) } else { m.seq.to_string() };
            f.debug_list().entries(messages.iter().map(seq)).finish()
        } else if let Some(entries) = answer.downcast_ref::<Vec<SessionEntry>>() {
            let short = |e: &SessionEntry| format!("{} {} at {}", e.device, e.session_id, e.gateway);
            f.debug_list().entries(entries.iter().map(short)).finish()
        } else {
            self.0.fmt(f)
        }
    }
}
