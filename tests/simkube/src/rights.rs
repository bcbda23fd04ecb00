//! RBAC: what the roles that are bound to a user allow, and which of their grants were ever used.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    request::{Place, User},
    store::Store,
};

/// What a user wants to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// With its subresource, such as `deployments/scale`. For a path that is no resource, the path.
    pub resource: String,
    /// Empty for objects without a namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
}

/// One verb for one resource that a role grants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// `namespace/name` of a Role, or the name of a `ClusterRole`.
    pub role: String,
    /// As the rule has it, also `*`.
    pub verb: String,
    /// As the rule has it.
    pub group: String,
    /// As the rule has it; a path for a rule about paths.
    pub resource: String,
}

/// What was used and what was forbidden, until now.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) used: BTreeSet<Grant>,
    /// User and access.
    pub(crate) forbidden: BTreeSet<(String, Access)>,
}

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// The grant that allows an access; none if it is forbidden.
pub(crate) fn grant(store: &Store, user: &User, access: &Access) -> Option<Grant> {
    roles(store, user, &access.namespace)
        .into_iter()
        .find_map(|(role, rules)| {
            let mut rules = rules["rules"].as_array()?.iter();
            rules.find_map(|rule| grant_of(&role, rule, access))
        })
}

/// All grants of a role, as its rules name them.
pub(crate) fn grants(role: &str, object: &Value) -> Vec<Grant> {
    let rules = object["rules"].as_array().into_iter().flatten();
    let grants = rules.flat_map(|rule| {
        let groups = texts(rule, "apiGroups");
        let paths = texts(rule, "nonResourceURLs")
            .into_iter()
            .map(|path| ("", path));
        let resources = groups.into_iter().flat_map(|group| {
            texts(rule, "resources")
                .into_iter()
                .map(move |resource| (group, resource))
        });
        let verbs = texts(rule, "verbs");
        let all = resources.chain(paths).collect::<Vec<_>>().into_iter();
        all.flat_map(move |(group, resource)| {
            verbs.clone().into_iter().map(move |verb| Grant {
                role: role.to_owned(),
                verb: verb.to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
            })
        })
    });
    grants.collect()
}

/// The roles that are bound to a user for a namespace, or for objects in none: their names and objects.
fn roles<'a>(store: &'a Store, user: &User, namespace: &str) -> Vec<(String, &'a Value)> {
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

fn bound<'a>(
    store: &'a Store,
    user: &User,
    binding: &Value,
    namespace: &str,
) -> Option<(String, &'a Value)> {
    let mut subjects = binding["subjects"].as_array()?.iter();
    subjects.find(|subject| is_subject(user, subject))?;
    let name = binding["roleRef"]["name"].as_str()?;
    let (collection, key) = if binding["roleRef"]["kind"] == "Role" {
        (ROLES, format!("{namespace}/{name}"))
    } else {
        (CLUSTER_ROLES, name.to_owned())
    };
    store.get(collection, &key).map(|role| (key, &**role))
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

fn grant_of(name: &str, rule: &Value, access: &Access) -> Option<Grant> {
    let find = |field: &str, wanted: &str| {
        let allowed = texts(rule, field);
        allowed
            .into_iter()
            .find(|allowed| *allowed == "*" || *allowed == wanted)
    };
    let verb = find("verbs", &access.verb)?;
    let (group, resource) = if access.resource.starts_with('/') {
        ("", find("nonResourceURLs", &access.resource)?)
    } else {
        (
            find("apiGroups", &access.group)?,
            find("resources", &access.resource)?,
        )
    };
    let names = texts(rule, "resourceNames");
    let is_named = names.is_empty() || names.contains(&&*access.name);
    is_named.then(|| Grant {
        role: name.to_owned(),
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
    })
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
    /// That of a request for a resource.
    pub(crate) fn new(verb: &str, place: &Place, name: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: place.group.clone(),
            resource: place.resource(),
            namespace: match (&*place.group, &*place.plural) {
                // A namespace is in itself.
                ("", "namespaces") => name.to_owned(),
                _ => place.namespace.clone(),
            },
            name: name.to_owned(),
        }
    }

    /// As the attributes of a review say.
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

    /// The sentence by which it is refused.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USER: &str = "system:serviceaccount:shop:web";

    /// A store in which a cluster role is bound everywhere and a role in `shop`.
    fn store() -> Store {
        let mut store = Store::default();
        let mut put = |collection: &str, key: &str, mut object: Value| {
            object["metadata"] = json!({});
            store.put(collection, key, object);
        };
        let rule = |group: &str, resources: Value, verbs: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let mut named = rule("", json!(["namespaces"]), json!(["get"]));
        named["resourceNames"] = json!(["kube-system"]);
        let scaled = json!(["deployments", "deployments/scale"]);
        let reads = rule("apps", scaled, json!(["get", "list"]));
        let path = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        put(
            CLUSTER_ROLES,
            "reader",
            json!({"rules": [reads, named, path]}),
        );
        let all = rule("apps", json!(["*"]), json!(["*"]));
        put(ROLES, "shop/writer", json!({"rules": [all]}));
        let account = json!([{"kind": "ServiceAccount", "namespace": "shop", "name": "web"}]);
        let reference = |kind: &str, name: &str| json!({"roleRef": {"kind": kind, "name": name}, "subjects": account});
        put(
            CLUSTER_BINDINGS,
            "reader",
            reference("ClusterRole", "reader"),
        );
        put(BINDINGS, "shop/writer", reference("Role", "writer"));
        store
    }

    #[test]
    fn roles_allow_what_their_rules_name_where_they_are_bound() {
        let store = store();
        let reader = store.get(CLUSTER_ROLES, "reader").unwrap();
        let all = grants("reader", reader);
        for (access, role) in [
            (["get", "apps", "deployments", "other", "x"], Some("reader")),
            (
                ["get", "apps", "deployments/scale", "other", "x"],
                Some("reader"),
            ),
            (["patch", "apps", "deployments", "other", "x"], None),
            (
                ["patch", "apps", "deployments", "shop", "x"],
                Some("shop/writer"),
            ),
            (["get", "", "namespaces", "", "kube-system"], Some("reader")),
            (["get", "", "namespaces", "", "shop"], None),
            (["get", "", "/metrics", "", ""], Some("reader")),
            (["get", "", "/debug", "", ""], None),
        ] {
            let [verb, group, resource, namespace, name] = access.map(str::to_owned);
            let access = Access {
                verb,
                group,
                resource,
                namespace,
                name,
            };
            let granted = grant(&store, &User::named(USER), &access);
            assert_eq!(
                granted.as_ref().map(|grant| &*grant.role),
                role,
                "{access:?}"
            );
            assert_eq!(grant(&store, &User::named("other"), &access), None);
            let of_reader = granted.filter(|grant| grant.role == "reader");
            assert!(of_reader.is_none_or(|grant| all.contains(&grant)));
        }
    }
}
