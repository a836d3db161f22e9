//! A back end writes in a user's name over HTTP. The user has looked at nothing: their unread count stays, and the
//! other side's ticks do not turn blue.

use bluetick_protocol::*;
use serde_json::json;

use crate::{
    harness::*,
    http::{Api, api},
};

async fn unread(who: &Api) -> u64 {
    who.get("/v1/inbox").await.1["conversations"][0]["unread_count"].as_u64().unwrap()
}

#[tokio::test]
async fn a_send_over_http_reads_nothing_unless_it_says_so() {
    let server = Server::start();
    let mut buyer = server.connect("buyer", "phone").await;
    let mut sellers_phone = server.connect("seller", "phone").await;
    for body in ["is it still there?", "hello?"] {
        buyer.send("seller", body).await;
        let message = sellers_phone.message().await;
        sellers_phone.ack_seq("buyer~seller", message.seq).await;
    }
    let seller = api(&server, "seller");
    assert_eq!(unread(&seller).await, 2);

    let send = |id: &str, more: serde_json::Value| {
        let mut message = json!({"client_msg_id": id, "to": "buyer", "body": "we will be back soon"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    assert_eq!(seller.post("/v1/messages", send("auto-1", json!({}))).await.0, 200);
    assert_eq!(buyer.message().await.body, "we will be back soon");
    buyer
        .hears_no(|frame| match frame {
            ServerFrame::Ticks(ticks) if ticks.user_id.as_str() == "seller" && ticks.last_read_seq > 0 => {
                Some(ticks)
            }
            _ => None,
        })
        .await;
    assert_eq!(unread(&seller).await, 2, "the seller has not looked");
    let peer = buyer.status("buyer~seller").await.peer;
    assert_eq!((peer.last_delivered_seq, peer.last_read_seq), (2, 0), "the ticks are as they were");
    // A retry implies no more than the first.
    assert_eq!(seller.post("/v1/messages", send("auto-1", json!({}))).await.1["duplicate"], true);
    assert_eq!(unread(&seller).await, 2);

    assert_eq!(seller.post("/v1/messages", send("auto-2", json!({"seen_seq": 1}))).await.0, 200);
    assert_eq!(unread(&seller).await, 1, "one who says so has read");
    // Over a session a reply still reads what was delivered.
    sellers_phone.send("buyer", "here I am").await;
    assert_eq!(unread(&seller).await, 0);
}
