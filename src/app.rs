//! The composition root: the only place that names concrete adapters and joins them.
//!
//! `run` builds one controller from its configuration and runs it until shutdown. Everything it starts ends with it.

pub mod adapter;
pub mod history;
pub mod keda_scaler;
pub mod metric_server;
mod page;
mod shutdown;

use std::{future::Future, net::SocketAddr, sync::Arc};

use futures::FutureExt;
use jiff::SignedDuration;
use tokio::net::TcpListener;

use self::{
    history::{AdapterRules, history},
    page::PageHost,
    shutdown::{CONTROLLER, ELECTION, FLEETS, Parts, Stop},
};
use crate::{
    adapters::{
        kube::{ConnectError, Connection, KubeAccessReviewer, KubeCluster, KubeLease, WriteGate},
        members::{MemberRegistry, MemberSettings, Timeouts},
        prometheus::{MatchersError, RulesCache},
    },
    api::validation::TargetRules,
    clock::Clock,
    config::{Config, Election, KubeAccess, MetricsAuth},
    controller::{EffectiveController, FleetController, Setup, Shared},
    forecaster::{Forecaster, ForecasterSetup, forecasts::Forecasts},
    http::{
        self, MetricsAccess,
        page::{PageAccess, PageSite},
    },
    leadership::{self, Campaign, Leadership},
    machine::Machine,
    page::{DecisionLog, Page},
    ports::{Fleet, MemberView},
    telemetry::{MemberGauges, Telemetry, WatchHealth},
};

/// How often the health of the watches is published.
const WATCH_REPORT_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// Name of the lease that the replicas of one installation share.
const LEASE: &str = "foretide";

/// Why the controller could not start, or had to end.
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
        /// Why not.
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
        /// Which part.
        part: &'static str,
    },
}

/// Runs one controller until `shutdown` completes.
///
/// # Errors
/// [`AppError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: Config,
    machine: Machine,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AppError> {
    run_with(config, machine, Arc::new(Telemetry::default()), shutdown).await
}

/// As [`run`], with metrics that the caller reads as well.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    config: Config,
    machine: Machine,
    telemetry: Arc<Telemetry>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AppError> {
    let clock = machine.clock().clone();
    let listener = bind(config.listen, &machine).await?;
    let connection = connect(&config.access, &machine).await?;
    let targets = Arc::new(target_rules(&config, &connection));
    let adapter = adapter_rules(&config, &connection).await;
    let election = config.election.as_ref();
    let campaign = election.map(|election| candidate(election, &connection, &machine, &telemetry));
    let access = metrics_access(&config.metrics_auth, &connection, &clock);
    let clusters = clusters(
        &config,
        connection.clone(),
        campaign.as_ref().map(Campaign::leadership),
    );
    let page = Arc::new(clusters.page(&config, &connection, &clock, &telemetry));
    let site = page_site(Arc::clone(&page), &config, &connection, &clock);
    let router = http::router(Arc::clone(&telemetry), clock.clone(), access).merge(site.router());
    let campaign = campaign.map(|campaign| clusters.eligible_when_current(campaign));
    let forecasts = Arc::new(Forecasts::default());
    let forecaster = Forecaster::new(
        Arc::clone(&clusters.hub),
        history(&config, adapter.rules.clone(), &machine)?,
        Arc::clone(&forecasts),
        forecaster_setup(&config, &machine, &targets, &telemetry),
    )
    .led_by(clusters.leadership.clone());
    if !config.object_metrics {
        telemetry.hide_objects();
    }
    let port = listener.as_ref().map(TcpListener::local_addr);
    let listen = port.and_then(Result::ok).unwrap_or(config.listen);
    let shared = Shared {
        forecasts,
        telemetry: Arc::clone(&telemetry),
        page: Arc::clone(page.log()),
    };
    let mut parts = Parts::new();
    let setup = setup(config, targets);
    let mut stop = spawn_controllers(&mut parts, &clusters, &clock, setup, shared);
    parts.spawn(forecaster.run().map(|()| "forecaster"));
    parts.spawn(
        adapter
            .reload_periodically(clock.clone())
            .map(|()| "prometheus-adapter rules"),
    );
    parts.spawn(page::compare(page, machine).map(|()| "comparison with a plain HPA"));
    spawn_watches(&mut parts, clusters, &telemetry, &clock);
    if let Some(listener) = listener {
        parts.spawn(http::serve(listener, router).map(|()| "HTTP server"));
    }
    tracing::info!(%listen, "controller started");
    if let Some(campaign) = campaign {
        let stopped = stop.election(campaign.leadership().clone());
        parts.spawn(campaign.run(stopped).map(|_ended| ELECTION));
    }
    stop.until(shutdown, parts).await
}

fn forecaster_setup(
    config: &Config,
    machine: &Machine,
    targets: &Arc<TargetRules>,
    telemetry: &Arc<Telemetry>,
) -> ForecasterSetup {
    ForecasterSetup {
        machine: machine.clone(),
        local_zone: config.local_zone.clone(),
        targets: Arc::clone(targets),
        cost_limits: config.cost_limits.clone(),
        telemetry: Arc::clone(telemetry),
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

fn setup(config: Config, targets: Arc<TargetRules>) -> Setup {
    Setup {
        targets,
        sync_period: config.sync_period,
        local_zone: config.local_zone,
        settings: config.settings,
        read_deadline: Setup::READ_DEADLINE,
        member_deadline: Setup::MEMBER_DEADLINE,
    }
}

/// Starts the controllers, one for each kind of autoscaler, so that neither waits for the other.
fn spawn_controllers(
    parts: &mut Parts,
    clusters: &Clusters,
    clock: &Clock,
    setup: Setup,
    shared: Shared,
) -> Stop {
    let mut stop = Stop::default();
    let (hub, fleet) = (Arc::clone(&clusters.hub), Arc::clone(&clusters.members));
    let effective = EffectiveController::new(
        Arc::clone(&hub),
        clock.clone(),
        setup.clone(),
        shared.clone(),
    );
    let effective = effective.led_by(clusters.leadership.clone());
    let fleets = FleetController::new(hub, fleet, clock.clone(), setup, shared);
    let fleets = fleets.led_by(clusters.leadership.clone());
    parts.spawn(effective.run(stop.controller()).map(|()| CONTROLLER));
    parts.spawn(fleets.run(stop.controller()).map(|()| FLEETS));
    stop
}

/// This process as a candidate of the election.
fn candidate(
    election: &Election,
    connection: &Connection,
    machine: &Machine,
    telemetry: &Arc<Telemetry>,
) -> Campaign<KubeLease> {
    let timing = election.timing;
    let namespace = election.namespace.as_deref();
    let namespace = namespace.unwrap_or_else(|| connection.namespace());
    let lease = KubeLease::new(connection, namespace, LEASE, timing.request_deadline());
    let identity = leadership::identity(machine);
    tracing::info!(%identity, %namespace, lease = LEASE, "taking part in the leader election");
    Campaign::new(
        lease,
        identity,
        timing,
        machine.clock().clone(),
        Arc::clone(telemetry),
    )
}

/// The clusters that the controllers act on, and whether they may.
struct Clusters {
    /// The cluster of the autoscalers' objects.
    hub: Arc<KubeCluster>,
    /// The member clusters of fleets.
    members: Arc<Fleets>,
    /// Whether this process may write to them.
    leadership: Leadership,
}

// === impl Clusters ===

impl Clusters {
    /// The page of what is decided about their autoscalers.
    fn page(
        &self,
        config: &Config,
        connection: &Connection,
        clock: &Clock,
        telemetry: &Arc<Telemetry>,
    ) -> Page {
        let host = PageHost {
            clock: clock.clone(),
            telemetry: Arc::clone(telemetry),
            leadership: self.leadership.clone(),
            hub: Arc::clone(&self.hub),
            members: Arc::clone(&self.members),
            started: connection.clock().contact(),
            namespace: own_namespace(config, connection),
        };
        let log = DecisionLog::new(config.page_memory);
        Page::new(Arc::new(log), Arc::new(host))
    }

    /// A candidate that leaves the lease to others while it knows the hub only as it was.
    fn eligible_when_current(&self, campaign: Campaign<KubeLease>) -> Campaign<KubeLease> {
        let hub = Arc::clone(&self.hub);
        campaign.eligible_when(move || hub.is_current())
    }
}

/// The clusters; all writes to them pass one gate.
fn clusters(config: &Config, connection: Connection, leadership: Option<&Leadership>) -> Clusters {
    let leadership = leadership.cloned().unwrap_or_default();
    let gate = WriteGate::of(leadership.clone());
    let hub = KubeCluster::new(connection.clone(), &config.namespaces, gate.clone());
    let members = members(config, connection, gate);
    Clusters {
        hub: Arc::new(hub),
        members: Arc::new(Fleets { members }),
        leadership,
    }
}

/// Starts the watches of all clusters, and what publishes their state.
fn spawn_watches(
    parts: &mut Parts,
    Clusters { hub, members, .. }: Clusters,
    telemetry: &Arc<Telemetry>,
    clock: &Clock,
) {
    let watched = Arc::clone(&hub);
    parts.spawn(async move { watched.run().await }.map(|()| "watch of the Kubernetes API"));
    let followed = Arc::clone(&members);
    parts.spawn(async move { followed.run().await }.map(|()| "watch of the members"));
    let report = report_members(members, Arc::clone(telemetry), clock.clone());
    parts.spawn(report.map(|()| "member report"));
    let report = report_watches(hub, Arc::clone(telemetry), clock.clone());
    parts.spawn(report.map(|()| "watch report"));
}

/// Who may read the metrics; absent if no token is needed. No leadership is asked for: a standby is scraped too.
fn metrics_access(
    auth: &MetricsAuth,
    connection: &Connection,
    clock: &Clock,
) -> Option<MetricsAccess<KubeAccessReviewer>> {
    match auth {
        MetricsAuth::Open => None,
        MetricsAuth::Token { audience } => {
            let reviewer = KubeAccessReviewer::new(connection, audience.as_deref());
            Some(MetricsAccess::new(reviewer, clock.clone()))
        }
    }
}

/// The page, open to everyone if only this machine reaches it; else each reader sees what its rights allow.
fn page_site(page: Arc<Page>, config: &Config, connection: &Connection, clock: &Clock) -> PageSite {
    let site = PageSite::open(page);
    if config.metrics_auth == MetricsAuth::Open && config.listen.ip().is_loopback() {
        return site;
    }
    // People have tokens for the API server, whatever the audience of scrapers is.
    let reviewer = KubeAccessReviewer::new(connection, None);
    site.guarded(PageAccess::new(reviewer, clock.clone()))
}

/// The HTTP port; a host of a simulation has none.
async fn bind(addr: SocketAddr, machine: &Machine) -> Result<Option<TcpListener>, AppError> {
    if machine.is_simulated() {
        return Ok(None);
    }
    let bound = TcpListener::bind(addr).await;
    bound
        .map(Some)
        .map_err(|source| AppError::Listen { addr, source })
}

async fn connect(access: &KubeAccess, machine: &Machine) -> Result<Connection, ConnectError> {
    match access {
        KubeAccess::InCluster => Connection::in_cluster(machine),
        KubeAccess::Kubeconfig { path, context } => {
            Connection::from_kubeconfig(path.as_deref(), context.as_deref(), machine).await
        }
    }
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

/// The members, if it is known where their Secrets are.
fn members(config: &Config, connection: Connection, gate: WriteGate) -> Option<MemberRegistry> {
    let asked = &config.members;
    let own = || own_namespace(config, &connection);
    let settings = MemberSettings {
        namespace: asked.namespace.clone().or_else(own)?,
        label: asked.secret_label.clone(),
        key: asked.secret_key.clone(),
        allow_loopback: asked.allow_loopback,
        namespaces: config.namespaces.clone(),
        timeouts: Timeouts::new(asked.lost_after),
    };
    Some(MemberRegistry::new(connection, settings, gate))
}

/// The member clusters; none where the namespace of their Secrets is not configured.
struct Fleets {
    members: Option<MemberRegistry>,
}

// === impl Fleets ===

impl Fleets {
    /// Keeps the registry in step with the Secrets.
    async fn run(&self) {
        match &self.members {
            Some(members) => members.run().await,
            None => std::future::pending().await,
        }
    }
}

impl Fleet for Fleets {
    type Member = <MemberRegistry as Fleet>::Member;

    fn is_synced(&self) -> bool {
        self.members.as_ref().is_none_or(Fleet::is_synced)
    }

    fn members(&self) -> Vec<Arc<MemberView<Self::Member>>> {
        let members = self.members.as_ref().map(Fleet::members);
        members.unwrap_or_default()
    }

    fn lost_after(&self) -> SignedDuration {
        let members = self.members.as_ref();
        members.map_or(SignedDuration::MAX, Fleet::lost_after)
    }

    async fn changed(&self) {
        match &self.members {
            Some(members) => members.changed().await,
            None => std::future::pending().await,
        }
    }
}

async fn report_watches(cluster: Arc<KubeCluster>, telemetry: Arc<Telemetry>, clock: Clock) {
    let started = clock.contact();
    let mut before = clock.reading();
    loop {
        let now = clock.reading();
        report_step(now.step_since(before));
        before = now;
        for watch in cluster.watches() {
            telemetry.watched(
                watch.kind,
                WatchHealth {
                    age_seconds: watch.silent_since(&started).age().as_secs_f64(),
                    errors: watch.errors,
                    unreadable: watch.unreadable,
                },
            );
        }
        telemetry.check_progress();
        telemetry.set_clock_skew(cluster.clock_skew());
        telemetry.set_open_circuits("kubernetes", &cluster.open_circuits());
        clock.sleep(WATCH_REPORT_PERIOD).await;
    }
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
        let reports = members.members.as_ref().map(MemberRegistry::reports);
        let reports = reports.unwrap_or_default();
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
