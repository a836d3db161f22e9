//! Disks that are full, cannot be written, or fail: sends are refused with a clear error, nothing that was confirmed is
//! lost, and service goes on when there is room again.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bluetick_protocol::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::harness::*;

fn prepared(settings: &[(&'static str, &str)]) -> Server {
    let mut server = Server::prepared(settings);
    server.set("BLUETICK_LIMITS__SENDS_PER_SECOND", "0");
    server
}

/// The segment of the log that is being written.
fn last_segment(server: &Server) -> PathBuf {
    let log = fs::read_dir(server.data().join("log")).unwrap();
    log.map(|item| item.unwrap().path()).max().unwrap()
}

/// Every message that bob has of alice, from the first on.
async fn stored(server: &Server) -> Vec<(Seq, String)> {
    let mut alice = server.connect("alice", "reader").await;
    let (mut stored, mut after) = (Vec::new(), 0);
    loop {
        let page = alice.history("alice~bob", Some(after), None, 200).await;
        stored.extend(page.messages.into_iter().map(|m| (m.seq, m.body)));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    alice.leave().await;
    stored
}

/// One sender who remembers what was confirmed.
struct RetryingSender {
    alice: Person,
    confirmed: Vec<(Seq, String)>,
    /// What was refused last; to be sent again with the same id.
    refused: Option<Send>,
    /// It was not refused: there was no answer, and the server may have it.
    unanswered: bool,
    count: usize,
    body: String,
}

impl RetryingSender {
    async fn new(server: &Server, body_bytes: usize) -> RetryingSender {
        let alice = server.connect("alice", "phone").await;
        RetryingSender {
            alice,
            confirmed: Vec::new(),
            refused: None,
            unanswered: false,
            count: 0,
            body: "x".repeat(body_bytes),
        }
    }

    /// Sends one message, or the refused one again. The error if it is refused.
    async fn send(&mut self) -> Result<(), WireError> {
        let send = self.refused.take().unwrap_or_else(|| {
            self.count += 1;
            send_frame("bob", &format!("{} {}", self.count, self.body))
        });
        self.alice.say(ClientFrame::Send(send.clone())).await;
        let answer = self.alice.wait(|frame| match frame {
            ServerFrame::Sent(sent) if sent.client_msg_id == send.client_msg_id => Some(Ok(sent)),
            ServerFrame::Error(e) => Some(Err(e.error)),
            _ => None,
        });
        self.unanswered = false;
        match answer.await {
            Ok(sent) => self.confirmed.push((sent.seq, send.body)),
            Err(error) => {
                self.refused = Some(send);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn send_all(&mut self, count: usize) {
        for _ in 0..count {
            self.send().await.unwrap();
        }
    }

    /// Sends until one is refused, which must be for want of room.
    async fn send_until_refused(&mut self) {
        let until = Instant::now() + SOON * 2;
        loop {
            assert!(Instant::now() < until, "{} were taken, and none refused", self.confirmed.len());
            if let Err(error) = self.send().await {
                assert_eq!(error.code, ErrorCode::StorageFull, "{error}");
                assert!(error.retry_after_ms.is_some(), "a client is told to try again: {error}");
                return;
            }
        }
    }

    /// Sends what was refused again until it is taken.
    async fn send_until_taken(&mut self) {
        let until = Instant::now() + SOON * 2;
        while let Err(error) = self.send().await {
            assert_eq!(error.code, ErrorCode::StorageFull, "{error}");
            assert!(Instant::now() < until, "there is room, and still: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends to bob, and as much to zoe, until the server is gone. What was not answered is to be sent again.
    async fn send_until_gone(&mut self) {
        loop {
            self.count += 1;
            let (for_bob, for_zoe) = (format!("{} {}", self.count, self.body), self.body.clone());
            for send in [send_frame("zoe", &for_zoe), send_frame("bob", &for_bob)] {
                let to_bob = send.to == Some(user("bob"));
                let said = self.alice.wire.send_frame(&ClientFrame::Send(send.clone())).await;
                let told = self.alice.wire.next_where(SOON, |frame| match frame {
                    ServerFrame::Sent(sent) => Some(sent.seq),
                    _ => None,
                });
                match (said, told.await) {
                    (Ok(()), Ok(seq)) if to_bob => self.confirmed.push((seq, send.body)),
                    (Ok(()), Ok(_)) => {}
                    _ => {
                        self.unanswered = to_bob;
                        self.refused = Some(send).filter(|_| to_bob);
                        return;
                    }
                }
            }
        }
    }

    /// What is stored is what was confirmed, each once.
    async fn check(&self, server: &Server, when: &str) {
        let seqs: Vec<_> = self.confirmed.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{when}");
        let mut stored = stored(server).await;
        // What got no answer may be there all the same; nobody was told, and it is sent again with the same id.
        if let (Some(refused), Some((_, last))) = (&self.refused, stored.last())
            && self.unanswered
            && refused.body == *last
        {
            stored.pop();
        }
        assert!(stored == self.confirmed, "{when}: stored is not what was confirmed");
    }
}

/// Runs a server on which a file that may not grow is an error and not a signal, as on a full disk.
fn without_size_signals(command: &mut Command) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell.stdout(Stdio::piped());
    *command = shell;
}

/// No file of the process may grow beyond this from now on.
fn limit_files(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    let limit = Rlimit { current: bytes, maximum: getrlimit(Resource::Fsize).maximum };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

#[tokio::test]
async fn a_log_that_cannot_grow_refuses_sends_until_there_is_room() {
    let mut server = prepared(&[]);
    server.started_by(without_size_signals);
    server.restart();
    let mut sender = RetryingSender::new(&server, 300).await;
    sender.send_all(20).await;
    for round in 0..3u64 {
        // Somewhere in the middle of a group: a part of it is written before the error.
        let full = fs::metadata(last_segment(&server)).unwrap().len() + 1200 + round * 101;
        limit_files(&server, Some(full));
        sender.send_until_refused().await;
        sender.send().await.unwrap_err();
        sender.check(&server, "reading goes on").await;
        limit_files(&server, None);
        sender.send_until_taken().await;
        sender.send_all(5).await;
    }
    sender.check(&server, "while it runs").await;
    limit_files(&server, Some(fs::metadata(last_segment(&server)).unwrap().len() + 700));
    sender.send_until_refused().await;
    server.kill();
    server.restart();
    sender.check(&server, "after a crash on a full disk").await;
}

#[tokio::test]
async fn an_engine_that_cannot_grow_refuses_sends_until_there_is_room() {
    let mut server = prepared(&[("BLUETICK_STORE__CHECKPOINT_BYTES", "150000")]);
    server.started_by(without_size_signals);
    server.restart();
    let mut sender = RetryingSender::new(&server, 4000).await;
    sender.send_all(10).await;
    // A segment of the log stays below this for longer than a run of the engine does.
    limit_files(&server, Some(120_000));
    sender.send_until_refused().await;
    sender.check(&server, "reading goes on").await;
    limit_files(&server, None);
    sender.send_until_taken().await;
    sender.send_all(200).await;
    sender.check(&server, "while it runs").await;
    server.kill();
    server.restart();
    sender.check(&server, "after a crash").await;
}

#[tokio::test]
async fn an_engine_whose_own_work_failed_is_opened_anew() {
    let mut server = prepared(&[("BLUETICK_STORE__CHECKPOINT_BYTES", "60000")]);
    server.started_by(without_size_signals);
    server.restart();
    let mut sender = RetryingSender::new(&server, 0).await;
    // Of a kind that does not become small when it is compressed.
    let mut random = StdRng::seed_from_u64(1);
    sender.body = (0..4000).map(|_| random.random_range('!'..='~')).collect();
    sender.send_all(5).await;
    // Segments and runs are smaller than this, and what a compaction makes of several runs is not.
    limit_files(&server, Some(130_000));
    sender.send_until_gone().await;
    assert_eq!(server.ended(SOON).await.unwrap().signal(), Some(6), "it ends by itself");
    server.restart();
    sender.check(&server, "after it ended itself").await;
    sender.alice = server.connect("alice", "phone").await;
    sender.send_until_taken().await;
    sender.send_all(100).await;
    sender.check(&server, "and on").await;
}

/// Lets the server run as somebody who may not write everywhere; root may.
fn as_an_ordinary_user(server: &mut Server) {
    fs::create_dir_all(server.data()).unwrap();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The way to the binary may be closed to others: it gets another name here.
    let own = server.dir.path().join("bluetick");
    fs::hard_link(binary(), &own).or_else(|_| fs::copy(binary(), &own).map(drop)).unwrap();
    fs::set_permissions(server.dir.path(), Permissions::from_mode(0o755)).unwrap();
    chown(server.data(), Some(NOBODY), Some(NOBODY)).unwrap();
    server.started_by(|command| {
        let data = Path::new(command.get_args().nth(2).unwrap());
        let mut other = Command::new(data.with_file_name("bluetick"));
        other.args(command.get_args()).uid(NOBODY).gid(NOBODY);
        other.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        other.stdout(Stdio::piped());
        *command = other;
    });
}

const NOBODY: u32 = 65_534;

/// Takes from everybody, or gives back to the owner, the right to write to a directory and all in it.
fn make_writable(path: &Path, writable: bool) {
    let is_dir = path.is_dir();
    let mode = if is_dir { 0o555 } else { 0o444 } | if writable { 0o200 } else { 0 };
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if is_dir {
        fs::read_dir(path).unwrap().for_each(|item| make_writable(&item.unwrap().path(), writable));
    }
}

/// Names and lengths of all files.
fn contents(path: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = vec![(path.to_owned(), fs::metadata(path).unwrap().len())];
    if path.is_dir() {
        all.extend(fs::read_dir(path).unwrap().flat_map(|item| contents(&item.unwrap().path())));
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_read_only_directory_is_refused_and_not_touched() {
    let mut server = prepared(&[]);
    as_an_ordinary_user(&mut server);
    server.restart();
    let mut sender = RetryingSender::new(&server, 100).await;
    sender.send_all(20).await;
    server.kill();
    make_writable(&server.data(), false);
    let before = contents(&server.data());
    let (status, why) = server.fails_to_start();
    assert_eq!(status.code(), Some(1), "{why}");
    assert!(why.contains(server.data().to_str().unwrap()), "it says which directory: {why}");
    assert!(why.contains("ermission denied") && !why.contains("panicked"), "and why: {why}");
    assert_eq!(contents(&server.data()), before, "nothing was touched");
    make_writable(&server.data(), true);
    server.restart();
    sender.check(&server, "writable again").await;
}

#[tokio::test]
async fn a_log_or_an_engine_that_becomes_read_only_refuses_sends_until_it_is_writable() {
    for part in ["log", "engine"] {
        let mut server = prepared(&[("BLUETICK_STORE__CHECKPOINT_BYTES", "200000")]);
        as_an_ordinary_user(&mut server);
        server.restart();
        let mut sender = RetryingSender::new(&server, 16_000).await;
        sender.send_all(5).await;
        make_writable(&server.data().join(part), false);
        sender.send_until_refused().await;
        sender.check(&server, "reading goes on").await;
        make_writable(&server.data().join(part), true);
        sender.send_until_taken().await;
        sender.send_all(30).await;
        server.kill();
        server.restart();
        sender.check(&server, part).await;
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_crash_after_a_segment_could_not_be_begun_leaves_a_log_that_opens() {
    let mut server = prepared(&[("BLUETICK_STORE__CHECKPOINT_BYTES", "20000")]);
    as_an_ordinary_user(&mut server);
    server.restart();
    let mut sender = RetryingSender::new(&server, 4000).await;
    sender.send_all(3).await;
    server.kill();
    assert!(server.start_armed("log.half_a_group:5"));
    // The directory takes a new file, and cannot be opened to make that durable: there is no new segment, and the old
    // one goes on until it ends with half a group.
    let log = server.data().join("log");
    fs::set_permissions(&log, Permissions::from_mode(0o333)).unwrap();
    sender.alice = server.connect("alice", "phone").await;
    sender.send_until_gone().await;
    assert_eq!(server.ended(SOON).await.unwrap().signal(), Some(9));
    fs::set_permissions(&log, Permissions::from_mode(0o755)).unwrap();
    server.restart();
    sender.check(&server, "after the crash").await;
    sender.alice = server.connect("alice", "phone").await;
    sender.send_until_taken().await;
    sender.check(&server, "and on").await;
}

#[tokio::test]
async fn an_fsync_that_fails_ends_the_process() {
    let mut server = prepared(&[]);
    server.restart();
    let mut sender = RetryingSender::new(&server, 100).await;
    sender.send_all(3).await;
    assert_eq!(server.terminate(), Some(0));
    let segment = last_segment(&server);
    assert_eq!(fs::metadata(&segment).unwrap().len(), 0, "all of it is in the engine");
    // It takes every byte and cannot be synced.
    fs::remove_file(&segment).unwrap();
    symlink("/dev/null", &segment).unwrap();
    server.restart();
    let mut alice = server.connect("alice", "phone").await;
    let send = send_frame("bob", "is it stored?");
    alice.say(ClientFrame::Send(send.clone())).await;
    let told = alice.wire.next_where(SOON, |frame| match frame {
        ServerFrame::Sent(_) | ServerFrame::Error(_) => Some(frame),
        _ => None,
    });
    assert!(told.await.is_err(), "nobody is told anything");
    let signal = server.ended(SOON).await.unwrap().signal();
    assert_eq!(signal, Some(6), "it ends by itself");
    fs::remove_file(&segment).unwrap();
    server.restart();
    sender.check(&server, "after the crash").await;
    let mut alice = server.connect("alice", "phone").await;
    let sent = alice.send_as(send).await;
    assert_eq!((sent.seq, sent.duplicate), (4, false));
}

/// Tests that measure the free space of the file system in memory run one at a time, until this is dropped.
pub fn alone_in_memory() -> fs::File {
    let lock = fs::File::create(std::env::temp_dir().join("bluetick-test-shm.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    lock
}

#[tokio::test]
async fn the_floor_of_free_space_refuses_sends_and_lets_them_pass_again() {
    // A file system in memory: nobody else's builds and logs come and go on it.
    let shm = Path::new("/dev/shm");
    let _alone = alone_in_memory();
    let stat = rustix::fs::statvfs(shm).unwrap();
    let floor = stat.f_bavail * stat.f_frsize - (16 << 20);
    let mut server = prepared(&[]);
    server.dir = tempfile::tempdir_in(shm).unwrap();
    server.set("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", &floor.to_string());
    server.set("BLUETICK_ATTACHMENTS__UPLOAD_FREE_SPACE_FLOOR_BYTES", &floor.to_string());
    server.restart();
    let mut sender = RetryingSender::new(&server, 100).await;
    sender.send_all(5).await;
    let filler = server.dir.path().join("filler");
    fs::write(&filler, vec![1; 40 << 20]).unwrap();
    sender.send_until_refused().await;
    sender.check(&server, "reading goes on").await;
    // A device that has something to ack can do so.
    let mut bob = server.open("bob", "phone", None).await;
    for (seq, _) in &sender.confirmed {
        let message = bob.message().await;
        assert_eq!(message.seq, *seq);
        bob.ack(&message).await;
    }
    bob.ack_seq("alice~bob", sender.confirmed.len() as u64).await;
    server.pending_becomes("bob", &[]).await;
    let ready = crate::http::client().get(server.http("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503);
    fs::remove_file(&filler).unwrap();
    sender.send_until_taken().await;
    server.kill();
    server.restart();
    sender.check(&server, "after a crash").await;
}
