//! The flags of `foretide controller`, each also in the environment.

use std::{net::SocketAddr, path::PathBuf};

use foretide_domain::cron::Zone;
use jiff::SignedDuration;

use super::{
    AdapterConfigSource,
    servers::ServerSections,
    values::{cluster_label, config_map, member_label, not_negative, parse_zone, positive, ratio},
};
use foretide_base::service::{LogArgs, Switch as _, with_variable};
use foretide_kube::KubeArgs;

/// Default of `--listen`: reachable from this machine only.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
/// The default of `--page-memory`, in MiB: 14 days of some 200 autoscalers.
const DEFAULT_PAGE_MEMORY: u32 = 64;

/// Default of `--member-secret-label`: the convention of multicluster-runtime.
pub const MEMBER_SECRET_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig=true";
/// Default of `--member-secret-key`.
pub const MEMBER_SECRET_KEY: &str = "kubeconfig";

/// Flags of `foretide controller`; each can be given as `FORETIDE_...` in the environment, and most as a field of the
/// configuration file.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_args(with_variable))]
pub struct ControllerArgs {
    /// Configuration file: flags as fields, and credentials for Prometheus. A flag beats the environment, which beats
    /// the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The Prometheus servers of the configuration file.
    #[arg(skip)]
    pub servers: ServerSections,
    /// Access to the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Namespace to watch; repeatable, or comma-separated. Without it, all namespaces.
    #[arg(long = "namespace", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Prometheus server that holds the history, as http(s)://host:port. Without it, and without one in the
    /// configuration file, no forecasts.
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// Prometheus server that holds the history of the member clusters whose Secret names it, as NAME=URL; repeatable,
    /// or comma-separated.
    #[arg(
        long = "prometheus-endpoint",
        value_name = "NAME=URL",
        value_delimiter = ','
    )]
    pub prometheus_endpoints: Vec<String>,
    /// Label of a series whose value is the name of its member cluster.
    #[arg(long, value_name = "LABEL", value_parser = cluster_label, default_value = "cluster")]
    pub prometheus_cluster_label: String,
    /// Matchers of the series of cpu and memory usage, such as job="kubelet", so that a workload cannot add
    /// series of the same name. Without it, every series of the namespace counts.
    #[arg(long, value_name = "MATCHERS")]
    pub prometheus_resource_matchers: Option<String>,
    /// Series that a query in a spec may read.
    #[arg(long, value_enum, default_value_t = ScopeArg::Namespace)]
    pub promql_scope: ScopeArg,
    /// Configuration file of prometheus-adapter, whose rules map a metric to the query for its history.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "prometheus_adapter_configmap"
    )]
    pub prometheus_adapter_config: Option<PathBuf>,
    /// Config map with that configuration, as NAMESPACE/NAME or NAMESPACE/NAME/KEY; KEY defaults to config.yaml.
    #[arg(
        long,
        value_name = "CONFIGMAP",
        value_parser = config_map,
        conflicts_with = "prometheus_adapter_config"
    )]
    pub prometheus_adapter_configmap: Option<AdapterConfigSource>,
    /// Member clusters of fleets.
    #[command(flatten)]
    pub members: MemberArgs,
    /// Election of a leader among several replicas.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Address on which probes and metrics are served.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Readers of the metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Publish no metrics of single autoscalers, for thousands of them.
    #[arg(long, switch())]
    pub no_object_metrics: bool,
    /// Memory for the last days on the page, for all autoscalers together, in MiB. 0 keeps nothing.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = DEFAULT_PAGE_MEMORY,
        value_parser = clap::value_parser!(u32).range(..=4096)
    )]
    pub page_memory: u32,
    /// Namespace in which nothing is scaled, besides the controller's own; repeatable, or comma-separated. An empty
    /// value allows all others.
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pub deny_target_namespaces: Vec<String>,
    /// Kind that is scaled, as KIND.GROUP such as Deployment.apps, or KIND in the core group; repeatable, or
    /// comma-separated. Without it, every kind that the controller has permission to scale.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub allow_target_kinds: Vec<String>,
    /// Limit on the additional replicas, compared with a plain HPA, that all forecasts of a namespace together may ask
    /// for, in percent, as NAMESPACE=PERCENT, and *=PERCENT for all others; repeatable, or comma-separated. Without it,
    /// each forecast has the quantile of its spec.
    #[arg(long, value_name = "NAMESPACE=PERCENT", value_delimiter = ',')]
    pub max_cost_percent: Vec<String>,
    /// Interval at which every autoscaler is reconciled.
    #[arg(long, value_parser = positive, default_value = "15s")]
    pub sync_period: SignedDuration,
    /// Time zone of `timezone: Local`, as an IANA name. Without it, the zone of this process.
    #[arg(long, value_name = "ZONE", value_parser = parse_zone)]
    pub local_timezone: Option<Zone>,
    /// Deviation of a metric from its target, as a ratio, below which nothing is scaled. This flag and the
    /// next three must equal those of the cluster's kube-controller-manager.
    #[arg(long, value_parser = ratio, default_value_t = 0.1)]
    pub hpa_tolerance: f64,
    /// Time for which the highest recommendation delays a scale-down.
    #[arg(long, value_parser = not_negative, default_value = "5m")]
    pub hpa_downscale_stabilization: SignedDuration,
    /// Period after the start of a pod in which its CPU samples may be skipped.
    #[arg(long, value_parser = not_negative, default_value = "5m")]
    pub hpa_cpu_initialization_period: SignedDuration,
    /// Period after the start of a pod in which a change of readiness counts as initial readiness.
    #[arg(long, value_parser = not_negative, default_value = "30s")]
    pub hpa_initial_readiness_delay: SignedDuration,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags about the readers of `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct MetricsArgs {
    /// Require a bearer token for /metrics, of a user who may get that path.
    #[arg(long = "metrics-auth", value_enum, default_value_t = MetricsAuthArg::Auto)]
    pub auth: MetricsAuthArg,
    /// Audience for which that token must be issued. Without it, the API server's own.
    #[arg(long = "metrics-audience")]
    pub audience: Option<String>,
}

/// Flags about the member clusters of fleets.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct MemberArgs {
    /// Namespace of the Secrets with the kubeconfigs of member clusters. Without it, the namespace of this pod; outside
    /// a pod, there are no members.
    #[arg(long = "member-namespace")]
    pub namespace: Option<String>,
    /// Label of those Secrets, as KEY=VALUE, or KEY for any value.
    #[arg(
        long = "member-secret-label",
        value_name = "LABEL",
        value_parser = member_label,
        default_value = MEMBER_SECRET_LABEL
    )]
    pub secret_label: String,
    /// Key of the kubeconfig in those Secrets; Cluster API writes it under value.
    #[arg(
        long = "member-secret-key",
        value_name = "KEY",
        default_value = MEMBER_SECRET_KEY
    )]
    pub secret_key: String,
    /// Time without contact after which a member counts as lost.
    #[arg(long = "member-lost-after", value_parser = positive, default_value = "45s")]
    pub lost_after: SignedDuration,
    /// Allow members on this machine, for development.
    #[arg(long = "member-allow-loopback", switch())]
    pub allow_loopback: bool,
}

/// Flags about the election of a leader.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct ElectionArgs {
    /// Elect a leader; the other replicas stand by and write nothing. Required for more than one replica.
    #[arg(long = "leader-elect", switch())]
    pub enabled: bool,
    /// Namespace of the lease foretide. Without it, the namespace of this pod.
    // An id of its own, because the arguments of members have a field of this name, too.
    #[arg(id = "leader-elect-namespace", long = "leader-elect-namespace")]
    pub namespace: Option<String>,
    /// Time for which a standby waits after the last renewal that it saw before it takes the lease; whole seconds. This
    /// flag and the next two must be equal in all replicas.
    #[arg(long = "leader-elect-lease-duration", value_parser = positive, default_value = "15s")]
    pub lease_duration: SignedDuration,
    /// Time for which a leader acts without a successful renewal.
    #[arg(long = "leader-elect-renew-deadline", value_parser = positive, default_value = "10s")]
    pub renew_deadline: SignedDuration,
    /// Time between two renewals of the lease; a standby reads it twice as often.
    #[arg(long = "leader-elect-retry-period", value_parser = positive, default_value = "2s")]
    pub retry_period: SignedDuration,
}

/// Value of `--promql-scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ScopeArg {
    /// Only series of the object's own namespace; the query is parsed and restricted.
    Namespace,
    /// Any series, for clusters with a single tenant.
    Any,
}

/// Value of `--metrics-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsAuthArg {
    /// Unless the address is loopback.
    Auto,
    /// Always.
    Token,
    /// Never.
    None,
}
