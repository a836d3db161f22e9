//! The parts of a process by its roles, and how they are put together: a gateway that asks app servers by RPC, an app
//! server that hands over by RPC, or both in one process, where each calls the other directly.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{
    Admin, App, Background, ChatService, Collector, Gateway, Gateways, Mover, Operator, Push, SendBudget,
    Spawner, Trace, Uploads,
};
use bluetick_store::{Clock, Store};
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::{
    backends::Opened, chance, config::Config, push::Providers, readiness::Readiness, serve::ServeError,
};

/// How often uploads that no message refers to are looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(600);

/// What a process works with, wherever it is done.
pub struct Process {
    pub app: Arc<dyn App>,
    pub operator: Arc<dyn Operator>,
    pub gateway: Arc<Gateway>,
    pub readiness: Arc<Readiness>,
    pub store: Option<Store>,
    pub trace: Arc<Trace>,
    /// What app requests leave to be done after their answers.
    background: Option<Arc<Background>>,
    /// Of a process that notifies devices.
    notifying: Option<Notifying>,
    /// Of a process that moves old messages.
    moving: Option<Moving>,
    /// Held for as long as it is to work.
    _collecting: Option<Collecting>,
    #[cfg(feature = "cluster")]
    membership: Option<cluster::Membership>,
}

/// What the rules are given from outside, besides the store and the ways to sessions.
pub struct Means {
    pub clock: Arc<dyn Clock>,
    pub budget: Arc<dyn SendBudget>,
    /// None where nobody is to be notified.
    pub providers: Option<Arc<Providers>>,
    /// None where there is no place for attachments.
    pub uploads: Option<Arc<dyn Uploads>>,
}

/// The notification service at work. If this is dropped before it has stopped, what is under way stays owed.
struct Notifying {
    push: Arc<Push>,
    task: JoinHandle<()>,
}

impl Drop for Notifying {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The mover of the cold tier at work. If this is dropped before it has stopped, what was begun is finished by the next.
struct Moving {
    mover: Arc<Mover>,
    task: JoinHandle<()>,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The collector at work. It may be ended anywhere: what it has begun the next one finishes.
struct Collecting(JoinHandle<()>);

impl Drop for Collecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Process {
    /// Finishes the hand-overs that requests did not wait for. Each has a deadline of its own.
    pub async fn finish_background(&self) {
        if let Some(background) = &self.background {
            background.idle().await;
        }
    }

    /// Finishes the run that is being moved.
    pub async fn stop_moving(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.mover.stop();
            let _ = (&mut moving.task).await;
        }
    }

    /// Finishes the notifications that are under way and leaves the others to whoever comes next.
    pub async fn stop_notifying(&mut self) {
        if let Some(notifying) = &mut self.notifying {
            notifying.push.stop();
            let _ = (&mut notifying.task).await;
        }
    }

    pub async fn start(config: &Config, opened: Opened, means: Means) -> Result<Process, ServeError> {
        #[cfg(feature = "cluster")]
        if let Some(listen) = config.cluster.listen {
            return cluster::start(config, listen, opened, means).await;
        }
        Process::alone(config, opened, means)
    }

    /// One process that does everything itself.
    fn alone(config: &Config, opened: Opened, means: Means) -> Result<Process, ServeError> {
        let Some(store) = opened.store else {
            return Err(ServeError::Start("a process without a store must be in a cluster".into()));
        };
        if !config.is_one_process() {
            tracing::warn!(
                "the store is shared and [cluster] is not set: a second process like this would not reach the sessions \
                 of this one; set cluster.listen before you start one"
            );
        }
        // On a shared store there may be another such process, for the time of a restart; the entries of its sessions
        // must not be taken for ours.
        let name = match config.is_one_process() {
            true => "local".to_owned(),
            false => format!("local#{:016x}", chance::draw()),
        };
        let gateway = Arc::new(Gateway::new(&name));
        let gateways: Arc<dyn Gateways> = gateway.clone();
        let rules = Rules::new(config, &store, gateways, means);
        let readiness = Readiness {
            store: Some(store.clone()),
            sessions: None,
            push: rules.push.clone(),
            #[cfg(feature = "cluster")]
            servers: None,
        };
        Ok(Process {
            background: Some(rules.background.clone()),
            notifying: rules.notify(),
            moving: rules.begin_moving(config),
            _collecting: rules.collect(),
            trace: rules.trace,
            app: rules.app,
            operator: rules.operator,
            gateway,
            readiness: Arc::new(readiness),
            store: Some(store),
            #[cfg(feature = "cluster")]
            membership: None,
        })
    }

    /// Where others reach this process.
    pub fn cluster_address(&self) -> Option<String> {
        #[cfg(feature = "cluster")]
        if let Some(membership) = &self.membership {
            return Some(membership.address.clone());
        }
        None
    }

    /// Takes it out of the directory, so that nobody new comes.
    pub async fn withdraw(&self) {
        if let Some(moving) = &self.moving {
            moving.mover.stop();
        }
        #[cfg(feature = "cluster")]
        if let Some(membership) = &self.membership {
            membership.announcer.withdraw().await;
        }
    }

    /// Sends the other processes elsewhere, after everything that they asked is answered.
    pub async fn drain_calls(&mut self) {
        #[cfg(feature = "cluster")]
        if let Some(membership) = &mut self.membership {
            membership.listener.drain().await;
        }
    }

    /// Now and then: closes links that nobody needs.
    pub fn sweeper(&self) -> impl Fn() + Send + 'static {
        #[cfg(feature = "cluster")]
        let gateways = self.membership.as_ref().and_then(|membership| membership.gateways.clone());
        move || {
            #[cfg(feature = "cluster")]
            if let Some(gateways) = &gateways {
                gateways.sweep();
            }
        }
    }
}

/// Runs tasks on the runtime of the process.
struct RuntimeSpawner;

impl Spawner for RuntimeSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// What a process with data does.
struct Rules {
    app: Arc<dyn App>,
    operator: Arc<dyn Operator>,
    trace: Arc<Trace>,
    background: Arc<Background>,
    push: Option<Arc<Push>>,
    /// None where there is no object store.
    mover: Option<Arc<Mover>>,
    collector: Option<Arc<Collector>>,
}

impl Rules {
    fn new(config: &Config, store: &Store, gateways: Arc<dyn Gateways>, means: Means) -> Rules {
        let Means { clock, budget, providers, uploads } = means;
        let mut node =
            ChatService::new(store.clone(), gateways.clone(), clock.clone(), config.chat(), budget);
        let push = providers.map(|providers| {
            let settings = config.notifications();
            Arc::new(Push::new(
                store.clone(),
                providers,
                clock.clone(),
                node.trace(),
                settings,
                chance::draw(),
            ))
        });
        if let Some(uploads) = uploads.as_ref().filter(|_| config.attachments.enabled) {
            node = node.with_uploads(uploads.clone());
        }
        if let Some(push) = &push {
            node = node.with_push(push.clone());
        }
        if !config.is_one_process() {
            node = node.with_spawner(Arc::new(RuntimeSpawner));
        }
        let mover = store.cold.objects.as_ref().map(|_| {
            let holder = format!("{:016x}", chance::draw());
            Arc::new(Mover::new(store.clone(), clock.clone(), config.mover(), holder))
        });
        let admin = Admin::new(store.clone(), gateways, node.trace(), clock.clone()).with_push(push.clone());
        let admin = admin.with_mover(mover.clone()).with_uploads(uploads.clone());
        let admin = admin.with_profiles(config.profiles.rules());
        let collector = uploads.map(|uploads| Arc::new(Collector::new(store.clone(), uploads, clock)));
        Rules {
            trace: node.trace(),
            background: node.background(),
            app: Arc::new(node),
            operator: Arc::new(admin),
            push,
            mover,
            collector,
        }
    }

    /// Sets the mover to work, if there is one and it is wanted.
    fn begin_moving(&self, config: &Config) -> Option<Moving> {
        let mover = self.mover.clone().filter(|_| config.cold.enabled)?;
        let running = mover.clone();
        Some(Moving { mover, task: tokio::spawn(async move { running.run().await }) })
    }

    /// Sets the collector of uploads that nobody refers to to work, if there are uploads.
    fn collect(&self) -> Option<Collecting> {
        let collector = self.collector.clone()?;
        let task = tokio::spawn(async move {
            // Not all processes of a cluster at the same time.
            tokio::time::sleep(COLLECT_EVERY.mul_f64((chance::draw() % 1000) as f64 / 1000.0)).await;
            let mut every = tokio::time::interval(COLLECT_EVERY);
            loop {
                every.tick().await;
                match collector.collect().await {
                    Ok(0) => {}
                    Ok(collected) => tracing::info!(collected, "uploads that no message refers to are gone"),
                    Err(error) => {
                        tracing::warn!(%error, "uploads could not be collected; trying again later")
                    }
                }
            }
        });
        Some(Collecting(task))
    }

    /// Sets the notification service to work, if there is one.
    fn notify(&self) -> Option<Notifying> {
        let push = self.push.clone()?;
        let running = push.clone();
        Some(Notifying { push, task: tokio::spawn(async move { running.run().await }) })
    }
}

#[cfg(feature = "cluster")]
mod cluster {
    use std::net::SocketAddr;

    use bluetick_chat::RemoteApp;
    use bluetick_store::NodeRole;
    use tokio::task::AbortHandle;

    use super::*;
    use crate::rpc::{
        Announcer, AppServers, ClusterOperator, DirectoryEntries, Guard, LinkConfig, PoolConfig,
        RemoteGateways, RoleDispatcher, RpcListener, find_app_servers,
    };

    /// What ties a process to the others.
    pub struct Membership {
        pub address: String,
        pub listener: RpcListener,
        pub announcer: Announcer,
        pub gateways: Option<Arc<RemoteGateways>>,
        finder: AbortHandle,
    }

    impl Drop for Membership {
        fn drop(&mut self) {
            self.finder.abort();
        }
    }

    pub async fn start(
        config: &Config,
        listen: SocketAddr,
        opened: Opened,
        means: Means,
    ) -> Result<Process, ServeError> {
        let Some(directory) = opened.directory else {
            return Err(ServeError::Start("a cluster needs a directory that its processes share".into()));
        };
        let guard = Guard::from_config(&config.cluster)?;
        let failed = |source| ServeError::Listen { address: listen, source };
        let tcp = RpcListener::bind(listen).await.map_err(failed)?;
        let address = config.cluster.advertised(tcp.local_addr().map_err(failed)?);
        // A name that no other start has: what was left by the process before at this address is not this one's.
        let gateway = Arc::new(Gateway::new(&format!("{address}#{:016x}", chance::draw())));
        let servers = Arc::new(AppServers::new(guard.clone(), PoolConfig::default()));
        let entries = DirectoryEntries::new(&guard, means.clock.clone());

        let own_gateway = config.is_gateway().then(|| gateway.clone());
        let gateways = opened.store.as_ref().map(|_| {
            // A little less than the rules wait, so that they hear why.
            let deadline = Duration::from_millis(config.sessions.hand_over_deadline_ms);
            let links = LinkConfig::default();
            Arc::new(RemoteGateways::new(own_gateway.clone(), guard.clone(), links, deadline))
        });
        let own = match (&opened.store, &gateways) {
            (Some(store), Some(gateways)) => Some(Rules::new(config, store, gateways.clone(), means)),
            _ => None,
        };
        let app: Arc<dyn App> = match &own {
            Some(own) => own.app.clone(),
            None => Arc::new(RemoteApp(servers.clone())),
        };
        let operator = own.as_ref().map(|own| own.operator.clone());
        let dispatcher = RoleDispatcher {
            app: own.as_ref().map(|own| own.app.clone()),
            operator: operator.clone(),
            gateway: own_gateway,
        };
        let listener = RpcListener::start(tcp, guard, gateway.name(), Arc::new(dispatcher))?;
        let roles = [(config.is_gateway(), NodeRole::Gateway), (config.is_app(), NodeRole::App)];
        let roles = roles.into_iter().filter_map(|(has, role)| has.then_some(role)).collect();
        let fixed = config.cluster.app_servers.iter().cloned().collect();
        let finding =
            find_app_servers(directory.clone(), entries.clone(), fixed, address.clone(), servers.clone());
        let finder = tokio::spawn(finding).abort_handle();
        let readiness = Readiness {
            store: opened.store.clone(),
            sessions: Some(opened.sessions),
            push: own.as_ref().and_then(|own| own.push.clone()),
            servers: own.is_none().then(|| servers.clone()),
        };
        let readiness = Arc::new(readiness);
        let announcer = Announcer::start(directory, entries, roles, address.clone(), readiness.clone());
        Ok(Process {
            background: own.as_ref().map(|own| own.background.clone()),
            notifying: own.as_ref().and_then(Rules::notify),
            moving: own.as_ref().and_then(|own| own.begin_moving(config)),
            _collecting: own.as_ref().and_then(Rules::collect),
            trace: own.as_ref().map(|own| own.trace.clone()).unwrap_or_default(),
            app,
            operator: Arc::new(ClusterOperator { own: operator, servers }),
            gateway,
            readiness,
            store: opened.store,
            membership: Some(Membership { address, listener, announcer, gateways, finder }),
        })
    }
}
