//! Commands that talk to a server over TLS: whom they trust, and what they say of a certificate that is wrong.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::harness::*;

/// A server that speaks TLS only.
struct Secure {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl Secure {
    /// With a certificate for these names, made now and by itself.
    fn start(names: &[&str]) -> Secure {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Secure::with(rcgen::CertificateParams::new(names).unwrap())
    }

    fn with(params: rcgen::CertificateParams) -> Secure {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
        let mut child = Command::new(binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path().join("data"))
            .env("BLUETICK_LOG__FILTER", "error")
            .env("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", "1048576")
            .env("BLUETICK_TLS__CERT_FILE", dir.path().join("cert.pem"))
            .env("BLUETICK_TLS__KEY_FILE", dir.path().join("key.pem"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            if let Some(at) = line.find("https://") {
                let end = |c: char| !(c.is_ascii_alphanumeric() || ".:/[]-".contains(c));
                let rest = &line[at..];
                break rest[..rest.find(end).unwrap_or(rest.len())].trim_end_matches(['/', '.']).to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Secure { child, dir, url }
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).env_remove("SSL_CERT_FILE");
        if args[0] == "health" {
            command.args(["--url", &self.url]);
        } else {
            command.args(["--server", &self.url, "--data"]).arg(self.dir.path().join("data"));
        }
        command
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CHAT: &[&str] = &["chat", "--as", "alice", "--to", "bob"];

/// Runs a command with a line on its standard input; it must end soon.
fn finish(command: &mut Command, line: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Left open: a command that waits for more to send must give up all the same.
    let mut input = child.stdin.take().unwrap();
    let _ = writeln!(input, "{line}");
    let until = Instant::now() + SOON;
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let hung = child.try_wait().unwrap().is_none();
    if hung {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!hung, "it hangs: {}", all(&output));
    output
}

fn all(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn chat_says_what_is_wrong_with_a_certificate_and_ends() {
    let server = Secure::start(&["127.0.0.1"]);
    let output = finish(&mut server.command(CHAT), "hello");
    let told = all(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("not trusted here") && told.contains("--ca-file"), "{told}");

    let elsewhere = Secure::start(&["chat.example"]);
    let mut command = elsewhere.command(CHAT);
    let output = finish(command.arg("--ca-file").arg(elsewhere.certificate()), "hello");
    let told = all(&output);
    assert!(!output.status.success() && told.contains("chat.example"), "{told}");

    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let expired = Secure::with(params);
    let output = finish(expired.command(CHAT).env("SSL_CERT_FILE", expired.certificate()), "hello");
    assert!(!output.status.success() && all(&output).contains("has expired"), "{}", all(&output));
}

#[test]
fn chat_says_that_nobody_listens_and_ends() {
    let url = format!("http://127.0.0.1:{}", quiet_port());
    let mut command = Command::new(binary());
    command.args(CHAT).args(["--token", "x", "--server", &url]);
    let output = finish(&mut command, "hello");
    let told = all(&output);
    assert!(!output.status.success() && told.contains("refused"), "{told}");
}

#[test]
fn every_command_trusts_whom_it_is_told_to() {
    let server = Secure::start(&["127.0.0.1"]);
    let commands: [&[&str]; 4] = [
        &["doctor"],
        &["inspect", "sessions", "--user", "alice"],
        &["health"],
        &["export", "--user", "alice"],
    ];
    for args in commands {
        let refused = finish(&mut server.command(args), "");
        assert!(!refused.status.success(), "{args:?}: {}", all(&refused));
        assert!(all(&refused).contains("certificate"), "{args:?}: {}", all(&refused));
        let by_flag = finish(server.command(args).arg("--ca-file").arg(server.certificate()), "");
        assert!(by_flag.status.success(), "{args:?}: {}", all(&by_flag));
        let by_variable = finish(server.command(args).env("SSL_CERT_FILE", server.certificate()), "");
        assert!(by_variable.status.success(), "{args:?}: {}", all(&by_variable));
    }
    let mut chat = server.command(CHAT);
    chat.env("SSL_CERT_FILE", server.certificate()).stdin(Stdio::null());
    assert!(chat.output().unwrap().status.success());
}

#[test]
fn doctor_names_a_certificate_problem_as_one() {
    let server = Secure::start(&["127.0.0.1"]);
    // As an operator on the same machine runs it: the address is the one that the data directory names.
    let mut command = Command::new(binary());
    command.args(["doctor", "--data"]).arg(server.dir.path().join("data")).env_remove("SSL_CERT_FILE");
    for output in [finish(&mut server.command(&["doctor"]), ""), finish(&mut command, "")] {
        let told = all(&output);
        assert!(told.contains("certificate") && told.contains("not trusted here"), "{told}");
        for wrong in ["no server answers", "in use by another process", "another process"] {
            assert!(!told.contains(wrong), "{told}");
        }
    }
    let trusted = finish(server.command(&["doctor"]).arg("--ca-file").arg(server.certificate()), "");
    assert!(trusted.status.success() && all(&trusted).contains("answers at https://"), "{}", all(&trusted));
}

#[test]
fn a_file_without_certificates_is_a_wrong_call_and_not_read_where_it_is_not_needed() {
    let server = Secure::start(&["127.0.0.1"]);
    let empty = server.dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let output = finish(server.command(CHAT).arg("--ca-file").arg(&empty), "");
    assert_eq!(output.status.code(), Some(2), "{}", all(&output));
    let plain = Server::start();
    let mut command = Command::new(binary());
    command.args(["health", "--url", &plain.http("")]).env("SSL_CERT_FILE", "/nonexistent.pem");
    let output = finish(&mut command, "");
    assert!(output.status.success(), "{}", all(&output));
}
