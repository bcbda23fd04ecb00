//! Scenarios that need a real control plane, real metrics-server and real Prometheus. Everything else is proven in
//! `tests/sim` or below it (`docs/decisions/0054-use-a-real-cluster-only-for-what-others-decide.md`).
//!
//! Controllers run in this process or as processes, with the permissions of `deploy/`. Scenarios wait for states, with one
//! deadline; none asserts a duration. `just nightly` runs the ignored ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    clippy::cast_possible_truncation,
    reason = "a scenario is one sequence of steps, and stops at the first failure"
)]

mod conformance;
mod contract;
mod definitions;
mod fleet;
mod image;
mod installation;
mod keda_scaler;
mod leadership;
mod leaks;
mod manual_changes;
mod memory;
mod metric_adapter;
mod metrics_access;
mod minutes;
mod monitoring;
mod permissions;
mod plain_hpa;
mod world;
