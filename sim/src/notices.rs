//! Which notices were lost with an app server.
//!
//! A notice tells a session of a message, or that a pending row was written (R2). Notices are not
//! durable: an app server that ends before it has given one cannot give it later, and if its
//! request was answered before, nobody repeats it. Only the session's periodic check finds what the
//! notice was about. Runs without that check (see `Setup::safety_net`) may therefore end with a
//! row, or a message, that a connected session does not know of. This module says for which users,
//! conversations and sessions that is so. Whatever else is left is a violation.
//!
//! The records are ordered by a counter: a session knows of a row if it registered, and so read the
//! rows (R1), or was given a notice of the row, after the row was last written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bluetick_chat::SessionEvent;
use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use bluetick_store::SessionEntry;
use parking_lot::Mutex;

use crate::process::Process;

/// The position of a record.
type Number = u64;
/// A pending row's key.
type RowKey = (UserId, ConversationId);

tokio::task_local! {
    /// The request that the current task works on.
    static REQUEST: Number;
}

#[derive(Default)]
pub struct Notices(Mutex<NoticeLog>);

#[derive(Default)]
struct NoticeLog {
    last: Number,
    /// The last write of every pending row that exists.
    rows: BTreeMap<RowKey, Number>,
    /// The rows that each running request has written. It gives the notices of them before it ends.
    written_by: BTreeMap<Number, Vec<Number>>,
    /// The writes of requests that ended halfway.
    unfinished: BTreeSet<Number>,
    /// When each session last registered, and so read the rows.
    registered: BTreeMap<SessionId, Number>,
    /// When each session was last given a notice of a row.
    told_of_row: BTreeMap<(SessionId, ConversationId), Number>,
    /// The messages that each session was given, and when.
    told_of_messages: BTreeMap<(SessionId, ConversationId), Vec<(Number, Seq)>>,
    /// Notices that have not reached their gateway.
    under_way: BTreeMap<Number, Notice>,
}

struct Notice {
    by: Arc<Process>,
    /// How often that process had crashed when the notice began.
    crashes: u64,
    to: SessionId,
    key: RowKey,
    seqs: Vec<Seq>,
    /// Whether it tells of a row.
    row: bool,
}

impl Notice {
    fn new(by: &Arc<Process>, to: &SessionEntry, event: &SessionEvent) -> Option<Notice> {
        let (conversation, seqs, row) = match event {
            SessionEvent::Messages { messages, row_written, .. } => {
                let id = messages.first()?.conversation_id.clone();
                (id, messages.iter().map(|message| message.seq).collect(), *row_written)
            }
            SessionEvent::Wake { conversation_id } => (conversation_id.clone(), Vec::new(), true),
            _ => return None,
        };
        let key = (to.user_id.clone(), conversation);
        Some(Notice { by: by.clone(), crashes: by.crashes(), to: to.session_id, key, seqs, row })
    }

    fn is_lost(&self) -> bool {
        self.by.crashes() > self.crashes
    }
}

impl NoticeLog {
    fn next(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    fn registered_since(&self, session: SessionId, number: Number) -> bool {
        self.registered.get(&session).is_some_and(|&at| at > number)
    }

    /// Whether a session has read the rows, or was told of this one, after it was written.
    fn knows_row(&self, session: SessionId, id: &ConversationId, written: Number) -> bool {
        let told = self.told_of_row.get(&(session, id.clone()));
        told.is_some_and(|&at| at > written) || self.registered_since(session, written)
    }

    /// Whether a notice of this write was lost: its request ended halfway, or a later notice of the
    /// row to one of these sessions was in flight when its app server crashed.
    fn lost_row(&self, key: &RowKey, written: Number, sessions: &[SessionId]) -> bool {
        let lost = |notice: &Notice| notice.row && notice.key == *key && sessions.contains(&notice.to);
        self.unfinished.contains(&written)
            || self.under_way.range(written..).any(|(_, notice)| notice.is_lost() && lost(notice))
    }
}

impl Notices {
    /// A pending row was created, or got another value.
    pub fn row_written(&self, user: &UserId, id: &ConversationId) {
        let mut state = self.0.lock();
        let number = state.next();
        state.rows.insert((user.clone(), id.clone()), number);
        if let Ok(request) = REQUEST.try_with(|request| *request) {
            state.written_by.entry(request).or_default().push(number);
        }
    }

    pub fn row_removed(&self, user: &UserId, id: &ConversationId) {
        self.0.lock().rows.remove(&(user.clone(), id.clone()));
    }

    /// A session registered that was not in the session store. It reads the rows afterwards.
    pub fn registered(&self, session: SessionId) {
        let mut state = self.0.lock();
        let number = state.next();
        state.registered.insert(session, number);
    }

    /// An app server begins to give a notice, if the event is one.
    pub fn begin(&self, by: &Arc<Process>, to: &SessionEntry, event: &SessionEvent) -> Option<Number> {
        let notice = Notice::new(by, to, event)?;
        let mut state = self.0.lock();
        let number = state.next();
        state.under_way.insert(number, notice);
        Some(number)
    }

    /// The notice has reached its gateway. A session that was not there needs none.
    pub fn arrived(&self, number: Option<Number>, taken: bool) {
        let mut state = self.0.lock();
        let Some(notice) = number.and_then(|number| state.under_way.remove(&number)) else { return };
        if !taken {
            return;
        }
        let at = state.next();
        let (_, id) = notice.key;
        if notice.row {
            state.told_of_row.insert((notice.to, id.clone()), at);
        }
        if !notice.seqs.is_empty() {
            let told = state.told_of_messages.entry((notice.to, id)).or_default();
            told.extend(notice.seqs.into_iter().map(|seq| (at, seq)));
        }
    }

    /// Whether a pending row may still be there, given the user's live sessions: a notice of it was
    /// lost, and none of the sessions knows of it.
    pub fn excuse_row(&self, user: &UserId, id: &ConversationId, sessions: &[SessionId]) -> bool {
        let state = self.0.lock();
        let key = (user.clone(), id.clone());
        let Some(&written) = state.rows.get(&key) else { return false };
        let nobody_knows = !sessions.iter().any(|&session| state.knows_row(session, id, written));
        nobody_knows && state.lost_row(&key, written, sessions)
    }

    /// Whether a live session may lack a message: the notice of it to this session was lost and the
    /// session had no other reason to read that far, or that is so of the notice of the row that
    /// the message has. `row` is where the row begins.
    pub fn excuse_message(
        &self,
        user: &UserId,
        id: &ConversationId,
        seq: Seq,
        row: Option<Seq>,
        session: SessionId,
    ) -> bool {
        let state = self.0.lock();
        let key = (user.clone(), id.clone());
        let told = state.told_of_messages.get(&(session, id.clone()));
        let told_since = |number: Number| {
            told.is_some_and(|told| told.iter().any(|&(at, told)| at > number && told >= seq))
        };
        let is_lost = |(number, notice): (&Number, &Notice)| {
            notice.is_lost()
                && notice.to == session
                && notice.key == key
                && notice.seqs.contains(&seq)
                && !state.registered_since(session, *number)
                && !told_since(*number)
        };
        let row_is_lost = |written: Number| {
            row.is_some_and(|first| first <= seq)
                && !state.knows_row(session, id, written)
                && state.lost_row(&key, written, &[session])
        };
        state.under_way.iter().any(is_lost)
            || state.rows.get(&key).is_some_and(|&written| row_is_lost(written))
    }
}

/// A request that an app server works on. Dropped before it has finished, it leaves the notices of
/// the rows that it wrote to nobody.
pub struct NoticeRequest {
    notices: Arc<Notices>,
    number: Number,
}

impl NoticeRequest {
    pub fn begin(notices: &Arc<Notices>) -> NoticeRequest {
        let number = notices.0.lock().next();
        NoticeRequest { notices: notices.clone(), number }
    }

    /// Does the work of the request.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> T {
        let done = REQUEST.scope(self.number, work).await;
        self.notices.0.lock().written_by.remove(&self.number);
        done
    }
}

impl Drop for NoticeRequest {
    fn drop(&mut self) {
        let mut state = self.notices.0.lock();
        let unfinished = state.written_by.remove(&self.number).unwrap_or_default();
        state.unfinished.extend(unfinished);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bluetick_protocol::DeviceId;
    use futures_util::FutureExt;

    use super::*;
    use crate::{setup::Setup, sim::Sim};

    struct NoticesFixture {
        sim: Arc<Sim>,
        app: Arc<Process>,
        gateway: Arc<Process>,
        session: SessionEntry,
        id: ConversationId,
    }

    fn fixture() -> NoticesFixture {
        let process = |name: &str| Process::new(name.into(), 0.0);
        let session = SessionEntry {
            user_id: UserId::new("bob").unwrap(),
            device: DeviceId::new("phone").unwrap(),
            session_id: SessionId(1),
            gateway: "g1".into(),
            connected_at: 0,
        };
        let sim = Sim::new(Setup::without_faults(), false);
        sim.notices.registered(session.session_id);
        let id = ConversationId::new("ann~bob").unwrap();
        NoticesFixture { sim, app: process("a1"), gateway: process("g1"), session, id }
    }

    impl NoticesFixture {
        fn notices(&self) -> &Arc<Notices> {
            &self.sim.notices
        }

        /// Writes the row within a request that ends there, finished or not.
        fn write_row(&self, finishes: bool) {
            let request = NoticeRequest::begin(self.notices());
            let (notices, user, id) = (self.notices().clone(), self.session.user_id.clone(), self.id.clone());
            let work = async move {
                notices.row_written(&user, &id);
                if !finishes {
                    std::future::pending::<()>().await;
                }
            };
            assert_eq!(request.run(work).now_or_never().is_some(), finishes);
        }

        fn begin_wake(&self) -> Option<Number> {
            let wake = SessionEvent::Wake { conversation_id: self.id.clone() };
            self.notices().begin(&self.app, &self.session, &wake)
        }

        fn row_is_excused(&self) -> bool {
            self.notices().excuse_row(&self.session.user_id, &self.id, &[self.session.session_id])
        }

        fn message_is_excused(&self, row: Option<Seq>) -> bool {
            let NoticesFixture { session, id, .. } = self;
            self.notices().excuse_message(&session.user_id, id, 1, row, session.session_id)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_excused_only_by_the_crash_of_its_own_writer() {
        let it = fixture();
        it.write_row(true);
        it.gateway.crash(&it.sim);
        it.app.crash(&it.sim);
        assert!(!it.row_is_excused(), "its request had finished");
        it.write_row(false);
        assert!(it.row_is_excused(), "nobody gave the notice");
        assert!(it.message_is_excused(Some(1)) && !it.message_is_excused(Some(2)));
        let elsewhere = ConversationId::new("bob~cy").unwrap();
        assert!(!it.notices().excuse_row(&it.session.user_id, &elsewhere, &[it.session.session_id]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_that_is_lost_in_the_background_is_an_excuse() {
        let it = fixture();
        it.write_row(true);
        it.begin_wake();
        assert!(!it.row_is_excused(), "it may still arrive");
        it.gateway.crash(&it.sim);
        assert!(!it.row_is_excused(), "it is still under way");
        it.app.crash(&it.sim);
        assert!(it.row_is_excused());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_knows_of_the_row_has_no_excuse() {
        let it = fixture();
        it.write_row(false);
        let wake = it.begin_wake();
        it.notices().arrived(wake, true);
        it.app.crash(&it.sim);
        assert!(!it.row_is_excused(), "a later wake told it");
        it.write_row(false);
        assert!(it.row_is_excused(), "it was written again");
        it.notices().registered(it.session.session_id);
        assert!(!it.row_is_excused(), "the session has drained since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_row_takes_its_excuse_with_it() {
        let it = fixture();
        it.write_row(false);
        it.notices().row_removed(&it.session.user_id, &it.id);
        it.write_row(true);
        assert!(!it.row_is_excused());
    }
}
