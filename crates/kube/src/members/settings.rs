//! The settings of the member registry.

use super::connection::Timeouts;

/// Settings for finding and watching members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSettings {
    /// Namespace of the members' Secrets in the hub.
    pub namespace: String,
    /// Label selector of the Secrets, in its text form.
    pub label: String,
    /// Key of the kubeconfig in the data of a Secret.
    pub key: String,
    /// True if a member may be on this machine.
    pub allow_loopback: bool,
    /// Namespaces that are watched in the members; empty for all.
    pub namespaces: Vec<String>,
    /// Limits of a member's silence.
    pub timeouts: Timeouts,
}
