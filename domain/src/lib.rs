//! Autoscaling decisions as pure functions: numbers and ages in, decisions out.
//!
//! An autoscaler observes, decides and writes. This crate only decides: how many replicas a workload should have now,
//! by its metrics, a forecast and cron windows, and how a fleet of clusters divides them. `now` is an argument. No code
//! here reads a clock, a file, a network or the environment, or knows the wire types of Kubernetes; adapters translate.
//! Every function is total: malformed input gives an error value or saturates, and never panics.
//!
//! A queue of 12 messages, 2 replicas, and a target of 4 messages per replica:
//!
//! ```
//! use foretide_domain::hpa::{Hpa, Log, MetricSpec, Settings, Target, reconcile};
//! use foretide_domain::observation::{Measured, Observation};
//! use foretide_domain::{ReplicaBounds, Replicas, Scale};
//!
//! let (metric, target) = ("queue".to_owned(), Target::AverageValue(4_000));
//! let queue = MetricSpec::External { metric, selector: None, target };
//! let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(10));
//! let hpa = Hpa { bounds, metrics: &[queue], behavior: None };
//!
//! let scale = Scale { spec: Replicas::new(2), status: Replicas::new(2) };
//! let readings = vec![Ok(Measured::Total(vec![12_000]))];
//! let observation = Observation { scale, readings, ..Observation::default() };
//!
//! let now = "2026-03-01T10:00:00Z".parse()?;
//! let result = reconcile(&hpa, &observation, &Log::default(), &Settings::default(), now);
//! assert_eq!(result.desired, Replicas::new(3));
//! # Ok::<(), jiff::Error>(())
//! ```
//!
//! | module | for |
//! |---|---|
//! | [`autoscale`] | one workload: start with [`autoscale::decide`] |
//! | [`hpa`] | the count that the Kubernetes HPA would compute, step by step |
//! | [`forecast`], [`demand`], [`division`], [`lead_time`] | from a predicted demand to a count |
//! | [`cron`] | the times at which a cron window is open |
//! | [`workload`], [`observation`], [`pod_names`] | the inputs: a validated spec, and an observation |
//! | [`proposal`], [`condition`], [`mod@words`] | the outputs, for people and for status |
//! | [`quantity`], [`remembered`] | quantities of Kubernetes; times that survive a step of the clock |
//! | [`sim`] | a workload on a virtual clock, over a recorded history |

#![deny(clippy::indexing_slicing, clippy::string_slice)]

#[macro_use]
pub mod words;

pub mod autoscale;
pub mod condition;
pub mod cron;
pub mod demand;
pub mod division;
pub mod forecast;
pub mod hpa;
pub mod lead_time;
pub mod observation;
pub mod pod_names;
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
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
