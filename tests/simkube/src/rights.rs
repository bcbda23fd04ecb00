//! RBAC: the permissions of the roles that are bound to a user.

use serde_json::Value;

use crate::{
    request::{Place, User},
    store::Store,
};

/// Access that a user asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource with its subresource, such as `deployments/scale`. For a path that is no resource, the path.
    pub resource: String,
    /// Namespace; empty for objects without one, and for all namespaces.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
}

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// Returns whether a role of a user allows an access.
pub(crate) fn allow(store: &Store, user: &User, access: &Access) -> bool {
    let mut rules = roles(store, user, &access.namespace)
        .into_iter()
        .flat_map(|role| role["rules"].as_array().into_iter().flatten());
    rules.any(|rule| allows(rule, access))
}

/// The roles that are bound to a user for a namespace, or for objects in none.
fn roles<'a>(store: &'a Store, user: &User, namespace: &str) -> Vec<&'a Value> {
    let mut roles = Vec::new();
    for (_, binding) in store.all(CLUSTER_BINDINGS) {
        roles.extend(bound(store, user, binding, ""));
    }
    if !namespace.is_empty() {
        let prefix = format!("{namespace}/");
        for (_, binding) in store
            .all(BINDINGS)
            .filter(|(key, _)| key.starts_with(&prefix))
        {
            roles.extend(bound(store, user, binding, namespace));
        }
    }
    roles
}

fn bound<'a>(store: &'a Store, user: &User, binding: &Value, namespace: &str) -> Option<&'a Value> {
    let mut subjects = binding["subjects"].as_array()?.iter();
    subjects.find(|subject| is_subject(user, subject))?;
    let name = binding["roleRef"]["name"].as_str()?;
    let (collection, key) = if binding["roleRef"]["kind"] == "Role" {
        (ROLES, format!("{namespace}/{name}"))
    } else {
        (CLUSTER_ROLES, name.to_owned())
    };
    store.get(collection, &key).map(|role| &**role)
}

fn is_subject(user: &User, subject: &Value) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    match text("kind") {
        "User" => user.name == text("name"),
        "Group" => user.groups.iter().any(|group| group == text("name")),
        "ServiceAccount" => {
            user.name
                == format!(
                    "system:serviceaccount:{}:{}",
                    text("namespace"),
                    text("name")
                )
        }
        _ => false,
    }
}

fn allows(rule: &Value, access: &Access) -> bool {
    let has = |field: &str, wanted: &str| {
        let allowed = texts(rule, field);
        allowed
            .iter()
            .any(|allowed| ["*", wanted].contains(allowed))
    };
    let names = texts(rule, "resourceNames");
    let is_of_rule = if access.resource.starts_with('/') {
        has("nonResourceURLs", &access.resource)
    } else {
        has("apiGroups", &access.group) && has("resources", &access.resource)
    };
    is_of_rule && has("verbs", &access.verb) && (names.is_empty() || names.contains(&&*access.name))
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    rule[field]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

// === impl Access ===

impl Access {
    /// The access of a request for a resource.
    pub(crate) fn new(verb: &str, place: &Place, name: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: place.group.clone(),
            resource: place.resource(),
            namespace: match (&*place.group, &*place.plural) {
                // The namespace of a namespace is itself.
                ("", "namespaces") => name.to_owned(),
                _ => place.namespace.clone(),
            },
            name: name.to_owned(),
        }
    }

    /// The access in the attributes of a review.
    pub(crate) fn of_review(spec: &Value) -> Self {
        let paths = &spec["nonResourceAttributes"];
        let attributes = if paths.is_object() {
            paths
        } else {
            &spec["resourceAttributes"]
        };
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        let resource = match (text("path"), text("subresource")) {
            (path, _) if !path.is_empty() => path,
            (_, subresource) if subresource.is_empty() => text("resource"),
            (_, subresource) => format!("{}/{subresource}", text("resource")),
        };
        Self {
            verb: text("verb"),
            group: text("group"),
            resource,
            namespace: text("namespace"),
            name: text("name"),
        }
    }

    /// The sentence of the refusal.
    pub(crate) fn refusal(&self, user: &str) -> String {
        let Self {
            verb,
            group,
            resource,
            namespace,
            ..
        } = self;
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        format!(
            "User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
        )
    }
}
