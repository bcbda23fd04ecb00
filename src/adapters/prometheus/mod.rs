//! Prometheus, and everything that speaks its query API: what may be asked ([`promql`], [`queries`], [`rules`], [`scope`]),
//! asking it ([`client`]) and reading the answer ([`response`]). Query text is only ever made by the typed builder
//! or printed from a checked syntax tree; an answer that is not whole is an error, never a smaller number.

pub mod adapter_config;
pub mod client;
pub mod demand;
pub mod endpoints;
pub mod promql;
pub mod queries;
pub mod response;
pub mod scope;

pub use adapter_config::{Rules, RulesCache};
pub use client::{Endpoint, EndpointError, Prometheus};
pub use demand::QueryRules;
pub use endpoints::{Endpoints, Reach};
pub use promql::Query;
pub use queries::{Metric, Owner, Refused, Settings, built_in, built_in_part};
pub use scope::{PromqlScope, Refusal, admit};
