//! Watching the server at work: the stream of steps with the rows they wrote, and all rows at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{harness::*, http::client};

/// A request that the demo answers.
fn demo(server: &Server, path: &str) -> reqwest::RequestBuilder {
    client().get(server.http(path)).header("x-bluetick-demo", server.demo_key())
}

/// A stream of steps that is read.
struct StepStream {
    answer: reqwest::Response,
    read: String,
}

impl StepStream {
    async fn open(server: &Server, query: &str) -> StepStream {
        let answer = demo(server, &format!("/demo/events?{query}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        StepStream { answer, read: String::new() }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.read = rest;
                if let Some(data) = event.strip_prefix("data: ") {
                    return serde_json::from_str(data).unwrap();
                }
                continue;
            }
            let chunk = tokio::time::timeout(SOON, self.answer.chunk()).await.expect("a step").unwrap();
            self.read += std::str::from_utf8(&chunk.expect("the stream goes on")).unwrap();
        }
    }

    /// The next step of this name.
    async fn step(&mut self, name: &str) -> Value {
        loop {
            let step = self.next().await;
            if step["step"] == name {
                return step;
            }
        }
    }

    /// The next steps, each as its name and whom it concerns.
    async fn take(&mut self, count: usize) -> Vec<(String, String)> {
        let mut steps = Vec::new();
        for _ in 0..count {
            let step = self.next().await;
            let text = |name: &str| step[name].as_str().unwrap().to_owned();
            steps.push((text("step"), text("user")));
        }
        steps
    }
}

fn steps(names: &[(&str, &str)]) -> Vec<(String, String)> {
    names.iter().map(|(step, user)| ((*step).to_owned(), (*user).to_owned())).collect()
}

async fn rows(server: &Server, users: &str) -> Value {
    let answer = demo(server, &format!("/demo/rows?users={users}")).send().await.unwrap();
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn the_steps_of_a_message_to_somebody_offline_come_in_order() {
    let server = Server::start();
    let mut seen = StepStream::open(&server, "users=alice,bob").await;
    let mut alice = server.connect("alice", "phone").await;
    assert_eq!(seen.take(2).await, steps(&[("registered", "alice"), ("caught_up", "alice")]));
    alice.send("carol", "not to be seen").await;
    alice.send("bob", "are you there?").await;
    let offline = [
        ("looked_up", "bob"),
        ("stored", "alice"),
        ("pending_row", "bob"),
        ("looked_again", "bob"),
        ("sent", "alice"),
    ];
    assert_eq!(seen.take(5).await, steps(&offline));

    let mut bob = server.connect("bob", "phone").await;
    assert_eq!(seen.take(3).await, steps(&[("registered", "bob"), ("drained", "bob"), ("caught_up", "bob")]));
    bob.ack_seq("alice~bob", 1).await;
    assert_eq!(seen.take(2).await, steps(&[("acked", "bob"), ("row_gone", "bob")]));
    bob.read("alice~bob", 1).await;
    assert_eq!(seen.take(1).await, steps(&[("read", "bob")]));

    alice.send("bob", "good").await;
    let mut online = seen.take(6).await;
    online.sort();
    let mut expected = steps(&[
        ("looked_up", "bob"),
        ("stored", "alice"),
        ("looked_again", "bob"),
        ("handed_over", "bob"),
        ("written", "bob"),
        ("sent", "alice"),
    ]);
    expected.sort();
    assert_eq!(online, expected);
    bob.leave().await;
    loop {
        // What he had not acked is written down first or afterwards.
        if seen.next().await["step"] == "unregistered" {
            break;
        }
    }
}

#[tokio::test]
async fn the_rows_are_those_of_inspect() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut carol = server.connect("carol", "phone").await;
    alice.send("bob", "one").await;
    alice.send("bob", "two").await;
    carol.send("alice", "three").await;
    let message = alice.message().await;
    alice.ack(&message).await;
    alice.read("alice~carol", 1).await;
    let rows = rows(&server, "alice,bob,carol").await;
    for (name, kind) in
        [("pending_deliveries", "pending"), ("message_status", "status"), ("conversations", "conversations")]
    {
        let mut all = Vec::new();
        for user in ["alice", "bob", "carol"] {
            all.extend(server.inspect(kind, user).as_array().unwrap().clone());
        }
        assert_eq!(rows[name], json!(all), "{name}");
        assert!(!all.is_empty(), "{name}");
    }
    for user in ["alice", "bob", "carol"] {
        assert_eq!(rows["ws"][user], server.inspect("sessions", user), "{user}");
    }
    let bodies: Vec<_> = rows["messages"].as_array().unwrap().iter().map(|m| m["body"].clone()).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
    assert_eq!(rows["inbox"]["bob"][0]["unread_count"], 2);
}

#[tokio::test]
async fn each_step_carries_the_rows_it_wrote() {
    let server = Server::start();
    let mut seen = StepStream::open(&server, "users=alice,bob").await;
    let mut alice = server.connect("alice", "phone").await;
    let registered = seen.step("registered").await;
    assert_eq!(registered["rows"], json!({ "ws": { "alice": server.inspect("sessions", "alice") } }));

    alice.send("bob", "are you there?").await;
    assert_eq!(seen.step("looked_up").await["rows"], json!({}), "a lookup writes nothing");
    let stored = seen.step("stored").await["rows"].clone();
    assert_eq!(stored["messages"][0]["body"], "are you there?");
    let both = [server.inspect("conversations", "alice"), server.inspect("conversations", "bob")];
    assert_eq!(stored["conversations"], json!([both[0][0], both[1][0]]));
    for user in ["alice", "bob"] {
        assert_eq!(stored["inbox"][user][0]["conversation_id"], "alice~bob", "{user}");
    }
    let pending = seen.step("pending_row").await["rows"].clone();
    assert_eq!(pending, json!({ "pending_deliveries": server.inspect("pending", "bob") }));

    let mut bob = server.connect("bob", "phone").await;
    bob.ack_seq("alice~bob", 1).await;
    let acked = seen.step("acked").await["rows"].clone();
    assert_eq!(acked, json!({ "message_status": server.inspect("status", "bob") }));
    assert_eq!(seen.step("row_gone").await["rows"], json!({ "pending_deliveries": [] }));
    bob.read("alice~bob", 1).await;
    let read = seen.step("read").await["rows"].clone();
    let expected = json!({
        "message_status": server.inspect("status", "bob"),
        "conversations": server.inspect("conversations", "bob"),
    });
    assert_eq!(read, expected);
    assert_eq!(read["conversations"][0]["unread_count"], 0);
    bob.leave().await;
    assert_eq!(seen.step("unregistered").await["rows"], json!({ "ws": { "bob": [] } }));
}

#[tokio::test]
async fn the_operator_s_stream_needs_the_key_and_carries_no_rows() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let key = std::fs::read_to_string(server.data().join("admin.key")).unwrap();
    let url = server.http("/admin/v1/events?users=alice,bob");
    let refused = client().get(&url).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 401);
    let mut watched = StepStream {
        answer: client().get(&url).bearer_auth(key.trim()).send().await.unwrap(),
        read: String::new(),
    };
    alice.send("bob", "hello").await;
    let looked_up = watched.step("looked_up").await;
    assert_eq!(looked_up["count"], 0);
    let stored = watched.step("stored").await;
    assert_eq!((&stored["seq"], stored.get("rows")), (&json!(1), None));
}

#[tokio::test]
async fn the_demo_s_rows_and_steps_are_for_pages_of_this_machine_only() {
    let server = Server::start();
    for path in ["/demo/rows?users=alice,bob", "/demo/events?users=alice,bob"] {
        let ask =
            |header: &'static str, value: &'static str| demo(&server, path).header(header, value).send();
        assert_eq!(ask("accept", "*/*").await.unwrap().status().as_u16(), 200, "{path}");
        for (header, value) in [
            ("host", "evil.example"),
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("user-agent", "Mozilla/5.0 (too old to say who asks)"),
            ("x-forwarded-for", "203.0.113.5"),
        ] {
            assert_eq!(ask(header, value).await.unwrap().status().as_u16(), 404, "{path} {header}: {value}");
        }
    }
}

#[tokio::test]
async fn streams_do_not_hold_up_the_end_of_the_server() {
    let mut server = Server::start();
    let mut seen = StepStream::open(&server, "users=alice").await;
    let began = Instant::now();
    assert_eq!(server.terminate(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(matches!(seen.answer.chunk().await, Ok(None) | Err(_)));
}
