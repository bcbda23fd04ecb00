//! The HTTP services of all processes: functions that return a router, so that tests need no socket, and the servers of
//! connections, plain (`serve`) and TLS (`tls`).
//!
//! | process | router |
//! |---|---|
//! | `foretide adapter` | `metrics_api`, behind `identity` |
//! | `foretide keda-scaler` | `keda` |
//! | both | `probes` of `foretide-base`, on a port of their own |

mod failure;
mod identity;
pub mod keda;
pub mod metrics_api;

pub use self::identity::AccessControl;
