//! The parameters of a run, drawn from its seed: sizes, fault rates, and a schedule of events.

use std::{ops::RangeInclusive, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::device::DeviceCommand;
use bluetick_protocol::UserId;

#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    /// Devices of each user.
    pub users: Vec<usize>,
    pub gateways: usize,
    pub apps: usize,
    pub window: usize,
    pub heartbeat: Duration,
    pub ttl: Duration,
    pub overlap: Duration,
    /// The longest delay of one network hop.
    pub delay_max_ms: u64,
    /// The largest clock skew of a process.
    pub skew_max_ms: i64,
    pub error_rate: f64,
    pub lost_answer_rate: f64,
    pub late_write_rate: f64,
    /// Crash probabilities of an app server and a gateway, before and after each step.
    pub app_crash_rate: f64,
    pub gateway_crash_rate: f64,
    /// Whether devices may lose their state and reconnect without a cursor.
    pub forgetful: bool,
    /// Whether devices without a cursor are served from pending rows alone. Serving everything that
    /// no device has acked would repair whatever is wrong with the rows and so hide a broken rule
    /// about them. Only the crash of a gateway needs it, so such runs have none.
    pub rows_alone: bool,
    /// Whether sessions reconcile every minute. That repairs so much that a broken rule would not
    /// be seen. Runs without it have no fault that only it repairs: no lookup of an app server
    /// fails, no pending row is written after its writer gave up, and the session store does not
    /// lose an entry and restore it. The exception is the crash of an app server that had notices
    /// to send: see `notices.rs`.
    pub safety_net: bool,
    /// Events and their millisecond, in order.
    pub schedule: Vec<(u64, ScheduledEvent)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduledEvent {
    Device {
        user: usize,
        device: usize,
        command: DeviceCommand,
    },
    BackendSend {
        from: usize,
        to: usize,
        id: String,
    },
    FlushRegistry,
    /// The session store loses its recent writes: a replica that lagged behind takes over.
    RegistryFallsBack(u64),
    FallBack {
        a: usize,
        b: usize,
        by: u64,
    },
    CrashApp(usize),
    CrashGateway(usize),
    /// All processes at once.
    CrashAll,
    PauseGateway(usize, u64),
    PauseApp(usize, u64),
    CutOffGateway(usize, u64),
    CutOffApp(usize, u64),
}

pub fn user_id(n: usize) -> UserId {
    let name = ["ann", "bob", "cy", "dee", "eve", "fay"][n % 6];
    match UserId::new(name) {
        Ok(id) => id,
        Err(_) => unreachable!("the names above are good ids"),
    }
}

impl Setup {
    pub fn without_faults() -> Setup {
        Setup {
            seed: 0,
            users: vec![1, 1],
            gateways: 1,
            apps: 1,
            window: 256,
            heartbeat: Duration::from_secs(20),
            ttl: Duration::from_secs(60),
            overlap: Duration::from_secs(60),
            delay_max_ms: 0,
            skew_max_ms: 0,
            error_rate: 0.0,
            lost_answer_rate: 0.0,
            late_write_rate: 0.0,
            app_crash_rate: 0.0,
            gateway_crash_rate: 0.0,
            forgetful: false,
            rows_alone: false,
            safety_net: true,
            schedule: Vec::new(),
        }
    }

    pub fn draw(seed: u64) -> Setup {
        let mut rng = StdRng::seed_from_u64(seed);
        let rng = &mut rng;
        // Mostly small runs: they are fast, and their traces are easy to read.
        let (users, messages, span_ms) = match rng.random_range(0..20) {
            0..12 => (2, rng.random_range(1..=6), rng.random_range(50..=8_000)),
            12..19 => (rng.random_range(2..=3), rng.random_range(4..=30), rng.random_range(500..=120_000)),
            _ => (rng.random_range(2..=6), rng.random_range(30..=300), rng.random_range(5_000..=300_000)),
        };
        // The probability of each kind of fault: some runs have none, some have all.
        let much = *[0.0, 0.25, 0.25, 0.5, 1.0].choose(rng).unwrap_or(&0.25);
        let is_in = |rng: &mut StdRng| rng.random_bool(much);
        let rate = |rng: &mut StdRng, rates: &[f64]| match rng.random_bool(much) {
            true => rates.choose(rng).copied().unwrap_or(0.0),
            false => 0.0,
        };
        let forgetful = rng.random_bool(0.5);
        let safety_net = rng.random_bool(0.5);
        let rows_alone = forgetful && !safety_net && rng.random_bool(0.5);
        let heartbeat = Duration::from_secs(*[5, 10, 20].choose(rng).unwrap_or(&20));
        let mut setup = Setup {
            seed,
            users: (0..users).map(|_| rng.random_range(1..=2)).collect(),
            gateways: rng.random_range(1..=3),
            apps: rng.random_range(1..=3),
            window: *[1, 2, 4, 256].choose(rng).unwrap_or(&256),
            heartbeat,
            ttl: heartbeat * 3,
            overlap: Duration::from_secs(*[20, 60].choose(rng).unwrap_or(&60)),
            delay_max_ms: *[0, 2, 10, 50, 300].choose(rng).unwrap_or(&10),
            skew_max_ms: *[0, 0, 500, 3_000].choose(rng).unwrap_or(&0),
            error_rate: rate(rng, &[0.01, 0.05, 0.15]),
            lost_answer_rate: rate(rng, &[0.01, 0.05, 0.15]),
            late_write_rate: if safety_net { rate(rng, &[0.01, 0.03]) } else { 0.0 },
            app_crash_rate: rate(rng, &[0.002, 0.01]),
            gateway_crash_rate: if rows_alone { 0.0 } else { rate(rng, &[0.002, 0.01]) },
            forgetful,
            rows_alone,
            safety_net,
            schedule: Vec::new(),
        };
        // Events come in bursts, so that they overlap.
        let bursts: Vec<u64> = (0..rng.random_range(1..=5)).map(|_| rng.random_range(0..=span_ms)).collect();
        let mut when = {
            let mut rng = StdRng::seed_from_u64(rng.random());
            let spread = setup.delay_max_ms * 4 + 3;
            move || bursts.choose(&mut rng).copied().unwrap_or(0) + rng.random_range(0..=spread)
        };
        let mut all: Vec<(u64, ScheduledEvent)> = Vec::new();
        let two_users = |rng: &mut StdRng| {
            let from = rng.random_range(0..users);
            let to = (from + rng.random_range(1..users)) % users;
            (from, to)
        };
        let a_device = |rng: &mut StdRng, setup: &Setup| {
            let user = rng.random_range(0..users);
            (user, rng.random_range(0..setup.users[user]))
        };
        for n in 0..messages {
            let (from, to) = two_users(rng);
            let happening = match rng.random_bool(0.4) {
                true => ScheduledEvent::BackendSend { from, to, id: format!("b{n}") },
                false => {
                    let device = rng.random_range(0..setup.users[from]);
                    let command = DeviceCommand::Send(user_id(to), format!("d{n}"));
                    ScheduledEvent::Device { user: from, device, command }
                }
            };
            all.push((when(), happening));
        }
        let away = |rng: &mut StdRng| match rng.random_range(0..3) {
            0 => rng.random_range(0..=20),
            1 => rng.random_range(0..=2_000),
            _ => rng.random_range(0..=span_ms + 5_000),
        };
        let few = messages / 3 + 2;
        let moves = [
            (rng.random_range(0..=few), 0),
            (rng.random_range(0..=few), 1),
            (if is_in(rng) { rng.random_range(1..=few) } else { 0 }, 2),
            (if forgetful { rng.random_range(1..=few) } else { 0 }, 3),
            (if is_in(rng) { 1 } else { 0 }, 4),
        ];
        for (count, kind) in moves {
            for _ in 0..count {
                let (user, device) = a_device(rng, &setup);
                let command = match kind {
                    0 => DeviceCommand::Read,
                    1 => DeviceCommand::Break(away(rng)),
                    2 => DeviceCommand::Restart(away(rng)),
                    3 => DeviceCommand::Forget(away(rng)),
                    _ => DeviceCommand::Stall(rng.random_range(100..=40_000)),
                };
                all.push((when(), ScheduledEvent::Device { user, device, command }));
            }
        }
        let long_ms = (setup.ttl.as_millis() as u64) + 5_000;
        for kind in 0..10 {
            let count = if is_in(rng) { rng.random_range(1..=3) } else { 0 };
            for _ in 0..count {
                let (app, gateway) = (rng.random_range(0..setup.apps), rng.random_range(0..setup.gateways));
                let time = if rng.random_bool(0.5) { rng.random_range(100..=5_000) } else { long_ms };
                let (a, b) = two_users(rng);
                all.push((
                    when(),
                    match kind {
                        0 => ScheduledEvent::FlushRegistry,
                        1 => ScheduledEvent::FallBack { a, b, by: rng.random_range(1..=4) },
                        2 => ScheduledEvent::CrashApp(app),
                        3 if !rows_alone => ScheduledEvent::CrashGateway(gateway),
                        8 if !rows_alone => ScheduledEvent::CrashAll,
                        3 | 8 => ScheduledEvent::FlushRegistry,
                        9 if safety_net => ScheduledEvent::RegistryFallsBack(rng.random_range(1..=5_000)),
                        9 => ScheduledEvent::FlushRegistry,
                        4 if safety_net => ScheduledEvent::PauseGateway(gateway, time),
                        4 => ScheduledEvent::PauseGateway(gateway, long_ms),
                        5 => ScheduledEvent::PauseApp(app, time),
                        _ if !safety_net => ScheduledEvent::FlushRegistry,
                        6 => ScheduledEvent::CutOffGateway(gateway, time),
                        _ => ScheduledEvent::CutOffApp(app, time),
                    },
                ));
            }
        }
        if rows_alone || (forgetful && !safety_net && rng.random_bool(0.5)) {
            storm(rng, &setup, &mut all);
        }
        if forgetful && !rows_alone && rng.random_bool(0.5) {
            outages(rng, &setup, &mut all);
        }
        // From a separate generator, so that the other draws of a seed do not change.
        let mut extra = StdRng::seed_from_u64(seed ^ HANGS);
        if !safety_net && extra.random_bool(0.25) {
            hangs(&mut extra, &setup, &mut all);
        }
        all.sort_by_key(|(at, _)| *at);
        setup.schedule = all;
        setup
    }
}

/// Mixed into the seed of the generator for [`hangs`].
const HANGS: u64 = 0x4a46_5000;
/// Longer than the hedge of a hand-over and shorter than its deadline.
const HANG_MS: RangeInclusive<u64> = 260..=1_900;

/// Gateways that hang while messages arrive for their sessions: the pending row is written while
/// the hand-over is in flight, which arrives later unless its app server crashes first.
fn hangs(rng: &mut StdRng, setup: &Setup, all: &mut Vec<(u64, ScheduledEvent)>) {
    let spread = setup.delay_max_ms * 4 + 10;
    for round in 0..rng.random_range(1..=3) {
        let begin = 1_000 + round * 5_000 + rng.random_range(0..=2_000);
        let to = rng.random_range(0..setup.users.len());
        let from = (to + 1) % setup.users.len();
        for gateway in 0..setup.gateways {
            if rng.random_bool(0.7) {
                all.push((begin, ScheduledEvent::PauseGateway(gateway, rng.random_range(HANG_MS))));
            }
        }
        for n in 0..rng.random_range(1..=3) {
            let when = begin + rng.random_range(0..=spread);
            all.push((when, ScheduledEvent::BackendSend { from, to, id: format!("h{round}-{n}") }));
        }
        for app in 0..setup.apps {
            if rng.random_bool(0.5) {
                all.push((begin + rng.random_range(HANG_MS), ScheduledEvent::CrashApp(app)));
            }
        }
    }
}

/// Gateways that crash while devices disconnect and lose their state: no session is left to pay its
/// debts, and no device has a cursor.
fn outages(rng: &mut StdRng, setup: &Setup, all: &mut Vec<(u64, ScheduledEvent)>) {
    let spread = setup.delay_max_ms * 4 + 10;
    for round in 0..rng.random_range(1..=4) {
        let begin = 2_000 + round * 5_000 + rng.random_range(0..=1_000);
        let to = rng.random_range(0..setup.users.len());
        let from = (to + 1) % setup.users.len();
        for n in 0..rng.random_range(1..=4) {
            let when = begin + rng.random_range(0..=spread);
            all.push((when, ScheduledEvent::BackendSend { from, to, id: format!("o{round}-{n}") }));
        }
        for device in 0..setup.users[to] {
            let command = DeviceCommand::Forget(rng.random_range(0..=2_000));
            let when = begin + rng.random_range(0..=spread);
            all.push((when, ScheduledEvent::Device { user: to, device, command }));
        }
        let when = begin + rng.random_range(0..=2 * spread);
        if rng.random_bool(0.5) {
            all.push((when, ScheduledEvent::CrashAll));
        } else {
            all.extend((0..setup.gateways).map(|gateway| (when, ScheduledEvent::CrashGateway(gateway))));
        }
    }
}

/// Devices that connect, drain, lose their session entry and disconnect while messages arrive for
/// them. That is rare in a uniformly drawn run, and it is what the rules about pending rows are
/// for.
fn storm(rng: &mut StdRng, setup: &Setup, all: &mut Vec<(u64, ScheduledEvent)>) {
    let spread = setup.delay_max_ms * 6 + 10;
    for round in 0..rng.random_range(1..=4) {
        let begin = round * 4_000 + rng.random_range(0..=1_000);
        let to = rng.random_range(0..setup.users.len());
        let from = (to + 1) % setup.users.len();
        let at = |rng: &mut StdRng| begin + rng.random_range(0..=spread);
        for device in 0..setup.users[to] {
            let go =
                |away: u64| ScheduledEvent::Device { user: to, device, command: DeviceCommand::Forget(away) };
            let away = rng.random_range(500..=1_500);
            all.push((begin.saturating_sub(away), go(away)));
            all.push((begin + spread + rng.random_range(0..=spread), go(rng.random_range(0..=2_000))));
        }
        for n in 0..rng.random_range(2..=6) {
            // Some are stored before the devices connect.
            let early = if rng.random_bool(0.4) { 400 } else { 0 };
            let when = at(rng).saturating_sub(early);
            all.push((when, ScheduledEvent::BackendSend { from, to, id: format!("s{round}-{n}") }));
        }
        for _ in 0..rng.random_range(1..=2) {
            all.push((at(rng), ScheduledEvent::FlushRegistry));
        }
    }
}
