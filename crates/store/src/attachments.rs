//! `attachments`: PK s3_ref; an announced file, whether its bytes have arrived, and the
//! conversations whose messages refer to it. The bytes themselves are in the object store.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRow {
    pub s3_ref: S3Ref,
    /// The user who announced it; nobody else may send it.
    pub owner: UserId,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    /// In hex.
    pub sha256: String,
    /// The object store's id of a multipart upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_id: Option<String>,
    pub state: UploadState,
    /// A message refers to it, or did.
    pub claimed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UploadState {
    /// Announced; the bytes may or may not have arrived.
    Expected,
    /// The bytes have arrived, match the announcement, and never change.
    Uploaded,
    /// No message referred to it in time: its bytes are being deleted, and no message may refer to
    /// it any more.
    Collecting,
}

/// A file is charged for at least this many bytes, because even one byte takes a disk block and a
/// row.
const CHARGE_MIN_BYTES: u64 = 4096;
const DAY_MS: u64 = 86_400_000;

impl AttachmentRow {
    /// The bytes that its owner is charged for.
    pub fn charged_bytes(&self) -> u64 {
        match self.bytes {
            0 => 0,
            bytes => bytes.max(CHARGE_MIN_BYTES),
        }
    }
}

/// How much one user may announce. 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UploadQuota {
    /// In a calendar day, UTC.
    pub bytes_per_day: u64,
    /// In all, as long as the rows exist.
    pub bytes_total: u64,
}

/// What a user is charged for. It changes in the same write as the charged row, so it never drifts
/// from the rows. A store from before usage was counted derives it from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadUsage {
    /// Of every upload that has a row.
    pub total_bytes: u64,
    /// The last day on which something was announced, in days since 1970.
    pub day: u64,
    /// The bytes announced on that day. They are not given back.
    pub day_bytes: u64,
}

/// The answer to an announcement.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    Done,
    /// Nothing was charged: the owner has used up a quota.
    OverQuota(OverQuota),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverQuota {
    Day,
    Total,
}

impl UploadUsage {
    /// The usage of a user who has announced these rows, oldest first.
    pub fn of(rows: &[AttachmentRow]) -> UploadUsage {
        rows.iter().fold(UploadUsage::default(), UploadUsage::add)
    }

    /// Charges a row, if the quota allows it.
    pub fn charge(self, row: &AttachmentRow, quota: &UploadQuota) -> Result<UploadUsage, OverQuota> {
        let charged = self.add(row);
        let exceeds = |limit: u64, bytes: u64| limit > 0 && bytes > limit;
        if exceeds(quota.bytes_total, charged.total_bytes) {
            return Err(OverQuota::Total);
        }
        match exceeds(quota.bytes_per_day, charged.day_bytes) {
            true => Err(OverQuota::Day),
            false => Ok(charged),
        }
    }

    fn add(self, row: &AttachmentRow) -> UploadUsage {
        let (bytes, day) = (row.charged_bytes(), row.s3_ref.minted_at() / DAY_MS);
        UploadUsage {
            total_bytes: self.total_bytes.saturating_add(bytes),
            // Servers' clocks differ: the day never goes back.
            day: day.max(self.day),
            day_bytes: if day > self.day { bytes } else { self.day_bytes.saturating_add(bytes) },
        }
    }

    /// Gives back what a row was charged for. `None` if nothing is left: rows live for at least a
    /// day, so a user without any has announced nothing today.
    pub fn give_back(self, row: &AttachmentRow) -> Option<UploadUsage> {
        let total_bytes = self.total_bytes.saturating_sub(row.charged_bytes());
        (total_bytes > 0).then_some(UploadUsage { total_bytes, ..self })
    }

    /// The bytes announced on a day.
    pub fn bytes_on(&self, now_ms: u64) -> u64 {
        if now_ms / DAY_MS > self.day { 0 } else { self.day_bytes }
    }
}

/// How long the day lasts after a moment in it.
pub fn left_of_day_ms(now_ms: u64) -> u64 {
    DAY_MS - now_ms % DAY_MS
}

#[async_trait]
pub trait Attachments: Send + Sync {
    /// Inserts a new row and charges its owner, atomically.
    async fn announce(&self, row: AttachmentRow, quota: &UploadQuota) -> Result<Announced>;

    /// What a user is charged for now.
    async fn upload_usage(&self, user: &UserId) -> Result<UploadUsage>;

    async fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>>;

    /// Marks the bytes as arrived. Returns false if they had arrived before, or are being
    /// collected.
    async fn uploaded(&self, s3_ref: &S3Ref) -> Result<bool>;

    /// Claims it for a message of this conversation. Returns whether that is allowed: the bytes
    /// have arrived and are not being collected. A claim is never withdrawn.
    async fn claim(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool>;

    /// Whether a message of this conversation refers to it.
    async fn is_claimed_by(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool>;

    /// Everything that this user has announced, in any state.
    async fn owned_by(&self, user: &UserId) -> Result<Vec<S3Ref>>;

    /// Files announced before a time that no message refers to, oldest first.
    async fn unclaimed(&self, before_ms: u64, limit: usize) -> Result<Vec<AttachmentRow>>;

    /// Starts to collect it. Returns false if a message refers to it, or if there is no such file.
    async fn collect(&self, s3_ref: &S3Ref) -> Result<bool>;

    /// Deletes its row and claims, after its bytes were deleted, and gives back what its owner was
    /// charged.
    async fn forget(&self, s3_ref: &S3Ref) -> Result<()>;
}
