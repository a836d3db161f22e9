//! The session store in Redis: `ws:{user}`, `last_seen:{user}`, `watching:{user}` and
//! `watched:{user}`.
//!
//! `watching:{user}` lies in the slot of the watching user's sessions and is the truth: whom each
//! live session watches, with a stamp that every `watch` renews. `watched:{user}` lies in another
//! slot and is only an index: a reader checks each of its entries against the watching session's
//! stamp. So a watch ends with its session, and an index entry that a lost step left behind is
//! ignored and then removed by the next reader. A refresh touches a session's index entries about
//! once an hour; those of crashed sessions expire.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use ::redis::{Value, cmd};
use async_trait::async_trait;
use bluetick_protocol::{DeviceId, SessionId, UserId, limits};

use super::{
    Redis,
    connection::random,
    heartbeats::Heartbeats,
    scripts::{REFRESH, REGISTER, ScriptCall, UNREGISTER, WATCH, WATCHED, WATCHER},
};
use crate::{Clock, Result, SessionEntry, SessionStore};

/// How long Redis keeps a user's sessions beyond their TTL. It only cleans up, so the value is
/// generous.
const KEPT_BEYOND: Duration = Duration::from_secs(600);
const LAST_SEEN_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long an index entry lives untouched, and how often a refresh touches it.
const INDEX_KEPT: Duration = Duration::from_secs(24 * 3600);
const INDEX_TOUCHED_EVERY: Duration = Duration::from_secs(3600);

pub struct RedisSessions {
    table: SessionTable,
    heartbeats: OnceLock<Heartbeats>,
}

/// The keys of the sessions, without the batching of heartbeats.
#[derive(Clone)]
pub struct SessionTable {
    redis: Redis,
    clock: Arc<dyn Clock>,
}

impl std::ops::Deref for RedisSessions {
    type Target = SessionTable;

    fn deref(&self) -> &SessionTable {
        &self.table
    }
}

/// Whom a session watches: `stamp touched_at user user …`.
struct WatchRecord<'a> {
    stamp: &'a str,
    users: Vec<&'a str>,
}

impl<'a> WatchRecord<'a> {
    /// `None` for an empty text: the session watches nobody.
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let stamp = words.next().filter(|stamp| !stamp.is_empty())?;
        words.next()?;
        Some(WatchRecord { stamp, users: words.collect() })
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Parses `expires_at connected_at device gateway`.
fn entry(user: &UserId, session: &str, text: &str) -> Option<(u64, SessionEntry)> {
    let mut words = text.splitn(4, ' ');
    let (expires_at, connected_at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (device, gateway) = (DeviceId::new(words.next()?).ok()?, words.next()?.into());
    let session_id = SessionId(u128::from_str_radix(session, 16).ok()?);
    Some((expires_at, SessionEntry { user_id: user.clone(), device, session_id, gateway, connected_at }))
}

fn oldest_first(entries: &mut [SessionEntry]) {
    entries.sort_by_key(|entry| (entry.connected_at, entry.session_id));
}

impl RedisSessions {
    pub fn new(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        RedisSessions { table: SessionTable { redis, clock }, heartbeats: OnceLock::new() }
    }
}

impl SessionTable {
    /// A script call on a user's sessions and watches.
    fn on_user(&self, user: &str) -> ScriptCall {
        ScriptCall::on([self.redis.key("ws", user), self.redis.key("watching", user)])
    }

    /// The calls that add a watch to the index of each watched user.
    fn index_calls(
        &self,
        user: &UserId,
        session: &str,
        watch: &WatchRecord<'_>,
        now_ms: u64,
    ) -> Vec<ScriptCall> {
        let member = format!("{session} {} {user}", watch.stamp);
        let call = |watched: &&str| {
            ScriptCall::on([self.redis.key("watched", watched)])
                .arg(now_ms)
                .arg(&member)
                .arg(millis(INDEX_KEPT))
        };
        watch.users.iter().map(call).collect()
    }

    /// One round trip, with a script call for each user.
    pub(super) async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        let now_ms = self.clock.now_ms();
        let mut by_user: BTreeMap<&UserId, Vec<usize>> = BTreeMap::new();
        for (n, (user, _)) in sessions.iter().enumerate() {
            by_user.entry(user).or_default().push(n);
        }
        let call = |(user, places): (&&UserId, &Vec<usize>)| {
            let ids: Vec<_> = places.iter().map(|n| sessions[*n].1.to_string()).collect();
            self.on_user(user.as_str())
                .arg(now_ms)
                .arg(now_ms.saturating_add(millis(ttl)))
                .arg(millis(ttl.saturating_add(KEPT_BEYOND)))
                .arg(now_ms.saturating_sub(millis(INDEX_TOUCHED_EVERY)))
                .arg(ids)
        };
        let calls: Vec<_> = by_user.iter().map(call).collect();
        let answers: Vec<Vec<Value>> = self.redis.eval_each(&REFRESH, &calls).await?;
        let (mut there, mut touches) = (vec![false; sessions.len()], Vec::new());
        for (n, answer) in by_user.into_values().flatten().zip(answers.into_iter().flatten()) {
            there[n] = answer != Value::Int(0);
            if let Value::BulkString(text) = &answer
                && let Some(watch) = std::str::from_utf8(text).ok().and_then(WatchRecord::parse)
            {
                let (user, session) = &sessions[n];
                touches.extend(self.index_calls(user, &session.to_string(), &watch, now_ms));
            }
        }
        // A touch that fails is repeated long before the entry expires.
        let _ = self.redis.eval_each::<Value>(&WATCHED, &touches).await;
        Ok(there)
    }

    /// Removes ended watches from the index. Where that fails, readers ignore them.
    async fn remove_from_index(&self, user: &UserId, watches: &[(String, String)]) {
        let mut commands = Vec::new();
        for (session, watch) in watches {
            let Some(watch) = WatchRecord::parse(watch) else { continue };
            let member = format!("{session} {} {user}", watch.stamp);
            commands.extend(
                watch
                    .users
                    .iter()
                    .map(|watched| cmd("ZREM").arg(self.redis.key("watched", watched)).arg(&member).take()),
            );
        }
        let _ = self.redis.query_each::<Value>(commands).await;
    }
}

#[async_trait]
impl SessionStore for RedisSessions {
    async fn register(
        &self,
        new: &SessionEntry,
        ttl: Duration,
        max_sessions: usize,
    ) -> Result<Vec<SessionEntry>> {
        let (user, now_ms) = (&new.user_id, self.clock.now_ms());
        let call = self
            .on_user(user.as_str())
            .arg(now_ms)
            .arg(now_ms.saturating_add(millis(ttl)))
            .arg(millis(ttl.saturating_add(KEPT_BEYOND)))
            .arg(max_sessions.max(1))
            .arg(new.session_id.to_string())
            .arg(new.connected_at)
            .arg(new.device.as_str())
            .arg(&*new.gateway);
        type Pairs = Vec<(String, String)>;
        let (ended, watches): (Pairs, Pairs) = self.redis.eval(&REGISTER, call).await?;
        self.remove_from_index(user, &watches).await;
        // The script's order: the device's own session first, then the oldest.
        Ok(ended.iter().filter_map(|(session, text)| Some(entry(user, session, text)?.1)).collect())
    }

    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        match sessions {
            [one] => {
                let heartbeats = self.heartbeats.get_or_init(|| Heartbeats::start(self.table.clone()));
                Ok(vec![heartbeats.refresh(one.clone(), ttl).await?])
            }
            many => self.table.refresh(many, ttl).await,
        }
    }

    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool> {
        let call = self.on_user(user.as_str()).arg(self.clock.now_ms()).arg(session.to_string());
        let (left, watches): (u64, Vec<(String, String)>) = self.redis.eval(&UNREGISTER, call).await?;
        self.remove_from_index(user, &watches).await;
        Ok(left == 0)
    }

    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        let now_ms = self.clock.now_ms();
        let command = cmd("HGETALL").arg(self.redis.key("ws", user.as_str())).take();
        let all: Vec<(String, String)> = self.redis.query(command).await?;
        let entries = all.iter().filter_map(|(session, text)| entry(user, session, text));
        let mut live: Vec<_> =
            entries.filter(|(expires_at, _)| now_ms < *expires_at).map(|(_, e)| e).collect();
        oldest_first(&mut live);
        Ok(live)
    }

    async fn last_seen(&self, user: &UserId) -> Result<Option<u64>> {
        self.redis.query(cmd("GET").arg(self.redis.key("last_seen", user.as_str())).take()).await
    }

    async fn set_last_seen(&self, user: &UserId, ms: u64) -> Result<()> {
        let key = self.redis.key("last_seen", user.as_str());
        self.redis.query(cmd("SET").arg(key).arg(ms).arg("PX").arg(millis(LAST_SEEN_KEPT)).take()).await
    }

    /// A watch lives exactly as long as its session, whose TTL a refresh extends; so the TTL given
    /// here is not needed.
    async fn watch(&self, watcher: &SessionEntry, users: &[UserId], _ttl: Duration) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let (user, session) = (&watcher.user_id, watcher.session_id.to_string());
        let mut users: Vec<_> = users.iter().take(limits::WATCH_MAX_USERS).map(UserId::as_str).collect();
        users.sort();
        users.dedup();
        let watch = match users.is_empty() {
            true => String::new(),
            false => format!("{:016x} {now_ms} {}", random(), users.join(" ")),
        };
        let call = self.on_user(user.as_str()).arg(now_ms).arg(&session).arg(&watch);
        let Some(before): Option<String> = self.redis.eval(&WATCH, call).await? else {
            return Ok(());
        };
        self.remove_from_index(user, &[(session.clone(), before)]).await;
        let Some(watch) = WatchRecord::parse(&watch) else { return Ok(()) };
        let calls = self.index_calls(user, &session, &watch, now_ms);
        self.redis.eval_each::<Value>(&WATCHED, &calls).await.map(drop)
    }

    async fn watchers(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        let now_ms = self.clock.now_ms();
        let index = self.redis.key("watched", user.as_str());
        let members: Vec<String> = self.redis.query(cmd("ZRANGE").arg(&index).arg(0).arg(-1).take()).await?;
        let mut asked = Vec::with_capacity(members.len());
        for member in &members {
            let mut words = member.splitn(3, ' ');
            if let (Some(session), Some(stamp), Some(watcher)) = (words.next(), words.next(), words.next())
                && let Ok(watcher) = UserId::new(watcher)
            {
                asked.push((member, session, stamp, watcher));
            }
        }
        let call = |(_, session, stamp, watcher): &(&String, &str, &str, UserId)| {
            self.on_user(watcher.as_str()).arg(now_ms).arg(session).arg(stamp)
        };
        let calls: Vec<_> = asked.iter().map(call).collect();
        let answers: Vec<Option<String>> = self.redis.eval_each(&WATCHER, &calls).await?;
        let (mut watchers, mut over) = (Vec::new(), Vec::new());
        for ((member, session, _, watcher), answer) in asked.iter().zip(answers) {
            match answer.and_then(|text| entry(watcher, session, &text)) {
                Some((_, entry)) => watchers.push(entry),
                None => over.push(cmd("ZREM").arg(&index).arg(member).take()),
            }
        }
        let _ = self.redis.query_each::<Value>(over).await;
        oldest_first(&mut watchers);
        Ok(watchers)
    }

    /// Deletes everything under the prefix, as if the server had restarted empty.
    async fn flush(&self) -> Result<()> {
        self.redis.delete_all("").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_whole() {
        let bob = UserId::new("bob").unwrap();
        let (expires_at, read) = entry(&bob, "000000000000000000000000000000ff", "20 10 phone g 1").unwrap();
        assert_eq!((expires_at, read.connected_at), (20, 10));
        assert_eq!((read.session_id, read.device.as_str(), &*read.gateway), (SessionId(255), "phone", "g 1"));
        for damaged in ["", "20", "20 x phone g", "20 10 phone", "20 10 pho/ne g"] {
            assert!(entry(&bob, "ff", damaged).is_none(), "{damaged}");
        }
    }

    #[test]
    fn a_watch_is_its_stamp_and_users() {
        let watch = WatchRecord::parse("00ff 12 alice bob").unwrap();
        assert_eq!((watch.stamp, watch.users), ("00ff", vec!["alice", "bob"]));
        assert!(WatchRecord::parse("").is_none());
    }
}
