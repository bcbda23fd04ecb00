//! How many more replicas a cluster has room for, from its nodes, pods and quotas.

use crate::domain::observation::Requests;

/// One node, reduced to what room depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether pods can be bound to it at all: it is ready and not being deleted.
    pub usable: bool,
}

/// What one replica needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodShape {
    /// Effective requests, in milli-units.
    pub requests: Requests,
}
