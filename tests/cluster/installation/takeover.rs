//! Helm 3: an installation by kustomize is taken over as the page says, upgraded, rolled back and uninstalled.

use rig::ClusterOptions;

use super::{
    site::{Helm, Site},
    walk::move_to_helm,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Helm 3: `just nightly`"]
async fn helm_3_takes_over_what_kustomize_installed() {
    let mut site = Site::start(ClusterOptions::named("takeover"), Helm::Three).await;
    site.cluster.define_monitors().await.unwrap();
    let refused = "helm install foretide deploy/helm/foretide --namespace foretide-system";
    site.follow("Install with kustomize").await;
    let before = site.controller().await.metadata.uid;
    let refusal = site.terminal.attempt(refused).await.unwrap_err();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");

    move_to_helm(&mut site).await;
    site.terminal
        .run("sed -i 's/^image:/replicas: 3\\nimage:/' values.yaml")
        .await;
    site.follow("Upgrade").await;
    let replicas = async |site: &Site| site.controller().await.spec.unwrap().replicas;
    assert_eq!(replicas(&site).await, Some(3));
    site.follow("Roll back").await;
    assert_eq!(replicas(&site).await, Some(2));
    assert_eq!(site.controller().await.metadata.uid, before);
    site.follow_block("Uninstall", 0).await;
    let definitions =
        "kubectl get customresourcedefinitions -o name | grep --count 'crane.io\\|foretide.io'";
    assert_eq!(site.terminal.run(definitions).await, "3\n");
}
