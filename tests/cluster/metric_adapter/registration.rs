//! Registrations of other adapters: they are never written, at the start and later.

use foretide::{
    app::{self, adapter::AdapterError},
    config::AdapterConfig,
    machine::Machine,
    ports::CertificateLifetimes,
};
use jiff::SignedDuration;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{AuditEvent, ClusterOptions, eventually};
use serde_json::json;

use super::{API_SERVICES, RunningAdapter, SYSTEM, World, available, config, install};
use crate::{metrics_access::free_address, world::TIMEOUT};

/// The requests of the adapter about one registration.
fn requests(world: &World, name: &str) -> Vec<AuditEvent> {
    let adapter = format!("system:serviceaccount:{SYSTEM}:foretide-adapter");
    let mut requests = world.cluster.audit().unwrap();
    requests.retain(|event| {
        event.user == adapter && event.resource == "apiservices" && event.name == name
    });
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_of_another_adapter_is_never_taken_over() {
    let world = World::start(ClusterOptions::named("adapter-registration")).await;
    let services: Api<APIService> = Api::all(world.client.clone());
    let address = free_address();
    let kubeconfig = install(&world, address.port()).await;
    let params = PatchParams::default();
    let [external, custom, _] = API_SERVICES;
    let move_to = async |namespace: &str, service: &str| {
        let patch = Patch::Merge(json!({
            "metadata": {"labels": {"app.kubernetes.io/part-of": "keda-operator"}},
            "spec": {"service": {"namespace": namespace, "name": service}},
        }));
        let patched = services.patch(external, &params, &patch);
        patched.await.unwrap()
    };

    // At the start: it ends, and says whose it is.
    let foreign = move_to("keda", "keda-operator-metrics-apiserver").await;
    let run = app::adapter::run(
        config(&kubeconfig, address),
        Machine::system(),
        std::future::pending(),
    );
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
    assert_eq!(services.get(external).await.unwrap().spec, foreign.spec);
    assert!(!requests(&world, external).iter().any(AuditEvent::is_write));

    // Later: what becomes foreign keeps what it has, and the others go on.
    move_to(SYSTEM, "foretide-adapter").await;
    let lifetimes = CertificateLifetimes {
        period: SignedDuration::from_millis(200),
        ..CertificateLifetimes::PUBLISHED
    };
    let _adapter = RunningAdapter::run(AdapterConfig {
        lifetimes,
        ..config(&kubeconfig, address)
    });
    available(&world.client).await;
    move_to("keda", "keda-operator-metrics-apiserver").await;
    let no_bundle = Patch::Merge(json!({"spec": {"caBundle": null}}));
    for name in [external, custom] {
        services.patch(name, &params, &no_bundle).await.unwrap();
    }
    let writes = requests(&world, external)
        .iter()
        .filter(|one| one.is_write())
        .count();
    let reads = requests(&world, external).len();
    eventually(TIMEOUT, "ours is written again", || async {
        let spec = services.get(custom).await.unwrap().spec.unwrap();
        let later = requests(&world, external).len();
        if spec.ca_bundle.is_some() && later > reads + 2 {
            Ok(())
        } else {
            Err(format!("{:?}, {later} requests", spec.ca_bundle))
        }
    })
    .await;
    assert_eq!(
        services
            .get(external)
            .await
            .unwrap()
            .spec
            .unwrap()
            .ca_bundle,
        None
    );
    let later = requests(&world, external)
        .iter()
        .filter(|one| one.is_write())
        .count();
    assert_eq!(later, writes);
}
