//! Servers of the optional processes and the page, as routers.
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
pub mod page;

pub use self::identity::AccessControl;
