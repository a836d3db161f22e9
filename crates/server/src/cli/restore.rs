//! `bluetick restore`: a data directory from a backup.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use bluetick_store::failpoint;
use clap::Args;

use super::{Failure, Outcome, output};

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// The data directory to make; it must hold no store
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

pub fn run(args: RestoreArgs) -> Outcome {
    let (name, dir) = (args.file.display(), args.data.display());
    let file = File::open(&args.file).map_err(|e| Failure::Failed(format!("cannot read {name}: {e}")))?;
    if STORE_ENTRIES.iter().any(|entry| args.data.join(entry).exists()) {
        return Err(Failure::Failed(format!("{dir} already holds a store; restore into a new directory")));
    }
    let beside = Beside::make(&args.data).map_err(|e| Failure::Failed(format!("cannot make {dir}: {e}")))?;
    let mut backup = BufReader::with_capacity(1 << 20, file);
    let rows = bluetick_store::restore(&mut backup, &beside.path)
        .map_err(|e| Failure::Failed(format!("cannot restore {name}: {e}")))?;
    failpoint::hit("restore.filled");
    beside
        .move_into(&args.data)
        .map_err(|e| Failure::Failed(format!("cannot move the restored store into {dir}: {e}")))?;
    Ok(output::print(&format!("{rows} rows restored; start with `bluetick serve --data {dir}`\n"))?)
}

/// The files of a store, in the order in which they are moved into place. Once the engine is there
/// the store is complete, because the rest is recreated. Before that there is no store, and the
/// restore can be repeated.
const STORE_ENTRIES: [&str; 4] = ["engine", "VERSION", "log", "LOCK"];

/// The store is built in a temporary directory and moved into place when it is complete: a partial
/// store that opens would pass for the whole.
struct Beside {
    path: PathBuf,
}

impl Beside {
    fn make(data: &Path) -> io::Result<Beside> {
        let name = data.file_name().ok_or_else(|| io::Error::other("it does not name a directory"))?;
        let mut unfinished = name.to_owned();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let path = data.with_file_name(unfinished);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&path)?;
        Ok(Beside { path })
    }

    fn move_into(&self, data: &Path) -> io::Result<()> {
        if !data.exists() {
            fs::rename(&self.path, data)?;
        } else {
            // Keys that were made before stay: clients hold tokens signed with them.
            for entry in STORE_ENTRIES.iter().filter(|entry| self.path.join(entry).exists()) {
                fs::rename(self.path.join(entry), data.join(entry))?;
                failpoint::hit("restore.entry_moved");
            }
            File::open(data)?.sync_all()?;
        }
        let parent = data.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Gone already if it was moved as a whole.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_were_there_stay() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("jwt.secret"), "s").unwrap();
        let beside = Beside::make(&data).unwrap();
        fs::create_dir(beside.path.join("engine")).unwrap();
        fs::write(beside.path.join("VERSION"), "1").unwrap();
        beside.move_into(&data).unwrap();
        drop(beside);
        assert!(
            data.join("engine").is_dir() && data.join("VERSION").exists() && data.join("jwt.secret").exists()
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_restore_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(Beside::make(&dir.path().join("data")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
