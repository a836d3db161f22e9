//! Signs requests that a client sends to the bucket itself, each valid for one object, length and
//! content.
//!
//! object_store cannot sign the header `content-length`, so its URL is signed again here with all
//! headers that bind the client.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bluetick_protocol::SignedRequest;
use object_store::{
    Attribute, Attributes, Error, PutMultipartOptions,
    aws::{AmazonS3, AwsCredential},
    multipart::{MultipartStore as _, PartId},
    signer::{Method, SignedUrlOptions, Signer as _, Url},
};
use ring::{digest, hmac};

use super::Objects;
use crate::{Result, StoreError};

/// Attempts to sign, because temporary credentials may be replaced meanwhile.
const SIGN_TRIES: usize = 3;

/// The length, type and content that a signed upload must have.
#[derive(Debug, Clone)]
pub struct UploadTerms<'a> {
    pub bytes: u64,
    /// In hex.
    pub sha256: &'a str,
    pub expires: Duration,
}

impl Objects {
    /// Whether clients send signed requests to it directly.
    pub fn signs(&self) -> bool {
        self.s3.is_some()
    }

    fn bucket(&self) -> Result<&AmazonS3> {
        let none = || StoreError::Unsupported("only a bucket signs requests".into());
        self.s3.as_deref().ok_or_else(none)
    }

    /// A request that writes an object of this length, type and content under a free key.
    pub async fn sign_put(&self, key: &str, mime: &str, terms: &UploadTerms<'_>) -> Result<SignedRequest> {
        let mut headers = bound(terms);
        headers.insert("content-type".into(), mime.into());
        headers.insert("if-none-match".into(), "*".into());
        self.sign(key, headers, Vec::new(), terms.expires).await
    }

    /// A request that writes one part of a multipart upload, counted from 1.
    pub async fn sign_part(
        &self,
        key: &str,
        upload_id: &str,
        number: usize,
        terms: &UploadTerms<'_>,
    ) -> Result<SignedRequest> {
        let query = vec![("partNumber", number.to_string()), ("uploadId", upload_id.to_owned())];
        self.sign(key, bound(terms), query, terms.expires).await
    }

    /// A URL that reads an object with this content type and disposition.
    pub async fn sign_get(
        &self,
        key: &str,
        mime: &str,
        disposition: &str,
        expires: Duration,
    ) -> Result<String> {
        let answered = [("response-content-type", mime), ("response-content-disposition", disposition)];
        let options = SignedUrlOptions::default().with_query(answered);
        let url = self.bucket()?.signed_url_opts(Method::GET, &self.path(key), expires, &options).await;
        url.map(String::from).map_err(|e| self.failed("sign", key, e))
    }

    /// Starts a multipart upload and returns its id.
    pub async fn begin_parts(&self, key: &str, mime: &str) -> Result<String> {
        let attributes = Attributes::from_iter([(Attribute::ContentType, mime.to_owned())]);
        let options = PutMultipartOptions { attributes, ..Default::default() };
        let begun = self.checked()?.create_multipart_opts(&self.path(key), options).await;
        begun.map_err(|e| self.failed("begin", key, e))
    }

    /// Completes a multipart upload. Returns false if the parts do not match. An unknown upload id
    /// is an error, because another request may be completing it.
    pub async fn complete_parts(
        &self,
        key: &str,
        upload_id: &str,
        parts: impl Iterator<Item = (&str, &str)>,
    ) -> Result<bool> {
        let parts = parts.map(|(etag, sha256)| PartId { content_id: part(etag, sha256) }).collect();
        let completed =
            self.checked()?.complete_multipart(&self.path(key), &upload_id.to_owned(), parts).await;
        match completed {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => {
                tracing::debug!(%key, %error, "the bucket refused the parts of an upload");
                Ok(false)
            }
            Err(e) => Err(self.failed("complete", key, e)),
        }
    }

    /// Aborts a multipart upload.
    pub async fn abort_parts(&self, key: &str, upload_id: &str) -> Result<()> {
        match self.checked()?.abort_multipart(&self.path(key), &upload_id.to_owned()).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("abort", key, e)),
        }
    }

    /// The bucket for multipart uploads with SHA-256 checksums.
    fn checked(&self) -> Result<&AmazonS3> {
        let none = || StoreError::Unsupported("only a bucket takes uploads in parts".into());
        self.s3_checked.as_deref().ok_or_else(none)
    }

    async fn sign(
        &self,
        key: &str,
        headers: BTreeMap<String, String>,
        query: Vec<(&str, String)>,
        expires: Duration,
    ) -> Result<SignedRequest> {
        let s3 = self.bucket()?;
        let failed = |e| self.failed("sign", key, e);
        let options = SignedUrlOptions::default().with_query(query);
        let path = self.path(key);
        for _ in 0..SIGN_TRIES {
            let url = s3.signed_url_opts(Method::PUT, &path, expires, &options).await.map_err(failed)?;
            let credential = s3.credentials().get_credential().await.map_err(failed)?;
            if let Some(url) = signed_with(&url, "PUT", &headers, &credential) {
                return Ok(SignedRequest { method: "PUT".into(), url, headers });
            }
        }
        Err(StoreError::unavailable(format!("a signature for {}", self.place)))
    }
}

fn bound(terms: &UploadTerms<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("content-length".into(), terms.bytes.to_string()),
        ("x-amz-checksum-sha256".into(), to_base64(terms.sha256)),
    ])
}

fn to_base64(hex: &str) -> String {
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    STANDARD.encode((0..hex.len()).step_by(2).filter_map(byte).collect::<Vec<u8>>())
}

/// The format in which object_store keeps a part with a checksum.
fn part(etag: &str, sha256: &str) -> String {
    let etag = etag.trim_matches('"');
    let sha256 = to_base64(sha256);
    format!(
        "<PartMetadata><e_tag>\"{etag}\"</e_tag><checksum_sha256>{sha256}</checksum_sha256></PartMetadata>"
    )
}

/// Whether the bucket answered and refused.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Generic { source, .. } => {
            let mut cause: Option<&dyn std::error::Error> = Some(source.as_ref());
            std::iter::from_fn(|| {
                let this = cause?;
                cause = this.source();
                Some(this.to_string())
            })
            .any(|text| text.contains("400 Bad Request") || text.contains("InvalidPart"))
        }
        _ => false,
    }
}

/// Signs a URL again that was signed for its host only (AWS Signature 4 in the query), so that it
/// covers these headers too. `None` if it was not signed with these credentials.
fn signed_with(
    url: &Url,
    method: &str,
    headers: &BTreeMap<String, String>,
    credential: &AwsCredential,
) -> Option<String> {
    let host = match (url.host_str()?, url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let mut headers: BTreeMap<&str, &str> =
        headers.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
    headers.insert("host", &host);
    let names = headers.keys().copied().collect::<Vec<_>>().join(";");

    let pairs: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    let date = pairs.get("X-Amz-Date")?.clone();
    let (signer, scope) = pairs.get("X-Amz-Credential")?.split_once('/')?;
    if signer != credential.key_id || pairs.get("X-Amz-Security-Token") != credential.token.as_ref() {
        return None;
    }
    let mut query: Vec<String> = pairs
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "X-Amz-Signature" | "X-Amz-SignedHeaders"))
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
        .chain([format!("X-Amz-SignedHeaders={}", encoded(&names))])
        .collect();
    query.sort();
    let query = query.join("&");

    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("{method}\n{}\n{query}\n{lines}\n{names}\nUNSIGNED-PAYLOAD", url.path());
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}");
    let first = format!("AWS4{}", credential.secret_key).into_bytes();
    let key = scope.split('/').fold(first, |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &to_sign));

    let mut signed = url.clone();
    signed.set_query(Some(&format!("{query}&X-Amz-Signature={signature}")));
    Some(signed.into())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| match b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_as_amazon_documents_it() {
        // From "Authenticating Requests: Using Query Parameters" of the documentation of S3.
        let url: Url = "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=other&X-Amz-Signature=0"
            .parse()
            .unwrap();
        let credential = AwsCredential {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let signed = signed_with(&url, "GET", &BTreeMap::new(), &credential).unwrap();
        let expected = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert!(signed.ends_with(expected), "{signed}");
        let headers = BTreeMap::from([("content-length".to_owned(), "5".to_owned())]);
        let other = signed_with(&url, "GET", &headers, &credential).unwrap();
        let renewed = AwsCredential { key_id: "another".into(), ..credential };
        assert_eq!(signed_with(&url, "GET", &headers, &renewed), None, "by whom else it was signed first");
        assert!(other.contains("X-Amz-SignedHeaders=content-length%3Bhost&"), "{other}");
        assert!(!other.ends_with(expected));
    }

    #[test]
    fn a_part_is_written_as_object_store_reads_it() {
        let zeros = "00".repeat(32);
        assert_eq!(to_base64(&zeros), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        assert!(part("\"abc\"", &zeros).contains("<e_tag>\"abc\"</e_tag><checksum_sha256>AAAA"));
    }
}
