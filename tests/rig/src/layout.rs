//! The files, ports and flags of the components of one cluster. Pure except for writing its files; `cluster` starts
//! the processes.

use std::{collections::BTreeMap, path::Path, time::Duration};

use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::{
    ClusterOptions, Component, Result,
    kwok::configuration,
    pki::{Identity, Pki},
    place::RunFolder,
    process::free_port,
};

/// Users with a kubeconfig and a certificate: file name, common name, organisation.
const USERS: [(&str, &str, Option<&str>); 6] = [
    ("admin", "admin", Some("system:masters")),
    (
        "kube-controller-manager",
        "system:kube-controller-manager",
        None,
    ),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kwok", "kwok", Some("system:masters")),
    ("metrics-server", "metrics-server", Some("system:masters")),
    ("front-proxy", "front-proxy", None),
];

/// The controllers that a test needs, by their long names.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,\
    horizontal-pod-autoscaler-controller,garbage-collector-controller,namespace-controller,\
    statefulset-controller,serviceaccount-controller,serviceaccount-token-controller,\
    root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,\
    resourcequota-controller,node-lifecycle-controller,pod-garbage-collector-controller,\
    disruption-controller";

/// Ports, identities and files of one cluster.
pub(crate) struct Layout {
    pub(crate) folder: RunFolder,
    pub(crate) pki: Pki,
    ports: BTreeMap<Component, u16>,
    etcd_peer: u16,
}

impl Layout {
    /// Picks ports and writes certificates, keys, kubeconfigs and configuration files.
    pub(crate) fn new(options: &ClusterOptions) -> Result<Self> {
        let mut ports = BTreeMap::new();
        for component in &options.components {
            ports.insert(*component, free_port()?);
        }
        let layout = Self {
            folder: RunFolder::new(&options.name)?,
            pki: Pki::new()?,
            ports,
            etcd_peer: free_port()?,
        };
        layout.write_files(options)?;
        Ok(layout)
    }

    fn write_files(&self, options: &ClusterOptions) -> Result<()> {
        self.folder.write("ca.crt", self.pki.ca_pem())?;
        self.write_identity("server", &self.pki.server("localhost")?)?;
        for (file, user, group) in USERS {
            let identity = self.pki.client(user, group)?;
            self.write_identity(file, &identity)?;
            self.write_kubeconfig(file, &identity.user())?;
        }
        let accounts = KeyPair::generate()?;
        self.folder
            .write("accounts.key", accounts.serialize_pem())?;
        self.folder
            .write("accounts.pub", accounts.public_key_pem())?;
        self.folder
            .write("audit-policy.yaml", audit_policy().to_string())?;
        self.folder
            .write("kwok.yaml", configuration(options.pod_startup))?;
        Ok(())
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<()> {
        self.folder
            .write(&format!("{name}.crt"), &identity.certificate)?;
        self.folder.write(&format!("{name}.key"), &identity.key)?;
        Ok(())
    }

    /// Writes a kubeconfig of that name for a user, and returns its path.
    pub(crate) fn write_kubeconfig(&self, name: &str, user: &Value) -> Result<std::path::PathBuf> {
        let content = self.pki.kubeconfig(&self.server(), user);
        self.folder.write(&format!("{name}.kubeconfig"), content)
    }

    /// The URL of the API server.
    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port(Component::KubeApiserver))
    }

    /// The port of a component; 0 for one that is not among the options.
    pub(crate) fn port(&self, component: Component) -> u16 {
        self.ports.get(&component).copied().unwrap_or_default()
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> std::path::PathBuf {
        self.path().join(format!("{user}.kubeconfig"))
    }

    pub(crate) fn log(&self, component: Component) -> std::path::PathBuf {
        self.path().join(format!("{component}.log"))
    }

    pub(crate) fn audit_log(&self) -> std::path::PathBuf {
        self.path().join("audit.jsonl")
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// The flags of a component.
    pub(crate) fn flags(&self, component: Component, options: &ClusterOptions) -> Vec<String> {
        match component {
            Component::Etcd => self.etcd(),
            Component::KubeApiserver => self.apiserver(),
            Component::KubeControllerManager => self.controller_manager(options),
            Component::KubeScheduler => self.serving(component),
            Component::Kwok => self.kwok(),
            Component::MetricsServer => self.metrics_server(),
            Component::Prometheus | Component::Promtool => Vec::new(),
        }
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.port(Component::Etcd));
        let peer = format!("http://127.0.0.1:{}", self.etcd_peer);
        vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    /// The admission plugin `ServiceAccount` is off: pods would wait for a token volume that no kubelet mounts.
    fn apiserver(&self) -> Vec<String> {
        let fixed = "--bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
            --service-account-issuer=https://kubernetes.default.svc --authorization-mode=RBAC \
            --service-cluster-ip-range=10.0.0.0/24 \
            --requestheader-username-headers=X-Remote-User \
            --requestheader-group-headers=X-Remote-Group \
            --requestheader-extra-headers-prefix=X-Remote-Extra- \
            --requestheader-allowed-names=front-proxy \
            --disable-admission-plugins=ServiceAccount";
        let files = [
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("client-ca-file", "ca.crt"),
            ("requestheader-client-ca-file", "ca.crt"),
            ("proxy-client-cert-file", "front-proxy.crt"),
            ("proxy-client-key-file", "front-proxy.key"),
            ("service-account-key-file", "accounts.pub"),
            ("service-account-signing-key-file", "accounts.key"),
            ("audit-policy-file", "audit-policy.yaml"),
            ("audit-log-path", "audit.jsonl"),
        ];
        let mut flags: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
        flags.extend(files.map(|(flag, file)| format!("--{flag}={}", self.file(file))));
        flags.push(format!(
            "--etcd-servers=http://127.0.0.1:{}",
            self.port(Component::Etcd)
        ));
        flags.push(format!(
            "--secure-port={}",
            self.port(Component::KubeApiserver)
        ));
        flags
    }

    /// The flags that controller-manager and scheduler share: identity, port, no election.
    fn serving(&self, component: Component) -> Vec<String> {
        let kubeconfig = self.kubeconfig(component.name()).display().to_string();
        let mut flags = three_kubeconfigs(&kubeconfig);
        flags.extend([
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port(component)),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ]);
        flags
    }

    fn controller_manager(&self, options: &ClusterOptions) -> Vec<String> {
        let hpa = &options.hpa;
        let mut flags = self.serving(Component::KubeControllerManager);
        flags.extend([
            format!("--controllers={CONTROLLERS}"),
            "--use-service-account-credentials".to_owned(),
            // The API server may be paused, and the machine slow; a lost node makes its pods unready for good.
            "--node-monitor-grace-period=10m".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                self.file("accounts.key")
            ),
            format!("--root-ca-file={}", self.file("ca.crt")),
            hpa_flag("sync-period", hpa.sync_period),
            hpa_flag("downscale-stabilization", hpa.downscale_stabilization),
            hpa_flag("cpu-initialization-period", hpa.cpu_initialization_period),
            hpa_flag("initial-readiness-delay", hpa.initial_readiness_delay),
        ]);
        flags
    }

    fn kwok(&self) -> Vec<String> {
        let port = self.port(Component::Kwok);
        vec![
            format!("--kubeconfig={}", self.kubeconfig("kwok").display()),
            format!("--config={}", self.file("kwok.yaml")),
            "--manage-all-nodes=true".to_owned(),
            "--cidr=10.244.0.0/16".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            format!("--node-port={port}"),
            format!("--server-address=127.0.0.1:{port}"),
            format!("--tls-cert-file={}", self.file("server.crt")),
            format!("--tls-private-key-file={}", self.file("server.key")),
            "--node-lease-duration-seconds=40".to_owned(),
        ]
    }

    /// The flags of metrics-server. Its resolution must be longer than its time limit for a kubelet, and at least 10 s.
    fn metrics_server(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig("metrics-server").display().to_string();
        let mut flags = three_kubeconfigs(&kubeconfig);
        flags.extend([
            "--metric-resolution=10s".to_owned(),
            "--kubelet-request-timeout=4s".to_owned(),
            "--kubelet-insecure-tls".to_owned(),
            "--kubelet-use-node-status-port".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                self.file("metrics-server.crt")
            ),
            format!("--kubelet-client-key={}", self.file("metrics-server.key")),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port(Component::MetricsServer)),
            format!("--cert-dir={}", self.file("metrics-server-certs")),
        ]);
        flags
    }
}

fn three_kubeconfigs(path: &str) -> Vec<String> {
    [
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ]
    .map(|flag| format!("--{flag}={path}"))
    .to_vec()
}

fn hpa_flag(name: &str, value: Duration) -> String {
    format!("--horizontal-pod-autoscaler-{name}={}ms", value.as_millis())
}

/// The audit policy: every request once, without bodies. A watch is also logged when it starts, because it ends only
/// with the test.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    })
}
