//! Uploads in progress through this server: how many there may be, and how much of the disk they may take.
//!
//! Room is reserved for what arrives, a grant at a time, not for what was announced: an upload that is slow holds a grant
//! and nothing else. A grant is given only while the free space, less all that is granted and not yet written, stays above
//! the floor of uploads. So uploads never bring the disk below that floor, and sends, whose floor is lower, go on.

use std::collections::BTreeMap;

use bluetick_protocol::{S3Ref, UserId};
use bluetick_store::{AttachmentRow, Objects};
use parking_lot::Mutex;

/// How much room an upload reserves at a time.
const GRANT_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct IntakeLimits {
    /// Uploads of one user at a time, and of all users.
    pub per_user: usize,
    pub at_once: usize,
    /// Uploads leave this much of the disk free.
    pub free_space_floor_bytes: u64,
}

/// Why an upload cannot begin, or go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// The same upload is in progress on another connection.
    InProgress,
    /// The user has as many in progress as one may have.
    TooManyOfUser(usize),
    /// The server has as many in progress as it takes.
    TooMany,
    NoRoom,
}

pub struct Intake {
    limits: IntakeLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Every upload in progress, with the user whose it is.
    open: BTreeMap<S3Ref, UserId>,
    /// Bytes that were granted and are not written yet.
    granted: u64,
}

impl Intake {
    pub fn new(limits: IntakeLimits) -> Intake {
        Intake { limits, state: Mutex::default() }
    }

    /// Begins an upload. One for which there is no room now does not begin, though it would only reserve what arrives.
    pub fn begin<'a>(&'a self, row: &AttachmentRow, disk: &'a Objects) -> Result<Incoming<'a>, NotNow> {
        let mut state = self.state.lock();
        if state.open.contains_key(&row.s3_ref) {
            return Err(NotNow::InProgress);
        }
        if state.open.values().filter(|owner| **owner == row.owner).count() >= self.limits.per_user {
            return Err(NotNow::TooManyOfUser(self.limits.per_user));
        }
        if state.open.len() >= self.limits.at_once {
            return Err(NotNow::TooMany);
        }
        if !self.has_room(disk, state.granted, row.bytes) {
            return Err(NotNow::NoRoom);
        }
        state.open.insert(row.s3_ref.clone(), row.owner.clone());
        Ok(Incoming { intake: self, disk, s3_ref: row.s3_ref.clone(), expected: row.bytes, granted: 0 })
    }

    fn has_room(&self, disk: &Objects, granted: u64, bytes: u64) -> bool {
        let needed = self.limits.free_space_floor_bytes.saturating_add(granted).saturating_add(bytes);
        disk.free_bytes().is_none_or(|free| free >= needed)
    }
}

/// The one upload of these bytes that is in progress, until this is dropped.
pub struct Incoming<'a> {
    intake: &'a Intake,
    disk: &'a Objects,
    s3_ref: S3Ref,
    /// Bytes that are still to be written.
    expected: u64,
    /// Bytes of those for which room is reserved.
    granted: u64,
}

impl Incoming<'_> {
    /// Reserves room for bytes that have arrived and are about to be written.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), NotNow> {
        if bytes <= self.granted {
            return Ok(());
        }
        let grant = (bytes - self.granted).max(GRANT_BYTES.min(self.expected.saturating_sub(self.granted)));
        let mut state = self.intake.state.lock();
        if !self.intake.has_room(self.disk, state.granted, grant) {
            return Err(NotNow::NoRoom);
        }
        state.granted += grant;
        self.granted += grant;
        Ok(())
    }

    /// Bytes were written: the disk itself accounts for them now.
    pub fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.granted);
        self.granted -= bytes;
        self.expected = self.expected.saturating_sub(bytes);
        self.intake.state.lock().granted -= bytes;
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let mut state = self.intake.state.lock();
        state.granted -= self.granted;
        state.open.remove(&self.s3_ref);
    }
}

#[cfg(test)]
mod tests {
    use bluetick_store::UploadState;

    use super::*;

    fn row(n: u8, owner: &str, bytes: u64) -> AttachmentRow {
        AttachmentRow {
            s3_ref: S3Ref::mint(1, [n; 10]),
            owner: UserId::new(owner).unwrap(),
            name: "a".into(),
            mime: "image/png".into(),
            bytes,
            sha256: String::new(),
            upload_id: None,
            state: UploadState::Expected,
            claimed: false,
        }
    }

    /// Whose floor leaves about so much room.
    fn intake(disk: &Objects, room: u64) -> Intake {
        let free_space_floor_bytes = disk.free_bytes().unwrap() - room;
        Intake::new(IntakeLimits { per_user: 2, at_once: 3, free_space_floor_bytes })
    }

    #[test]
    fn uploads_are_counted_by_user_and_in_all() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Objects::directory(dir.path()).unwrap();
        let intake = Intake::new(IntakeLimits { per_user: 2, at_once: 3, free_space_floor_bytes: 0 });
        let first = intake.begin(&row(1, "alice", 1), &disk).unwrap();
        assert_eq!(intake.begin(&row(1, "alice", 1), &disk).err(), Some(NotNow::InProgress));
        let _second = intake.begin(&row(2, "alice", 1), &disk).unwrap();
        assert_eq!(intake.begin(&row(3, "alice", 1), &disk).err(), Some(NotNow::TooManyOfUser(2)));
        let _third = intake.begin(&row(3, "bob", 1), &disk).unwrap();
        assert_eq!(intake.begin(&row(4, "bob", 1), &disk).err(), Some(NotNow::TooMany));
        drop(first);
        assert!(intake.begin(&row(4, "bob", 1), &disk).is_ok());
    }

    #[test]
    fn room_is_reserved_for_what_arrives_and_not_for_what_was_announced() {
        const MIB: u64 = 1024 * 1024;
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let disk = Objects::directory(dir.path()).unwrap();
        let intake = intake(&disk, 100 * MIB);
        assert_eq!(intake.begin(&row(1, "alice", 200 * MIB), &disk).err(), Some(NotNow::NoRoom));
        // Together they announce more than there is.
        let mut slow = intake.begin(&row(2, "alice", 60 * MIB), &disk).unwrap();
        let mut fast = intake.begin(&row(3, "bob", 60 * MIB), &disk).unwrap();
        slow.reserve(1).unwrap();
        assert_eq!(intake.state.lock().granted, MIB);
        fast.reserve(50 * MIB).unwrap();
        assert_eq!(slow.reserve(60 * MIB), Err(NotNow::NoRoom), "what is granted and not written counts");
        fast.wrote(50 * MIB);
        assert_eq!(intake.state.lock().granted, MIB);
        drop((slow, fast));
        let state = intake.state.lock();
        assert_eq!((state.granted, state.open.len()), (0, 0));
    }
}
