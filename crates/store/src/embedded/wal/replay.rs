//! Reads segments back at a start, and tells a torn tail from damage.

use std::path::Path;

use super::group::{GroupHeader, HEADER_BYTES, has_later_group, whole_group};
use crate::{Result, StoreError};

pub(super) struct ExpectedGroup {
    /// The number of the next group. `None` before the first, which may have any number.
    pub group: Option<u64>,
    pub lsn: u64,
}

impl ExpectedGroup {
    /// What follows a group in a segment that begins at `start`, or `None` if the group is not the
    /// expected one.
    fn after(&self, header: &GroupHeader, start: u64) -> Option<ExpectedGroup> {
        let in_order = match self.group {
            Some(group) => header.group == group && header.first_lsn == self.lsn,
            None => header.first_lsn == start,
        };
        let group = Some(header.group.checked_add(1)?);
        let lsn = header.first_lsn.checked_add(u64::from(header.records))?;
        in_order.then_some(ExpectedGroup { group, lsn })
    }

    /// Goes on at a segment that begins at `start`. Records before it may be missing if the engine
    /// has them, that is, if they are before `first_lsn`: removals of segments become durable in
    /// any order.
    pub(super) fn skip_removed_segments(&mut self, start: u64, first_lsn: u64, path: &Path) -> Result<()> {
        if start <= self.lsn {
            return Ok(());
        }
        if start > first_lsn {
            return Err(StoreError::Corrupt(format!(
                "the log lacks records before {}; restore from a backup",
                path.display()
            )));
        }
        *self = ExpectedGroup { group: None, lsn: start };
        Ok(())
    }
}

/// Reads the groups of one segment. Returns where the last whole one ends.
pub(super) fn scan(
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
            // Zeros at the end of an older segment are room whose cut was not durable. A group
            // missing there shows in the next segment's first record.
            let room = bytes[at..].iter().all(|&byte| byte == 0);
            if room || (last_segment && !has_later_group(seed, &bytes[at..], next.group)) {
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
