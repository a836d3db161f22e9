//! A user who announces more than anybody needs, and one who uploads as slowly as they can.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{
    future::join_all,
    stream::{self, StreamExt as _},
};
use reqwest::{Body, Method};
use ring::digest;
use serde_json::{Value, json};

use super::{
    Bound, Effect,
    people::{Answers, Stage, code_of},
};

const MIB: u64 = 1 << 20;
/// What is announced at a time, and how often at most: more than any default quota.
const ANNOUNCED_BYTES: u64 = 256 * MIB;
const ANNOUNCED_TIMES: u64 = 64;
const SLOW_BYTES: u64 = 16 * MIB;
const BYTE_EVERY: Duration = Duration::from_secs(2);
/// How long the upload of another user may take meanwhile.
const OTHER_WITHIN: Duration = Duration::from_secs(10);
/// How long the server has to refuse what it will not take.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

enum Announced {
    At(String),
    Refused(String),
}

async fn announce(stage: &Stage, token: &str, bytes: u64, sha256: &str) -> Result<Announced, String> {
    let body = json!({"name": "a.bin", "mime": "application/octet-stream", "bytes": bytes, "sha256": sha256});
    let answer = stage.request(Method::POST, "/v1/attachments", token).json(&body).send().await;
    let answer = answer.map_err(|e| format!("no answer to an announcement: {e}"))?;
    if !answer.status().is_success() {
        return Ok(Announced::Refused(code_of(answer).await));
    }
    let upload: Value = answer.json().await.map_err(|e| format!("not the answer to an announcement: {e}"))?;
    Ok(Announced::At(upload["upload"]["url"].as_str().unwrap_or_default().to_owned()))
}

fn not_offered(why: &str) -> Effect {
    Effect { seen: why.to_owned(), bound: Bound::NotOffered }
}

/// Announces large files until one is refused. Nothing is uploaded: what is announced is what is charged.
pub async fn quota(stage: &Stage) -> Result<Effect, String> {
    let token = stage.server.token(&stage.user("mallory"))?;
    let (mut bytes, mut announced, mut times) = (ANNOUNCED_BYTES, 0, 0);
    let refused = loop {
        if times == ANNOUNCED_TIMES {
            break None;
        }
        match announce(stage, &token, bytes, &"0".repeat(64)).await? {
            Announced::At(_) => (announced, times) = (announced + bytes, times + 1),
            Announced::Refused(code) if code == "unsupported" => {
                return Ok(not_offered("no attachments here"));
            }
            Announced::Refused(code) if code == "attachment_too_large" && bytes > MIB => bytes /= 2,
            Announced::Refused(code) if code == "rate_limited" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Announced::Refused(code) => break Some(code),
        }
    };
    let seen = match &refused {
        Some(code) => format!("{} MiB announced, then {code}", announced / MIB),
        None => format!("{} MiB announced, and none refused", announced / MIB),
    };
    let kept = refused.as_deref() == Some("quota_exceeded");
    Ok(Effect { seen, bound: Bound::Own { text: "refused by the user's quota".into(), kept } })
}

/// One byte, and then another now and then. Says how it ended.
async fn drip(stage: &Stage, url: &str, within: Duration) -> String {
    let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"0")) });
    let rest = stream::repeat(()).then(|()| async {
        tokio::time::sleep(BYTE_EVERY).await;
        Ok(Bytes::from_static(b"0"))
    });
    let body = Body::wrap_stream(first.chain(rest));
    let upload = stage.signed(Method::PUT, url).header("content-length", SLOW_BYTES).body(body).send();
    match tokio::time::timeout(within, upload).await {
        Err(_) => "not ended".into(),
        Ok(Err(_)) => "ended".into(),
        Ok(Ok(answer)) => code_of(answer).await,
    }
}

/// Another user's upload of a mebibyte, and how long it took.
async fn other_upload(stage: &Stage) -> Result<Option<Duration>, String> {
    let bytes = vec![7; MIB as usize];
    let hash = digest::digest(&digest::SHA256, &bytes);
    let sha256 = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let token = stage.server.token(&stage.user("other"))?;
    let began = Instant::now();
    let Announced::At(url) = announce(stage, &token, MIB, &sha256).await? else { return Ok(None) };
    let upload = stage.signed(Method::PUT, &url).body(bytes).timeout(OTHER_WITHIN).send().await;
    Ok(upload.is_ok_and(|answer| answer.status().is_success()).then(|| began.elapsed()))
}

pub async fn slow(stage: &Stage) -> Result<Effect, String> {
    let token = stage.server.token(&stage.user("mallory"))?;
    let mut urls = Vec::new();
    let mut answers = Answers::default();
    for _ in 0..stage.sizes.slow_uploads {
        match announce(stage, &token, SLOW_BYTES, &"0".repeat(64)).await? {
            Announced::At(url) => urls.push(url),
            Announced::Refused(code) if code == "unsupported" => {
                return Ok(not_offered("no attachments here"));
            }
            Announced::Refused(code) => answers.refuse(code),
        }
    }
    if urls.iter().any(|url| !url.contains("/v1/blobs/")) {
        return Ok(not_offered("a bucket takes the bytes"));
    }
    let within = stage.sizes.slow_uploads_end_within;
    let began = Instant::now();
    let dripping = join_all(urls.iter().map(|url| drip(stage, url, within)));
    let other = async {
        tokio::time::sleep(SETTLES_WITHIN).await;
        other_upload(stage).await
    };
    let (ended, other) = tokio::join!(dripping, other);
    let lasted = began.elapsed().as_secs();
    let left = ended.iter().filter(|how| *how == "not ended").count();
    ended.into_iter().for_each(|how| answers.refuse(how));
    let counted: Vec<String> =
        answers.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let other = other?;
    let of_other = match other {
        Some(took) => format!("another's upload took {} ms", took.as_millis()),
        None => "another's upload failed".into(),
    };
    let seen = format!("{} after {lasted} s; {of_other}", counted.join(", "));
    let text = format!("all ended within {} s, and others upload", within.as_secs());
    Ok(Effect { seen, bound: Bound::Own { text, kept: left == 0 && other.is_some() } })
}
