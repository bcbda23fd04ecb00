//! History from Prometheus, and from servers that imitate its query API.
//!
//! Query text is only made by the typed builder, or printed from a checked syntax tree. A partial response is an error,
//! never a smaller number.
//!
//! | module | holds |
//! |---|---|
//! | [`demand`] | choice of the query for the history of a metric |
//! | [`queries`], [`adapter_config`], [`scope`] | built-in queries, rules of prometheus-adapter, queries of users |
//! | [`promql`] | the builder |
//! | `resolution` | over how long a query averages, and the same query for single minutes |
//! | [`endpoints`], [`client`], [`response`] | the server that is queried, the request, the JSON of its response |
//! | `session`, `credentials`, `tls` | the HTTP client with the credentials of the moment, their files, certificates |
//! | `http_client` | connections, requests and their answers |

pub mod adapter_config;
pub mod client;
mod credentials;
pub mod demand;
pub mod endpoints;
mod http_client;
pub mod promql;
pub mod queries;
mod resolution;
pub mod response;
pub mod scope;
mod session;
mod tls;

pub use adapter_config::{AdapterConfig, RulesCache};
pub use client::Prometheus;
pub use demand::QueryRules;
pub use endpoints::{EndpointNames, Endpoints};
pub use promql::Query;
pub use queries::{BuiltInError, Metric, QueryDefaults, WorkloadRef, built_in, built_in_part};
pub use scope::{AdmitError, MatchersError, PromqlScope, admit, matchers};
