//! The attachments of a user's messages: links for an export, and their removal.

use std::time::Duration;

use bluetick_protocol::{Attachment, ErrorCode, S3Ref, UserId, WireError};
use bluetick_store::{AttachmentRow, Message, UploadQuota, UploadState, UploadUsage};
use serde::{Deserialize, Serialize};

use super::{Admin, ExportedAttachment};
use crate::{
    AppResult,
    attachments::{download_of, no_uploads},
    wire,
};

/// A large export takes a while to download.
const EXPORT_LASTS: Duration = Duration::from_secs(3600);

/// What a message references: the attachment and its thumbnail.
fn refs_of(message: &Message) -> impl Iterator<Item = S3Ref> {
    let said = message.attachment.as_ref();
    let attachment = said.and_then(|json| serde_json::from_str::<Attachment>(json.as_str()).ok());
    attachment.into_iter().flat_map(|a| [Some(a.s3_ref), a.thumbnail]).flatten()
}

/// How much of the quota a user has used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadUsageRow {
    pub user_id: UserId,
    #[serde(flatten)]
    pub usage: UploadUsage,
}

impl Admin {
    pub async fn upload_usage(&self, user: &UserId) -> AppResult<Vec<UploadUsageRow>> {
        let usage = self.store.attachments.upload_usage(user).await.map_err(wire)?;
        Ok(vec![UploadUsageRow { user_id: user.clone(), usage }])
    }

    pub(super) async fn exported(&self, message: &Message) -> AppResult<Vec<ExportedAttachment>> {
        let mut exported = Vec::new();
        let Some(uploads) = &self.uploads else { return Ok(exported) };
        for s3_ref in refs_of(message) {
            let Some(row) = self.store.attachments.attachment(&s3_ref).await.map_err(wire)? else { continue };
            let link = uploads.link(&row, Some(EXPORT_LASTS)).await.map_err(wire)?;
            let conversation_id = message.conversation_id.clone();
            let download = download_of(row, link);
            exported.push(ExportedAttachment { conversation_id, seq: message.seq, s3_ref, download });
        }
        Ok(exported)
    }

    /// Removes the bytes and rows of all uploads of a user, referenced or not. Returns how many
    /// there were.
    pub(super) async fn erase_attachments(&self, user: &UserId) -> AppResult<u64> {
        let rows = &self.store.attachments;
        let mut erased = 0;
        for s3_ref in rows.owned_by(user).await.map_err(wire)? {
            let Some(row) = rows.attachment(&s3_ref).await.map_err(wire)? else { continue };
            let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
            uploads.remove(&row).await.map_err(wire)?;
            rows.forget(&s3_ref).await.map_err(wire)?;
            if uploads.may_still_come(&row) {
                let unlimited = UploadQuota::default();
                let _always_done = rows.announce(stone(s3_ref)?, &unlimited).await.map_err(wire)?;
            }
            erased += 1;
        }
        Ok(erased)
    }
}

/// The row that stays while a client could still upload, so that the garbage collector checks again
/// after that.
fn stone(s3_ref: S3Ref) -> AppResult<AttachmentRow> {
    Ok(AttachmentRow {
        s3_ref,
        owner: UserId::new("erased")
            .map_err(|e| WireError::new(ErrorCode::Internal, format!("nobody to own what is erased: {e}")))?,
        name: "erased".into(),
        mime: "application/octet-stream".into(),
        bytes: 0,
        sha256: String::new(),
        upload_id: None,
        state: UploadState::Collecting,
        claimed: false,
    })
}
