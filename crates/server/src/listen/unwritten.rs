//! What a connection owes until its write buffer is empty.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

/// Things that are dropped when all that was answered on a connection has been written to its socket, or when the
/// connection ends. Requests carry it as an extension.
#[derive(Clone, Default)]
pub struct Unwritten(Arc<State>);

#[derive(Default)]
struct State {
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    is_upgraded: AtomicBool,
}

impl Unwritten {
    /// Keeps something until what was answered before is written.
    pub fn keep(&self, thing: Box<dyn Any + Send>) {
        self.0.kept.lock().push(thing);
    }

    /// All is written.
    pub fn written(&self) {
        let kept = std::mem::take(&mut *self.0.kept.lock());
        drop(kept);
    }

    /// The connection becomes a WebSocket, whose session judges how fast it is read.
    pub fn upgrade(&self) {
        self.0.is_upgraded.store(true, Ordering::Relaxed);
    }

    pub fn is_upgraded(&self) -> bool {
        self.0.is_upgraded.load(Ordering::Relaxed)
    }
}
