//! The conformance suite over every backend: one line each.

use std::sync::Arc;

use bluetick_store::{
    ColdConfig, ColdObjects, EmbeddedConfig, Memory, Objects, Store, conformance::Fixture, conformance_tests,
};

conformance_tests!(memory, || Fixture::new(|clock| Store::memory(clock)));
conformance_tests!(embedded, || embedded(32 * 1024 * 1024));
// A checkpoint after nearly every write: rows are read from the engine as often as from memory.
conformance_tests!(embedded_always_in_checkpoint, || embedded(1));

fn embedded(checkpoint_bytes: u64) -> Fixture {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let objects = Arc::new(ColdObjects::new(Objects::memory(), ColdConfig::default()));
    let config =
        EmbeddedConfig { checkpoint_bytes, objects: Some(objects), ..EmbeddedConfig::new(dir.path()) };
    Fixture::keeping(dir, |clock| Store::embedded(config, clock).expect("the store opens"))
}

/// The comparison proves itself: a store that forgets its idempotency records too soon is found.
#[tokio::test]
#[should_panic(expected = "the answers differ")]
async fn the_model_finds_a_store_that_forgets_too_soon() {
    let fixture = Fixture::new(|clock| {
        let memory = Memory::new(clock.clone()).with_idempotency_window(5_000);
        Store::from_memory(Arc::new(memory), clock)
    });
    bluetick_store::conformance::model::random_operations_leave_the_rows_of_the_model(&fixture).await;
}

/// A check that is not in the macro's list would never run, and nobody would notice.
#[test]
fn every_check_is_listed() {
    let systems = [
        ("sends", include_str!("../src/conformance/sends.rs")),
        ("reads", include_str!("../src/conformance/reads.rs")),
        ("pending", include_str!("../src/conformance/pending.rs")),
        ("status", include_str!("../src/conformance/status.rs")),
        ("unread", include_str!("../src/conformance/unread.rs")),
        ("conversations", include_str!("../src/conformance/conversations.rs")),
        ("users", include_str!("../src/conformance/users.rs")),
        ("devices", include_str!("../src/conformance/devices.rs")),
        ("push_outbox", include_str!("../src/conformance/push_outbox.rs")),
        ("attachments", include_str!("../src/conformance/attachments.rs")),
        ("cold", include_str!("../src/conformance/cold.rs")),
        ("maintenance", include_str!("../src/conformance/maintenance.rs")),
        ("sessions", include_str!("../src/conformance/sessions.rs")),
        ("model", include_str!("../src/conformance/model.rs")),
    ];
    let mut written = Vec::new();
    for (system, source) in systems {
        let checks = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn ")?.strip_suffix("(t: &Fixture) {"));
        written.extend(checks.map(|check| format!("{system}::{check}")));
    }
    assert_eq!(memory::CHECKS, written);
}
