//! Attachments: announced, uploaded, referenced by messages, and downloaded by the members of a
//! conversation. The bytes never pass through this crate.

mod collect;
mod terms;

use std::time::Duration;

use async_trait::async_trait;
use bluetick_protocol::{
    Attachment, ConversationId, Download, ErrorCode, Json, S3Ref, SignedRequest, Upload, UploadParts,
    UploadRequest, UploadedParts, UserId, WireError, limits,
};
use bluetick_store::{Announced, AttachmentRow, Attachments, Result, StoreError, UploadState};

pub use collect::Collector;
pub use terms::UploadLimits;

use crate::{AppResult, AttachmentApi, ChatService, wire};

/// A send waits no longer than this to learn whether the bytes are stored, because later requests
/// of the session wait for it.
const LOOK_DEADLINE: Duration = Duration::from_secs(3);

/// Where the bytes are stored, and how clients reach them.
#[async_trait]
pub trait Uploads: Send + Sync {
    fn limits(&self) -> &UploadLimits;

    /// Unpredictable bytes.
    fn chance(&self) -> [u8; 10];

    /// Whether a file may be uploaded in parts, and whether it may be uploaded whole.
    fn takes_parts(&self) -> bool;

    /// The requests by which a client uploads the bytes.
    async fn begin(&self, row: &AttachmentRow, parts: Option<&UploadParts>) -> Result<BegunUpload>;

    /// Completes an upload in parts. Returns false if the parts are not those that were uploaded;
    /// fails if that cannot be known.
    async fn complete(&self, row: &AttachmentRow, parts: &UploadedParts) -> Result<bool>;

    /// Whether the bytes are stored, as many as were announced.
    async fn is_there(&self, row: &AttachmentRow) -> Result<bool>;

    /// A download link that is valid for the given time, or for the default time.
    async fn link(&self, row: &AttachmentRow, lasts: Option<Duration>) -> Result<DownloadLink>;

    /// Whether a client could still upload after the upload expired.
    fn may_still_come(&self, row: &AttachmentRow) -> bool;

    /// Removes the bytes, including incomplete parts.
    async fn remove(&self, row: &AttachmentRow) -> Result<()>;

    /// Removes the remains of aborted uploads.
    async fn sweep(&self) -> Result<()>;
}

/// How the bytes are uploaded.
#[derive(Debug, Clone)]
pub struct BegunUpload {
    /// The object store's id of an upload in parts.
    pub upload_id: Option<String>,
    pub upload: Option<SignedRequest>,
    pub parts: Vec<SignedRequest>,
    pub expires_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadLink {
    pub url: String,
    pub expires_at: u64,
}

pub(crate) fn no_uploads() -> WireError {
    WireError::new(ErrorCode::Unsupported, "attachments are not switched on at this server")
}

fn unknown_upload() -> WireError {
    WireError::new(ErrorCode::NotFound, "no such upload of yours")
}

fn not_uploaded() -> WireError {
    WireError::new(
        ErrorCode::NotUploaded,
        "the bytes of this attachment are not there yet: upload them first",
    )
}

/// The metadata of an attachment and its download link.
pub(crate) fn download_of(row: AttachmentRow, link: DownloadLink) -> Download {
    let AttachmentRow { name, mime, bytes, sha256, .. } = row;
    Download { url: link.url, expires_at: link.expires_at, name, mime, bytes, sha256 }
}

/// An upload of this user that a message may still reference.
async fn own(rows: &dyn Attachments, user: &UserId, s3_ref: &S3Ref) -> AppResult<AttachmentRow> {
    let row = rows.attachment(s3_ref).await.map_err(wire)?;
    row.filter(|row| row.owner == *user && row.state != UploadState::Collecting).ok_or_else(unknown_upload)
}

#[async_trait]
impl AttachmentApi for ChatService {
    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
        uploads.limits().check(&request, uploads.takes_parts())?;
        self.take_from_budget(&user, 0).await?;
        let s3_ref = S3Ref::mint(self.clock.now_ms(), uploads.chance());
        let UploadRequest { name, mime, bytes, sha256, parts } = request;
        let mut row = AttachmentRow {
            s3_ref: s3_ref.clone(),
            owner: user,
            name,
            mime,
            bytes,
            sha256: sha256.to_ascii_lowercase(),
            upload_id: None,
            state: UploadState::Expected,
            claimed: false,
        };
        let quota = &uploads.limits().quota;
        let refuse = |over| {
            metrics::counter!("bluetick_uploads_over_quota_total").increment(1);
            uploads.limits().refuse(over, self.clock.now_ms())
        };
        if parts.is_some() {
            // An upload in parts starts at the object store, so the quota is checked first.
            let usage = self.store.attachments.upload_usage(&row.owner).await.map_err(wire)?;
            usage.charge(&row, quota).map_err(refuse)?;
        }
        let begun = uploads.begin(&row, parts.as_ref()).await.map_err(wire)?;
        row.upload_id = begun.upload_id;
        let refused = match self.store.attachments.announce(row.clone(), quota).await {
            Ok(Announced::Done) => None,
            Ok(Announced::OverQuota(over)) => Some(refuse(over)),
            Err(error) => Some(wire(error)),
        };
        if let Some(refused) = refused {
            // Otherwise its parts would never be collected.
            if row.upload_id.is_some()
                && let Err(error) = uploads.remove(&row).await
            {
                tracing::warn!(%s3_ref, %error, "an upload that could not be announced is not let go of");
            }
            return Err(refused);
        }
        metrics::counter!("bluetick_uploads_total").increment(1);
        let BegunUpload { upload, parts, expires_at, .. } = begun;
        Ok(Upload { s3_ref, upload, parts, expires_at })
    }

    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
        let row = own(&*self.store.attachments, &user, &s3_ref).await?;
        if row.upload_id.is_none() {
            return Err(ChatService::bad_request("this upload has no parts: there is nothing to complete"));
        }
        terms::check_parts(&parts)?;
        if row.state == UploadState::Expected {
            // A retry after success finds the parts gone and the object complete.
            let completed = uploads.complete(&row, &parts).await;
            if !uploads.is_there(&row).await.map_err(wire)? {
                let why = match completed.map_err(wire)? {
                    true => "the parts together are not as long as was announced",
                    false => {
                        "these are not the parts that were uploaded: an ETag or a checksum differs, or one is missing"
                    }
                };
                return Err(WireError::new(ErrorCode::UploadMismatch, why));
            }
            self.store.attachments.uploaded(&s3_ref).await.map_err(wire)?;
        }
        Ok(())
    }

    /// A non-member, and an attachment that no message of the conversation references, get the same
    /// answer.
    async fn download(
        &self,
        user: UserId,
        conversation: ConversationId,
        s3_ref: S3Ref,
    ) -> AppResult<Download> {
        let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
        conversation.side_of(&user).ok_or_else(WireError::not_found)?;
        let rows = &self.store.attachments;
        if !rows.is_claimed_by(&s3_ref, &conversation).await.map_err(wire)? {
            return Err(WireError::not_found());
        }
        let row = rows.attachment(&s3_ref).await.map_err(wire)?.ok_or_else(WireError::not_found)?;
        let link = uploads.link(&row, None).await.map_err(wire)?;
        Ok(download_of(row, link))
    }
}

impl ChatService {
    /// Checks a message's attachment, claims it for the conversation, and returns the metadata to
    /// store.
    pub(crate) async fn attach(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        said: &Json,
    ) -> AppResult<Json> {
        if self.uploads.is_none() {
            return Err(no_uploads());
        }
        let mut attachment: Attachment = serde_json::from_str(said.as_str())
            .map_err(|e| ChatService::bad_request(format!("\"attachment\" is not understood: {e}")))?;
        if let Some(blurhash) = &attachment.blurhash
            && (blurhash.len() > limits::BLURHASH_MAX_BYTES
                || !blurhash.bytes().all(|b| b.is_ascii_graphic()))
        {
            return Err(ChatService::bad_request(
                "\"blurhash\" may have at most 128 visible ASCII characters",
            ));
        }
        let row = self.uploaded_by(user, &attachment.s3_ref).await?;
        if let Some(thumbnail) = &attachment.thumbnail {
            let small = self.uploaded_by(user, thumbnail).await?;
            if !small.mime.to_ascii_lowercase().starts_with("image/") {
                return Err(ChatService::bad_request("\"thumbnail\" must be a picture"));
            }
        }
        for s3_ref in [Some(&attachment.s3_ref), attachment.thumbnail.as_ref()].into_iter().flatten() {
            if !self.store.attachments.claim(s3_ref, conversation).await.map_err(wire)? {
                return Err(unknown_upload());
            }
        }
        attachment.name = row.name;
        attachment.mime = row.mime;
        attachment.bytes = row.bytes;
        attachment.sha256 = row.sha256;
        let stored = serde_json::value::to_raw_value(&attachment);
        stored
            .map(|text| Json(text.into()))
            .map_err(|_| WireError::new(ErrorCode::Internal, "the attachment cannot be written"))
    }

    /// An upload of this user whose bytes are stored.
    async fn uploaded_by(&self, user: &UserId, s3_ref: &S3Ref) -> AppResult<AttachmentRow> {
        let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
        let row = own(&*self.store.attachments, user, s3_ref).await?;
        if row.state == UploadState::Expected {
            // The client uploaded directly to the bucket, so the object store is asked. An upload
            // in parts is stored when it is completed.
            let there = tokio::time::timeout(LOOK_DEADLINE, uploads.is_there(&row)).await;
            let there = there.unwrap_or_else(|_| Err(StoreError::unavailable("the store of attachments")));
            if !there.map_err(wire)? {
                return Err(not_uploaded());
            }
            self.store.attachments.uploaded(s3_ref).await.map_err(wire)?;
        }
        Ok(row)
    }
}
