//! The append-only wal: the commit point of every write.
//!
//! A directory of segment files, each named after the first record in it. A segment is a row of *groups*; a group
//! is what one fsync made durable:
//!
//! ```text
//! group  = magic u32 · crc32c of the rest of the header u32 · group number u64 · first lsn u64 · bytes u32 · records u32
//!          · record*
//! record = length u32 · crc32c u32 · payload            (the crc covers length and payload; all little endian)
//! ```
//!
//! A group is written only after the one before it is durable. So a damaged group with a whole one behind it had
//! been acknowledged: that is damage, and the log refuses to open. So is a whole group that does not follow the one
//! before it. A damaged group with nothing behind it is a torn tail: nobody was told of it, and it is cut. The header's crc begins with a secret seed of the store's, so that
//! no message body can be made to look like a group that follows.
//!
//! Behind the last group of the segment that is written to lie zeros, its *room*: a group that is written over them changes
//! neither the file's length nor where its blocks are, so that an fsync writes the group and nothing about the file. A
//! segment that is left loses its room.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{Result, StoreError, failpoint};

/// Where it is in the data directory.
pub(super) const WAL_DIR: &str = "log";
const MAGIC: u32 = 0x314b_5442; // "BTK1"
const HEADER_BYTES: usize = 32;
const RECORD_HEADER_BYTES: usize = 8;
/// Longest record: far above a body of the hard limit, far below what a broken length could ask for.
const RECORD_MAX_BYTES: usize = 8 * 1024 * 1024;
/// How much room is made at once: enough for many groups, little enough that the group it is made with is soon durable.
const ROOM_BYTES: u64 = 64 * 1024;
static ZEROS: [u8; ROOM_BYTES as usize] = [0; ROOM_BYTES as usize];

/// Records gathered for one write and one fsync.
#[derive(Debug, Default)]
pub(super) struct Group {
    bytes: Vec<u8>,
    records: u32,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one record, written by `encode`.
    pub(super) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        encode(&mut self.bytes);
        let length = (self.bytes.len() - start - RECORD_HEADER_BYTES) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        let crc = record_crc(length, &self.bytes[start + RECORD_HEADER_BYTES..]);
        self.bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        self.records += 1;
    }

    fn seal(&mut self, seed: u32, group: u64, first_lsn: u64) {
        let body = (self.bytes.len() - HEADER_BYTES) as u32;
        let header = &mut self.bytes[..HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&group.to_le_bytes());
        header[16..24].copy_from_slice(&first_lsn.to_le_bytes());
        header[24..28].copy_from_slice(&body.to_le_bytes());
        header[28..32].copy_from_slice(&self.records.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
        // A rare burst must not keep its memory for ever.
        self.bytes.shrink_to(4 * 1024 * 1024);
    }
}

fn record_crc(length: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), payload)
}

struct GroupHeader {
    group: u64,
    first_lsn: u64,
    bytes: usize,
    records: u32,
}

fn read_header(seed: u32, bytes: &[u8]) -> Option<GroupHeader> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if u32_at(0)? != MAGIC || u32_at(4)? != crc32c::crc32c_append(seed, bytes.get(8..HEADER_BYTES)?) {
        return None;
    }
    Some(GroupHeader {
        group: u64_at(8)?,
        first_lsn: u64_at(16)?,
        bytes: u32_at(24)? as usize,
        records: u32_at(28)?,
    })
}

/// Why a group could not be written.
#[derive(Debug)]
pub(super) enum AppendError {
    /// Nothing of the group is in the wal: the sends fail and service goes on.
    Refused(io::Error),
    /// What is on disk is unknown: the process must end.
    Unknown(io::Error),
}

pub(super) struct Wal {
    dir: PathBuf,
    segment_bytes: u64,
    seed: u32,
    file: File,
    path: PathBuf,
    end: u64,
    /// How long the file is: what lies behind the end is zeros.
    length: u64,
    next_group: u64,
    next_lsn: u64,
    /// Segments before the one being written: first lsn and length.
    old: Vec<(u64, u64)>,
}

impl Wal {
    /// Opens the log and gives every record to `replay`, oldest first. `first_lsn` is where an empty log begins.
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
        let mut old = Vec::new();
        for (n, (start, path)) in segments.iter().enumerate() {
            let last = n + 1 == segments.len();
            let bytes = fs::read(path).map_err(|e| cannot("read", path, &e))?;
            if *start > next.lsn && n > 0 {
                if *start > first_lsn {
                    return Err(StoreError::Corrupt(format!(
                        "the log lacks records before {}",
                        path.display()
                    )));
                }
                // What the engine has may be missing: removals become durable in any order.
                next = ExpectedGroup { group: None, lsn: *start };
            }
            let end = scan(path, *start, &bytes, seed, last, &mut next, &mut replay)?;
            if last {
                let file = OpenOptions::new().write(true).open(path).map_err(|e| cannot("open", path, &e))?;
                let tail = &bytes[end as usize..];
                if !tail.is_empty() {
                    if tail.iter().any(|&byte| byte != 0) {
                        tracing::warn!(segment = %path.display(), at = end, bytes = tail.len(), "cut a torn tail");
                    }
                    file.set_len(end).map_err(|e| cannot("cut", path, &e))?;
                    failpoint::hit("log.tail_cut");
                    file.sync_all().map_err(|e| cannot("cut", path, &e))?;
                }
                return Ok(Wal {
                    dir: dir.to_owned(),
                    segment_bytes,
                    seed,
                    file,
                    path: path.clone(),
                    end,
                    length: end,
                    next_group: next.group.unwrap_or(1),
                    next_lsn: next.lsn,
                    old,
                });
            }
            old.push((*start, bytes.len() as u64));
        }
        let (file, path) =
            create_segment(dir, next.lsn).map_err(|e| cannot("create a segment in", dir, &e))?;
        failpoint::hit("first_start.segment_made");
        let (next_group, next_lsn) = (next.group.unwrap_or(1), next.lsn);
        let dir = dir.to_owned();
        Ok(Wal { dir, segment_bytes, seed, file, path, end: 0, length: 0, next_group, next_lsn, old })
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
            // Take back what may have been written, so that no later group follows a torn one.
            return match self.cut_room() {
                // Durably gone, or a power loss could bring back a torn group in front of later ones.
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

    /// Writes zeros behind the group that ends at `end` and has filled the file. Returns how long the file is then: on a
    /// disk that is full it just grows with each group.
    fn make_room(&self, end: u64) -> u64 {
        let room = ROOM_BYTES.min(self.segment_bytes.saturating_sub(end));
        match self.file.write_all_at(&ZEROS[..room as usize], end) {
            Ok(()) => end + room,
            // Some of them may be there; they go when the segment is left.
            Err(_) => end,
        }
    }

    /// Cuts off what lies behind the last group, durably.
    fn cut_room(&mut self) -> Result<(), AppendError> {
        self.file.set_len(self.end).map_err(AppendError::Refused)?;
        self.length = self.end;
        self.file.sync_all().map_err(AppendError::Unknown)
    }

    /// Begins a new segment, so that everything before it can be let go of together.
    pub(super) fn rotate(&mut self) -> Result<(), AppendError> {
        if self.end == 0 {
            return Ok(());
        }
        // Before there is another: only the last segment may have something behind its groups.
        self.cut_room()?;
        failpoint::hit("log.room_cut");
        let (file, path) = create_segment(&self.dir, self.next_lsn).map_err(AppendError::Refused)?;
        failpoint::hit("log.segment_made");
        self.old.push((segment_start(&self.path).unwrap_or_default(), self.end));
        (self.file, self.path, self.end, self.length) = (file, path, 0, 0);
        Ok(())
    }

    /// Counts the segments no more that hold only records before `lsn`, once they are removed.
    pub(super) fn forget_before(&mut self, lsn: u64) {
        let starts = self.old.iter().map(|(start, _)| *start).chain(segment_start(&self.path));
        let gone = starts.skip(1).take_while(|next| *next <= lsn).count();
        self.old.drain(..gone);
    }
}

/// Removes the segments that hold only records before `lsn`. To free so many blocks takes a while, and is for whoever can wait: the
/// log itself only forgets them.
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

struct ExpectedGroup {
    /// The number of the group to come; none before the first, whose number is whatever earlier segments left off at.
    group: Option<u64>,
    lsn: u64,
}

impl ExpectedGroup {
    /// What comes after a group in a segment that begins at `start`, or `None` if it is not the one to come.
    fn after(&self, header: &GroupHeader, start: u64) -> Option<ExpectedGroup> {
        let in_order = match self.group {
            Some(group) => header.group == group && header.first_lsn == self.lsn,
            None => header.first_lsn == start,
        };
        let group = Some(header.group.checked_add(1)?);
        let lsn = header.first_lsn.checked_add(u64::from(header.records))?;
        in_order.then_some(ExpectedGroup { group, lsn })
    }
}

/// Reads the groups of one segment. Returns where the last whole one ends.
fn scan(
    path: &Path,
    start: u64,
    bytes: &[u8],
    seed: u32,
    last_segment: bool,
    next: &mut ExpectedGroup,
    replay: &mut impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mut at = 0usize;
    while at < bytes.len() {
        let Some((header, records)) = whole_group(seed, &bytes[at..]) else {
            // Room that was not cut durably when the segment was left says nothing: what is missing, the next segment shows.
            let room = bytes[at..].iter().all(|&byte| byte == 0);
            if room || (last_segment && !later_group(seed, &bytes[at..], next.group)) {
                return Ok(at as u64);
            }
            return Err(StoreError::Corrupt(format!(
                "{} is damaged at byte {at}, and acknowledged records follow; restore from a backup",
                path.display()
            )));
        };
        let Some(after) = next.after(&header, start) else {
            return Err(StoreError::Corrupt(format!(
                "{} holds records at byte {at} that do not follow those before them; restore from a backup",
                path.display()
            )));
        };
        for (record, lsn) in records.into_iter().zip(header.first_lsn..) {
            replay(lsn, record)?;
        }
        *next = after;
        at += HEADER_BYTES + header.bytes;
    }
    Ok(at as u64)
}

fn whole_group(seed: u32, bytes: &[u8]) -> Option<(GroupHeader, Vec<&[u8]>)> {
    let header = read_header(seed, bytes)?;
    let mut body = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(header.bytes)?)?;
    let mut records = Vec::with_capacity(header.records.min(65_536) as usize);
    while !body.is_empty() {
        let length = u32::from_le_bytes(body.get(..4)?.try_into().ok()?);
        let crc = u32::from_le_bytes(body.get(4..8)?.try_into().ok()?);
        if length as usize > RECORD_MAX_BYTES {
            return None;
        }
        let payload = body.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length as usize)?;
        if crc != record_crc(length, payload) {
            return None;
        }
        records.push(payload);
        body = &body[RECORD_HEADER_BYTES + length as usize..];
    }
    (records.len() == header.records as usize).then_some((header, records))
}

/// Whether a group begins in a damaged place or behind it that was begun after the one that should be there.
fn later_group(seed: u32, bytes: &[u8], expected: Option<u64>) -> bool {
    let magic = MAGIC.to_le_bytes();
    (0..bytes.len().saturating_sub(HEADER_BYTES - 1))
        .filter(|&at| bytes[at..at + 4] == magic)
        .filter_map(|at| Some((at, read_header(seed, &bytes[at..])?)))
        .any(|(at, header)| expected.map_or(at > 0, |expected| header.group > expected))
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
        // The segment before goes on. Left behind, this one would make it look like an old one, whose tail is never cut.
        let _ = fs::remove_file(&path);
        return Err(e);
    }
    Ok((file, path))
}

fn cannot(what: &str, path: &Path, e: &io::Error) -> StoreError {
    StoreError::Unusable(format!("cannot {what} {}: {e}", path.display()))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u32 = 0x5eed;

    fn open(dir: &Path) -> Result<(Wal, Vec<Vec<u8>>)> {
        let mut seen = Vec::new();
        let wal = Wal::open(dir, 1 << 20, SEED, 1, |lsn, bytes| {
            assert_eq!(lsn, seen.len() as u64 + 1);
            seen.push(bytes.to_vec());
            Ok(())
        })?;
        Ok((wal, seen))
    }

    fn append(wal: &mut Wal, records: &[&[u8]]) {
        let mut group = Group::default();
        for record in records {
            group.push(|out| out.extend_from_slice(record));
        }
        wal.append(&mut group).unwrap();
    }

    #[test]
    fn a_log_cut_at_any_byte_opens_to_whole_groups() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"one", b"two"]);
        let first = wal.end;
        append(&mut wal, &[b"three", b"four", b"five"]);
        let bytes = fs::read(&wal.path).unwrap();
        let (path, end) = (wal.path.clone(), wal.end as usize);
        drop(wal);
        for cut in 0..=end + 100 {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (wal, seen) = open(dir.path()).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= end as u64, "no room is left at {cut}");
            let expected = if cut >= end {
                5
            } else if cut as u64 >= first {
                2
            } else {
                0
            };
            assert_eq!(seen.len(), expected, "cut at {cut}");
            assert_eq!(wal.next_lsn(), expected as u64 + 1);
        }
    }

    #[test]
    fn a_log_cut_at_any_byte_behind_a_segment_boundary_opens_to_whole_groups_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"one", b"two"]);
        append(&mut wal, &[b"three"]);
        wal.rotate().unwrap();
        append(&mut wal, &[b"four", b"five"]);
        let first = wal.end;
        append(&mut wal, &[b"six"]);
        let (path, end) = (wal.path.clone(), wal.end as usize);
        let bytes = fs::read(&path).unwrap();
        drop(wal);
        for cut in 0..=end + 100 {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (mut wal, seen) = open(dir.path()).unwrap();
            let expected = match cut {
                whole if whole >= end => 6,
                behind if behind as u64 >= first => 5,
                _ => 3,
            };
            assert_eq!(seen.len(), expected, "cut at {cut}");
            // What is written next is found behind it.
            append(&mut wal, &[b"next"]);
            drop(wal);
            assert_eq!(open(dir.path()).unwrap().1.len(), expected + 1, "cut at {cut}, written on");
        }
        // The segment was not even begun.
        fs::remove_file(&path).unwrap();
        assert_eq!(open(dir.path()).unwrap().1.len(), 3);
    }

    #[test]
    fn a_segment_that_ends_too_early_before_another_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"one"]);
        let path = wal.path.clone();
        let first = wal.end as usize;
        append(&mut wal, &[b"two"]);
        wal.rotate().unwrap();
        let bytes = fs::read(&path).unwrap();
        append(&mut wal, &[b"three"]);
        drop(wal);
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let refused = open(dir.path()).err();
            assert!(matches!(refused, Some(StoreError::Corrupt(_))), "cut at {cut} of {first}");
        }
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(dir.path()).unwrap().1.len(), 3);
    }

    #[test]
    fn dropped_segments_that_come_back_after_a_power_loss_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        let first = wal.path.clone();
        for n in 1..=5u8 {
            append(&mut wal, &[&[n]]);
            wal.rotate().unwrap();
        }
        let back = fs::read(&first).unwrap();
        remove_before(dir.path(), 4).unwrap();
        drop(wal);
        // Removals are made durable in any order: the first segment is back, those behind it are not.
        fs::write(&first, back).unwrap();
        let open_at = |mark: u64| {
            let mut seen = Vec::new();
            Wal::open(dir.path(), 1 << 20, SEED, mark, |lsn, _| {
                seen.push(lsn);
                Ok(())
            })
            .map(|wal| (seen, wal.next_lsn()))
        };
        assert_eq!(open_at(4).unwrap(), (vec![1, 4, 5], 6));
        // If the engine does not have those between, they are missed.
        assert!(matches!(open_at(3), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn a_body_that_looks_like_a_group_does_not_stop_the_log_from_opening() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"first"]);
        // What a user could write who knows the format but not the seed.
        let mut forged = Group::default();
        forged.push(|out| out.extend_from_slice(b"x"));
        forged.seal(0, 1 << 40, 1 << 40);
        append(&mut wal, &[&forged.bytes, b"the rest"]);
        let bytes = fs::read(&wal.path).unwrap();
        let (path, end) = (wal.path.clone(), wal.end as usize);
        drop(wal);
        fs::write(&path, &bytes[..end - 3]).unwrap();
        assert_eq!(open(dir.path()).unwrap().1, [b"first"]);
    }

    #[test]
    fn damage_before_an_acknowledged_group_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"first"]);
        append(&mut wal, &[b"second"]);
        let mut bytes = fs::read(&wal.path).unwrap();
        bytes[HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
        fs::write(&wal.path, &bytes).unwrap();
        let error = open(dir.path()).err().expect("must not open");
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        assert_eq!(fs::read(&wal.path).unwrap(), bytes, "nothing was touched");
    }

    #[test]
    fn damage_in_the_last_group_is_a_torn_tail() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"first"]);
        let end = wal.end as usize;
        append(&mut wal, &[b"second"]);
        let mut bytes = fs::read(&wal.path).unwrap();
        bytes[end + HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
        fs::write(&wal.path, &bytes).unwrap();
        let (mut wal, seen) = open(dir.path()).unwrap();
        assert_eq!(seen, [b"first"]);
        append(&mut wal, &[b"third"]);
        drop(wal);
        assert_eq!(open(dir.path()).unwrap().1, [&b"first"[..], b"third"]);
    }

    #[test]
    fn groups_fill_the_room_and_a_segment_that_is_left_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        let length = |wal: &Wal| fs::metadata(&wal.path).unwrap().len();
        append(&mut wal, &[b"first"]);
        let first = length(&wal);
        assert_eq!(first, wal.end + ROOM_BYTES);
        append(&mut wal, &[b"second"]);
        assert_eq!(length(&wal), first, "the file is as long as before");
        append(&mut wal, &[&[7; ROOM_BYTES as usize]]);
        assert!(length(&wal) > first && length(&wal) > wal.end);
        assert_eq!(length(&wal), wal.length);
        let (left, end) = (wal.path.clone(), wal.end);
        wal.rotate().unwrap();
        assert_eq!(fs::metadata(left).unwrap().len(), end);
        append(&mut wal, &[b"last"]);
        drop(wal);
        assert_eq!(open(dir.path()).unwrap().1.len(), 4);
    }

    #[test]
    fn room_that_is_left_in_an_old_segment_does_no_harm_and_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"first"]);
        append(&mut wal, &[b"second"]);
        let (old, bytes) = (wal.path.clone(), fs::read(&wal.path).unwrap());
        let (first, end) = (wal.end as usize / 2, wal.end as usize);
        wal.rotate().unwrap();
        append(&mut wal, &[b"third"]);
        drop(wal);
        assert!(bytes.len() > end, "with its room");
        fs::write(&old, &bytes).unwrap();
        assert_eq!(open(dir.path()).unwrap().1.len(), 3);
        // A group in its place is missed.
        let mut lost = bytes.clone();
        lost[first..end].fill(0);
        fs::write(&old, &lost).unwrap();
        assert!(matches!(open(dir.path()), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn a_group_behind_zeros_was_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        append(&mut wal, &[b"first"]);
        let from = wal.end as usize;
        append(&mut wal, &[b"second"]);
        let to = wal.end as usize;
        append(&mut wal, &[b"third"]);
        let mut bytes = fs::read(&wal.path).unwrap();
        bytes[from..to].fill(0);
        fs::write(&wal.path, &bytes).unwrap();
        drop(wal);
        assert!(matches!(open(dir.path()), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn old_segments_go_when_their_records_do() {
        let dir = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(dir.path()).unwrap();
        for n in 0..4u8 {
            append(&mut wal, &[&[n]]);
            wal.rotate().unwrap();
        }
        assert_eq!(list_segments(dir.path()).unwrap().len(), 5);
        let all = wal.total_bytes();
        remove_before(dir.path(), 3).unwrap();
        wal.forget_before(3);
        assert_eq!(wal.total_bytes(), all / 2);
        let left: Vec<u64> = list_segments(dir.path()).unwrap().into_iter().map(|(start, _)| start).collect();
        assert_eq!(left, [3, 4, 5]);
        drop(wal);
        let mut seen = Vec::new();
        let wal = Wal::open(dir.path(), 1 << 20, SEED, 1, |lsn, _| {
            seen.push(lsn);
            Ok(())
        })
        .unwrap();
        assert_eq!((seen, wal.next_lsn()), (vec![3, 4], 5));
    }
}
