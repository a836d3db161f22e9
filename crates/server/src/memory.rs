//! The global allocator, and returning free memory to the operating system.
//!
//! A message takes about a dozen small allocations on several threads. mimalloc is faster there
//! than the system's allocator (docs/performance.md). Each thread keeps the memory it freed, so
//! after many sessions have closed, or a checkpoint has emptied the memtables, every thread is
//! asked to return it.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// mimalloc, without the longer path for alignments unless a layout needs one. The `mimalloc` crate
/// takes that path for every allocation (docs/decisions/0031-allocator-shim-and-read-rate.md).
pub struct Mimalloc;

/// Whether `mi_malloc` suffices: it aligns every block to a pointer.
fn has_default_alignment(layout: Layout) -> bool {
    layout.align() <= align_of::<usize>()
}

// SAFETY: mimalloc returns null or a block of at least the requested size, aligned as requested and
// at least to a pointer. `mi_free` and `mi_realloc` accept blocks from all its functions.
#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match has_default_alignment(layout) {
            // SAFETY: every size is allowed.
            true => unsafe { mi_malloc(layout.size()) }.cast(),
            // SAFETY: as above; the alignment of a layout is a power of two.
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match has_default_alignment(layout) {
            // SAFETY: as in `alloc`.
            true => unsafe { mi_zalloc(layout.size()) }.cast(),
            // SAFETY: as in `alloc`.
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: the caller passes a block of this allocator.
        unsafe { mi_free(ptr.cast()) };
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match has_default_alignment(layout) {
            // SAFETY: the caller passes a block of this allocator.
            true => unsafe { mi_realloc(ptr.cast(), new_size) }.cast(),
            // SAFETY: as above, and as in `alloc`.
            false => unsafe { mi_realloc_aligned(ptr.cast(), new_size, layout.align()) }.cast(),
        }
    }
}

/// How many times `release_free_memory` was called.
static REQUESTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The value of `REQUESTED` that this thread has handled.
    static HANDLED: Cell<usize> = const { Cell::new(0) };
}

/// Makes every thread return its free memory to the operating system the next time it is idle.
pub fn release_free_memory() {
    REQUESTED.fetch_add(1, Ordering::Relaxed);
    on_thread_park();
}

/// Runs before a thread parks. Returns its free memory if that was requested since the last time.
#[expect(unsafe_code, reason = "no crate has a safe wrapper of mi_collect")]
pub fn on_thread_park() {
    let requested = REQUESTED.load(Ordering::Relaxed);
    if HANDLED.replace(requested) != requested {
        // SAFETY: `mi_collect` takes no pointers and may be called on any thread at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}
