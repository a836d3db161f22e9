//! Old messages in objects, from outside: moved by the server, read as before, and whole after a crash at any step.

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bluetick_protocol::{MessageFrame, Seq, Side};
use bluetick_store::{EmbeddedConfig, ManualClock, Store, failpoint, testing::message};
use serde_json::Value;

use crate::harness::*;

const DAY: u64 = 24 * 3_600_000;
const ID: &str = "alice~bob";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Fills a data directory with a conversation of two years, acked by Bob up to some seq. Alice wrote all of it.
pub async fn fill(dir: &Path, messages: u64, acked: Seq) {
    let begin = now() - 730 * DAY;
    let clock = Arc::new(ManualClock::new(begin));
    let store = Store::embedded(EmbeddedConfig::new(dir), clock.clone()).unwrap();
    let id = conversation(ID);
    let new = |seq: u64| {
        message(&id, Side::Low, &format!("phone-{seq}")).body(format!("message {seq} of {messages}"))
    };
    for from in (1..=messages).step_by(10) {
        let some = (from..=messages.min(from + 9)).map(new).collect();
        for committed in store.messages.commit_sends(some).await {
            committed.unwrap();
        }
        clock.advance(729 * DAY * 10 / messages);
    }
    store.status.advance(&id.member(Side::High), &id, acked, 0).await.unwrap();
    store.maintenance.close().await.unwrap();
}

/// The whole history, from the newest to the oldest, as a client pages through it; in order.
pub async fn history(person: &mut Person) -> Vec<MessageFrame> {
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = person.history(ID, None, before, 50).await;
        before = page.next;
        pages.push(page.messages);
        if before.is_none() {
            return pages.into_iter().rev().flatten().collect();
        }
    }
}

pub fn is_whole(history: &[MessageFrame], messages: u64) {
    let seqs: Vec<Seq> = history.iter().map(|m| m.seq).collect();
    assert_eq!(seqs, (1..=messages).collect::<Vec<_>>());
    assert!(history.iter().all(|m| m.body == format!("message {} of {messages}", m.seq)));
}

fn output_of(server: &Server, args: &[&str]) -> (bool, String) {
    let output = server.run(args);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

pub fn status(server: &Server) -> Value {
    let output = server.run(&["cold", "status", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn files_under(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for item in std::fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_under(&path)),
            false => files.push(path),
        }
    }
    files
}

#[tokio::test]
async fn two_years_are_moved_and_nobody_can_tell() {
    let mut server = Server::prepared(&[("BLUETICK_COLD__ENABLED", "false")]);
    let messages = 10_000;
    fill(&server.data(), messages, messages).await;
    server.restart();
    let mut alice = server.connect("alice", "phone").await;
    is_whole(&history(&mut alice).await, messages);

    let (moved, said) = output_of(&server, &["cold", "run"]);
    assert!(moved && said.contains("times smaller"), "{said}");
    let shown = status(&server);
    let cold = shown["messages"].as_u64().unwrap();
    // All but about a month of two years.
    assert!((9_400..9_700).contains(&cold), "{shown}");
    is_whole(&history(&mut alice).await, messages);
    let mut bob = server.open("bob", "phone", None).await;
    bob.caught_up().await;
    is_whole(&history(&mut bob).await, messages);
    // A read in the middle of what is cold counts what is behind it.
    bob.read(ID, 4_000).await;
    let inbox = loop {
        let inbox = bob.inbox(None, None).await;
        if inbox.conversations[0].unread_count != messages {
            break inbox;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(inbox.conversations[0].unread_count, messages - 4_000);

    // Forwards across the border, too.
    let page = alice.history(ID, Some(cold - 25), None, 50).await;
    assert_eq!(page.messages.len(), 50);
    assert_eq!((page.from_seq, page.to_seq), (cold - 24, cold + 25));
    let (_, trace) = output_of(&server, &["trace", ID, "5"]);
    assert!(trace.contains("blue"), "{trace}");
    assert!(output_of(&server, &["cold", "verify"]).0);
    let (again, said) = output_of(&server, &["cold", "run"]);
    assert!(again && said.contains("moved 0 messages"), "{said}");
    assert_eq!(alice.send("bob", "and on it goes").await.seq, messages + 1);
}

#[tokio::test]
async fn a_damaged_object_is_named_and_never_an_empty_page() {
    let mut server = Server::prepared(&[("BLUETICK_COLD__ENABLED", "false")]);
    fill(&server.data(), 3_000, 3_000).await;
    server.restart();
    assert!(output_of(&server, &["cold", "run"]).0);
    let mut objects = files_under(&server.data().join("objects/cold"));
    assert_eq!(objects.len(), 1, "{objects:?}");
    let object = objects.remove(0);
    let name = object.file_name().unwrap().to_str().unwrap().to_owned();
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&object, &bytes).unwrap();
    let mut alice = server.connect("alice", "phone").await;
    let query = |before: Seq| {
        bluetick_protocol::ClientFrame::History(bluetick_protocol::HistoryQuery {
            reference: None,
            conversation_id: conversation(ID),
            after_seq: None,
            before_seq: Some(before),
            limit: Some(50),
        })
    };
    alice.say(query(100)).await;
    let error = alice.error().await;
    assert!(error.message.contains(&name), "{error:?}");
    let (well, said) = output_of(&server, &["cold", "verify"]);
    assert!(!well && said.contains(&name) && said.contains("checksum"), "{said}");
    std::fs::remove_file(&object).unwrap();
    alice.say(query(2_000)).await;
    let error = alice.error().await;
    assert!(error.message.contains(&name), "{error:?}");
    let (well, said) = output_of(&server, &["cold", "verify"]);
    assert!(!well && said.contains(&name) && said.contains("missing"), "{said}");
    // What is hot is not touched by it.
    assert_eq!(alice.history(ID, None, None, 50).await.messages.len(), 50);
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let path = item.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_dir(&path, &there),
            false => drop(std::fs::copy(&path, &there).unwrap()),
        }
    }
}

/// An object that no run names, of a month ago, beside the one that is there: as a move that was cut off leaves it.
fn leave_an_object_behind(data: &Path) {
    let object = files_under(&data.join("objects/cold")).remove(0);
    let left = object.with_file_name("000000000009-000000000020-left");
    std::fs::copy(&object, &left).unwrap();
    let month_ago = SystemTime::now() - Duration::from_secs(30 * 24 * 3600);
    std::fs::File::options().write(true).open(&left).unwrap().set_modified(month_ago).unwrap();
}

/// A data directory with a short run that is cold and many messages that may follow it.
async fn half_moved(messages: u64) -> Server {
    let mut server = Server::prepared(&[("BLUETICK_COLD__ENABLED", "false")]);
    fill(&server.data(), messages, 500).await;
    server.restart();
    assert!(output_of(&server, &["cold", "run"]).0);
    assert_eq!(status(&server)["messages"], 500);
    // More is owed to him than a window holds: he acks as it comes.
    let mut bob = server.open("bob", "phone", None).await;
    loop {
        let message = bob.message().await;
        if message.seq % 100 == 0 {
            bob.ack(&message).await;
        }
        if message.seq == messages {
            break;
        }
    }
    while bob.status(ID).await.own.last_delivered_seq < messages {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.terminate();
    server
}

#[tokio::test]
async fn a_crash_at_every_step_of_the_mover_leaves_no_hole_and_nothing_twice() {
    let messages = 2_000;
    let half = half_moved(messages).await;
    for point in failpoint::ALL.iter().filter(|point| point.starts_with("cold.")) {
        let erases = point.starts_with("cold.erased");
        let mut server =
            Server::prepared(&[("BLUETICK_COLD__ENABLED", if erases { "false" } else { "true" })]);
        copy_dir(&half.data(), &server.data());
        leave_an_object_behind(&server.data());
        // The second pass of a drop: some are dropped, some are not.
        let pass = if *point == "cold.some_dropped" { 2 } else { 1 };
        let listened = server.start_armed(&format!("{point}:{pass}"));
        if erases && listened {
            let _ = server.run(&["erase", "--user", "alice", "--yes"]);
        }
        let ended = server.ended(SOON).await.unwrap_or_else(|| panic!("{point} was never passed"));
        assert_eq!(ended.signal(), Some(9), "{point}");

        server.set("BLUETICK_COLD__ENABLED", "false");
        server.restart();
        if erases {
            let (erased, said) = output_of(&server, &["erase", "--user", "alice", "--yes"]);
            assert!(erased, "{point}: {said}");
            let mut bob = server.connect("bob", "tablet").await;
            let left = history(&mut bob).await;
            assert!(left.is_empty(), "{point}: {} messages are left of who was erased", left.len());
        } else {
            let mut alice = server.connect("alice", "phone").await;
            is_whole(&history(&mut alice).await, messages);
            let (moved, said) = output_of(&server, &["cold", "run"]);
            assert!(moved, "{point}: {said}");
            is_whole(&history(&mut alice).await, messages);
            let cold = status(&server)["messages"].as_u64().unwrap();
            assert!((1_850..1_950).contains(&cold), "{point}: {cold} are cold");
        }
        let (well, said) = output_of(&server, &["cold", "verify"]);
        assert!(well, "{point}: {said}");
        let left = files_under(&server.data().join("objects/cold"));
        assert!(
            left.iter().all(|path| !path.ends_with("000000000009-000000000020-left")),
            "{point}: {left:?}"
        );
    }
}
