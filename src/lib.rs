//! x

pub mod domain;
