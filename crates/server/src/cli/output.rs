//! Where a command's results go: standard output, or a file that is there whole or not at all.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Writes to standard output. A reader that went away, as `head` does, has seen what it wanted.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {e}"))
        }
        _ => Ok(()),
    }
}

/// A file that appears under its name when it is complete and durable. Dropped before that, it
/// leaves nothing behind.
pub struct WholeFile {
    file: File,
    unfinished: PathBuf,
    name: PathBuf,
    kept: bool,
}

impl WholeFile {
    /// Only its owner may read it: backups and exports hold what people wrote to each other.
    pub fn create(name: &Path) -> Result<WholeFile, String> {
        let Some(file_name) = name.file_name() else {
            return Err(format!("{} does not name a file", name.display()));
        };
        if name.is_dir() {
            return Err(format!("{} is a directory; name a file in it", name.display()));
        }
        let mut unfinished = file_name.to_owned();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = name.with_file_name(unfinished);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file =
            options.open(&unfinished).map_err(|e| format!("cannot write {}: {e}", unfinished.display()))?;
        Ok(WholeFile { file, unfinished, name: name.to_owned(), kept: false })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all(bytes).map_err(|e| self.failed(&e))
    }

    /// What was written so far, for a last look before it is kept.
    pub fn contents(&mut self) -> &mut File {
        &mut self.file
    }

    /// Makes it durable, then gives it its name.
    pub fn keep(mut self) -> Result<(), String> {
        self.file.sync_all().map_err(|e| self.failed(&e))?;
        std::fs::rename(&self.unfinished, &self.name).map_err(|e| self.failed(&e))?;
        self.kept = true;
        // The name is durable only when its directory is.
        let directory = self.name.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| self.failed(&e))
    }

    fn failed(&self, e: &io::Error) -> String {
        format!("cannot write {}: {e}", self.name.display())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about a file that will not go.
            let _ = std::fs::remove_file(&self.unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("backup");
        let mut half = WholeFile::create(&name).unwrap();
        half.write(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        let mut whole = WholeFile::create(&name).unwrap();
        whole.write(b"whole").unwrap();
        assert!(!name.exists());
        whole.keep().unwrap();
        assert_eq!(std::fs::read(&name).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
