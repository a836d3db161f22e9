//! The sessions of this process, and the way to them.

use std::{
    collections::{BTreeMap, VecDeque},
    future::ready,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bluetick_protocol::{ConversationId, DeviceId, ErrorCode, Profile, Seq, SessionId, UserId, WireError};
use bluetick_store::SessionEntry;
use futures_util::future::Either;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{Gateways, HandOver, HandingOver, SessionEvent, session::Handle};

const SHARDS: usize = 32;

pub struct Gateway {
    name: Arc<str>,
    shards: Vec<Mutex<BTreeMap<SessionId, Arc<Handle>>>>,
    count: AtomicUsize,
    closing: AtomicBool,
    emptied: Notify,
    held: Mutex<AckedByDevice>,
    token_profiles: Mutex<BTreeMap<UserId, TokenProfile>>,
    /// Looked up once, because it is raised with every message.
    pub(crate) deliveries: metrics::Counter,
}

/// The profile in the newest token of a user that this process has seen.
struct TokenProfile {
    issued_at: Option<u64>,
    hash: u64,
    handed_on_at: Instant,
}

type HeldSeqs = BTreeMap<ConversationId, RangeInclusive<Seq>>;

/// What disconnected devices had acked in their last session, by conversation. A device that
/// resumes that session is spared the overlap before its cursor. Losing this state costs a few
/// redelivered messages.
#[derive(Default)]
struct AckedByDevice {
    by_device: BTreeMap<(UserId, DeviceId), (SessionId, HeldSeqs)>,
    order: VecDeque<(UserId, DeviceId)>,
}

/// Most devices whose acks are remembered after they disconnect.
const HELD_DEVICES_MAX: usize = 10_000;
/// Most users whose token profile is remembered. Forgetting one costs a read of the stored profile.
const TOKEN_PROFILES_MAX: usize = 100_000;
/// After this the same profile is passed on again: it may have been erased or changed meanwhile.
const TOKEN_PROFILE_TTL: Duration = Duration::from_secs(60);

fn hash_of(profile: &Profile) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&profile.name, &profile.avatar_url).hash(&mut hasher);
    hasher.finish()
}

impl Gateway {
    pub fn new(name: &str) -> Gateway {
        Gateway {
            name: name.into(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            emptied: Notify::new(),
            held: Mutex::default(),
            token_profiles: Mutex::default(),
            deliveries: metrics::counter!("bluetick_deliveries_total"),
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the sessions of this process are ending.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether a token's profile need not be passed on: it was already, or a newer token differs.
    /// An older token must not set a name back.
    pub(crate) fn knows_token_profile(
        &self,
        user: &UserId,
        profile: &Profile,
        issued_at: Option<u64>,
    ) -> bool {
        self.token_profiles.lock().get(user).is_some_and(|known| {
            let is_same = known.hash == hash_of(profile) && known.handed_on_at.elapsed() < TOKEN_PROFILE_TTL;
            is_same || known.issued_at > issued_at
        })
    }

    pub(crate) fn remember_token_profile(&self, user: &UserId, profile: &Profile, issued_at: Option<u64>) {
        let mut known = self.token_profiles.lock();
        if known.len() >= TOKEN_PROFILES_MAX {
            known.clear();
        }
        let handed_on_at = Instant::now();
        known.insert(user.clone(), TokenProfile { issued_at, hash: hash_of(profile), handed_on_at });
    }

    pub fn session_count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn shard(&self, id: SessionId) -> &Mutex<BTreeMap<SessionId, Arc<Handle>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    pub(crate) fn insert(&self, id: SessionId, handle: Arc<Handle>) {
        self.shard(id).lock().insert(id, handle.clone());
        self.count.fetch_add(1, Ordering::AcqRel);
        // Read after the insertion: either the shutdown finds the session, or the session sees the
        // shutdown.
        if self.closing.load(Ordering::Acquire) {
            handle.offer(SessionEvent::Close(shutting_down()));
        }
    }

    pub(crate) fn remove(&self, id: SessionId) {
        if self.shard(id).lock().remove(&id).is_some() && self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.notify_waiters();
        }
    }

    pub(crate) fn remember_held(&self, entry: &SessionEntry, acked: HeldSeqs) {
        let device = (entry.user_id.clone(), entry.device.clone());
        let mut held = self.held.lock();
        if held.by_device.insert(device.clone(), (entry.session_id, acked)).is_none() {
            held.order.push_back(device);
        }
        if held.order.len() > HELD_DEVICES_MAX
            && let Some(oldest) = held.order.pop_front()
        {
            held.by_device.remove(&oldest);
        }
    }

    /// What the device acked in the session that it resumes. That session may not have noticed yet
    /// that its connection is gone.
    pub(crate) fn held_by(&self, entry: &SessionEntry, resumes: Option<SessionId>) -> HeldSeqs {
        let Some(resumed) = resumes else { return HeldSeqs::new() };
        let live = self.shard(resumed).lock().get(&resumed).cloned();
        if let Some(acked) = live.and_then(|handle| handle.acked_by(&entry.user_id)) {
            return acked;
        }
        let device = (entry.user_id.clone(), entry.device.clone());
        match self.held.lock().by_device.get(&device) {
            Some((session, acked)) if *session == resumed => acked.clone(),
            _ => HeldSeqs::new(),
        }
    }

    /// Asks every session to end. Each pays its debts and sends `bye` with its own reconnect delay.
    pub fn shut_down(&self) {
        self.closing.store(true, Ordering::Release);
        for shard in &self.shards {
            for handle in shard.lock().values() {
                handle.offer(SessionEvent::Close(shutting_down()));
            }
        }
    }

    /// Asks the sessions to end one after another, in random order and spread over the given time,
    /// so that clients do not all reconnect at once. New sessions end immediately.
    pub async fn drain(&self, over: Duration, seed: u64) {
        self.closing.store(true, Ordering::Release);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut sessions: Vec<SessionId> =
            self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect();
        sessions.shuffle(&mut rng);
        let (began, share) = (Instant::now(), over.div_f64(sessions.len().max(1) as f64));
        for (place, id) in sessions.into_iter().enumerate() {
            sleep_until(began + share.mul_f64(place as f64 + rng.random_range(0.0..1.0))).await;
            // A session that has ended by itself is gone already.
            let handle = self.shard(id).lock().get(&id).cloned();
            if let Some(handle) = handle {
                handle.offer(SessionEvent::Close(shutting_down()));
            }
        }
    }

    fn offer(&self, to: &SessionEntry, event: SessionEvent) -> HandOver {
        if to.gateway != self.name {
            return HandOver::Refused;
        }
        let handle = self.shard(to.session_id).lock().get(&to.session_id).cloned();
        handle.map_or(HandOver::Refused, |handle| handle.offer_to(&to.user_id, event))
    }

    /// Resolves when no session is left.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.session_count() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

fn shutting_down() -> WireError {
    WireError::new(ErrorCode::ShuttingDown, "the server is restarting")
}

impl Gateways for Gateway {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        Either::Left(ready(self.offer(to, event)))
    }
}
