//! The page of the metric adapter, in a cluster in which other adapters come and go: what they registered is neither
//! overwritten by an installation nor deleted by a removal.

use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString,
    api::{autoscaling::v2::HorizontalPodAutoscaler, core::v1::Secret},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{ClusterOptions, eventually};
use serde_json::json;

use super::{
    pod::Pod,
    site::{Helm, SYSTEM, Site},
};
use crate::{
    permissions::{granted, used},
    world::{NAMESPACE, TIMEOUT, may},
};

/// Sections that the test does not run: the API server of the rig does not reach pods, and the values of the scaler are
/// those of another page.
const NOT_RUN: [&str; 2] = ["Check it", "Of the external scaler"];

/// The permissions of the adapter.
const RIGHTS: [&str; 4] = [
    include_str!("../../../deploy/adapter/rbac.yaml"),
    include_str!("../../../deploy/adapter/certificates.yaml"),
    include_str!("../../../deploy/adapter/external.yaml"),
    include_str!("../../../deploy/adapter/custom.yaml"),
];

const API_SERVICES: [&str; 3] = [
    EXTERNAL,
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
];
const EXTERNAL: &str = "v1beta1.external.metrics.k8s.io";
const CERTIFICATES: &str = "foretide-adapter-certificates";

/// The values of the page that installs Foretide.
const VALUES: &str =
    "image: {repository: registry.example.org/foretide, tag: 0.1.0}\nprometheus: ''\n";

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

/// Prints the objects of the adapter in the cluster.
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

/// Sets the data that the adapter keeps in the cluster.
async fn write_as_the_adapter(site: &Site) {
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    let data = Patch::Merge(json!({ "data": { "ca.crt": ByteString(b"authority".to_vec()) } }));
    let services: Api<APIService> = Api::all(site.cluster.client());
    let bundle = Patch::Merge(json!({ "spec": { "caBundle": ByteString(b"bundle".to_vec()) } }));
    let params = PatchParams::default();
    secrets.patch(CERTIFICATES, &params, &data).await.unwrap();
    services.patch(EXTERNAL, &params, &bundle).await.unwrap();
}

/// Fails unless the data of the adapter is still there.
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "three minutes of a page that seldom changes: `just nightly`"]
async fn the_page_of_the_adapter_installs_it_beside_others_and_removes_only_it() {
    let options = ClusterOptions::named("adapter-page");
    let mut site = Site::at_pages(&["adapter.md", "certificates.md"], options, Helm::Four).await;
    site.terminal.write("foreign.yaml", FOREIGN);
    site.terminal.write("ca.crt", "of the other adapter");
    let install = format!(
        "kubectl apply -f deploy/10-namespace.yaml
         helm install foretide deploy/helm/foretide --namespace {SYSTEM} --values values.yaml"
    );
    site.terminal.write("values.yaml", VALUES);
    site.terminal.run(&install).await;

    by_helm(&mut site).await;
    used_by_others(&mut site).await;
    with_values(&mut site).await;
    let uninstall = "helm uninstall foretide --namespace foretide-system";
    site.terminal.run(uninstall).await;
    nothing_remains(&site).await;

    by_kustomize(&mut site).await;
    running(&mut site).await;
    uninstalled(&mut site).await;
    let left = site.page.left().into_iter();
    let left: Vec<_> = left.map(|block| block.section.as_str()).collect();
    assert_eq!(left, NOT_RUN);
}

/// Waits until nothing of the adapter is in the cluster: Kubernetes deletes the pods of a Deployment some time after it.
async fn nothing_remains(site: &Site) {
    eventually(TIMEOUT, "nothing of the adapter remains", || async {
        let left = site.terminal.attempt(REMAINS).await?;
        left.is_empty().then_some(()).ok_or(left)
    })
    .await;
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
}

async fn used_by_others(site: &mut Site) {
    site.follow("Your own HorizontalPodAutoscaler").await;
    assert_is_of_the_autoscaler(site).await;
    site.follow("Who may read the metrics").await;
    assert_readers(site).await;
}

/// Applies the other values of the page; the data of the adapter is kept.
async fn with_values(site: &mut Site) {
    write_as_the_adapter(site).await;
    write_values(site, "Other metrics", 0);
    site.follow_block("Other metrics", 1).await;
    assert_still_written(site, "helm upgrade").await;
    site.follow_block("Of the metric adapter", 0).await;
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    assert_eq!(secrets.get(CERTIFICATES).await.unwrap().data, None);
    for number in [1, 2] {
        write_values(site, "Of the metric adapter", number);
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
}

/// Both servers start as their Deployments say.
async fn running(site: &mut Site) {
    // State after the removal of the authority.
    site.terminal
        .run(&site.page.follow("Of the metric adapter", 0).text)
        .await;
    assert_runs_with_its_permissions(site).await;
    site.terminal.run("kubectl apply -k deploy/keda").await;
    Pod::start_server(site, "foretide-keda-scaler")
        .await
        .stop()
        .await;
}

/// Removes the adapter while another adapter has the registration.
async fn uninstalled(site: &mut Site) {
    let taken = "kubectl delete -f foreign.yaml && kubectl apply -f foreign.yaml";
    site.terminal.run(taken).await;
    site.follow("Uninstall").await;
    nothing_remains(site).await;
    let owner = service(site).await;
    assert_eq!(owner.as_deref(), Some("other/other-adapter"));
}

/// The adapter starts as its Deployment says, makes an authority and publishes it, authenticates and authorizes a request,
/// and uses each of its permissions and no other.
async fn assert_runs_with_its_permissions(site: &Site) {
    let server = Pod::start_server(site, "foretide-adapter").await;
    let secrets: Api<Secret> = Api::namespaced(site.cluster.client(), SYSTEM);
    let services: Api<APIService> = Api::all(site.cluster.client());
    let read = || async {
        let data = secrets.get(CERTIFICATES).await.unwrap().data?;
        data.get("ca-bundle.crt").cloned()
    };
    let bundle = eventually(TIMEOUT, "the APIServices trust the authority", || async {
        let bundle = read().await.ok_or("no authority")?;
        for name in API_SERVICES {
            let spec = services.get(name).await.unwrap().spec.unwrap();
            if spec.ca_bundle.as_ref() != Some(&bundle) {
                return Err(name);
            }
        }
        Ok(bundle)
    })
    .await;

    let reader = "
kubectl create serviceaccount reader >&2
kubectl create rolebinding reader --clusterrole=view --serviceaccount=default:reader >&2
kubectl create token reader
";
    let token = site.terminal.run(reader).await;
    let uid = "kubectl get effectivehorizontalpodautoscaler php-apache -o jsonpath={.metadata.uid}";
    let uid = site.terminal.run(uid).await;
    let host = "foretide-adapter.foretide-system.svc";
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&bundle.0).unwrap()])
        .resolve(host, server.listen)
        .build()
        .unwrap();
    let path = format!(
        "https://{host}:{}/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/crane_pod_cpu_usage\
         ?labelSelector=run%3Dphp-apache&metricLabelSelector=autoscaling.crane.io%2Feffective-hpa-uid%3D{uid}",
        server.listen.port()
    );
    let ask = |token: &str| client.get(&path).bearer_auth(token).send();
    assert_eq!(ask("not-a-token").await.unwrap().status(), 401);
    // Aggregation adds the permission to the role view some time after it was applied.
    eventually(TIMEOUT, "an answer about the autoscaler", || async {
        let answer = ask(token.trim()).await.map_err(|error| error.to_string())?;
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        // No controller has decided about it.
        let expected = status == 404 && text.contains("default/php-apache has no decision yet");
        expected.then_some(()).ok_or(format!("{status}: {text}"))
    })
    .await;
    server.stop().await;

    let mut events = site.cluster.audit().unwrap();
    events.retain(|event| event.user == "system:serviceaccount:foretide-system:foretide-adapter");
    assert!(events.iter().all(|event| event.code != 403), "{events:?}");
    let mut granted: BTreeSet<_> = RIGHTS.into_iter().flat_map(granted).collect();
    // Permissions of the readers of metrics.
    granted.retain(|(_, group, _)| !group.ends_with(".metrics.k8s.io"));
    // Granted by the role of Kubernetes for the ConfigMap of authorities.
    let of_config = |verb: &str| (verb.to_owned(), String::new(), "configmaps".to_owned());
    granted.extend(["list", "watch"].map(of_config));
    assert_eq!(used(&events, &granted), granted);
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
    let client = site.cluster.client();
    for (attributes, namespace, user, allowed) in [
        (&external, "default", controller, true),
        (&pods, "default", controller, true),
        (&external, "default", "default:dashboard", true),
        (&external, "kube-system", "default:dashboard", false),
        (&pods, "default", "default:dashboard", false),
    ] {
        let mut attributes = attributes.clone();
        attributes["namespace"] = json!(namespace);
        let user = format!("system:serviceaccount:{user}");
        // The API server has read a role some time after it was written.
        let what = format!("{user} {attributes}: {allowed}");
        eventually(TIMEOUT, &what, || async {
            let is_allowed = may(&client, &user, &attributes).await?;
            let is_as_wanted = is_allowed == allowed;
            is_as_wanted.then_some(()).ok_or(is_allowed.to_string())
        })
        .await;
    }
}
