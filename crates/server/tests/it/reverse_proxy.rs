//! nginx and HAProxy with the files of `deploy/`, as an operator runs them. Only what a test machine cannot have is
//! replaced: users, ports, paths, the names of the servers. A replacement that finds nothing fails, so that the tests cannot
//! go on with a file that is no longer the one in `deploy/`.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::SOON;

pub struct ReverseProxy {
    child: Child,
}

impl ReverseProxy {
    fn run(mut command: Command, address: &str) -> ReverseProxy {
        // Debian keeps both where the PATH of a plain user does not look.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nginx and haproxy are installed: scripts/services install");
        let mut proxy = ReverseProxy { child };
        let until = Instant::now() + SOON;
        while std::net::TcpStream::connect(address).is_err() {
            assert!(proxy.child.try_wait().unwrap().is_none(), "{command:?} ended");
            assert!(Instant::now() < until, "{command:?} does not listen on {address}");
            std::thread::sleep(Duration::from_millis(10));
        }
        proxy
    }
}

impl Drop for ReverseProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of `deploy/` that is being changed for a test.
pub struct DeployFile(String);

impl DeployFile {
    fn read(name: &str) -> DeployFile {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
        DeployFile(fs::read_to_string(path).unwrap())
    }

    pub fn replace(&mut self, from: &str, to: &str) -> &mut DeployFile {
        assert!(self.0.contains(from), "the file in deploy/ has no {from:?} any more");
        self.0 = self.0.replace(from, to);
        self
    }

    /// Takes out the lines that begin with this.
    pub fn without(&mut self, beginning: &str) -> &mut DeployFile {
        let is_kept = |line: &&str| !line.trim_start().starts_with(beginning);
        let kept: Vec<&str> = self.0.lines().filter(is_kept).collect();
        assert!(kept.len() < self.0.lines().count(), "the file in deploy/ has no {beginning:?} any more");
        self.0 = kept.join("\n") + "\n";
        self
    }
}

/// [`public_nginx_file`] without its check of the raw path, for tests that ask as operators do.
#[allow(dead_code, reason = "only the tests of a cluster use it")]
pub fn nginx_file(dir: &Path, servers: &[String]) -> DeployFile {
    let mut file = public_nginx_file(dir, servers);
    file.without("if ($request_uri");
    file
}

/// `deploy/nginx.conf` for these servers, in one process that its parent can stop by its id. Ports and TLS are left to do.
fn public_nginx_file(dir: &Path, servers: &[String]) -> DeployFile {
    fs::create_dir_all(dir).unwrap();
    let list: Vec<String> = servers
        .iter()
        .map(|server| format!("server {server} max_fails=2 fail_timeout=5s max_conns=50000;"))
        .collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {kind};"))
        .concat();
    let mut file = DeployFile::read("nginx.conf");
    file.replace("user nginx;", "daemon off; master_process off;")
        .replace("worker_processes auto;", "worker_processes 1;")
        .without("worker_rlimit_nofile")
        .replace("worker_connections 100000;", "worker_connections 9000;")
        .replace("error_log stderr warn;", "error_log error.log warn;")
        .replace("pid /tmp/nginx.pid;", "pid nginx.pid;")
        .replace("access_log /dev/stdout brief;", &format!("access_log off; {temporary}"))
        .replace("listen 80 default_server;", &format!("listen unix:{}/plain.sock;", dir.display()))
        .replace("server gateway-1:8080 max_fails=2 fail_timeout=5s max_conns=50000;", &list.join("\n"))
        .without("server gateway-2:8080");
    file
}

pub fn start_nginx(dir: &Path, address: &str, file: &DeployFile) -> ReverseProxy {
    let path = dir.join("nginx.conf");
    fs::write(&path, &file.0).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(dir).arg("-c").arg(&path).args(["-e", "error.log"]);
    ReverseProxy::run(command, address)
}

/// nginx with TLS in front of one server. `dir` holds `tls.crt` and `tls.key`.
#[allow(dead_code, reason = "only the tests of one process use TLS")]
pub fn nginx_with_tls(dir: &Path, address: &str, server: &str) -> ReverseProxy {
    let mut file = public_nginx_file(dir, &[server.to_owned()]);
    file.replace("listen 443 ssl default_server;", &format!("listen {address} ssl default_server;"))
        .replace("/etc/nginx/tls/", &format!("{}/", dir.display()));
    start_nginx(dir, address, &file)
}

/// HAProxy with TLS in front of one server. `dir` holds `tls.pem`.
#[allow(dead_code, reason = "only the tests of one process use it")]
pub fn haproxy_with_tls(dir: &Path, address: &str, server: &str) -> ReverseProxy {
    let mut file = DeployFile::read("haproxy.cfg");
    let at = dir.display();
    file.without("user haproxy")
        .without("group haproxy")
        .without("stats socket")
        .replace("maxconn 100000", "maxconn 1000")
        .replace("bind :80", &format!("bind unix@{at}/plain.sock"))
        .replace("bind :443 ssl crt /etc/haproxy/tls.pem", &format!("bind {address} ssl crt {at}/tls.pem"))
        .replace("server gateway-1 gateway-1:8080", &format!("server bluetick {server}"))
        .without("server gateway-2");
    let path = dir.join("haproxy.cfg");
    fs::write(&path, &file.0).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&path);
    ReverseProxy::run(command, address)
}
