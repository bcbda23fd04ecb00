//! The page from its first line to its last.

use std::{
    collections::BTreeSet,
    f64::consts::TAU,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use foretide_base::clock::Clock;
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use k8s_openapi::{
    api::{
        autoscaling::v2::HorizontalPodAutoscaler,
        networking::v1::{NetworkPolicy, NetworkPolicyEgressRule},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::Api;
use rig::{ClusterOptions, Component, History, Pki, Prometheus, TenantProxy, eventually};
use serde_json::{Value, json};

use super::{
    pod::Pod,
    site::{Helm, SYSTEM, Site},
};
use crate::{
    metrics_access::get,
    world::{NAMESPACE, TIMEOUT, four_days, seconds},
};

/// Sections that the test does not run: they need a registry, a builder of images, a second build of the program, or a
/// Prometheus in the cluster.
const NOT_RUN: [&str; 6] = [
    "What you need",
    "The image",
    "The image",
    "The image",
    "Who may scrape",
    "Who may scrape",
];

/// A token that the proxy before Prometheus asks for.
const TOKEN: &str = "of-the-page-0123456789";

/// A change of an object by hand, for the field that a new version defines.
const NEW_FIELD: &str = r#"
kubectl patch effectivehorizontalpodautoscaler php-apache --type merge -p '{"spec": {"ofNewVersion": "yes"}}'
"#;

/// Prints the remains of an installation in the cluster.
const REMAINS: &str = "
kubectl get namespaces,clusterroles,clusterrolebindings -o name -l app.kubernetes.io/part-of=foretide
kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -o name
kubectl get customresourcedefinitions -o name | grep --extended-regexp 'crane.io|foretide.io' || true
kubectl get horizontalpodautoscalers --all-namespaces -o name
";

/// Four days of a daily wave that is at its peak of nine replicas now; the pods of the rig use almost nothing.
fn history() -> History {
    let now = Clock::system().now();
    let (span, now) = (four_days(now), seconds(now));
    let container = ["default", "php-apache-7c5d8b9f6d-x2v9k", "php-apache"];
    let wave = move |at: f64| 0.45 + 0.4 * ((at - now) / 86_400.0 * TAU).cos();
    History::new().cpu_usage(container, span, wave)
}

/// Place of a server of this site in the cluster of the page: in a namespace, or anywhere, and its port there.
struct Role {
    namespace: Option<&'static str>,
    port: i32,
}

// === impl Role ===

impl Role {
    /// Returns whether a rule allows connections to the server.
    fn is_allowed_by(&self, rule: &NetworkPolicyEgressRule) -> bool {
        let mut ports = rule.ports.iter().flatten();
        let port = Some(IntOrString::Int(self.port));
        let mut peers = rule.to.iter().flatten();
        let name = "kubernetes.io/metadata.name";
        let selected = self.namespace.is_some_and(|namespace| {
            peers.any(|peer| {
                let selector = peer.namespace_selector.as_ref();
                let labels = selector.and_then(|selector| selector.match_labels.as_ref());
                let named = labels.and_then(|labels| labels.get(name));
                named.is_some_and(|named| named == namespace)
            })
        });
        let to_all = rule.to.as_ref().is_none_or(Vec::is_empty);
        (selected || to_all) && ports.any(|one| one.port == port)
    }
}

/// Fails unless the network policy allows what was opened, and nothing that was not, but for names.
async fn assert_policy_is_what_is_used(site: &Site, opened: &BTreeSet<SocketAddr>, secured: &str) {
    let policies: Api<NetworkPolicy> = Api::namespaced(site.cluster.client(), SYSTEM);
    let policy = policies.get("foretide-controller").await.unwrap();
    let policy = policy.spec.unwrap();
    let monitoring = json!([{
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } },
    }]);
    let scrapes = json!([{ "from": monitoring, "ports": [{ "port": "http", "protocol": "TCP" }] }]);
    assert_eq!(serde_json::to_value(policy.ingress).unwrap(), scrapes);

    let role = |namespace, port| Role { namespace, port };
    let plain = site.addresses[0].1.as_str();
    let server = site.cluster.server();
    let roles = [
        (server.as_str(), role(None, 6443)),
        (secured, role(None, 443)),
        (plain, role(Some("monitoring"), 9090)),
    ];
    let urls = roles.each_ref().map(|(url, _)| *url);
    assert_eq!(opened, &addresses(urls));
    let mut allowed = policy.egress.unwrap();
    let names = allowed.remove(0);
    assert!(role(Some("kube-system"), 53).is_allowed_by(&names));
    let elsewhere = role(Some("default"), 53).is_allowed_by(&names);
    assert!(!elsewhere, "{names:?}");
    for (url, role) in &roles {
        let is_allowed = allowed.iter().any(|rule| role.is_allowed_by(rule));
        assert!(is_allowed, "{url} by {allowed:?}");
    }
    for rule in &allowed {
        let used = roles.iter().any(|(_, role)| role.is_allowed_by(rule));
        assert!(used, "{rule:?}");
    }
}

/// Makes the checkout that of a new version: its image, a permission, and a field of a definition.
async fn get_new_version(site: &Site) {
    let script = "
sed -i 's/^version: 0.1.0/version: 0.1.1/; s/^appVersion: 0.1.0/appVersion: 0.1.1/' deploy/helm/foretide/Chart.yaml
sed -i 's/verbs: .list, watch.$/verbs: [get, list, watch]/' deploy/helm/foretide/files/20-controller-rbac.yaml
";
    site.terminal.run(script).await;
    let file = "deploy/helm/foretide/files/crds/autoscaling.crane.io_effectivehorizontalpodautoscalers.yaml";
    let definition = site.terminal.read(file);
    let mut definition: Value = serde_saphyr::from_str(&definition).unwrap();
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(fields).unwrap()["ofNewVersion"] = json!({ "type": "string" });
    // JSON is YAML.
    site.terminal.write(file, &definition.to_string());
}

/// The addresses of servers of the rig.
fn addresses<const N: usize>(urls: [&str; N]) -> BTreeSet<SocketAddr> {
    let port = |url: &str| url.rsplit(':').next().unwrap().parse().unwrap();
    let ports = urls.into_iter().map(port);
    ports
        .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        .collect()
}

/// Waits until the workload of the page has this many ready replicas.
async fn scaled(site: &Site, wanted: i32) {
    let deployments = site.deployments(NAMESPACE);
    eventually(TIMEOUT, &format!("php-apache has {wanted}"), || async {
        let found = deployments.get("php-apache").await;
        let status = found.map_err(|no| no.to_string())?.status;
        let ready = status.and_then(|status| status.ready_replicas);
        (ready == Some(wanted))
            .then_some(())
            .ok_or(format!("{ready:?}"))
    })
    .await;
}

async fn definition(site: &Site) -> CustomResourceDefinition {
    let definitions: Api<CustomResourceDefinition> = Api::all(site.cluster.client());
    let name = "effectivehorizontalpodautoscalers.autoscaling.crane.io";
    definitions.get(name).await.unwrap()
}

/// Returns whether the definition in the cluster is that of the new version.
async fn is_new(site: &Site) -> bool {
    let text = serde_json::to_string(&definition(site).await.spec).unwrap();
    text.contains("ofNewVersion")
}

/// The token of the account that the chart makes for scrapes.
async fn scraper(site: &Site) -> String {
    let secret = "kubectl get secret foretide-scraper -n foretide-system -o jsonpath={.data.token}";
    let read = format!("{secret} | base64 --decode");
    // Kubernetes writes the token into the Secret some time after it was made.
    eventually(TIMEOUT, "the account has a token", || async {
        let token = site.terminal.attempt(&read).await?;
        let is_written = !token.is_empty();
        is_written.then_some(token).ok_or("none yet".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_installs_scales_by_forecast_upgrades_rolls_back_and_removes() {
    let options = ClusterOptions::named("installation").with(Component::MetricsServer);
    let mut site = Site::start(options, Helm::Four).await;
    site.cluster.define_monitors().await.unwrap();
    let prometheus = Prometheus::start(&history()).await.unwrap();
    let pki = Pki::new().unwrap();
    let tenants = [("team-a", prometheus.url())];
    let certificate = pki.server("prometheus").unwrap();
    let proxy = TenantProxy::start(&certificate, TOKEN, &tenants)
        .await
        .unwrap();
    site.addresses = vec![
        (
            "http://prometheus-server.monitoring.svc:80",
            prometheus.url(),
        ),
        ("https://prometheus.example.org", proxy.url()),
    ];

    site.follow("Install with Helm").await;
    let first = Pod::start(&site, "first").await;
    let said = site.follow("Scale a workload").await;
    assert!(said.contains("the forecast for cpu"), "{said}");
    assert!(said.contains("ehpa-php-apache"), "{said}");
    scaled(&site, 9).await;

    // With credentials: the same forecast from behind the proxy, by a pod of the new template.
    site.terminal.write("token", TOKEN);
    site.terminal.write("ca.crt", pki.ca_pem());
    site.follow("A Prometheus that asks for credentials").await;
    let second = Pod::start(&site, "with-credentials").await;
    let mut opened = first.stop().await;
    site.follow("Metrics, alerts, dashboards").await;
    let token = scraper(&site).await;
    eventually(TIMEOUT, "the new pod has a forecast", || async {
        let (status, text) = get(second.listen, "/metrics", Some(&token)).await?;
        let made = text.contains("foretide_forecast_model_age_seconds{");
        made.then_some(()).ok_or(format!("{status}: {text}"))
    })
    .await;
    // On a busy machine the API server may review a token later than a scrape waits for.
    let status = eventually(TIMEOUT, "another token is reviewed", || async {
        match get(second.listen, "/metrics", Some("not-a-token")).await? {
            (503, text) => Err(text),
            (status, _) => Ok(status),
        }
    })
    .await;
    assert_eq!(status, 401);

    site.follow("Network policy").await;

    // A new version, and back.
    get_new_version(&site).await;
    site.follow("Upgrade").await;
    assert!(is_new(&site).await);
    let third = Pod::start(&site, "new-version").await;
    opened.extend(second.stop().await);
    assert_policy_is_what_is_used(&site, &opened, &proxy.url()).await;
    site.terminal.run(NEW_FIELD).await;
    let spec = async |site: &Site| {
        let object = "kubectl get effectivehorizontalpodautoscaler php-apache -o jsonpath={.spec}";
        serde_json::from_str::<Value>(&site.terminal.run(object).await).unwrap()
    };
    let mut before = spec(&site).await;
    assert_eq!(before["ofNewVersion"], "yes");
    let said = site.follow("Roll back").await;
    assert!(said.contains("foretide-0.1.1"), "{said}");
    assert!(!is_new(&site).await);
    let fourth = Pod::start(&site, "rolled-back").await;
    third.stop().await;
    // Fields that the older version does not know are gone with the next write, and nothing else.
    let write = "kubectl annotate effectivehorizontalpodautoscaler php-apache written=again";
    site.terminal.run(write).await;
    before.as_object_mut().unwrap().remove("ofNewVersion");
    assert_eq!(spec(&site).await, before);

    uninstalled(&mut site, fourth).await;
    let scaled = "kubectl get events --field-selector reason=SuccessfulRescale -o jsonpath='{.items[*].message}'";
    let scaled = site.terminal.run(scaled).await;
    let is_so = scaled.contains("New size: 9") && !scaled.contains("All metrics below target");
    assert!(is_so, "only up: {scaled}");
    removed(&mut site).await;
    kustomized(&mut site).await;
    moved(&mut site).await;
    stuck(&mut site).await;
    let left = site.page.left().into_iter();
    let left: Vec<_> = left.map(|block| block.section.as_str()).collect();
    assert_eq!(left, NOT_RUN);
}

/// Uninstalls: objects of users stay, and the HPA goes on.
async fn uninstalled(site: &mut Site, pod: Pod) {
    site.follow_block("Uninstall", 0).await;
    pod.stop().await;
    let client = site.cluster.client();
    definition(site).await;
    let ehpas: Api<EffectiveHorizontalPodAutoscaler> = Api::namespaced(client.clone(), NAMESPACE);
    ehpas.get("php-apache").await.unwrap();
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(client, NAMESPACE);
    let child = hpas.get("ehpa-php-apache").await.unwrap().spec.unwrap();
    assert_eq!((child.min_replicas, child.max_replicas), (Some(9), 10));
    // Twice the target.
    let load = site.cluster.share_cpu(NAMESPACE, "run=php-apache", 2.0);
    load.await.unwrap();
    scaled(site, 10).await;
}

/// Installs again, adds the permissions for fleets, and removes everything.
async fn removed(site: &mut Site) {
    site.follow("Install with Helm").await;
    Pod::start(site, "without-fleets").await.stop().await;
    let upgrade = format!(
        "helm upgrade foretide deploy/helm/foretide -n {SYSTEM} --values values.yaml --set fleets.enabled=true"
    );
    site.terminal.run(&upgrade).await;
    let pod = Pod::start(site, "last").await;
    site.terminal
        .run("kubectl apply -f examples/federated-local.yaml")
        .await;
    site.follow_block("Remove everything", 0).await;
    site.follow_block("Remove everything", 1).await;
    drop(pod);
    assert_eq!(site.terminal.run(REMAINS).await, "");
    scaled(site, 10).await;
}

/// Installs by kustomize, and removes.
async fn kustomized(site: &mut Site) {
    site.follow("Install with kustomize").await;
    site.follow_block("Uninstall", 1).await;
    definition(site).await;
    site.follow_block("Remove everything", 2).await;
    assert_eq!(site.terminal.run(REMAINS).await, "");
}

/// Installs by kustomize and moves to Helm. No field is left to another owner, so that an upgrade may change each.
async fn moved(site: &mut Site) {
    site.follow("Install with kustomize").await;
    let before = site.controller().await.metadata.uid;
    move_to_helm(site).await;
    assert!(is_new(site).await);
    let change = "
sed -i 's/^image:/replicas: 3\\nimage:/' values.yaml
sed -i 's/verbs: .get, list, watch.$/verbs: [list, watch]/' deploy/helm/foretide/files/20-controller-rbac.yaml
";
    site.terminal.run(change).await;
    site.follow("Upgrade").await;
    let controller = site.controller().await;
    assert_eq!(controller.metadata.uid, before);
    assert_eq!(controller.spec.unwrap().replicas, Some(3));
}

/// Writes the values of everything that kustomize installs, and lets Helm take it over.
pub(super) async fn move_to_helm(site: &mut Site) {
    site.follow_block("Install with Helm", 1).await;
    for section in ["Metrics, alerts, dashboards", "Network policy"] {
        site.write_values(section);
    }
    let switches =
        "printf 'fleets: {enabled: true}\\nadmission: {enabled: true}\\n' >> values.yaml";
    site.terminal.run(switches).await;
    site.follow("Move from kustomize to Helm").await;
}

/// Removes while a fleet still has its finalizer, and no controller runs.
async fn stuck(site: &mut Site) {
    let fleet = r#"
kubectl apply -f examples/federated-local.yaml
kubectl patch federatedhpa php-apache --type merge -p '{"metadata": {"finalizers": ["autoscaling.foretide.io/fleet"]}}'
kubectl delete federatedhpa php-apache --wait=false
helm uninstall foretide --namespace foretide-system
"#;
    site.terminal.run(fleet).await;
    site.follow_block("Remove everything", 3).await;
    let fleets = "kubectl get federatedhpas --all-namespaces -o name";
    assert_eq!(site.terminal.run(fleets).await, "");
}
