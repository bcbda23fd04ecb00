//! The decisions, as pure functions: numbers and ages in, decisions out.
//!
//! Nothing below reads a clock, a file, a network or the environment, and nothing knows Kubernetes
//! wire types: `now` is an argument and adapters translate at the edge. Every function is total:
//! malformed input is an error value or saturates, it never panics.
//!
//! Start with [`autoscale::decide`] for one workload, with [`federate::decide`] for a fleet.

#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod autoscale;
pub mod cron;
pub mod demand;
pub mod federate;
pub mod forecast;
pub mod hpa;
pub mod lead_time;
pub mod observation;
pub mod proposal;
pub mod quantity;
mod scale;
pub mod workload;

pub use observation::{Observation, Reading, Scale};
pub use scale::{ReplicaBounds, Replicas, ScaleTarget};
