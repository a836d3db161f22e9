//! A slot holds one future in progress, or none. A loop that owns its futures polls them in slots.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;

/// Polls the future in the slot and empties the slot when it is done. An empty slot is never ready.
pub(crate) fn poll_slot<T>(slot: &mut Option<BoxFuture<'_, T>>, cx: &mut Context<'_>) -> Poll<T> {
    let Some(work) = slot else { return Poll::Pending };
    let done = work.as_mut().poll(cx);
    if done.is_ready() {
        *slot = None;
    }
    done
}

/// As [`poll_slot`], to be awaited.
pub(crate) async fn ready<T>(slot: &mut Option<BoxFuture<'_, T>>) -> T {
    poll_fn(|cx| poll_slot(slot, cx)).await
}
