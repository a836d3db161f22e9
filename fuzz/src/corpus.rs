//! The stored inputs: `corpus/{target}/{file}`. The prefix of a file's name is a promise: `ok-` is
//! accepted, `no-` is refused; any other (`seen-` reached new code, `found-` failed once) only must
//! not fail.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::PathBuf,
};

pub(crate) struct Seed {
    name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Searched upwards from the working directory of the test: a path known at compile time may be
/// that of another clone that shares the build cache.
fn dir(target: &str) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let top = here.ancestors().find(|dir| dir.join("fuzz/corpus").is_dir()).unwrap_or(&here);
    top.join("fuzz/corpus").join(target)
}

/// Every input of a target, sorted by name.
pub(crate) fn read(target: &str) -> Vec<Seed> {
    let dir = dir(target);
    let items = fs::read_dir(&dir).unwrap_or_else(|e| panic!("no corpus in {}: {e}", dir.display()));
    let mut seeds: Vec<Seed> = items
        .map(|item| {
            let path = item.expect("a corpus can be listed").path();
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            Seed { name: path.display().to_string(), bytes }
        })
        .collect();
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!seeds.is_empty(), "{} is empty", dir.display());
    seeds
}

impl Seed {
    /// Gives the input to the target. If that panics, the output ends with the input's name.
    pub(crate) fn replay(&self, target: impl Fn(&[u8]) -> bool) {
        eprintln!("{}", self.name);
        let accepted = target(&self.bytes);
        let file = self.name.rsplit('/').next().unwrap_or_default();
        if file.starts_with("ok-") {
            assert!(accepted, "{} was refused", self.name);
        }
        if file.starts_with("no-") {
            assert!(!accepted, "{} was accepted", self.name);
        }
    }
}

/// Adds an input that failed.
pub(crate) fn keep(target: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = dir(target).join(format!("found-{:016x}", hasher.finish()));
    fs::write(&path, input).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// A seed that also fixes the format: the file holds exactly these bytes. With
/// `BLUETICK_WRITE_SEEDS` set it is written instead of compared.
pub fn golden(target: &str, file: &str, bytes: &[u8]) {
    let path = dir(target).join(file);
    if std::env::var_os("BLUETICK_WRITE_SEEDS").is_some() {
        fs::create_dir_all(dir(target)).expect("a corpus can be made");
        fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let kept = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        bytes.escape_ascii().to_string(),
        kept.escape_ascii().to_string(),
        "what earlier versions wrote as {file} is written differently now"
    );
}
