//! The deadlines of a session. Nothing here reads a clock: `now` is passed in.

use std::time::Duration;

use bluetick_protocol::{ErrorCode, WireError};
use bluetick_store::Clock;
use tokio::time::Instant;

use super::{Identity, SessionConfig};

/// How soon a failed read, receipt or background operation is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

pub(super) struct Timers {
    /// When to ping the client and refresh the registration.
    beat_at: Instant,
    /// The first heartbeat from here on also reconciles.
    reconcile_at: Instant,
    /// When the client last sent anything.
    last_heard: Instant,
    /// When a message last went out, or the client last sent one.
    last_activity: Instant,
    /// Since when the window holds messages and no ack has freed any of it.
    unacked_since: Option<Instant>,
    /// When to search for messages whose acks are overdue (R14).
    overdue_at: Option<Instant>,
    /// No read and no background operation starts before this time: one of them failed.
    retry_at: Option<Instant>,
}

/// What a heartbeat asks for besides a ping and a refresh.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    pub must_reconcile: bool,
    /// Nothing was delivered for so long that a reconcile finds nothing older: state of idle
    /// conversations can go.
    pub idle_for: Option<Duration>,
}

impl Timers {
    /// `spread` between 0 and 1 keeps sessions that connected together from beating together.
    pub(super) fn new(now: Instant, config: &SessionConfig, spread: f64) -> Timers {
        Timers {
            beat_at: now + config.heartbeat.mul_f64(spread),
            reconcile_at: now + config.reconcile_every,
            last_heard: now,
            last_activity: now,
            unacked_since: None,
            overdue_at: None,
            retry_at: None,
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    pub(super) fn active(&mut self, now: Instant) {
        self.last_activity = now;
    }

    /// Notes how many sent messages wait for an ack.
    pub(super) fn set_unacked(&mut self, unacked: usize, now: Instant, overdue_after: Option<Duration>) {
        if unacked == 0 {
            (self.unacked_since, self.overdue_at) = (None, None);
            return;
        }
        self.unacked_since.get_or_insert(now);
        if let Some(after) = overdue_after {
            self.overdue_at.get_or_insert(now + after);
        }
    }

    /// An ack freed part of the window.
    pub(super) fn window_moved(&mut self) {
        self.unacked_since = None;
    }

    /// The wait for acks starts anew: it was not the client that held them up.
    pub(super) fn restart_ack_timeout(&mut self, now: Instant) {
        self.unacked_since = self.unacked_since.map(|_| now);
    }

    /// A client with a backlog answers late: its pongs and acks wait behind what it has not read
    /// yet. The rate at which it reads is judged instead.
    pub(super) fn excuse_backlog(&mut self, now: Instant) {
        self.last_heard = now;
        self.restart_ack_timeout(now);
    }

    pub(super) fn retry_later(&mut self, now: Instant) {
        self.retry_at = Some(now + RETRY);
    }

    pub(super) fn may_retry(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| at <= now)
    }

    /// The heartbeat, if it is due.
    pub(super) fn beat(&mut self, now: Instant, config: &SessionConfig) -> Option<Heartbeat> {
        if now < self.beat_at {
            return None;
        }
        self.beat_at = now + config.heartbeat;
        let must_reconcile = now >= self.reconcile_at;
        if must_reconcile {
            self.reconcile_at = now + config.reconcile_every;
        }
        // A reconcile reads from an overlap before the last one, and must not send again what it
        // finds there.
        let reach = config.overlap + config.reconcile_every;
        let is_idle = now.duration_since(self.last_activity) > reach;
        Some(Heartbeat { must_reconcile, idle_for: is_idle.then_some(reach) })
    }

    pub(super) fn is_overdue_search_due(&self, now: Instant) -> bool {
        self.overdue_at.is_some_and(|at| at <= now)
    }

    pub(super) fn search_overdue_at(&mut self, at: Option<Instant>) {
        self.overdue_at = at;
    }

    /// Why the session must end, if the client was silent, or did not ack, for too long (R13).
    pub(super) fn timed_out(&self, now: Instant, config: &SessionConfig) -> Option<WireError> {
        let silence_max = config.heartbeat * 2 + config.heartbeat / 2;
        if now.duration_since(self.last_heard) > silence_max {
            let why = "nothing was heard of this client";
            return Some(WireError::new(ErrorCode::HeartbeatTimeout, why));
        }
        if self.unacked_since.is_some_and(|since| now.duration_since(since) >= config.ack_timeout) {
            let why = "messages were delivered and not acked in time";
            return Some(WireError::new(ErrorCode::SlowReader, why));
        }
        None
    }

    pub(super) fn next_deadline(&self, now: Instant, config: &SessionConfig) -> Instant {
        let deadlines = [
            self.unacked_since.map(|since| since + config.ack_timeout),
            self.overdue_at,
            self.retry_at.filter(|&at| at > now),
        ];
        deadlines.into_iter().flatten().fold(self.beat_at, Instant::min)
    }
}

/// The token of a session, as far as time matters.
pub(super) struct TokenLifetime {
    /// In seconds since 1970.
    issued_at: Option<u64>,
    /// In milliseconds since 1970.
    expires_at: Option<u64>,
    /// When to compare `expires_at` with the wall clock.
    check_at: Option<Instant>,
}

impl TokenLifetime {
    pub(super) fn new(identity: &Identity, now: Instant) -> TokenLifetime {
        let Identity { expires_at, issued_at, .. } = *identity;
        TokenLifetime { issued_at, expires_at, check_at: expires_at.map(|_| now) }
    }

    pub(super) fn issued_at(&self) -> Option<u64> {
        self.issued_at
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.check_at
    }

    /// Why the session must end, if the token has expired. The wall clock may jump, so it is
    /// compared when the token may have expired and at least every `recheck`.
    pub(super) fn expired(
        &mut self,
        now: Instant,
        clock: &dyn Clock,
        recheck: Duration,
    ) -> Option<WireError> {
        let expires_at = self.expires_at?;
        if self.check_at.is_none_or(|at| at > now) {
            return None;
        }
        let left = expires_at.saturating_sub(clock.now_ms());
        self.check_at = Some(now + Duration::from_millis(left).min(recheck));
        let why = "the token has expired; send auth with a fresh one in time";
        (left == 0).then(|| WireError::new(ErrorCode::TokenExpired, why))
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::UserId;
    use bluetick_store::ManualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config() -> SessionConfig {
        SessionConfig {
            heartbeat: 20 * SECOND,
            ack_timeout: 30 * SECOND,
            reconcile_every: 60 * SECOND,
            overlap: 60 * SECOND,
            ..SessionConfig::default()
        }
    }

    fn timers(now: Instant) -> Timers {
        Timers::new(now, &config(), 1.0)
    }

    #[test]
    fn every_third_heartbeat_reconciles_and_an_idle_session_forgets() {
        let began = Instant::now();
        let mut timers = timers(began);
        assert_eq!(timers.beat(began + 19 * SECOND, &config()), None);
        let beats = (1..=7).map(|n| timers.beat(began + n * 20 * SECOND, &config()).unwrap());
        let (reconciles, idle): (Vec<_>, Vec<_>) =
            beats.map(|beat| (beat.must_reconcile, beat.idle_for.is_some())).unzip();
        assert_eq!(reconciles, [false, false, true, false, false, true, false]);
        assert_eq!(idle, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn a_silent_client_and_a_client_that_does_not_ack_time_out() {
        let began = Instant::now();
        let code = |timers: &Timers, at| timers.timed_out(began + at, &config()).map(|e| e.code);
        let mut timers = timers(began);
        assert_eq!(code(&timers, 50 * SECOND), None);
        assert_eq!(code(&timers, 51 * SECOND), Some(ErrorCode::HeartbeatTimeout));
        timers.heard(began + 50 * SECOND);
        assert_eq!(code(&timers, 51 * SECOND), None);
        timers.set_unacked(1, began + 50 * SECOND, None);
        timers.set_unacked(2, began + 60 * SECOND, None);
        assert_eq!(code(&timers, 79 * SECOND), None);
        assert_eq!(code(&timers, 80 * SECOND), Some(ErrorCode::SlowReader));
        timers.excuse_backlog(began + 80 * SECOND);
        assert_eq!(code(&timers, 80 * SECOND), None);
        timers.set_unacked(0, began + 81 * SECOND, None);
        assert_eq!(code(&timers, 120 * SECOND), None);
    }

    #[test]
    fn the_next_deadline_is_the_earliest() {
        let began = Instant::now();
        let next = |timers: &Timers| timers.next_deadline(began, &config()) - began;
        let mut timers = timers(began);
        assert_eq!(next(&timers), 20 * SECOND, "the heartbeat");
        timers.set_unacked(1, began, Some(5 * SECOND));
        assert_eq!(next(&timers), 5 * SECOND, "overdue acks");
        timers.retry_later(began);
        assert_eq!(next(&timers), RETRY);
        assert!(!timers.may_retry(began) && timers.may_retry(began + RETRY));
        let later = timers.next_deadline(began + RETRY, &config()) - began;
        assert_eq!(later, 5 * SECOND, "a retry that is due waits for no timer");
        timers.search_overdue_at(None);
        assert_eq!(timers.next_deadline(began + RETRY, &config()) - began, 20 * SECOND);
    }

    #[test]
    fn a_token_expires_by_the_wall_clock_and_is_checked_with_every_heartbeat() {
        let (began, clock) = (Instant::now(), ManualClock::new(1_000_000));
        let identity = |expires_at| Identity {
            user: UserId::new("bob").unwrap(),
            expires_at,
            profile: None,
            issued_at: None,
        };
        let mut forever = TokenLifetime::new(&identity(None), began);
        assert!(forever.deadline().is_none() && forever.expired(began, &clock, SECOND).is_none());
        let mut token = TokenLifetime::new(&identity(Some(1_005_000)), began);
        assert!(token.expired(began, &clock, 20 * SECOND).is_none());
        assert_eq!(token.deadline(), Some(began + 5 * SECOND));
        clock.advance(60_000);
        assert!(token.expired(began + SECOND, &clock, 20 * SECOND).is_none(), "not before it is due");
        let error = token.expired(began + 5 * SECOND, &clock, 20 * SECOND).unwrap();
        assert_eq!(error.code, ErrorCode::TokenExpired);
    }
}
