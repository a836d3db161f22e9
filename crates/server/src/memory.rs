//! Giving memory back. The system's allocator keeps what thousands of sessions freed; after many have gone, or a
//! checkpoint has emptied the tables in memory, it is asked to return it.

/// Returns free memory to the operating system. Cheap enough for now and then, not for every request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn give_back() {
    // SAFETY: `malloc_trim` takes no pointers and may be called from any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}
