//! The member clusters of a fleet, behind the port [`Fleet`](foretide_api::ports::Fleet).
//!
//! Members are listed in the hub by Secrets of one namespace, each with a kubeconfig, and by `ClusterProfile`s. Every
//! member has its own client, stores, backoff and limits, so that a slow one does not delay the others. Which member
//! gets how many replicas is decided in `foretide-federate`.
//!
//! ```text
//! Secret, ClusterProfile -> inventory -> registry -> connection (one per member) -> health, KubeMember
//!                  kubeconfig -> connect ------------^
//! ```

mod address;
mod admin;
mod awake;
mod connect;
mod connection;
mod inventory;
mod join;
mod kubeconfig;
mod leave;
mod permissions;
mod registry;
mod secret;
mod settings;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

pub use self::{
    admin::{AdminClient, ApiServer, ListedMember, describe},
    connection::Timeouts,
    join::{JoinFailure, Unready},
    kubeconfig::{Access, KubeconfigError},
    leave::FleetShare,
    permissions::{AccessReview, Permission, permissions},
    registry::{MemberRegistry, MemberReport},
    secret::{ZONE_SEPARATOR, invalid_taints},
    settings::MemberSettings,
};
