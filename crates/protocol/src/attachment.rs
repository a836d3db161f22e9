//! Attachments: how an upload is announced, where its bytes go, and what a message says of it. The bytes themselves
//! never travel with the message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::S3Ref;

/// An upload that a client announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadRequest {
    /// The name of the file, at most 255 bytes.
    #[cfg_attr(feature = "openapi", schema(example = "contract.pdf"))]
    pub name: String,
    /// Its media type.
    #[cfg_attr(feature = "openapi", schema(example = "application/pdf"))]
    pub mime: String,
    /// Its length.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
    /// How it is cut, if it is uploaded in parts; only where files are kept in a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub parts: Option<UploadParts>,
}

/// A large file in parts of one size; the last may be shorter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadParts {
    /// The size of a part, at least 5 MiB.
    pub bytes: u64,
    /// The SHA-256 of each part, in hex, in order; at most 1,000 parts.
    pub sha256: Vec<String>,
}

/// Where a client puts the bytes: with `upload`, or with all of `parts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Upload {
    /// Names the bytes in a message.
    pub s3_ref: S3Ref,
    /// One request, if the file is uploaded whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub upload: Option<SignedRequest>,
    /// One request for each part, if it is not whole. The upload is then to be completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SignedRequest>,
    /// Milliseconds since 1970.
    pub expires_at: u64,
}

/// A request that its holder makes as it is, until it expires. It needs no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedRequest {
    #[cfg_attr(feature = "openapi", schema(example = "PUT"))]
    pub method: String,
    pub url: String,
    /// Headers to send with it, unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What the store answered to each part, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadedParts {
    /// The header `ETag` of each answer.
    pub etags: Vec<String>,
    /// The SHA-256 of each part, in hex, as it was announced.
    pub sha256: Vec<String>,
}

/// Where an attachment is read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Download {
    pub url: String,
    /// Milliseconds since 1970.
    pub expires_at: u64,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    pub sha256: String,
}

/// What a message says of its attachment. A sender gives `s3_ref` and the fields after `sha256`; the server fills in
/// the others from the announcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attachment {
    /// As it was given when the upload was announced.
    pub s3_ref: S3Ref,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub mime: String,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub sha256: String,
    /// A blurred preview to show while a picture loads (see blurha.sh).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub blurhash: Option<String>,
    /// The `s3_ref` of a small picture of it: another upload of the same sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub thumbnail: Option<S3Ref>,
    /// Whether it was recorded as a voice message, and is not just a file with sound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voice: bool,
}

impl Attachment {
    /// A short label for previews: its kind, or its name.
    pub fn label(&self) -> &str {
        let kind = self.mime.split('/').next().unwrap_or_default().to_ascii_lowercase();
        match kind.as_str() {
            "image" => "Photo",
            "video" => "Video",
            "audio" if self.voice => "Voice message",
            _ => &self.name,
        }
    }
}
