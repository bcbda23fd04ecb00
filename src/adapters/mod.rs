//! The edge: one folder per outside system, each behind a port of `crate::ports`.
//!
//! An adapter turns what it observes into domain values once, here, and turns decisions into requests.
//! Every request has a deadline and an upper bound on how many run at once. Nothing in this folder
//! decides how many replicas a workload needs.

pub mod kube;
pub mod members;
pub mod metrics_api;
pub mod prometheus;
