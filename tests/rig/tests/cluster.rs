//! The dump that a failure leaves: no scenario of `tests/cluster` would fail without it.

use rig::{Cluster, ClusterOptions, Component, NodeSize};

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_test_leaves_objects_and_logs() {
    // Without nodes, scheduler and controllers: quicker to start.
    let options = ClusterOptions::named("failing")
        .nodes(0, NodeSize::new("1", "1Gi", 1))
        .without(Component::KubeScheduler)
        .without(Component::Kwok);
    let cluster = Cluster::start(options).await.unwrap();
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
