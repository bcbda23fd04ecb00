//! Scenarios on a real control plane, real metrics-server and real Prometheus.
//!
//! Every controller runs in this process with the rights of `deploy/`, under a clock that may start
//! elsewhere and run faster. Tests wait on conditions with deadlines and never for a time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    reason = "a scenario is a story told in one go, and stops at the first surprise"
)]

mod auto;
mod beside;
mod conformance;
mod cron;
mod faults;
mod fleet;
mod hands;
mod manifests;
mod ownership;
mod preview;
mod rights;
mod rules;
mod targets;
mod wave;
mod winners;
mod world;
