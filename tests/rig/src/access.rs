//! The operations of a test on a cluster beyond plain objects: namespaces, nodes, other identities, registered APIs,
//! the CPU usage of pods. Each is a few API calls.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Client,
    api::{Api, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    CPU_ANNOTATION, Cluster, Component, Error, NodeSize, Relay, Result,
    cluster::{client_of, http_get},
    kwok::metrics_path,
    wait::within,
};

/// The timeout for nodes, registered APIs and the like.
const TIMEOUT: Duration = Duration::from_mins(3);

impl Cluster {
    /// Makes a namespace, or does nothing when it exists, and returns its name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, name: &str) -> Result<String> {
        let api: Api<Namespace> = Api::all(self.client());
        self.put(&api, &json!({"metadata": {"name": name}})).await?;
        Ok(name.to_owned())
    }

    /// Adds nodes after those that exist (`node-0`, `node-1`, ...), and returns when all are Ready.
    ///
    /// # Errors
    /// When the API server refuses, or a node does not become ready.
    pub(crate) async fn add_nodes(&self, sizes: &[NodeSize]) -> Result<()> {
        let api: Api<Node> = Api::all(self.client());
        let list = || async { api.list(&ListParams::default()).await };
        let first = list().await.map_err(Error::api("list nodes"))?.items.len();
        for (offset, size) in sizes.iter().enumerate() {
            self.put(&api, &node(&format!("node-{}", first + offset), size))
                .await?;
        }
        let all_ready = || async {
            let nodes = list().await.map_err(|no| no.to_string())?;
            let waiting: Vec<_> = nodes.items.iter().filter(|node| !is_open(node)).collect();
            match waiting.first() {
                None => Ok(()),
                Some(node) => Err(format!("{:?} is not", node.metadata.name)),
            }
        };
        within(TIMEOUT, "all nodes are ready", all_ready).await
    }

    /// A client for another user (by impersonation; the audit log names that user).
    ///
    /// # Errors
    /// When its kubeconfig cannot be written.
    pub async fn client_as(&self, user: &str) -> Result<Client> {
        let admin = self.layout().pki.client("admin", Some("system:masters"))?;
        let mut description = admin.user();
        if let Some(description) = description.as_object_mut() {
            description.insert("as".to_owned(), json!(user));
        }
        let file = format!("as-{}", user.replace([':', '/'], "-"));
        client_of(&self.layout().write_kubeconfig(&file, &description)?).await
    }

    /// A kubeconfig for an existing service account, with a token that is valid for a day: the identity that a
    /// Deployment of that account would have, user `system:serviceaccount:NAMESPACE:NAME`.
    ///
    /// # Errors
    /// When the account does not exist, or the file cannot be written.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.service_account_token(namespace, name).await?;
        self.layout()
            .write_kubeconfig(&format!("{namespace}-{name}"), &json!({"token": token}))
    }

    /// Writes what the kubelet mounts into a pod of an existing service account (`token`, `ca.crt`, `namespace`) into a
    /// folder; returns the variables that point a client at this API server.
    ///
    /// # Errors
    /// When the account does not exist, or a file cannot be written.
    pub async fn mount_service_account(
        &self,
        namespace: &str,
        name: &str,
        folder: &Path,
    ) -> Result<[(&'static str, String); 2]> {
        let token = self.service_account_token(namespace, name).await?;
        let port = self.layout().port(Component::KubeApiserver);
        let files = [
            ("token", token.as_str().unwrap_or_default()),
            ("ca.crt", self.layout().pki.ca_pem()),
            ("namespace", namespace),
        ];
        for (file, content) in files {
            let path = folder.join(file);
            std::fs::write(&path, content).map_err(Error::file("write", &path))?;
        }
        Ok([
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT", port.to_string()),
        ])
    }

    /// A relay to the API server, which can be blocked: a network between it and one of its clients.
    ///
    /// # Errors
    /// When no port is free.
    pub(crate) async fn relay(&self) -> Result<Relay> {
        Relay::to([self.layout().port(Component::KubeApiserver)]).await
    }

    /// A token for an existing service account that is valid for a day.
    pub(crate) async fn service_account_token(&self, namespace: &str, name: &str) -> Result<Value> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 86_400},
        });
        let answer: Value = api
            .create_subresource("token", name, &PostParams::default(), &request)
            .await
            .map_err(Error::api(format!("make a token for {namespace}/{name}")))?;
        Ok(answer.pointer("/status/token").cloned().unwrap_or_default())
    }

    /// Registers an HTTPS server on 127.0.0.1:`port` as the API `version.group`, and returns when
    /// the API server has found it available. Its certificate is not checked.
    ///
    /// # Errors
    /// When the API server refuses, or the API does not become available.
    pub async fn register_api(&self, group: &str, version: &str, port: u16) -> Result<()> {
        let service = format!("api-{}-{version}", group.replace('.', "-"));
        let services: Api<Service> = Api::namespaced(self.client(), "kube-system");
        // There is no service network: the aggregator resolves the external name itself.
        self.put(
            &services,
            &json!({
                "metadata": {"name": service},
                "spec": {
                    "type": "ExternalName",
                    "externalName": "localhost",
                    "ports": [{"name": "https", "port": port}],
                },
            }),
        )
        .await?;
        let registrations: Api<APIService> = Api::all(self.client());
        let name = format!("{version}.{group}");
        self.put(
            &registrations,
            &registration(&name, group, version, (&service, port)),
        )
        .await?;
        let available = || async {
            let seen = registrations
                .get(&name)
                .await
                .map_err(|no| no.to_string())?;
            available(&seen)?;
            // Clients request the discovery of the group next.
            let path = format!("/apis/{group}/{version}");
            self.client()
                .request_text(http_get(&path))
                .await
                .map_err(|no| no.to_string())
        };
        within(TIMEOUT, &format!("the API {name} is available"), available)
            .await
            .map(drop)
    }

    /// Lets the pods that match `selector` share `cores` of CPU equally, by annotating each with
    /// what it uses. metrics-server shows it one or two scrapes (10 s each) later; call it again
    /// when the pods change.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn share_cpu(&self, namespace: &str, selector: &str, cores: f64) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client(), namespace);
        let listing = api.list(&ListParams::default().labels(selector)).await;
        let running: Vec<Pod> = listing
            .map_err(Error::api(format!("list pods of {namespace}")))?
            .into_iter()
            .filter(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none())
            .collect();
        let Ok(count) = u32::try_from(running.len()) else {
            return Ok(());
        };
        let nano = (cores * 1e9 / f64::from(count.max(1))).round();
        let patch = json!({"metadata": {"annotations": {CPU_ANNOTATION: format!("{nano}n")}}});
        for pod in running {
            let name = pod.metadata.name.unwrap_or_default();
            let patched = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            match patched {
                // Deleted since it was listed.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.map_err(Error::api(format!("patch pod {namespace}/{name}")))?),
            }
        }
        Ok(())
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn node(name: &str, size: &NodeSize) -> Value {
    let room = json!({"cpu": size.cpu, "memory": size.memory, "pods": size.pods.to_string()});
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {"metrics.k8s.io/resource-metrics-path": metrics_path(name)},
        },
        "status": {"capacity": room, "allocatable": room},
    })
}

/// Ready, and without the taints of a new node.
fn is_open(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    });
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ready && taints.is_none_or(Vec::is_empty)
}

fn registration(name: &str, group: &str, version: &str, service: (&str, u16)) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": service.0, "port": service.1},
        },
    })
}

fn available(registration: &APIService) -> Result<(), String> {
    let conditions = registration
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == "Available");
    match condition {
        Some(one) if one.status == "True" => Ok(()),
        Some(one) => Err(one.message.clone().unwrap_or_default()),
        None => Err("no condition yet".to_owned()),
    }
}
