//! The bytes of attachments: in a bucket, which clients reach by requests that this server signs,
//! or in a directory, which they reach by signed URLs of this server.

mod admission;
mod disposition;
mod rate;
mod signature;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{BegunUpload, DownloadLink, UploadLimits, Uploads};
use bluetick_protocol::{S3Ref, SignedRequest, UploadParts, UploadedParts};
use bluetick_store::{AttachmentRow, Clock, Objects, Result, StoreError, UploadQuota, UploadTerms};

use crate::config::AttachmentSettings;
use admission::{UploadAdmission, UploadAdmissionLimits};

pub use admission::{AdmissionError, IncomingUpload};
pub use disposition::disposition;
pub use rate::MinimumRate;
pub use signature::{SignatureError, SigningKey};

/// A temporary file of this age belongs to an upload that was interrupted.
const TEMPORARY_FILE_TTL: Duration = Duration::from_secs(24 * 3600);
/// The minimum rate from which the deadline of an upload is computed.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// How long after its expiry an upload that started in time may end, clock differences included.
const SIGNED_LATE_MS: u64 = 3_600_000;

pub struct ObjectUploads {
    objects: Objects,
    key: SigningKey,
    clock: Arc<dyn Clock>,
    limits: UploadLimits,
    upload_lasts: Duration,
    download_lasts: Duration,
    /// Uploads in progress through this server.
    admission: UploadAdmission,
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
            admission: UploadAdmission::new(UploadAdmissionLimits {
                per_user: settings.uploads_per_user,
                total: settings.uploads_at_once,
                free_space_floor_bytes: settings.upload_free_space_floor_bytes,
            }),
            min_bytes_per_second: settings.upload_min_bytes_per_second,
            rate_window: Duration::from_secs(settings.upload_rate_window_secs),
        }
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Whether clients upload and download through this server.
    pub fn is_own(&self) -> bool {
        !self.objects.signs()
    }

    /// Checks the signed URL of a request.
    pub fn check(
        &self,
        method: &str,
        s3_ref: &S3Ref,
        expires: u64,
        signature: &str,
    ) -> std::result::Result<(), SignatureError> {
        self.key.check(method, s3_ref, expires, signature, self.clock.now_ms())
    }

    /// How long a URL is still valid.
    pub fn lasts_for(&self, expires_at: u64) -> Duration {
        Duration::from_millis(expires_at.saturating_sub(self.clock.now_ms()))
    }

    /// Removes the temporary files of the previous process. Runs before uploads are accepted.
    pub async fn begin_afresh(&self) {
        match self.objects.sweep_aside(Duration::ZERO).await {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "removed interrupted uploads"),
            Err(error) => tracing::warn!(%error, "cannot remove interrupted uploads"),
        }
    }

    /// Starts to receive an upload, if the limits and the disk allow it.
    pub fn receive(&self, row: &AttachmentRow) -> std::result::Result<IncomingUpload<'_>, AdmissionError> {
        self.admission.begin(row, &self.objects)
    }

    /// A meter that enforces the minimum upload rate.
    pub fn minimum_rate(&self) -> MinimumRate {
        MinimumRate::new(self.min_bytes_per_second, self.rate_window)
    }

    /// How long an upload of so many bytes may take.
    pub fn deadline(&self, bytes: u64) -> Duration {
        self.upload_lasts + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
    }

    /// A unique name for a temporary file.
    pub fn unique(&self, s3_ref: &S3Ref) -> String {
        format!("{s3_ref}-{:016x}", rand::random::<u64>())
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

/// The object key of an attachment. Its two-character prefix keeps directories small.
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
        rand::random()
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
        // Parts are completed only by this server, and uploads through it need a row.
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
        let swept = self.objects.sweep_aside(TEMPORARY_FILE_TTL).await?;
        if swept > 0 {
            tracing::info!(swept, "removed temporary files of interrupted uploads");
        }
        Ok(())
    }
}
