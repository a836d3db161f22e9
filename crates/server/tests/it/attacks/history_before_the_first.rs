//! `before_seq=0` once gave a page that covered a seq 0, which does not exist.

use serde_json::json;

use crate::{harness::*, http::api};

#[tokio::test]
async fn nothing_lies_before_the_first_message() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "the first").await;
    alice.send("bob", "the second").await;
    let http = api(&server, "alice");
    for before in [0, 1] {
        let page = alice.history("alice~bob", None, Some(before), 50).await;
        assert_eq!((page.messages.len(), page.from_seq, page.to_seq, page.next), (0, 1, 0, None), "{before}");
        let path = format!("/v1/conversations/alice~bob/messages?before_seq={before}");
        let (status, page) = http.get(&path).await;
        let expected =
            json!({"conversation_id": "alice~bob", "messages": [], "from_seq": 1, "to_seq": 0, "next": null});
        assert_eq!((status, page), (200, expected), "an empty page ends before it begins");
    }
    let page = alice.history("alice~bob", None, Some(2), 50).await;
    assert_eq!((bodies(&page.messages), page.from_seq, page.to_seq), (vec!["the first"], 1, 1));
}
