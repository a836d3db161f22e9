//! `bluetick`: one binary that serves 1:1 messaging, and the tools around it.

mod attachments;
mod auth;
mod backends;
mod chance;
mod cli;
mod config;
mod gateway;
mod http;
mod limits;
mod listen;
mod log;
mod memory;
mod metrics;
mod permissions;
#[allow(dead_code, unused_imports, reason = "until the service that decides starts it")]
mod push;
mod readiness;
mod roles;
#[cfg(feature = "cluster")]
mod rpc;
mod serve;
mod tls;

use std::{backtrace::Backtrace, process::ExitCode, time::Duration};

use clap::Parser;

#[global_allocator]
static ALLOCATOR: memory::Mimalloc = memory::Mimalloc;

/// Threads for reads that touch the disk. A burst of them must wait its turn rather than become a burst of threads.
const READER_THREADS: usize = 16;
/// Tasks that a thread runs before it looks at the sockets and timers again, while there are any to run. The more of what has come is found at
/// once, the more of it shares a group of the log, a write to a socket, and code and data that the processor has at hand. Who
/// waits for a socket, a timer or its next turn waits for so many tasks at most, and where threads are idle for none.
const TASKS_BETWEEN_EVENTS: u32 = 1000;
/// How long threads that are still busy may hold up the exit; what had to be durable is so already.
const LINGER: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    abort_on_panic();
    permissions::restrict_new_files();
    tls::install_provider();
    let cli = cli::Cli::parse();
    #[cfg(debug_assertions)]
    if let Err(why) = arm_failpoint() {
        eprintln!("bluetick: BLUETICK_FAILPOINT: {why}");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("bluetick")
        .max_blocking_threads(READER_THREADS)
        .event_interval(TASKS_BETWEEN_EVENTS)
        .on_thread_park(memory::before_sleep)
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("bluetick: cannot start threads: {e}; check the limits on processes and open files");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(cli.run());
    runtime.shutdown_timeout(LINGER);
    code
}

/// A debug build dies where it is told to, so that a test can see what that leaves behind.
#[cfg(debug_assertions)]
fn arm_failpoint() -> Result<(), String> {
    match std::env::var("BLUETICK_FAILPOINT") {
        Ok(told) => bluetick_store::failpoint::arm_as_told(&told),
        Err(std::env::VarError::NotPresent) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// A panicking task could leave half of a state behind while the rest of the server goes on. Clients resume by
/// themselves and the log has what was acked, so the process ends instead, in debug builds too.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        match log::is_json() {
            // With a backtrace if RUST_BACKTRACE asks for one.
            true => {
                tracing::error!(panic = %info, backtrace = %Backtrace::capture(), "a bug: the process ends")
            }
            false => {
                tracing::error!(panic = %info, "a bug: the process ends");
                print(info);
            }
        }
        std::process::abort();
    }));
}
