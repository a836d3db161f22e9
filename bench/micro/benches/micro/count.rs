//! What counts: the instructions of all threads while some work is done, and nothing before or after it. A function's name
//! as callgrind's entry point would leave out what the store's own threads do.

use std::hint::black_box;

/// Callgrind's requests, as `callgrind.h` numbers them.
const START_INSTRUMENTATION: u64 = 0x4354_0004;
const STOP_INSTRUMENTATION: u64 = 0x4354_0005;

pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    ask_valgrind(START_INSTRUMENTATION);
    let done = black_box(work());
    ask_valgrind(STOP_INSTRUMENTATION);
    done
}

/// The instructions that valgrind takes for a request, from `valgrind.h`. On a bare processor they do nothing.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ask_valgrind(request: u64) {
    let words: [u64; 6] = [request, 0, 0, 0, 0, 0];
    // SAFETY: turns a register once around, in four steps, and exchanges another with itself; valgrind reads the words
    // and writes its answer.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") 0u64 => _,
            options(nostack),
        );
    }
}

/// The baselines are of x86-64; elsewhere nothing is counted, and the check says so.
#[cfg(not(target_arch = "x86_64"))]
fn ask_valgrind(_request: u64) {}
