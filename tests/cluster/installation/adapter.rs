//! The page of the metric adapter, in a cluster in which other adapters come and go: what they registered is neither
//! overwritten by an installation nor deleted by a removal.

use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::SubjectAccessReview, autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::Secret,
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use rig::ClusterOptions;
use serde_json::{Value, json};

use super::site::{Helm, SYSTEM, Site};
use crate::world::NAMESPACE;

/// What the test does not run, because the API server of the rig does not reach pods.
const NOT_RUN: [&str; 1] = ["Check it"];

const EXTERNAL: &str = "v1beta1.external.metrics.k8s.io";
const CERTIFICATES: &str = "foretide-adapter-certificates";

/// The values of the page that installs Foretide.
const VALUES: &str = "image: {repository: registry.example.org/foretide}\nprometheus: ''\n";

/// The registration of another adapter.
const FOREIGN: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1beta1.external.metrics.k8s.io
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: other-adapter, namespace: other}
";

/// What of the adapter is in the cluster.
const REMAINS: &str = "
kubectl get apiservices,clusterroles,clusterrolebindings --selector app.kubernetes.io/name=foretide-adapter -o name
kubectl get rolebindings --namespace kube-system --selector app.kubernetes.io/name=foretide-adapter -o name
kubectl get all,secrets,roles,rolebindings,serviceaccounts,networkpolicies,poddisruptionbudgets -o name \\
  --namespace foretide-system --selector app.kubernetes.io/name=foretide-adapter
";

/// The service of the registration of external metrics.
async fn service(site: &Site) -> Option<String> {
    let services: Api<APIService> = Api::all(site.cluster.client());
    let found = services.get_opt(EXTERNAL).await.unwrap()?;
    let service = found.spec?.service?;
    Some(format!("{}/{}", service.namespace?, service.name?))
}

/// Sets what the adapter keeps in the cluster.
async fn write_as_the_adapter(site: &Site) {
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    let data = Patch::Merge(json!({ "data": { "ca.crt": ByteString(b"authority".to_vec()) } }));
    let services: Api<APIService> = Api::all(site.cluster.client());
    let bundle = Patch::Merge(json!({ "spec": { "caBundle": ByteString(b"bundle".to_vec()) } }));
    let params = PatchParams::default();
    secrets.patch(CERTIFICATES, &params, &data).await.unwrap();
    services.patch(EXTERNAL, &params, &bundle).await.unwrap();
}

/// Fails unless what the adapter wrote is still there.
async fn assert_still_written(site: &Site, after: &str) {
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    let data = secrets.get(CERTIFICATES).await.unwrap().data;
    let authority = data.and_then(|data| data.get("ca.crt").cloned());
    assert_eq!(
        authority,
        Some(ByteString(b"authority".to_vec())),
        "{after}"
    );
    let services: Api<APIService> = Api::all(site.cluster.client());
    let bundle = services
        .get(EXTERNAL)
        .await
        .unwrap()
        .spec
        .unwrap()
        .ca_bundle;
    assert_eq!(bundle, Some(ByteString(b"bundle".to_vec())), "{after}");
}

/// Another adapter is installed by a command that reads `foreign.yaml`, and is not overwritten by the page's.
async fn assert_not_overwritten(site: &mut Site, command: &str) {
    site.terminal.run(command).await;
    let found = site.follow("Before you install it").await;
    assert!(found.contains("other/other-adapter"), "{found}");
    let block = site.page.follow("Install with kustomize", 0).text;
    let refusal = site.terminal.attempt(&block).await.unwrap_err();
    assert!(
        refusal.contains("conflict") && refusal.contains(".spec.service.name"),
        "{command}: {refusal}"
    );
    let without_dry_run = "kubectl apply -k deploy/adapter --server-side --field-manager foretide";
    let refusal = site.terminal.attempt(without_dry_run).await.unwrap_err();
    assert!(refusal.contains("conflict"), "{command}: {refusal}");
    let owner = service(site).await;
    assert_eq!(owner.as_deref(), Some("other/other-adapter"), "{command}");
}

/// Whether a service account may do this in a namespace.
async fn may(site: &Site, namespace: &str, user: &str, attributes: Value) -> bool {
    let mut attributes = attributes;
    attributes["namespace"] = json!(namespace);
    let review = json!({
        "spec": {"user": format!("system:serviceaccount:{user}"), "resourceAttributes": attributes},
    });
    let review = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(site.cluster.client());
    let reviewed = reviews.create(&PostParams::default(), &review).await;
    reviewed.unwrap().status.unwrap().allowed
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_adapter_installs_it_beside_others_and_removes_only_it() {
    let options = ClusterOptions::named("adapter-page");
    let mut site = Site::at_page("adapter.md", options, Helm::Four).await;
    site.terminal.write("foreign.yaml", FOREIGN);
    site.terminal.write("ca.crt", "of the other adapter");
    let install = format!(
        "kubectl apply -f deploy/10-namespace.yaml
         helm install foretide deploy/helm/foretide --namespace {SYSTEM} --values values.yaml"
    );
    site.terminal.write("values.yaml", VALUES);
    site.terminal.run(&install).await;

    by_helm(&mut site).await;
    let uninstall = "helm uninstall foretide --namespace foretide-system";
    site.terminal.run(uninstall).await;
    assert_eq!(site.terminal.run(REMAINS).await, "");

    by_kustomize(&mut site).await;
    let left = site.page.left().into_iter();
    let left: Vec<_> = left.map(|block| block.section.as_str()).collect();
    assert_eq!(left, [NOT_RUN[0]]);
}

/// Writes the values of a block in a section.
fn write_values(site: &mut Site, section: &str, number: usize) {
    let block = site.page.follow(section, number);
    assert_eq!(block.language, "yaml");
    site.terminal
        .write("values.yaml", &format!("{VALUES}{}", block.text));
}

async fn by_helm(site: &mut Site) {
    site.terminal.run("kubectl apply -f foreign.yaml").await;
    write_values(site, "Install with Helm", 0);
    let upgrade = site.page.follow("Install with Helm", 1).text;
    for options in ["", "--take-ownership"] {
        let upgrade = upgrade.replace("--values", &format!("{options} --values"));
        let refusal = site.terminal.attempt(&upgrade).await.unwrap_err();
        let expected = "belongs to the Service other/other-adapter";
        assert!(refusal.contains(expected), "{refusal}");
    }
    let said = site.follow("KEDA, prometheus-adapter, crane").await;
    assert!(said.starts_with("other/other-adapter\n"), "{said}");
    let found = site.follow("Before you install it").await;
    assert_eq!(found, "");
    site.terminal.run(&upgrade).await;
    let owner = service(site).await;
    assert_eq!(owner.as_deref(), Some("foretide-system/foretide-adapter"));

    site.follow("Your own HorizontalPodAutoscaler").await;
    assert_is_of_the_autoscaler(site).await;
    site.follow("Who may read the metrics").await;
    assert_readers(site).await;

    write_as_the_adapter(site).await;
    write_values(site, "Other metrics", 0);
    site.follow_block("Other metrics", 1).await;
    assert_still_written(site, "helm upgrade").await;
    site.follow_block("Certificates", 0).await;
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    assert_eq!(secrets.get(CERTIFICATES).await.unwrap().data, None);
    for number in [1, 2] {
        write_values(site, "Certificates", number);
        let render = format!("helm template deploy/helm/foretide -n {SYSTEM} --values values.yaml");
        let rendered = site.terminal.run(&render).await;
        let mounted = "secretName: foretide-adapter-tls";
        assert!(rendered.contains(mounted), "{rendered}");
    }
}

async fn by_kustomize(site: &mut Site) {
    site.terminal.run("kubectl apply -k deploy").await;
    for command in [
        "kubectl apply -f foreign.yaml",
        "kubectl apply -f foreign.yaml --server-side",
        "kubectl create -f foreign.yaml",
    ] {
        assert_not_overwritten(site, command).await;
        let remove = format!("kubectl delete apiservice {EXTERNAL}");
        site.terminal.run(&remove).await;
    }
    site.follow("Install with kustomize").await;
    write_as_the_adapter(site).await;
    site.follow("Install with kustomize").await;
    assert_still_written(site, "kubectl apply").await;
    assert!(site.terminal.run(REMAINS).await.contains("apiservice"));

    let taken = "kubectl delete -f foreign.yaml && kubectl apply -f foreign.yaml";
    site.terminal.run(taken).await;
    site.follow("Uninstall").await;
    assert_eq!(site.terminal.run(REMAINS).await, "");
    let owner = service(site).await;
    assert_eq!(owner.as_deref(), Some("other/other-adapter"));
}

/// The Pods metric of the last example has the UID of the autoscaler.
async fn assert_is_of_the_autoscaler(site: &Site) {
    let uid = "kubectl get effectivehorizontalpodautoscaler php-apache -o jsonpath={.metadata.uid}";
    let uid = site.terminal.run(uid).await;
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(site.cluster.client(), NAMESPACE);
    let metrics = hpas.get("php-apache").await.unwrap().spec.unwrap().metrics;
    let pods = metrics.unwrap().remove(0).pods.unwrap().metric;
    let labels = pods.selector.unwrap().match_labels.unwrap();
    let labels: Vec<_> = labels.into_iter().collect();
    let key = "autoscaling.crane.io/effective-hpa-uid".to_owned();
    assert_eq!(labels, [(key, uid)]);
}

async fn assert_readers(site: &Site) {
    let external = json!({
        "group": "external.metrics.k8s.io", "resource": "crane_autoscaling_cron", "verb": "list",
    });
    let pods = json!({
        "group": "custom.metrics.k8s.io", "resource": "pods", "subresource": "crane_pod_cpu_usage", "name": "*",
        "verb": "get",
    });
    let controller = "kube-system:horizontal-pod-autoscaler";
    for (attributes, namespace, user, allowed) in [
        (&external, "default", controller, true),
        (&pods, "default", controller, true),
        (&external, "default", "default:dashboard", true),
        (&external, "kube-system", "default:dashboard", false),
        (&pods, "default", "default:dashboard", false),
    ] {
        let is_allowed = may(site, namespace, user, attributes.clone()).await;
        assert_eq!(is_allowed, allowed, "{attributes} {namespace} {user}");
    }
}
