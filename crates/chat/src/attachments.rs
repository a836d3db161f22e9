//! Attachments: announced, put where they are kept, referred to by messages, and read by the members of a conversation. The
//! bytes never come here.

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

/// A send waits no longer to hear whether the bytes are there; what comes behind it on the session waits too.
const LOOK_DEADLINE: Duration = Duration::from_secs(3);

/// Where the bytes are, and how clients come to them.
#[async_trait]
pub trait Uploads: Send + Sync {
    fn limits(&self) -> &UploadLimits;

    /// Bytes that nobody can foresee.
    fn chance(&self) -> [u8; 10];

    /// Whether a file may come in parts, and whether it may come whole.
    fn takes_parts(&self) -> bool;

    /// The requests by which a client puts the bytes there.
    async fn begin(&self, row: &AttachmentRow, parts: Option<&UploadParts>) -> Result<Begun>;

    /// Makes one of the parts. Returns false if they are not what was uploaded, and fails if that is not known.
    async fn complete(&self, row: &AttachmentRow, parts: &UploadedParts) -> Result<bool>;

    /// Whether the bytes are there, as many as were announced.
    async fn is_there(&self, row: &AttachmentRow) -> Result<bool>;

    /// Where the bytes are read from, for so long, or for as long as is usual.
    async fn link(&self, row: &AttachmentRow, lasts: Option<Duration>) -> Result<Link>;

    /// Whether a client could still put bytes there, though nobody expects them any more.
    fn may_still_come(&self, row: &AttachmentRow) -> bool;

    /// Removes the bytes, and what there is of them.
    async fn remove(&self, row: &AttachmentRow) -> Result<()>;

    /// Removes what uploads that broke off have left.
    async fn sweep(&self) -> Result<()>;
}

/// How the bytes come to their place.
#[derive(Debug, Clone)]
pub struct Begun {
    /// What the object store calls an upload in parts.
    pub upload_id: Option<String>,
    pub upload: Option<SignedRequest>,
    pub parts: Vec<SignedRequest>,
    pub expires_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
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

/// What is known of an attachment, with where it is read from.
pub(crate) fn download_of(row: AttachmentRow, link: Link) -> Download {
    let AttachmentRow { name, mime, bytes, sha256, .. } = row;
    Download { url: link.url, expires_at: link.expires_at, name, mime, bytes, sha256 }
}

/// An upload of this user, if it is one that a message may still refer to.
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
            // An upload in parts begins at the object store: not for a user whose quota is used up.
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
            // Nobody would ever collect its parts.
            if row.upload_id.is_some()
                && let Err(error) = uploads.remove(&row).await
            {
                tracing::warn!(%s3_ref, %error, "an upload that could not be announced is not let go of");
            }
            return Err(refused);
        }
        metrics::counter!("bluetick_uploads_total").increment(1);
        let Begun { upload, parts, expires_at, .. } = begun;
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
            // A second try of one that succeeded finds its parts gone and the whole there.
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

    /// Whoever is not a member, and whatever no message of the conversation refers to, gets the one answer.
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
    /// Checks what a message says of its attachment, claims it for the conversation, and returns what is stored of it.
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

    /// An upload of this user whose bytes are there.
    async fn uploaded_by(&self, user: &UserId, s3_ref: &S3Ref) -> AppResult<AttachmentRow> {
        let uploads = self.uploads.as_ref().ok_or_else(no_uploads)?;
        let row = own(&*self.store.attachments, user, s3_ref).await?;
        if row.state == UploadState::Expected {
            // The bytes went elsewhere, and nobody told us when they were there. An upload in parts is there when it is
            // completed.
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
