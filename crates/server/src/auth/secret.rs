//! Secrets in files: generated once, readable only by their owner, and compared in constant time.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use bluetick_store::failpoint;
use rand::{TryRng as _, rngs::SysRng};
use subtle::ConstantTimeEq as _;

use super::AuthError;
use crate::config::HS256_MIN_BYTES;

/// Whether two keys are equal, in a time that depends only on their lengths.
pub fn keys_match(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

/// Reads an existing secret.
pub fn read_secret(path: &Path) -> Result<String, AuthError> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| AuthError::Unreadable { path: shown(), source })?;
    let secret = text.trim();
    if secret.len() < HS256_MIN_BYTES {
        let remedy = "remove it to have a new one made, or put a longer one there";
        return Err(AuthError::TooShort { path: shown(), length: secret.len(), remedy });
    }
    if let Ok(metadata) = fs::metadata(path)
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(path = %path.display(), "secret file can be read by others than its owner");
    }
    Ok(secret.to_owned())
}

/// Reads the secret, or generates one of 256 random bits. Two processes that do so at the same time
/// get the same secret.
pub fn load_or_create_secret(path: &Path) -> Result<String, AuthError> {
    match fs::metadata(path) {
        Ok(_) => return read_secret(path),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(source) => {
            return Err(AuthError::Unreadable { path: path.display().to_string(), source });
        }
    }
    create(path).map_err(|source| AuthError::NotWritable { path: path.display().to_string(), source })?;
    read_secret(path)
}

/// Creates the file complete or not at all: it is written under a temporary name and linked, which
/// fails if another process was faster.
fn create(path: &Path) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut random = [0u8; 36];
    SysRng.try_fill_bytes(&mut random).map_err(std::io::Error::other)?;
    let (secret, unique) = random.split_at(32);
    let aside = dir.join(format!(".secret-{}", hex(unique)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        writeln!(file, "{}", hex(secret))?;
        file.sync_all()?;
        failpoint::hit("first_start.secret_written");
        match fs::hard_link(&aside, path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
            _ => {
                failpoint::hit("first_start.secret_linked");
                fs::File::open(dir)?.sync_all()
            }
        }
    })();
    let _ = fs::remove_file(&aside);
    written
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data").join("jwt.secret");
        let secrets: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| load_or_create_secret(&path).unwrap())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(secrets[0].len(), 64);
        assert!(secrets.iter().all(|s| *s == secrets[0]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left aside");
    }

    #[test]
    fn a_short_or_unreadable_secret_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short");
        fs::write(&path, "too short\n").unwrap();
        let error = load_or_create_secret(&path).unwrap_err().to_string();
        assert!(error.contains("9 bytes") && !error.contains("too short"), "{error}");
        assert!(read_secret(&dir.path().join("absent")).is_err());
        assert!(load_or_create_secret(&path.join("below-a-file")).is_err());
    }

    #[test]
    fn hex_has_two_digits_a_byte() {
        assert_eq!(hex(&[0, 9, 255]), "0009ff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn keys_are_compared_whole() {
        assert!(keys_match("abc", "abc"));
        assert!(!keys_match("abc", "abd"));
        assert!(!keys_match("ab", "abc"));
        assert!(!keys_match("", "abc"));
    }
}
