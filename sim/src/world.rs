//! One run: all processes, devices and stores.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{
    App, ChatConfig, ChatService, DeliveryObserver, RemoteApp, Unlimited,
    session::{Identity, SessionConfig, SessionHost, TokenCheck},
};
use bluetick_protocol::{ClientMsgId, ConversationId, DeviceId, ErrorCode, UserId, WireError};
use bluetick_store::{
    Clock, Memory, MemorySessions, Messages, SessionEntry, SessionStore, testing::faults::Faulty,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use rand::RngExt;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Breach, Breaches, backend,
    check::{self, Wrong},
    client_script::Recorder,
    device::{DeviceCommand, DeviceView, SimDevice},
    line::{LineSink, LineSource},
    network::{AppBackground, AppServer, Apps, GatewayServer, GatewaysOf},
    policy::SeededFaults,
    process::{Process, spawn_beyond},
    setup::{ScheduledEvent, Setup, user_id},
    sim::{FaultCounts, Numbers, Sim, SkewedClock, note},
    store::{AppStore, Inboxes},
};

/// How long devices have to connect before anything happens, in runs where they need a cursor.
const WARM_UP: Duration = Duration::from_secs(5);
/// The poll interval for convergence, and the most polls.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
const POLLS_MAX: usize = 15;
/// How often the state of the session store is recorded, in runs in which it falls back.
const REMEMBER_EVERY: Duration = Duration::from_millis(200);
/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    pub seed: u64,
    pub messages: u64,
    pub faults: FaultCounts,
    /// Whether devices had to reconnect, because notices were lost with an app server.
    pub excused: bool,
    pub violations: Vec<String>,
    pub trace: Vec<String>,
}

/// Where devices connect: a random gateway.
pub struct Doors {
    sim: Arc<Sim>,
    gateways: Arc<Vec<GatewayServer>>,
    hosts: Vec<HostParts>,
    numbers: Numbers,
}

struct HostParts {
    app: Arc<dyn App>,
    registry: Arc<dyn SessionStore>,
    clock: Arc<SkewedClock>,
    config: SessionConfig,
}

impl Doors {
    /// Opens a connection to a gateway; false if it is down.
    pub fn enter(&self, source: LineSource, sink: LineSink) -> bool {
        let n = self.sim.draw(|rng| rng.random_range(0..self.gateways.len()));
        let server = &self.gateways[n];
        if !server.process.is_up() {
            return false;
        }
        let HostParts { app, registry, clock, config } = &self.hosts[n];
        let host = SessionHost {
            app: app.clone(),
            registry: registry.clone(),
            gateway: server.gateway(),
            tokens: Arc::new(TokenIsUser),
            clock: clock.clone(),
            config: config.clone(),
            observer: Arc::new(DeliveryObserver::new(clock.clone())),
            budget: Arc::new(Unlimited),
        };
        let seed = self.numbers.next();
        server.process.spawn(async move { host.run(source, sink, seed).await });
        true
    }
}

/// The token is the user's id.
struct TokenIsUser;

#[async_trait]
impl TokenCheck for TokenIsUser {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        let user = UserId::new(token);
        let user = user.map_err(|e| WireError::new(ErrorCode::Unauthorized, e.to_string()))?;
        Ok(Identity { user, expires_at: None, profile: None, issued_at: None })
    }
}

pub struct KnownSimDevice {
    pub user: UserId,
    pub name: DeviceId,
    pub seen: Arc<Mutex<DeviceView>>,
    home: Arc<Notify>,
    commands: mpsc::UnboundedSender<DeviceCommand>,
}

pub struct SimWorld {
    pub sim: Arc<Sim>,
    pub memory: Arc<Memory>,
    registry: Arc<MemorySessions>,
    /// Its recorded states, with their times.
    registry_states: Mutex<Vec<(Instant, Vec<SessionEntry>)>>,
    apps: Arc<Vec<AppServer>>,
    gateways: Arc<Vec<GatewayServer>>,
    outside: Arc<RemoteApp<Apps>>,
    /// Of each user.
    pub devices: Vec<Vec<KnownSimDevice>>,
}

/// Runs one seed, with some of the rules broken.
pub fn run(seed: u64, without: &[Breach], traced: bool) -> RunOutcome {
    run_setup(Setup::draw(seed), without, traced)
}

pub fn run_setup(setup: Setup, without: &[Breach], traced: bool) -> RunOutcome {
    run_recorded(setup, without, traced, None)
}

/// The same, with a recorder of what one device does.
pub fn run_recorded(
    setup: Setup,
    without: &[Breach],
    traced: bool,
    recorder: Option<Arc<Mutex<Recorder>>>,
) -> RunOutcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let seed = setup.seed;
    match runtime {
        Ok(runtime) => runtime.block_on(async move {
            let mut without = without.to_vec();
            without.extend(setup.rows_alone.then_some(Breach::R6Undelivered));
            let sim = Sim::recorded(setup, traced, recorder);
            let world = SimWorld::new(sim.clone(), Breaches::of(without));
            world.play().await;
            let mut violations = std::mem::take(&mut sim.history.lock().violations);
            violations.dedup();
            for violation in &violations {
                note!(sim, "VIOLATION: {violation}");
            }
            let messages = sim.history.lock().stored.len() as u64;
            let faults = *sim.faults.lock();
            let excused = sim.history.lock().excused;
            RunOutcome { seed, messages, faults, excused, violations, trace: sim.take_trace() }
        }),
        Err(e) => RunOutcome {
            seed,
            messages: 0,
            faults: FaultCounts::default(),
            excused: false,
            violations: vec![format!("the run could not begin: {e}")],
            trace: Vec::new(),
        },
    }
}

impl SimWorld {
    fn new(sim: Arc<Sim>, breaches: Breaches) -> SimWorld {
        let setup = sim.setup.clone();
        let skewed = || {
            let max = setup.skew_max_ms;
            let skew = sim.draw(|rng| rng.random_range(-max..=max));
            Arc::new(SkewedClock::new(sim.clone(), skew))
        };
        let true_clock: Arc<dyn Clock> = Arc::new(SkewedClock::new(sim.clone(), 0));
        let memory = Arc::new(Memory::new(true_clock.clone()));
        let inboxes: Arc<Inboxes> = Arc::default();
        let registry = Arc::new(MemorySessions::new(true_clock));
        let faults_of = |process: &Arc<Process>, reliable| {
            let (sim, process) = (sim.clone(), process.clone());
            SeededFaults { sim, process, memory: memory.clone(), sessions: registry.clone(), reliable }
        };
        let registry_of = |process: &Arc<Process>, reliable| {
            Arc::new(Faulty::new(registry.clone(), Arc::new(faults_of(process, reliable))))
        };
        let gateway = |n| GatewayServer::new(Process::new(format!("g{n}"), setup.gateway_crash_rate));
        let gateways: Arc<Vec<_>> = Arc::new((1..=setup.gateways).map(gateway).collect());
        let chat = ChatConfig { resume_overlap: setup.overlap, ..ChatConfig::default() };
        let app = |n: usize| {
            let process = Process::new(format!("a{n}"), setup.app_crash_rate);
            let clock = skewed();
            let store = AppStore::of_app(faults_of(&process, false), &inboxes, clock.clone(), n as u16);
            let store = store.into_store(registry_of(&process, !setup.safety_net));
            let asker = process.clone();
            let to = Arc::new(GatewaysOf { sim: sim.clone(), asker, servers: gateways.clone() });
            let background = Arc::new(AppBackground(process.clone()));
            let (store, to) = (breaches.store(store), breaches.gateways(to));
            let node = ChatService::new(store, to, clock, chat.clone(), Arc::new(Unlimited));
            let node = node.with_spawner(background);
            AppServer { process, node: Arc::new(node) }
        };
        let apps: Arc<Vec<_>> = Arc::new((1..=setup.apps).map(app).collect());
        let apps_of =
            |asker| Arc::new(RemoteApp(Arc::new(Apps { sim: sim.clone(), asker, servers: apps.clone() })));
        let config = SessionConfig {
            window: setup.window,
            heartbeat: setup.heartbeat,
            ttl: setup.ttl,
            overlap: setup.overlap,
            reconnect_spread: Duration::from_millis(500),
            reconcile_every: if setup.safety_net { setup.overlap } else { NEVER },
            ..SessionConfig::default()
        };
        let host = |server: &GatewayServer| {
            let app = apps_of(Some(server.process.clone()));
            let (app, registry) = breaches.sessions(app, registry_of(&server.process, false));
            HostParts { app, registry, clock: skewed(), config: config.clone() }
        };
        let doors = Arc::new(Doors {
            sim: sim.clone(),
            gateways: gateways.clone(),
            hosts: gateways.iter().map(host).collect(),
            numbers: Numbers::default(),
        });
        let device = |user: UserId, n: usize| {
            let name = if n == 0 { "phone" } else { "tablet" };
            let Ok(name) = DeviceId::new(name) else { unreachable!("a good id") };
            let (commands, obeyed) = mpsc::unbounded_channel();
            let device = SimDevice::new(sim.clone(), doors.clone(), user.clone(), name.clone(), obeyed);
            let known =
                KnownSimDevice { user, name, seen: device.seen.clone(), home: device.home.clone(), commands };
            let first_away = if setup.forgetful { sim.draw(|rng| rng.random_range(0..=6_000)) } else { 0 };
            spawn_beyond(device.live(first_away));
            known
        };
        let of_user = |(n, count): (usize, &usize)| (0..*count).map(|d| device(user_id(n), d)).collect();
        let devices = setup.users.iter().enumerate().map(of_user).collect();
        let outside = apps_of(None);
        SimWorld {
            memory,
            registry,
            registry_states: Mutex::default(),
            apps,
            gateways,
            outside,
            devices,
            sim,
        }
    }

    /// Plays the schedule, stops the faults, and checks the result.
    async fn play(&self) {
        if !self.sim.setup.forgetful {
            self.warm_up().await;
        }
        let begin = Instant::now();
        let mut remember_at = begin;
        for (at, happening) in &self.sim.setup.schedule {
            let at = begin + Duration::from_millis(*at);
            while remember_at < at && self.registry_may_fall_back() {
                sleep_until(remember_at).await;
                self.remember_registry();
                remember_at += REMEMBER_EVERY;
            }
            sleep_until(at).await;
            self.happen(happening);
        }
        // The last events get their share of the faults too.
        sleep(Duration::from_secs(2)).await;
        self.calm_down();
        let mut wrong = self.comes_right().await;
        let is_excused = !wrong.is_empty() && wrong.iter().all(|wrong| wrong.is_excused);
        if is_excused && !self.sim.setup.safety_net {
            // Sessions do not reconcile in this run. A drain must find it.
            for wrong in &wrong {
                note!(self.sim, "a lost notice excuses: {wrong}");
            }
            note!(self.sim, "every device connects anew");
            self.sim.history.lock().excused = true;
            for device in self.devices.iter().flatten() {
                let _ = device.commands.send(DeviceCommand::Break(0));
            }
            wrong = self.comes_right().await;
        }
        let wrong = wrong.iter().map(|wrong| wrong.to_string());
        self.sim.history.lock().violations.extend(wrong);
    }

    /// Waits until everything has converged. Returns what has not.
    async fn comes_right(&self) -> Vec<Wrong> {
        for _ in 0..POLLS_MAX {
            sleep(POLL_INTERVAL).await;
            if check::is_right(self).await.is_empty() {
                return Vec::new();
            }
        }
        check::is_right(self).await
    }

    fn registry_may_fall_back(&self) -> bool {
        let falls_back = |(_, happening): &(u64, ScheduledEvent)| {
            matches!(happening, ScheduledEvent::RegistryFallsBack(_))
        };
        self.sim.setup.schedule.iter().any(falls_back)
    }

    /// Records the state of the session store, to fall back to later.
    fn remember_registry(&self) {
        let entries = self.users().iter().flat_map(|user| self.sessions_of(user)).collect();
        self.registry_states.lock().push((Instant::now(), entries));
    }

    /// Every device connects once and catches up without faults, so that it has a cursor.
    async fn warm_up(&self) {
        self.sim.set_calm(true);
        sleep(WARM_UP).await;
        self.sim.set_calm(false);
    }

    fn happen(&self, happening: &ScheduledEvent) {
        let sim = &self.sim;
        if sim.is_traced() && !matches!(happening, ScheduledEvent::Device { .. }) {
            note!(sim, "{happening:?}");
        }
        let ms = Duration::from_millis;
        match happening {
            ScheduledEvent::Device { user, device, command } => {
                let _ = self.devices[*user][*device].commands.send(command.clone());
            }
            ScheduledEvent::BackendSend { from, to, id } => {
                let Ok(id) = ClientMsgId::new(id) else { return };
                let (from, to) = (user_id(*from), user_id(*to));
                spawn_beyond(backend::send(sim.clone(), self.outside.clone(), from, to, id));
            }
            ScheduledEvent::FlushRegistry => {
                sim.count(|f| f.flushes += 1);
                let _ = self.registry.flush().now_or_never();
            }
            ScheduledEvent::RegistryFallsBack(by) => {
                sim.count(|f| f.flushes += 1);
                let then = Instant::now().checked_sub(ms(*by));
                let states = self.registry_states.lock();
                let state = states.iter().rev().find(|(at, _)| then.is_some_and(|then| *at <= then));
                let entries = state.map(|(_, entries)| entries.clone()).unwrap_or_default();
                let _ = self.registry.flush().now_or_never();
                for entry in entries {
                    let _ = self.registry.register(&entry, sim.setup.ttl, usize::MAX).now_or_never();
                }
            }
            ScheduledEvent::FallBack { a, b, by } => {
                if let Some(id) = ConversationId::between(&user_id(*a), &user_id(*b)) {
                    sim.count(|f| f.fall_backs += 1);
                    let last = self.memory.last_seq(&id).now_or_never().and_then(Result::ok).unwrap_or(0);
                    self.memory.fall_back(&id, last.saturating_sub(*by));
                }
            }
            ScheduledEvent::CrashApp(n) => self.apps[*n].process.crash(sim),
            ScheduledEvent::CrashGateway(n) => self.gateways[*n].process.crash(sim),
            ScheduledEvent::CrashAll => {
                self.apps.iter().for_each(|app| app.process.crash(sim));
                self.gateways.iter().for_each(|gateway| gateway.process.crash(sim));
            }
            ScheduledEvent::PauseGateway(n, time) => {
                sim.count(|f| f.pauses += 1);
                self.gateways[*n].process.pause(ms(*time));
            }
            ScheduledEvent::PauseApp(n, time) => {
                sim.count(|f| f.pauses += 1);
                self.apps[*n].process.pause(ms(*time));
            }
            ScheduledEvent::CutOffGateway(n, time) => {
                sim.count(|f| f.partitions += 1);
                self.gateways[*n].process.cut_off(ms(*time));
            }
            ScheduledEvent::CutOffApp(n, time) => {
                sim.count(|f| f.partitions += 1);
                self.apps[*n].process.cut_off(ms(*time));
            }
        }
    }

    /// Stops the faults. Every device is connected or connecting from here on.
    fn calm_down(&self) {
        note!(self.sim, "CALM");
        self.sim.set_calm(true);
        for device in self.devices.iter().flatten() {
            device.home.notify_one();
        }
    }
}

impl SimWorld {
    pub fn users(&self) -> BTreeSet<UserId> {
        self.devices.iter().flatten().map(|device| device.user.clone()).collect()
    }

    /// The entries of a user in the session store.
    pub fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        self.registry.lookup(user).now_or_never().and_then(Result::ok).unwrap_or_default()
    }

    pub fn conversations(&self) -> Vec<ConversationId> {
        let history = self.sim.history.lock();
        let mut all: Vec<_> = history.stored.keys().map(|(id, _)| id.clone()).collect();
        all.dedup();
        all
    }
}
