//! A server under test: started on its own core, its time and memory read from `/proc`, ended when it is let go.

use std::{
    collections::HashMap,
    fs::File,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The core of the servers, and that of the load.
pub const SERVER_CORE: u32 = 0;
pub const LOAD_CORE: u32 = 1;
/// The unit of times in `/proc/PID/stat`: a hundredth of a second on every Linux.
const TICK_MICROS: u64 = 10_000;
/// A server that works for less than so many ticks in such a time is quiet.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_TICKS: u64 = 3;
/// A server that does not listen after so long will not.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// A process and all it has started: Erlang's has helpers.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    pub root: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    cpu_ticks: u64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Stat> {
        // The name, in parentheses, may hold anything; the fields are counted from behind it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Stat { parent: fields.get(1)?.parse().ok()?, cpu_ticks: ticks(11)? + ticks(12)? })
    }
}

impl Tree {
    /// User and system time of all of it so far.
    pub fn cpu_micros(&self) -> u64 {
        self.members().values().map(|stat| stat.cpu_ticks * TICK_MICROS).sum()
    }

    /// Waits for at least so long, and then until it has fallen quiet, at most so long. Returns the µs that it worked meanwhile.
    pub fn rest(&self, least: Duration, most: Duration) -> u64 {
        let (begun, before) = (Instant::now(), self.cpu_micros());
        std::thread::sleep(least);
        loop {
            let seen = self.cpu_micros();
            std::thread::sleep(QUIET);
            let now = self.cpu_micros();
            if now.saturating_sub(seen) <= QUIET_TICKS * TICK_MICROS || begun.elapsed() >= most {
                return now.saturating_sub(before);
            }
        }
    }

    /// Bytes of memory that all of it has now.
    pub fn rss_bytes(&self) -> u64 {
        self.members().keys().filter_map(|&pid| rss_bytes(pid)).sum()
    }

    fn members(&self) -> HashMap<u32, Stat> {
        let all: HashMap<u32, Stat> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| look(&entry.path()))
            .collect();
        let is_member = |&pid: &u32| {
            let mut at = pid;
            while at != self.root {
                match all.get(&at) {
                    Some(stat) if stat.parent != 0 => at = stat.parent,
                    _ => return false,
                }
            }
            true
        };
        all.keys().copied().filter(is_member).filter_map(|pid| Some((pid, *all.get(&pid)?))).collect()
    }
}

fn look(proc: &Path) -> Option<(u32, Stat)> {
    let pid = proc.file_name()?.to_str()?.parse().ok()?;
    Some((pid, Stat::parse(&std::fs::read_to_string(proc.join("stat")).ok()?)?))
}

fn rss_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A server that runs until this is dropped.
pub struct Server {
    child: Child,
    log: PathBuf,
    pub port: u16,
}

impl Server {
    /// Starts `command` on the servers' core and waits until `ready` says so. `command` holds what to run with its
    /// environment; its output goes to `log`.
    pub fn start(
        command: &Command,
        log: &Path,
        port: u16,
        ready: impl Fn() -> bool,
    ) -> Result<Server, String> {
        let output = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = output.try_clone().map_err(|e| e.to_string())?;
        let mut pinned = pinned(command, SERVER_CORE);
        pinned.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = pinned.spawn().map_err(|e| format!("setpriv or taskset cannot be run: {e}"))?;
        let mut server = Server { child, log: log.to_owned(), port };
        let begun = Instant::now();
        while !(ready() && TcpStream::connect(("127.0.0.1", port)).is_ok()) {
            if !server.is_running() {
                return Err(format!("the server ended at once; {}", server.log_end()));
            }
            if begun.elapsed() > START_PATIENCE {
                return Err(format!("the server does not listen on {port}; {}", server.log_end()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub fn tree(&self) -> Tree {
        Tree { root: self.child.id() }
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it said last, for an error message.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        if last.is_empty() { "it said nothing".into() } else { format!("it said:\n{last}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What it holds is thrown away with its directory, so nothing is gained by a gentle end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command on one core, ended by the kernel when this process is. The pid stays: both programs exec.
pub fn pinned(command: &Command, core: u32) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "KILL", "taskset", "-c", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        pinned.current_dir(dir);
    }
    pinned
}

/// Moves this process, and with it what it starts, to the core of the load.
pub fn pin_myself() -> Result<(), String> {
    let pid = std::process::id().to_string();
    let core = LOAD_CORE.to_string();
    let done = Command::new("taskset").args(["-a", "-cp", &core, &pid]).stdout(Stdio::null()).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("this needs two cores: one for the servers, one for the load".into()),
        Err(e) => Err(format!("taskset cannot be run: {e}")),
    }
}

/// A port of loopback on which nobody listens.
pub fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "17 (a) b (c) S 3 17 17 0 -1 4194304 120 0 0 0 70 30 0 0 20 0 1 0 5 0 0";
        assert_eq!(Stat::parse(stat), Some(Stat { parent: 3, cpu_ticks: 100 }));
        assert_eq!(Stat::parse("17 (a) S 3"), None);
    }

    #[test]
    fn a_tree_holds_what_its_root_has_started() {
        let mut child = Command::new("sleep").arg("10").spawn().unwrap();
        let tree = Tree { root: std::process::id() };
        assert!(tree.members().contains_key(&child.id()));
        assert!(tree.rss_bytes() > 100_000);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
