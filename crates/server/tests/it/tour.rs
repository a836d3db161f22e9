//! `docs/tour.md` is true: its commands run as written, and print what the page shows.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{binary, quiet_port};

const PAGE: &str = include_str!("../../../../docs/tour.md");
/// Printed between two blocks of commands.
const SEPARATOR: &str = "== next block ==";

/// A fenced block: what follows the backticks, and its lines.
struct Block {
    kind: &'static str,
    lines: Vec<&'static str>,
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            blocks.push(Block { kind, lines: lines.by_ref().take_while(|line| *line != "```").collect() });
        }
    }
    blocks
}

/// The server of the page, stopped by its own id when the test ends.
struct TourServer(Child);

impl TourServer {
    fn start(directory: &Path, port: u16) -> TourServer {
        let mut command = Command::new(binary());
        command.current_dir(directory).env("BLUETICK_SERVER__LISTEN", format!("127.0.0.1:{port}"));
        let server = TourServer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for TourServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs blocks of commands in one shell, and returns what each printed.
fn run(directory: &Path, port: u16, blocks: &[&Block]) -> Vec<Vec<String>> {
    let mut script = String::from("set -e\n");
    for block in blocks {
        script += &block.lines.join("\n");
        script += &format!("\necho '{SEPARATOR}'\n");
    }
    // The page's port and files may be somebody else's on this machine.
    let script = script
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"))
        .replace("/tmp/", &format!("{}/", directory.display()));
    let done = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}\n{printed}\n{errors}", done.status);
    let blocks = printed.split(SEPARATOR).map(|text| text.trim().lines().map(str::to_owned).collect());
    blocks.collect()
}

/// A line without what differs from run to run: long numbers, and the widths of columns.
fn normal(line: &str) -> String {
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut normal = String::new();
    let mut digits = String::new();
    for c in words.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        normal += if digits.len() >= 10 { "N" } else { &digits };
        digits.clear();
        normal.push(c);
    }
    normal.trim_end().to_owned()
}

#[test]
fn the_commands_of_the_tour_print_what_the_page_shows() {
    let directory = tempfile::tempdir().unwrap();
    let release = directory.path().join("target/release");
    std::fs::create_dir_all(&release).unwrap();
    std::os::unix::fs::symlink(binary(), release.join("bluetick")).unwrap();
    let port = quiet_port();

    let blocks = blocks();
    let kill = blocks.iter().position(|block| block.kind == "sh kill").unwrap();
    let commands = |range: &[Block]| range.iter().filter(|block| block.kind == "sh tour").count();
    let all: Vec<&Block> = blocks.iter().filter(|block| block.kind == "sh tour").collect();
    let before = commands(&blocks[..kill]);
    assert!(before >= 5 && all.len() >= before + 2, "the page has lost its commands");

    let server = TourServer::start(directory.path(), port);
    let mut printed = run(directory.path(), port, &all[..before]);
    printed.truncate(before);
    server.kill();
    let server = TourServer::start(directory.path(), port);
    // A new shell needs the names of the first block again.
    let again: Vec<&Block> = all[..1].iter().chain(&all[before..]).copied().collect();
    let after = run(directory.path(), port, &again);
    printed.extend(after.into_iter().skip(1).take(all.len() - before));
    drop(server);

    let mut number = 0;
    for pair in blocks.windows(2) {
        if pair[0].kind != "sh tour" {
            continue;
        }
        if pair[1].kind == "text output" {
            let shown: Vec<String> = pair[1].lines.iter().map(|line| normal(line)).collect();
            let printed: Vec<String> = printed[number].iter().map(|line| normal(line)).collect();
            assert_eq!(printed, shown, "block {number}");
        }
        number += 1;
    }
    let status = printed[4].iter().find(|line| line.contains("last_read_seq")).unwrap();
    assert!(status.contains(r#""peer":{"last_delivered_seq":3,"last_read_seq":3}"#), "{status}");
}
