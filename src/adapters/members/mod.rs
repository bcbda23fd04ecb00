//! The member clusters of a fleet, behind the port [`Fleet`](crate::ports::Fleet).
//!
//! Members are found by Secrets in one namespace of the hub, each with a kubeconfig that is read by a strict schema of
//! our own (`kubeconfig.rs`); a second inventory is `ClusterProfile`. Every member has its own client, stores, backoff
//! and bounds, so that a slow one delays nobody. It refuses to decide who gets replicas, and to run, read or speak to
//! anything that a kubeconfig merely names.

mod address;
mod admin;
mod connect;
mod connection;
mod inventory;
mod join;
mod kubeconfig;
mod permissions;
mod registry;
mod secret;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

pub use self::{
    admin::{AdminClient, Enrolled, Server, shown},
    connection::Timeouts,
    join::{Interrupted, Unready},
    kubeconfig::{Access, Refusal, SIZE_MAX},
    permissions::{AccessReview, Permission, rights},
    registry::{MemberReport, Members},
    secret::{ZONES_JOINED_BY, bad_taints},
};

/// Where members are found, and how they are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the hub that their Secrets are in.
    pub namespace: String,
    /// Label selector (in its text form) of those Secrets.
    pub label: String,
    /// Key of the kubeconfig in a Secret's data.
    pub key: String,
    /// Whether a member may be on this machine.
    pub allow_loopback: bool,
    /// Namespaces that are watched in the members; empty means all.
    pub namespaces: Vec<String>,
    /// How long a member may be silent.
    pub patience: Timeouts,
}
