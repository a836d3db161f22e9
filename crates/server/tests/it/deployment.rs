//! The server of these tests: one process, with everything in it.

use std::{
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::harness::{SOON, Server, binary, listening, terminate};

/// Whether a seq may be left out: here the append gives it.
pub const VOIDS: bool = false;

/// The shortest life of a connection that flaps; the longest is nineteen of them.
pub const FLAP: Duration = Duration::from_millis(5);

/// Pairs that write at once in a test of load, and messages of each.
pub const PAIRS: (usize, u64) = (1000, 20);

/// A server that takes attachments.
pub fn taking_attachments() -> Server {
    Server::start()
}

pub struct Deployment {
    child: Option<Child>,
    settings: Vec<(&'static str, String)>,
    /// A command that starts the server in its place, with a limit or as somebody else.
    wrapper: Option<fn(&mut Command)>,
}

impl Deployment {
    pub fn new(settings: &[(&'static str, &str)]) -> Deployment {
        let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Deployment { child: None, settings, wrapper: None }
    }

    pub fn set(&mut self, key: &'static str, value: &str) {
        self.settings.push((key, value.to_owned()));
    }

    /// Starts it and waits until it listens. Gives the address.
    pub fn start(&mut self, data: &Path, listen: &str) -> String {
        self.launch(data, listen, None).expect("the server says where it listens before it ends")
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn terminate(&mut self) -> Option<i32> {
        terminate(self.child.take().unwrap())
    }

    pub fn pids(&self) -> Vec<u32> {
        self.child.iter().map(Child::id).collect()
    }

    fn command(&self, data: &Path, listen: &str, failpoint: Option<&str>) -> Command {
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data").arg(data).args(["--listen", listen]);
        command.env("BLUETICK_LOG__FILTER", "warn").stdout(Stdio::piped()).stderr(Stdio::inherit());
        // A test's disk may be small; the floor has a test of its own.
        command.env("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", "1048576");
        command.env("BLUETICK_ATTACHMENTS__UPLOAD_FREE_SPACE_FLOOR_BYTES", "2097152");
        for (key, value) in &self.settings {
            command.env(key, value);
        }
        if let Some(failpoint) = failpoint {
            command.env("BLUETICK_FAILPOINT", failpoint);
        }
        if let Some(wrapper) = self.wrapper {
            wrapper(&mut command);
        }
        command
    }

    /// None: it ended before it listened.
    fn launch(&mut self, data: &Path, listen: &str, failpoint: Option<&str>) -> Option<String> {
        let mut command = self.command(data, listen, failpoint);
        listening(self.child.insert(command.spawn().unwrap()))
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What can be done with a server that is one process.
impl Server {
    /// Lets every later start be changed: run through another program, or as another user.
    pub fn started_by(&mut self, wrapper: fn(&mut Command)) {
        self.deployment.wrapper = Some(wrapper);
    }

    pub fn is_running(&self) -> bool {
        self.deployment.child.is_some()
    }

    pub fn pid(&self) -> u32 {
        self.deployment.pids()[0]
    }

    /// Starts it so that it dies at a failpoint, `name` or `name:nth`. False: it died before it listened.
    pub fn start_armed(&mut self, failpoint: &str) -> bool {
        let (data, address) = (self.data(), self.address.clone());
        self.deployment.launch(&data, &address, Some(failpoint)).is_some()
    }

    /// Tries to start it where it must refuse to. Gives how it ended and what it said on standard error.
    pub fn fails_to_start(&mut self) -> (ExitStatus, String) {
        let mut command = self.deployment.command(&self.data(), &self.address, None);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // Whatever it says fits into the pipe.
        let until = std::time::Instant::now() + SOON;
        while child.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > until {
                child.kill().unwrap();
                panic!("it started");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = tokio::time::Instant::now() + within;
        loop {
            if let Some(status) = self.deployment.child.as_mut().unwrap().try_wait().unwrap() {
                self.deployment.child = None;
                return Some(status);
            }
            if tokio::time::Instant::now() > until {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
