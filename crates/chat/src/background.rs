//! Work of an app server that no request waits for.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most jobs that run in the background of an app server at once. Each lives no longer than a few
/// hand-over deadlines.
const BACKGROUND_MAX: u32 = 4_096;

/// Starts tasks that outlive their request. Like the clock, it is given to a
/// [`ChatService`](crate::ChatService): a simulated process takes its tasks with it when it crashes.
pub trait Spawner: Send + Sync {
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Jobs that go on after their request is answered. They are bounded: without room, or without a
/// spawner, a request does the work itself before it answers.
#[derive(Default)]
pub struct Background {
    spawner: Option<Arc<dyn Spawner>>,
    room: Option<Arc<Semaphore>>,
}

impl Background {
    pub(crate) fn new(spawner: Arc<dyn Spawner>) -> Background {
        let room = Semaphore::new(BACKGROUND_MAX as usize);
        Background { spawner: Some(spawner), room: Some(Arc::new(room)) }
    }

    /// Room for one job, if there is any.
    pub(crate) fn slot(&self) -> Option<BackgroundSlot<'_>> {
        let spawner = self.spawner.as_deref()?;
        let permit = self.room.clone()?.try_acquire_owned().ok()?;
        Some(BackgroundSlot { spawner, permit })
    }

    /// Runs the job in the background, or gives it back if there is no room.
    pub(crate) fn run<F: Future<Output = ()> + Send + 'static>(&self, job: F) -> Option<F> {
        match self.slot() {
            Some(slot) => {
                slot.run(job);
                None
            }
            None => Some(job),
        }
    }

    /// Resolves when no job is running. A shutdown calls it when no new requests arrive.
    pub async fn idle(&self) {
        if let Some(room) = &self.room {
            let _ = room.acquire_many(BACKGROUND_MAX).await;
        }
    }
}

pub(crate) struct BackgroundSlot<'a> {
    spawner: &'a dyn Spawner,
    permit: OwnedSemaphorePermit,
}

impl BackgroundSlot<'_> {
    pub(crate) fn run(self, job: impl Future<Output = ()> + Send + 'static) {
        let permit = self.permit;
        self.spawner.spawn(Box::pin(async move {
            job.await;
            drop(permit);
        }));
    }
}
