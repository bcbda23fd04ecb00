//! The authority and the certificates of two replicas change while requests go through the API server.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use foretide::{config::AdapterConfig, ports::CertificateLifetimes};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rig::{ClusterOptions, Relay, eventually};
use serde_json::json;

use super::{
    RunningAdapter, SYSTEM, TIMEOUT, World, autoscaler, available, config, cpu_forecast, decide,
    install,
    outage::Load,
    security::{Direct, bundle},
};
use crate::metrics_access::free_address;

/// Another authority signs after a minute or so. Each certificate is replaced 20 s before it ends, or earlier.
const LIFETIMES: CertificateLifetimes = CertificateLifetimes {
    authority: SignedDuration::from_secs(100),
    overlap: SignedDuration::from_secs(20),
    serving: SignedDuration::from_secs(60),
    period: SignedDuration::from_secs(1),
};
/// The time until both authorities have been seen, on a slow machine.
const ROTATED: Duration = Duration::from_mins(5);

/// The certificate of the authority that signs.
async fn authority(client: &Client) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let secret = secrets.get("foretide-adapter-certificates").await.unwrap();
    secret.data.unwrap()["ca.crt"].0.clone()
}

/// Waits until the replica at this address has seen the autoscaler.
async fn answers(world: &World, address: SocketAddr) {
    let file = |name| std::fs::read_to_string(world.cluster.folder().join(name)).unwrap();
    let (certificate, key) = (file("front-proxy.crt"), file("front-proxy.key"));
    let identity = [certificate.as_str(), &key];
    let user = [
        ("x-remote-user", "test"),
        ("x-remote-group", "system:masters"),
    ];
    eventually(TIMEOUT, "the replica answers", || async {
        let bundle = bundle(&world.client).await;
        let direct = Direct::new(address, &bundle, Some(identity));
        match direct.get(&user).await {
            Ok(answer) if answer.status == 200 => Ok(()),
            Ok(answer) => Err(answer.body.to_string()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_under_load_without_a_failed_request() {
    let world = World::start(ClusterOptions::named("adapter-rotation")).await;
    let client = world.client.clone();
    let addresses = [free_address(), free_address()];
    let ports = addresses.map(|address| address.port()).to_vec();
    let relay = Relay::to(ports).await.unwrap();
    let kubeconfig = install(&world, relay.port()).await;
    let run = |listen| {
        RunningAdapter::run(AdapterConfig {
            lifetimes: LIFETIMES,
            ..config(&kubeconfig, listen)
        })
    };
    let _replicas = addresses.map(run);
    available(&client).await;
    world.deployment("web", 1, "10m").await;
    autoscaler(&world, "web", json!({"prediction": {}})).await;
    decide(&world, "web", 1, cpu_forecast("0.9")).await;

    for address in addresses {
        answers(&world, address).await;
    }
    let load = Load::of(&world).await;
    let first = authority(&client).await;
    let former = String::from_utf8(first.clone()).unwrap();
    let seen = std::sync::Mutex::new(BTreeSet::new());
    eventually(
        ROTATED,
        "another authority signs, and the first one has ended",
        || async {
            // New connections: each is verified by what the API server trusts at this time.
            let bundle = bundle(&client).await;
            for address in addresses {
                let answer = Direct::new(address, &bundle, None).get(&[]).await;
                let answer = answer.unwrap();
                assert_eq!(answer.status, 401);
                seen.lock().unwrap().insert(answer.certificate);
            }
            // The status would be too old after 15 minutes; this takes less.
            if authority(&client).await == first || bundle.contains(former.trim()) {
                Err(format!(
                    "{} certificates so far",
                    seen.lock().unwrap().len()
                ))
            } else {
                Ok(())
            }
        },
    )
    .await;
    assert_eq!(load.more(200).await, [] as [String; 0]);
    let certificates = seen.lock().unwrap().len();
    assert!(certificates >= 6, "{certificates}");
    eprintln!("{certificates} certificates, {} requests", load.answered());
    world.assert_nothing_forbidden();
}
