//! The objects that make a cluster a member: an account with its role there, a Secret in the hub.
//!
//! Pure: values in, manifests out.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::NAMESPACE;
use foretide_kube::members::{ApiServer, permissions};

/// The hub's account in a member, and its token.
pub const ACCOUNT: &str = "foretide-hub";
pub const TOKEN: &str = "foretide-hub-token";
const ROLE: &str = "foretide-member";

/// The Secret in the hub that describes a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberSecret {
    /// Name of the member.
    pub name: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Key of the kubeconfig.
    pub key: String,
    /// Labels by which the Secret is found, and those with the location of the member.
    pub labels: BTreeMap<String, String>,
    /// Annotations: taints, the name of a Prometheus.
    pub annotations: BTreeMap<String, String>,
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "foretide", "app.kubernetes.io/part-of": "foretide"})
}

/// The objects in the member, in the order in which they are applied.
pub fn in_member(place: bool) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels()},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": NAMESPACE, "labels": labels()},
            // No pod runs under this account: the hub uses its token from outside the cluster.
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ROLE, "labels": labels()},
            "rules": rules(place),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ROLE, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        }),
        // Since 1.24, Kubernetes makes no such Secret for an account by itself; it fills in the token.
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": TOKEN,
                "namespace": NAMESPACE,
                "labels": labels(),
                "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
            },
        }),
    ]
}

fn rules(place: bool) -> Vec<Value> {
    permissions(place)
        .iter()
        .map(|right| {
            let (groups, resources, verbs) = ([right.group], right.resources, right.verbs);
            json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
        })
        .collect()
}

/// A kubeconfig with a token.
pub fn kubeconfig(name: &str, server: &ApiServer, token: &str) -> Value {
    let mut cluster = json!({
        "server": server.url,
        "certificate-authority-data": ByteString(server.certificate_authority.clone().into_bytes()),
    });
    if let (Some(name), Value::Object(cluster)) = (&server.tls_server_name, &mut cluster) {
        cluster.insert("tls-server-name".to_owned(), json!(name));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": ACCOUNT}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
    })
}

/// The Secret in the hub, its kubeconfig encoded as the API stores it, or in clear text for people to complete.
pub fn in_hub(member_secret: &MemberSecret, kubeconfig: &str, clear: bool) -> Value {
    let MemberSecret {
        name,
        namespace,
        key,
        labels,
        annotations,
    } = member_secret;
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    });
    if !annotations.is_empty() {
        secret["metadata"]["annotations"] = json!(annotations);
    }
    if clear {
        secret["stringData"] = json!({key: kubeconfig});
    } else {
        secret["data"] = json!({key: ByteString(kubeconfig.as_bytes().to_vec())});
    }
    secret
}
