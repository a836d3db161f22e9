//! A user who asks for more, more often, than anybody needs.

use std::time::Duration;

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::{ClientFrame, InConversation, ServerFrame, UserId, Watch};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Bound, Effect,
    people::{Answers, Stage, conversation_of, count_frames, message, send_until_taken},
};

/// The limit of sends by default: 200 a second.
const SEND_EVERY: Duration = Duration::from_millis(5);
const LONG_BODY_BYTES: usize = 16_384;
/// Bytes of bodies that one user may send at once (the default burst), and in each second (twice the default rate).
const MOST_BODY_BYTES_AT_ONCE: u64 = 4 << 20;
const MOST_BODY_BYTES_PER_SECOND: u64 = 512 << 10;
const VICTIM_SESSIONS: usize = 3;
/// Frames between two looks at what the server answers.
const BATCH: usize = 50;
/// Frames that one session may get of another user in a second, and once besides.
const TYPING_PER_SECOND: u64 = 1;
const PRESENCE_PER_SECOND: u64 = 2;
const SLACK_FRAMES: u64 = 4;
/// In all: ten a minute are allowed by default.
const MOST_PROFILE_CHANGES: u64 = 20;
const PROFILE_CONNECTIONS: usize = 16;
const MOST_DELAY_MS: f64 = 100.0;

/// Reads what has come, for a moment. Nothing if the connection is closed.
async fn drain(connection: &mut RawConnection, for_at_most: Duration, answers: &mut Answers) -> Option<()> {
    let until = Instant::now() + for_at_most;
    loop {
        match connection.next_frame(until.saturating_duration_since(Instant::now())).await {
            Ok(ServerFrame::Sent(_)) => answers.taken += 1,
            Ok(ServerFrame::Error(e)) => answers.refuse(e.error.code.as_str()),
            Ok(ServerFrame::Bye(bye)) => {
                answers.refuse(format!("bye {}", bye.reason));
                return None;
            }
            Ok(_) => {}
            Err(RawError::Timeout) => return Some(()),
            Err(_) => return None,
        }
    }
}

pub async fn send_bytes(stage: &Stage) -> Result<Effect, String> {
    let (mut connection, welcome) = stage.connect(&stage.user("mallory"), "phone").await?;
    let body = "x".repeat(LONG_BODY_BYTES.min(welcome.max_body_bytes));
    let (to, mut answers) = (stage.user("victim"), Answers::default());
    let until = Instant::now() + stage.flood_time();
    let mut n = 0u64;
    while Instant::now() < until {
        let send = ClientFrame::Send(message(&to, &format!("s-{n}"), body.clone()));
        let said = connection.send_frame(&send).await;
        if said.is_err() || drain(&mut connection, SEND_EVERY, &mut answers).await.is_none() {
            break;
        }
        n += 1;
    }
    drain(&mut connection, Duration::from_secs(1), &mut answers).await;
    connection.abort();
    let taken = answers.taken * body.len() as u64;
    let most = MOST_BODY_BYTES_AT_ONCE + stage.sizes.seconds * MOST_BODY_BYTES_PER_SECOND;
    let seen = format!("{answers}: {} KiB/s", (taken / stage.sizes.seconds) >> 10);
    let text = format!("{} KiB of one user's messages in {} s", most >> 10, stage.sizes.seconds);
    Ok(Effect { seen, bound: Bound::Own { text, kept: taken <= most } })
}

pub async fn typing(stage: &Stage) -> Result<Effect, String> {
    let (mallory, victim) = (stage.user("mallory"), stage.user("victim"));
    let (mut connection, _) = stage.connect(&mallory, "phone").await?;
    send_until_taken(&mut connection, message(&victim, "m-1", "hello".into())).await?;
    let mut sessions = Vec::new();
    for n in 0..VICTIM_SESSIONS {
        let (mut session, _) = stage.connect(&victim, &format!("device-{n}")).await?;
        if n == 0 {
            send_until_taken(&mut session, message(&mallory, "m-1", "hello".into())).await?;
        }
        sessions.push(session);
    }
    let until = Instant::now() + stage.flood_time();
    let is_typing = |frame: &ServerFrame| matches!(frame, ServerFrame::Typing(_));
    let counting =
        sessions.iter_mut().map(|session| count_frames(session, until + Duration::from_secs(1), is_typing));
    let typing = InConversation { reference: None, conversation_id: conversation_of(&mallory, &victim)? };
    let typing = ClientFrame::Typing(typing);
    let flooding = async {
        let (mut said, mut answers) = (0, Answers::default());
        while said < stage.sizes.typing_frames && Instant::now() < until {
            for _ in 0..BATCH {
                if connection.feed_frame(&typing).await.is_err() {
                    return (said, answers);
                }
            }
            said += BATCH;
            let flushed = connection.flush().await;
            if flushed.is_err()
                || drain(&mut connection, Duration::from_millis(1), &mut answers).await.is_none()
            {
                break;
            }
        }
        (said, answers)
    };
    let ((said, answers), counts) = tokio::join!(flooding, join_all(counting));
    let most = counts.into_iter().flatten().max().unwrap_or_default();
    let bound = stage.sizes.seconds * TYPING_PER_SECOND + SLACK_FRAMES;
    let seen = format!("{said} sent, {most} came to each session; {} refused", answers.refused_in_all());
    Ok(Effect {
        seen,
        bound: Bound::Own { text: format!("{bound} frames to each session"), kept: most <= bound },
    })
}

/// A user who connects and leaves, again and again.
async fn come_and_go(stage: &Stage, user: &UserId, until: Instant) -> u64 {
    let mut times = 0;
    while Instant::now() < until {
        match stage.connect(user, "phone").await {
            Ok((connection, _)) => connection.close().await,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        times += 1;
    }
    times
}

pub async fn presence(stage: &Stage) -> Result<Effect, String> {
    let mallory = stage.user("mallory");
    let (mut writer, _) = stage.connect(&mallory, "phone").await?;
    let mut watchers = Vec::new();
    for n in 0..stage.sizes.presence_watchers {
        let watcher = stage.user(&format!("watcher-{n}"));
        send_until_taken(&mut writer, message(&watcher, &format!("m-{n}"), "hello".into())).await?;
        let (mut session, _) = stage.connect(&watcher, "phone").await?;
        let watch = ClientFrame::Watch(Watch { reference: None, users: vec![mallory.clone()] });
        session.send_frame(&watch).await.map_err(|e| e.to_string())?;
        watchers.push(session);
    }
    writer.close().await;
    let until = Instant::now() + stage.flood_time();
    let is_presence = |frame: &ServerFrame| matches!(frame, ServerFrame::Presence(_));
    let counting =
        watchers.iter_mut().map(|session| count_frames(session, until + Duration::from_secs(1), is_presence));
    let (times, counts) = tokio::join!(come_and_go(stage, &mallory, until), join_all(counting));
    let counts: Vec<u64> = counts.into_iter().flatten().collect();
    let (most, all) = (counts.iter().max().copied().unwrap_or_default(), counts.iter().sum::<u64>());
    let bound = stage.sizes.seconds * PRESENCE_PER_SECOND + SLACK_FRAMES;
    let seen = format!("came {times} times: {all} frames, {most} to one watcher of {}", counts.len());
    Ok(Effect {
        seen,
        bound: Bound::Own { text: format!("{bound} frames to each watcher"), kept: most <= bound },
    })
}

/// Repeats a request on so many connections until the time is up.
async fn repeat(
    stage: &Stage,
    connections: usize,
    request: impl Fn(usize) -> reqwest::RequestBuilder,
) -> Answers {
    let until = Instant::now() + stage.flood_time();
    let request = &request;
    let one = |number: usize| async move {
        let mut answers = Answers::default();
        for n in 0.. {
            if Instant::now() >= until {
                break;
            }
            answers.count(request(number * 1_000_000 + n).send().await).await;
        }
        answers
    };
    let mut all = Answers::default();
    join_all((0..connections).map(one)).await.into_iter().for_each(|answers| all.merge(answers));
    all
}

pub async fn profile(stage: &Stage) -> Result<Effect, String> {
    let token = stage.server.token(&stage.user("mallory"))?;
    let request = |n: usize| {
        stage.request(Method::PUT, "/v1/me", &token).json(&json!({"name": format!("Mallory {n}")}))
    };
    let answers = repeat(stage, PROFILE_CONNECTIONS, request).await;
    let bound = MOST_PROFILE_CHANGES;
    let text = format!("{bound} changes");
    Ok(Effect { seen: answers.to_string(), bound: Bound::Own { text, kept: answers.taken <= bound } })
}

pub async fn http_connections(stage: &Stage) -> Result<Effect, String> {
    let token = stage.server.token(&stage.user("mallory"))?;
    let request = |_| stage.request(Method::GET, "/v1/inbox?limit=50", &token);
    let answers = repeat(stage, stage.sizes.http_connections, request).await;
    let seen = format!("{} connections: {answers}", stage.sizes.http_connections);
    Ok(Effect { seen, bound: Bound::Delay { most_ms: MOST_DELAY_MS } })
}
