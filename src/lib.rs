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

/// Certificates of servers.
pub mod adapters;
pub mod app;
pub mod cli;
pub mod config;
mod html;
pub mod http;
