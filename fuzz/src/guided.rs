//! Runs a target under libFuzzer. The test harness owns `main`, so libFuzzer is called as a
//! function; its arguments come from `BLUETICK_LIBFUZZER_ARGS`.
#![allow(unsafe_code)] // libFuzzer is C++.

use std::{
    ffi::{CString, c_char, c_int},
    process, ptr,
    sync::OnceLock,
};

static TARGET: OnceLock<fn(&[u8]) -> bool> = OnceLock::new();

type Callback = unsafe extern "C" fn(*const u8, usize) -> c_int;

unsafe extern "C" {
    /// From libfuzzer-sys: calls `rust_fuzzer_test_input` below and aborts if that panics.
    fn LLVMFuzzerTestOneInput(data: *const u8, len: usize) -> c_int;
    fn LLVMFuzzerRunDriver(argc: *mut c_int, argv: *mut *mut *mut c_char, callback: Callback) -> c_int;
}

#[unsafe(no_mangle)]
extern "C" fn rust_fuzzer_test_input(bytes: &[u8]) -> i32 {
    if let Some(target) = TARGET.get() {
        target(bytes);
    }
    0
}

pub(crate) fn run(target: fn(&[u8]) -> bool) -> ! {
    TARGET.set(target).expect("one target a process");
    libfuzzer_sys::initialize(ptr::null(), ptr::null());
    let given = std::env::var("BLUETICK_LIBFUZZER_ARGS").unwrap_or_default();
    let args: Vec<CString> = std::iter::once("fuzz")
        .chain(given.split_whitespace())
        .map(|arg| CString::new(arg).expect("an argument without a null byte"))
        .collect();
    let mut pointers: Vec<*mut c_char> = args.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    let mut count = pointers.len() as c_int;
    pointers.push(ptr::null_mut());
    let mut argv = pointers.as_mut_ptr();
    // SAFETY: `argv` is an array of `count` C strings and a null, as `main` gets it, and outlives
    // the call. libFuzzer calls the callback with a readable slice, on this thread.
    let code = unsafe { LLVMFuzzerRunDriver(&mut count, &mut argv, LLVMFuzzerTestOneInput) };
    process::exit(code)
}
