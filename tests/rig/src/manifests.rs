//! Applies YAML as `kubectl apply --server-side` does: several documents of any kind, in their order. It leaves checks
//! of the result to the test.

use std::{fmt::Debug, fs, time::Duration};

use kube::{
    Client, Resource,
    api::{Api, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{ApiResource, Scope, pinned_kind},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{Cluster, Error, Result, go_module::downloaded, wait::within};

/// The time until the API of a new custom resource is served.
const SERVED: Duration = Duration::from_mins(3);

impl Cluster {
    /// Applies all documents of a YAML text by server-side apply, and returns when the custom
    /// resources defined in it are served. Objects without a namespace go to `default`.
    ///
    /// # Errors
    /// [`Error::Manifest`] when a document is not a Kubernetes object; [`Error::Api`] when the API
    /// server refuses one.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        let unreadable = |why: String| Error::Manifest { why };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|no| unreadable(no.to_string()))?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let object: DynamicObject =
                serde_json::from_value(document).map_err(|no| unreadable(no.to_string()))?;
            self.apply_one(object).await?;
        }
        Ok(())
    }

    /// Applies the definitions of the Prometheus operator's kinds `ServiceMonitor` and `PrometheusRule`.
    ///
    /// # Errors
    /// As [`Cluster::apply`]; when there is no Go, or the operator's module cannot be downloaded.
    pub async fn define_monitors(&self) -> Result<()> {
        let module = "github.com/prometheus-operator/prometheus-operator";
        let folder = tokio::task::block_in_place(|| downloaded(module))?;
        let folder = folder.join("example/prometheus-operator-crd");
        for kind in ["servicemonitors", "prometheusrules"] {
            let path = folder.join(format!("monitoring.coreos.com_{kind}.yaml"));
            let definition = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            self.apply(&definition).await?;
        }
        Ok(())
    }

    async fn apply_one(&self, object: DynamicObject) -> Result<()> {
        let named = object.metadata.name.clone().unwrap_or_default();
        let kind = object
            .types
            .as_ref()
            .and_then(|types| GroupVersionKind::try_from(types).ok());
        let Some(kind) = kind else {
            return Err(Error::Manifest {
                why: format!("{named} has no apiVersion and kind"),
            });
        };
        let (resource, scope) = served(&self.client(), &kind).await?;
        let api: Api<DynamicObject> = match (scope, object.metadata.namespace.as_deref()) {
            (Scope::Cluster, _) => Api::all_with(self.client(), &resource),
            (Scope::Namespaced, namespace) => {
                Api::namespaced_with(self.client(), namespace.unwrap_or("default"), &resource)
            }
        };
        let parameters = PatchParams::apply("rig").force();
        let applied = api.patch(&named, &parameters, &Patch::Apply(&object)).await;
        applied.map_err(Error::api(format!("apply {} {named}", kind.kind)))?;
        if kind.kind == "CustomResourceDefinition" {
            let defined = defined(&object.data);
            served(&self.client(), &defined).await?;
        }
        Ok(())
    }

    /// Writes one object given as JSON by server-side apply; `apiVersion` and `kind` are those of
    /// `K`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn put<K>(&self, api: &Api<K>, object: &Value) -> Result<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(K::api_version(&())));
            fields.insert("kind".to_owned(), json!(K::kind(&())));
        }
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let parameters = PatchParams::apply("rig").force();
        api.patch(name, &parameters, &Patch::Apply(&object))
            .await
            .map_err(Error::api(format!("apply {} {name}", K::kind(&()))))
    }
}

/// The resource of a kind; waits for one that was defined just now.
async fn served(client: &Client, kind: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
    let what = format!("{}/{} {} is served", kind.group, kind.version, kind.kind);
    let found = within(SERVED, &what, || pinned_kind(client, kind)).await?;
    Ok((found.0, found.1.scope))
}

/// The kind that a custom resource definition defines, in its first version.
fn defined(definition: &Value) -> GroupVersionKind {
    let text = |pointer| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    GroupVersionKind::gvk(
        text("/spec/group"),
        text("/spec/versions/0/name"),
        text("/spec/names/kind"),
    )
}
