//! Builds the services of a process from its roles: a gateway that calls app servers by RPC, an app
//! server that calls gateways by RPC, or both in one process, where each calls the other directly.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{
    Admin, App, Background, ChatService, Collector, DeliveryObserver, Gateway, Gateways, Mover, Operator,
    Push, SendBudget, Spawner, Uploads,
};
use bluetick_store::{Clock, Store};
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::{backends::Backends, config::Config, push::Providers, readiness::Readiness, serve::ServeError};

/// How often the garbage collector for unreferenced uploads runs.
const COLLECT_INTERVAL: Duration = Duration::from_secs(600);

/// The services of this process. In a gateway without data, `app` and `operator` are RPC clients.
pub struct ServerProcess {
    pub app: Arc<dyn App>,
    pub operator: Arc<dyn Operator>,
    pub gateway: Arc<Gateway>,
    pub readiness: Arc<Readiness>,
    pub store: Option<Store>,
    pub observer: Arc<DeliveryObserver>,
    /// Work that requests continue after they were answered.
    background: Option<Arc<Background>>,
    notifying: Option<PushTask>,
    moving: Option<MoverTask>,
    /// Aborts the collector when dropped.
    _collecting: Option<CollectorTask>,
    #[cfg(feature = "cluster")]
    membership: Option<cluster::Membership>,
}

/// What the services need besides the store and the gateways.
pub struct Dependencies {
    pub clock: Arc<dyn Clock>,
    pub budget: Arc<dyn SendBudget>,
    /// `None` without push providers.
    pub providers: Option<Arc<Providers>>,
    /// `None` without an object store.
    pub uploads: Option<Arc<dyn Uploads>>,
}

/// The running push service. Dropping it aborts the task; notifications in flight stay in the
/// outbox.
struct PushTask {
    push: Arc<Push>,
    task: JoinHandle<()>,
}

impl Drop for PushTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The running mover of the cold tier. Dropping it aborts the task; the next start finishes its
/// run.
struct MoverTask {
    mover: Arc<Mover>,
    task: JoinHandle<()>,
}

impl Drop for MoverTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The running garbage collector for uploads. It may be aborted at any point and starts over.
struct CollectorTask(JoinHandle<()>);

impl Drop for CollectorTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerProcess {
    /// Waits for the hand-overs that requests did not wait for. Each has its own deadline.
    pub async fn finish_background(&self) {
        if let Some(background) = &self.background {
            background.idle().await;
        }
    }

    /// Stops the mover after its current run.
    pub async fn stop_moving(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.mover.stop();
            let _ = (&mut moving.task).await;
        }
    }

    /// Waits for the notifications in flight. The others stay in the outbox for the next start.
    pub async fn stop_notifying(&mut self) {
        if let Some(notifying) = &mut self.notifying {
            notifying.push.stop();
            let _ = (&mut notifying.task).await;
        }
    }

    pub async fn start(
        config: &Config,
        backends: Backends,
        dependencies: Dependencies,
    ) -> Result<ServerProcess, ServeError> {
        #[cfg(feature = "cluster")]
        if let Some(listen) = config.cluster.listen {
            return cluster::start(config, listen, backends, dependencies).await;
        }
        ServerProcess::start_alone(config, backends, dependencies)
    }

    /// A process outside a cluster, which has both roles.
    fn start_alone(
        config: &Config,
        backends: Backends,
        dependencies: Dependencies,
    ) -> Result<ServerProcess, ServeError> {
        let Some(store) = backends.store else {
            return Err(ServeError::Start("a process without a store must be in a cluster".into()));
        };
        if !config.is_one_process() {
            tracing::warn!(
                "the store is shared and [cluster] is not set: a second process like this would not reach the sessions \
                 of this one; set cluster.listen before you start one"
            );
        }
        // On a shared store another process may run during a restart. A unique name keeps the two
        // apart in the session store.
        let name = match config.is_one_process() {
            true => "local".to_owned(),
            false => format!("local#{:016x}", rand::random::<u64>()),
        };
        let gateway = Arc::new(Gateway::new(&name));
        let gateways: Arc<dyn Gateways> = gateway.clone();
        let services = AppServices::new(config, &store, gateways, dependencies);
        let readiness = Readiness {
            store: Some(store.clone()),
            sessions: None,
            push: services.push.clone(),
            #[cfg(feature = "cluster")]
            servers: None,
        };
        Ok(ServerProcess {
            background: Some(services.background.clone()),
            notifying: services.start_push(),
            moving: services.start_mover(config),
            _collecting: services.start_collector(),
            observer: services.observer,
            app: services.app,
            operator: services.operator,
            gateway,
            readiness: Arc::new(readiness),
            store: Some(store),
            #[cfg(feature = "cluster")]
            membership: None,
        })
    }

    /// The address at which other processes reach this one.
    pub fn cluster_address(&self) -> Option<String> {
        #[cfg(feature = "cluster")]
        if let Some(membership) = &self.membership {
            return Some(membership.address.clone());
        }
        None
    }

    /// Removes the process from the directory, so that no new calls arrive.
    pub async fn withdraw(&self) {
        if let Some(moving) = &self.moving {
            moving.mover.stop();
        }
        #[cfg(feature = "cluster")]
        if let Some(membership) = &self.membership {
            membership.announcer.withdraw().await;
        }
    }

    /// Answers the calls in progress and refuses new ones, so that callers go to other processes.
    pub async fn drain_calls(&mut self) {
        #[cfg(feature = "cluster")]
        if let Some(membership) = &mut self.membership {
            membership.listener.drain().await;
        }
    }

    /// A function for the housekeeping task that closes idle links.
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

/// The services of a process with a store.
struct AppServices {
    app: Arc<dyn App>,
    operator: Arc<dyn Operator>,
    observer: Arc<DeliveryObserver>,
    background: Arc<Background>,
    push: Option<Arc<Push>>,
    /// `None` without an object store.
    mover: Option<Arc<Mover>>,
    collector: Option<Arc<Collector>>,
}

impl AppServices {
    fn new(
        config: &Config,
        store: &Store,
        gateways: Arc<dyn Gateways>,
        dependencies: Dependencies,
    ) -> AppServices {
        let Dependencies { clock, budget, providers, uploads } = dependencies;
        let mut node =
            ChatService::new(store.clone(), gateways.clone(), clock.clone(), config.chat(), budget);
        let push = providers.map(|providers| {
            let settings = config.notifications();
            Arc::new(Push::new(
                store.clone(),
                providers,
                clock.clone(),
                node.observer(),
                settings,
                rand::random::<u64>(),
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
            let holder = format!("{:016x}", rand::random::<u64>());
            Arc::new(Mover::new(store.clone(), clock.clone(), config.mover(), holder))
        });
        let admin =
            Admin::new(store.clone(), gateways, node.observer(), clock.clone()).with_push(push.clone());
        let admin = admin.with_mover(mover.clone()).with_uploads(uploads.clone());
        let admin = admin.with_profiles(config.profiles.rules());
        let collector = uploads.map(|uploads| Arc::new(Collector::new(store.clone(), uploads, clock)));
        AppServices {
            observer: node.observer(),
            background: node.background(),
            app: Arc::new(node),
            operator: Arc::new(admin),
            push,
            mover,
            collector,
        }
    }

    /// Starts the mover, unless it is disabled.
    fn start_mover(&self, config: &Config) -> Option<MoverTask> {
        let mover = self.mover.clone().filter(|_| config.cold.enabled)?;
        let running = mover.clone();
        Some(MoverTask { mover, task: tokio::spawn(async move { running.run().await }) })
    }

    /// Starts the garbage collector for unreferenced uploads.
    fn start_collector(&self) -> Option<CollectorTask> {
        let collector = self.collector.clone()?;
        let task = tokio::spawn(async move {
            // A random start keeps the processes of a cluster from collecting at the same time.
            tokio::time::sleep(COLLECT_INTERVAL.mul_f64(rand::random::<f64>())).await;
            let mut every = tokio::time::interval(COLLECT_INTERVAL);
            loop {
                every.tick().await;
                match collector.collect().await {
                    Ok(0) => {}
                    Ok(collected) => tracing::info!(collected, "removed unreferenced uploads"),
                    Err(error) => {
                        tracing::warn!(%error, "cannot remove unreferenced uploads; retrying later")
                    }
                }
            }
        });
        Some(CollectorTask(task))
    }

    /// Starts the push service.
    fn start_push(&self) -> Option<PushTask> {
        let push = self.push.clone()?;
        let running = push.clone();
        Some(PushTask { push, task: tokio::spawn(async move { running.run().await }) })
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

    /// The connections of a process to the rest of its cluster.
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
        backends: Backends,
        dependencies: Dependencies,
    ) -> Result<ServerProcess, ServeError> {
        let Some(directory) = backends.directory else {
            return Err(ServeError::Start("a cluster needs a directory that its processes share".into()));
        };
        let guard = Guard::from_config(&config.cluster)?;
        let failed = |source| ServeError::Listen { address: listen, source };
        let tcp = RpcListener::bind(listen).await.map_err(failed)?;
        let address = config.cluster.advertised(tcp.local_addr().map_err(failed)?);
        // Unique per start: sessions of the previous process at this address are not ours.
        let gateway = Arc::new(Gateway::new(&format!("{address}#{:016x}", rand::random::<u64>())));
        let servers = Arc::new(AppServers::new(guard.clone(), PoolConfig::default()));
        let entries = DirectoryEntries::new(&guard, dependencies.clock.clone());

        let own_gateway = config.is_gateway().then(|| gateway.clone());
        let gateways = backends.store.as_ref().map(|_| {
            let deadline = Duration::from_millis(config.sessions.hand_over_deadline_ms);
            let links = LinkConfig::default();
            Arc::new(RemoteGateways::new(own_gateway.clone(), guard.clone(), links, deadline))
        });
        let clock = dependencies.clock.clone();
        let own = match (&backends.store, &gateways) {
            (Some(store), Some(gateways)) => {
                Some(AppServices::new(config, store, gateways.clone(), dependencies))
            }
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
            store: backends.store.clone(),
            sessions: Some(backends.sessions),
            push: own.as_ref().and_then(|own| own.push.clone()),
            servers: own.is_none().then(|| servers.clone()),
        };
        let readiness = Arc::new(readiness);
        let announcer = Announcer::start(directory, entries, roles, address.clone(), readiness.clone());
        Ok(ServerProcess {
            background: own.as_ref().map(|own| own.background.clone()),
            notifying: own.as_ref().and_then(AppServices::start_push),
            moving: own.as_ref().and_then(|own| own.start_mover(config)),
            _collecting: own.as_ref().and_then(AppServices::start_collector),
            observer: own
                .as_ref()
                .map_or_else(|| Arc::new(DeliveryObserver::new(clock)), |own| own.observer.clone()),
            app,
            operator: Arc::new(ClusterOperator { own: operator, servers }),
            gateway,
            readiness,
            store: backends.store,
            membership: Some(Membership { address, listener, announcer, gateways, finder }),
        })
    }
}
