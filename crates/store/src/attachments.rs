//! `attachments`: PK s3_ref; what was announced of some bytes, whether they are there, and the conversations whose messages
//! refer to them. The bytes themselves are in the object store.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRow {
    pub s3_ref: S3Ref,
    /// Who announced it, and who alone may send it.
    pub owner: UserId,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    /// In hex.
    pub sha256: String,
    /// What the object store calls an upload in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_id: Option<String>,
    pub state: UploadState,
    /// Whether a message refers to it, or did.
    pub claimed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UploadState {
    /// Announced; nobody knows whether the bytes are there.
    Expected,
    /// The bytes are there and are what was announced. They never change again.
    Uploaded,
    /// No message referred to it in time: its bytes are being removed, and no message may refer to it any more.
    Collecting,
}

/// A file counts as this many bytes at least: a file of one byte takes a block of the disk and a row.
const CHARGE_MIN_BYTES: u64 = 4096;
const DAY_MS: u64 = 86_400_000;

impl AttachmentRow {
    /// What its owner is charged for it.
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

/// What a user is charged for. It changes in the same write as the row that is charged, so it never
/// drifts from the rows; a store that was written before usage was counted derives it from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadUsage {
    /// Of every upload that has a row.
    pub total_bytes: u64,
    /// The last day on which something was announced, in days since 1970.
    pub day: u64,
    /// What was announced on that day. It is not given back.
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
            // Clocks of several servers differ: a day that has begun does not end again.
            day: day.max(self.day),
            day_bytes: if day > self.day { bytes } else { self.day_bytes.saturating_add(bytes) },
        }
    }

    /// Gives back what a row was charged for; nothing if nothing is left. Rows live for a day at least,
    /// so a user without any has announced nothing today.
    pub fn give_back(self, row: &AttachmentRow) -> Option<UploadUsage> {
        let total_bytes = self.total_bytes.saturating_sub(row.charged_bytes());
        (total_bytes > 0).then_some(UploadUsage { total_bytes, ..self })
    }

    /// What is used of the quota of a day.
    pub fn bytes_on(&self, now_ms: u64) -> u64 {
        if now_ms / DAY_MS > self.day { 0 } else { self.day_bytes }
    }
}

/// How long the day of a time lasts after it.
pub fn left_of_day_ms(now_ms: u64) -> u64 {
    DAY_MS - now_ms % DAY_MS
}

#[async_trait]
pub trait Attachments: Send + Sync {
    /// Announces bytes and charges their owner, both or neither. The row is a new one.
    async fn announce(&self, row: AttachmentRow, quota: &UploadQuota) -> Result<Announced>;

    /// What a user is charged for now.
    async fn upload_usage(&self, user: &UserId) -> Result<UploadUsage>;

    async fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>>;

    /// The bytes are there. Returns whether they were expected: false if they were there before, or are being collected.
    async fn uploaded(&self, s3_ref: &S3Ref) -> Result<bool>;

    /// A message of this conversation is going to refer to it. Returns whether it may: its bytes are there, and are not
    /// being collected. A claim is never taken back.
    async fn claim(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool>;

    /// Whether a message of this conversation refers to it.
    async fn is_claimed_by(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool>;

    /// What this user has announced, whatever became of it.
    async fn owned_by(&self, user: &UserId) -> Result<Vec<S3Ref>>;

    /// What was announced before a time and no message refers to, oldest first.
    async fn unclaimed(&self, before_ms: u64, limit: usize) -> Result<Vec<AttachmentRow>>;

    /// Begins to collect it. Returns false if a message refers to it, or if there is none.
    async fn collect(&self, s3_ref: &S3Ref) -> Result<bool>;

    /// Forgets it and every claim on it, once its bytes are gone, and gives back what its owner was charged.
    async fn forget(&self, s3_ref: &S3Ref) -> Result<()>;
}
