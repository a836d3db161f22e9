//! A session's place in the session store, and the background operations that follow from it.
//!
//! A session registers before it reads its plan (R1), refreshes its entry with every heartbeat, and
//! registers and plans anew when the entry is gone (R12). All operations run in the background, one
//! at a time; [`Registration::next`] says which is due. `run/register.rs` executes them.

use bluetick_protocol::{ConversationId, MessageId, UserId};
use bluetick_store::SessionEntry;
use tokio::time::Instant;

/// Most conversations whose ticks are read at once.
const TICKS_AT_ONCE: usize = 64;

pub(super) struct Registration {
    /// The cursor of the client's hello.
    cursor: Option<MessageId>,
    /// When the last plan that was taken on was asked for, by the wall clock: nothing older can
    /// have been missed. `None` before the first plan.
    planned_ms: Option<u64>,
    is_registered: bool,
    refresh_due: bool,
    reconcile_due: bool,
    /// Sessions of the same device that this one displaced. They end once this session's client has
    /// shown that it is there.
    displaced: Vec<SessionEntry>,
    sign_of_life: SignOfLife,
    announcement: Announcement,
    /// Whose presence the client watches.
    watched: Option<Vec<UserId>>,
    /// The watches were lost with an entry of the session store.
    watch_due: bool,
    /// Conversations whose ticks may have moved while nobody found this session (R10).
    ticks_due: Vec<ConversationId>,
}

/// The session store has, or had, another session of this device, and only one of the two has a
/// client. The session that gets a sign of life from its client, after it asked for one, has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignOfLife {
    NotAsked,
    Asked(Instant),
    Given { asked: Instant },
}

/// Watchers are told that the user is online once the session has lasted for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announcement {
    NotRegistered,
    At(Instant),
    Done,
}

/// A background operation that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Register, then read the plan from the cursor on (R1).
    Register {
        cursor: Option<MessageId>,
        is_first: bool,
    },
    /// End the sessions of the same device that this one displaced.
    EndDisplaced(Vec<SessionEntry>),
    Refresh,
    /// Plan once more from here on, for what nobody handed to this session.
    Reconcile {
        cursor: MessageId,
    },
    Announce,
    Watch(Vec<UserId>),
    ReadTicks(Vec<ConversationId>),
}

impl Registration {
    pub(super) fn new(cursor: Option<MessageId>) -> Registration {
        Registration {
            cursor,
            planned_ms: None,
            is_registered: false,
            refresh_due: false,
            reconcile_due: false,
            displaced: Vec::new(),
            sign_of_life: SignOfLife::NotAsked,
            announcement: Announcement::NotRegistered,
            watched: None,
            watch_due: false,
            ticks_due: Vec::new(),
        }
    }

    /// The operation that is due, which counts as started. Ticks are read only if the client may be
    /// sent more frames.
    pub(super) fn next(&mut self, now: Instant, may_read_ticks: bool) -> Option<Duty> {
        let Some(planned_ms) = self.planned_ms else {
            return Some(Duty::Register { cursor: self.cursor, is_first: true });
        };
        let cursor = MessageId::at(planned_ms);
        if self.client_is_there() && !self.displaced.is_empty() {
            return Some(Duty::EndDisplaced(self.take_displaced()));
        }
        if std::mem::take(&mut self.refresh_due) {
            return Some(match self.is_registered {
                true => Duty::Refresh,
                false => Duty::Register { cursor: Some(cursor), is_first: false },
            });
        }
        if std::mem::take(&mut self.reconcile_due) {
            return Some(Duty::Reconcile { cursor });
        }
        if matches!(self.announcement, Announcement::At(at) if at <= now) {
            self.announcement = Announcement::Done;
            return Some(Duty::Announce);
        }
        if std::mem::take(&mut self.watch_due)
            && let Some(users) = self.watched.clone()
        {
            return Some(Duty::Watch(users));
        }
        if !self.ticks_due.is_empty() && may_read_ticks {
            let rest = self.ticks_due.len().saturating_sub(TICKS_AT_ONCE);
            return Some(Duty::ReadTicks(self.ticks_due.split_off(rest)));
        }
        None
    }

    /// When an operation becomes due by the time alone. One that is due already waits for the one
    /// in progress.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.announcement {
            Announcement::At(at) if at > now => Some(at),
            _ => None,
        }
    }

    pub(super) fn heartbeat(&mut self, must_reconcile: bool) {
        self.refresh_due = true;
        self.reconcile_due |= must_reconcile;
    }

    pub(super) fn watch(&mut self, users: Vec<UserId>) {
        self.watched = Some(users);
    }

    pub(super) fn watch_again(&mut self) {
        self.watch_due = true;
    }

    /// The ticks of these conversations may have moved unseen.
    pub(super) fn read_ticks_of(&mut self, conversations: Vec<ConversationId>) {
        self.ticks_due = conversations;
    }

    pub(super) fn read_ticks_again(&mut self, id: ConversationId) {
        self.ticks_due.push(id);
    }

    // ---- outcomes ----

    /// These sessions are no longer in the session store, so nobody else can end them.
    pub(super) fn displaced(&mut self, sessions: Vec<SessionEntry>) {
        self.displaced.extend(sessions);
    }

    pub(super) fn take_displaced(&mut self) -> Vec<SessionEntry> {
        std::mem::take(&mut self.displaced)
    }

    /// The session is in the session store. Returns whether the client must be asked for a sign of
    /// life.
    pub(super) fn registered(&mut self, is_first: bool, now: Instant, announce_at: Instant) -> bool {
        self.is_registered = true;
        self.sign_of_life = SignOfLife::NotAsked;
        if self.announcement == Announcement::NotRegistered {
            self.announcement = Announcement::At(announce_at);
        }
        self.watch_due |= !is_first;
        !self.displaced.is_empty() && self.ask_for_sign(now)
    }

    pub(super) fn not_registered(&mut self) {
        self.is_registered = false;
    }

    /// Whether the first plan was taken on.
    pub(super) fn has_planned(&self) -> bool {
        self.planned_ms.is_some()
    }

    /// A plan was taken on that was asked for at this time.
    pub(super) fn planned(&mut self, asked_at_ms: u64) {
        self.planned_ms = Some(asked_at_ms);
    }

    /// The plan could not be read. The first is asked for again. A later one must follow a
    /// registration of its own, because it stands for everything that was missed before that.
    pub(super) fn plan_failed(&mut self, is_first: bool) {
        if !is_first {
            self.entry_lost();
        }
    }

    /// The entry is gone: register and plan anew (R12).
    pub(super) fn entry_lost(&mut self) {
        self.is_registered = false;
        self.refresh_due = true;
    }

    /// The entry is gone, and another session of the device has one. Returns whether the client
    /// must be asked for a sign of life.
    pub(super) fn contested(&mut self, now: Instant) -> bool {
        self.is_registered = false;
        self.ask_for_sign(now)
    }

    /// When the client was first asked for a sign of life.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        match self.sign_of_life {
            SignOfLife::NotAsked => None,
            SignOfLife::Asked(asked) | SignOfLife::Given { asked } => Some(asked),
        }
    }

    fn ask_for_sign(&mut self, now: Instant) -> bool {
        let must_ask = self.sign_of_life == SignOfLife::NotAsked;
        if must_ask {
            self.sign_of_life = SignOfLife::Asked(now);
        }
        must_ask
    }

    /// The client sent something.
    pub(super) fn heard(&mut self) {
        if let SignOfLife::Asked(asked) = self.sign_of_life {
            self.sign_of_life = SignOfLife::Given { asked };
            self.refresh_due |= !self.is_registered;
        }
    }

    /// Whether the client has given a sign of life since it was asked for one.
    pub(super) fn client_is_there(&self) -> bool {
        matches!(self.sign_of_life, SignOfLife::Given { .. })
    }

    /// The displaced sessions have ended. `registered_again` is whether that took a new entry,
    /// which has no watches.
    pub(super) fn displaced_ended(&mut self, registered_again: bool) {
        self.sign_of_life = SignOfLife::NotAsked;
        self.watch_due |= registered_again;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bluetick_protocol::{DeviceId, SessionId};

    use super::*;

    const LATER: Duration = Duration::from_secs(1);

    fn planned(now: Instant) -> Registration {
        let mut registration = Registration::new(None);
        assert_eq!(registration.next(now, true), Some(Duty::Register { cursor: None, is_first: true }));
        assert!(!registration.registered(true, now, now + LATER));
        registration.planned(7);
        registration
    }

    fn other_session() -> SessionEntry {
        SessionEntry {
            user_id: UserId::new("bob").unwrap(),
            device: DeviceId::new("phone").unwrap(),
            session_id: SessionId(2),
            gateway: "g1".into(),
            connected_at: 1,
        }
    }

    #[test]
    fn the_first_registration_is_repeated_until_there_is_a_plan() {
        let now = Instant::now();
        let mut registration = Registration::new(Some(MessageId(5)));
        let first = Some(Duty::Register { cursor: Some(MessageId(5)), is_first: true });
        registration.heartbeat(true);
        assert_eq!(registration.next(now, true), first);
        registration.registered(true, now, now);
        registration.plan_failed(true);
        assert_eq!(registration.next(now, true), first);
        registration.planned(7);
        assert_eq!(registration.next(now, true), Some(Duty::Refresh));
    }

    #[test]
    fn a_heartbeat_refreshes_and_then_reconciles() {
        let now = Instant::now();
        let mut registration = planned(now);
        assert_eq!(registration.next(now, true), None);
        registration.heartbeat(true);
        assert_eq!(registration.next(now, true), Some(Duty::Refresh));
        assert_eq!(registration.next(now, true), Some(Duty::Reconcile { cursor: MessageId::at(7) }));
        assert_eq!(registration.next(now, true), None);
        registration.heartbeat(false);
        assert_eq!(registration.next(now, true), Some(Duty::Refresh));
        assert_eq!(registration.next(now, true), None);
    }

    #[test]
    fn a_lost_entry_is_registered_anew_from_the_last_plan_on_and_watched_again() {
        let now = Instant::now();
        let mut registration = planned(now);
        registration.watch(vec![UserId::new("alice").unwrap()]);
        let anew = Some(Duty::Register { cursor: Some(MessageId::at(7)), is_first: false });
        registration.entry_lost();
        assert_eq!(registration.next(now, true), anew);
        registration.registered(false, now, now);
        registration.plan_failed(false);
        assert_eq!(registration.next(now, true), anew, "a later plan follows a registration of its own");
        registration.registered(false, now, now);
        registration.planned(9);
        let watch = Duty::Watch(vec![UserId::new("alice").unwrap()]);
        assert_eq!(registration.next(now, true), Some(watch));
        assert_eq!(registration.next(now, true), None);
    }

    #[test]
    fn watchers_are_told_once_when_the_session_has_lasted() {
        let now = Instant::now();
        let mut registration = planned(now);
        assert_eq!(registration.deadline(now), Some(now + LATER));
        assert_eq!(registration.next(now + LATER, true), Some(Duty::Announce));
        registration.registered(false, now + LATER, now + LATER);
        assert_eq!(registration.next(now + LATER, true), None);
        assert_eq!(registration.deadline(now), None);
    }

    #[test]
    fn displaced_sessions_end_when_the_client_has_given_a_sign_of_life() {
        let now = Instant::now();
        let mut registration = planned(now);
        registration.displaced(vec![other_session()]);
        registration.heard();
        assert!(!registration.client_is_there(), "nobody asked");
        assert!(registration.registered(true, now, now + LATER), "the client must be asked");
        assert_eq!(registration.next(now, true), None);
        registration.heard();
        assert_eq!(registration.next(now, true), Some(Duty::EndDisplaced(vec![other_session()])));
        registration.displaced_ended(true);
        assert_eq!(registration.asked_at(), None);
        assert_eq!(registration.next(now, true), None, "nothing is watched");
    }

    #[test]
    fn a_contested_session_registers_again_when_its_client_is_there() {
        let now = Instant::now();
        let mut registration = planned(now);
        assert!(registration.contested(now));
        assert!(!registration.contested(now + LATER), "asked once");
        assert_eq!(registration.asked_at(), Some(now));
        assert_eq!(registration.next(now, true), None);
        registration.heard();
        let anew = Duty::Register { cursor: Some(MessageId::at(7)), is_first: false };
        assert_eq!(registration.next(now, true), Some(anew));
        assert!(registration.client_is_there());
    }

    #[test]
    fn ticks_are_read_a_page_at_a_time_and_wait_for_room() {
        let now = Instant::now();
        let mut registration = planned(now);
        let id = |n| ConversationId::new(&format!("a{n:02}~bob")).unwrap();
        registration.read_ticks_of((0..70).map(id).collect());
        assert_eq!(registration.next(now, false), None);
        let mut pages = Vec::new();
        while let Some(Duty::ReadTicks(page)) = registration.next(now, true) {
            pages.push(page.len());
        }
        assert_eq!(pages, [64, 6]);
    }
}
