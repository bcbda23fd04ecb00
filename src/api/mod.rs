//! The meaning of API objects: specs are converted to domain values, and objects that the controller creates name their
//! owner.
//!
//! [`validation`] validates and translates; `status` renders decisions as fields of a status; both serve the
//! controller and the command line alike. [`published`] reads from a status what other autoscalers may use.
//! [`ownership`] says how an object of ours is marked and recognized. Reading and writing objects is `adapters`' work.

pub mod autoscaler;
pub(crate) mod member_reason;
pub mod ownership;
pub mod published;
pub(crate) mod status;
pub mod validation;
