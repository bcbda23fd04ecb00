//! History of metrics from Prometheus, and from servers that imitate its query API.
//!
//! Query text is only made by the typed builder, or printed from a checked syntax tree. A partial response is an error,
//! never a smaller number.
//!
//! | module | owns |
//! |---|---|
//! | `demand` | choice of the query for the history of a metric |
//! | `queries`, `adapter_config`, `scope` | built-in queries, rules of prometheus-adapter, queries of users |
//! | `promql` | the typed builder |
//! | `resolution` | span over which a query averages, and the same query for single minutes |
//! | `endpoints`, `client`, [`response`] | the server that is queried, the request, the JSON of its response |
//! | `session`, `credentials`, `tls` | the HTTP client with the credentials of the moment, their files, certificates |
//! | `http_client` | connections, requests and their answers |
//!
//! It stands on `foretide-base` and implements ports of [`foretide_api`]. It knows nothing about clusters, decisions or commands.
//!
//! A query of a user is bound to the namespace of its autoscaler:
//!
//! ```
//! use std::time::Duration;
//!
//! use foretide_prometheus::{PromqlScope, admit};
//!
//! let query = admit("sum(rate(requests_total[2m]))", "shop", Duration::from_hours(24), PromqlScope::Namespace)?;
//! assert_eq!(query.to_string(), r#"sum(rate(requests_total{namespace="shop"}[2m]))"#);
//! # Ok::<(), foretide_prometheus::AdmitError>(())
//! ```

mod adapter_config;
mod client;
mod credentials;
mod demand;
mod endpoints;
mod http_client;
mod promql;
mod queries;
mod resolution;
pub mod response;
mod scope;
mod session;
mod tls;

pub use self::{
    adapter_config::{AdapterConfig, QueryRequest, ReloadOutcome, RulesCache},
    client::Prometheus,
    demand::QueryRules,
    endpoints::{EndpointNames, Endpoints},
    promql::Query,
    queries::{BuiltInError, Metric, QueryDefaults, WorkloadRef},
    scope::{AdmitError, MatchersError, PromqlScope, admit, matchers},
};
