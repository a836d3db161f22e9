//! The write-ahead log: the commit point of every write.
//!
//! A directory of segment files, each named after its first record. A segment is a sequence of
//! *groups*; a group is one write and one fsync (group commit):
//!
//! ```text
//! group  = header · record*                      all numbers are little endian
//! header = magic u32 · crc32c of the rest of the header u32 · group number u64 · first lsn u64
//!          · bytes u32 · records u32
//! record = length u32 · crc32c u32 · payload     the crc covers length and payload
//! ```
//!
//! A group is written only after the one before it is durable. So:
//!
//! - A damaged group with a whole one behind it had been acknowledged. That is data loss: the log
//!   refuses to open. The same holds for a whole group that does not follow the one before it.
//! - A damaged group with nothing behind it is a torn tail: nobody was told of it, and it is cut
//!   off.
//!
//! The header's checksum begins with a secret seed of the store, so that no message body can pass
//! for a group.
//!
//! The active segment is preallocated: zeros (its *room*) lie behind its last group. A group
//! written over them changes neither the file's length nor its block map, so the fsync writes the
//! group and no metadata. A segment loses its room when the next one begins.

mod group;
mod replay;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

pub(super) use self::group::Group;
use self::replay::{ExpectedGroup, scan};
use crate::{Result, StoreError, failpoint};

/// The log's directory in the data directory. The name is part of the on-disk format.
pub(super) const WAL_DIR: &str = "log";
/// How much room is preallocated at once: enough for many groups, little enough not to delay the
/// group it is written with.
const ROOM_BYTES: u64 = 64 * 1024;
static ZEROS: [u8; ROOM_BYTES as usize] = [0; ROOM_BYTES as usize];

/// Why a group could not be written.
#[derive(Debug)]
pub(super) enum AppendError {
    /// Nothing of the group is in the log: its sends fail, and service goes on.
    Refused(io::Error),
    /// The state on disk is unknown: the process must end.
    Unknown(io::Error),
}

pub(super) struct Wal {
    dir: PathBuf,
    segment_bytes: u64,
    seed: u32,
    file: File,
    path: PathBuf,
    end: u64,
    /// The length of the file: zeros lie between `end` and it.
    length: u64,
    next_group: u64,
    next_lsn: u64,
    /// Segments before the one being written: first lsn and length.
    old: Vec<(u64, u64)>,
}

impl Wal {
    /// Opens the log and gives every record to `replay`, oldest first. An empty log begins at
    /// `first_lsn`.
    pub(super) fn open(
        dir: &Path,
        segment_bytes: u64,
        seed: u32,
        first_lsn: u64,
        mut replay: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Wal> {
        fs::create_dir_all(dir).map_err(|e| cannot("create", dir, &e))?;
        let segments = list_segments(dir)?;
        let mut next = ExpectedGroup { group: None, lsn: first_lsn.max(1) };
        let (mut old, mut last) = (Vec::new(), None);
        for (n, (start, path)) in segments.iter().enumerate() {
            let is_last = n + 1 == segments.len();
            let bytes = fs::read(path).map_err(|e| cannot("read", path, &e))?;
            if n > 0 {
                next.skip_removed_segments(*start, first_lsn, path)?;
            }
            let end = scan(path, *start, &bytes, seed, is_last, &mut next, &mut replay)?;
            match is_last {
                false => old.push((*start, bytes.len() as u64)),
                true => last = Some((cut_tail(path, end, &bytes[end as usize..])?, path.clone(), end)),
            }
        }
        let (file, path, end) = match last {
            Some(last) => last,
            None => {
                let (file, path) =
                    create_segment(dir, next.lsn).map_err(|e| cannot("create a segment in", dir, &e))?;
                failpoint::hit("first_start.segment_made");
                (file, path, 0)
            }
        };
        let (next_group, next_lsn) = (next.group.unwrap_or(1), next.lsn);
        let dir = dir.to_owned();
        Ok(Wal { dir, segment_bytes, seed, file, path, end, length: end, next_group, next_lsn, old })
    }

    pub(super) fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// Bytes in all segments.
    pub(super) fn total_bytes(&self) -> u64 {
        self.end + self.old.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Writes a group and makes it durable: one write, one fsync. Empties the group.
    pub(super) fn append(&mut self, group: &mut Group) -> Result<(), AppendError> {
        if group.is_empty() {
            return Ok(());
        }
        if self.end >= self.segment_bytes {
            self.rotate()?;
        }
        group.seal(self.seed, self.next_group, self.next_lsn);
        failpoint::hit_after("log.half_a_group", || {
            let _ = self.file.write_all_at(&group.bytes[..group.bytes.len() / 2], self.end);
        });
        if let Err(e) = self.file.write_all_at(&group.bytes, self.end) {
            // Undo a partial write, so that no later group follows a torn one.
            return match self.cut_room() {
                // The cut must be durable: a power loss could bring back a torn group in front of
                // later ones.
                Ok(()) => Err(AppendError::Refused(e)),
                Err(_) => Err(AppendError::Unknown(e)),
            };
        }
        let end = self.end + group.bytes.len() as u64;
        if end > self.length {
            self.length = self.make_room(end);
        }
        failpoint::hit("log.group_written");
        self.file.sync_data().map_err(AppendError::Unknown)?;
        failpoint::hit("log.group_synced");
        self.end = end;
        self.next_group += 1;
        self.next_lsn += u64::from(group.records);
        group.clear();
        Ok(())
    }

    /// Preallocates zeros behind a group that ends at `end` and has filled the file. Returns the
    /// new length of the file. On a full disk the file grows with each group instead.
    fn make_room(&self, end: u64) -> u64 {
        let room = ROOM_BYTES.min(self.segment_bytes.saturating_sub(end));
        match self.file.write_all_at(&ZEROS[..room as usize], end) {
            Ok(()) => end + room,
            // Some zeros may have been written; they go when the segment is left.
            Err(_) => end,
        }
    }

    /// Cuts off the room behind the last group, durably.
    fn cut_room(&mut self) -> Result<(), AppendError> {
        self.file.set_len(self.end).map_err(AppendError::Refused)?;
        self.length = self.end;
        self.file.sync_all().map_err(AppendError::Unknown)
    }

    /// Begins a new segment, so that a checkpoint can remove everything before it.
    pub(super) fn rotate(&mut self) -> Result<(), AppendError> {
        if self.end == 0 {
            return Ok(());
        }
        // Before the next segment exists: only the last segment may have something behind its
        // groups.
        self.cut_room()?;
        failpoint::hit("log.room_cut");
        let (file, path) = create_segment(&self.dir, self.next_lsn).map_err(AppendError::Refused)?;
        failpoint::hit("log.segment_made");
        self.old.push((segment_start(&self.path).unwrap_or_default(), self.end));
        (self.file, self.path, self.end, self.length) = (file, path, 0, 0);
        Ok(())
    }

    /// Stops counting the segments that hold only records before `lsn`, after they were removed.
    pub(super) fn forget_before(&mut self, lsn: u64) {
        let starts = self.old.iter().map(|(start, _)| *start).chain(segment_start(&self.path));
        let gone = starts.skip(1).take_while(|next| *next <= lsn).count();
        self.old.drain(..gone);
    }
}

/// Removes the segments that hold only records before `lsn`. Freeing their blocks takes a while, so
/// the checkpoint thread does it, and not the committer.
pub(super) fn remove_before(dir: &Path, lsn: u64) -> Result<()> {
    let segments = list_segments(dir)?;
    let gone = segments.iter().zip(segments.iter().skip(1)).take_while(|(_, (next, _))| *next <= lsn);
    for (n, ((_, path), _)) in gone.enumerate() {
        if n > 0 {
            failpoint::hit("log.segment_dropped");
        }
        fs::remove_file(path).map_err(|e| cannot("remove", path, &e))?;
    }
    Ok(())
}

fn segment_path(dir: &Path, first_lsn: u64) -> PathBuf {
    dir.join(format!("{first_lsn:020}.log"))
}

fn segment_start(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

fn list_segments(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for item in fs::read_dir(dir).map_err(|e| cannot("list", dir, &e))? {
        let path = item.map_err(|e| cannot("list", dir, &e))?.path();
        if let Some(start) = segment_start(&path) {
            segments.push((start, path));
        }
    }
    segments.sort();
    Ok(segments)
}

fn create_segment(dir: &Path, first_lsn: u64) -> io::Result<(File, PathBuf)> {
    let path = segment_path(dir, first_lsn);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    if let Err(e) = file.sync_all().and_then(|()| File::open(dir)?.sync_all()) {
        // The segment before stays the active one. If this one stayed, that one would look like an
        // old segment, whose tail is never cut.
        let _ = fs::remove_file(&path);
        return Err(e);
    }
    Ok((file, path))
}

/// Opens the last segment for appending. Whatever lies behind its last whole group is cut off,
/// durably.
fn cut_tail(path: &Path, end: u64, tail: &[u8]) -> Result<File> {
    let file = OpenOptions::new().write(true).open(path).map_err(|e| cannot("open", path, &e))?;
    if !tail.is_empty() {
        if tail.iter().any(|&byte| byte != 0) {
            tracing::warn!(segment = %path.display(), at = end, bytes = tail.len(), "cut a torn tail");
        }
        file.set_len(end).map_err(|e| cannot("cut", path, &e))?;
        failpoint::hit("log.tail_cut");
        file.sync_all().map_err(|e| cannot("cut", path, &e))?;
    }
    Ok(file)
}

fn cannot(what: &str, path: &Path, e: &io::Error) -> StoreError {
    StoreError::Unusable(format!("cannot {what} {}: {e}", path.display()))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
