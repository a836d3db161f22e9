//! Objects in a directory, written and read as streams. A new object is written to a temporary
//! file, and appears under its key complete and durable, or not at all.

use std::{
    io::{self, ErrorKind, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::{
    fs::{self, File},
    io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _},
};

use super::Objects;
use crate::{Result, StoreError};

/// The directory of temporary files.
const ASIDE: &str = "incoming";
/// The buffer of a read or write. With larger buffers the allocator keeps tens of megabytes while a
/// file is read.
const PIECE_BYTES: usize = 64 * 1024;
const KEEP_TRIES: u32 = 10;

/// An object that is being written. Dropping it deletes the temporary file.
pub struct NewObject {
    file: File,
    aside: Aside,
    target: PathBuf,
}

struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary file cannot be deleted; delete it by hand");
        }
    }
}

/// Syncs a directory and its parents up to the root of the objects. A missing directory needs no
/// sync.
async fn sync_up_to(top: &Path, from: &Path) -> io::Result<()> {
    for dir in from.ancestors().take_while(|dir| dir.starts_with(top)) {
        match File::open(dir).await {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            opened => opened?.sync_all().await?,
        }
    }
    Ok(())
}

impl Objects {
    fn dir(&self) -> Result<&Path> {
        let none = || StoreError::Unsupported("only objects in a directory are streamed".into());
        self.dir.as_deref().ok_or_else(none)
    }

    /// The free space, if it is known.
    pub fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::statvfs(self.dir.as_deref()?).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// Starts an object. `unique` names its temporary file.
    pub async fn create(&self, key: &str, unique: &str) -> Result<NewObject> {
        let dir = self.dir()?;
        let aside = dir.join(ASIDE).join(unique);
        let made = async {
            fs::create_dir_all(dir.join(ASIDE)).await?;
            fs::OpenOptions::new().write(true).create_new(true).open(&aside).await
        };
        let mut file = made.await.map_err(|e| self.lost("begin", key, &e))?;
        file.set_max_buf_size(PIECE_BYTES);
        Ok(NewObject { file, aside: Aside(aside), target: dir.join(key) })
    }

    /// Appends to an object.
    pub async fn append(&self, new: &mut NewObject, bytes: &[u8]) -> Result<()> {
        new.file.write_all(bytes).await.map_err(|e| self.lost("write", &new.target.display().to_string(), &e))
    }

    /// Publishes an object under its key. Returns false if the key is taken.
    pub async fn keep(&self, new: NewObject) -> Result<bool> {
        let dir = self.dir()?;
        let NewObject { mut file, aside, target } = new;
        let parent = target.parent().unwrap_or(Path::new(".")).to_owned();
        let kept = async {
            file.flush().await?;
            file.sync_all().await?;
            let mut tries = 0;
            loop {
                // A concurrent delete of the last object removes the directory, also while it is
                // being created: then it exists at one moment and not at the next.
                let linked = match fs::create_dir_all(&parent).await {
                    Ok(()) => fs::hard_link(&aside.0, &target).await,
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(ErrorKind::NotFound.into()),
                    Err(e) => Err(e),
                };
                match linked {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
                    Err(e) if e.kind() == ErrorKind::NotFound && tries < KEEP_TRIES => tries += 1,
                    linked => break linked?,
                }
            }
            sync_up_to(dir, &parent).await?;
            Ok(true)
        };
        kept.await.map_err(|e| self.lost("keep", &target.display().to_string(), &e))
    }

    /// Makes the presence or absence of an object durable. A bucket does that itself.
    pub(super) async fn sync_above(&self, key: &str) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let path = dir.join(self.path(key).as_ref());
        let synced = sync_up_to(dir, path.parent().unwrap_or(dir)).await;
        synced.map_err(|e| self.lost("sync", key, &e))
    }

    /// Streams a range of an object; `None` if there is no object.
    pub async fn stream(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<Option<impl Stream<Item = io::Result<Bytes>> + Send + 'static>> {
        let mut file = match File::open(self.dir()?.join(key)).await {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.lost("open", key, &e)),
        };
        file.seek(SeekFrom::Start(range.start)).await.map_err(|e| self.lost("read", key, &e))?;
        file.set_max_buf_size(PIECE_BYTES);
        let left = range.end.saturating_sub(range.start);
        Ok(Some(stream::try_unfold((file, left), |(mut file, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let mut piece = vec![0; left.min(PIECE_BYTES as u64) as usize];
            let read = file.read(&mut piece).await?;
            if read == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the object is shorter than it was"));
            }
            piece.truncate(read);
            Ok(Some((Bytes::from(piece), (file, left - read as u64))))
        })))
    }

    /// Deletes temporary files that a crashed process left.
    pub async fn sweep_aside(&self, older_than: Duration) -> Result<u64> {
        let Some(dir) = &self.dir else { return Ok(0) };
        let swept = async {
            let mut swept = 0;
            let mut entries = match fs::read_dir(dir.join(ASIDE)).await {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
                entries => entries?,
            };
            while let Some(entry) = entries.next_entry().await? {
                // A file that was published meanwhile is gone; anything that is no file is not
                // ours.
                let meta = match entry.metadata().await {
                    Err(e) if e.kind() == ErrorKind::NotFound => continue,
                    meta => meta?,
                };
                let age = SystemTime::now().duration_since(meta.modified()?).unwrap_or_default();
                if !meta.is_file() || age < older_than {
                    continue;
                }
                match fs::remove_file(entry.path()).await {
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    removed => {
                        removed?;
                        swept += 1;
                    }
                }
            }
            io::Result::Ok(swept)
        };
        swept.await.map_err(|e| self.lost("sweep", ASIDE, &e))
    }

    fn lost(&self, what: &str, key: &str, error: &io::Error) -> StoreError {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return StoreError::Full(format!("no room in {}", self.place));
        }
        tracing::warn!(%key, place = %self.place, %error, "the directory of objects failed to {what}");
        StoreError::unavailable(format!("the objects in {} (to {what} {key}: {error})", self.place))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    fn left_aside(dir: &Path) -> usize {
        std::fs::read_dir(dir.join(ASIDE)).unwrap().count()
    }

    #[tokio::test]
    async fn an_object_appears_whole_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::directory(dir.path()).unwrap();
        let long: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|n| n as u8).collect();
        let mut new = objects.create("attachments/ab/x", "1").await.unwrap();
        let mut late = objects.create("attachments/ab/x", "2").await.unwrap();
        for piece in long.chunks(1000) {
            objects.append(&mut new, piece).await.unwrap();
        }
        objects.append(&mut late, b"other").await.unwrap();
        assert!(objects.info("attachments/ab/x").await.unwrap().is_none());
        assert!(objects.keep(new).await.unwrap());
        assert!(!objects.keep(late).await.unwrap(), "what is there is never overwritten");
        assert_eq!(left_aside(dir.path()), 0);
        assert_eq!(objects.info("attachments/ab/x").await.unwrap().unwrap().bytes, long.len() as u64);

        for range in [0..long.len(), 7..9, PIECE_BYTES - 1..2 * PIECE_BYTES + 1, 5..5] {
            let pieces = objects.stream("attachments/ab/x", range.start as u64..range.end as u64).await;
            let pieces: Vec<Bytes> = pieces.unwrap().unwrap().try_collect().await.unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
            assert!(pieces.concat() == long[range.clone()], "{range:?}");
        }
        assert!(objects.stream("attachments/ab/y", 0..1).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_object_is_kept_though_its_directory_goes_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::directory(dir.path()).unwrap();
        let keep = async |name: &str| {
            let mut new = objects.create(&format!("attachments/ab/{name}"), name).await.unwrap();
            objects.append(&mut new, b"x").await.unwrap();
            assert!(objects.keep(new).await.unwrap());
            objects.delete(&format!("attachments/ab/{name}")).await.unwrap();
        };
        for _ in 0..50 {
            tokio::join!(keep("1"), keep("2"), keep("3"));
        }
    }

    #[tokio::test]
    async fn what_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::directory(dir.path()).unwrap();
        let mut new = objects.create("attachments/ab/x", "1").await.unwrap();
        objects.append(&mut new, b"half").await.unwrap();
        assert_eq!(left_aside(dir.path()), 1);
        drop(new);
        assert_eq!(left_aside(dir.path()), 0);
        std::fs::write(dir.path().join(ASIDE).join("dead"), b"x").unwrap();
        std::fs::create_dir(dir.path().join(ASIDE).join("a directory")).unwrap();
        assert_eq!(objects.sweep_aside(Duration::from_secs(60)).await.unwrap(), 0);
        assert_eq!(objects.sweep_aside(Duration::ZERO).await.unwrap(), 1);
        assert_eq!(left_aside(dir.path()), 1, "the directory");
    }
}
