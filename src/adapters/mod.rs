//! Adapters: one folder per outside system, each behind a port of `crate::ports`.
//!
//! An adapter converts what it reads into domain values, and decisions into requests. Every request has a deadline and
//! counts against a concurrency limit. How many replicas a workload needs is left to `domain`.

mod api_server;
pub mod certificates;
pub mod kube;
pub mod members;
mod metrics_api;
pub mod prometheus;
pub mod remote_page;
pub mod upstream;
