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

#[async_trait]
pub trait Attachments: Send + Sync {
    /// Announces bytes. The row is a new one.
    async fn announce(&self, row: AttachmentRow) -> Result<()>;

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

    /// Forgets it and every claim on it, once its bytes are gone.
    async fn forget(&self, s3_ref: &S3Ref) -> Result<()>;
}
