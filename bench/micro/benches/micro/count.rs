//! Counts the instructions of all threads during some work, and nothing before or after it.
//! Callgrind's entry point, a function's name, would leave out the store's own threads.

use std::hint::black_box;

/// Callgrind's client requests, as `callgrind.h` numbers them.
const START_INSTRUMENTATION: u64 = 0x4354_0004;
const STOP_INSTRUMENTATION: u64 = 0x4354_0005;

pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    ask_valgrind(START_INSTRUMENTATION);
    let done = black_box(work());
    ask_valgrind(STOP_INSTRUMENTATION);
    done
}

/// The instruction sequence that valgrind takes for a request, from `valgrind.h`. Without valgrind
/// it does nothing.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ask_valgrind(request: u64) {
    let words: [u64; 6] = [request, 0, 0, 0, 0, 0];
    // SAFETY: the rotations add up to a full turn and the exchange is of a register with itself;
    // valgrind reads the words and writes its answer to rdx.
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

/// The baselines are for x86-64; elsewhere nothing is counted, and the script says so.
#[cfg(not(target_arch = "x86_64"))]
fn ask_valgrind(_request: u64) {}
