//! The Deployment controller. Its pods belong to the Deployment itself: there is no `ReplicaSet` between them. A paused
//! Deployment is in the middle of an update: it has as many pods more as `maxSurge` allows.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{APP, World, is_ready, path_of, pods};

const CONTROLLER: &str = "deployment-controller";

impl World {
    pub(super) fn reconcile_deployments(&mut self) {
        for deployment in self.server.objects("deployments.apps") {
            self.reconcile_deployment(&deployment);
        }
    }

    fn reconcile_deployment(&mut self, deployment: &Value) {
        let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or_default();
        let wanted = usize::try_from(wanted + surge(deployment, wanted)).unwrap_or(usize::MAX);
        let mut pods = pods(&self.server, namespace, name);
        for _missing in pods.len()..wanted {
            self.create_pod(deployment, namespace, name);
        }
        // The last pods come first, and among them those that are not ready.
        pods.sort_by_key(|pod| !is_ready(pod));
        for pod in pods.iter().skip(wanted) {
            self.server
                .ask(CONTROLLER, "DELETE", &path_of(pod), &Value::Null);
        }
        let kept = &pods[..wanted.min(pods.len())];
        self.report(deployment, namespace, name, (wanted, kept));
    }

    fn create_pod(&mut self, deployment: &Value, namespace: &str, name: &str) {
        self.created += 1;
        let template = &deployment["spec"]["template"];
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": deployment["metadata"]["uid"],
            "controller": true,
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": {
                "name": format!("{name}-{:05}", self.created), "labels": {APP: name}, "ownerReferences": [owner],
            },
        });
        self.server.ask(
            CONTROLLER,
            "POST",
            &format!("/api/v1/namespaces/{namespace}/pods"),
            &pod,
        );
    }

    fn report(
        &self,
        deployment: &Value,
        namespace: &str,
        name: &str,
        (wanted, kept): (usize, &[Arc<Value>]),
    ) {
        let ready = kept.iter().filter(|pod| is_ready(pod)).count();
        let status = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": wanted, "readyReplicas": ready, "availableReplicas": ready,
        });
        let fields = status.as_object().into_iter().flatten();
        if fields
            .into_iter()
            .any(|(field, value)| deployment["status"][field] != *value)
        {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status");
            self.patch(CONTROLLER, &path, &json!({"status": status}));
        }
    }
}

/// Returns the number of pods that a paused Deployment has beside those that are wanted.
fn surge(deployment: &Value, wanted: u64) -> u64 {
    let spec = &deployment["spec"];
    let most = spec["strategy"]["rollingUpdate"]["maxSurge"].as_str();
    let percent = most.and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    let percent = percent.filter(|_| spec["paused"] == true);
    (wanted * percent.unwrap_or_default()).div_ceil(100)
}
