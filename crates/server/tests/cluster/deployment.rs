//! The server of these tests: two gateways and two app servers behind nginx, with tables and keys of their own.

use std::{
    path::Path,
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

use crate::{
    balancer::Balancer,
    harness::{SOON, Server, quiet_port},
    node::Node,
    plain_http,
    tables::{Tables, service},
};

/// Whether a seq may be left out: one that was handed out and never written, because its writer died, is closed (R8).
pub const VOIDS: bool = true;

/// The shortest life of a connection that flaps; the longest is nineteen of them. Each brings the overlap before the
/// cursor once more, and it must have the time to come beyond it.
pub const FLAP: Duration = Duration::from_millis(40);

/// Pairs that write at once in a test of load, and messages of each: DynamoDB Local is no DynamoDB.
pub const PAIRS: (usize, u64) = (25, 5);

/// Clusters at a time: one is five processes, and a few of them keep a machine busy.
const AT_ONCE: usize = 3;

/// A server that takes attachments.
pub fn taking_attachments() -> Server {
    crate::attachments::server()
}

type ReachedBy = Box<dyn FnMut(u16) -> u16 + Send>;

pub struct Deployment {
    settings: Vec<(&'static str, String)>,
    /// Gives the port by which others reach one on which a process listens.
    reached_by: Option<ReachedBy>,
    running: Option<Cluster>,
}

pub struct Cluster {
    pub apps: Vec<Node>,
    pub gateways: Vec<Node>,
    common: Vec<(String, String)>,
    balancer: Option<Balancer>,
    pub tables: Tables,
    _place: ClusterSlot,
}

impl Deployment {
    pub fn new(settings: &[(&'static str, &str)]) -> Deployment {
        let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Deployment { settings, reached_by: None, running: None }
    }

    pub fn set(&mut self, key: &'static str, value: &str) {
        self.settings.push((key, value.to_owned()));
    }

    /// Puts something between the processes: `reached_by` is given the port of one, and says by which the others are to
    /// reach it. The app servers come first.
    pub fn put_between(&mut self, reached_by: impl FnMut(u16) -> u16 + Send + 'static) {
        self.reached_by = Some(Box::new(reached_by));
    }

    /// Starts everything and waits until messages are taken. Gives the balancer's address.
    pub fn start(&mut self, data: &Path, listen: &str) -> String {
        let address = match listen.strip_suffix(":0") {
            Some(host) => format!("{host}:{}", quiet_port()),
            None => listen.to_owned(),
        };
        if self.running.is_none() {
            self.running = Some(self.build(data));
        }
        let silence = 2 * self.heartbeat_secs() + 2;
        let cluster = self.running.as_mut().unwrap();
        cluster.start(data, &address, silence);
        address
    }

    fn heartbeat_secs(&self) -> u64 {
        let told = self.settings.iter().rfind(|(key, _)| *key == "BLUETICK_SESSIONS__HEARTBEAT_SECS");
        told.map_or(20, |(_, value)| value.parse().unwrap())
    }

    /// The parts, not running yet.
    fn build(&mut self, data: &Path) -> Cluster {
        let place = ClusterSlot::take();
        let tables = Tables::named();
        std::thread::scope(|scope| scope.spawn(|| tables.make()).join().unwrap());
        let names = ["app-1", "app-2", "gateway-1", "gateway-2"];
        let ports = names.map(|_| {
            let port = quiet_port();
            (port, self.reached_by.as_mut().map_or(port, |reached_by| reached_by(port)))
        });
        let own = |key: &str, value: String| (format!("BLUETICK_{key}"), value);
        let mut common = vec![
            own("LOG__FILTER", std::env::var("BLUETICK_TEST_LOG").unwrap_or_else(|_| "error".into())),
            own("DYNAMODB__ENDPOINT", service("BLUETICK_TEST_DYNAMODB")),
            own("DYNAMODB__TABLE_PREFIX", tables.prefix.clone()),
            own("REDIS__URLS", service("BLUETICK_TEST_REDIS")),
            own("REDIS__PREFIX", tables.prefix.clone()),
            own("STORE__BACKEND", "dynamodb".into()),
            own("CLUSTER__DRAIN_SECS", "1".into()),
            // All clocks are one here, and nothing is slow; a device that flaps is to get on.
            own("SESSIONS__OVERLAP_SECS", "5".into()),
            own("CLUSTER__SECRET", "a secret that all of a test's processes share".into()),
            // Found in Redis as well; named here, they need not be looked for.
            own("CLUSTER__APP_SERVERS", format!("127.0.0.1:{},127.0.0.1:{}", ports[0].1, ports[1].1)),
        ];
        common.extend(self.settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let mut nodes: Vec<Node> =
            names.iter().zip(ports).map(|(name, ports)| node(name, ports, data, &common)).collect();
        let gateways = nodes.split_off(2);
        Cluster { apps: nodes, gateways, common, balancer: None, tables, _place: place }
    }

    /// The processes, each by itself.
    pub fn cluster(&mut self) -> &mut Cluster {
        self.running.as_mut().expect("it was started")
    }

    pub fn kill(&mut self) {
        self.cluster().nodes_mut().for_each(Node::kill);
    }

    /// The gateways first, whose sessions still need the app servers. 0 if all of them end with it.
    pub fn terminate(&mut self) -> Option<i32> {
        let Cluster { apps, gateways, .. } = self.cluster();
        let mut codes = Vec::new();
        for role in [gateways, apps] {
            std::thread::scope(|scope| {
                let ending: Vec<_> = role.iter_mut().map(|node| scope.spawn(|| node.terminate())).collect();
                codes.extend(ending.into_iter().map(|code| code.join().unwrap()));
            });
        }
        codes.into_iter().find(|code| *code != Some(0)).unwrap_or(Some(0))
    }

    pub fn pids(&self) -> Vec<u32> {
        self.running.iter().flat_map(Cluster::nodes).filter_map(Node::pid).collect()
    }
}

fn node(name: &str, (port, reached_by): (u16, u16), data: &Path, common: &[(String, String)]) -> Node {
    let mut settings = vec![
        ("BLUETICK_SERVER__ROLES".to_owned(), name.split('-').next().unwrap().to_owned()),
        ("BLUETICK_CLUSTER__LISTEN".to_owned(), format!("127.0.0.1:{port}")),
        ("BLUETICK_CLUSTER__ADVERTISE".to_owned(), format!("127.0.0.1:{reached_by}")),
    ];
    settings.extend(common.iter().cloned());
    Node::new(name.to_owned(), format!("127.0.0.1:{}", quiet_port()), data.to_owned(), settings)
}

impl Cluster {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.apps.iter().chain(&self.gateways)
    }

    fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.apps.iter_mut().chain(&mut self.gateways)
    }

    fn start(&mut self, data: &Path, address: &str, silence_secs: u64) {
        for node in self.nodes_mut() {
            node.launch();
        }
        if self.balancer.is_none() {
            let gateways: Vec<_> = self.gateways.iter().map(|gateway| gateway.address.clone()).collect();
            let dir = data.parent().unwrap().join("nginx");
            self.balancer = Some(Balancer::start(&dir, address, &gateways, silence_secs));
        }
        for node in self.nodes_mut() {
            node.wait_until_it_listens();
        }
        for node in self.nodes() {
            node.wait_until_ready();
        }
        // It may believe for a moment that those who were not there yet are down.
        let (until, mut in_a_row) = (Instant::now() + SOON, 0);
        while in_a_row < 4 {
            let answer = plain_http::get(address, "/readyz");
            in_a_row =
                if answer.as_ref().is_some_and(|(status, _)| *status == 200) { in_a_row + 1 } else { 0 };
            assert!(Instant::now() < until, "the balancer does not find the gateways: {answer:?}");
            std::thread::sleep(Duration::from_millis(if in_a_row > 0 { 1 } else { 20 }));
        }
    }

    /// Kills every process at the same moment.
    pub fn kill_at_once(&mut self) {
        self.each_at_once(Node::kill);
    }

    /// Asks every process to stop at the same moment, and waits until all have.
    pub fn terminate_at_once(&mut self) {
        self.each_at_once(|node| {
            node.terminate();
        });
    }

    fn each_at_once(&mut self, end: impl Fn(&mut Node) + Sync) {
        std::thread::scope(|scope| {
            for node in self.apps.iter_mut().chain(&mut self.gateways) {
                scope.spawn(|| end(node));
            }
        });
    }

    /// A further app server, which no configuration names.
    pub fn add_app_server(&mut self, data: &Path) {
        let port = quiet_port();
        let mut app = node("app-3", (port, port), data, &self.common);
        app.restart();
        self.apps.push(app);
    }
}

/// One of the places for a cluster; given back when it is dropped.
struct ClusterSlot;

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

impl ClusterSlot {
    fn take() -> ClusterSlot {
        let taken = TAKEN.lock().unwrap();
        *GIVEN_BACK.wait_while(taken, |taken| *taken >= AT_ONCE).unwrap() += 1;
        ClusterSlot
    }
}

impl Drop for ClusterSlot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap() -= 1;
        GIVEN_BACK.notify_one();
    }
}
