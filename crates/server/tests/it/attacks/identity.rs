//! Who somebody is: learning it uninvited, and pretending to be somebody else.

use bluetick_protocol::*;
use serde_json::{Value, json};

use crate::{
    harness::*,
    http::{Api, api, client},
};

fn presence(frame: ServerFrame) -> Option<Presence> {
    if let ServerFrame::Presence(presence) = frame { Some(presence) } else { None }
}

async fn watch(person: &mut Person, whom: &str) -> Presence {
    person.say(ClientFrame::Watch(Watch { reference: None, users: vec![user(whom)] })).await;
    person.wait(presence).await
}

async fn named(api: &Api, name: &str) {
    let (status, card) = api.put("/v1/me", json!({"name": name})).await;
    assert_eq!((status, card["name"].as_str()), (200, Some(name)));
}

async fn peer_name(person: &mut Person) -> Option<String> {
    person.inbox(None, None).await.conversations.remove(0).peer.name
}

fn never_there(name: &str) -> Presence {
    Presence { user_id: user(name), online: false, last_seen: None }
}

#[tokio::test]
async fn a_stranger_who_writes_learns_nothing_before_an_answer() {
    let server = Server::start();
    let (bob_api, eve_api) = (api(&server, "bob"), api(&server, "eve"));
    named(&bob_api, "Bob").await;
    let mut bob = server.connect("bob", "phone").await;
    let mut eve = server.connect("eve", "phone").await;
    eve.send("bob", "hello?").await;
    assert_eq!(watch(&mut eve, "bob").await, never_there("bob"));
    assert_eq!(peer_name(&mut eve).await, None);
    let refused = eve_api.get("/v1/users/bob").await;
    let mut unknown = eve_api.get("/v1/users/nobody").await;
    assert_eq!(refused, unknown, "as for somebody who does not exist");
    assert_eq!(refused.0, 404);
    named(&bob_api, "Robert").await;
    assert_eq!(peer_name(&mut eve).await, None);
    bob.leave().await;
    gone(&server, "bob").await;
    eve.hears_no(presence).await;

    bob = server.connect("bob", "phone").await;
    bob.send("eve", "who is it?").await;
    eve.message().await;
    assert!(watch(&mut eve, "bob").await.online, "whoever answers is seen");
    assert_eq!(peer_name(&mut eve).await.as_deref(), Some("Robert"));
    unknown = eve_api.get("/v1/users/bob").await;
    assert_eq!((unknown.0, unknown.1["name"].as_str()), (200, Some("Robert")));
    assert_eq!(peer_name(&mut bob).await, None, "eve has no name");
}

#[tokio::test]
async fn a_blocked_user_sees_no_new_name_and_no_presence() {
    let server = Server::start();
    let (alice_api, bob_api) = (api(&server, "alice"), api(&server, "bob"));
    named(&bob_api, "Bob").await;
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "hi").await;
    bob.send("alice", "hi").await;
    assert_eq!(peer_name(&mut alice).await.as_deref(), Some("Bob"));
    assert_eq!(bob_api.put("/v1/blocks/alice", json!({})).await.0, 204);
    named(&bob_api, "Robert").await;
    assert_eq!(peer_name(&mut alice).await.as_deref(), Some("Bob"), "as it was");
    alice.send("bob", "are you there?").await;
    assert_eq!(peer_name(&mut alice).await.as_deref(), Some("Bob"));
    assert_eq!(alice_api.get("/v1/users/bob").await, alice_api.get("/v1/users/nobody").await);
    assert_eq!(watch(&mut alice, "bob").await, never_there("bob"));
    assert_eq!(bob_api.delete("/v1/blocks/alice").await.0, 204);
    assert_eq!(peer_name(&mut alice).await.as_deref(), Some("Robert"));
    assert_eq!(alice_api.get("/v1/users/bob").await.1["name"], "Robert");
}

#[tokio::test]
async fn an_avatar_calls_no_host_of_its_owners_choice() {
    let server = Server::with(&[("BLUETICK_PROFILES__AVATAR_HOSTS", r#"["cdn.example"]"#)]);
    let mallory = api(&server, "mallory");
    for good in ["https://cdn.example/m.png", "/avatars/m.png"] {
        let (status, card) = mallory.put("/v1/me", json!({"avatar_url": good})).await;
        assert_eq!((status, card["avatar_url"].as_str()), (200, Some(good)), "{card}");
    }
    for bad in [
        "https://tracker.example/m.png",
        "https://cdn.example@tracker.example/m.png",
        "https://tracker.example\\@cdn.example/m.png",
        "//tracker.example/m.png",
        "/\t/tracker.example/m.png",
        "javascript:alert(1)",
    ] {
        let (status, error) = mallory.put("/v1/me", json!({"avatar_url": bad})).await;
        assert_eq!((status, error["error"]["code"].as_str()), (400, Some("bad_request")), "{bad}: {error}");
    }
    assert_eq!(mallory.get("/v1/me").await.1["avatar_url"], "/avatars/m.png");
}

#[tokio::test]
async fn a_name_hides_nothing_and_turns_nothing_around() {
    let server = Server::start();
    let mallory = api(&server, "mallory");
    named(&mallory, "Mallory 👩‍🚀").await;
    for bad in [
        "Shop\u{200B} Support",
        "\u{202E}troppuS",
        "Ann\u{2066}",
        "Ann\u{FEFF}x",
        "A\u{0007}nn",
        "a\u{200D}b",
    ] {
        let (status, error) = mallory.put("/v1/me", json!({"name": bad})).await;
        assert_eq!((status, error["error"]["code"].as_str()), (400, Some("bad_request")), "{bad:?}: {error}");
    }
    assert_eq!(mallory.get("/v1/me").await.1["name"], "Mallory 👩‍🚀");
}

/// A token with claims, as the host's issuer signs it.
fn token(server: &Server, claims: Value) -> String {
    let secret = std::fs::read_to_string(server.data().join("jwt.secret")).unwrap();
    let mut all = json!({"exp": 4_000_000_000u64});
    all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    let key = jsonwebtoken::EncodingKey::from_secret(secret.trim().as_bytes());
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &all, &key).unwrap()
}

#[tokio::test]
async fn a_name_comes_from_the_token_where_the_operator_says_so() {
    let server = Server::with(&[
        ("BLUETICK_PROFILES__SOURCE", "token"),
        ("BLUETICK_PROFILES__AVATAR_HOSTS", r#"["cdn.example"]"#),
    ]);
    let mallory = api(&server, "mallory");
    let (status, error) = mallory.put("/v1/me", json!({"name": "Shop Support"})).await;
    assert_eq!((status, error["error"]["code"].as_str()), (403, Some("profile_managed")), "{error}");

    let signed = |claims: Value| token(&server, claims);
    let shown =
        json!({"sub": "mallory", "name": "Mallory \u{202E}M.", "picture": "https://cdn.example/m.png"});
    let mut session = Person::open(&server.url(), &signed(shown), "mallory", "phone", None).await;
    session.send("bob", "hi").await;
    let mut bob = server.connect("bob", "phone").await;
    let peer = bob.inbox(None, None).await.conversations.remove(0).peer;
    assert_eq!(peer.name.as_deref(), Some("Mallory M."), "what may not be shown is left out");
    assert_eq!(peer.avatar_url.as_deref(), Some("https://cdn.example/m.png"));

    // A fresh token in a session, then one over HTTP; and one that says nothing changes nothing.
    let fresh =
        signed(json!({"sub": "mallory", "name": "Mallory N.", "picture": "https://tracker.example/m.png"}));
    session.say(ClientFrame::Auth(Auth { reference: Some(Ref::Number(1)), token: fresh })).await;
    session.wait(|f| matches!(f, ServerFrame::Done(_)).then_some(())).await;
    let peer = bob.inbox(None, None).await.conversations.remove(0).peer;
    assert_eq!((peer.name.as_deref(), peer.avatar_url), (Some("Mallory N."), None));
    let me = |token: String| {
        let path = server.http("/v1/me");
        async move {
            let answer = client().get(path).bearer_auth(token).send().await.unwrap().text().await.unwrap();
            serde_json::from_str::<Value>(&answer).unwrap()["name"].clone()
        }
    };
    assert_eq!(me(signed(json!({"sub": "mallory", "name": "Mallory O."}))).await, "Mallory O.");
    assert_eq!(me(signed(json!({"sub": "mallory"}))).await, "Mallory O.");
    assert_eq!(me(signed(json!({"sub": "mallory", "name": {"first": 1}, "picture": 7}))).await, "Mallory O.");
}

#[tokio::test]
async fn claims_are_nobodys_name_where_users_set_their_own() {
    let server = Server::start();
    let claims = json!({"sub": "alice", "name": "From the token"});
    let session = Person::open(&server.url(), &token(&server, claims), "alice", "phone", None).await;
    assert_eq!(api(&server, "alice").get("/v1/me").await.1["name"], Value::Null);
    session.leave().await;
}

#[tokio::test]
async fn only_the_operator_sets_names_where_they_say_so() {
    let server = Server::with(&[("BLUETICK_PROFILES__SOURCE", "server")]);
    let mallory = api(&server, "mallory");
    let (status, error) = mallory.put("/v1/me", json!({"name": "Shop Support"})).await;
    assert_eq!((status, error["error"]["code"].as_str()), (403, Some("profile_managed")), "{error}");
    let key = std::fs::read_to_string(server.data().join("admin.key")).unwrap();
    let path = server.http("/admin/v1/users/mallory/profile");
    let set = |key: &str, profile: Value| {
        let request = client().put(&path).bearer_auth(key.trim()).json(&profile);
        async move {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    };
    let (status, text) = set(&key, json!({"name": "Mallory M."})).await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(mallory.get("/v1/me").await.1["name"], "Mallory M.");
    assert_eq!(set("not the key", json!({"name": "Shop Support"})).await.0, 401);
    assert_eq!(set(&key, json!({"name": "\u{202E}x"})).await.0, 400, "names are names");
    assert_eq!(set(&key, json!({"name": 5})).await.0, 400);
    assert_eq!(mallory.get("/v1/me").await.1["name"], "Mallory M.");
}

#[tokio::test]
async fn meta_of_a_user_cannot_look_like_the_servers() {
    let server = Server::start();
    let mut mallory = server.connect("mallory", "phone").await;
    let over_http = api(&server, "mallory");
    for bad in
        [r#"{"_system":true}"#, r#"{"a":1,"_":2}"#, r#"{"\u005fsystem":true}"#, r#"{"_a":1,"b":{"c":"_"}}"#]
    {
        let send = Send { meta: Some(Json::from_text(bad).unwrap()), ..send_frame("bob", "refund") };
        let error = mallory.send_refused(send).await;
        assert_eq!(error.code, ErrorCode::ReservedMeta, "{bad}: {error:?}");
        let meta: Value = serde_json::from_str(bad).unwrap();
        let message = json!({"client_msg_id": fresh_id(), "to": "bob", "body": "refund", "meta": meta});
        let (status, error) = over_http.post("/v1/messages", message).await;
        assert_eq!((status, error["error"]["code"].as_str()), (400, Some("reserved_meta")), "{bad}: {error}");
    }
    for good in [r#"{"a_b":1}"#, r#"{"a":{"_b":1}}"#, r#"{"a":"_"}"#, r#"{"a":["\u005f"]}"#] {
        let send = Send { meta: Some(Json::from_text(good).unwrap()), ..send_frame("bob", "fine") };
        mallory.send_as(send).await;
    }
    assert_eq!(mallory.status("bob~mallory").await.last_seq, 4, "nothing of what was refused was stored");
}
