//! Values that live until a connection's write buffer is empty.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

/// Values that are dropped when all responses on a connection have been written to its socket, or
/// when the connection ends. Every request carries a handle as an extension.
#[derive(Clone, Default)]
pub struct Unwritten(Arc<ConnectionState>);

#[derive(Default)]
struct ConnectionState {
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    is_upgraded: AtomicBool,
}

impl Unwritten {
    /// Keeps a value until the responses so far are written.
    pub fn keep(&self, thing: Box<dyn Any + Send>) {
        self.0.kept.lock().push(thing);
    }

    /// Drops all values: the write buffer is empty.
    pub fn written(&self) {
        let kept = std::mem::take(&mut *self.0.kept.lock());
        drop(kept);
    }

    /// The connection becomes a WebSocket. Its session enforces a minimum read rate itself.
    pub fn upgrade(&self) {
        self.0.is_upgraded.store(true, Ordering::Relaxed);
    }

    pub fn is_upgraded(&self) -> bool {
        self.0.is_upgraded.load(Ordering::Relaxed)
    }
}
