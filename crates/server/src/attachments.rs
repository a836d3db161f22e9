//! Where the bytes of attachments are: in a bucket, which clients reach by requests that are signed here, or in a directory,
//! which they reach by signed addresses of this server's own.

mod disposition;
mod intake;
mod rate;
mod signature;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{BegunUpload, DownloadLink, UploadLimits, Uploads};
use bluetick_protocol::{S3Ref, SignedRequest, UploadParts, UploadedParts};
use bluetick_store::{AttachmentRow, Clock, Objects, Result, StoreError, UploadQuota, UploadTerms};

use crate::{chance, config::AttachmentSettings};
use intake::{Intake, IntakeLimits};

pub use disposition::disposition;
pub use intake::{Incoming, NotNow};
pub use rate::MinimumRate;
pub use signature::{Refused, SigningKey};

/// An upload that broke off long ago was a process's that died.
const ASIDE_FOR: Duration = Duration::from_secs(24 * 3600);
/// Whoever is slower than this, beyond the time that every upload has, is not uploading.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// What was begun in time may end later, and clocks differ.
const SIGNED_LATE_MS: u64 = 3_600_000;

pub struct ObjectUploads {
    objects: Objects,
    key: SigningKey,
    clock: Arc<dyn Clock>,
    limits: UploadLimits,
    upload_lasts: Duration,
    download_lasts: Duration,
    /// Uploads that are in progress through this server.
    intake: Intake,
    min_bytes_per_second: u64,
    rate_window: Duration,
}

impl ObjectUploads {
    pub fn new(
        objects: Objects,
        secret: &str,
        clock: Arc<dyn Clock>,
        settings: &AttachmentSettings,
    ) -> ObjectUploads {
        ObjectUploads {
            objects,
            key: SigningKey::derive(secret),
            clock,
            limits: UploadLimits {
                max_bytes: settings.max_bytes,
                types: settings.types.iter().map(|text| text.to_ascii_lowercase()).collect(),
                quota: UploadQuota {
                    bytes_per_day: settings.user_bytes_per_day,
                    bytes_total: settings.user_bytes_total,
                },
            },
            upload_lasts: Duration::from_secs(settings.upload_expires_secs),
            download_lasts: Duration::from_secs(settings.download_expires_secs),
            intake: Intake::new(IntakeLimits {
                per_user: settings.uploads_per_user,
                at_once: settings.uploads_at_once,
                free_space_floor_bytes: settings.upload_free_space_floor_bytes,
            }),
            min_bytes_per_second: settings.upload_min_bytes_per_second,
            rate_window: Duration::from_secs(settings.upload_rate_window_secs),
        }
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Whether the bytes come through this server.
    pub fn is_own(&self) -> bool {
        !self.objects.signs()
    }

    /// Checks the signed address of a request for these bytes.
    pub fn check(
        &self,
        method: &str,
        s3_ref: &S3Ref,
        expires: u64,
        signature: &str,
    ) -> std::result::Result<(), Refused> {
        self.key.check(method, s3_ref, expires, signature, self.clock.now_ms())
    }

    /// How long an address is still good.
    pub fn lasts_for(&self, expires_at: u64) -> Duration {
        Duration::from_millis(expires_at.saturating_sub(self.clock.now_ms()))
    }

    /// Removes what the process before this one has left half. Nobody uploads yet.
    pub async fn begin_afresh(&self) {
        match self.objects.sweep_aside(Duration::ZERO).await {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "removed uploads that had broken off"),
            Err(error) => tracing::warn!(%error, "uploads that had broken off could not be removed"),
        }
    }

    /// Begins to receive an upload, if the limits and the disk allow it.
    pub fn receive(&self, row: &AttachmentRow) -> std::result::Result<Incoming<'_>, NotNow> {
        self.intake.begin(row, &self.objects)
    }

    /// Watches how fast an upload arrives.
    pub fn minimum_rate(&self) -> MinimumRate {
        MinimumRate::new(self.min_bytes_per_second, self.rate_window)
    }

    /// How long an upload of so many bytes may take.
    pub fn deadline(&self, bytes: u64) -> Duration {
        self.upload_lasts + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
    }

    /// A name for a file that is being put together.
    pub fn unique(&self, s3_ref: &S3Ref) -> String {
        format!("{s3_ref}-{:016x}", chance::draw())
    }

    fn expires_at(&self, lasts: Duration) -> u64 {
        self.clock.now_ms() + lasts.as_millis() as u64
    }

    fn own_address(&self, method: &str, s3_ref: &S3Ref, expires_at: u64) -> String {
        let signature = self.key.sign(method, s3_ref, expires_at);
        format!("/v1/blobs/{s3_ref}?expires={expires_at}&signature={signature}")
    }

    fn terms<'a>(&self, bytes: u64, sha256: &'a str) -> UploadTerms<'a> {
        UploadTerms { bytes, sha256, expires: self.upload_lasts }
    }

    async fn begin_parts(
        &self,
        row: &AttachmentRow,
        parts: &UploadParts,
        expires_at: u64,
    ) -> Result<BegunUpload> {
        let key = key_of(&row.s3_ref);
        let upload_id = self.objects.begin_parts(&key, &row.mime).await?;
        let mut signed = Vec::with_capacity(parts.sha256.len());
        let mut left = row.bytes;
        for (number, sha256) in (1..).zip(&parts.sha256) {
            let terms = self.terms(left.min(parts.bytes), sha256);
            left -= terms.bytes;
            signed.push(self.objects.sign_part(&key, &upload_id, number, &terms).await?);
        }
        Ok(BegunUpload { upload_id: Some(upload_id), upload: None, parts: signed, expires_at })
    }
}

/// Under which key the bytes are: not too many in one directory.
pub fn key_of(s3_ref: &S3Ref) -> String {
    let text = s3_ref.as_str();
    format!("attachments/{}/{text}", &text[text.len() - 2..])
}

#[async_trait]
impl Uploads for ObjectUploads {
    fn limits(&self) -> &UploadLimits {
        &self.limits
    }

    fn chance(&self) -> [u8; 10] {
        let (one, other) = (chance::draw().to_be_bytes(), chance::draw().to_be_bytes());
        std::array::from_fn(|at| *one.get(at).unwrap_or(&other[at % 8]))
    }

    fn takes_parts(&self) -> bool {
        self.objects.signs()
    }

    async fn begin(&self, row: &AttachmentRow, parts: Option<&UploadParts>) -> Result<BegunUpload> {
        let expires_at = self.expires_at(self.upload_lasts);
        let upload = match parts {
            Some(parts) => return self.begin_parts(row, parts, expires_at).await,
            None if self.is_own() => SignedRequest {
                method: "PUT".into(),
                url: self.own_address("PUT", &row.s3_ref, expires_at),
                headers: [("content-length".to_owned(), row.bytes.to_string())].into(),
            },
            None => {
                let terms = self.terms(row.bytes, &row.sha256);
                self.objects.sign_put(&key_of(&row.s3_ref), &row.mime, &terms).await?
            }
        };
        Ok(BegunUpload { upload_id: None, upload: Some(upload), parts: Vec::new(), expires_at })
    }

    async fn complete(&self, row: &AttachmentRow, parts: &UploadedParts) -> Result<bool> {
        let Some(upload_id) = &row.upload_id else {
            return Err(StoreError::Unsupported("an upload without parts is complete by itself".into()));
        };
        let parts =
            parts.etags.iter().zip(&parts.sha256).map(|(etag, sha256)| (etag.as_str(), sha256.as_str()));
        self.objects.complete_parts(&key_of(&row.s3_ref), upload_id, parts).await
    }

    async fn is_there(&self, row: &AttachmentRow) -> Result<bool> {
        let info = self.objects.info(&key_of(&row.s3_ref)).await?;
        Ok(info.is_some_and(|info| info.bytes == row.bytes))
    }

    async fn link(&self, row: &AttachmentRow, lasts: Option<Duration>) -> Result<DownloadLink> {
        let lasts = lasts.unwrap_or(self.download_lasts);
        let expires_at = self.expires_at(lasts);
        let url = match self.is_own() {
            true => self.own_address("GET", &row.s3_ref, expires_at),
            false => {
                let disposition = disposition(&row.mime, &row.name);
                self.objects.sign_get(&key_of(&row.s3_ref), &row.mime, &disposition, lasts).await?
            }
        };
        Ok(DownloadLink { url, expires_at })
    }

    fn may_still_come(&self, row: &AttachmentRow) -> bool {
        let signed_until = row.s3_ref.minted_at() + self.upload_lasts.as_millis() as u64;
        // Parts are put together by us or not at all, and what comes through this server needs a row.
        self.objects.signs()
            && row.upload_id.is_none()
            && self.clock.now_ms() <= signed_until + SIGNED_LATE_MS
    }

    async fn remove(&self, row: &AttachmentRow) -> Result<()> {
        let key = key_of(&row.s3_ref);
        if let Some(upload_id) = &row.upload_id {
            self.objects.abort_parts(&key, upload_id).await?;
        }
        self.objects.delete(&key).await
    }

    async fn sweep(&self) -> Result<()> {
        let swept = self.objects.sweep_aside(ASIDE_FOR).await?;
        if swept > 0 {
            tracing::info!(swept, "removed what uploads that broke off had left");
        }
        Ok(())
    }
}
