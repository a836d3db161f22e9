//! Users who ask for much and read nothing: the answers pile up at the server.

use std::time::Duration;

use bluetick_protocol::{ClientFrame, ConversationId, HistoryQuery, UserId};
use futures_util::future::join_all;
use reqwest::Method;

use super::{
    Bound, Effect,
    people::{Answers, Stage, code_of, conversation_of, message, send_until_taken},
};

/// All answers that wait for readers, together.
const MOST_BYTES: u64 = 64 << 20;
/// Messages of a page. Each byte of their bodies is six in JSON.
const PAGE: u32 = 40;
const BODY_BYTES: usize = 16_384;
/// A user has so many sessions at most; more connections are those of more users.
const SESSIONS_OF_A_USER: usize = 8;
/// A request that the server does not begin to answer for so long waits behind others.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);

/// Two users whose conversation is as long as it takes.
async fn long_conversation(stage: &Stage, number: usize) -> Result<([UserId; 2], ConversationId), String> {
    let users = ["a", "b"].map(|side| stage.user(&format!("mallory-{number}{side}")));
    let (mut connection, welcome) = stage.connect(&users[0], "writer").await?;
    let body = "\u{1}".repeat(BODY_BYTES.min(welcome.max_body_bytes));
    for n in 0..PAGE {
        send_until_taken(&mut connection, message(&users[1], &format!("m-{n}"), body.clone())).await?;
    }
    connection.close().await;
    let conversation = conversation_of(&users[0], &users[1])?;
    Ok((users, conversation))
}

pub async fn history(stage: &Stage) -> Result<Effect, String> {
    let sizes = &stage.sizes;
    let mut connections = Vec::new();
    for number in 0..sizes.unread_connections.div_ceil(2 * SESSIONS_OF_A_USER) {
        let (users, conversation_id) = long_conversation(stage, number).await?;
        let query = HistoryQuery {
            reference: None,
            conversation_id,
            after_seq: None,
            before_seq: None,
            limit: Some(PAGE),
        };
        let ask = ClientFrame::History(query);
        let left = sizes.unread_connections - connections.len();
        for n in 0..left.min(2 * SESSIONS_OF_A_USER) {
            let (mut connection, _) = stage.connect(&users[n % 2], &format!("unread-{n}")).await?;
            let asking = async {
                for _ in 0..sizes.unread_requests {
                    connection.feed_frame(&ask).await?;
                }
                connection.flush().await
            };
            // A server that reads no further requests is what is wanted.
            let _ = tokio::time::timeout(BEGINS_WITHIN, asking).await;
            connections.push(connection);
        }
    }
    tokio::time::sleep(stage.flood_time()).await;
    let asked = connections.len();
    connections.into_iter().for_each(|connection| connection.abort());
    let seen = format!("{asked} connections, {} requests each", sizes.unread_requests);
    Ok(Effect { seen, bound: Bound::Memory { most_bytes: MOST_BYTES } })
}

pub async fn responses(stage: &Stage) -> Result<Effect, String> {
    let (users, conversation) = long_conversation(stage, 0).await?;
    let token = stage.server.token(&users[0])?;
    let path = format!("/v1/conversations/{conversation}/messages?limit={PAGE}");
    let ask = || async {
        let request = stage.request(Method::GET, &path, &token).send();
        tokio::time::timeout(BEGINS_WITHIN, request).await
    };
    let answers = join_all((0..stage.sizes.unread_responses).map(|_| ask())).await;
    // Their heads were read, and nothing else of them.
    let (mut counted, mut unread) = (Answers::default(), Vec::new());
    for answer in answers {
        match answer {
            Ok(Ok(answer)) if answer.status().is_success() => {
                counted.taken += 1;
                unread.push(answer);
            }
            Ok(Ok(answer)) => counted.refuse(code_of(answer).await),
            Ok(Err(_)) => counted.refuse("no answer"),
            Err(_) => counted.refuse("not begun"),
        }
    }
    tokio::time::sleep(stage.flood_time()).await;
    drop(unread);
    Ok(Effect { seen: counted.to_string(), bound: Bound::Memory { most_bytes: MOST_BYTES } })
}
