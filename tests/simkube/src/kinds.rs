//! The resource types that the server serves: the built-in ones that Foretide and its world use, and those of CRDs.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

/// Property of a kind besides its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trait {
    /// A status that only its subresource writes.
    Status,
    /// `metadata.generation`, which counts the changes of everything but metadata and status.
    Generation,
    /// A replacement needs a `resourceVersion`.
    Conditional,
    /// Objects are answered and not stored.
    Review,
}

use Trait::{Conditional, Generation, Review, Status};

/// The fields of the scale subresource, as JSON pointers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    /// A label selector, as an object or as text.
    pub(crate) selector: Option<String>,
}

/// One resource type.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_field_names,
    reason = "the field is called so in every object"
)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) is_namespaced: bool,
    pub(crate) is_custom: bool,
    traits: Vec<Trait>,
    pub(crate) scale: Option<ScalePaths>,
    defaults: Defaults,
}

/// Fields that an object gets if it lacks them: a value for each field. The fields of `name?` are set only if `name` is
/// there, and those of `name[]` in each item.
#[derive(Debug, Clone, PartialEq)]
struct Defaults(Value);

/// All kinds.
#[derive(Debug)]
pub(crate) struct Kinds(Vec<Arc<Kind>>);

/// Group, version, kind, plural, whether it is namespaced, and its traits.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [Trait],
);

#[rustfmt::skip]
const BUILT_IN: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", true, &[]),
    ("", "v1", "Namespace", "namespaces", false, &[Status]),
    ("", "v1", "Node", "nodes", false, &[Status]),
    ("", "v1", "Pod", "pods", true, &[Status, Generation]),
    ("", "v1", "ResourceQuota", "resourcequotas", true, &[Status]),
    ("", "v1", "Secret", "secrets", true, &[]),
    ("", "v1", "ServiceAccount", "serviceaccounts", true, &[]),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false, &[Status, Generation, Conditional]),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false, &[Status, Conditional]),
    ("apps", "v1", "Deployment", "deployments", true, &[Status, Generation]),
    ("apps", "v1", "ReplicaSet", "replicasets", true, &[Status, Generation]),
    ("apps", "v1", "StatefulSet", "statefulsets", true, &[Status, Generation]),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false, &[Review]),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false, &[Review]),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false, &[Review]),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, &[Status]),
    ("coordination.k8s.io", "v1", "Lease", "leases", true, &[Conditional]),
    ("events.k8s.io", "v1", "Event", "events", true, &[]),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false, &[]),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false, &[]),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true, &[]),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true, &[]),
];

/// The built-in kinds with a scale subresource.
const SCALED: [&str; 3] = ["deployments", "replicasets", "statefulsets"];

// === impl Kind ===

impl Kind {
    pub(crate) fn has(&self, it: Trait) -> bool {
        self.traits.contains(&it)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection in a namespace, which matters only to kinds with namespaces.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let api = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = if self.is_namespaced {
            format!("namespaces/{namespace}/")
        } else {
            String::new()
        };
        format!("/{api}/{}/{namespace}{}", self.api_version(), self.plural)
    }

    /// The name of the collection, such as `deployments.apps`.
    pub(crate) fn collection(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The kind with its group, such as `Deployment.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// Gives an object the fields that it lacks.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        fill(object, &self.defaults.0);
    }

    /// The subresources that a URL may name.
    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.has(Status),
            "scale" => self.scale.is_some(),
            _ => false,
        }
    }

    fn built_in(&(group, version, kind, plural, is_namespaced, traits): &Row) -> Self {
        let pointer = |path: &str| path.to_owned();
        let scale = SCALED.contains(&plural).then(|| ScalePaths {
            spec: pointer("/spec/replicas"),
            status: pointer("/status/replicas"),
            selector: Some(pointer("/spec/selector")),
        });
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            is_namespaced,
            is_custom: false,
            traits: traits.to_vec(),
            scale,
            defaults: Defaults(DEFAULTS.get(kind).cloned().unwrap_or_default()),
        }
    }

    /// The kind of the version that a CRD stores.
    fn custom(crd: &Value) -> Option<Self> {
        let spec = &crd["spec"];
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let versions = spec["versions"].as_array()?;
        let version = versions.iter().find(|version| version["storage"] == true)?;
        let subresources = &version["subresources"];
        let mut traits = vec![Generation, Conditional];
        traits.extend(subresources["status"].is_object().then_some(Status));
        // `.spec.replicas`, as a pointer.
        let pointer = |field: &str| Some(subresources["scale"][field].as_str()?.replace('.', "/"));
        let scale = pointer("specReplicasPath").zip(pointer("statusReplicasPath"));
        let schema = &version["schema"]["openAPIV3Schema"];
        Some(Self {
            group: text(&spec["group"])?,
            version: text(&version["name"])?,
            kind: text(&spec["names"]["kind"])?,
            plural: text(&spec["names"]["plural"])?,
            is_namespaced: spec["scope"] == "Namespaced",
            is_custom: true,
            traits,
            scale: scale.map(|(spec, status)| ScalePaths {
                spec,
                status,
                selector: pointer("labelSelectorPath"),
            }),
            defaults: Defaults(schema_defaults(schema).unwrap_or_default()),
        })
    }

    /// Entries of discovery for the kind and its subresources.
    fn discovered(&self) -> Vec<Value> {
        let entry = |name: &str, kind: &str, verbs: &[&str]| {
            json!({
                "name": format!("{}{name}", self.plural), "singularName": "", "namespaced": self.is_namespaced,
                "kind": kind, "verbs": verbs,
            })
        };
        let verbs = [
            "create", "delete", "get", "list", "patch", "update", "watch",
        ];
        let all = if self.has(Review) {
            &verbs[..1]
        } else {
            &verbs[..]
        };
        let mut entries = vec![entry("", &self.kind, all)];
        entries[0]["singularName"] = json!(self.kind.to_lowercase());
        if self.scale.is_some() {
            let mut scale = entry("/scale", "Scale", &["get", "patch", "update"]);
            scale["group"] = json!("autoscaling");
            scale["version"] = json!("v1");
            entries.push(scale);
        }
        if self.has(Status) {
            entries.push(entry("/status", &self.kind, &["get", "patch", "update"]));
        }
        entries
    }
}

// === impl Kinds ===

impl Default for Kinds {
    fn default() -> Self {
        Self(
            BUILT_IN
                .iter()
                .map(|row| Arc::new(Kind::built_in(row)))
                .collect(),
        )
    }
}

impl Kinds {
    /// The kind of this group, version and plural.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let matches = |kind: &&Arc<Kind>| {
            kind.group == group && kind.version == version && kind.plural == plural
        };
        self.0.iter().find(matches).cloned()
    }

    /// The kind of objects with this `apiVersion` and `kind`.
    pub(crate) fn named(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.0
            .iter()
            .find(|known| known.api_version() == api_version && known.kind == kind)
            .cloned()
    }

    /// Returns whether any kind is in this group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.0.iter().any(|kind| kind.group == group)
    }

    /// The kind of a collection, such as `deployments.apps`.
    pub(crate) fn of(&self, collection: &str) -> Option<Arc<Kind>> {
        self.0
            .iter()
            .find(|kind| kind.collection() == collection)
            .cloned()
    }

    /// Serves the kind of a CRD, also after a change of the CRD.
    pub(crate) fn define(&mut self, crd: &Value) {
        if let Some(kind) = Kind::custom(crd) {
            let is_other = |known: &Arc<Kind>| known.collection() != kind.collection();
            self.0.retain(is_other);
            self.0.push(Arc::new(kind));
        }
    }

    /// The document at a path of discovery. `aggregated` are the APIs that other servers answer, as `group/version`.
    pub(crate) fn discovery(&self, path: &str, aggregated: &[String]) -> Option<Value> {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
            ["apis"] => Some(json!({
                "kind": "APIGroupList", "apiVersion": "v1", "groups": self.groups(aggregated),
            })),
            ["apis", group] => {
                let groups = self.groups(aggregated);
                let mut found = groups.into_iter().find(|found| found["name"] == group)?;
                found["kind"] = json!("APIGroup");
                found["apiVersion"] = json!("v1");
                Some(found)
            }
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            _ => None,
        }
    }

    fn groups(&self, aggregated: &[String]) -> Vec<Value> {
        let own = self
            .0
            .iter()
            .filter(|kind| !kind.group.is_empty())
            .map(|kind| kind.api_version());
        let mut versions: Vec<String> = own.chain(aggregated.iter().cloned()).collect();
        versions.sort();
        versions.dedup();
        let group = |group_version: &String| {
            let (name, version) = group_version.split_once('/').unwrap_or_default();
            let version = json!({"groupVersion": group_version, "version": version});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        versions.iter().map(group).collect()
    }

    fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let kinds = self
            .0
            .iter()
            .filter(|kind| kind.group == group && kind.version == version);
        let resources: Vec<Value> = kinds.flat_map(|kind| kind.discovered()).collect();
        let group_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        (!resources.is_empty()).then(|| {
            json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
                "resources": resources,
            })
        })
    }
}

/// The defaults of a structural schema.
fn schema_defaults(schema: &Value) -> Option<Value> {
    let mut defaults = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let inner = schema_defaults(field);
        let items = schema_defaults(&field["items"]);
        if let Some(value) = field.get("default") {
            // An object that is added gets the defaults inside it as well.
            let mut value = value.clone();
            fill(&mut value, &inner.unwrap_or_default());
            defaults.insert(name.clone(), value);
        } else if let Some(inner) = inner {
            defaults.insert(format!("{name}?"), inner);
        } else if let Some(items) = items {
            defaults.insert(format!("{name}[]"), items);
        }
    }
    (!defaults.is_empty()).then_some(Value::Object(defaults))
}

fn fill(object: &mut Value, defaults: &Value) {
    let (Value::Object(fields), Value::Object(defaults)) = (object, defaults) else {
        return;
    };
    for (name, default) in defaults {
        if let Some(name) = name.strip_suffix("[]") {
            let items = fields.get_mut(name).and_then(Value::as_array_mut);
            items
                .into_iter()
                .flatten()
                .for_each(|item| fill(item, default));
        } else if let Some(name) = name.strip_suffix('?') {
            if let Some(field) = fields.get_mut(name) {
                fill(field, default);
            }
        } else if default.is_object() {
            fill(
                fields.entry(name.clone()).or_insert_with(|| json!({})),
                default,
            );
        } else {
            fields
                .entry(name.clone())
                .or_insert_with(|| default.clone());
        }
    }
}

/// The defaults of upstream's `pkg/apis/*/v*/defaults.go`, by kind.
static DEFAULTS: LazyLock<Value> = LazyLock::new(|| {
    let pod_spec = json!({
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "securityContext": {},
        "containers[]": {
            "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        },
    });
    let template = json!({"metadata": {}, "spec": pod_spec});
    let tolerated = |key: &str| {
        json!({
            "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300,
        })
    };
    let mut pod = pod_spec.clone();
    fill(
        &mut pod,
        &json!({
            "enableServiceLinks": true, "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [tolerated("not-ready"), tolerated("unreachable")],
        }),
    );
    let policy =
        |kind: &str, value: u32| json!({"type": kind, "value": value, "periodSeconds": 15});
    json!({
        "Namespace": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
        "Node": {"spec": {}, "status": {}},
        "Pod": {"spec": pod, "status": {"phase": "Pending"}},
        "Event": {"deprecatedSource": {}},
        "ResourceQuota": {"status": {}},
        "Secret": {"type": "Opaque"},
        "Deployment": {
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "template": template,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            },
            "status": {},
        },
        "ReplicaSet": {"spec": {"replicas": 1, "template": template}, "status": {"replicas": 0}},
        "StatefulSet": {
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady", "template": template,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
            "status": {"replicas": 0, "availableReplicas": 0},
        },
        "HorizontalPodAutoscaler": {
            "spec": {
                "minReplicas": 1,
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }],
                "behavior?": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                        "policies": [policy("Pods", 4), policy("Percent", 100)],
                    },
                    "scaleDown": {"selectPolicy": "Max", "policies": [policy("Percent", 100)]},
                },
            },
            "status": {"desiredReplicas": 0, "currentMetrics": null},
        },
        "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io"}},
        "ClusterRoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io"}},
    })
});
