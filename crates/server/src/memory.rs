//! Giving memory back. The allocator keeps what thousands of sessions freed, in each thread what that thread had; after many have
//! gone, or a checkpoint has emptied the tables in memory, every thread is asked to return it.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// How often it was asked for.
static ASKED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static DONE: Cell<usize> = const { Cell::new(0) };
}

/// Asks all threads to return free memory to the operating system, each when it has nothing else to do.
pub fn give_back() {
    ASKED.fetch_add(1, Ordering::Relaxed);
    before_sleep();
}

/// What a thread does before it sleeps: nothing, unless it was asked since.
#[allow(unsafe_code)]
pub fn before_sleep() {
    let asked = ASKED.load(Ordering::Relaxed);
    if DONE.replace(asked) != asked {
        // SAFETY: `mi_collect` takes no pointers and may be called from any thread at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}
