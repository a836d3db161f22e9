//! The data directory itself: its lock, its format version and its free space.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

use crate::{Result, StoreError, failpoint};

/// The format that this version writes into `VERSION`, and the newest it reads.
const DIRECTORY_VERSION: u32 = 5;
/// Creates the directory if needed, checks its version and locks it. Changes nothing in a directory
/// that it refuses.
pub(super) fn claim(dir: &Path) -> Result<File> {
    let fail = |what: &str, e: std::io::Error| {
        StoreError::Unusable(format!("cannot {what} the data directory {}: {e}", dir.display()))
    };
    fs::create_dir_all(dir).map_err(|e| fail("create", e))?;
    read_version(dir)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("LOCK"))
        .map_err(|e| fail("lock", e))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(StoreError::Unusable(format!(
                "the data directory {} is in use by another process; stop that one, or choose another with --data",
                dir.display()
            )));
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail("lock", e)),
    }
    // Boundary an older directory before anything is written that an older version could not read.
    if read_version(dir)? != Some(DIRECTORY_VERSION) {
        write_version(dir).map_err(|e| fail("write to", e))?;
        failpoint::hit("first_start.version_written");
    }
    Ok(lock)
}

/// The format of a directory, if it has one.
fn read_version(dir: &Path) -> Result<Option<u32>> {
    let path = dir.join("VERSION");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(StoreError::Unusable(format!("cannot read {}: {e}", path.display())));
        }
    };
    match text.trim().parse::<u32>() {
        Ok(version) if version <= DIRECTORY_VERSION => Ok(Some(version)),
        Ok(version) => Err(StoreError::Unusable(format!(
            "the data directory {} has format {version}, and this version of bluetick reads up to {DIRECTORY_VERSION}; \
             use a newer bluetick",
            dir.display()
        ))),
        Err(_) => Err(StoreError::Unusable(format!(
            "{} holds {text:?} instead of a version; is this the data directory of bluetick?",
            path.display()
        ))),
    }
}

/// Written to a temporary file and renamed: a crash leaves no version or a whole one.
fn write_version(dir: &Path) -> std::io::Result<()> {
    let aside = dir.join("VERSION.new");
    let mut file = File::create(&aside)?;
    failpoint::hit("first_start.version_begun");
    writeln!(file, "{DIRECTORY_VERSION}")?;
    file.sync_all()?;
    fs::rename(&aside, dir.join("VERSION"))?;
    File::open(dir)?.sync_all()
}

/// A random seed, never zero.
pub(super) fn fresh_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| StoreError::Unusable(format!("cannot read random bytes: {e}")))?;
    Ok(u64::from_le_bytes(bytes) | 1)
}

pub(super) fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}
