//! The Redis backend against real servers: a shared one (`BLUETICK_TEST_REDIS`, or started here),
//! separate ones for the tests that kill them, and a cluster of three masters.
#![cfg(feature = "cluster")]
// Test code: a panic is its answer.
#![allow(clippy::unwrap_used)]

#[path = "redis/inbox.rs"]
mod inbox;
#[path = "redis/outages.rs"]
mod outages;
#[path = "redis/servers.rs"]
mod servers;
#[path = "redis/small.rs"]
mod small;

use std::sync::Arc;

use bluetick_protocol::{ConversationId, UserId};
use bluetick_store::{Redis, RedisSessions, Store, conformance, conformance::Fixture};
use servers::{RedisCluster, redis};

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn conversation(a: &str, b: &str) -> ConversationId {
    ConversationId::between(&user(a), &user(b)).unwrap()
}

fn fixture(redis: Redis) -> Fixture {
    Fixture::new(|clock| {
        let sessions = Arc::new(RedisSessions::new(redis, clock.clone()));
        Store { sessions, ..Store::memory(clock) }
    })
}

/// Every check of the session store, on one server and on a cluster.
macro_rules! session_checks {
    ($($check:ident)*) => {
        const SESSION_CHECKS: &[&str] = &[$(stringify!($check)),*];

        mod sessions {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                conformance::sessions::$check(&fixture(redis())).await
            })*
        }

        mod sessions_on_a_cluster {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                conformance::sessions::$check(&fixture(RedisCluster::shared().connect())).await
            })*
        }
    };
}

session_checks! {
    lookup_is_oldest_first
    a_device_has_one_session
    registering_again_ends_nobody
    the_oldest_goes_beyond_the_maximum
    an_entry_expires
    an_expired_session_is_not_replaced
    a_refresh_extends_and_never_recreates
    unregister_removes_only_its_own
    a_late_unregister_leaves_the_new_session
    last_seen_is_kept
    watchers_follow_the_watch
    a_watch_ends_with_its_session
    a_refresh_keeps_the_watch
    a_flush_forgets_everything
    concurrent_registrations_of_a_device_leave_one
}

#[test]
fn every_check_of_the_sessions_is_run() {
    let source = include_str!("../src/conformance/sessions.rs");
    let written =
        source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.strip_suffix("(t: &Fixture) {"));
    assert_eq!(SESSION_CHECKS, written.collect::<Vec<_>>());
}

/// Runs a test on one server and on a cluster.
#[macro_export]
macro_rules! on_both {
    ($($test:ident)*) => {
        mod one_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::servers::redis()).await
            })*
        }

        mod a_cluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::servers::RedisCluster::shared().connect()).await
            })*
        }
    };
}
