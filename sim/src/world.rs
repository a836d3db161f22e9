//! All of it together, for one run.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{
    ChatConfig, ChatService, RemoteApp, Rule, Rules, Unlimited,
    session::{Identity, SessionConfig, SessionHost, TokenCheck},
};
use bluetick_protocol::{ClientMsgId, ConversationId, DeviceId, ErrorCode, UserId, WireError};
use bluetick_store::{Clock, Memory, MemorySessions, Messages, SessionEntry, SessionStore};
use futures_util::FutureExt;
use parking_lot::Mutex;
use rand::RngExt;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    backend,
    check::{self, Wrong},
    device::{Command, Device, Seen},
    line::{Sink, Source},
    network::{AppBackground, AppServer, Apps, GatewayServer, GatewaysOf},
    process::{Process, spawn_beyond},
    registry::Registry,
    setup::{Happening, Setup, user_id},
    sim::{Faults, Numbers, Sim, SkewedClock, note},
    store::{AppStore, Inboxes},
};

/// How long devices have to come up before anything happens, in runs that need them to have a cursor.
const WARM_UP: Duration = Duration::from_secs(5);
/// How often it is looked whether everything has come right, and for how long at most.
const LOOK_EVERY: Duration = Duration::from_secs(20);
const LOOKS_MAX: usize = 15;
/// How often the state of the session store is remembered, in runs in which it falls back.
const REMEMBER_EVERY: Duration = Duration::from_millis(200);
/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub seed: u64,
    pub messages: u64,
    pub faults: Faults,
    /// Whether devices had to connect anew, because of notices that were lost with an app server.
    pub excused: bool,
    pub violations: Vec<String>,
    pub trace: Vec<String>,
}

/// Where devices connect: any gateway that is up.
pub struct Doors {
    sim: Arc<Sim>,
    gateways: Arc<Vec<GatewayServer>>,
    hosts: Vec<HostParts>,
    numbers: Numbers,
}

struct HostParts {
    apps: Arc<RemoteApp<Apps>>,
    registry: Arc<Registry>,
    clock: Arc<SkewedClock>,
    config: SessionConfig,
    rules: Rules,
}

impl Doors {
    /// Puts a connection before a gateway; false if that one is down.
    pub fn enter(&self, source: Source, sink: Sink) -> bool {
        let n = self.sim.draw(|rng| rng.random_range(0..self.gateways.len()));
        let server = &self.gateways[n];
        if !server.process.is_up() {
            return false;
        }
        let HostParts { apps, registry, clock, config, rules } = &self.hosts[n];
        let host = SessionHost {
            app: apps.clone(),
            registry: registry.clone(),
            gateway: server.gateway(),
            tokens: Arc::new(TokenIsUser),
            clock: clock.clone(),
            config: config.clone(),
            trace: Default::default(),
            budget: Arc::new(Unlimited),
            rules: rules.clone(),
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

pub struct KnownDevice {
    pub user: UserId,
    pub name: DeviceId,
    pub seen: Arc<Mutex<Seen>>,
    home: Arc<Notify>,
    commands: mpsc::UnboundedSender<Command>,
}

pub struct World {
    pub sim: Arc<Sim>,
    pub memory: Arc<Memory>,
    registry: Arc<MemorySessions>,
    /// What it held, and when.
    registry_states: Mutex<Vec<(Instant, Vec<SessionEntry>)>>,
    apps: Arc<Vec<AppServer>>,
    gateways: Arc<Vec<GatewayServer>>,
    outside: Arc<RemoteApp<Apps>>,
    /// Of each user.
    pub devices: Vec<Vec<KnownDevice>>,
}

/// Runs one seed, without some of the rules.
pub fn run(seed: u64, without: &[Rule], traced: bool) -> Outcome {
    run_setup(Setup::draw(seed), without, traced)
}

pub fn run_setup(setup: Setup, without: &[Rule], traced: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let seed = setup.seed;
    match runtime {
        Ok(runtime) => runtime.block_on(async move {
            let mut without = without.to_vec();
            without.extend(setup.rows_alone.then_some(Rule::R6Undelivered));
            let sim = Sim::new(setup, traced);
            let world = World::new(sim.clone(), Rules::without(without));
            world.play().await;
            let mut violations = std::mem::take(&mut sim.history.lock().violations);
            violations.dedup();
            for violation in &violations {
                note!(sim, "VIOLATION: {violation}");
            }
            let messages = sim.history.lock().stored.len() as u64;
            let faults = *sim.faults.lock();
            let excused = sim.history.lock().excused;
            Outcome { seed, messages, faults, excused, violations, trace: sim.take_trace() }
        }),
        Err(e) => Outcome {
            seed,
            messages: 0,
            faults: Faults::default(),
            excused: false,
            violations: vec![format!("the run could not begin: {e}")],
            trace: Vec::new(),
        },
    }
}

impl World {
    fn new(sim: Arc<Sim>, rules: Rules) -> World {
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
        let registry_of = |process: &Arc<Process>, reliable| {
            let (sim, process, inner) = (sim.clone(), process.clone(), registry.clone());
            Arc::new(Registry { sim, process, inner, reliable })
        };
        let gateway = |n| GatewayServer::new(Process::new(format!("g{n}"), setup.gateway_crash_rate));
        let gateways: Arc<Vec<_>> = Arc::new((1..=setup.gateways).map(gateway).collect());
        let chat = ChatConfig { resume_overlap: setup.overlap, ..ChatConfig::default() };
        let app = |n: usize| {
            let process = Process::new(format!("a{n}"), setup.app_crash_rate);
            let clock = skewed();
            let store = AppStore::of_app(&sim, &process, &memory, &inboxes, clock.clone(), n as u16);
            let store = store.into_store(registry_of(&process, !setup.safety_net));
            let asker = process.clone();
            let to = Arc::new(GatewaysOf { sim: sim.clone(), asker, servers: gateways.clone() });
            let background = Arc::new(AppBackground(process.clone()));
            let node = ChatService::new(store, to, clock, chat.clone(), Arc::new(Unlimited));
            let node = node.with_rules(rules.clone()).with_spawner(background);
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
            look_every: if setup.safety_net { setup.overlap } else { NEVER },
            ..SessionConfig::default()
        };
        let host = |server: &GatewayServer| HostParts {
            apps: apps_of(Some(server.process.clone())),
            registry: registry_of(&server.process, false),
            clock: skewed(),
            config: config.clone(),
            rules: rules.clone(),
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
            let device = Device::new(sim.clone(), doors.clone(), user.clone(), name.clone(), obeyed);
            let known =
                KnownDevice { user, name, seen: device.seen.clone(), home: device.home.clone(), commands };
            let first_away = if setup.forgetful { sim.draw(|rng| rng.random_range(0..=6_000)) } else { 0 };
            spawn_beyond(device.live(first_away));
            known
        };
        let of_user = |(n, count): (usize, &usize)| (0..*count).map(|d| device(user_id(n), d)).collect();
        let devices = setup.users.iter().enumerate().map(of_user).collect();
        let outside = apps_of(None);
        World { memory, registry, registry_states: Mutex::default(), apps, gateways, outside, devices, sim }
    }

    /// Everything that happens, then calm, then the verdict.
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
        // Late steps of the last things get their share of the faults too.
        sleep(Duration::from_secs(2)).await;
        self.calm_down();
        let mut wrong = self.comes_right().await;
        let is_excused = !wrong.is_empty() && wrong.iter().all(|wrong| wrong.is_excused);
        if is_excused && !self.sim.setup.safety_net {
            // Sessions do not look for what they missed by themselves here. A drain must find it.
            for wrong in &wrong {
                note!(self.sim, "a lost notice excuses: {wrong}");
            }
            note!(self.sim, "every device connects anew");
            self.sim.history.lock().excused = true;
            for device in self.devices.iter().flatten() {
                let _ = device.commands.send(Command::Break(0));
            }
            wrong = self.comes_right().await;
        }
        let wrong = wrong.iter().map(|wrong| wrong.to_string());
        self.sim.history.lock().violations.extend(wrong);
    }

    /// Waits until everything has come right. Returns what has not.
    async fn comes_right(&self) -> Vec<Wrong> {
        for _ in 0..LOOKS_MAX {
            sleep(LOOK_EVERY).await;
            if check::is_right(self).await.is_empty() {
                return Vec::new();
            }
        }
        check::is_right(self).await
    }

    fn registry_may_fall_back(&self) -> bool {
        let falls_back =
            |(_, happening): &(u64, Happening)| matches!(happening, Happening::RegistryFallsBack(_));
        self.sim.setup.schedule.iter().any(falls_back)
    }

    /// What the session store holds, for when it falls back to it.
    fn remember_registry(&self) {
        let entries = self.users().iter().flat_map(|user| self.sessions_of(user)).collect();
        self.registry_states.lock().push((Instant::now(), entries));
    }

    /// Every device connects once and catches up, so that it has a cursor. Nothing fails meanwhile.
    async fn warm_up(&self) {
        self.sim.set_calm(true);
        sleep(WARM_UP).await;
        self.sim.set_calm(false);
    }

    fn happen(&self, happening: &Happening) {
        let sim = &self.sim;
        if sim.is_traced() && !matches!(happening, Happening::Device { .. }) {
            note!(sim, "{happening:?}");
        }
        let ms = Duration::from_millis;
        match happening {
            Happening::Device { user, device, command } => {
                let _ = self.devices[*user][*device].commands.send(command.clone());
            }
            Happening::BackendSend { from, to, id } => {
                let Ok(id) = ClientMsgId::new(id) else { return };
                let (from, to) = (user_id(*from), user_id(*to));
                spawn_beyond(backend::send(sim.clone(), self.outside.clone(), from, to, id));
            }
            Happening::FlushRegistry => {
                sim.count(|f| f.flushes += 1);
                let _ = self.registry.flush().now_or_never();
            }
            Happening::RegistryFallsBack(by) => {
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
            Happening::FallBack { a, b, by } => {
                if let Some(id) = ConversationId::between(&user_id(*a), &user_id(*b)) {
                    sim.count(|f| f.fall_backs += 1);
                    let last = self.memory.last_seq(&id).now_or_never().and_then(Result::ok).unwrap_or(0);
                    self.memory.fall_back(&id, last.saturating_sub(*by));
                }
            }
            Happening::CrashApp(n) => self.apps[*n].process.crash(sim),
            Happening::CrashGateway(n) => self.gateways[*n].process.crash(sim),
            Happening::CrashAll => {
                self.apps.iter().for_each(|app| app.process.crash(sim));
                self.gateways.iter().for_each(|gateway| gateway.process.crash(sim));
            }
            Happening::PauseGateway(n, time) => {
                sim.count(|f| f.pauses += 1);
                self.gateways[*n].process.pause(ms(*time));
            }
            Happening::PauseApp(n, time) => {
                sim.count(|f| f.pauses += 1);
                self.apps[*n].process.pause(ms(*time));
            }
            Happening::CutOffGateway(n, time) => {
                sim.count(|f| f.partitions += 1);
                self.gateways[*n].process.cut_off(ms(*time));
            }
            Happening::CutOffApp(n, time) => {
                sim.count(|f| f.partitions += 1);
                self.apps[*n].process.cut_off(ms(*time));
            }
        }
    }

    /// From here on nothing fails, and every device is connected or on its way.
    fn calm_down(&self) {
        note!(self.sim, "CALM");
        self.sim.set_calm(true);
        for device in self.devices.iter().flatten() {
            device.home.notify_one();
        }
    }
}

impl World {
    pub fn users(&self) -> BTreeSet<UserId> {
        self.devices.iter().flatten().map(|device| device.user.clone()).collect()
    }

    /// What the session store holds of a user.
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
