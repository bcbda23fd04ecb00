//! The labels that hold the namespace of a series.

/// The label of the namespace in common installations, unless the administrator names another one.
pub const NAMESPACE: &str = "namespace";
/// All labels of a namespace in common installations; queries are bound to the first.
const TENANT_LABELS: [&str; 3] = [NAMESPACE, "exported_namespace", "kubernetes_namespace"];

/// The series that may be read: those whose `label` is `namespace`.
#[derive(Debug, Clone, Copy)]
pub struct Tenant<'a> {
    /// The label that holds the namespace of a series.
    pub label: &'a str,
    /// The namespace.
    pub namespace: &'a str,
}

/// True if a label names a namespace.
pub fn is_tenant_label(label: &str) -> bool {
    TENANT_LABELS.contains(&label)
}
