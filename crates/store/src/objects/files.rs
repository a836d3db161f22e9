//! Objects in a directory, written and read as streams: a new one is put together aside, and appears under its key whole and
//! on the disk, or not at all.

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

/// Where objects are put together.
const ASIDE: &str = "incoming";
/// How much of an object is in memory at once, written or read. Of larger pieces the allocator keeps tens of megabytes while a
/// file is read.
const PIECE_BYTES: usize = 64 * 1024;
const KEEP_TRIES: u32 = 10;

/// An object that is being written. Dropped, it leaves nothing behind.
pub struct NewObject {
    file: File,
    aside: Aside,
    target: PathBuf,
}

struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "what was put together cannot be removed");
        }
    }
}

/// Syncs a directory and those above it, as far as the first. One that is gone has nothing to sync.
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

    /// How much room there is, where that can be asked.
    pub fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::statvfs(self.dir.as_deref()?).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// Begins an object. `unique` is no other's.
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

    /// Adds to an object.
    pub async fn append(&self, new: &mut NewObject, bytes: &[u8]) -> Result<()> {
        new.file.write_all(bytes).await.map_err(|e| self.lost("write", &new.target.display().to_string(), &e))
    }

    /// Lets an object appear under its key. Returns false if there is one already.
    pub async fn keep(&self, new: NewObject) -> Result<bool> {
        let dir = self.dir()?;
        let NewObject { mut file, aside, target } = new;
        let parent = target.parent().unwrap_or(Path::new(".")).to_owned();
        let kept = async {
            file.flush().await?;
            file.sync_all().await?;
            let mut tries = 0;
            loop {
                fs::create_dir_all(&parent).await?;
                match fs::hard_link(&aside.0, &target).await {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
                    // Whoever deleted the last object of a directory took the directory along.
                    Err(e) if e.kind() == ErrorKind::NotFound && tries < KEEP_TRIES => tries += 1,
                    linked => break linked?,
                }
            }
            sync_up_to(dir, &parent).await?;
            Ok(true)
        };
        kept.await.map_err(|e| self.lost("keep", &target.display().to_string(), &e))
    }

    /// Makes durable that there is an object under a key, or none. A bucket sees to that itself.
    pub(super) async fn sync_above(&self, key: &str) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let path = dir.join(self.path(key).as_ref());
        let synced = sync_up_to(dir, path.parent().unwrap_or(dir)).await;
        synced.map_err(|e| self.lost("sync", key, &e))
    }

    /// Reads part of an object piece by piece; nothing if there is none.
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

    /// Removes what was put together and never kept, because a process died meanwhile.
    pub async fn sweep_aside(&self, older_than: Duration) -> Result<u64> {
        let Some(dir) = &self.dir else { return Ok(0) };
        let swept = async {
            let mut swept = 0;
            let mut entries = match fs::read_dir(dir.join(ASIDE)).await {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
                entries => entries?,
            };
            while let Some(entry) = entries.next_entry().await? {
                // What is finished meanwhile is gone, and what is no file is somebody else's.
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
