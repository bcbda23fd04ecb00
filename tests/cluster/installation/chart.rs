//! The objects of the chart: the same as kustomize installs, and the same with Helm 3 and Helm 4; and the values that
//! it refuses.

use std::collections::BTreeMap;

use clap::Parser as _;
use serde_json::{Value, json};

use super::site::{Helm, SYSTEM, Terminal};

/// The image of the manifests, which the chart does not choose.
const IMAGE: &str = "--set image.repository=registry.example.org/foretide,image.tag=0.1.0";

/// Turns everything on that is off by default.
const ALL: &str = "--set fleets.enabled=true,admission.enabled=true,networkPolicy.enabled=true \
    --set adapter.enabled=true,kedaScaler.enabled=true \
    --set monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true \
    --set monitoring.dashboards.enabled=true";

/// The folders beside `deploy/` that `ALL` adds.
const FOLDERS: [&str; 8] = [
    "kubectl kustomize deploy/fleets",
    "kubectl kustomize deploy/network-policy",
    "kubectl kustomize deploy/monitoring",
    "cat deploy/admission/targets.yaml",
    "kubectl kustomize deploy/adapter",
    "kubectl kustomize deploy/keda",
    "cat deploy/network-policy/adapter.yaml",
    "cat deploy/network-policy/keda-scaler.yaml",
];

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

/// The objects of manifests, each once.
fn objects(manifests: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|one| !one.is_null()) {
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]];
        let key = key.map(|text| text.as_str().unwrap_or_default().to_owned());
        let twice = objects.insert(key, object);
        assert_eq!(twice, None);
    }
    objects
}

/// The rendered objects of the chart, without the annotation that keeps the definitions.
async fn rendered(terminal: &Terminal, options: &str) -> Objects {
    let template =
        format!("helm template foretide deploy/helm/foretide -n {SYSTEM} {IMAGE} {options}");
    let mut objects = objects(&terminal.run(&template).await);
    for ([kind, ..], object) in &mut objects {
        if kind == "CustomResourceDefinition" {
            let metadata = object["metadata"].as_object_mut().unwrap();
            let kept = json!({ "helm.sh/resource-policy": "keep" });
            assert_eq!(metadata.remove("annotations"), Some(kept));
        }
    }
    objects
}

/// Fails unless `foretide-servers` has these arguments.
fn assert_accepted(args: &Value) {
    let args = args.as_array().unwrap().iter().map(|arg| arg.as_str());
    let line = std::iter::once("foretide-servers").chain(args.flatten());
    let parsed = foretide_servers::Cli::try_parse_from(line);
    assert!(parsed.is_ok(), "{parsed:?}");
}

/// Fails with the first object that differs.
fn assert_equal(one: &Objects, other: &Objects, what: &str) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(other), "{what}");
    for (name, object) in one {
        assert_eq!(Some(object), other.get(name), "{what}: {name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_installs_what_kustomize_installs() {
    let terminal = Terminal::open("chart", Helm::Four);

    let mut kustomize = objects(&terminal.run("kubectl kustomize deploy").await);
    let namespace = ["Namespace", "", SYSTEM].map(str::to_owned);
    assert!(kustomize.remove(&namespace).is_some());
    let by_default = rendered(&terminal, "").await;
    assert_equal(&by_default, &kustomize, "the defaults");

    for folder in FOLDERS {
        kustomize.extend(objects(&terminal.run(folder).await));
    }
    let with_all = rendered(&terminal, ALL).await;
    assert_equal(&with_all, &kustomize, "with everything on");

    // With another adapter behind Foretide's.
    terminal
        .run("sed -i 's/^# components:/components:/' deploy/adapter/Kustomization")
        .await;
    let options = "--set adapter.enabled=true \
        --set adapter.upstream.url=https://prometheus-adapter.monitoring.svc \
        --set adapter.upstream.caSecret=foretide-adapter-upstream-ca";
    let mut of_kustomize = by_default.clone();
    let adapter = terminal.run("kubectl kustomize deploy/adapter").await;
    of_kustomize.extend(objects(&adapter));
    let with_upstream = rendered(&terminal, options).await;
    assert_equal(&with_upstream, &of_kustomize, "with an upstream adapter");

    terminal
        .run(&format!("helm lint --strict deploy/helm/foretide {IMAGE}"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Helm 3: `just nightly`"]
async fn helm_3_renders_what_helm_4_renders() {
    let four = Terminal::open("chart-helm-4", Helm::Four);
    let three = Terminal::open("chart-helm-3", Helm::Three);
    for (helm, version) in [(&four, "v4."), (&three, "v3.")] {
        let found = helm.run("helm version --short").await;
        assert!(found.starts_with(version), "{found}");
    }
    for options in ["", ALL] {
        let by_four = rendered(&four, options).await;
        assert_equal(&rendered(&three, options).await, &by_four, options);
    }
    let lint = format!("helm lint --strict deploy/helm/foretide {IMAGE}");
    three.run(&lint).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_servers_reach_their_objects() {
    let terminal = Terminal::open("chart-servers", Helm::Four);
    terminal.write(
        "values.yaml",
        "
priorityClassName: '123'
networkPolicy: {enabled: true, adapter: {clients: [{ipBlock: {cidr: 10.0.0.0/8}}], egress: [{ports: [{port: 8443}]}]}}
adapter:
  enabled: true
  replicas: 1
  apis: [external]
  upstream: {url: 'https://other.monitoring.svc', caSecret: other-ca}
  tls: {existingSecret: own, caBundle: '-----BEGIN CERTIFICATE-----'}
  apiServiceAnnotations: {note: '1'}
  podLabels: {team: web, app.kubernetes.io/name: foretide}
  extraArgs: [--log=debug]
kedaScaler: {enabled: true, replicas: 3, tls: {clientCaSecret: clients}}
",
    );
    let objects = rendered(&terminal, "--values values.yaml").await;
    let find = |kind: &str, namespace: &str, name: &str| {
        objects.get(&[kind, namespace, name].map(str::to_owned))
    };
    let spec = &find("Deployment", SYSTEM, "foretide-adapter").unwrap()["spec"];
    assert_eq!(spec["replicas"], 1);
    let labels = json!({
        "app.kubernetes.io/name": "foretide-adapter", "app.kubernetes.io/part-of": "foretide", "team": "web",
    });
    assert_eq!(spec["template"]["metadata"]["labels"], labels);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "123");
    let container = &pod["containers"][0];
    let args = json!([
        "adapter",
        "--listen=0.0.0.0:6443",
        "--probe-listen=0.0.0.0:8080",
        "--apis=external",
        "--upstream-url=https://other.monitoring.svc",
        "--upstream-ca-file=/etc/foretide/upstream/ca.crt",
        "--upstream-token-file=/etc/foretide/upstream-token/token",
        "--tls-cert-file=/etc/foretide/tls/tls.crt",
        "--tls-key-file=/etc/foretide/tls/tls.key",
        "--log=debug",
    ]);
    assert_eq!(container["args"], args);
    assert_accepted(&args);
    let mounts = json!([
        {"name": "tls", "mountPath": "/etc/foretide/tls", "readOnly": true},
        {"name": "upstream", "mountPath": "/etc/foretide/upstream", "readOnly": true},
        {"name": "upstream-token", "mountPath": "/etc/foretide/upstream-token", "readOnly": true},
    ]);
    assert_eq!(container["volumeMounts"], mounts);
    let volumes = json!([
        {"name": "tls", "secret": {"secretName": "own"}},
        {"name": "upstream", "secret": {"secretName": "other-ca"}},
        {"name": "upstream-token", "secret": {"secretName": "foretide-adapter-upstream"}},
    ]);
    assert_eq!(pod["volumes"], volumes);
    let service = find("APIService", "", "v1beta1.external.metrics.k8s.io").unwrap();
    let bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";
    assert_eq!(service["spec"]["caBundle"], bundle);
    assert_eq!(service["metadata"]["annotations"], json!({"note": "1"}));
    let role = find("ClusterRole", "", "foretide-adapter-external").unwrap();
    assert_eq!(role["rules"][0]["verbs"], json!(["get"]));
    let account = find("ServiceAccount", SYSTEM, "foretide-adapter-upstream");
    assert!(account.is_some());
    let policy = &find("NetworkPolicy", SYSTEM, "foretide-adapter").unwrap()["spec"];
    let from = json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}]);
    assert_eq!(policy["ingress"][0]["from"], from);
    assert_eq!(policy["egress"], json!([{"ports": [{"port": 8443}]}]));

    // No object of an API that is not served, or of certificates that are given, and no budget for one replica.
    for (kind, namespace, name) in [
        ("APIService", "", "v1beta1.custom.metrics.k8s.io"),
        ("APIService", "", "v1beta2.custom.metrics.k8s.io"),
        ("ClusterRole", "", "foretide-adapter-custom"),
        ("Secret", SYSTEM, "foretide-adapter-certificates"),
        ("Role", SYSTEM, "foretide-adapter-certificates"),
        ("PodDisruptionBudget", SYSTEM, "foretide-adapter"),
    ] {
        assert_eq!(find(kind, namespace, name), None, "{kind} {name}");
    }

    let keda = &find("Deployment", SYSTEM, "foretide-keda-scaler").unwrap()["spec"];
    assert_eq!(keda["replicas"], 3);
    let args = &keda["template"]["spec"]["containers"][0]["args"];
    assert_accepted(args);
    let last = args.as_array().unwrap().last();
    let file = json!("--client-ca-file=/etc/foretide/clients/ca.crt");
    assert_eq!(last, Some(&file));
    let any = json!("--allow-any-client");
    assert!(!args.as_array().unwrap().contains(&any), "{args}");
    let policy = find("NetworkPolicy", SYSTEM, "foretide-keda-scaler");
    assert!(policy.is_some(), "beside client certificates too");
    for (kind, name) in [
        ("PodDisruptionBudget", "foretide-keda-scaler"),
        ("Secret", "foretide-keda-scaler-certificates"),
    ] {
        assert!(find(kind, SYSTEM, name).is_some(), "{kind} {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_the_scaler_is_given_is_mounted_and_none_is_made() {
    let terminal = Terminal::open("chart-keda", Helm::Four);
    let options = "--set kedaScaler.enabled=true --set kedaScaler.tls.existingSecret=own";
    let objects = rendered(&terminal, options).await;
    let find = |kind: &str| {
        let name = match kind {
            "Deployment" => "foretide-keda-scaler",
            _ => "foretide-keda-scaler-certificates",
        };
        objects.get(&[kind, SYSTEM, name].map(str::to_owned))
    };
    let pod = &find("Deployment").unwrap()["spec"]["template"]["spec"];
    let args = &pod["containers"][0]["args"];
    assert_accepted(args);
    let files = json!([
        "--tls-cert-file=/etc/foretide/tls/tls.crt",
        "--tls-key-file=/etc/foretide/tls/tls.key",
    ]);
    let args = args.as_array().unwrap();
    assert!(args.ends_with(files.as_array().unwrap()), "{args:?}");
    let mount = json!([{"name": "tls", "mountPath": "/etc/foretide/tls", "readOnly": true}]);
    assert_eq!(pod["containers"][0]["volumeMounts"], mount);
    let volume = json!([{"name": "tls", "secret": {"secretName": "own"}}]);
    assert_eq!(pod["volumes"], volume);
    for kind in ["Secret", "Role", "RoleBinding"] {
        assert_eq!(find(kind), None, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_reach_the_objects_and_wrong_ones_are_refused() {
    let terminal = Terminal::open("chart-values", Helm::Four);
    terminal.write(
        "values.yaml",
        "
image: {repository: registry.example.org/foretide, digest: sha256:0123456789012345678901234567890123456789012345678901234567890123}
replicas: 3
fleets: {enabled: true}
podDisruptionBudget: {minAvailable: 50%}
podLabels: {team: web, app.kubernetes.io/name: other}
podAnnotations: {note: 'a: b', checksum/config: none}
priorityClassName: '123'
credentialSecrets: [foretide-prometheus, '123']
config:
  syncPeriod: 30s
  prometheus: {url: 'https://prometheus.example.org', bearerTokenFile: ../secrets/foretide-prometheus/token}
pageMemory: 16
extraArgs: ['--prometheus-resource-matchers=job=\"kubelet\"']
monitoring:
  serviceMonitor: {enabled: true, interval: 10s, labels: {release: prometheus}}
",
    );
    let objects = rendered(&terminal, "--values values.yaml").await;
    let find = |kind: &str, name: &str| objects.get(&[kind, SYSTEM, name].map(str::to_owned));
    let spec = &find("Deployment", "foretide-controller").unwrap()["spec"];
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(spec["replicas"], 3);
    assert!(
        container["image"]
            .as_str()
            .unwrap()
            .contains("/foretide@sha256:01")
    );
    // `FORETIDE_PROMETHEUS` would beat the file.
    assert_eq!(container.get("env"), None);
    let args = container["args"].as_array().unwrap();
    for argument in [
        "--config=/etc/foretide/config/config.yaml",
        "--page-memory=16",
        "--prometheus-resource-matchers=job=\"kubelet\"",
    ] {
        assert!(args.contains(&json!(argument)), "{args:?}");
    }
    assert!(find("Role", "foretide-members").is_some());
    let budget = find("PodDisruptionBudget", "foretide-controller").unwrap();
    assert_eq!(budget["spec"]["minAvailable"], "50%");
    // Labels that the selector and a rollout need are not overwritten.
    let template = &spec["template"]["metadata"];
    let labels = json!({
        "app.kubernetes.io/name": "foretide", "app.kubernetes.io/part-of": "foretide", "team": "web",
    });
    assert_eq!(template["labels"], labels);
    assert_eq!(template["annotations"]["note"], "a: b");
    let checksum = template["annotations"]["checksum/config"].as_str().unwrap();
    assert_eq!(checksum.len(), 64);
    assert_eq!(pod["priorityClassName"], "123");
    let monitor = find("ServiceMonitor", "foretide").unwrap();
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["interval"], "10s");

    // A budget for one replica would block each drain.
    let single = rendered(&terminal, "--set replicas=1").await;
    let kinds: Vec<_> = single.keys().map(|[kind, ..]| kind.as_str()).collect();
    assert!(!kinds.contains(&"PodDisruptionBudget"), "{kinds:?}");

    // The controller accepts the file, with the files of the Secret where the pod has them.
    let file = &find("ConfigMap", "foretide-config").unwrap()["data"]["config.yaml"];
    let secret = "secrets/foretide-prometheus";
    terminal
        .run(&format!(
            "mkdir -p config {secret} && echo t > {secret}/token"
        ))
        .await;
    terminal.write("config/config.yaml", file.as_str().unwrap());
    terminal
        .run("foretide validate -f config/config.yaml")
        .await;

    for (wrong, path) in [
        ("replicas=0", "/replicas"),
        ("config=null", "missing property 'config'"),
        ("prometheus=http://user:password@host", "/prometheus"),
        ("extraArgs={--listen=0.0.0.0:1}", "/extraArgs/0"),
        ("extraArgs={--page-memory=16}", "/extraArgs/0"),
        ("pageMemory=4097", "/pageMemory"),
        ("adapter.apis={}", "/adapter/apis"),
        ("adapter.apis={metrics.k8s.io}", "/adapter/apis/0"),
        ("adapter.upstream.url=http://other", "/adapter/upstream/url"),
        (
            "adapter.upstream.url=https://a/path",
            "/adapter/upstream/url",
        ),
        (
            "adapter.enabled=true,adapter.upstream.caSecret=other-ca",
            "expected both or neither",
        ),
        (
            "'adapter.enabled=true,adapter.tls.caBundle=-----BEGIN CERTIFICATE-----'",
            "adapter.tls.existingSecret is empty",
        ),
        ("adapter.tls.caBundle=ca.crt", "/adapter/tls/caBundle"),
        ("adapter.extraArgs={--apis=custom}", "/adapter/extraArgs/0"),
        ("kedaScaler.replicas=0", "/kedaScaler/replicas"),
        (
            "kedaScaler.enabled=true,networkPolicy.kedaScaler.enabled=false",
            "any pod could ask the KEDA scaler",
        ),
        (
            "networkPolicy.kedaScaler.clients={}",
            "/networkPolicy/kedaScaler/clients",
        ),
        ("podDisruptionBudget.minAvailable=2", "expected less than"),
        ("replica=2", "additional properties 'replica'"),
        ("prometheus=prometheus:9090", "/prometheus"),
        ("config.kind=ControllerConfig", "/config"),
        ("credentialSecrets={a/b}", "/credentialSecrets/0"),
        ("extraArgs={sync-period=3s}", "/extraArgs/0"),
        ("networkPolicy.enabled=yes", "/networkPolicy/enabled"),
        ("image.digest=latest", "/image/digest"),
        ("image.repository=", "expected REGISTRY/NAME"),
        ("image.repository=foretide", "expected REGISTRY/NAME"),
        ("image.repository=team/foretide", "expected REGISTRY/NAME"),
        (
            "image.repository=a.org/foretide:1",
            "expected REGISTRY/NAME",
        ),
        ("image.tag=", "image.digest and image.tag are empty"),
        (
            "monitoring.serviceMonitor.interval=often",
            "/monitoring/serviceMonitor/interval",
        ),
    ] {
        let template = format!("helm template foretide deploy/helm/foretide {IMAGE} --set {wrong}");
        let refusal = terminal.attempt(&template).await.unwrap_err();
        assert!(refusal.contains(path), "{wrong}: {refusal}");
    }
}
