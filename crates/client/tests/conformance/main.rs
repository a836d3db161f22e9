//! Runs every script of `clients/conformance` against [`ClientState`](bluetick_client::ClientState):
//! no socket, no clock. `clients/conformance/README.md` describes the format.

#![expect(clippy::unwrap_used, reason = "a malformed script must fail the test")]

mod compare;
mod device;

use std::{fs, path::PathBuf};

use serde_json::Value;

use compare::Comparison;
use device::Device;

fn scripts(folder: &str) -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients/conformance").join(folder);
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let script = serde_json::from_str(&fs::read_to_string(&path).unwrap());
            (name.clone(), script.unwrap_or_else(|e| panic!("{name}: {e}")))
        })
        .collect();
    scripts.sort_by(|(a, _), (b, _)| a.cmp(b));
    scripts
}

/// Runs one script to its first difference.
fn run(script: &Value) -> Result<(), String> {
    let mut comparison = Comparison::default();
    let mut device = Device::new(script);
    for (n, step) in script["steps"].as_array().unwrap().iter().enumerate() {
        let report = device.apply(&comparison.bind(step));
        let compared = comparison.step(step, &report);
        compared.map_err(|difference| {
            format!("step {} ({}): {difference}\n    the client did {report}", n + 1, step["event"])
        })?;
    }
    Ok(())
}

fn run_all(folder: &str, at_least: usize) {
    let scripts = scripts(folder);
    assert!(scripts.len() >= at_least, "only {} scripts in {folder}", scripts.len());
    let failed: Vec<_> = scripts
        .iter()
        .filter_map(|(name, script)| run(script).err().map(|difference| format!("{name}: {difference}")))
        .collect();
    assert!(failed.is_empty(), "{} of {} scripts failed\n{}", failed.len(), scripts.len(), failed.join("\n"));
}

#[test]
fn the_state_passes_the_written_scripts() {
    run_all("scripts", 25);
}

#[test]
fn the_state_passes_the_generated_scripts() {
    run_all("generated", 10);
}

#[test]
fn every_script_says_its_name_and_why() {
    for (name, script) in scripts("scripts").into_iter().chain(scripts("generated")) {
        assert_eq!(script["name"], name.as_str());
        let why = script["why"].as_str().unwrap_or_default();
        assert!(why.ends_with('.') && why.len() > 20, "{name} does not say why it is there");
    }
}

/// A script that demands something else must fail: the comparison is not blind.
#[test]
fn a_changed_expectation_is_noticed() {
    let (_, script) = scripts("scripts").into_iter().find(|(name, _)| name == "gap-is-asked-for").unwrap();
    assert_eq!(run(&script), Ok(()));
    let changes: [(&str, Value); 4] = [
        ("/steps/2/out/0/after_seq", 9.into()),
        ("/steps/3/out/0/seq", 11.into()),
        ("/steps/3/told/0/seq", 12.into()),
        ("/steps/3/state/cursor", "1100".into()),
    ];
    for (pointer, value) in changes {
        let mut changed = script.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert!(run(&changed).is_err(), "{pointer} is not compared");
    }
}
