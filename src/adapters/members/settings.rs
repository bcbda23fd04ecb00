//! The settings of the member registry.

use super::connection::Timeouts;

/// Where members are found, and how they are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSettings {
    /// Namespace of their Secrets in the hub.
    pub namespace: String,
    /// Label selector of those Secrets, in its text form.
    pub label: String,
    /// Key of the kubeconfig in the data of a Secret.
    pub key: String,
    /// Whether a member may be on this machine.
    pub allow_loopback: bool,
    /// Namespaces that are watched in the members; empty for all.
    pub namespaces: Vec<String>,
    /// How long a member may be silent.
    pub timeouts: Timeouts,
}
