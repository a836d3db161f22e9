//! Attachments in a directory of this server: an upload is streamed to disk and verified, a
//! download is streamed back. The signed URL authorises a request; no token is needed.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bluetick_chat::{Uploads as _, wire};
use bluetick_protocol::{ErrorCode, S3Ref, WireError};
use bluetick_store::{AttachmentRow, Attachments, NewObject, UploadState};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use ring::digest;
use serde::Deserialize;

use super::{
    AppState,
    error::ApiError,
    request::{Params, PathId},
};
use crate::{
    attachments::{AdmissionError, IncomingUpload, ObjectUploads, SignatureError, disposition, key_of},
    auth::hex,
};

/// A client that sends nothing for so long has gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
pub struct Signed {
    expires: u64,
    signature: String,
}

/// Where a request leads, or what there is of that.
type SignedUrl = (Result<PathId<S3Ref>, ApiError>, Result<Params<Signed>, ApiError>);

fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is no such attachment")
}

fn mismatch(why: String) -> ApiError {
    ApiError::new(ErrorCode::UploadMismatch, why)
}

fn too_slow(why: &str) -> ApiError {
    metrics::counter!("bluetick_uploads_too_slow_total").increment(1);
    WireError::new(ErrorCode::UploadTooSlow, why).retry_after(1_000).into()
}

fn not_now(why: AdmissionError) -> ApiError {
    let (code, message, retry_after) = match why {
        AdmissionError::InProgress => {
            (ErrorCode::Unavailable, "these bytes are being uploaded just now".to_owned(), 5_000)
        }
        AdmissionError::TooManyOfUser(most) => {
            let message =
                format!("you may have {most} uploads in progress at a time: wait until one is done");
            (ErrorCode::RateLimited, message, 1_000)
        }
        AdmissionError::TooMany => {
            let message = "the server has as many uploads in progress as it takes; try again later";
            (ErrorCode::Unavailable, message.to_owned(), 5_000)
        }
        AdmissionError::NoRoom => {
            let message = "the server has no room for this file; try again later";
            (ErrorCode::StorageFull, message.to_owned(), 5_000)
        }
    };
    WireError::new(code, message).retry_after(retry_after).into()
}

/// What a signed address leads to.
struct Blob<'a> {
    uploads: &'a ObjectUploads,
    rows: &'a dyn Attachments,
    row: AttachmentRow,
}

async fn admitted<'a>(
    state: &'a AppState,
    method: &str,
    (s3_ref, signed): SignedUrl,
) -> Result<(Blob<'a>, Signed), ApiError> {
    let uploads = state.uploads.as_deref().filter(|uploads| uploads.is_own()).ok_or_else(unknown)?;
    let store = state.store.as_ref().ok_or_else(unknown)?;
    let altered = || ApiError::new(ErrorCode::LinkRefused, "this address was altered; ask for a new one");
    let (Ok(PathId(s3_ref)), Ok(Params(signed))) = (s3_ref, signed) else { return Err(altered()) };
    uploads.check(method, &s3_ref, signed.expires, &signed.signature).map_err(|refused| match refused {
        SignatureError::Altered => altered(),
        SignatureError::Expired => {
            ApiError::new(ErrorCode::LinkRefused, "this address has expired; ask for a new one")
        }
    })?;
    let row = store.attachments.attachment(&s3_ref).await.map_err(wire)?;
    Ok((Blob { uploads, rows: &*store.attachments, row: row.ok_or_else(unknown)? }, signed))
}

/// `PUT /v1/blobs/{s3_ref}`: the bytes, once.
pub async fn put(
    State(state): State<AppState>,
    address: SignedUrl,
    request: Request,
) -> Result<Response, ApiError> {
    let (blob, _) = admitted(&state, "PUT", address).await?;
    let there = || ApiError::new(ErrorCode::AlreadyUploaded, "the bytes are there already, and never change");
    match blob.row.state {
        UploadState::Expected => {}
        UploadState::Uploaded => return Err(there()),
        UploadState::Collecting => return Err(unknown()),
    }
    check_length(request.headers(), blob.row.bytes)?;
    let mut incoming = blob.uploads.receive(&blob.row).map_err(not_now)?;
    let kept = blob.receive(request.into_body(), &mut incoming).await?;
    // If it was there before us, whoever put it there died before this.
    let marked = blob.rows.uploaded(&blob.row.s3_ref).await.map_err(wire)?;
    if kept && !marked {
        blob.discard_if_collected().await?;
    }
    match kept {
        true => {
            metrics::counter!("bluetick_upload_bytes_total").increment(blob.row.bytes);
            Ok((StatusCode::CREATED, [(header::ETAG, etag(&blob.row))]).into_response())
        }
        false => Err(there()),
    }
}

fn check_length(headers: &HeaderMap, announced: u64) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match given.and_then(|text| text.parse::<u64>().ok()) {
        Some(given) if given != announced => {
            Err(mismatch(format!("{announced} bytes were announced, and {given} are coming")))
        }
        _ => Ok(()),
    }
}

impl Blob<'_> {
    /// Streams the bytes to a temporary file and publishes it if they match the announcement.
    /// Returns false if the attachment exists already.
    async fn receive(&self, body: Body, incoming: &mut IncomingUpload<'_>) -> Result<bool, ApiError> {
        let objects = self.uploads.objects();
        let unique = self.uploads.unique(&self.row.s3_ref);
        let mut new = objects.create(&key_of(&self.row.s3_ref), &unique).await.map_err(wire)?;
        let copied =
            tokio::time::timeout(self.uploads.deadline(self.row.bytes), self.copy(body, &mut new, incoming));
        copied.await.map_err(|_| too_slow("the bytes came too slowly"))??;
        Ok(objects.keep(new).await.map_err(wire)?)
    }

    async fn copy(
        &self,
        body: Body,
        new: &mut NewObject,
        incoming: &mut IncomingUpload<'_>,
    ) -> Result<(), ApiError> {
        let announced = self.row.bytes;
        let mut pieces = body.into_data_stream();
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut rate = self.uploads.minimum_rate();
        let (mut taken, mut silent) = (0, Duration::ZERO);
        loop {
            let began = Instant::now();
            let next = tokio::time::timeout(rate.judge_every(), pieces.next()).await;
            let arrived = match &next {
                Ok(Some(Ok(piece))) => piece.len() as u64,
                _ => 0,
            };
            let waited = began.elapsed();
            silent = if arrived > 0 { Duration::ZERO } else { silent + waited };
            let piece = match next {
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(mismatch("the bytes did not arrive whole".into())),
                _ if !rate.keeps_up(waited, arrived) => {
                    return Err(too_slow("the bytes come more slowly than this server waits for"));
                }
                _ if silent >= IDLE_TIMEOUT => return Err(too_slow("nothing came for too long")),
                Ok(Some(Ok(piece))) => piece,
                Err(_) => continue,
            };
            taken += piece.len() as u64;
            if taken > announced {
                return Err(mismatch(format!("{announced} bytes were announced, and more came")));
            }
            hash.update(&piece);
            incoming.reserve(arrived).map_err(not_now)?;
            self.uploads.objects().append(new, &piece).await.map_err(wire)?;
            incoming.wrote(arrived);
        }
        if taken != announced {
            return Err(mismatch(format!("{announced} bytes were announced, and {taken} came")));
        }
        let found = hex(hash.finish().as_ref());
        match found == self.row.sha256 {
            true => Ok(()),
            false => Err(mismatch(format!("the bytes have the SHA-256 {found}, and another was announced"))),
        }
    }

    /// An upload that comes when its row is being collected would stay for ever.
    async fn discard_if_collected(&self) -> Result<(), ApiError> {
        let row = self.rows.attachment(&self.row.s3_ref).await.map_err(wire)?;
        if row.is_some_and(|row| row.state == UploadState::Uploaded) {
            return Ok(());
        }
        self.uploads.remove(&self.row).await.map_err(wire)?;
        Err(unknown())
    }
}

/// `GET /v1/blobs/{s3_ref}`: all the bytes, or a range of them.
pub async fn get(
    State(state): State<AppState>,
    address: SignedUrl,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let (Blob { uploads, row, .. }, signed) = admitted(&state, "GET", address).await?;
    if row.state != UploadState::Uploaded {
        return Err(unknown());
    }
    let (tag, guarded) = (etag(&row), guarded(&row, uploads.lasts_for(signed.expires)));
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let same = |list: &str| list.split(',').any(|one| one.trim() == "*" || one.trim() == tag);
    if text(header::IF_NONE_MATCH).is_some_and(same) {
        // Of a length that is not known: none is told, since it would be that of the bytes.
        let nothing = Body::from_stream(stream::empty::<std::io::Result<Bytes>>());
        return Ok((StatusCode::NOT_MODIFIED, guarded, nothing).into_response());
    }
    let wanted = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|given| given == tag));
    let whole = 0..row.bytes;
    let (status, range) =
        match wanted.map_or(RequestedRange::Whole, |wanted| requested_range(wanted, row.bytes)) {
            RequestedRange::Whole => (StatusCode::OK, whole),
            RequestedRange::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            RequestedRange::Nothing => {
                let mut response = (StatusCode::RANGE_NOT_SATISFIABLE, guarded).into_response();
                put_header(&mut response, header::CACHE_CONTROL, "no-store");
                put_header(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", row.bytes));
                return Ok(response);
            }
        };
    // Each answer keeps a file open until it is read, and a signed address may be used any number
    // of times.
    state.in_flight.enter_download(&parts, &row.s3_ref).await?;
    let pieces = uploads.objects().stream(&key_of(&row.s3_ref), range.clone()).await.map_err(wire)?;
    let pieces = pieces.ok_or_else(|| {
        tracing::error!(s3_ref = %row.s3_ref, "the bytes of an attachment are gone");
        ApiError::new(ErrorCode::Internal, "the bytes of this attachment are gone from the server")
    })?;
    let mut response = (status, guarded, Body::from_stream(pieces)).into_response();
    put_header(&mut response, header::CONTENT_LENGTH, &(range.end - range.start).to_string());
    put_header(&mut response, header::CONTENT_TYPE, &row.mime);
    put_header(&mut response, header::CONTENT_DISPOSITION, &disposition(&row.mime, &row.name));
    if status == StatusCode::PARTIAL_CONTENT {
        let shown = format!("bytes {}-{}/{}", range.start, range.end - 1, row.bytes);
        put_header(&mut response, header::CONTENT_RANGE, &shown);
    }
    Ok(response)
}

/// Headers of every response. The bytes come from a user, so they must not run as part of this
/// site. Caches keep them no longer than the URL is valid.
fn guarded(row: &AttachmentRow, lasts: Duration) -> [(HeaderName, String); 6] {
    [
        (header::ETAG, etag(row)),
        (header::ACCEPT_RANGES, "bytes".into()),
        (header::CACHE_CONTROL, format!("private, max-age={}, immutable", lasts.as_secs())),
        (header::VARY, "origin".into()),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'; frame-ancestors 'none'".into()),
        (HeaderName::from_static("cross-origin-resource-policy"), "cross-origin".into()),
    ]
}

fn put_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn etag(row: &AttachmentRow) -> String {
    format!("\"{}\"", row.sha256)
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Whole,
    Part(Range<u64>),
    Nothing,
}

/// Parses a `Range` header. One that is malformed, or has several ranges, is ignored, as RFC 9110
/// allows.
fn requested_range(header: &str, length: u64) -> RequestedRange {
    let Some((first, last)) = header
        .trim()
        .strip_prefix("bytes=")
        .filter(|ranges| !ranges.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Ok(first), Err(_)) if last.is_empty() => first..length,
        (Err(_), Ok(count)) if first.is_empty() => length.saturating_sub(count)..length,
        _ => return RequestedRange::Whole,
    };
    match range.start < range.end {
        true => RequestedRange::Part(range),
        false => RequestedRange::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_meant() {
        for (header, expected) in [
            ("bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=2-", RequestedRange::Part(2..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-30", RequestedRange::Part(0..10)),
            ("bytes=5-99", RequestedRange::Part(5..10)),
            ("bytes=5-18446744073709551615", RequestedRange::Part(5..10)),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
            ("bytes=3-2", RequestedRange::Whole),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("lines=0-1", RequestedRange::Whole),
            ("bytes=x-y", RequestedRange::Whole),
            ("", RequestedRange::Whole),
        ] {
            assert_eq!(requested_range(header, 10), expected, "{header}");
        }
    }
}
