//! What was announced of attachments, and who refers to them.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref};

use super::Embedded;
use crate::{AttachmentRow, Attachments, Result, StoreError};

fn not_yet<T>() -> Result<T> {
    Err(StoreError::Unsupported("attachments".into()))
}

#[async_trait]
impl Attachments for Embedded {
    async fn announce(&self, _row: AttachmentRow) -> Result<()> {
        not_yet()
    }

    async fn attachment(&self, _s3_ref: &S3Ref) -> Result<Option<AttachmentRow>> {
        not_yet()
    }

    async fn uploaded(&self, _s3_ref: &S3Ref) -> Result<bool> {
        not_yet()
    }

    async fn claim(&self, _s3_ref: &S3Ref, _conversation: &ConversationId) -> Result<bool> {
        not_yet()
    }

    async fn is_claimed_by(&self, _s3_ref: &S3Ref, _conversation: &ConversationId) -> Result<bool> {
        not_yet()
    }

    async fn unclaimed(&self, _before_ms: u64, _limit: usize) -> Result<Vec<AttachmentRow>> {
        not_yet()
    }

    async fn collect(&self, _s3_ref: &S3Ref) -> Result<bool> {
        not_yet()
    }

    async fn forget(&self, _s3_ref: &S3Ref) -> Result<()> {
        not_yet()
    }
}
