//! Giving memory back. The allocator keeps for a while what thousands of sessions freed; after many have gone, or a
//! checkpoint has emptied the tables in memory, it is asked to return it.

/// Returns free memory to the operating system. Cheap enough for now and then, not for every request.
#[allow(unsafe_code)]
pub fn give_back() {
    // SAFETY: `mi_collect` takes no pointers and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
