//! The edge: everything that speaks to another process.

pub mod prometheus;
