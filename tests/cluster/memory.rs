//! The memory of a controller beside thousands of large objects of a tenant.

use rig::{ClusterOptions, Component, NodeSize};
use serde_json::json;

use crate::{
    manual_changes::{deployment, ehpa},
    world::{LARGE, World, binary, create_large},
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "creates 750 MB of objects, in some minutes: `just nightly`"]
async fn thousands_of_large_objects_fit_into_the_memory_of_deploy() {
    // Without the controllers of the cluster, which would copy the objects until etcd is full; so nodes never get
    // ready.
    let options = ClusterOptions::named("large")
        .without(Component::KubeControllerManager)
        .nodes(0, NodeSize::new("1", "1Gi", 1));
    let world = World::start(options).await;
    world.cluster.namespace("tenant").await.unwrap();
    create_large(&world.client, "tenant", 10 * LARGE).await;
    world.deployment("others", 1, "1m").await;
    let window = json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 4,
    }]);
    let others = json!({ "mode": "Direct", "crons": window });
    let others = ehpa(deployment("others"), (1, 10), &others);
    world.apply(&others.to_string()).await;
    let mut controller = binary(world.kubeconfig(), world.hpa_flags());
    let controller = controller
        .args(["--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    world.decides("others", 4).await;
    let deployed = include_str!("../../deploy/30-controller.yaml");
    assert!(deployed.contains("memory: 512Mi"));
    let peak = peak_resident(controller.id().unwrap());
    assert!(peak < 512, "{peak} MiB");
    eprintln!("{} large objects: at most {peak} MiB resident", 10 * LARGE);
}

/// The largest resident memory of a process so far, in MiB, as Linux reports it.
fn peak_resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.unwrap().split_whitespace().next().unwrap();
    kibibytes.parse::<u64>().unwrap() / 1024
}
