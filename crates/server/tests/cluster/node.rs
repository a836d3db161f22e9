//! One process of a cluster: a gateway or an app server, to be killed, paused, asked and started again.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    harness::{SOON, binary, listening, terminate},
    plain_http,
};

pub struct Node {
    pub name: String,
    /// Where it answers HTTP.
    pub address: String,
    data: PathBuf,
    settings: Vec<(String, String)>,
    child: Option<Child>,
}

impl Node {
    pub fn new(name: String, address: String, data: PathBuf, settings: Vec<(String, String)>) -> Node {
        Node { name, address, data, settings, child: None }
    }

    /// Starts it, and does not wait.
    pub fn launch(&mut self) {
        self.launch_with(None);
    }

    /// Starts it so that it dies at a failpoint, `name:nth`.
    pub fn launch_armed(&mut self, failpoint: &str) {
        self.launch_with(Some(failpoint));
    }

    fn launch_with(&mut self, failpoint: Option<&str>) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data").arg(&self.data).args(["--listen", &self.address]);
        command.envs(self.settings.iter().map(|(key, value)| (key, value)));
        command.envs(failpoint.map(|point| ("BLUETICK_FAILPOINT", point)));
        self.child = Some(command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());
    }

    pub fn wait_until_it_listens(&mut self) {
        let said = listening(self.child.as_mut().unwrap());
        assert_eq!(said.as_ref(), Some(&self.address), "{} says where it listens", self.name);
    }

    /// Starts it again and waits until it can work.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_until_it_listens();
        self.wait_until_ready();
    }

    pub fn wait_until_ready(&self) {
        let until = Instant::now() + SOON;
        loop {
            let answer = plain_http::get(&self.address, "/readyz");
            if answer.as_ref().is_some_and(|(status, _)| *status == 200) {
                return;
            }
            assert!(Instant::now() < until, "{} does not become ready: {answer:?}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to stop and waits. Returns the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        terminate(self.child.take().unwrap())
    }

    /// Stands still from now on, with all its connections open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// How it ended by itself, if it has within the time.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                self.child = None;
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// What `/readyz` says.
    pub fn readiness(&self) -> (u16, Value) {
        let (status, body) = plain_http::get(&self.address, "/readyz").expect("it answers");
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Waits until `/readyz` answers as `expected` says.
    pub fn wait_for_readiness(&self, expected: impl Fn(u16, &Value) -> bool) {
        let until = Instant::now() + SOON;
        loop {
            let (status, said) = self.readiness();
            if expected(status, &said) {
                return;
            }
            assert!(Instant::now() < until, "{}: {status} {said}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a metric without labels has this value.
    pub fn wait_for_metric(&self, name: &str, value: u64) {
        let until = Instant::now() + SOON;
        let line = format!("\n{name} {value}\n");
        while !plain_http::get(&self.address, "/metrics").is_some_and(|(_, text)| text.contains(&line)) {
            assert!(Instant::now() < until, "{}: {name} does not become {value}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What `bluetick doctor` says of it: whether all is well, and the text.
    pub fn doctor(&self) -> (bool, String) {
        let mut command = Command::new(binary());
        command.args(["doctor", "--server", &format!("http://{}", self.address), "--data"]).arg(&self.data);
        let Output { status, stdout, .. } = command.output().unwrap();
        (status.success(), String::from_utf8_lossy(&stdout).into_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
