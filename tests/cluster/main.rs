//! Scenarios on a real control plane, real metrics-server and real Prometheus.
//!
//! Every controller runs in this process with the permissions of `deploy/`, under a clock that may start at another
//! time and run faster. Tests wait for conditions with deadlines, never for a fixed time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    reason = "a scenario is one sequence of steps, and stops at the first failure"
)]

mod admission;
mod conformance;
mod contract;
mod credentials;
mod cron;
mod faults;
mod fleet;
mod image;
mod installation;
mod isolation;
mod keda_scaler;
mod leadership;
mod manifests;
mod manual_changes;
mod measure;
mod metric_adapter;
mod metrics_access;
mod minutes;
mod monitoring;
mod ownership;
mod permissions;
mod plain_hpa;
mod preview;
mod rules;
mod silence;
mod targets;
mod wave;
mod winners;
mod world;
