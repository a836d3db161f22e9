//! A Redis of a test's own, to be flushed, stopped and killed.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{SOON, quiet_port};

pub struct OwnRedis {
    port: u16,
    child: Option<Child>,
}

impl OwnRedis {
    pub fn start() -> OwnRedis {
        let mut redis = OwnRedis { port: quiet_port(), child: None };
        redis.restart();
        redis
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// It keeps nothing on disk: whatever it had is gone.
    pub fn restart(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no", "--loglevel", "warning"]).stdout(Stdio::null());
        self.child = Some(command.spawn().expect("redis-server is installed"));
        let until = Instant::now() + SOON;
        while self.say("PING").as_deref() != Some("+PONG") {
            assert!(Instant::now() < until, "Redis does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn flush(&self) {
        assert_eq!(self.say("FLUSHALL").as_deref(), Some("+OK"));
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stands still: connections stay, and nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    fn say(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..read]).trim_end().to_owned())
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.kill();
    }
}
