//! Foretide: prediction- and cron-augmented autoscaling for Kubernetes.
//!
//! The binary's crate: command line ([`cli`]), configuration ([`config`]) and composition ([`app`]). Everything else is
//! a crate of its own; `ARCHITECTURE.md` draws them. Start with [`foretide_controller`] for what happens, with
//! [`foretide_domain`] for why.

pub mod app;
pub mod cli;
pub mod config;
mod html;
