//! Prometheus figures. Each part of the server counts what it does; here they are named, explained and collected.

use std::sync::OnceLock;

use bluetick_store::Health;
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// From a tenth of a millisecond, a good fsync, to ten seconds, a bad day.
const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const COUNTS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0,
];

/// Makes the recorder the process's own, once; whoever comes later gets the same one.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = builder().build_recorder();
            let handle = recorder.handle();
            // Fails only if a test installed another; its figures are then not shown, and nothing else is lost.
            let _ = metrics::set_global_recorder(recorder);
            describe();
            handle
        })
        .clone()
}

/// Every histogram counts seconds, unless its name says otherwise.
fn builder() -> PrometheusBuilder {
    let with_buckets = |builder: PrometheusBuilder, matcher, buckets| match builder
        .set_buckets_for_metric(matcher, buckets)
    {
        Ok(builder) => builder,
        // Only an empty list of buckets is refused, and these are not.
        Err(_) => PrometheusBuilder::new(),
    };
    let builder = with_buckets(
        PrometheusBuilder::new(),
        Matcher::Suffix("_seconds".into()),
        SECONDS,
    );
    let builder = with_buckets(builder, Matcher::Suffix("_messages".into()), COUNTS);
    with_buckets(builder, Matcher::Suffix("_size".into()), COUNTS)
}

fn describe() {
    describe_gauge!("bluetick_connections", "WebSocket sessions that are open");
    describe_gauge!(
        "bluetick_store_log_bytes",
        Unit::Bytes,
        "Bytes in the store's log"
    );
    describe_gauge!(
        "bluetick_store_unflushed_messages",
        "Messages in the log and not yet in the engine"
    );
    describe_gauge!("bluetick_store_free_bytes", Unit::Bytes, "Room left on the disk");
    describe_gauge!("bluetick_store_refusing", "1 while the store takes no sends");
    describe_counter!(
        "bluetick_connections_refused_total",
        "Connections beyond the limit of their address"
    );
    describe_counter!(
        "bluetick_accept_errors_total",
        "Connections that could not be accepted"
    );
    describe_counter!("bluetick_errors_total", "Errors told to clients, by code");
    describe_counter!(
        "bluetick_http_requests_total",
        "HTTP requests, by route and status"
    );
    describe_histogram!(
        "bluetick_http_request_seconds",
        Unit::Seconds,
        "How long HTTP requests took"
    );
}

/// Figures that are looked up when they are asked for.
pub fn observe(sessions: usize, store: &Health) {
    gauge!("bluetick_connections").set(sessions as f64);
    gauge!("bluetick_store_log_bytes").set(store.log_bytes as f64);
    gauge!("bluetick_store_unflushed_messages").set(store.unflushed_messages as f64);
    gauge!("bluetick_store_refusing").set(if store.refusing.is_some() { 1.0 } else { 0.0 });
    if let Some(free) = store.free_bytes {
        gauge!("bluetick_store_free_bytes").set(free as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rendered_with_buckets() {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            observe(
                3,
                &Health {
                    log_bytes: 7,
                    ..Health::default()
                },
            );
            metrics::histogram!("bluetick_http_request_seconds").record(0.002);
        });
        let text = handle.render();
        assert!(text.contains("bluetick_connections 3"), "{text}");
        assert!(
            text.contains("bluetick_http_request_seconds_bucket{le=\"0.0025\"} 1"),
            "{text}"
        );
        assert!(text.contains("# HELP bluetick_store_log_bytes"), "{text}");
    }
}
