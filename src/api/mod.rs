//! The meaning of API objects: specs are converted to domain values, and objects that the controller creates name their
//! owner.
//!
//! [`spec`] validates and translates, for the controller and for the command line alike; [`ownership`] says how an object of
//! ours is marked and recognized. Reading and writing objects is `adapters`' work.

pub mod ownership;
pub mod spec;
