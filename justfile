# The commands of the inner loop. `just` lists them.

_list:
    @just --list

# Serve on 127.0.0.1:8080 with the demo page
run:
    cargo run --release

# The quick suites of the workspace
test:
    cargo test

# Everything: installs what the tests need
test-all:
    ./scripts/test

# Formatting, clippy, unused dependencies, licences, spelling
lint:
    ./scripts/lint

# The simulator: `just sim 20000`, `just sim 5000 --without R4`
sim seeds='20000' *options='':
    cargo run --release --manifest-path sim/Cargo.toml -- --seeds {{seeds}} {{options}}

# Instruction counts of the hot paths
bench-micro:
    ./scripts/bench-micro

# The pages, after a change under web/src or clients/js/src
pages:
    npm ci --silent && npm run build

# The screenshots of the README
screenshots:
    ./scripts/screenshots
