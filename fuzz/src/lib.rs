//! Shared support for the fuzz targets of all crates. A target is a test that gives a function to
//! [`fuzz`]; the function takes arbitrary bytes, panics if an invariant is broken, and returns
//! whether it accepted them.
//!
//! `cargo test` replays the target's corpus and then runs a fixed number of mutations of it.
//! `scripts/fuzz` builds the same tests with coverage counters and lets libFuzzer choose the inputs
//! for a given time.

mod corpus;
#[cfg(libfuzzer)]
mod guided;
mod mutate;
mod variants;

pub use corpus::golden;
pub use variants::for_every_variant;

/// Runs a target over `corpus/{name}` and over `cases` mutations of it; `BLUETICK_FUZZ_CASES`
/// overrides the number. An input that fails is added to the corpus.
pub fn fuzz(name: &str, cases: u32, target: fn(&[u8]) -> bool) {
    #[cfg(libfuzzer)]
    guided::run(target);

    #[cfg(not(libfuzzer))]
    bounded(name, cases, target);
}

#[cfg_attr(libfuzzer, allow(dead_code))]
fn bounded(name: &str, cases: u32, target: fn(&[u8]) -> bool) {
    let seeds = corpus::read(name);
    for seed in &seeds {
        seed.replay(target);
    }
    let cases = match (std::env::var("BLUETICK_FUZZ_CASES"), std::env::var("BLUETICK_TEST_QUICK")) {
        (Ok(cases), _) => cases.parse().expect("BLUETICK_FUZZ_CASES is a number"),
        (_, Ok(_)) => cases / 10,
        _ => cases,
    };
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|seed| seed.bytes).collect();
    if let Err((input, why)) = mutate::run(&seeds, cases, target) {
        let kept = corpus::keep(name, &input);
        panic!("{name}: {why}\ninput: {}\nkept as {}", input.escape_ascii(), kept.display());
    }
}
