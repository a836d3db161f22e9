//! Limits on uploads.

use bluetick_protocol::{ErrorCode, UploadParts, UploadRequest, UploadedParts, WireError, limits};
use bluetick_store::{OverQuota, UploadQuota, left_of_day_ms};

use crate::{AppResult, ChatService};

/// The most bytes that one upload request to a bucket may carry.
const WHOLE_MAX_BYTES: u64 = 5 * 1024 * 1024 * 1024;
const ETAG_MAX_BYTES: usize = 128;

#[derive(Debug, Clone)]
pub struct UploadLimits {
    pub max_bytes: u64,
    /// Media types, `image/*` for all of a kind; empty for every type.
    pub types: Vec<String>,
    /// The quota of one user.
    pub quota: UploadQuota,
}

impl UploadLimits {
    pub(super) fn check(&self, request: &UploadRequest, takes_parts: bool) -> AppResult<()> {
        let UploadRequest { name, mime, bytes, sha256, parts } = request;
        check_name(name)?;
        if mime.len() > limits::ATTACHMENT_MIME_MAX_BYTES || !is_media_type(mime) {
            return Err(ChatService::bad_request("\"mime\" must be a media type, such as image/jpeg"));
        }
        if !self.allows(mime) {
            let why = format!("attachments of the type {mime} are not taken at this server");
            return Err(WireError::new(ErrorCode::TypeRefused, why));
        }
        if *bytes == 0 {
            return Err(ChatService::bad_request("\"bytes\" must be at least 1"));
        }
        if *bytes > self.max_bytes {
            let why = format!("an attachment may be at most {} bytes long", self.max_bytes);
            return Err(WireError::new(ErrorCode::AttachmentTooLarge, why));
        }
        if !is_sha256(sha256) {
            return Err(ChatService::bad_request("\"sha256\" must be 64 hex digits"));
        }
        match parts {
            Some(_) if !takes_parts => {
                let why = "this server takes files whole: leave out \"parts\"";
                Err(WireError::new(ErrorCode::Unsupported, why))
            }
            Some(parts) => check_cut(*bytes, parts),
            None if takes_parts && *bytes > WHOLE_MAX_BYTES => {
                Err(ChatService::bad_request("a file of more than 5 GiB is uploaded in \"parts\""))
            }
            None => Ok(()),
        }
    }

    /// The error for a user whose quota is used up.
    pub(super) fn refuse(&self, over: OverQuota, now_ms: u64) -> WireError {
        let exceeded = |why| WireError::new(ErrorCode::QuotaExceeded, why);
        match over {
            OverQuota::Day => {
                let limit = self.quota.bytes_per_day;
                exceeded(format!(
                    "this file would exceed the {limit} bytes that you may upload in a day (UTC)"
                ))
                .retry_after(left_of_day_ms(now_ms))
            }
            OverQuota::Total => {
                let limit = self.quota.bytes_total;
                exceeded(format!("this file would exceed the {limit} bytes that you may keep at this server"))
            }
        }
    }

    fn allows(&self, mime: &str) -> bool {
        let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let matches = |allowed: &String| match allowed.strip_suffix("/*") {
            Some(kind) => essence.split('/').next() == Some(kind),
            None => *allowed == essence,
        };
        self.types.is_empty() || self.types.iter().any(matches)
    }
}

fn check_name(name: &str) -> AppResult<()> {
    let bad = |c: char| c.is_control() || matches!(c, '/' | '\\');
    // Characters that reorder or hide their neighbours, or end the line.
    let hidden = |c: char| {
        matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let named = !name.trim().is_empty() && !matches!(name, "." | "..");
    if !named || name.len() > limits::ATTACHMENT_NAME_MAX_BYTES || name.contains(bad) || name.contains(hidden)
    {
        return Err(ChatService::bad_request(
            "\"name\" must have 1 to 255 bytes, without control characters, / and \\",
        ));
    }
    Ok(())
}

fn check_cut(bytes: u64, parts: &UploadParts) -> AppResult<()> {
    if parts.sha256.is_empty() || parts.sha256.len() > limits::UPLOAD_PARTS_MAX {
        return Err(ChatService::bad_request(format!(
            "an upload has 1 to {} parts",
            limits::UPLOAD_PARTS_MAX
        )));
    }
    if !(limits::UPLOAD_PART_MIN_BYTES..=WHOLE_MAX_BYTES).contains(&parts.bytes) {
        return Err(ChatService::bad_request("a part has 5 MiB to 5 GiB; only the last may be shorter"));
    }
    if bytes.div_ceil(parts.bytes) != parts.sha256.len() as u64 {
        return Err(ChatService::bad_request("\"parts\" must have one \"sha256\" for each part"));
    }
    match parts.sha256.iter().all(|sha256| is_sha256(sha256)) {
        true => Ok(()),
        false => Err(ChatService::bad_request("every \"sha256\" must be 64 hex digits")),
    }
}

/// The parts that a client says it has uploaded.
pub(super) fn check_parts(parts: &UploadedParts) -> AppResult<()> {
    let is_etag = |etag: &String| {
        let bare = etag.trim_matches('"');
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_+/=.".contains(&b);
        !bare.is_empty() && bare.len() <= ETAG_MAX_BYTES && bare.bytes().all(plain)
    };
    let count = parts.etags.len();
    if count == 0 || count > limits::UPLOAD_PARTS_MAX || count != parts.sha256.len() {
        return Err(ChatService::bad_request("give one of \"etags\" and one of \"sha256\" for each part"));
    }
    match parts.etags.iter().all(is_etag) && parts.sha256.iter().all(|sha256| is_sha256(sha256)) {
        true => Ok(()),
        false => Err(ChatService::bad_request("an ETag or a SHA-256 of a part is not one")),
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `type/subtype` and parameters, as RFC 9110 writes them.
fn is_media_type(text: &str) -> bool {
    let is_token = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b);
        !text.is_empty() && text.bytes().all(plain)
    };
    // Two spaces in a row are one in a signed header.
    let is_quoted = |text: &str| {
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        inner.is_some_and(|inner| {
            inner.bytes().all(|b| (b == b' ' || b.is_ascii_graphic()) && !b"\"\\;".contains(&b))
                && !inner.contains("  ")
        })
    };
    let mut parts = text.split(';');
    let essence = parts.next().and_then(|essence| essence.split_once('/'));
    essence.is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
        && parts.all(|parameter| {
            let parameter = parameter.strip_prefix(' ').unwrap_or(parameter).split_once('=');
            parameter.is_some_and(|(name, value)| is_token(name) && (is_token(value) || is_quoted(value)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_and_names_are_told_from_what_is_none() {
        for good in ["image/jpeg", "text/plain; charset=utf-8", "application/vnd.a+b", "a/b;x=\"y z\""] {
            assert!(is_media_type(good), "{good}");
        }
        for bad in [
            "",
            "image",
            "image/",
            "/x",
            "image/jpeg\r\nx: y",
            "a/b;",
            "a/b;x",
            "a b/c",
            "a/b;x=\"y",
            "a/b;  x=y",
            "a/b; x=\"y  z\"",
        ] {
            assert!(!is_media_type(bad), "{bad:?}");
        }
        for good in ["contract.pdf", "Résumé 2.doc", "写真.jpg"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "..",
            "a/b",
            "a\\b",
            "a\nb",
            "photo\u{202e}gpj.exe",
            "a\u{2028}b",
            "\u{feff}a",
            &"x".repeat(256),
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn types_are_allowed_by_kind_or_by_name() {
        let limits = |types: &[&str]| UploadLimits {
            max_bytes: 1,
            types: types.iter().map(|text| text.to_string()).collect(),
            quota: UploadQuota::default(),
        };
        assert!(limits(&[]).allows("x/y"));
        let some = limits(&["image/*", "application/pdf"]);
        assert!(some.allows("image/png") && some.allows("Application/PDF; x=y"));
        assert!(!some.allows("imagery/png") && !some.allows("application/zip"));
    }

    #[test]
    fn a_file_is_cut_as_its_length_says() {
        const MIB: u64 = 1024 * 1024;
        let cut = |bytes, parts: usize| UploadParts { bytes, sha256: vec!["0".repeat(64); parts] };
        assert!(check_cut(11 * MIB, &cut(5 * MIB, 3)).is_ok());
        assert!(check_cut(10 * MIB, &cut(5 * MIB, 2)).is_ok());
        assert!(check_cut(11 * MIB, &cut(5 * MIB, 2)).is_err());
        assert!(check_cut(11 * MIB, &cut(MIB, 11)).is_err());
        assert!(check_cut(MIB, &cut(5 * MIB, 0)).is_err());
    }
}
