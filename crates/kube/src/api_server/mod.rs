//! Requests to one Kubernetes API server.
//!
//! [`Connection`] holds the HTTP clients, [`Calls`] sends single requests within a deadline and a concurrency limit,
//! [`response`] reads responses up to a size limit, [`Pages`] splits lists into pages, and [`Discovery`] finds the path
//! of a kind. What the objects mean is left to `kube`, `metrics_api` and `members`:
//!
//! ```text
//! members ──► kube ──► metrics_api ──► api_server
//! ```
//!
//! # Why not `kube::Api`
//!
//! `kube::Api` sends the same requests, but it reads a response to its end however long it is, and it logs the whole
//! response when it cannot decode it, Secrets included. Its paths contain names as they are, so that a metric or an
//! object called `../x` would reach another path. Therefore requests are built and responses are read here, and only
//! the HTTP stack (TLS, credentials, connection pool) and the wire types are those of `kube` and `k8s-openapi`.

mod budgets;
mod client;
mod discovery;
mod error;
mod gated_client;
mod http_client;
mod pages;
mod refusals;
mod resource;
pub mod response;
mod skew;
mod write_gate;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    client::{Body, Calls, Limits, WATCH_MARGIN, WATCH_TIMEOUT},
    discovery::Discovery,
    error::{About, CallError},
    pages::{PageTurn, PageTurns, Pages},
    resource::{ObjectPath, Resource, query, root, segment},
    response::WatchEvent,
};
pub use self::{
    client::{ConnectError, Connection},
    write_gate::WriteGate,
};
