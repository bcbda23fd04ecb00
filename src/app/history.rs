//! The sources of history in a configuration: the clients of its Prometheus servers, and the queries for them.

use foretide_domain::{cron::Zone, forecast::Refused};
use jiff::SignedDuration;

use super::AppError;
use crate::config::{AdapterConfigSource, Config, ScopeArg};
use foretide_api::autoscaler::Autoscaler;
use foretide_api::ports::{DemandQueries, HistoryReader};
use foretide_base::{clock::Clock, error::chain, machine::Machine};
use foretide_controller::forecaster::{self, HistorySource};
use foretide_kube::cluster::Connection;
use foretide_prometheus::{
    Endpoints, Prometheus, PromqlScope, QueryDefaults, QueryRules, ReloadOutcome, RulesCache,
    matchers,
};

/// Interval at which the rules of prometheus-adapter are read again. A mounted `ConfigMap` takes about as long to change.
const RULES_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// The history that a controller with this configuration reads, for a command: absent if no server is configured; with
/// it the problem of the rules of prometheus-adapter, which a controller logs. The cluster is read only for rules in a
/// `ConfigMap`.
///
/// # Errors
/// The matchers of resource metrics cannot be used.
pub async fn of_command(
    config: &Config,
    connection: Option<Connection>,
    machine: &Machine,
) -> Result<
    (
        Option<HistorySource<impl HistoryReader, impl DemandQueries>>,
        Option<String>,
    ),
    AppError,
> {
    let adapter = AdapterRules {
        origin: config.adapter_config.clone(),
        connection,
        rules: RulesCache::default(),
    };
    let problem = match &adapter.origin {
        Some(origin) => {
            let problem = adapter.rules.reload(adapter.read(origin).await).problem();
            problem.map(|problem| format!("prometheus-adapter rules of {origin}: {problem}"))
        }
        None => None,
    };
    Ok((history(config, adapter.rules, machine)?, problem))
}

/// The annotations of an autoscaler whose queries a controller with this flag refuses, each with the reason.
pub fn refused_queries(
    autoscaler: Autoscaler,
    scope: ScopeArg,
    local: &Zone,
) -> Vec<(String, Refused)> {
    let queries = QueryRules {
        scope: promql_scope(scope),
        ..QueryRules::default()
    };
    forecaster::refused_queries(&queries, autoscaler, local)
}

const fn promql_scope(scope: ScopeArg) -> PromqlScope {
    match scope {
        ScopeArg::Namespace => PromqlScope::Namespace,
        ScopeArg::Any => PromqlScope::Any,
    }
}

/// The history of the servers in a configuration; absent if it names none.
pub fn history(
    config: &Config,
    adapter: RulesCache,
    machine: &Machine,
) -> Result<Option<HistorySource<Endpoints, QueryRules>>, AppError> {
    if config.prometheus.is_none() && config.prometheus_endpoints.is_empty() {
        return Ok(None);
    }
    let client = |server| Prometheus::new(server, machine);
    let mut reader = Endpoints {
        hub: config.prometheus.as_ref().map(client),
        ..Endpoints::default()
    };
    for (name, server) in &config.prometheus_endpoints {
        reader.named.insert(name.as_str().into(), client(server));
    }
    let resource_matchers = config.resource_matchers.as_deref().map(matchers);
    let defaults = QueryDefaults {
        resource_matchers: resource_matchers.transpose()?.unwrap_or_default(),
        ..QueryDefaults::default()
    };
    let queries = QueryRules {
        defaults,
        scope: promql_scope(config.promql_scope),
        adapter,
        endpoints: reader.names(&config.cluster_label),
    };
    Ok(Some(HistorySource { reader, queries }))
}

/// The rules of prometheus-adapter, reloaded periodically: an edit takes effect without a restart.
pub struct AdapterRules {
    pub origin: Option<AdapterConfigSource>,
    /// The cluster with the `ConfigMap`; absent for a command without one.
    pub connection: Option<Connection>,
    pub rules: RulesCache,
}

// === impl AdapterRules ===

impl AdapterRules {
    /// Reloads every [`RULES_PERIOD`].
    pub async fn reload_periodically(self, clock: Clock) {
        loop {
            clock.sleep(RULES_PERIOD).await;
            self.reload().await;
        }
    }

    /// Reads the rules; a change is logged.
    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    pub async fn reload(&self) {
        let Some(origin) = &self.origin else {
            return;
        };
        let outcome = self.rules.reload(self.read(origin).await);
        if outcome == ReloadOutcome::Unchanged {
            return;
        }
        let rules = self.rules.rules().len();
        if let Some(problem) = outcome.problem() {
            tracing::warn!(%origin, rules, problem, "prometheus-adapter rules not fully loaded");
        } else {
            tracing::info!(%origin, rules, "prometheus-adapter rules loaded");
        }
    }

    async fn read(&self, origin: &AdapterConfigSource) -> Result<Option<String>, String> {
        match origin {
            AdapterConfigSource::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(Some(text)),
                // No error, after which the previous rules would stay in use.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(chain(&error)),
            },
            AdapterConfigSource::ConfigMap {
                namespace,
                name,
                key,
            } => {
                let text = self
                    .connection
                    .as_ref()
                    .ok_or("no cluster is given; add --kubeconfig FILE")?
                    .config_text(namespace, name, key);
                text.await.map_err(|error| chain(&error))
            }
        }
    }
}
