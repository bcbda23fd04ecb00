//! Registrations of other adapters: they are never written, at the start and later.

use foretide::{
    app::{self, adapter::AdapterError},
    config::AdapterConfig,
    machine::Machine,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{AuditEvent, eventually};
use serde_json::json;

use super::{API_SERVICES, SYSTEM, World};
use crate::world::TIMEOUT;

/// The service of another adapter.
const FOREIGN: [&str; 2] = ["keda", "keda-operator-metrics-apiserver"];

/// The requests of the adapter about one registration.
fn requests(world: &World, name: &str) -> Vec<AuditEvent> {
    let adapter = format!("system:serviceaccount:{SYSTEM}:foretide-adapter");
    let mut requests = world.cluster.audit().unwrap();
    requests.retain(|event| {
        event.user == adapter && event.resource == "apiservices" && event.name == name
    });
    requests
}

fn written(world: &World, name: &str) -> usize {
    let requests = requests(world, name);
    requests.iter().filter(|one| one.is_write()).count()
}

fn services(world: &World) -> Api<APIService> {
    Api::all(world.client.clone())
}

/// Makes the registration of external metrics that of this service.
async fn move_to(world: &World, [namespace, service]: [&str; 2]) -> APIService {
    let patch = Patch::Merge(json!({
        "metadata": {"labels": {"app.kubernetes.io/part-of": "keda-operator"}},
        "spec": {"service": {"namespace": namespace, "name": service}},
    }));
    let (services, parameters) = (services(world), PatchParams::default());
    let moved = services.patch(API_SERVICES[0], &parameters, &patch);
    moved.await.unwrap()
}

/// An adapter ends at its start where another one is registered, and says whose it is.
pub(super) async fn an_adapter_does_not_start_over_another_one(
    world: &World,
    config: AdapterConfig,
) {
    let external = API_SERVICES[0];
    let foreign = move_to(world, FOREIGN).await;
    let run = app::adapter::run(config, Machine::system(), std::future::pending());
    let refused = run.await.unwrap_err();
    let AdapterError::Registered(refused) = refused else {
        panic!("{refused:?}")
    };
    let message = refused.to_string();
    for part in [
        external,
        "keda/keda-operator-metrics-apiserver (app.kubernetes.io/part-of: keda-operator",
        "expected service foretide-system/foretide-adapter",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let found = services(world).get(external).await.unwrap();
    assert_eq!(found.spec, foreign.spec);
    assert_eq!(written(world, external), 0);
    move_to(world, [SYSTEM, "foretide-adapter"]).await;
}

/// What becomes foreign while the adapter runs keeps what it has, and the other registrations are restored.
pub(super) async fn a_registration_that_another_adapter_takes_is_left_to_it(world: &World) {
    let (services, parameters) = (services(world), PatchParams::default());
    let [external, custom, _] = API_SERVICES;
    move_to(world, FOREIGN).await;
    let no_bundle = Patch::Merge(json!({"spec": {"caBundle": null}}));
    for name in [external, custom] {
        services.patch(name, &parameters, &no_bundle).await.unwrap();
    }
    let (writes, reads) = (written(world, external), requests(world, external).len());
    eventually(TIMEOUT, "ours is written again", || async {
        let spec = services.get(custom).await.unwrap().spec.unwrap();
        let later = requests(world, external).len();
        if spec.ca_bundle.is_some() && later > reads + 2 {
            Ok(())
        } else {
            Err(format!("{:?}, {later} requests", spec.ca_bundle))
        }
    })
    .await;
    let spec = services.get(external).await.unwrap().spec.unwrap();
    assert_eq!(spec.ca_bundle, None);
    assert_eq!(written(world, external), writes);
}
