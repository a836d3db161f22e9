//! How many HTTP requests of one user, and how many for the bytes of one attachment, are in flight
//! in this process. A request is in flight until its answer has been written to the socket: an
//! answer that nobody reads is memory or an open file, and whoever asks may open many connections.

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

/// How long a request waits for an earlier one of its user to end.
const WAIT: Duration = Duration::from_secs(5);
/// When to try again after that.
const RETRY_AFTER_MS: u64 = 1_000;
/// Requests for the bytes of one attachment at a time. Two people read it, each on a few devices,
/// and a player may ask for several ranges at once.
const DOWNLOADS_PER_ATTACHMENT: usize = 16;

/// Counts requests by user or attachment. Only those with a request in flight take memory.
#[derive(Clone)]
pub struct InFlight {
    /// Requests of one user; 0 is no limit.
    most: usize,
    counts: Counts,
}

type Counts = Arc<Mutex<HashMap<CountedBy, Arc<Semaphore>>>>;

/// Downloads come with a signed address and no token: nobody knows whose they are.
#[derive(Clone, PartialEq, Eq, Hash)]
enum CountedBy {
    User(UserId),
    Attachment(S3Ref),
}

/// One request's place among those that are counted with it, given back when dropped.
pub struct Place {
    by: CountedBy,
    counts: Counts,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    /// With 0, everybody has a place.
    pub fn new(most: usize) -> Self {
        InFlight { most, counts: Arc::default() }
    }

    /// Waits a moment for a place if the user has none left. `None`: there was no limit to keep.
    async fn take(&self, user: &UserId) -> Result<Option<Place>, WireError> {
        match self.most {
            0 => Ok(None),
            most => self.take_one_of(most, CountedBy::User(user.clone())).await.map(Some),
        }
    }

    async fn take_one_of(&self, most: usize, by: CountedBy) -> Result<Place, WireError> {
        let semaphore = {
            let mut counts = self.counts.lock();
            counts.entry(by.clone()).or_insert_with(|| Arc::new(Semaphore::new(most))).clone()
        };
        // From here on the entry is looked after, whether or not the request gets its place.
        let counts = self.counts.clone();
        let mut place = Place { by, counts, semaphore: Some(semaphore.clone()), permit: None };
        match tokio::time::timeout(WAIT, semaphore.acquire_owned()).await {
            Ok(Ok(permit)) => {
                place.permit = Some(permit);
                Ok(place)
            }
            // A semaphore that nobody closes has no other error.
            Ok(Err(_)) | Err(_) => {
                let whose = match place.by {
                    CountedBy::User(_) => "of this user",
                    CountedBy::Attachment(_) => "for this attachment",
                };
                let why = format!("{most} requests {whose} are in flight already; read their answers first");
                Err(WireError::new(ErrorCode::RateLimited, why).retry_after(RETRY_AFTER_MS))
            }
        }
    }

    /// Takes a place for a request of a user, and leaves it for [`hold`].
    pub async fn enter(&self, parts: &Parts, user: &UserId) -> Result<(), ApiError> {
        if let Some(held) = parts.extensions.get::<Held>()
            && let Some(place) = self.take(user).await?
        {
            held.0.lock().get_or_insert(place);
        }
        Ok(())
    }

    /// Takes a place for a request for the bytes of an attachment, and leaves it for [`hold`].
    pub async fn enter_download(&self, parts: &Parts, s3_ref: &S3Ref) -> Result<(), ApiError> {
        if let Some(held) = parts.extensions.get::<Held>() {
            let by = CountedBy::Attachment(s3_ref.clone());
            let place = self.take_one_of(DOWNLOADS_PER_ATTACHMENT, by).await?;
            held.0.lock().get_or_insert(place);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        drop((self.permit.take(), self.semaphore.take()));
        // Whoever waits for a permit has the semaphore too, and new ones take it under the lock.
        if counts.get(&self.by).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            counts.remove(&self.by);
        }
        // Room made for a crowd is given back when it has left.
        if counts.capacity() > 1024 && counts.len() < counts.capacity() / 8 {
            counts.shrink_to_fit();
        }
    }
}

/// Where a handler leaves its request's place.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Option<Place>>>);

/// Answers a request, and lets the place that it takes last until the answer has been written.
pub async fn hold<F: Future<Output = Response>>(
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let held = Held::default();
    let unwritten = request.extensions().get::<Unwritten>().cloned();
    request.extensions_mut().insert(held.clone());
    let response = answer(request).await;
    let place = held.0.lock().take();
    match place {
        Some(place) => response.map(|body| Body::new(Answer { body, place: Some(place), unwritten })),
        None => response,
    }
}

/// A body that holds a place. HTTP takes it whole into its write buffer long before a slow client reads it, so the
/// place goes on to the connection, which gives it back when that buffer is empty.
struct Answer {
    body: Body,
    place: Option<Place>,
    unwritten: Option<Unwritten>,
}

impl HttpBody for Answer {
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

impl Drop for Answer {
    fn drop(&mut self) {
        if let (Some(place), Some(unwritten)) = (self.place.take(), &self.unwritten) {
            unwritten.keep(Box::new(place));
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
        let in_flight = InFlight::new(2);
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
        assert!(third.unwrap().is_some(), "a place that is given back goes to who waits");
        assert!(InFlight::new(0).take(&alice).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attachment_has_so_many_downloads_whoever_makes_them() {
        let in_flight = InFlight::new(0);
        let download = async |n: u8| {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Held::default());
            let (parts, _) = request.into_parts();
            in_flight.enter_download(&parts, &S3Ref::mint(1, [n; 10])).await.map(|()| parts)
        };
        let mut places = Vec::new();
        for _ in 0..DOWNLOADS_PER_ATTACHMENT {
            places.push(download(1).await.unwrap());
        }
        assert!(download(1).await.is_err());
        assert!(download(2).await.is_ok(), "another one has its own");
        places.pop();
        assert!(download(1).await.is_ok());
        drop(places);
        assert!(in_flight.counts.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_in_flight_takes_no_memory() {
        let in_flight = InFlight::new(1);
        let alice = user("alice");
        let place = in_flight.take(&alice).await.unwrap();
        assert!(in_flight.take(&alice).await.is_err());
        let gave_up = tokio::time::timeout(WAIT / 2, in_flight.take(&alice)).await;
        assert!(gave_up.is_err());
        assert_eq!(in_flight.counts.lock().len(), 1);
        drop(place);
        assert!(in_flight.counts.lock().is_empty());
        let many: Vec<_> = (0..5000).map(|n| user(&format!("u{n}"))).collect();
        let mut places = Vec::new();
        for user in &many {
            places.push(in_flight.take(user).await.unwrap());
        }
        drop(places);
        assert!(in_flight.counts.lock().is_empty() && in_flight.counts.lock().capacity() <= 1024);
    }

    #[tokio::test]
    async fn an_answer_holds_its_place_until_it_is_written() {
        let in_flight = InFlight::new(1);
        let unwritten = Unwritten::default();
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(unwritten.clone());
        let response = hold(request, async |request: Request| {
            let (parts, _) = request.into_parts();
            in_flight.enter(&parts, &user("alice")).await.unwrap_or_else(|_| panic!("a place"));
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
