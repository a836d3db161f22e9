//! Notifications, from a message that nobody took to what a provider got over HTTP/2 and TLS.

#[path = "../../src/push/tests/recorder.rs"]
pub mod recorder;

use std::time::Duration;

use serde_json::{Value, json};

use self::recorder::{RecordedRequest, Recorder, ScriptedReply};
use crate::{deployment::VOIDS, harness::*};

const TOKEN: &str = "00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff";

/// A server whose APNs and webhook are the test's own, and what they got.
pub struct PushScenario {
    pub server: Server,
    pub provider: Recorder,
}

impl PushScenario {
    pub async fn start(settings: &[(&'static str, &str)]) -> PushScenario {
        let provider = Recorder::start().await;
        let mut server = Server::prepared(&[]);
        set_up(&mut server, &provider);
        for (key, value) in settings {
            server.set(key, value);
        }
        server.restart();
        PushScenario { server, provider }
    }

    /// Registers a device by HTTP, as an app does.
    async fn register(&self, user: &str, device: &str, registration: Value) -> Value {
        let (status, answer) = self
            .call(reqwest::Method::PUT, user, &format!("/v1/devices/{device}/push"), Some(registration))
            .await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    async fn call(
        &self,
        method: reqwest::Method,
        user: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = crate::http::client()
            .request(method, self.server.http(path))
            .bearer_auth(self.server.token(user))
            .header("content-type", "application/json");
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn with_bobs_phone(settings: &[(&'static str, &str)]) -> PushScenario {
        let scene = PushScenario::start(settings).await;
        scene.register("bob", "phone", json!({"provider": "apns", "token": TOKEN})).await;
        scene
    }

    /// What Bob's phone was sent, once there is as much of it.
    async fn notified(&self, count: usize) -> Vec<RecordedRequest> {
        self.provider.wait_for("/3/device/", count).await
    }
}

fn set_up(server: &mut Server, provider: &Recorder) {
    let dir = server.dir.path().to_owned();
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    server.set("BLUETICK_PUSH__CA_FILE", &file("ca.pem", &provider.ca_pem));
    server.set("BLUETICK_PUSH__DELAY_MS", "50");
    server.set("BLUETICK_PUSH__CLAIM_SECS", "3");
    server.set("BLUETICK_PUSH__APNS__KEY_FILE", &file("key.p8", &key.serialize_pem()));
    server.set("BLUETICK_PUSH__APNS__KEY_ID", "ABC1234567");
    server.set("BLUETICK_PUSH__APNS__TEAM_ID", "DEF1234567");
    server.set("BLUETICK_PUSH__APNS__TOPIC", "org.example.chat");
    server.set("BLUETICK_PUSH__APNS__URL", &provider.url);
    server.set("BLUETICK_PUSH__WEBHOOK__URL", &format!("{}/hook", provider.url));
    server.set("BLUETICK_PUSH__WEBHOOK__SECRET", "a secret of a length that nobody guesses soon");
}

fn shown(request: &RecordedRequest) -> String {
    let body = request.json();
    let alert = &body["aps"]["alert"];
    format!("{}: {}", alert["title"].as_str().unwrap_or("?"), alert["body"].as_str().unwrap_or("?"))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_messages_to_somebody_offline_and_a_fourth_to_somebody_who_is_not() {
    let scene = PushScenario::with_bobs_phone(&[]).await;
    let mut alice = scene.server.connect("alice", "phone").await;
    let mut sent = Vec::new();
    for (n, body) in ["hello", "are you there?", "where are you?"].into_iter().enumerate() {
        sent.push(alice.send("bob", body).await);
        scene.notified(n + 1).await;
    }
    let got = scene.notified(3).await;
    assert_eq!(
        got.iter().map(shown).collect::<Vec<_>>(),
        ["alice: hello", "alice: are you there?", "alice: where are you?"]
    );
    for (n, (request, sent)) in got.iter().zip(&sent).enumerate() {
        assert!(request.http2, "APNs speaks nothing else");
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", &*format!("/3/device/{TOKEN}"))
        );
        assert_eq!(request.header("apns-topic"), Some("org.example.chat"));
        assert_eq!(request.header("apns-push-type"), Some("alert"));
        assert_eq!(request.header("apns-collapse-id"), got[0].header("apns-collapse-id"));
        let body = request.json();
        assert_eq!(body["aps"]["badge"], n + 1, "what is unread by then");
        assert_eq!(body["bluetick"]["conversation_id"], "alice~bob");
        assert_eq!(body["bluetick"]["message_id"], sent.message_id.to_string());
        assert_eq!(body["bluetick"]["seq"], sent.seq);
    }
    assert!(got[0].header("apns-collapse-id").is_some_and(|id| id.len() <= 64));

    // Whoever is there needs no notification: the next one that comes is of a later message.
    let mut bob = scene.server.open("bob", "tablet", None).await;
    let (missed, _) = bob.caught_up().await;
    bob.ack(missed.last().unwrap()).await;
    alice.send("bob", "a fourth").await;
    let live = bob.message().await;
    assert_eq!(live.body, "a fourth");
    bob.ack_seq("alice~bob", live.seq).await;
    drop(bob);
    sessions_end(&scene.server, "bob").await;
    alice.send("bob", "a fifth").await;
    let got = scene.notified(4).await;
    assert_eq!(shown(&got[3]), "alice: a fifth");
    assert_eq!(got.len(), 4);
}

async fn sessions_end(server: &Server, user: &str) {
    for _ in 0..300 {
        if server.rows("sessions", user).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{user} is still connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_the_row_and_the_notification_loses_nothing() {
    let mut scene = PushScenario::with_bobs_phone(&[("BLUETICK_PUSH__DELAY_MS", "3000")]).await;
    let mut alice = scene.server.connect("alice", "phone").await;
    let sent = alice.send("bob", "before the crash").await;
    scene.server.kill();
    assert_eq!(scene.provider.requests("/3/device/").len(), 0, "it was killed in time");
    scene.server.set("BLUETICK_PUSH__DELAY_MS", "50");
    scene.server.restart();
    let got = scene.notified(1).await;
    assert_eq!(shown(&got[0]), "alice: before the crash");
    assert_eq!(got[0].json()["bluetick"]["message_id"], sent.message_id.to_string());
    assert_eq!(scene.server.pending("bob"), [("alice~bob".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_socket_is_found_out_by_its_missing_acks() {
    let settings = [("BLUETICK_PUSH__UNACKED_SECS", "2"), ("BLUETICK_SESSIONS__ACK_TIMEOUT_SECS", "60")];
    let scene = PushScenario::with_bobs_phone(&settings).await;
    let mut alice = scene.server.connect("alice", "phone").await;
    // Nobody reads what comes to it: as a phone out of reach, which has sent no FIN.
    let bob = scene.server.connect("bob", "phone").await;
    alice.send("bob", "are you there?").await;
    assert_eq!(scene.server.pending("bob"), [], "it was handed over");
    let got = scene.notified(1).await;
    assert_eq!(shown(&got[0]), "alice: are you there?");
    scene.server.pending_becomes("bob", &[("alice~bob", 1)]).await;
    drop(bob);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_on_one_device_is_cleared_on_the_other() {
    let scene = PushScenario::with_bobs_phone(&[]).await;
    let mut alice = scene.server.connect("alice", "phone").await;
    alice.send("bob", "one").await;
    scene.notified(1).await;
    let mut bob = scene.server.connect("bob", "tablet").await;
    bob.read("alice~bob", 1).await;
    let got = scene.notified(2).await;
    let body = got[1].json();
    assert_eq!((body["aps"]["badge"].as_u64(), body["bluetick"]["type"].as_str()), (Some(0), Some("clear")));
    assert!(body["aps"].get("alert").is_none() && body["aps"].get("sound").is_none(), "{body}");
    assert_eq!(got[1].header("apns-priority"), Some("5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_for_a_while_gets_the_last_of_each_conversation() {
    let scene = PushScenario::with_bobs_phone(&[]).await;
    scene.provider.set_down(true);
    let mut alice = scene.server.connect("alice", "phone").await;
    let mut carol = scene.server.connect("carol", "phone").await;
    for n in 1..=20 {
        alice.send("bob", &format!("a{n}")).await;
        carol.send("bob", &format!("c{n}")).await;
    }
    // Each has been tried for its last message, in vain.
    let tried = |row: &Value| row["seq"] == 20 && row["attempts"].as_u64() > Some(0);
    for _ in 0..300 {
        if scene.server.rows("push", "bob").await.iter().filter(|row| tried(row)).count() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(scene.server.rows("push", "bob").await.len(), 2, "one row a conversation is owed");
    scene.provider.set_down(false);
    let mut got: Vec<_> = scene.notified(2).await.iter().map(shown).collect();
    got.sort();
    assert_eq!(got, ["alice: a20", "carol: c20"]);
    for _ in 0..200 {
        if scene.server.rows("push", "bob").await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("something is still owed: {:?}", scene.server.rows("push", "bob").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_gone_is_forgotten_and_a_wrong_key_is_not_its_fault() {
    let scene = PushScenario::with_bobs_phone(&[]).await;
    scene.register("bob", "hook", json!({"provider": "webhook", "token": "bob-1", "content": "none"})).await;
    let mut alice = scene.server.connect("alice", "phone").await;
    scene
        .provider
        .answer("/3/device/", ScriptedReply::status(403).body(r#"{"reason":"InvalidProviderToken"}"#));
    alice.send("bob", "one").await;
    let hook = scene.provider.wait_for("/hook", 1).await.remove(0).json();
    assert_eq!(hook["token"], "bob-1");
    assert!(!hook.to_string().contains("alice"), "a private device's provider learns of nobody: {hook}");
    scene.notified(1).await;
    let ready = crate::http::client().get(scene.server.http("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 200, "messages flow all the same");
    // In a cluster the app servers say it, and not whom the balancer asks.
    if !VOIDS {
        let mut said = ready.text().await.unwrap();
        for _ in 0..200 {
            if said.contains("InvalidProviderToken") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let ready = crate::http::client().get(scene.server.http("/readyz")).send().await.unwrap();
            said = ready.text().await.unwrap();
        }
        assert!(said.contains("InvalidProviderToken"), "{said}");
        let doctor = scene.server.run(&["doctor"]);
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(!doctor.status.success() && said.contains("InvalidProviderToken"), "{said}");
    }
    assert_eq!(scene.server.rows("devices", "bob").await.len(), 2, "nobody is forgotten for that");

    // The key is put right, and what waited goes out; the phone has been thrown away meanwhile.
    let gone = r#"{"reason":"Unregistered","timestamp":4000000000000}"#;
    scene.provider.answer("/3/device/", ScriptedReply::status(410).body(gone));
    let before = scene.provider.requests("/3/device/").len();
    scene.notified(before + 1).await;
    for _ in 0..200 {
        if scene.server.rows("devices", "bob").await.len() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", scene.server.rows("devices", "bob").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_tests_the_way_to_somebodys_devices() {
    let scene = PushScenario::with_bobs_phone(&[]).await;
    scene.register("bob", "hook", json!({"provider": "webhook", "token": "bob-1"})).await;
    scene.provider.answer("/hook", ScriptedReply::status(503));
    let tested = scene.server.run(&["push", "test", "--user", "bob"]);
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert_eq!(tested.status.code(), Some(1), "one of them did not take it: {said}");
    let line = |of: &str| said.lines().find(|line| line.contains(of)).unwrap_or_default().to_owned();
    assert!(line("phone").contains("accepted"), "{said}");
    assert!(line("hook").contains("503"), "{said}");
    scene.provider.answer("/hook", ScriptedReply::status(200));
    let tested = scene.server.run(&["push", "test", "--user", "bob"]);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    let nobody = scene.server.run(&["push", "test", "--user", "carol"]);
    assert!(!nobody.status.success());
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("no device"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_registered_listed_and_taken_over() {
    use reqwest::Method;
    let scene = PushScenario::with_bobs_phone(&[]).await;
    let (status, listed) = scene.call(Method::GET, "bob", "/v1/devices", None).await;
    assert_eq!(status, 200);
    assert_eq!(listed["devices"][0]["device"], "phone");
    assert!(!listed.to_string().contains(TOKEN), "a token is not shown again: {listed}");
    scene.register("carol", "phone", json!({"provider": "apns", "token": TOKEN})).await;
    let (_, listed) = scene.call(Method::GET, "bob", "/v1/devices", None).await;
    assert_eq!(listed["devices"], json!([]), "it is Carol's phone now");
    let (status, _) = scene.call(Method::DELETE, "carol", "/v1/devices/phone/push", None).await;
    assert_eq!(status, 204);
    for (bad, code, why) in [
        (json!({"provider": "pigeon", "token": "x"}), 400, "pigeon"),
        (json!({"provider": "apns", "token": "not hex"}), 400, "token"),
        (json!({"provider": "fcm", "token": "x"}), 501, "fcm"),
        (json!({"token": "x"}), 400, "provider"),
    ] {
        let (status, answer) =
            scene.call(Method::PUT, "bob", "/v1/devices/phone/push", Some(bad.clone())).await;
        assert_eq!(status, code, "{bad}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{bad}: {answer}");
    }
    let (_, listed) = scene.call(Method::GET, "bob", "/v1/devices", None).await;
    assert_eq!(listed["devices"], json!([]));
}
