//! A slot for at most one future in progress: how a loop that owns its futures waits for them.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;

/// Ready when the future in the slot completes, which empties the slot. An empty slot is never
/// ready.
pub(crate) fn poll_slot<T>(slot: &mut Option<BoxFuture<'_, T>>, cx: &mut Context<'_>) -> Poll<T> {
    let Some(work) = slot else { return Poll::Pending };
    let done = work.as_mut().poll(cx);
    if done.is_ready() {
        *slot = None;
    }
    done
}

/// The same, to be awaited.
pub(crate) async fn ready<T>(slot: &mut Option<BoxFuture<'_, T>>) -> T {
    poll_fn(|cx| poll_slot(slot, cx)).await
}
