//! A place for one piece of work under way, or none: how a loop that owns its futures waits for them in a `select!`.

use std::future::pending;

use futures_util::future::BoxFuture;

/// Resolves when the work in the slot is done, and empties the slot; never, if there is none.
pub(crate) async fn ready<T>(slot: &mut Option<BoxFuture<'_, T>>) -> T {
    match slot {
        Some(future) => {
            let done = future.await;
            *slot = None;
            done
        }
        None => pending().await,
    }
}
