//! Tests of the rig where no scenario of `tests/cluster` would fail: what follows objects over a restart of the API server,
//! and the dump that a failure leaves.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, WatchParams},
};
use rig::{Change, Cluster, ClusterOptions, Component, NodeSize, eventually, follow};
use serde_json::json;

const SOON: Duration = Duration::from_mins(3);

/// Without nodes, scheduler and controllers: quicker to start.
fn api_only(name: &str) -> ClusterOptions {
    ClusterOptions::named(name)
        .nodes(0, NodeSize::new("1", "1Gi", 1))
        .without(Component::KubeScheduler)
        .without(Component::Kwok)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_followed_over_a_restart_of_the_api_server() {
    let cluster = Cluster::start(api_only("followed")).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let one = json!({"metadata": {"name": "one"}, "data": {"count": "7"}});
    cluster.put(&maps, &one).await.unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let found = Arc::clone(&seen);
    let only = WatchParams::default().fields("metadata.name=one");
    let following = tokio::spawn(follow(maps.clone(), only, move |change| {
        let mut found = found.lock().unwrap();
        found.push(match change {
            Change::Begun => "begun".to_owned(),
            Change::Present(one) => one.data.unwrap()["count"].clone(),
            Change::Listed => "listed".to_owned(),
            Change::Deleted(_) => return ControlFlow::Break(()),
        });
        ControlFlow::Continue(())
    }));
    let begun_and_listed = async |times: usize| {
        eventually(SOON, "the object is followed", || async {
            let found = seen.lock().unwrap().join(" ");
            let listed = found.matches("begun 7 listed").count();
            (listed >= times).then_some(()).ok_or(found)
        })
        .await;
    };
    begun_and_listed(1).await;
    cluster.stop_apiserver();
    assert!(maps.get("one").await.is_err());
    cluster.start_apiserver().await.unwrap();
    // A watch that is cut off begins again, and shows what is there again.
    begun_and_listed(2).await;
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let followed = tokio::time::timeout(SOON, following).await;
    followed.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_test_leaves_objects_and_logs() {
    let cluster = Cluster::start(api_only("failing")).await.unwrap();
    let run = cluster.folder().to_path_buf();
    let left = format!(
        "a_failing_test-{}",
        run.file_name().unwrap().to_string_lossy()
    );
    let left = rig::failures().join(left);
    let failing = std::thread::Builder::new()
        .name("a_failing_test".to_owned())
        .spawn(move || {
            let _dropped_by_the_panic = cluster;
            panic!("on purpose");
        });
    assert!(failing.unwrap().join().is_err());
    assert!(!run.exists());
    assert!(left.join("namespaces..json").exists());
    assert!(left.join("kube-apiserver.log").exists());
    std::fs::remove_dir_all(left).unwrap();
}
