# Shortcuts for people, and the steps of .ci/run. `just` is optional: each recipe is a command you can type.

# Lists the recipes.
default:
    @just --list

# Before each commit: format, lints and the fast tests. Under a minute when built.
quick: format
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace --lib

# Everything that CI runs. Keeps its tools in ~/.cache/foretide-ci.
ci:
    .ci/run

# All tests of a change: the fast ones, the simulated cluster, and some fourteen scenarios on real control planes; the rest
# is `nightly`. The first run builds a Kubernetes control plane from source.
test:
    cargo test --workspace

# So many seeds of faults in the simulated cluster, after so many others. Some minutes of building, because the library is
# optimized for it; then a core plays some two in a second.
seeds count="500" after="0":
    SEEDS={{ count }} AFTER={{ after }} cargo test --workspace --config tests/sim/optimized.toml --test sim no_seed_breaks_a_law \
        -- --nocapture

# What takes long: ten thousand seeds that no night has played before, ten thousand fleets, thousands of large objects,
# every clock change of every zone, a scrape and a day of forecasts of a real Prometheus, the page of the adapter, Helm 3,
# whether a test notices each safeguard that is removed and each expression of the day that is changed, advisories, and the images.
# Two or three hours.
nightly: (seeds "10000" `date +%Y%j0000`) && sabotage mutants deny-daily image image-arm64
    cargo check -p foretide-crds
    cargo check -p foretide-api
    cargo check -p foretide-base
    cargo check -p foretide-kube
    cargo check -p foretide-prometheus
    cargo check -p foretide-page
    cargo check -p foretide-backtest
    cargo check -p foretide-controller
    cargo check -p foretide-servers
    cargo check -p foretide-chart
    cargo check -p foretide-replay
    cargo test --workspace --lib -- --ignored
    cargo test -p foretide --test cluster -- --ignored helm_3 a_prometheus_scrapes the_page_of_the_adapter thousands_of_large \
        the_forecasts_of_a_day

# The unit tests whose names contain a word, such as `just unit cron`.
unit word:
    cargo test --workspace --lib {{ word }}

# The page in Debian's Chromium; `cargo test` leaves it out. UPDATE=1 renews the pictures of the docs. Needs Node.
browser *words:
    tests/browser/run {{ words }}

# One scenario on a real control plane, with its log.
scenario name:
    cargo test -p foretide --test cluster -- --nocapture {{ name }}

# Removes one safeguard after the other and checks that a test notices. One build and some minutes; UPDATE=1 stores what is seen.
sabotage *patches:
    tests/sabotage/run {{ patches }}

# The same with seeds of faults alone, whose laws know nothing of safeguards. An hour for all.
sabotage-seeds *patches:
    tests/sabotage/run --seeds {{ patches }}

# Only that every patch of `sabotage` applies.
sabotage-check:
    tests/sabotage/run --check

# Changes one expression after the other and checks that a test notices: a twenty-eighth of them each day, or `--all`.
mutants *areas:
    tests/mutants/run {{ areas }}

# Format, lints and documentation: what a reviewer runs before reading.
check: format lint doc

format:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

# The libraries without Kubernetes by themselves, so that none depends on a feature that another package enables. `just nightly`
# checks the others so, whose dependencies are compiled again with fewer features, and builds the binary so.
check-each:
    cargo check -p foretide-models
    cargo check -p foretide-domain
    cargo check -p foretide-federate

# After `test`: the README's two commands share one build.
one-build:
    python3 .ci/one_build.py

# No dependency needs a newer Rust than `rust-version`. For our own code, `lint` checks it (incompatible_msrv).
msrv:
    python3 .ci/msrv.py

# Spelling. Needs typos.
spelling:
    typos

# Licenses, sources and banned crates.
deny:
    .ci/deny

# And what changes while nothing changes here: yanked crates and advisories. Seconds, for a timer of every day; `nightly` has it.
deny-daily:
    .ci/deny --daily

# Rewrites the manifests of the definitions from their types.
generate:
    UPDATE=1 cargo test -p foretide-crds

# What decisions, forecasts and the page cost.
bench:
    cargo bench -p foretide --bench decide
    cargo bench -p foretide --bench federate
    cargo bench -p foretide --bench page
    cargo bench -p foretide-models

# The benchmark of forecasters on a folder of traces, such as `just replay FOLDER --more`.
replay folder *options:
    cargo run --release -p foretide-replay -- {{ folder }} {{ options }}

# An example, played beside a plain HPA.
demo:
    cargo run -- demo

# A plan of the example, without a cluster.
plan:
    cargo run -- plan -f examples/php-apache.yaml --csv examples/history/php-apache-cpu.csv --request cpu=200m --at 2026-03-05T09:30:00Z

# The image: built, unpacked, and run on a real control plane as a container runtime would. On Debian, as root.
image:
    .ci/image

# The same for arm64: cross-built, and run by an emulator.
image-arm64:
    .ci/image arm64

# A local cluster with a load.
up:
    cargo run --bin rig -- up --history examples/history/php-apache-cpu.csv
