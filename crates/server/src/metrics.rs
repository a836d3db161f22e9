//! Prometheus metrics. Each part of the server counts; this module names, describes and exports
//! them.

use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use bluetick_chat::Exhausted;
use bluetick_protocol::{ErrorCode, PushProvider};
use bluetick_store::Health;
use metrics::{Label, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::config::{Backend, Config};

/// From a tenth of a millisecond, a good fsync, to ten seconds, a bad day.
const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const COUNTS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0];

/// Makes the recorder the process's own, once; whoever comes later gets the same one.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = builder().build_recorder();
            let handle = recorder.handle();
            // Fails only if a test installed another recorder. Then these metrics are not exported.
            let _ = metrics::set_global_recorder(recorder);
            describe();
            handle
        })
        .clone()
}

/// A histogram counts seconds if its name says so, and things otherwise.
fn builder() -> PrometheusBuilder {
    let builder = PrometheusBuilder::new().set_buckets(COUNTS);
    let builder = builder
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS));
    // Only an empty list of buckets is refused, and these are not.
    builder.unwrap_or_default()
}

/// Every figure there is, whichever crate counts it.
fn describe() {
    for (name, what) in COUNTERS {
        describe_counter!(*name, *what);
    }
    for (name, what) in GAUGES {
        describe_gauge!(*name, *what);
    }
    for (name, what) in HISTOGRAMS {
        describe_histogram!(*name, *what);
    }
}

/// Sets the metrics that are known at start: version, start time, and 0 for every counter of this
/// process. `rate` needs the 0: a counter that appears with its first error shows no increase.
pub fn register(config: &Config) {
    gauge!("bluetick_build_info", build_labels()).set(1.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!("process_start_time_seconds").set(now.as_secs_f64());
    for (name, _) in COUNTERS {
        if is_counted(name, config) {
            for labels in label_sets(name) {
                counter!(*name, &labels).increment(0);
            }
        }
    }
}

/// The version, and the commit if the build was told it.
fn build_labels() -> Vec<Label> {
    let mut labels = vec![Label::new("version", env!("CARGO_PKG_VERSION"))];
    labels.extend(option_env!("BLUETICK_COMMIT").map(|commit| Label::new("commit", commit)));
    labels
}

/// Whether this process has the part that counts this. The operator's page shows a part only if its
/// metrics exist.
fn is_counted(name: &str, config: &Config) -> bool {
    let name = name.trim_start_matches("bluetick_");
    let begins = |part: &str| name.starts_with(part);
    if begins("push_") {
        config.push.is_configured()
    } else if begins("dynamodb_") || begins("inbox_rebuilds_") || begins("seqs_fenced_") {
        config.is_app() && config.store.backend == Backend::Dynamodb
    } else if begins("redis_") || begins("rate_limits_unshared_") {
        !config.redis.urls.is_empty()
    } else if begins("rpc_") {
        config.cluster.listen.is_some()
    } else {
        true
    }
}

type LabelSet = Vec<(&'static str, &'static str)>;

/// Counters whose labels are not listed here: tables of DynamoDB, and routes with their statuses.
const OPEN_LABELS: &[&str] = &["bluetick_http_requests_total", "bluetick_dynamodb_half_units_total"];
const DECISIONS: &[&str] = &[
    "sent",
    "acked",
    "superseded",
    "muted",
    "blocked",
    "no_device",
    "nothing",
    "waits",
    "later",
    "expired",
    "undeliverable",
];
const PUSH_FAILURES: &[&str] =
    &["gone", "later", "not_this_device", "misconfigured", "refused", "not_configured"];
const DYNAMODB_FAILURES: &[&str] = &["throttled", "conflict", "unreachable", "fatal"];

/// Every combination of labels that a counter can have.
fn label_sets(name: &str) -> Vec<LabelSet> {
    let each = |label: &'static str, values: &[&'static str]| -> Vec<LabelSet> {
        values.iter().map(|value| vec![(label, *value)]).collect()
    };
    let codes = || ErrorCode::ALL.iter().map(|code| code.as_str());
    let providers = || PushProvider::ALL.iter().map(|provider| provider.as_str());
    match name {
        "bluetick_errors_total" => {
            let by_socket = codes().map(|code| vec![("code", code)]);
            by_socket.chain(codes().map(|code| vec![("code", code), ("via", "http")])).collect()
        }
        "bluetick_sessions_ended_total" => codes().chain(["gone"]).map(|code| vec![("code", code)]).collect(),
        "bluetick_rate_limited_total" => {
            Exhausted::ALL.iter().map(|budget| vec![("budget", budget.as_str())]).collect()
        }
        "bluetick_push_decisions_total" => each("outcome", DECISIONS),
        "bluetick_push_sent_total" => providers().map(|provider| vec![("provider", provider)]).collect(),
        "bluetick_push_failed_total" => {
            let of = |provider| {
                PUSH_FAILURES.iter().map(move |why| vec![("provider", provider), ("reason", *why)])
            };
            providers().flat_map(of).collect()
        }
        "bluetick_dynamodb_errors_total" => each("reason", DYNAMODB_FAILURES),
        open if OPEN_LABELS.contains(&open) => Vec::new(),
        _ => vec![Vec::new()],
    }
}

const COUNTERS: &[(&str, &str)] = &[
    ("bluetick_sends_total", "Sends answered with sent, repeated ones included"),
    (
        "bluetick_rate_limited_total",
        "Requests refused because the user had too many, by the budget that was used up",
    ),
    ("bluetick_cold_moved_messages_total", "Messages moved into objects"),
    ("bluetick_cold_written_objects_total", "Objects of old messages written, those written anew included"),
    ("bluetick_cold_written_bytes_total", "Bytes of objects of old messages written"),
    ("bluetick_cold_reads_total", "Range reads of objects of old messages"),
    ("bluetick_cold_read_bytes_total", "Bytes of such reads"),
    ("bluetick_cold_errors_total", "Looks at a conversation's old messages that failed and are tried again"),
    ("bluetick_cold_lost_races_total", "Runs of old messages that somebody else was faster with"),
    ("bluetick_uploads_total", "Attachments announced"),
    ("bluetick_upload_bytes_total", "Bytes of attachments that came through this server"),
    ("bluetick_uploads_over_quota_total", "Announcements refused because a quota was used up"),
    ("bluetick_uploads_too_slow_total", "Uploads ended because they came too slowly"),
    ("bluetick_uploads_collected_total", "Uploads removed because no message referred to them for a day"),
    ("bluetick_uploads_uncollected_total", "Uploads that could not be removed, and will be tried again"),
    ("bluetick_deliveries_total", "Messages written to sessions"),
    ("bluetick_hand_overs_total", "Messages handed to a live session by their sender"),
    (
        "bluetick_hand_overs_hedged_total",
        "Sends that no session had accepted in time, so that the row was written",
    ),
    ("bluetick_acks_total", "Acks received"),
    ("bluetick_reads_total", "Reads received"),
    (
        "bluetick_pending_rows_written_total",
        "Times that a pending row was written or found to cover a message",
    ),
    ("bluetick_unreadable_conversations_total", "Conversations that could not be read for delivery"),
    ("bluetick_pending_rows_deleted_total", "Pending rows deleted"),
    ("bluetick_stale_sessions_total", "Entries of the session store that named no live session"),
    ("bluetick_sessions_opened_total", "Sessions opened"),
    ("bluetick_sessions_ended_total", "Sessions ended, by code"),
    ("bluetick_reregistrations_total", "Sessions that found their entry gone and registered anew"),
    ("bluetick_checkpoint_errors_total", "Checkpoints that failed and will be tried again"),
    ("bluetick_checkpoint_stalls_total", "Times that writes waited for a checkpoint"),
    ("bluetick_connections_refused_total", "Connections beyond the limit of their address"),
    ("bluetick_accept_errors_total", "Connections that could not be accepted"),
    ("bluetick_dynamodb_errors_total", "Tries of a call to DynamoDB that failed, by reason"),
    (
        "bluetick_dynamodb_half_units_total",
        "Halves of capacity units that DynamoDB says were consumed, by table and kind",
    ),
    ("bluetick_inbox_rebuilds_total", "Inbox orders that were made anew from the conversations"),
    ("bluetick_seqs_fenced_total", "Seqs that were handed out and turned out to be taken"),
    ("bluetick_redis_errors_total", "Calls to Redis that failed"),
    ("bluetick_redis_connections_total", "Connections made to Redis, the first and every later one"),
    ("bluetick_rate_limits_unshared_total", "Sends let through unasked because Redis could not be reached"),
    ("bluetick_errors_total", "Errors told to clients, by code"),
    ("bluetick_rpc_retries_total", "Requests of a gateway that went to another app server"),
    (
        "bluetick_rpc_refused_total",
        "Links refused: the caller did not prove the cluster's secret, or 256 others had yet to",
    ),
    ("bluetick_rpc_unproven_total", "Links given up because the listener did not prove the cluster's secret"),
    ("bluetick_directory_refused_total", "Entries of the directory that were not signed, or had expired"),
    ("bluetick_http_requests_total", "HTTP requests, by route and status"),
    ("bluetick_push_decisions_total", "Decisions whether to notify a user's devices, by what came of them"),
    ("bluetick_push_sent_total", "Notifications that a provider took, by provider"),
    ("bluetick_push_failed_total", "Notifications that a provider did not take, by provider and reason"),
    (
        "bluetick_push_claimed_total",
        "Notifications taken from the outbox: retries, and what others left behind",
    ),
    ("bluetick_push_queue_full_total", "Notifications left to the outbox because too many waited in memory"),
];

const GAUGES: &[(&str, &str)] = &[
    ("bluetick_build_info", "1, with the version of this build as a label, and the commit if it is known"),
    ("process_start_time_seconds", "When the process started, in seconds since 1970"),
    ("bluetick_connections", "WebSocket sessions that are open"),
    ("bluetick_commit_queue", "Writes that wait for the group being committed"),
    ("bluetick_log_bytes", "Bytes in the store's log"),
    ("bluetick_free_bytes", "Room left on the disk"),
    ("bluetick_unflushed_messages", "Checkpoint lag: messages in the log and not yet in the engine"),
    ("bluetick_app_servers", "App servers that this process is linked to"),
    ("bluetick_store_refusing", "1 while the store takes no sends"),
    ("bluetick_push_queue", "Notifications that wait in memory for their moment"),
    ("bluetick_push_route_ok", "1 while a way to devices takes notifications, by route"),
];

const HISTOGRAMS: &[(&str, &str)] = &[
    ("bluetick_send_seconds", "How long sends took that came together, from their arrival to their answers"),
    ("bluetick_fsync_seconds", "How long the log's fsync took"),
    ("bluetick_checkpoint_seconds", "How long a checkpoint took"),
    ("bluetick_group_answers", "Writes made durable by one fsync"),
    ("bluetick_drain_conversations", "Conversations that a new session had to drain"),
    ("bluetick_heartbeat_batch", "Sessions that were refreshed in one round trip to Redis"),
    ("bluetick_rpc_batch_calls", "Calls that went to another process in one batch"),
    ("bluetick_http_request_seconds", "How long HTTP requests took"),
    ("bluetick_push_request_seconds", "How long requests to those who carry notifications took, by provider"),
];

/// Figures that are looked up when they are asked for.
pub fn observe(sessions: usize, store: &Health) {
    gauge!("bluetick_connections").set(sessions as f64);
    gauge!("bluetick_log_bytes").set(store.log_bytes as f64);
    gauge!("bluetick_unflushed_messages").set(store.unflushed_messages as f64);
    gauge!("bluetick_store_refusing").set(if store.refusing.is_some() { 1.0 } else { 0.0 });
    if let Some(free) = store.free_bytes {
        gauge!("bluetick_free_bytes").set(free as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(config: &Config) -> String {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || register(config));
        handle.render()
    }

    #[test]
    fn every_counter_is_there_at_the_start_with_its_labels() {
        let mut config = Config::load(None, crate::config::Overrides::default()).unwrap();
        let text = rendered(&config);
        for zero in [
            "bluetick_sends_total 0",
            "bluetick_checkpoint_errors_total 0",
            "bluetick_errors_total{code=\"internal\"} 0",
            "bluetick_errors_total{code=\"internal\",via=\"http\"} 0",
            "bluetick_sessions_ended_total{code=\"gone\"} 0",
        ] {
            assert!(text.lines().any(|line| line == zero), "{zero} is missing in {text}");
        }
        for absent in ["bluetick_push_", "bluetick_dynamodb_", "bluetick_redis_", "bluetick_rpc_"] {
            assert!(!text.contains(absent), "{absent}: this process has no such part");
        }
        let version = format!("bluetick_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&version), "{text}");
        config.store.backend = Backend::Dynamodb;
        config.redis.urls = vec!["redis://127.0.0.1:1".into()];
        let text = rendered(&config);
        assert!(text.contains("bluetick_dynamodb_errors_total{reason=\"throttled\"} 0"), "{text}");
        assert!(text.contains("bluetick_redis_errors_total 0"), "{text}");
        for (name, _) in COUNTERS.iter().filter(|(name, _)| is_counted(name, &config)) {
            assert!(OPEN_LABELS.contains(name) || text.contains(name), "{name}");
        }
    }

    /// A counter that a crate counts and this list does not name has no help and no 0.
    #[test]
    fn every_counter_of_the_sources_is_listed_with_its_labels() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = Vec::new();
        let mut dirs = ["server", "chat", "store"].map(|name| crates.join(name).join("src")).to_vec();
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|kind| kind == "rs") {
                    sources.push(path);
                }
            }
        }
        let mut found = 0;
        for path in sources {
            let text = std::fs::read_to_string(&path).unwrap();
            for call in text.split("counter!(\"").skip(1) {
                let (name, rest) = call.split_once('"').unwrap();
                let listed = COUNTERS.iter().any(|(listed, _)| *listed == name);
                assert!(listed, "{}: {name} is not listed", path.display());
                let has_labels = rest.starts_with(',');
                let known = label_sets(name);
                let expected = known.iter().any(|labels| !labels.is_empty()) || OPEN_LABELS.contains(&name);
                assert_eq!(has_labels, expected, "{}: the labels of {name}", path.display());
                found += 1;
            }
        }
        assert!(found > 40, "{found} counters were found");
    }

    #[test]
    fn figures_are_rendered_with_buckets() {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            observe(3, &Health { log_bytes: 7, ..Health::default() });
            metrics::histogram!("bluetick_http_request_seconds").record(0.002);
        });
        let text = handle.render();
        assert!(text.contains("bluetick_connections 3"), "{text}");
        assert!(text.contains("bluetick_http_request_seconds_bucket{le=\"0.0025\"} 1"), "{text}");
        assert!(text.contains("# HELP bluetick_log_bytes"), "{text}");
    }
}
