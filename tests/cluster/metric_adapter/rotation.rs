//! The authority and the certificates of two replicas change while requests go through the API server.
//!
//! They start with an authority in its last third, which is valid for days, and would keep it for an hour: delays on a
//! busy machine do not end anything. A third replica, which starts when requests go through, lets the next one sign.
//! The times at which certificates are presented are proven where `adapters::certificates` decides them.

use std::{net::SocketAddr, path::Path};

use jiff::SignedDuration;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rig::{Pki, eventually};
use serde_json::json;

use super::{
    RunningAdapter, SYSTEM, TIMEOUT, World, config,
    outage::Load,
    security::{Direct, bundle},
};
use crate::metrics_access::free_address;

const SECRET: &str = "foretide-adapter-certificates";
/// Time for which each replica must have seen the next authority in the registrations before it lets it sign.
const PATIENT: SignedDuration = SignedDuration::from_hours(1);
const HASTY: SignedDuration = SignedDuration::from_secs(10);

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), SYSTEM)
}

/// The certificate of the authority that signs.
async fn authority(client: &Client) -> String {
    let secret = secrets(client).get(SECRET).await.unwrap();
    String::from_utf8(secret.data.unwrap()["ca.crt"].0.clone()).unwrap()
}

/// Stores the authority that replicas would have made two months ago; returns its certificate.
pub(super) async fn store_an_old_authority(world: &World) -> String {
    let old = Pki::authority_valid(&(-60..5)).unwrap();
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = json!({ "data": {
        "ca.crt": bytes(&old.certificate),
        "ca.key": bytes(&old.key),
        "ca-bundle.crt": bytes(&old.certificate),
    } });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(data));
    let secrets = secrets(&world.client);
    secrets.patch(SECRET, &parameters, &patch).await.unwrap();
    old.certificate
}

/// Replicas at these addresses.
pub(super) fn start(kubeconfig: &Path, addresses: &[SocketAddr]) -> Vec<RunningAdapter> {
    let run = |listen: &SocketAddr| replica(kubeconfig, *listen, PATIENT);
    addresses.iter().map(run).collect()
}

fn replica(kubeconfig: &Path, listen: SocketAddr, overlap: SignedDuration) -> RunningAdapter {
    let mut config = config(kubeconfig, listen);
    config.service.lifetimes.overlap = overlap;
    config.service.lifetimes.period = SignedDuration::from_secs(1);
    RunningAdapter::run(config)
}

/// Checks that the replica at an address has a valid certificate for a client that trusts these authorities; its answer
/// is about the user.
async fn shown(address: SocketAddr, authorities: &str) -> Result<(), String> {
    let answer = Direct::new(address, authorities, None).get(&[]).await;
    let answer = answer.map_err(|error| error.to_string())?;
    assert_eq!(answer.status, 401);
    Ok(())
}

pub(super) async fn another_authority_signs_without_a_failed_request(
    world: &World,
    kubeconfig: &Path,
    replicas: &[SocketAddr],
    old: &str,
) {
    let client = &world.client;
    for replica in replicas {
        eventually(TIMEOUT, "the replica answers", || shown(*replica, old)).await;
    }
    let load = Load::of(world).await;
    // A replica may still be reading its first lists.
    load.settles().await;
    let _third = replica(kubeconfig, free_address(), HASTY);
    eventually(TIMEOUT, "another authority signs", || async {
        // New connections, each verified by the bundle that the API server trusts at the time.
        let trusted = bundle(client).await;
        for replica in replicas {
            shown(*replica, &trusted).await.unwrap();
        }
        let signs = authority(client).await;
        (signs != old).then_some(()).ok_or("the old one signs")
    })
    .await;
    let new = authority(client).await;
    for replica in replicas {
        let what = "the replica has a certificate of the new authority";
        eventually(TIMEOUT, what, || shown(*replica, &new)).await;
    }
    let trusted = bundle(client).await;
    assert!(trusted.contains(old.trim()) && trusted.contains(new.trim()));
    assert_eq!(load.more(200).await, [] as [String; 0]);
}
