//! The decisions, as pure functions: numbers and ages in, decisions out.
//!
//! Nothing below reads a clock, a file, a network or the environment, and nothing knows Kubernetes
//! wire types: `now` is an argument and adapters translate at the edge. Every function is total:
//! malformed input gives an error value or saturates, and never panics.
//!
//! Start with [`autoscale::decide`] for one workload, with [`federate::decide`] for a fleet.

#![deny(clippy::indexing_slicing, clippy::string_slice)]

#[macro_use]
pub mod words;

pub mod autoscale;
pub mod condition;
pub mod cron;
pub mod demand;
pub mod federate;
pub mod forecast;
pub mod hpa;
pub mod lead_time;
pub mod observation;
pub mod proposal;
pub mod quantity;
pub mod remembered;
mod scale;
mod selector;
pub mod sim;
pub mod workload;

pub use observation::{Observation, Reading, Scale};
pub use scale::{ReplicaBounds, Replicas, ScaleTarget};
pub use selector::{Labels, ParseSelectorError, Requirement, Selector};

/// The group of an `apiVersion`; empty for the core group.
///
/// ```
/// use foretide_domain::api_group;
///
/// assert_eq!(api_group("apps/v1"), "apps");
/// assert_eq!(api_group("v1"), "");
/// ```
#[must_use]
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
