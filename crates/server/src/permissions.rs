//! File permissions: only the server's own user may read what it keeps.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::Mode;

use crate::config::Config;

/// Whatever this process creates from here on is for its own user only (umask 077).
pub fn restrict_new_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Who can get at a file or directory besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    Group,
    Everybody,
}

impl Exposure {
    /// None: only the owner.
    pub fn of(found: &fs::Metadata) -> Option<Exposure> {
        match found.permissions().mode() {
            mode if mode & 0o007 != 0 => Some(Exposure::Everybody),
            mode if mode & 0o070 != 0 => Some(Exposure::Group),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Exposure::Group => "users of its group",
            Exposure::Everybody => "every user of this machine",
        }
    }
}

/// The directories with messages and keys that others than their owner can get into.
pub fn exposed_directories(config: &Config) -> Vec<(PathBuf, Exposure)> {
    let exposure = |dir: &Path| fs::metadata(dir).ok().as_ref().and_then(Exposure::of);
    let data = &config.server.data_dir;
    let mut exposed = Vec::new();
    let of_data = exposure(data);
    exposed.extend(of_data.map(|exposure| (data.clone(), exposure)));
    if config.objects.s3_bucket.is_none() {
        let objects = config.objects_dir();
        // A closed data directory closes what is in it.
        let is_covered = of_data.is_none() && objects.starts_with(data);
        if let Some(exposure) = exposure(&objects).filter(|_| !is_covered) {
            exposed.push((objects, exposure));
        }
    }
    exposed
}

/// Writes the log's complaint about each of them.
pub fn warn_of_exposed_directories(config: &Config) {
    for (path, exposure) in exposed_directories(config) {
        let path = path.display();
        tracing::warn!(%path, open_to = exposure.as_str(), "messages and keys can be read by others: chmod 700 {path}");
    }
}

/// Writes or replaces a file that only its owner may read. Readers find the old file or the whole
/// new one.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = path.with_added_extension("new");
    // A file that an earlier start left would keep its permissions.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn open_directories_are_found_and_closed_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("objects")).unwrap();
        let mut config = Config::load(None, crate::config::Overrides::default()).unwrap();
        config.server.data_dir = data.clone();
        chmod(&data.join("objects"), 0o755);
        chmod(&data, 0o700);
        assert_eq!(exposed_directories(&config), [], "a closed directory covers what is in it");
        chmod(&data, 0o750);
        let both = [(data.clone(), Exposure::Group), (data.join("objects"), Exposure::Everybody)];
        assert_eq!(exposed_directories(&config), both);
        chmod(&data, 0o700);
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        chmod(&elsewhere, 0o711);
        config.objects.dir = Some(elsewhere.clone());
        assert_eq!(exposed_directories(&config), [(elsewhere, Exposure::Everybody)]);
        config.objects.s3_bucket = Some("bucket".into());
        assert_eq!(exposed_directories(&config), []);
    }

    #[test]
    fn a_private_file_is_private_whatever_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.key");
        fs::write(&path, "old").unwrap();
        chmod(&path, 0o644);
        write_private(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(Exposure::of(&fs::metadata(&path).unwrap()), None);
    }
}
