//! The limit of HTTP requests in flight in this process, per user and per downloaded attachment. A
//! request is in flight until its response has been written to the socket: a response that its
//! client does not read holds memory or an open file, and one client may open many connections.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::request::Parts,
    response::Response,
};
use bluetick_protocol::{ErrorCode, S3Ref, UserId, WireError};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use crate::listen::Unwritten;

/// How long a request waits for a permit.
const WAIT: Duration = Duration::from_secs(5);
/// The retry time in the error after that.
const RETRY_AFTER_MS: u64 = 1_000;
/// Downloads of one attachment at a time. Two users read it, each on a few devices, and a media
/// player may request several ranges at once.
const DOWNLOADS_PER_ATTACHMENT: usize = 16;

/// Counts requests by user or attachment. Keys without a request in flight take no memory.
#[derive(Clone)]
pub struct InFlightLimit {
    /// Requests of one user; 0 is no limit.
    max: usize,
    counts: Semaphores,
}

type Semaphores = Arc<Mutex<HashMap<CountedBy, Arc<Semaphore>>>>;

/// Downloads carry a signed URL and no token, so their user is unknown.
#[derive(Clone, PartialEq, Eq, Hash)]
enum CountedBy {
    User(UserId),
    Attachment(S3Ref),
}

/// The permit of one request, returned when dropped.
pub struct InFlightPermit {
    by: CountedBy,
    counts: Semaphores,
    semaphore: Option<Arc<Semaphore>>,
    acquired: Option<OwnedSemaphorePermit>,
}

impl InFlightLimit {
    /// With 0 there is no limit.
    pub fn new(max: usize) -> Self {
        InFlightLimit { max, counts: Arc::default() }
    }

    /// Waits up to `WAIT` for a permit. `None` without a limit.
    async fn take(&self, user: &UserId) -> Result<Option<InFlightPermit>, WireError> {
        match self.max {
            0 => Ok(None),
            max => self.take_one_of(max, CountedBy::User(user.clone())).await.map(Some),
        }
    }

    async fn take_one_of(&self, max: usize, by: CountedBy) -> Result<InFlightPermit, WireError> {
        let semaphore = {
            let mut counts = self.counts.lock();
            counts.entry(by.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
        };
        // From here on, dropping the permit removes an unused entry, even if the wait times out.
        let counts = self.counts.clone();
        let mut permit = InFlightPermit { by, counts, semaphore: Some(semaphore.clone()), acquired: None };
        match tokio::time::timeout(WAIT, semaphore.acquire_owned()).await {
            Ok(Ok(acquired)) => {
                permit.acquired = Some(acquired);
                Ok(permit)
            }
            // The semaphore is never closed, so only the timeout occurs.
            Ok(Err(_)) | Err(_) => {
                let whose = match permit.by {
                    CountedBy::User(_) => "of this user",
                    CountedBy::Attachment(_) => "for this attachment",
                };
                let why = format!("{max} requests {whose} are already in flight; read their responses first");
                Err(WireError::new(ErrorCode::RateLimited, why).retry_after(RETRY_AFTER_MS))
            }
        }
    }

    /// Takes a permit for a user's request and leaves it for [`hold`].
    pub async fn enter(&self, parts: &Parts, user: &UserId) -> Result<(), ApiError> {
        if let Some(slot) = parts.extensions.get::<PermitSlot>()
            && let Some(permit) = self.take(user).await?
        {
            slot.0.lock().get_or_insert(permit);
        }
        Ok(())
    }

    /// Takes a permit for a download and leaves it for [`hold`].
    pub async fn enter_download(&self, parts: &Parts, s3_ref: &S3Ref) -> Result<(), ApiError> {
        if let Some(slot) = parts.extensions.get::<PermitSlot>() {
            let by = CountedBy::Attachment(s3_ref.clone());
            let permit = self.take_one_of(DOWNLOADS_PER_ATTACHMENT, by).await?;
            slot.0.lock().get_or_insert(permit);
        }
        Ok(())
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        drop((self.acquired.take(), self.semaphore.take()));
        // Waiters hold the semaphore too, and new requests clone it under the lock.
        if counts.get(&self.by).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            counts.remove(&self.by);
        }
        // Shrink after a peak.
        if counts.capacity() > 1024 && counts.len() < counts.capacity() / 8 {
            counts.shrink_to_fit();
        }
    }
}

/// Where an extractor leaves the permit of its request.
#[derive(Clone, Default)]
struct PermitSlot(Arc<Mutex<Option<InFlightPermit>>>);

/// Handles a request and keeps its permit until the response has been written.
pub async fn hold<F: Future<Output = Response>>(
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let slot = PermitSlot::default();
    let unwritten = request.extensions().get::<Unwritten>().cloned();
    request.extensions_mut().insert(slot.clone());
    let response = answer(request).await;
    let permit = slot.0.lock().take();
    match permit {
        Some(permit) => response.map(|body| Body::new(CountedBody { body, permit: Some(permit), unwritten })),
        None => response,
    }
}

/// A response body that holds a permit. hyper moves the body into its write buffer long before a
/// slow client reads it, so dropping the body passes the permit to the connection, which returns it
/// when that buffer is empty.
struct CountedBody {
    body: Body,
    permit: Option<InFlightPermit>,
    unwritten: Option<Unwritten>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if let (Some(permit), Some(unwritten)) = (self.permit.take(), &self.unwritten) {
            unwritten.keep(Box::new(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_so_many_places_and_others_have_their_own() {
        let in_flight = InFlightLimit::new(2);
        let alice = user("alice");
        let first = in_flight.take(&alice).await.unwrap().unwrap();
        let _second = in_flight.take(&alice).await.unwrap().unwrap();
        let refused = in_flight.take(&alice).await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::RateLimited, Some(RETRY_AFTER_MS)));
        assert!(in_flight.take(&user("bob")).await.is_ok());
        let waiting = in_flight.take(&alice);
        let (third, ()) = tokio::join!(waiting, async {
            tokio::time::sleep(WAIT / 2).await;
            drop(first);
        });
        assert!(third.unwrap().is_some(), "a permit that is given back goes to who waits");
        assert!(InFlightLimit::new(0).take(&alice).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attachment_has_so_many_downloads_whoever_makes_them() {
        let in_flight = InFlightLimit::new(0);
        let download = async |n: u8| {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(PermitSlot::default());
            let (parts, _) = request.into_parts();
            in_flight.enter_download(&parts, &S3Ref::mint(1, [n; 10])).await.map(|()| parts)
        };
        let mut permits = Vec::new();
        for _ in 0..DOWNLOADS_PER_ATTACHMENT {
            permits.push(download(1).await.unwrap());
        }
        assert!(download(1).await.is_err());
        assert!(download(2).await.is_ok(), "another one has its own");
        permits.pop();
        assert!(download(1).await.is_ok());
        drop(permits);
        assert!(in_flight.counts.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_in_flight_takes_no_memory() {
        let in_flight = InFlightLimit::new(1);
        let alice = user("alice");
        let permit = in_flight.take(&alice).await.unwrap();
        assert!(in_flight.take(&alice).await.is_err());
        let gave_up = tokio::time::timeout(WAIT / 2, in_flight.take(&alice)).await;
        assert!(gave_up.is_err());
        assert_eq!(in_flight.counts.lock().len(), 1);
        drop(permit);
        assert!(in_flight.counts.lock().is_empty());
        let many: Vec<_> = (0..5000).map(|n| user(&format!("u{n}"))).collect();
        let mut permits = Vec::new();
        for user in &many {
            permits.push(in_flight.take(user).await.unwrap());
        }
        drop(permits);
        assert!(in_flight.counts.lock().is_empty() && in_flight.counts.lock().capacity() <= 1024);
    }

    #[tokio::test]
    async fn an_answer_holds_its_place_until_it_is_written() {
        let in_flight = InFlightLimit::new(1);
        let unwritten = Unwritten::default();
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(unwritten.clone());
        let response = hold(request, async |request: Request| {
            let (parts, _) = request.into_parts();
            in_flight.enter(&parts, &user("alice")).await.unwrap_or_else(|_| panic!("a permit"));
            Response::new(Body::from("an answer"))
        });
        let response = response.await;
        assert_eq!(response.body().size_hint().exact(), Some(9));
        let taken = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(&taken[..], b"an answer");
        assert_eq!(in_flight.counts.lock().len(), 1, "it may still be in the write buffer");
        unwritten.written();
        assert!(in_flight.counts.lock().is_empty());
    }
}
