//! Tokens that are revoked while their request waits or its body arrives.

use super::*;

/// A gateway of a cluster, whose tokens are good for as long as it does not ask again.
fn in_a_cluster(config: &mut Config) {
    config.cluster.listen = Some("127.0.0.1:0".parse().unwrap());
    let webhook =
        json!({"url": "http://127.0.0.1:9/", "secret": "a secret of a webhook that is long enough"});
    config.push.webhook = Some(serde_json::from_value(webhook).unwrap());
}

fn request_with(method: &str, path: &str, body: Body) -> HttpRequest<Body> {
    let request = HttpRequest::builder().method(method).uri(path).header("authorization", "Bearer alice");
    request.header("content-type", "application/json").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_while_the_body_arrives_is_good_no_more() {
    let (at_once, late) = (Duration::ZERO, Duration::from_millis(200));
    for (f, pause, status) in [
        (fixture(), at_once, 401),
        (fixture(), late, 401),
        (fixture_with(in_a_cluster), late, 401),
        // What a gateway of a cluster remembers is good for requests that are not held up.
        (fixture_with(in_a_cluster), at_once, 200),
    ] {
        let text = json!({"client_msg_id": "m", "to": "bob", "body": "x"}).to_string();
        let (first, rest) = text.split_at(10);
        let (first, rest, app) = (first.to_owned(), rest.to_owned(), f.app.clone());
        let rest = async move {
            app.revoke();
            tokio::time::sleep(pause).await;
            Ok(rest)
        };
        let parts = stream::once(ready(Ok::<_, Infallible>(first))).chain(stream::once(rest));
        let reply = f.call(request_with("POST", "/v1/messages", Body::from_stream(parts))).await;
        assert_eq!(reply.status, status, "{pause:?}: {}", reply.body);
        assert_eq!(f.app.asked.lock().is_empty(), status == 401);
        assert!(status == 200 || reply.error() == "token_revoked", "{}", reply.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_while_its_request_waits_for_a_place_is_good_no_more() {
    let f = fixture_with(in_a_cluster);
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let unfinished = Body::from_stream(stream::pending::<Result<String, Infallible>>());
        others.spawn(f.router.clone().oneshot(request_with("POST", "/v1/messages", unfinished)));
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let revocation = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        f.app.revoke();
        others.shutdown().await;
    };
    let (reply, ()) = tokio::join!(f.as_alice("PUT", "/v1/blocks/bob", None), revocation);
    assert_eq!((reply.status, reply.error().as_str()), (401, "token_revoked"));
    assert!(f.app.asked.lock().is_empty());
}

#[tokio::test]
async fn a_device_of_a_revoked_user_does_not_register() {
    let register = async |f: &Fixture| {
        let body = json!({"provider": "webhook", "token": "t"}).to_string();
        let reply = f.call(request_with("PUT", "/v1/devices/phone/push", body.into())).await;
        assert_eq!((reply.status, reply.error().as_str()), (401, "token_revoked"));
    };
    let f = fixture_with(in_a_cluster);
    f.app.revoke();
    register(&f).await;
    assert!(f.app.asked.lock().is_empty());
    // Revoked at the same moment: the revocation may have looked for devices before.
    let f = fixture_with(in_a_cluster);
    *f.app.revoked_at.lock() = Some("put_push");
    register(&f).await;
    assert_eq!(*f.app.asked.lock(), ["put_push alice phone t", "delete_push alice phone"]);
}
