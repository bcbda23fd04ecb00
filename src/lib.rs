//! Foretide.
pub mod adapters;
pub mod forecaster;
pub mod ports;
