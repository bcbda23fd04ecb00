//! Foretide: prediction- and cron-augmented autoscaling for Kubernetes.
//!
//! ```text
//!              app
//!               |
//!   controller, forecaster, leadership, http, cli  ->  foretide-api  <-  adapters
//!               |                                        |
//!               +------------>  domain  <----------------+
//!                                 |
//!                              models
//! ```
//!
//! `domain` is pure and decides; `controller` observes, decides, applies and reports; `adapters` talk to clusters and
//! to Prometheus. Start with [`controller`] for what happens, with [`foretide_domain`] for why.

pub mod adapters;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod controller;
mod error;
mod fair_slots;
pub mod forecaster;
mod html;
pub mod http;
pub mod leadership;
pub mod machine;
pub mod memory;
mod open_files;
pub mod page;
mod printable;
mod shared_map;
pub mod telemetry;
