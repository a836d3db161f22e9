//! Admission control for uploads through this server: how many may be in progress, and how much
//! disk space they may take.
//!
//! Space is reserved for bytes that arrive, one grant at a time, and not for the announced size: a
//! slow upload holds one grant. A grant needs free space that, less all grants not yet written,
//! stays above the floor for uploads. So uploads alone never bring the disk below that floor, and
//! sends, whose floor is lower, continue.

use std::collections::BTreeMap;

use bluetick_protocol::{S3Ref, UserId};
use bluetick_store::{AttachmentRow, Objects};
use parking_lot::Mutex;

/// The space that an upload reserves at a time.
const GRANT_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct UploadAdmissionLimits {
    /// Uploads in progress of one user.
    pub per_user: usize,
    /// Uploads in progress of all users.
    pub total: usize,
    /// Free disk space that uploads must leave.
    pub free_space_floor_bytes: u64,
}

/// Why an upload cannot start or continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionError {
    /// The same upload is in progress on another connection.
    InProgress,
    /// The user has the maximum number of uploads in progress.
    TooManyOfUser(usize),
    /// The server has the maximum number of uploads in progress.
    TooMany,
    NoRoom,
}

pub struct UploadAdmission {
    limits: UploadAdmissionLimits,
    state: Mutex<ActiveUploads>,
}

#[derive(Default)]
struct ActiveUploads {
    /// Every upload in progress and its user.
    open: BTreeMap<S3Ref, UserId>,
    /// Bytes granted and not yet written.
    granted: u64,
}

impl UploadAdmission {
    pub fn new(limits: UploadAdmissionLimits) -> UploadAdmission {
        UploadAdmission { limits, state: Mutex::default() }
    }

    /// Starts an upload. One whose announced size does not fit now is refused, although it would
    /// reserve only what arrives.
    pub fn begin<'a>(
        &'a self,
        row: &AttachmentRow,
        disk: &'a Objects,
    ) -> Result<IncomingUpload<'a>, AdmissionError> {
        let mut state = self.state.lock();
        if state.open.contains_key(&row.s3_ref) {
            return Err(AdmissionError::InProgress);
        }
        if state.open.values().filter(|owner| **owner == row.owner).count() >= self.limits.per_user {
            return Err(AdmissionError::TooManyOfUser(self.limits.per_user));
        }
        if state.open.len() >= self.limits.total {
            return Err(AdmissionError::TooMany);
        }
        if !self.has_room(disk, state.granted, row.bytes) {
            return Err(AdmissionError::NoRoom);
        }
        state.open.insert(row.s3_ref.clone(), row.owner.clone());
        Ok(IncomingUpload {
            admission: self,
            disk,
            s3_ref: row.s3_ref.clone(),
            expected: row.bytes,
            granted: 0,
        })
    }

    fn has_room(&self, disk: &Objects, granted: u64, bytes: u64) -> bool {
        let needed = self.limits.free_space_floor_bytes.saturating_add(granted).saturating_add(bytes);
        disk.free_bytes().is_none_or(|free| free >= needed)
    }
}

/// An upload in progress. It ends when this is dropped.
pub struct IncomingUpload<'a> {
    admission: &'a UploadAdmission,
    disk: &'a Objects,
    s3_ref: S3Ref,
    /// Bytes still to be written.
    expected: u64,
    /// Bytes reserved and not yet written.
    granted: u64,
}

impl IncomingUpload<'_> {
    /// Reserves space for bytes that have arrived and are about to be written.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), AdmissionError> {
        if bytes <= self.granted {
            return Ok(());
        }
        let grant = (bytes - self.granted).max(GRANT_BYTES.min(self.expected.saturating_sub(self.granted)));
        let mut state = self.admission.state.lock();
        if !self.admission.has_room(self.disk, state.granted, grant) {
            return Err(AdmissionError::NoRoom);
        }
        state.granted += grant;
        self.granted += grant;
        Ok(())
    }

    /// Releases the reservation of bytes that are on disk now.
    pub fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.granted);
        self.granted -= bytes;
        self.expected = self.expected.saturating_sub(bytes);
        self.admission.state.lock().granted -= bytes;
    }
}

impl Drop for IncomingUpload<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
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
    fn admission(disk: &Objects, room: u64) -> UploadAdmission {
        let free_space_floor_bytes = disk.free_bytes().unwrap() - room;
        UploadAdmission::new(UploadAdmissionLimits { per_user: 2, total: 3, free_space_floor_bytes })
    }

    #[test]
    fn uploads_are_counted_by_user_and_in_all() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Objects::directory(dir.path()).unwrap();
        let admission =
            UploadAdmission::new(UploadAdmissionLimits { per_user: 2, total: 3, free_space_floor_bytes: 0 });
        let first = admission.begin(&row(1, "alice", 1), &disk).unwrap();
        assert_eq!(admission.begin(&row(1, "alice", 1), &disk).err(), Some(AdmissionError::InProgress));
        let _second = admission.begin(&row(2, "alice", 1), &disk).unwrap();
        assert_eq!(admission.begin(&row(3, "alice", 1), &disk).err(), Some(AdmissionError::TooManyOfUser(2)));
        let _third = admission.begin(&row(3, "bob", 1), &disk).unwrap();
        assert_eq!(admission.begin(&row(4, "bob", 1), &disk).err(), Some(AdmissionError::TooMany));
        drop(first);
        assert!(admission.begin(&row(4, "bob", 1), &disk).is_ok());
    }

    #[test]
    fn room_is_reserved_for_what_arrives_and_not_for_what_was_announced() {
        const MIB: u64 = 1024 * 1024;
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let disk = Objects::directory(dir.path()).unwrap();
        let admission = admission(&disk, 100 * MIB);
        assert_eq!(admission.begin(&row(1, "alice", 200 * MIB), &disk).err(), Some(AdmissionError::NoRoom));
        // Together they announce more than there is.
        let mut slow = admission.begin(&row(2, "alice", 60 * MIB), &disk).unwrap();
        let mut fast = admission.begin(&row(3, "bob", 60 * MIB), &disk).unwrap();
        slow.reserve(1).unwrap();
        assert_eq!(admission.state.lock().granted, MIB);
        fast.reserve(50 * MIB).unwrap();
        assert_eq!(
            slow.reserve(60 * MIB),
            Err(AdmissionError::NoRoom),
            "what is granted and not written counts"
        );
        fast.wrote(50 * MIB);
        assert_eq!(admission.state.lock().granted, MIB);
        drop((slow, fast));
        let state = admission.state.lock();
        assert_eq!((state.granted, state.open.len()), (0, 0));
    }
}
