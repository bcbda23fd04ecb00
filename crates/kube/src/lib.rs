//! Kubernetes clusters behind the ports of [`foretide_api`]: hub and members.
//!
//! | module | owns |
//! |---|---|
//! | `api_server` | requests to one API server: deadlines, budgets, size limits, the gate of writes |
//! | [`cluster`] | watches and their copies, snapshots for syncs, conditional writes, lease |
//! | [`members`] | members of a fleet: registry, kubeconfigs, health, joining and leaving |
//! | `metrics_api` | the resource, custom and external metrics APIs |
//! | [`remote_page`], [`upstream`] | the page of another process through a port-forward; another metrics adapter |
//!
//! It stands on `foretide-base`, and knows nothing about Prometheus, decisions or commands. Objects are converted to values of
//! the domain at its edge. Every request has a deadline and counts against a limit.
//!
//! ```
//! use foretide_kube::members::{Permission, permissions};
//!
//! let needed: &[Permission] = permissions(false);
//! assert!(!needed.is_empty());
//! ```

mod access;
mod api_server;
pub mod cluster;
pub mod members;
mod metrics_api;
pub mod remote_page;
pub mod upstream;

pub use self::access::{KubeAccess, KubeArgs, Surroundings};
