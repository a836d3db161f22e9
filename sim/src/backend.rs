//! A back end that sends for a user over HTTP. It retries with the same `client_msg_id` until it is
//! told `sent`.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{RemoteApp, SendApi, SendRequest};
use bluetick_protocol::{ClientMsgId, Send as SendFrame, UserId};
use rand::RngExt;
use tokio::time::sleep;

use crate::{network::Apps, sim::Sim};

const RETRY_MAX_MS: u64 = 2_000;

pub async fn send(sim: Arc<Sim>, apps: Arc<RemoteApp<Apps>>, from: UserId, to: UserId, id: ClientMsgId) {
    let frame = SendFrame {
        reference: None,
        body: id.to_string(),
        client_msg_id: id,
        to: Some(to),
        conversation_id: None,
        attachment: None,
        meta: None,
        // A back end has read nothing.
        seen_seq: Some(0),
    };
    loop {
        let request = SendRequest { user: from.clone(), session: None, sends: vec![frame.clone()] };
        match apps.send(request).await.pop() {
            Some(Ok(sent)) => return sim.history.lock().told_sent(&sent),
            Some(Err(e)) if !e.code.is_retryable() => {
                return sim.history.lock().violation(format!("the back end's send was refused: {e}"));
            }
            _ => {
                let wait = sim.draw(|rng| rng.random_range(1..=RETRY_MAX_MS));
                sleep(Duration::from_millis(wait)).await;
            }
        }
    }
}
