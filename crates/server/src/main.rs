//! `bluetick`: one binary that serves 1:1 messaging, and the tools around it.

mod attachments;
mod auth;
mod backends;
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

/// Threads for blocking reads from disk. Further reads wait in a queue.
const READER_THREADS: usize = 16;
/// Tasks that a worker runs before it polls sockets and timers again. A high value makes more
/// events arrive together, so that they share a group commit, a socket write and warm caches. A
/// ready socket or timer waits for at most this many tasks, and not at all while a worker is idle.
const TASKS_BETWEEN_EVENTS: u32 = 1000;
/// How long the exit waits for busy threads. Everything that must be durable already is.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

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
        .on_thread_park(memory::on_thread_park)
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("bluetick: cannot start threads: {e}; check the limits on processes and open files");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(cli.run());
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    code
}

/// Debug builds abort at the failpoint that a test names in `BLUETICK_FAILPOINT`.
#[cfg(debug_assertions)]
fn arm_failpoint() -> Result<(), String> {
    match std::env::var("BLUETICK_FAILPOINT") {
        Ok(told) => bluetick_store::failpoint::arm_as_told(&told),
        Err(std::env::VarError::NotPresent) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// Aborts the process on any panic, in debug builds too. A panicking task could leave state half
/// changed while other tasks continue. The write-ahead log has every confirmed message, and clients
/// resume by themselves.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        match log::is_json() {
            // The backtrace is empty unless RUST_BACKTRACE is set.
            true => {
                tracing::error!(panic = %info, backtrace = %Backtrace::capture(), "panic: aborting; please report this bug")
            }
            false => {
                tracing::error!(panic = %info, "panic: aborting; please report this bug");
                print(info);
            }
        }
        std::process::abort();
    }));
}
