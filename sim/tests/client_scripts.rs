//! The generated scripts of the clients' conformance kit are what the simulator records.

use std::{fs, path::Path};

use bluetick_sim::{RECORDED_SEEDS, record_client_script, script_file_name};

const REGENERATE: &str =
    "cargo run --manifest-path sim/Cargo.toml -- --write-client-scripts clients/conformance/generated";

#[test]
fn the_recorded_scripts_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/conformance/generated");
    for seed in RECORDED_SEEDS {
        let stored = fs::read_to_string(folder.join(script_file_name(seed))).unwrap_or_default();
        assert!(
            stored == record_client_script(seed),
            "the script of seed {seed} is stale; run `{REGENERATE}`"
        );
    }
    let stored = fs::read_dir(&folder).unwrap().count();
    assert_eq!(stored, RECORDED_SEEDS.len(), "a script that no seed gives; run `{REGENERATE}`");
}

#[test]
fn the_recorded_scripts_cover_reconnects_restarts_and_sends() {
    let scripts: Vec<_> = RECORDED_SEEDS.into_iter().map(record_client_script).collect();
    for event in ["connected", "frames", "send", "read", "lost", "restart"] {
        let has_event = |script: &&String| script.contains(&format!("\"event\": \"{event}\""));
        assert!(scripts.iter().filter(has_event).count() >= 2, "too few scripts have {event:?}");
    }
}
