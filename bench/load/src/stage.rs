//! How long a part of a run takes, and what it costs the server and the load generator.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    meter::{Meter, Second},
    process::Process,
};

/// A load generator that is busy for more of the time than this may be what the result shows.
const BUSY: f64 = 0.8;

#[derive(Debug, Serialize)]
pub struct Stage {
    pub messages: u64,
    pub seconds: f64,
    pub messages_per_second: f64,
    pub server_cpu_micros_per_message: Option<f64>,
    pub messages_per_server_cpu_second: Option<f64>,
    pub generator_cpu_micros_per_message: Option<f64>,
    /// How much of the processors that the load generator may use it did use.
    pub generator_busy: Option<f64>,
    pub per_second: Vec<Second>,
}

impl Stage {
    pub fn generator_is_the_limit(&self) -> bool {
        self.generator_busy.is_some_and(|busy| busy > BUSY)
    }
}

pub struct StageClock {
    begun: Instant,
    server: Option<Cpu>,
    generator: Option<Cpu>,
}

/// A process, and its time at the beginning.
struct Cpu(Process, Duration);

impl Cpu {
    fn look(process: Option<Process>) -> Option<Cpu> {
        let process = process?;
        Some(Cpu(process, process.cpu()?))
    }

    fn spent(&self) -> Option<f64> {
        Some(self.0.cpu()?.saturating_sub(self.1).as_secs_f64())
    }
}

impl StageClock {
    pub fn start(process: Option<Process>) -> StageClock {
        let (server, generator) = (Cpu::look(process), Cpu::look(Process::myself()));
        StageClock { begun: Instant::now(), server, generator }
    }

    /// With the meter that has counted the stage's messages.
    pub fn stop(self, messages: u64, meter: &Meter) -> Stage {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let server = self.server.and_then(|cpu| cpu.spent());
        let generator = self.generator.and_then(|cpu| cpu.spent());
        let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let count = messages.max(1) as f64;
        Stage {
            messages,
            seconds,
            messages_per_second: messages as f64 / seconds,
            server_cpu_micros_per_message: server.map(|spent| spent * 1e6 / count),
            messages_per_server_cpu_second: server
                .filter(|spent| *spent > 0.0)
                .map(|spent| messages as f64 / spent),
            generator_cpu_micros_per_message: generator.map(|spent| spent * 1e6 / count),
            generator_busy: generator.map(|spent| spent / seconds / cores),
            per_second: meter.seconds(),
        }
    }
}
