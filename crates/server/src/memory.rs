//! The allocator, and giving memory back. A server allocates a little for each of very many messages, on several threads; the
//! system's allocator takes a tenth of all its time (docs/performance.md).
//!
//! The allocator keeps what thousands of sessions freed, in each thread what that thread had; after many have gone, or a
//! checkpoint has emptied the tables in memory, every thread is asked to return it.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// mimalloc. Its own crate asks for an alignment with every allocation, which takes a longer way; hardly any needs one.
pub struct Mimalloc;

/// Whatever is allocated has the alignment of a pointer.
fn is_plain(layout: Layout) -> bool {
    layout.align() <= align_of::<usize>()
}

// SAFETY: mimalloc keeps to the contract: what it returns is null or has the size that was asked for, and the alignment, which is
// a pointer's at least; `mi_free` and `mi_realloc` take what any of the others returned.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_plain(layout) {
            // SAFETY: any size may be asked for.
            true => unsafe { mi_malloc(layout.size()) }.cast(),
            // SAFETY: as above; a layout's alignment is a power of two.
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_plain(layout) {
            // SAFETY: as in `alloc`.
            true => unsafe { mi_zalloc(layout.size()) }.cast(),
            // SAFETY: as in `alloc`.
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: the caller has it from here.
        unsafe { mi_free(ptr.cast()) };
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match is_plain(layout) {
            // SAFETY: the caller has it from here.
            true => unsafe { mi_realloc(ptr.cast(), new_size) }.cast(),
            // SAFETY: the same, and as in `alloc`.
            false => unsafe { mi_realloc_aligned(ptr.cast(), new_size, layout.align()) }.cast(),
        }
    }
}

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
