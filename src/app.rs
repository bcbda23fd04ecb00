//! The composition root: the only place that names concrete adapters and joins them.
//!
//! `run` builds one controller from its configuration and runs it until shutdown. Everything it starts ends with it.

mod fleets;
pub(crate) mod history;
mod page;
mod shutdown;

use std::{collections::BTreeMap, future::Future, net::SocketAddr, sync::Arc};

use futures::FutureExt;
use jiff::SignedDuration;
use tokio::net::TcpListener;

use self::{
    fleets::Fleets,
    history::{AdapterRules, history},
    page::PageHost,
    shutdown::{CONTROLLER, ELECTION, FLEETS, Stop},
};
use crate::config::{Config, MetricsAuth};
use foretide_api::ports::PAGE_AUDIENCE;
use foretide_api::validation::TargetRules;
use foretide_base::{
    clock::Clock,
    http::{self, MetricsAccess},
    leadership::{self, Campaign, LEASE, Leadership},
    machine::Machine,
    service::{Parts, listen},
    telemetry::{MemberGauges, Telemetry, WatchHealth},
};
use foretide_controller::{
    EffectiveController, FleetController, Setup, Shared,
    forecaster::{Forecaster, ForecasterSetup},
};
use foretide_kube::KubeAccess;
use foretide_kube::{
    cluster::{ConnectError, Connection, KubeAccessReviewer, KubeCluster, KubeLease, WriteGate},
    members::{MemberRegistry, MemberSettings, Timeouts},
};
use foretide_page::{
    DecisionLog, Page,
    http::{PageAccess, PageSite},
};
use foretide_prometheus::{Endpoints, MatchersError, QueryRules, RulesCache};

/// Interval at which the health of the watches is published.
const WATCH_REPORT_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// Reason for which the controller could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The Kubernetes API cannot be reached with this configuration.
    #[error("no connection to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The matchers of resource metrics cannot be used.
    #[error("--prometheus-resource-matchers cannot be used")]
    ResourceMatchers(#[from] MatchersError),
    /// The HTTP port cannot be opened.
    #[error("cannot listen on {addr}; choose another address with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Cause of the failure.
        #[source]
        source: std::io::Error,
    },
    /// Another process may be the leader now.
    #[error(
        "lost the leader lease: it was not renewed in time, or another replica has taken it; exiting, because what this \
         process knows may be out of date"
    )]
    LeaseLost,
    /// A task that runs until shutdown exited before it.
    #[error("{part} task exited unexpectedly")]
    Ended {
        /// Name of the part.
        part: &'static str,
    },
}

/// Runs one controller until `shutdown` completes; its metrics are added to `telemetry`.
///
/// # Errors
/// [`AppError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: Config,
    machine: Machine,
    telemetry: Arc<Telemetry>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AppError> {
    let addr = config.listen;
    let listener = listen(addr, &machine)
        .await
        .map_err(|source| AppError::Listen { addr, source })?;
    let connection = config.access.connect(&machine).await?;
    let process = Process {
        targets: Arc::new(target_rules(&config, &connection)),
        config,
        machine,
        connection,
        telemetry,
    };
    process.run(listener, shutdown).await
}

/// Common inputs of the parts of a controller.
struct Process {
    config: Config,
    machine: Machine,
    connection: Connection,
    targets: Arc<TargetRules>,
    telemetry: Arc<Telemetry>,
}

// === impl Process ===

impl Process {
    /// Builds the parts, and runs them until `shutdown` completes.
    async fn run(
        self,
        listener: Option<TcpListener>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let clock = self.machine.clock().clone();
        if let Some(memory) = self.machine.memory() {
            memory.divide(self.config.page_memory);
        }
        let adapter = adapter_rules(&self.config, &self.connection).await;
        let campaign = self.campaign();
        let clusters = self.clusters(campaign.as_ref().map(Campaign::leadership));
        let page = Arc::new(self.page(&clusters));
        let site = self.page_site(Arc::clone(&page));
        let router = http::router(
            Arc::clone(&self.telemetry),
            clock.clone(),
            self.metrics_access(),
        )
        .merge(site.router());
        let shared = self.shared(&page);
        let forecaster = self.forecaster(&clusters, &shared, adapter.rules.clone())?;
        if !self.config.object_metrics {
            self.telemetry.hide_objects();
        }
        // A candidate leaves the lease to others while its copy of the hub is out of date.
        let campaign = campaign.map(|campaign| {
            let hub = Arc::clone(&clusters.hub);
            campaign.eligible_when(move || hub.is_current())
        });
        let mut parts = Parts::new();
        let mut stop = self.spawn_controllers(&mut parts, &clusters, shared);
        parts.spawn(forecaster.run().map(|()| "forecaster"));
        let reloads = adapter.reload_periodically(clock.clone());
        parts.spawn(reloads.map(|()| "prometheus-adapter rules"));
        let machine = self.machine.clone();
        let comparison = page::compare(page, self.machine);
        parts.spawn(comparison.map(|()| "comparison with a plain HPA"));
        spawn_watches(&mut parts, clusters, &self.telemetry, &machine);
        // For a port of 0 the system has chosen one.
        let port = listener.as_ref().map(TcpListener::local_addr);
        let listen = port.and_then(Result::ok).unwrap_or(self.config.listen);
        if let Some(listener) = listener {
            parts.spawn(http::serve(listener, router).map(|()| "HTTP server"));
        }
        tracing::info!(%listen, "controller started");
        if let Some(campaign) = campaign {
            let stopped = stop.election(campaign.leadership().clone());
            // Before the stop, the campaign ends only by the loss of the lease, which `until` reports.
            parts.spawn(campaign.run(stopped).map(|_ended| ELECTION));
        }
        stop.until(shutdown, parts).await
    }

    /// The candidate of this process in the election, if there is one.
    fn campaign(&self) -> Option<Campaign<KubeLease>> {
        let election = self.config.election.as_ref()?;
        let (timing, connection) = (election.timing, &self.connection);
        let asked = election.namespace.as_deref();
        let namespace = asked.unwrap_or_else(|| connection.namespace());
        let lease = KubeLease::new(connection, namespace, LEASE, timing.request_deadline());
        let identity = leadership::identity(&self.machine);
        tracing::info!(%identity, %namespace, lease = LEASE, "taking part in the leader election");
        Some(Campaign::new(
            lease,
            identity,
            timing,
            self.machine.clock().clone(),
            Arc::clone(&self.telemetry),
        ))
    }

    /// The clusters; all writes to them pass one gate.
    fn clusters(&self, leadership: Option<&Leadership>) -> Clusters {
        let leadership = leadership.cloned().unwrap_or_default();
        let gate = WriteGate::of(leadership.clone());
        let connection = self.connection.clone();
        let hub = Arc::new(KubeCluster::new(
            connection,
            &self.config.namespaces,
            gate.clone(),
        ));
        Clusters {
            members: Arc::new(Fleets {
                members: self.members(gate),
                hub: Arc::clone(&hub),
                clock: self.machine.clock().clone(),
            }),
            hub,
            leadership,
        }
    }

    /// The members, if the namespace of their Secrets is known.
    fn members(&self, gate: WriteGate) -> Option<MemberRegistry> {
        let asked = &self.config.members;
        let settings = MemberSettings {
            namespace: asked
                .namespace
                .clone()
                .or_else(|| own_namespace(&self.config, &self.connection))?,
            label: asked.secret_label.clone(),
            key: asked.secret_key.clone(),
            allow_loopback: asked.allow_loopback,
            namespaces: self.config.namespaces.clone(),
            timeouts: Timeouts::new(asked.lost_after),
        };
        Some(MemberRegistry::new(self.connection.clone(), settings, gate))
    }

    /// The page of what is decided about autoscalers.
    fn page(&self, clusters: &Clusters) -> Page {
        let host = PageHost {
            machine: self.machine.clone(),
            telemetry: Arc::clone(&self.telemetry),
            leadership: clusters.leadership.clone(),
            hub: Arc::clone(&clusters.hub),
            members: Arc::clone(&clusters.members),
            started: self.connection.clock().contact(),
            namespace: own_namespace(&self.config, &self.connection),
        };
        let log = DecisionLog::new(self.config.page_memory);
        Page::new(Arc::new(log), Arc::new(host))
    }

    /// The check of the readers of metrics; absent if no token is needed. Leadership does not matter: a standby is
    /// scraped, too.
    fn metrics_access(&self) -> Option<MetricsAccess<KubeAccessReviewer>> {
        match &self.config.metrics_auth {
            MetricsAuth::Open => None,
            MetricsAuth::Token { audience } => {
                let reviewer = KubeAccessReviewer::new(&self.connection, audience.as_deref());
                Some(MetricsAccess::new(reviewer, self.machine.clock().clone()))
            }
        }
    }

    /// The page, open to everyone if only this machine reaches it; otherwise the rights of each reader apply.
    fn page_site(&self, page: Arc<Page>) -> PageSite {
        let site = PageSite::open(page, self.machine.clock());
        let is_open = self.config.metrics_auth == MetricsAuth::Open;
        if is_open && self.config.listen.ip().is_loopback() {
            return site;
        }
        // People have tokens for the API server; only tokens of service accounts can be for the page alone.
        let reviewer = KubeAccessReviewer::new(&self.connection, Some(PAGE_AUDIENCE));
        let reviewer = reviewer.or_for_the_api_server();
        site.guarded(PageAccess::new(reviewer, self.machine.clock().clone()))
    }

    /// Data that the controllers share with each other and with the forecaster.
    fn shared(&self, page: &Page) -> Shared {
        Shared {
            forecasts: Arc::default(),
            telemetry: Arc::clone(&self.telemetry),
            page: Arc::clone(page.log()),
        }
    }

    /// The forecaster for everything in the hub.
    fn forecaster(
        &self,
        clusters: &Clusters,
        shared: &Shared,
        rules: RulesCache,
    ) -> Result<Forecaster<KubeCluster, Endpoints, QueryRules>, AppError> {
        let setup = ForecasterSetup {
            machine: self.machine.clone(),
            local_zone: self.config.local_zone.clone(),
            targets: Arc::clone(&self.targets),
            cost_limits: self.config.cost_limits.clone(),
            telemetry: Arc::clone(&self.telemetry),
            leadership: clusters.leadership.clone(),
        };
        let source = history(&self.config, rules, &self.machine)?;
        let (hub, forecasts) = (Arc::clone(&clusters.hub), Arc::clone(&shared.forecasts));
        Ok(Forecaster::new(hub, source, forecasts, setup))
    }

    /// Starts the controllers, one for each kind of autoscaler, so that none waits for another.
    fn spawn_controllers(&self, parts: &mut Parts, clusters: &Clusters, shared: Shared) -> Stop {
        let setup = Setup {
            targets: Arc::clone(&self.targets),
            sync_period: self.config.sync_period,
            local_zone: self.config.local_zone.clone(),
            settings: self.config.settings.clone(),
            read_deadline: Setup::READ_DEADLINE,
            member_deadline: Setup::MEMBER_DEADLINE,
        };
        let clock = self.machine.clock();
        let mut stop = Stop::default();
        let (hub, fleet) = (Arc::clone(&clusters.hub), Arc::clone(&clusters.members));
        let effective = EffectiveController::new(
            Arc::clone(&hub),
            clock.clone(),
            setup.clone(),
            shared.clone(),
        )
        .led_by(clusters.leadership.clone());
        let fleets = FleetController::new(hub, fleet, clock.clone(), setup, shared)
            .led_by(clusters.leadership.clone());
        parts.spawn(effective.run(stop.controller()).map(|()| CONTROLLER));
        parts.spawn(fleets.run(stop.controller()).map(|()| FLEETS));
        stop
    }
}

/// The rules of prometheus-adapter, read before the first forecast, which would use other queries without them.
async fn adapter_rules(config: &Config, connection: &Connection) -> AdapterRules {
    let adapter = AdapterRules {
        origin: config.adapter_config.clone(),
        connection: Some(connection.clone()),
        rules: RulesCache::default(),
    };
    adapter.reload().await;
    adapter
}

/// The clusters that the controllers act on, and the right to write to them.
struct Clusters {
    /// The cluster of the autoscalers' objects.
    hub: Arc<KubeCluster>,
    /// The member clusters of fleets.
    members: Arc<Fleets>,
    /// The right of this process to write to the clusters.
    leadership: Leadership,
}

/// Starts the watches of all clusters, and the tasks that publish their state.
fn spawn_watches(
    parts: &mut Parts,
    Clusters { hub, members, .. }: Clusters,
    telemetry: &Arc<Telemetry>,
    machine: &Machine,
) {
    let watched = Arc::clone(&hub);
    parts.spawn(async move { watched.run().await }.map(|()| "watch of the Kubernetes API"));
    let followed = Arc::clone(&members);
    parts.spawn(async move { followed.run().await }.map(|()| "watch of the members"));
    let clock = machine.clock().clone();
    let of_members = report_members(Arc::clone(&members), Arc::clone(telemetry), clock);
    parts.spawn(of_members.map(|()| "member report"));
    let of_watches = report_watches(hub, members, Arc::clone(telemetry), machine.clone());
    parts.spawn(of_watches.map(|()| "watch report"));
}

/// The targets of the configuration, but none in the namespace of the controller, so that no object scales it to zero.
fn target_rules(config: &Config, connection: &Connection) -> TargetRules {
    let mut rules = config.targets.clone();
    let own = own_namespace(config, connection);
    rules.denied_namespaces.extend(own);
    rules
}

/// The namespace of this pod; absent outside the cluster.
fn own_namespace(config: &Config, connection: &Connection) -> Option<String> {
    match config.access {
        KubeAccess::InCluster => Some(connection.namespace().to_owned()),
        KubeAccess::Kubeconfig { .. } => None,
    }
}

async fn report_watches(
    cluster: Arc<KubeCluster>,
    members: Arc<Fleets>,
    telemetry: Arc<Telemetry>,
    machine: Machine,
) {
    let clock = machine.clock().clone();
    let started = clock.contact();
    let mut before = clock.reading();
    loop {
        let now = clock.reading();
        report_step(now.step_since(before));
        before = now;
        let in_members = members.unreadable();
        for watch in cluster.watches() {
            telemetry.watched(
                watch.kind,
                WatchHealth {
                    age_seconds: watch.silent_since(&started).age().as_secs_f64(),
                    errors: watch.errors,
                    unreadable: watch.unreadable
                        + in_members.get(watch.kind).copied().unwrap_or_default(),
                },
            );
        }
        telemetry.set_left_out(left_out(&machine));
        telemetry.check_progress();
        telemetry.set_clock_skew(cluster.clock_skew());
        telemetry.set_open_circuits("kubernetes", &cluster.open_circuits());
        clock.sleep(WATCH_REPORT_PERIOD).await;
    }
}

/// Returns the number of objects of each namespace of each cluster for which the memory limit has no room.
fn left_out(machine: &Machine) -> BTreeMap<(Arc<str>, Arc<str>), usize> {
    let memory = machine.memory();
    memory.map_or_else(BTreeMap::new, |memory| memory.copies().left_out())
}

/// Logs a step of the wall clock, once for all objects.
fn report_step(step: SignedDuration) {
    if !step.is_zero() {
        tracing::warn!(
            step_seconds = step.as_secs_f64(),
            "the wall clock was stepped; remembered times are shifted by the step, and cron windows are evaluated at the \
             new time"
        );
    }
}

async fn report_members(members: Arc<Fleets>, telemetry: Arc<Telemetry>, clock: Clock) {
    loop {
        let reports = members.reports();
        telemetry.members(reports.iter().map(|member| MemberGauges {
            name: &member.name,
            ready: member.ready,
            silent: member.silence.map(|silence| silence.as_secs_f64()),
            usable: member.usable,
            restarts: member.restarts,
        }));
        clock.sleep(WATCH_REPORT_PERIOD).await;
    }
}
