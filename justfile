# Shortcuts for people. Nothing needs them: `cargo test --workspace` is the front door.

# What there is.
default:
    @just --list

# Everything.
test:
    cargo test --workspace

# The tests of the library whose names hold a word, such as `just unit cron`.
unit word:
    cargo test --lib {{ word }}

# The laws of fleets over ten thousand random ones; `test` takes some of them.
fleets:
    CARGO_PROFILE_DEV_OPT_LEVEL=2 cargo test -p foretide --lib -- --ignored ten_thousand

# One scenario on a real control plane, with its log.
scenario name:
    cargo test -p foretide --test cluster -- --nocapture {{ name }}

# What a reviewer would run before reading.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Each package by itself: a feature that another one switches on is no excuse.
check-each:
    cargo check -p foretide-models
    cargo check -p foretide-crds
    cargo check -p foretide
    cargo check -p rig

# Rewrite the manifests of the definitions from their types.
generate:
    UPDATE=1 cargo test -p foretide-crds

# What decisions and forecasts cost.
bench:
    cargo bench -p foretide --bench decide
    cargo bench -p foretide --bench federate
    cargo bench -p foretide-models

# Licenses, sources, advisories. Needs cargo-deny.
deny:
    cargo deny check

# An example, played beside a plain HPA.
demo:
    cargo run --release -- demo

# A plan of the example, without a cluster.
plan:
    cargo run -- plan -f examples/php-apache.yaml --csv examples/history/php-apache-cpu.csv --request cpu=200m --at 2026-03-05T08:00:00Z

# A local cluster with a load.
up:
    cargo run -p rig -- up --history examples/history/php-apache-cpu.csv
