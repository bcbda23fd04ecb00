//! Flags and environment of `foretide controller`, and the validated configuration they become.
//!
//! Reads the environment through clap, and opens neither files nor connections: a [`Config`] is a value that `app::run`
//! receives.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use jiff::{SignedDuration, tz::TimeZone};

use crate::{
    api::validation::{InvalidTargetKind, TargetKind, TargetRules},
    domain::{cron::Zone, hpa::Settings},
    leadership::{Timing, WRITE_TIME},
};

/// Default of `--listen`: reachable from this machine only.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// Default of `--member-secret-label`: the convention of multicluster-runtime.
pub const MEMBER_SECRET_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig=true";
/// Default of `--member-secret-key`.
pub const MEMBER_SECRET_KEY: &str = "kubeconfig";

/// Flags of `foretide controller`; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
pub struct ControllerArgs {
    /// Kubeconfig file; without it, the service account of the pod is used.
    #[arg(long, env = "FORETIDE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it, its current context.
    #[arg(long, env = "FORETIDE_CONTEXT", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Namespace to watch; repeatable, or comma-separated. Without it, all namespaces.
    #[arg(long = "namespace", env = "FORETIDE_NAMESPACE", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Prometheus server that holds the history, as http(s)://host:port. Without it, no forecasts.
    #[arg(long, env = "FORETIDE_PROMETHEUS", value_name = "URL")]
    pub prometheus: Option<String>,
    /// Prometheus server that holds the history of the member clusters whose Secret names it, as NAME=URL; repeatable,
    /// or comma-separated.
    #[arg(
        long = "prometheus-endpoint",
        env = "FORETIDE_PROMETHEUS_ENDPOINT",
        value_name = "NAME=URL",
        value_delimiter = ','
    )]
    pub prometheus_endpoints: Vec<String>,
    /// Label of a series whose value is the name of its member cluster.
    #[arg(
        long,
        env = "FORETIDE_PROMETHEUS_CLUSTER_LABEL",
        value_name = "LABEL",
        default_value = "cluster"
    )]
    pub prometheus_cluster_label: String,
    /// Matchers of the series of cpu and memory usage, such as job="kubelet", so that a workload cannot add
    /// series of the same name. Without it, every series of the namespace counts.
    #[arg(
        long,
        env = "FORETIDE_PROMETHEUS_RESOURCE_MATCHERS",
        value_name = "MATCHERS"
    )]
    pub prometheus_resource_matchers: Option<String>,
    /// Which series a query in a spec may read.
    #[arg(long, env = "FORETIDE_PROMQL_SCOPE", value_enum, default_value_t = ScopeArg::Namespace)]
    pub promql_scope: ScopeArg,
    /// Configuration file of prometheus-adapter, whose rules map a metric to the query for its history.
    #[arg(
        long,
        env = "FORETIDE_PROMETHEUS_ADAPTER_CONFIG",
        value_name = "FILE",
        conflicts_with = "prometheus_adapter_configmap"
    )]
    pub prometheus_adapter_config: Option<PathBuf>,
    /// Config map with that configuration, as NAMESPACE/NAME or NAMESPACE/NAME/KEY; KEY defaults to config.yaml.
    #[arg(
        long,
        env = "FORETIDE_PROMETHEUS_ADAPTER_CONFIGMAP",
        value_name = "CONFIGMAP"
    )]
    pub prometheus_adapter_configmap: Option<String>,
    /// Member clusters of fleets.
    #[command(flatten)]
    pub members: MemberArgs,
    /// Election of a leader among several replicas.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Address on which probes and metrics are served.
    #[arg(long, env = "FORETIDE_LISTEN", value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Who may read the metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Publish no metrics of single autoscalers, for thousands of them.
    #[arg(long, env = "FORETIDE_NO_OBJECT_METRICS")]
    pub no_object_metrics: bool,
    /// Namespace in which nothing is scaled, besides the controller's own; repeatable, or comma-separated. An empty
    /// value allows all others.
    #[arg(
        long,
        env = "FORETIDE_DENY_TARGET_NAMESPACES",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pub deny_target_namespaces: Vec<String>,
    /// Kind that is scaled, as KIND.GROUP such as Deployment.apps, or KIND in the core group; repeatable, or
    /// comma-separated. Without it, every kind that the controller has permission to scale.
    #[arg(
        long,
        env = "FORETIDE_ALLOW_TARGET_KINDS",
        value_name = "KIND",
        value_delimiter = ','
    )]
    pub allow_target_kinds: Vec<String>,
    /// How often every autoscaler is reconciled.
    #[arg(long, env = "FORETIDE_SYNC_PERIOD", value_parser = parse_duration, default_value = "15s")]
    pub sync_period: SignedDuration,
    /// Time zone of `timezone: Local`, as an IANA name. Without it, the zone of this process.
    #[arg(long, env = "FORETIDE_LOCAL_TIMEZONE", value_name = "ZONE", value_parser = parse_zone)]
    pub local_timezone: Option<Zone>,
    /// Deviation of a metric from its target, as a ratio, below which nothing is scaled. This flag and the
    /// next three must equal those of the cluster's kube-controller-manager.
    #[arg(long, env = "FORETIDE_HPA_TOLERANCE", default_value_t = 0.1)]
    pub hpa_tolerance: f64,
    /// How long the highest recommendation delays a scale-down.
    #[arg(long, env = "FORETIDE_HPA_DOWNSCALE_STABILIZATION", value_parser = parse_duration, default_value = "5m")]
    pub hpa_downscale_stabilization: SignedDuration,
    /// Period after the start of a pod in which its CPU samples may be skipped.
    #[arg(long, env = "FORETIDE_HPA_CPU_INITIALIZATION_PERIOD", value_parser = parse_duration, default_value = "5m")]
    pub hpa_cpu_initialization_period: SignedDuration,
    /// Period after the start of a pod in which a change of readiness counts as initial readiness.
    #[arg(long, env = "FORETIDE_HPA_INITIAL_READINESS_DELAY", value_parser = parse_duration, default_value = "30s")]
    pub hpa_initial_readiness_delay: SignedDuration,
    /// Log filter, such as info or foretide=debug.
    #[arg(
        long,
        env = "FORETIDE_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
    /// Write logs as JSON.
    #[arg(long, env = "FORETIDE_LOG_JSON")]
    pub log_json: bool,
}

/// Flags about who may read `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct MetricsArgs {
    /// Whether /metrics needs a bearer token of a user who may get that path.
    #[arg(long = "metrics-auth", env = "FORETIDE_METRICS_AUTH", value_enum, default_value_t = MetricsAuthArg::Auto)]
    pub auth: MetricsAuthArg,
    /// Audience for which that token must be issued. Without it, the API server's own.
    #[arg(long = "metrics-audience", env = "FORETIDE_METRICS_AUDIENCE")]
    pub audience: Option<String>,
}

/// Flags about the member clusters of fleets.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct MemberArgs {
    /// Namespace of the Secrets with the kubeconfigs of member clusters. Without it, the namespace of this pod; outside
    /// a pod, there are no members.
    #[arg(long = "member-namespace", env = "FORETIDE_MEMBER_NAMESPACE")]
    pub namespace: Option<String>,
    /// Label of those Secrets, as KEY=VALUE, or KEY for any value.
    #[arg(
        long = "member-secret-label",
        env = "FORETIDE_MEMBER_SECRET_LABEL",
        value_name = "LABEL",
        default_value = MEMBER_SECRET_LABEL
    )]
    pub secret_label: String,
    /// Key of the kubeconfig in those Secrets; Cluster API writes it under value.
    #[arg(
        long = "member-secret-key",
        env = "FORETIDE_MEMBER_SECRET_KEY",
        value_name = "KEY",
        default_value = MEMBER_SECRET_KEY
    )]
    pub secret_key: String,
    /// How long a member may be silent before it counts as lost.
    #[arg(long = "member-lost-after", env = "FORETIDE_MEMBER_LOST_AFTER", value_parser = parse_duration, default_value = "45s")]
    pub lost_after: SignedDuration,
    /// Allow members on this machine, for development.
    #[arg(long = "member-allow-loopback", env = "FORETIDE_MEMBER_ALLOW_LOOPBACK")]
    pub allow_loopback: bool,
}

/// Flags about the election of a leader.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct ElectionArgs {
    /// Elect a leader; the other replicas stand by and write nothing. Required for more than one replica.
    #[arg(long = "leader-elect", env = "FORETIDE_LEADER_ELECT")]
    pub enabled: bool,
    /// Namespace of the lease foretide. Without it, the namespace of this pod.
    // Of its own, because the arguments of members have a field of this name too.
    #[arg(
        id = "leader-elect-namespace",
        long = "leader-elect-namespace",
        env = "FORETIDE_LEADER_ELECT_NAMESPACE"
    )]
    pub namespace: Option<String>,
    /// How long a standby waits after the last renewal that it saw before it takes the lease; whole seconds. This flag
    /// and the next two must be equal in all replicas.
    #[arg(long = "leader-elect-lease-duration", env = "FORETIDE_LEADER_ELECT_LEASE_DURATION", value_parser = parse_duration, default_value = "15s")]
    pub lease_duration: SignedDuration,
    /// How long a leader acts without a successful renewal.
    #[arg(long = "leader-elect-renew-deadline", env = "FORETIDE_LEADER_ELECT_RENEW_DEADLINE", value_parser = parse_duration, default_value = "10s")]
    pub renew_deadline: SignedDuration,
    /// Time between two renewals of the lease; a standby reads it twice as often.
    #[arg(long = "leader-elect-retry-period", env = "FORETIDE_LEADER_ELECT_RETRY_PERIOD", value_parser = parse_duration, default_value = "2s")]
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

/// Who may read `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Every client that reaches the port.
    Open,
    /// The bearer of a token of a user who may get that path.
    Token {
        /// For whom the token must be issued; absent for the API server itself.
        audience: Option<String>,
    },
}

/// Where the rules of prometheus-adapter are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdapterConfigSource {
    /// A file.
    File(PathBuf),
    /// A key of a `ConfigMap`.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key that holds the text.
        key: String,
    },
}

/// How to reach the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeAccess {
    /// The service account of the pod that we run in.
    InCluster,
    /// A kubeconfig file and optionally one of its contexts.
    Kubeconfig {
        /// Path of the file.
        path: PathBuf,
        /// Name of the context; absent means the current one.
        context: Option<String>,
    },
}

/// How a leader is elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the lease; absent means that of this pod.
    pub namespace: Option<String>,
    /// Its durations.
    pub timing: Timing,
}

/// Everything that a running controller needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// How to reach the cluster.
    pub access: KubeAccess,
    /// Namespaces to watch; empty means all.
    pub namespaces: Vec<String>,
    /// Base URL of Prometheus.
    pub prometheus: Option<String>,
    /// Base URLs of the Prometheus servers that members name, by name.
    pub prometheus_endpoints: BTreeMap<String, String>,
    /// The label with the name of the member that a series is from.
    pub cluster_label: String,
    /// Matchers of the series of cpu and memory usage, as `PromQL` writes them.
    pub resource_matchers: Option<String>,
    /// What free-form queries may read.
    pub promql_scope: ScopeArg,
    /// Where the rules of prometheus-adapter are, if they are used.
    pub adapter_config: Option<AdapterConfigSource>,
    /// Where member clusters are found, and how they are treated.
    pub members: MemberArgs,
    /// How a leader is elected; absent if this is the only replica.
    pub election: Option<Election>,
    /// Address of the HTTP port.
    pub listen: SocketAddr,
    /// Who may read its metrics.
    pub metrics_auth: MetricsAuth,
    /// Whether single autoscalers have metrics.
    pub object_metrics: bool,
    /// Which targets are scaled. In a cluster, the controller denies its own namespace too.
    pub targets: TargetRules,
    /// Time between two decisions about one object.
    pub sync_period: SignedDuration,
    /// The zone that `Local` names.
    pub local_zone: Zone,
    /// The algorithm's constants, equal to those of the cluster's own HPA controller.
    pub settings: Settings,
}

/// A flag with an invalid value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A duration that must be positive is not.
    #[error("--{flag} must be longer than zero, for example 15s")]
    NotPositive {
        /// The flag.
        flag: &'static str,
    },
    /// A duration that may be zero is below it.
    #[error("--{flag} must not be negative, for example 5m")]
    Negative {
        /// The flag.
        flag: &'static str,
    },
    /// A ratio that must be finite and not negative is not.
    #[error("--hpa-tolerance must be a ratio of at least 0, for example 0.1")]
    Tolerance,
    /// The name of the `ConfigMap` cannot be used.
    #[error(
        "--prometheus-adapter-configmap expects NAMESPACE/NAME or NAMESPACE/NAME/KEY, got {value:?}"
    )]
    ConfigMap {
        /// What was given.
        value: String,
    },
    /// The label of the members' Secrets cannot be used.
    #[error("--member-secret-label expects KEY=VALUE or KEY, got {value:?}")]
    MemberLabel {
        /// What was given.
        value: String,
    },
    /// A kind of targets cannot be read.
    #[error("--allow-target-kinds: {0}")]
    TargetKind(InvalidTargetKind),
    /// A lease could expire while its holder may still write.
    #[error(
        "--leader-elect-lease-duration must be whole seconds and longer than --leader-elect-renew-deadline, \
         for example 15s and 10s"
    )]
    LeaseDuration,
    /// A leader would have no time to write, or to renew its lease again.
    #[error(
        "--leader-elect-renew-deadline must be longer than --leader-elect-retry-period by more than {WRITE_TIME:?}, the \
         time of one write, and longer than 1.2 times that period, for example 10s and 2s"
    )]
    RenewDeadline,
    /// It is not known where the lease is.
    #[error(
        "--leader-elect outside a pod needs --leader-elect-namespace, for example foretide-system"
    )]
    LeaseNamespace,
    /// The Prometheus URL cannot be used.
    #[error("--prometheus expects http://HOST:PORT or https://HOST:PORT, got {value:?}")]
    Prometheus {
        /// What was given.
        value: String,
    },
    /// An endpoint has no name, the name of another endpoint, or a URL that cannot be used.
    #[error(
        "--prometheus-endpoint expects NAME=http://HOST:PORT or NAME=https://HOST:PORT, each name once, got {value:?}"
    )]
    Endpoint {
        /// What was given.
        value: String,
    },
    /// A label that no series can have.
    #[error(
        "--prometheus-cluster-label expects the name of a label such as cluster, other than a namespace's, got {value:?}"
    )]
    ClusterLabel {
        /// What was given.
        value: String,
    },
}

// === impl AdapterConfigSource ===

impl fmt::Display for AdapterConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::ConfigMap {
                namespace,
                name,
                key,
            } => write!(f, "ConfigMap {namespace}/{name}, key {key}"),
        }
    }
}

// === impl MemberArgs ===

impl Default for MemberArgs {
    /// No members, except inside a cluster.
    fn default() -> Self {
        Self {
            namespace: None,
            secret_label: MEMBER_SECRET_LABEL.to_owned(),
            secret_key: MEMBER_SECRET_KEY.to_owned(),
            lost_after: SignedDuration::from_secs(45),
            allow_loopback: false,
        }
    }
}

// === impl Config ===

impl TryFrom<ControllerArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: ControllerArgs) -> Result<Self, ConfigError> {
        let settings = Settings {
            tolerance: tolerance(args.hpa_tolerance)?,
            downscale_stabilization: not_negative(
                "hpa-downscale-stabilization",
                args.hpa_downscale_stabilization,
            )?,
            cpu_initialization_period: not_negative(
                "hpa-cpu-initialization-period",
                args.hpa_cpu_initialization_period,
            )?,
            initial_readiness_delay: not_negative(
                "hpa-initial-readiness-delay",
                args.hpa_initial_readiness_delay,
            )?,
            ..Settings::default()
        };
        let election = election(args.election, args.kubeconfig.is_none())?;
        let config_map = args.prometheus_adapter_configmap.map(config_map);
        let adapter_file = args
            .prometheus_adapter_config
            .map(AdapterConfigSource::File);
        Ok(Self {
            adapter_config: config_map.transpose()?.or(adapter_file),
            access: args
                .kubeconfig
                .map_or(KubeAccess::InCluster, |path| KubeAccess::Kubeconfig {
                    path,
                    context: args.context,
                }),
            namespaces: distinct(args.namespaces),
            prometheus: args.prometheus.map(prometheus_url).transpose()?,
            prometheus_endpoints: endpoints(args.prometheus_endpoints)?,
            cluster_label: cluster_label(args.prometheus_cluster_label)?,
            resource_matchers: args
                .prometheus_resource_matchers
                .filter(|text| !text.is_empty()),
            promql_scope: args.promql_scope,
            members: member_args(args.members)?,
            election,
            listen: args.listen,
            metrics_auth: metrics_auth(args.metrics, args.listen),
            object_metrics: !args.no_object_metrics,
            targets: TargetRules {
                denied_namespaces: distinct(args.deny_target_namespaces).into_iter().collect(),
                allowed_kinds: target_kinds(args.allow_target_kinds)?,
            },
            sync_period: positive("sync-period", args.sync_period)?,
            local_zone: args.local_timezone.unwrap_or_else(system_zone),
            settings,
        })
    }
}

/// Whether a text is a label that the Secrets of members may have: `KEY=VALUE`, or `KEY`.
pub(crate) fn is_member_label(text: &str) -> bool {
    let plain = |part: &str, more: &[u8]| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.contains(&b);
        part.bytes().all(allowed)
    };
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    !key.is_empty() && plain(key, b"/") && plain(value, b"")
}

fn member_args(args: MemberArgs) -> Result<MemberArgs, ConfigError> {
    if !is_member_label(&args.secret_label) {
        return Err(ConfigError::MemberLabel {
            value: args.secret_label,
        });
    }
    Ok(MemberArgs {
        lost_after: positive("member-lost-after", args.lost_after)?,
        namespace: args.namespace.filter(|namespace| !namespace.is_empty()),
        ..args
    })
}

fn metrics_auth(args: MetricsArgs, listen: SocketAddr) -> MetricsAuth {
    let is_open = match args.auth {
        MetricsAuthArg::Auto => listen.ip().is_loopback(),
        MetricsAuthArg::Token => false,
        MetricsAuthArg::None => true,
    };
    if is_open {
        return MetricsAuth::Open;
    }
    MetricsAuth::Token {
        audience: args.audience.filter(|audience| !audience.is_empty()),
    }
}

/// The same conditions as in client-go, and time for a write before a leader must renew.
fn election(args: ElectionArgs, in_cluster: bool) -> Result<Option<Election>, ConfigError> {
    let span = |flag, span| Ok(positive(flag, span)?.unsigned_abs());
    let timing = Timing {
        lease_duration: span("leader-elect-lease-duration", args.lease_duration)?,
        renew_deadline: span("leader-elect-renew-deadline", args.renew_deadline)?,
        retry_period: span("leader-elect-retry-period", args.retry_period)?,
    };
    if timing.lease_duration <= timing.renew_deadline || timing.lease_duration.subsec_nanos() > 0 {
        return Err(ConfigError::LeaseDuration);
    }
    let retry: Duration = timing.retry_period;
    let least = (retry + retry / 5).max(retry + WRITE_TIME);
    if timing.renew_deadline <= least {
        return Err(ConfigError::RenewDeadline);
    }
    let namespace = args.namespace.filter(|namespace| !namespace.is_empty());
    if !args.enabled {
        return Ok(None);
    }
    if namespace.is_none() && !in_cluster {
        return Err(ConfigError::LeaseNamespace);
    }
    Ok(Some(Election { namespace, timing }))
}

fn tolerance(ratio: f64) -> Result<f64, ConfigError> {
    (ratio.is_finite() && ratio >= 0.0)
        .then_some(ratio)
        .ok_or(ConfigError::Tolerance)
}

fn positive(flag: &'static str, span: SignedDuration) -> Result<SignedDuration, ConfigError> {
    span.is_positive()
        .then_some(span)
        .ok_or(ConfigError::NotPositive { flag })
}

fn not_negative(flag: &'static str, span: SignedDuration) -> Result<SignedDuration, ConfigError> {
    (!span.is_negative())
        .then_some(span)
        .ok_or(ConfigError::Negative { flag })
}

/// Each namespace once, in order; an empty one, as an empty variable gives it, is none.
fn distinct(namespaces: Vec<String>) -> Vec<String> {
    let named = namespaces.into_iter().filter(|name| !name.is_empty());
    let distinct: BTreeSet<String> = named.collect();
    distinct.into_iter().collect()
}

fn target_kinds(values: Vec<String>) -> Result<BTreeSet<TargetKind>, ConfigError> {
    let kinds = distinct(values).into_iter().map(|kind| kind.parse());
    kinds
        .collect::<Result<_, _>>()
        .map_err(ConfigError::TargetKind)
}

fn config_map(value: String) -> Result<AdapterConfigSource, ConfigError> {
    let (namespace, name, key) = match value.split('/').collect::<Vec<_>>()[..] {
        [namespace, name] => (namespace, name, "config.yaml"),
        [namespace, name, key] => (namespace, name, key),
        _ => return Err(ConfigError::ConfigMap { value }),
    };
    if [namespace, name, key].contains(&"") {
        return Err(ConfigError::ConfigMap { value });
    }
    Ok(AdapterConfigSource::ConfigMap {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    })
}

fn prometheus_url(value: String) -> Result<String, ConfigError> {
    base_url(&value).ok_or(ConfigError::Prometheus { value })
}

fn base_url(value: &str) -> Option<String> {
    let scheme = value.starts_with("http://") || value.starts_with("https://");
    let url = reqwest::Url::parse(value).ok();
    url.filter(|url| scheme && url.has_host())
        .map(|_| value.trim_end_matches('/').to_owned())
}

fn endpoints(values: Vec<String>) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut endpoints = BTreeMap::new();
    for value in values.into_iter().filter(|value| !value.is_empty()) {
        let named = value
            .split_once('=')
            .filter(|(name, _)| !name.trim().is_empty());
        let read =
            named.and_then(|(name, url)| Some((name.trim().to_owned(), base_url(url.trim())?)));
        let Some((name, url)) = read.filter(|(name, _)| !endpoints.contains_key(name)) else {
            return Err(ConfigError::Endpoint { value });
        };
        endpoints.insert(name, url);
    }
    Ok(endpoints)
}

/// A label name that Prometheus accepts; not a reserved one, nor one that holds the namespace or the pod.
fn cluster_label(value: String) -> Result<String, ConfigError> {
    let word = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let begins = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let taken = value.starts_with("__") || value == "namespace" || value == "pod";
    if word && begins && !taken {
        Ok(value)
    } else {
        Err(ConfigError::ClusterLabel { value })
    }
}

/// A duration such as `15s`, `5m` or `1h 30m`.
///
/// # Errors
/// One sentence with an example.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    text.parse()
        .map_err(|_| format!("expected a duration such as 15s or 5m, got {text:?}"))
}

/// A zone of the bundled database.
///
/// # Errors
/// One sentence with an example.
pub fn parse_zone(text: &str) -> Result<Zone, String> {
    Zone::parse(text, &Zone::utc())
        .map_err(|_| format!("expected an IANA time zone such as Europe/Prague, got {text:?}"))
}

/// The zone of this process; UTC where it has no name.
#[must_use]
pub fn system_zone() -> Zone {
    let system = TimeZone::system();
    let named = system
        .iana_name()
        .and_then(|name| Zone::parse(name, &Zone::utc()).ok());
    named.unwrap_or_else(Zone::utc)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: ControllerArgs,
    }

    fn config(flags: &[&str]) -> Result<Config, ConfigError> {
        let program = Program::parse_from([&["foretide"], flags].concat());
        Config::try_from(program.args)
    }

    #[test]
    fn defaults_watch_all_namespaces_in_cluster_every_15_seconds() {
        let config = config(&[]).unwrap();
        assert_eq!(config.access, KubeAccess::InCluster);
        assert_eq!(config.namespaces, Vec::<String>::new());
        assert_eq!(config.sync_period, SignedDuration::from_secs(15));
        assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
        assert_eq!(config.settings, Settings::default());
    }

    #[test]
    fn namespaces_are_repeated_or_comma_separated() {
        let config = config(&["--namespace", "a,b", "--namespace", "c"]).unwrap();
        assert_eq!(config.namespaces, ["a", "b", "c"]);
    }

    #[test]
    fn duplicate_and_empty_namespaces_are_dropped() {
        let config = config(&["--namespace", "b,a,,b", "--namespace", ""]).unwrap();
        assert_eq!(config.namespaces, ["a", "b"]);
    }

    #[test]
    fn targets_in_kube_system_are_denied_unless_the_flag_says_otherwise() {
        let of = |flags: &[&str]| config(flags).unwrap().targets.denied_namespaces;
        let flag = "--deny-target-namespaces";
        assert_eq!(of(&[]), ["kube-system".to_owned()].into());
        assert_eq!(of(&[flag, "b,a"]), ["a".to_owned(), "b".to_owned()].into());
        assert_eq!(of(&[flag, ""]), [].into());
    }

    #[test]
    fn metrics_need_a_token_unless_the_port_is_on_loopback() {
        let of = |flags: &[&str]| config(flags).unwrap().metrics_auth;
        let token = |audience: Option<&str>| MetricsAuth::Token {
            audience: audience.map(str::to_owned),
        };
        for (listen, expected) in [
            ("127.0.0.1:8080", MetricsAuth::Open),
            ("127.8.0.1:8080", MetricsAuth::Open),
            ("[::1]:8080", MetricsAuth::Open),
            ("0.0.0.0:8080", token(None)),
            ("[::]:8080", token(None)),
            ("[::ffff:127.0.0.1]:8080", token(None)),
            ("10.0.0.7:8080", token(None)),
        ] {
            let address = format!("--listen={listen}");
            assert_eq!(of(&[&address]), expected, "{listen}");
            assert_eq!(of(&[&address, "--metrics-auth=token"]), token(None));
            assert_eq!(of(&[&address, "--metrics-auth=none"]), MetricsAuth::Open);
        }
        assert_eq!(of(&[]), MetricsAuth::Open);
        let audience = ["--metrics-auth=token", "--metrics-audience=foretide"];
        assert_eq!(of(&audience), token(Some("foretide")));
        assert_eq!(
            of(&["--metrics-auth=token", "--metrics-audience="]),
            token(None)
        );
    }

    #[test]
    fn every_kind_is_scaled_unless_the_flag_lists_some() {
        let of = |flags: &[&str]| config(flags).map(|config| config.targets.allowed_kinds);
        let flag = "--allow-target-kinds";
        let kind = |text: &str| text.parse::<TargetKind>().unwrap();
        assert_eq!(of(&[]), Ok([].into()));
        assert_eq!(of(&[flag, ""]), Ok([].into()));
        let both = [kind("Deployment.apps"), kind("ReplicationController")];
        let given = "ReplicationController,Deployment.apps";
        assert_eq!(of(&[flag, given]), Ok(both.into()));
        assert_eq!(
            of(&[flag, "deployments.apps"]).unwrap_err().to_string(),
            "--allow-target-kinds: expected KIND.GROUP such as Deployment.apps, or KIND in the core group, got \
             \"deployments.apps\""
        );
    }

    #[test]
    fn the_rules_of_prometheus_adapter_come_from_a_file_or_from_a_config_map() {
        let of = |flags: &[&str]| config(flags).map(|config| config.adapter_config);
        let config_map = |key: &str| {
            Some(AdapterConfigSource::ConfigMap {
                namespace: "monitoring".into(),
                name: "adapter-config".into(),
                key: key.into(),
            })
        };
        let flag = "--prometheus-adapter-configmap";
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(
            of(&["--prometheus-adapter-config", "rules.yaml"]),
            Ok(Some(AdapterConfigSource::File("rules.yaml".into())))
        );
        assert_eq!(
            of(&[flag, "monitoring/adapter-config"]),
            Ok(config_map("config.yaml"))
        );
        assert_eq!(
            of(&[flag, "monitoring/adapter-config/rules"]),
            Ok(config_map("rules"))
        );
        for value in ["adapter-config", "a/b/c/d", "/b", "a/", "a/b/"] {
            let value = value.to_owned();
            assert_eq!(of(&[flag, &value]), Err(ConfigError::ConfigMap { value }));
        }
        let both = [
            "foretide",
            "--prometheus-adapter-config=a",
            "--prometheus-adapter-configmap=a/b",
        ];
        assert!(Program::try_parse_from(both).is_err());
    }

    #[test]
    fn endpoints_have_unique_names_and_series_a_cluster_label() {
        let of = |flags: &[&str]| config(flags).map(|config| config.prometheus_endpoints);
        let flag = "--prometheus-endpoint";
        let both = [
            ("east", "https://thanos/e"),
            ("west", "http://10.0.0.7:9090"),
        ];
        let both = both.map(|(name, url)| (name.to_owned(), url.to_owned()));
        let given = "east=https://thanos/e/,west=http://10.0.0.7:9090";
        assert_eq!(of(&[flag, given]), Ok(BTreeMap::from(both)));
        assert_eq!(of(&[]), Ok(BTreeMap::new()));
        for value in [
            "http://thanos",
            "=http://thanos",
            "east=thanos:9090",
            "east=",
        ] {
            let value = value.to_owned();
            assert_eq!(of(&[flag, &value]), Err(ConfigError::Endpoint { value }));
        }
        let twice = of(&[flag, "a=http://b", flag, "a=http://c"]);
        let value = "a=http://c".to_owned();
        assert_eq!(twice, Err(ConfigError::Endpoint { value }));
        let label =
            |value: &str| config(&["--prometheus-cluster-label", value]).map(|c| c.cluster_label);
        assert_eq!(config(&[]).unwrap().cluster_label, "cluster");
        assert_eq!(label("k8s_cluster"), Ok("k8s_cluster".to_owned()));
        for value in ["", "a-b", "__name__", "namespace", "9a"] {
            let value = value.to_owned();
            assert_eq!(label(&value), Err(ConfigError::ClusterLabel { value }));
        }
    }

    #[test]
    fn a_leader_is_elected_on_request_with_the_durations_of_client_go() {
        let of = |flags: &[&str]| config(flags).map(|config| config.election);
        assert_eq!(of(&[]), Ok(None));
        let timing = Timing::default();
        let namespace = None;
        assert_eq!(
            of(&["--leader-elect"]),
            Ok(Some(Election { namespace, timing }))
        );
        let timing = Timing {
            lease_duration: Duration::from_mins(1),
            renew_deadline: Duration::from_secs(40),
            retry_period: Duration::from_secs(15),
        };
        let namespace = Some("ops".to_owned());
        let slow = [
            "--leader-elect",
            "--leader-elect-namespace=ops",
            "--leader-elect-lease-duration=60s",
            "--leader-elect-renew-deadline=40s",
            "--leader-elect-retry-period=15s",
        ];
        assert_eq!(of(&slow), Ok(Some(Election { namespace, timing })));
        let outside = ["--leader-elect", "--kubeconfig=k"];
        assert_eq!(of(&outside), Err(ConfigError::LeaseNamespace));
    }

    #[test]
    fn durations_with_which_two_could_write_or_none_could_are_rejected() {
        for (lease, renew, retry, want) in [
            ("15s", "10s", "2s", None),
            ("10s", "10s", "2s", Some(ConfigError::LeaseDuration)),
            ("10s", "15s", "2s", Some(ConfigError::LeaseDuration)),
            ("15500ms", "10s", "2s", Some(ConfigError::LeaseDuration)),
            ("60s", "36s", "30s", Some(ConfigError::RenewDeadline)),
            ("60s", "37s", "30s", None),
            // A write takes up to five seconds, and must fit between two renewals.
            ("15s", "7s", "2s", Some(ConfigError::RenewDeadline)),
            ("15s", "8s", "2s", None),
            (
                "15s",
                "10s",
                "0s",
                Some(ConfigError::NotPositive {
                    flag: "leader-elect-retry-period",
                }),
            ),
        ] {
            let flags = [
                "--leader-elect-lease-duration",
                lease,
                "--leader-elect-renew-deadline",
                renew,
                "--leader-elect-retry-period",
                retry,
            ];
            assert_eq!(config(&flags).err(), want, "{flags:?}");
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_the_name_of_the_flag() {
        for (flags, expected) in [
            (
                ["--sync-period", "0s"],
                ConfigError::NotPositive {
                    flag: "sync-period",
                },
            ),
            (["--hpa-tolerance", "NaN"], ConfigError::Tolerance),
            (
                ["--hpa-initial-readiness-delay=-30s", "--log-json"],
                ConfigError::Negative {
                    flag: "hpa-initial-readiness-delay",
                },
            ),
            (
                ["--prometheus", "prom:9090"],
                ConfigError::Prometheus {
                    value: "prom:9090".into(),
                },
            ),
            (
                ["--prometheus", "http://"],
                ConfigError::Prometheus {
                    value: "http://".into(),
                },
            ),
            (
                ["--member-secret-label", "=true"],
                ConfigError::MemberLabel {
                    value: "=true".into(),
                },
            ),
            (
                ["--member-secret-label", "a=b,c=d"],
                ConfigError::MemberLabel {
                    value: "a=b,c=d".into(),
                },
            ),
            (
                ["--member-lost-after", "0s"],
                ConfigError::NotPositive {
                    flag: "member-lost-after",
                },
            ),
        ] {
            assert_eq!(config(&flags).unwrap_err(), expected, "{flags:?}");
        }
    }
}
