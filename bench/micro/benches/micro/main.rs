//! The instruction counts of the hot paths. `scripts/bench-micro` runs it under valgrind, each
//! function in its own process.

mod append;
mod codec;
mod count;
mod drain;
mod line;
mod server;
mod tick;

use gungraun::{Callgrind, EntryPoint, LibraryBenchmarkConfig, main};

use append::append_group;
use codec::codec_group;
use drain::drain_group;
use tick::tick_group;

main!(
    config = LibraryBenchmarkConfig::default().tool(
        // `count.rs` says where counting begins and ends.
        Callgrind::with_args(["--instr-atstart=no", "--cache-sim=no"]).entry_point(EntryPoint::None)
    ),
    library_benchmark_groups = [codec_group, append_group, drain_group, tick_group]
);
