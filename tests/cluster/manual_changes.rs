//! Changes to objects by hand, and the controller's progress after them.

use std::fmt::Debug;

use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PropagationPolicy},
};
use rig::{AuditEvent, FakeMetrics, Reading, eventually};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{Controller, NAMESPACE, TIMEOUT, World};

/// The external metric of these scenarios: its value divided by ten is the count that it requests.
pub(crate) const QUEUE: &str = "queue";

/// Makes `QUEUE` request this number of replicas.
pub(crate) fn demand_replicas(metrics: &FakeMetrics, replicas: u32) {
    let value = (replicas * 10).to_string();
    metrics.set_external(NAMESPACE, QUEUE, vec![Reading::new(&value)]);
}

/// The `metrics` of an autoscaler that follows `QUEUE`.
pub(crate) fn queue_metrics() -> Value {
    json!([{
        "type": "External",
        "external": {
            "metric": { "name": QUEUE },
            "target": { "type": "AverageValue", "averageValue": "10" },
        },
    }])
}

/// An autoscaler with the name of its target, with these fields of `spec` besides the bounds.
pub(crate) fn ehpa(target: (&str, &str, &str), (min, max): (i32, i32), more: &Value) -> Value {
    let (api_version, kind, name) = target;
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": api_version, "kind": kind, "name": name },
        "minReplicas": min,
        "maxReplicas": max,
    });
    let fields = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// The `apiVersion`, kind and name of a Deployment.
pub(crate) const fn deployment(name: &str) -> (&str, &str, &str) {
    ("apps/v1", "Deployment", name)
}

/// Applies a merge patch as a user.
pub(crate) async fn edit<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Deletes an object as `kubectl delete` does.
pub(crate) async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let background = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    api.delete(name, &background).await.unwrap();
}

/// Waits until an object is deleted.
pub(crate) async fn wait_until_deleted<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    eventually(
        TIMEOUT,
        &format!("{} {name} is gone", K::kind(&())),
        || async {
            let found = api.get_opt(name).await.map_err(|error| error.to_string())?;
            if found.is_none() {
                Ok(())
            } else {
                Err("it is still there")
            }
            .map_err(str::to_owned)
        },
    )
    .await;
}

/// A condition of a status, as `status/reason`, and its message.
pub(crate) fn condition(status: &Value, kind: &str) -> Option<(String, String)> {
    let found = status
        .get("conditions")?
        .as_array()?
        .iter()
        .find(|c| c["type"] == kind)?;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    Some((
        format!("{}/{}", text("status"), text("reason")),
        text("message"),
    ))
}

impl Controller {
    /// The number of syncs with work so far, over autoscalers and over fleets.
    pub(crate) fn syncs(&self) -> u64 {
        let text = self.telemetry.encode();
        let count = |name: &str| -> u64 {
            let prefix = format!("foretide_{name}_duration_seconds_count ");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
            line.unwrap().parse().unwrap()
        };
        count("sync") + count("fleet_sync")
    }

    /// Waits for `count` more syncs; objects that they have not written are not written by the controller.
    pub(crate) async fn further_syncs(&self, count: u64) {
        let until = self.syncs() + count;
        eventually(TIMEOUT, &format!("{count} further syncs"), || async {
            let seen = self.syncs();
            if seen >= until {
                Ok(())
            } else {
                Err(format!("{seen} of {until}"))
            }
        })
        .await;
    }
}

impl World {
    /// Waits until the condition of an autoscaler is `wanted` (`status/reason`); returns its message.
    pub(crate) async fn condition(&self, name: &str, kind: &str, wanted: &str) -> String {
        self.status(name, &format!("{kind}={wanted}"), |status| {
            condition(status, kind)
                .filter(|(is, _)| is == wanted)
                .map(|(_, message)| message)
        })
        .await
    }

    /// Waits until the condition of an autoscaler is `wanted` (`status/reason`) and says `words`: the same reason may have
    /// had another cause before.
    pub(crate) async fn condition_says(&self, name: &str, kind: &str, wanted: &str, words: &str) {
        self.status(name, &format!("{kind}={wanted}: {words}"), |status| {
            condition(status, kind)
                .filter(|(is, message)| is == wanted && message.contains(words))
                .map(drop)
        })
        .await;
    }

    /// Waits until an autoscaler decides on this count.
    pub(crate) async fn decides(&self, name: &str, replicas: i32) {
        self.status(name, &format!("{replicas} expected replicas"), |status| {
            (status.get("expectReplicas")?.as_i64()? == i64::from(replicas)).then_some(())
        })
        .await;
    }

    /// The writes of the controller so far, including refused ones.
    pub(crate) fn writes(&self) -> Vec<AuditEvent> {
        self.requests()
            .into_iter()
            .filter(AuditEvent::is_write)
            .collect()
    }
}

/// The resource of a write, such as `deployments/scale`.
pub(crate) fn written(event: &AuditEvent) -> String {
    match event.subresource.as_str() {
        "" => event.resource.clone(),
        subresource => format!("{}/{subresource}", event.resource),
    }
}
