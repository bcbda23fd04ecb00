//! Flags, environment and configuration file of `foretide controller`, and the validated configuration they become.
//!
//! It opens no connections and reads only the configuration file: a [`Config`] is a value that `app::run` receives.
//!
//! | module | holds |
//! |---|---|
//! | `args` | flags and environment |
//! | `file`, `servers` | the configuration file; its sections about Prometheus servers |
//! | `values` | parsers of the values of single flags |
//! | `error` | reasons for which a configuration cannot be used |

mod args;
mod error;
mod file;
mod servers;
mod values;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use foretide_domain::{cron::Zone, hpa::Settings};
use jiff::{SignedDuration, tz::TimeZone};

pub use self::{
    args::{
        ControllerArgs, DEFAULT_LISTEN, ElectionArgs, MEMBER_SECRET_KEY, MEMBER_SECRET_LABEL,
        MemberArgs, MetricsArgs, MetricsAuthArg, ScopeArg,
    },
    error::ConfigError,
    file::{ConfigFile, FileError},
    servers::ServerSections,
    values::{member_label, parse_duration},
};
use foretide_api::ports::HistoryServer;
use foretide_api::validation::{CostLimits, TargetKind, TargetRules};
use foretide_base::{
    leadership::{Timing, WRITE_TIME},
    service::distinct,
};
use foretide_kube::KubeAccess;

/// Readers of `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Every client that reaches the port.
    Open,
    /// The bearer of a token of a user who may get that path.
    Token {
        /// Audience of the token; absent for the API server itself.
        audience: Option<String>,
    },
}

/// Source of the rules of prometheus-adapter.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum AdapterConfigSource {
    /// A file.
    #[display("file {}", _0.display())]
    File(PathBuf),
    /// A key of a `ConfigMap`.
    #[display("ConfigMap {namespace}/{name}, key {key}")]
    ConfigMap {
        /// Namespace of the `ConfigMap`.
        namespace: String,
        /// Name of the `ConfigMap`.
        name: String,
        /// The key that holds the text.
        key: String,
    },
}

/// Settings of the leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the lease; absent means that of this pod.
    pub namespace: Option<String>,
    /// Durations of the lease.
    pub timing: Timing,
}

/// The complete configuration of a controller.
#[derive(Debug, Clone)]
pub struct Config {
    /// Access to the cluster.
    pub access: KubeAccess,
    /// Namespaces to watch; empty means all.
    pub namespaces: Vec<String>,
    /// The Prometheus server with the history.
    pub prometheus: Option<HistoryServer>,
    /// The Prometheus servers that members name, by name.
    pub prometheus_endpoints: BTreeMap<String, HistoryServer>,
    /// The label with the name of the member that a series is from.
    pub cluster_label: String,
    /// Matchers of the series of cpu and memory usage, as `PromQL` writes them.
    pub resource_matchers: Option<String>,
    /// Series that free-form queries may read.
    pub promql_scope: ScopeArg,
    /// Source of the rules of prometheus-adapter, if they are used.
    pub adapter_config: Option<AdapterConfigSource>,
    /// Source of the member clusters, and settings for them.
    pub members: MemberArgs,
    /// Settings of the leader election; absent if this is the only replica.
    pub election: Option<Election>,
    /// Address of the HTTP port.
    pub listen: SocketAddr,
    /// Readers of the metrics.
    pub metrics_auth: MetricsAuth,
    /// Publishes metrics of single autoscalers.
    pub object_metrics: bool,
    /// Memory for the last days on the page, in bytes.
    pub page_memory: usize,
    /// Rules of the targets. In a cluster, the controller denies its own namespace, too.
    pub targets: TargetRules,
    /// Limits on the costs of the forecasts in each namespace together.
    pub cost_limits: CostLimits,
    /// Time between two decisions about one object.
    pub sync_period: SignedDuration,
    /// The zone that `Local` names.
    pub local_zone: Zone,
    /// The algorithm's constants, equal to those of the cluster's own HPA controller.
    pub settings: Settings,
}

// === impl Config ===

impl TryFrom<ControllerArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: ControllerArgs) -> Result<Self, ConfigError> {
        let settings = Settings {
            tolerance: args.hpa_tolerance,
            downscale_stabilization: args.hpa_downscale_stabilization,
            cpu_initialization_period: args.hpa_cpu_initialization_period,
            initial_readiness_delay: args.hpa_initial_readiness_delay,
            ..Settings::default()
        };
        let access = args.kube.access();
        let election = election(args.election, access == KubeAccess::InCluster)?;
        let servers = args
            .servers
            .with_urls(args.prometheus, args.prometheus_endpoints)?;
        if args.prometheus_adapter_config.is_some() && args.prometheus_adapter_configmap.is_some() {
            return Err(ConfigError::TwoAdapterConfigs);
        }
        let adapter_file = args
            .prometheus_adapter_config
            .map(AdapterConfigSource::File);
        Ok(Self {
            adapter_config: args.prometheus_adapter_configmap.or(adapter_file),
            access,
            namespaces: distinct(args.namespaces),
            prometheus: servers.hub,
            prometheus_endpoints: servers.named,
            cluster_label: args.prometheus_cluster_label,
            resource_matchers: args
                .prometheus_resource_matchers
                .filter(|text| !text.is_empty()),
            promql_scope: args.promql_scope,
            members: MemberArgs {
                namespace: args.members.namespace.filter(|it| !it.is_empty()),
                ..args.members
            },
            election,
            listen: args.listen,
            metrics_auth: metrics_auth(args.metrics, args.listen),
            object_metrics: !args.no_object_metrics,
            // From MiB to bytes.
            page_memory: usize::try_from(args.page_memory).unwrap_or(0) << 20,
            targets: TargetRules {
                denied_namespaces: distinct(args.deny_target_namespaces).into_iter().collect(),
                allowed_kinds: target_kinds(args.allow_target_kinds)?,
            },
            cost_limits: cost_limits(args.max_cost_percent)?,
            sync_period: args.sync_period,
            local_zone: args.local_timezone.unwrap_or_else(system_zone),
            settings,
        })
    }
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

/// Checks the same conditions as client-go, and that a leader has time for a write before it must renew.
fn election(args: ElectionArgs, in_cluster: bool) -> Result<Option<Election>, ConfigError> {
    let timing = Timing {
        lease_duration: args.lease_duration.unsigned_abs(),
        renew_deadline: args.renew_deadline.unsigned_abs(),
        retry_period: args.retry_period.unsigned_abs(),
    };
    // A Lease has `leaseDurationSeconds`, a whole number.
    if timing.lease_duration <= timing.renew_deadline || timing.lease_duration.subsec_nanos() > 0 {
        return Err(ConfigError::LeaseDuration);
    }
    let retry: Duration = timing.retry_period;
    // 1.2 is the jitter factor of client-go.
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

fn target_kinds(values: Vec<String>) -> Result<BTreeSet<TargetKind>, ConfigError> {
    distinct(values)
        .into_iter()
        .map(|kind| kind.parse())
        .collect::<Result<_, _>>()
        .map_err(ConfigError::TargetKind)
}

/// The limits; empty values, as an empty variable gives them, are left out.
fn cost_limits(values: Vec<String>) -> Result<CostLimits, ConfigError> {
    let given = values.into_iter().filter(|value| !value.is_empty());
    CostLimits::parse(given).map_err(ConfigError::CostLimit)
}

/// The zone of this process; UTC where it has no name.
pub fn system_zone() -> Zone {
    let system = TimeZone::system();
    system
        .iana_name()
        .and_then(|name| Zone::parse(name, &Zone::utc()).ok())
        .unwrap_or_else(Zone::utc)
}
