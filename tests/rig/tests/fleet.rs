//! Tests of the rig's fleet: its members are separate clusters, reachable by the Secrets it makes, and a blocked relay
//! hangs until it is unblocked.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first failure, and measures the timeout of a silent peer"
)]

use std::time::{Duration, Instant};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use rig::{ClusterOptions, Component, Fleet, NodeSize, eventually};
use serde_json::json;

const SOON: Duration = Duration::from_mins(3);

async fn reads(maps: &Api<ConfigMap>) -> kube::Result<()> {
    maps.list(&ListParams::default()).await.map(drop)
}

/// The client that a Secret of a member gives, with a timeout of this many seconds.
async fn client_of(secret: &Secret, timeout_seconds: u64) -> Client {
    let ByteString(kubeconfig) = secret.data.as_ref().unwrap()["kubeconfig"].clone();
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.read_timeout = Some(Duration::from_secs(timeout_seconds));
    // Otherwise the time for which its connection was idle counts too.
    config.reset_reader_on_write = true;
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_reached_by_its_secret_and_hangs_while_its_relay_is_blocked() {
    let bare = |name: &str| {
        ClusterOptions::named(name)
            .without(Component::KubeScheduler)
            .without(Component::Kwok)
            .nodes(0, NodeSize::new("1", "1Gi", 1))
    };
    let fleet = Fleet::start(bare("hub"), vec![bare("east"), bare("west")])
        .await
        .unwrap();
    let member = fleet.member("east");
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "hub", "namespace": "default"},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "hub"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": "default"}],
    });
    member.cluster.apply(&account.to_string()).await.unwrap();
    member.cluster.apply(&binding.to_string()).await.unwrap();
    let kubeconfig = member.kubeconfig("default", "hub").await.unwrap();
    let metadata = json!({"labels": {"foretide.io/region": "east"}});
    fleet.hub.namespace("fleet").await.unwrap();
    fleet
        .register_member("east", "fleet", &kubeconfig, &metadata)
        .await
        .unwrap();

    let secrets: Api<Secret> = Api::namespaced(fleet.hub.client(), "fleet");
    let label = "sigs.k8s.io/multicluster-runtime-kubeconfig=true,foretide.io/region=east";
    let listed = secrets.list(&ListParams::default().labels(label)).await;
    let listed = listed.unwrap();
    let east = client_of(&listed.items[0], 2).await;
    let maps: Api<ConfigMap> = Api::namespaced(east, "default");
    // Permissions reach the authorizer by watch.
    eventually(SOON, "the member lets us in", || reads(&maps)).await;

    member.block();
    let asked = Instant::now();
    let silence = maps.list(&ListParams::default()).await;
    assert!(silence.is_err(), "{silence:?}");
    assert!(
        asked.elapsed() >= Duration::from_secs(2),
        "refused, not silent"
    );
    // Only this one relay is blocked.
    let own: Api<ConfigMap> = Api::namespaced(member.cluster.client(), "default");
    own.list(&ListParams::default()).await.unwrap();
    let names: Vec<&str> = fleet.members().map(|(name, _)| name).collect();
    assert_eq!(names, ["east", "west"]);

    member.unblock();
    eventually(SOON, "the member answers", || reads(&maps)).await;
    let patient = client_of(&listed.items[0], 90).await;
    let maps: Api<ConfigMap> = Api::namespaced(patient, "default");
    reads(&maps).await.unwrap();
    member.cluster.stop_apiserver();
    let asked = Instant::now();
    maps.list(&ListParams::default()).await.unwrap_err();
    assert!(
        asked.elapsed() < Duration::from_secs(80),
        "silent, not gone"
    );
}
