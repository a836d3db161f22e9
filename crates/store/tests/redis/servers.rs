//! Real Redis servers as child processes, each on its own port, that end with the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bluetick_store::{Redis, RedisConfig, RedisMode};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A shell script that starts a server, prints its pid, and kills it when its own input ends: with
/// the test, however that ends.
const KEEPER: &str = r#""$@" </dev/null >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -9 $!; wait"#;
const PATIENCE: Duration = Duration::from_secs(20);

pub struct RedisServer {
    pub port: u16,
    process: Pid,
    keeper: Child,
    _dir: TempDir,
}

impl RedisServer {
    pub fn start(options: &[&str]) -> RedisServer {
        RedisServer::start_at(free_port(), options)
    }

    pub fn start_at(port: u16, options: &[&str]) -> RedisServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        RedisServer::start_in(dir, port, options)
    }

    /// Starts in a directory that an earlier server may have used.
    pub fn start_in(dir: TempDir, port: u16, options: &[&str]) -> RedisServer {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper", "redis-server"]);
        if let Some(file) = options.first().filter(|option| !option.starts_with('-')) {
            command.arg(file);
        }
        let listen = port.to_string();
        command.args(["--port", &listen, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(dir.path()).args(options.iter().filter(|option| !option.ends_with(".conf")));
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell to start a server with");
        let mut line = String::new();
        let said = keeper.stdout.take().expect("its output is piped");
        BufReader::new(said).read_line(&mut line).expect("the server's id");
        let process = line.trim().parse().ok().and_then(Pid::from_raw).expect("the server's id");
        let server = RedisServer { port, process, keeper, _dir: dir };
        server.wait_for_answers();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn wait_for_answers(&self) {
        let begun = Instant::now();
        while !answers(self.port) {
            assert!(begun.elapsed() < PATIENCE, "redis-server on port {} does not answer", self.port);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pause(&self) {
        kill_process(self.process, Signal::STOP).unwrap();
    }

    pub fn resume(&self) {
        kill_process(self.process, Signal::CONT).unwrap();
    }

    /// Kills it and returns its directory.
    pub fn kill(mut self) -> TempDir {
        let dir = std::mem::replace(&mut self._dir, tempfile::tempdir().expect("a temporary directory"));
        drop(self);
        dir
    }

    /// Runs a command with `redis-cli` and returns what it prints.
    pub fn cli(&self, command: &[&str]) -> String {
        cli(&self.url(), command)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

pub fn cli(url: &str, command: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-u", url]).args(command).output().expect("redis-cli runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut answer = [0; 5];
    let answered = stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok();
    answered && [b"+PONG", b"-NOAU"].contains(&&answer)
}

/// The server that harmless tests share: that of `BLUETICK_TEST_REDIS`, or one that is started
/// here.
pub fn shared_url() -> String {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    match std::env::var("BLUETICK_TEST_REDIS") {
        Ok(url) => url,
        Err(_) => SHARED.get_or_init(|| RedisServer::start(&[])).url(),
    }
}

/// A prefix that nobody else uses.
pub fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_nanos();
    format!("test*[{}.{since}.{}]:", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn connect(url: &str) -> Redis {
    Redis::new(RedisConfig { prefix: fresh_prefix(), ..RedisConfig::new(url) }).unwrap()
}

/// A handle with its own keys on the shared server.
pub fn redis() -> Redis {
    connect(&shared_url())
}

/// Three masters, each with a third of the slots.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub const OPTIONS: &[&str] = &[
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        "--cluster-require-full-coverage",
        "no",
    ];

    pub fn start() -> RedisCluster {
        let nodes: Vec<_> =
            (0..3).map(|_| RedisServer::start_at(free_port_for_cluster(), RedisCluster::OPTIONS)).collect();
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "create"]).args(nodes.iter().map(|n| format!("127.0.0.1:{}", n.port)));
        let made = command.arg("--cluster-yes").output().expect("redis-cli runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let cluster = RedisCluster { nodes };
        cluster.wait_until_whole();
        cluster
    }

    pub fn wait_until_whole(&self) {
        let begun = Instant::now();
        let whole = |node: &RedisServer| {
            let info = node.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        };
        while !self.nodes.iter().all(whole) {
            assert!(begun.elapsed() < PATIENCE, "the cluster does not come together");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig {
            urls: self.nodes.iter().map(RedisServer::url).collect(),
            mode: RedisMode::Cluster,
            prefix: fresh_prefix(),
            ..RedisConfig::default()
        }
    }

    pub fn connect(&self) -> Redis {
        Redis::new(self.config()).unwrap()
    }

    /// The cluster that harmless tests share.
    pub fn shared() -> &'static RedisCluster {
        static SHARED: OnceLock<RedisCluster> = OnceLock::new();
        SHARED.get_or_init(RedisCluster::start)
    }
}

/// Cluster nodes talk to each other on their port plus 10,000.
fn free_port_for_cluster() -> u16 {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = std::process::id() as u16 % 9_000;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed) as u16) % 10_000;
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
}

/// Tries until something holds.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut holds: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(held) = holds().await {
            return held;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
