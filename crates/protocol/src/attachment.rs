//! What travels beside a message: how bytes are announced, where they are put, and what the message says of them. The bytes
//! themselves never travel with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::S3Ref;

/// What a client is about to upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadRequest {
    /// What the file is called.
    pub name: String,
    /// Its media type.
    pub mime: String,
    /// How long it is.
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
    /// How it is cut, if it is to be uploaded in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<UploadParts>,
}

/// A large file in parts of one size, but for the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadParts {
    pub bytes: u64,
    /// The SHA-256 of each part, in hex, in order.
    pub sha256: Vec<String>,
}

/// Where a client puts the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Names the bytes in a message.
    pub s3_ref: S3Ref,
    /// One request, if the file is uploaded whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<SignedRequest>,
    /// One request a part, if it is not; then it is to be completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SignedRequest>,
    /// Until when, in ms since 1970.
    pub expires_at: u64,
}

/// A request that whoever has it may make, as it is and until it expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedRequest {
    pub method: String,
    pub url: String,
    /// Headers that must be sent with it, as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What the store answered to each part, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadedParts {
    /// The `ETag` of each.
    pub etags: Vec<String>,
    /// The SHA-256 of each, in hex, as they were announced.
    pub sha256: Vec<String>,
}

/// Where a member of the conversation gets the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    pub url: String,
    /// Until when, in ms since 1970.
    pub expires_at: u64,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    pub sha256: String,
}

/// What a message says of its attachment. A sender gives `s3_ref` and what follows `sha256`; the server fills in the rest from
/// what was announced and uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub s3_ref: S3Ref,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub mime: String,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub sha256: String,
    /// A few colours to show while a picture loads (see blurha.sh).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blurhash: Option<String>,
    /// A small picture of it: another upload of the same sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thumbnail: Option<S3Ref>,
    /// It was spoken for this message, not a file that happens to hold sound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voice: bool,
}

impl Attachment {
    /// What it is, in a word or by its name.
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
