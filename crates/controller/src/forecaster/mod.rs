//! Keeps forecasts and `TimeSeriesPrediction` objects up to date, independently of syncs.
//!
//! ```text
//! autoscalers -> source (their series) -> request (what to forecast) -> refresh (when each is due)
//!                                                                             |
//!                                                 workers (read_plan: read history -> fit: forecast)
//!                                                                             |
//!                 syncs <- forecasts (the table) <----------------------------+
//!                             `-> publish (TimeSeriesPrediction objects)
//! budget: what each series measured -> one price per namespace -> refresh
//! memory: the bytes of each series -> which go without a forecast
//! ```
//!
//! A pass every few seconds starts the refreshes that are due, records those that have finished, and has them
//! published. A refresh that takes longer is recorded by a later pass, and objects are written beside the passes. Syncs
//! only read the table of [`forecasts`], so a slow Prometheus delays no decision. Workers and writes have `slots` that
//! namespaces share. Proposing replicas from a forecast is `domain::forecast`'s.

mod budget;
pub mod demand_history;
mod fit;
pub mod forecasts;
mod history;
mod ingest;
mod memory;
mod minutes;
mod publish;
mod read_plan;
mod refresh;
mod refresher;
mod request;
mod series_key;
mod series_table;
pub mod shares;
mod source;
mod unit_change;
mod workers;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_domain::{cron::Zone, forecast::Refused, lead_time::LeadTime, proposal::Reason};
use foretide_models::Forecast;
use jiff::SignedDuration;
use tokio::task::{Id, JoinSet};

use self::{
    budget::{Budgets, Measured},
    forecasts::Forecasts,
    history::query_text,
    memory::{Claim, MemoryBudget},
    publish::{Publisher, Queue},
    refresher::{RefreshError, RefreshResult, unread_reason},
    request::{RefreshRequest, RequestInputs},
    series_table::SeriesTable,
    source::{ForecastSource, SourceSeries, autoscalers},
    workers::Workers,
};
pub use self::{minutes::minutes_are_usable, request::refused_queries, series_key::SeriesKey};
use foretide_api::ports::{Cluster, DemandQueries, HistoryReader};
use foretide_api::{
    autoscaler::Autoscaler,
    ownership::OwnerKind,
    validation::{self, CostLimits, TargetRules},
};
use foretide_base::{
    clock::{ClockReading, Monotonic},
    error::chain,
    leadership::Leadership,
    machine::Machine,
    telemetry::Telemetry,
};

/// The time between two passes.
const PASS_PERIOD: SignedDuration = SignedDuration::from_secs(5);
/// Time for which a new series waits for the first sync of its object, which measures the lead time.
const FIRST_SYNC: Duration = Duration::from_secs(20);

/// Source of history.
#[derive(Debug)]
pub struct HistorySource<H, Q> {
    /// Reads samples.
    pub reader: H,
    /// Builds the queries for them.
    pub queries: Q,
}

/// Parts of the process that the forecaster uses.
#[derive(Debug)]
pub struct ForecasterSetup {
    /// The clock of all passes, and the threads that forecasts are computed on.
    pub machine: Machine,
    /// The zone that `timezone: Local` names.
    pub local_zone: Zone,
    /// The rules for the targets that may be scaled; the demand of others is not forecast.
    pub targets: Arc<TargetRules>,
    /// The limits of what the forecasts of a namespace may cost together.
    pub cost_limits: CostLimits,
    /// Counts refusals and rejected samples.
    pub telemetry: Arc<Telemetry>,
    /// The right to publish. Without it forecasts stay up to date all the same, so that a new leader has them at once.
    pub leadership: Leadership,
}

/// The forecaster of the autoscalers of one cluster, and of the fleets whose hub it is.
#[derive(Debug)]
pub struct Forecaster<C, H, Q> {
    cluster: Arc<C>,
    workers: Arc<Workers<H, Q>>,
    setup: ForecasterSetup,
    forecasts: Arc<Forecasts>,
    /// The autoscalers with predictions, by UID.
    sources: BTreeMap<String, Arc<ForecastSource>>,
    series: SeriesTable,
    budgets: Budgets,
    memory: MemoryBudget,
    publisher: Publisher<C>,
    /// The clocks at the last pass.
    clocks: ClockReading,
    running: JoinSet<(SeriesKey, Option<RefreshResult>)>,
}

// === impl Forecaster ===

impl<C: Cluster, H: HistoryReader + 'static, Q: DemandQueries + 'static> Forecaster<C, H, Q> {
    /// A forecaster without any series yet; without a `source` every series is refused.
    pub fn new(
        cluster: Arc<C>,
        source: Option<HistorySource<H, Q>>,
        forecasts: Arc<Forecasts>,
        setup: ForecasterSetup,
    ) -> Self {
        let workers = Workers::new(source, setup.machine.clone(), Arc::clone(&forecasts));
        Self {
            publisher: Publisher::new(Queue::new(&cluster, &forecasts, &setup)),
            cluster,
            workers: Arc::new(workers),
            clocks: setup.machine.clock().reading(),
            budgets: Budgets::new(setup.cost_limits.clone()),
            memory: MemoryBudget::new(setup.machine.memory().cloned()),
            setup,
            forecasts,
            sources: BTreeMap::new(),
            series: SeriesTable::default(),
            running: JoinSet::new(),
        }
    }

    /// Runs passes until the task is dropped.
    pub async fn run(mut self) {
        let clock = self.setup.machine.clock().clone();
        loop {
            // From start to start, however long a pass waits for results.
            if self.cluster.is_synced() {
                tokio::join!(self.pass(), clock.sleep(PASS_PERIOD));
            } else {
                clock.sleep(PASS_PERIOD).await;
            }
        }
    }

    /// One pass: starts the refreshes that are due, waits for results until the next pass is due, and has them
    /// published. It waits for no write.
    pub async fn pass(&mut self) {
        let now = self.setup.machine.clock().reading();
        let before = std::mem::replace(&mut self.clocks, now);
        if !now.step_since(before).is_zero() {
            for (_, refresh) in self.series.refreshes_mut() {
                refresh.expedite(now.monotonic());
            }
        }
        let sources = self.update_sources();
        self.update_series(&sources, now.monotonic());
        self.update_prices(now.monotonic());
        self.start_due(now.monotonic());
        self.record_results().await;
        self.publish_servers();
        if !self.setup.leadership.may_act() || !self.is_current() {
            self.publisher.withdraw();
            return;
        }
        self.publisher.publish(&sources, now.wall());
    }

    /// True if the watched copies of autoscalers and predictions are current. By an old copy that lacks an autoscaler,
    /// its prediction would look left behind.
    fn is_current(&self) -> bool {
        self.is_fresh(OwnerKind::Effective)
            && self.cluster.stale_predictions().is_none()
            // Without the CRD of fleets, no list of fleets could ever be current.
            && (!self.cluster.knows_federated() || self.is_fresh(OwnerKind::Federated))
    }

    fn is_fresh(&self, kind: OwnerKind) -> bool {
        self.cluster.stale_autoscalers(kind, None).is_none()
    }

    /// The autoscalers with predictions. One whose spec is invalid now, or that cannot be decoded, keeps the series of
    /// its last valid spec.
    fn update_sources(&mut self) -> Vec<Arc<ForecastSource>> {
        let (existing, unreadable) = autoscalers(&*self.cluster);
        let existing: Vec<_> = existing.filter(|one| self.is_used(one)).collect();
        let uids: HashSet<&str> = (existing.iter().map(Autoscaler::uid))
            .chain(unreadable.iter().map(String::as_str))
            .collect();
        self.sources.retain(|uid, _| uids.contains(&**uid));
        (self.forecasts.shares()).retain(|uid| uids.contains(uid));
        for autoscaler in existing {
            let predicts = autoscaler.spec().prediction.is_some();
            // An object is validated when it is new or has changed, and not with every pass.
            let is_known = match self.sources.get(autoscaler.uid()) {
                Some(source) => source.is_of(&autoscaler),
                None => !predicts,
            };
            if is_known {
                continue;
            }
            let uid = autoscaler.uid().to_owned();
            if let Some(source) = ForecastSource::of(autoscaler, &self.setup.local_zone) {
                if predicts {
                    self.sources.insert(uid, Arc::new(source));
                } else {
                    self.sources.remove(&uid);
                }
            }
        }
        self.sources.values().cloned().collect()
    }

    /// True if the demand of an autoscaler is forecast.
    fn is_used(&self, autoscaler: &Autoscaler) -> bool {
        let (metadata, target) = (autoscaler.metadata(), &autoscaler.spec().scale_target_ref);
        !autoscaler.is_deleting() && self.setup.targets.check(metadata, target).is_ok()
    }

    /// Updates the refresh of every series that the sources need, and drops everything of other series.
    fn update_series(&mut self, sources: &[Arc<ForecastSource>], now: Monotonic) {
        let mut all = Vec::new();
        for source in sources {
            let own = source.series(&self.forecasts).into_iter();
            all.extend(own.map(|series| (&**source, series)));
        }
        self.update_memory(&all, now);
        for (source, series) in &all {
            self.update_one(source, series, now);
        }
        let needed: HashSet<_> = all.into_iter().map(|(_, series)| series.key).collect();
        self.series.retain(&needed);
        self.forecasts.retain(|key| needed.contains(key));
        (self.forecasts.demand_history()).retain(|key| needed.contains(key));
        let read = self.series.cache_keys();
        self.workers.history.retain(|key| read.contains(key));
    }

    /// Decides which series go without a forecast, because the memory limit does not hold those of all.
    fn update_memory(&mut self, all: &[(&ForecastSource, SourceSeries<'_>)], now: Monotonic) {
        let claims = all.iter().map(|(source, series)| Claim {
            namespace: source.namespace(),
            created: source.autoscaler.created(),
            key: &series.key,
            bytes: (self.series.refresh(&series.key)).and_then(|refresh| refresh.bytes),
        });
        self.memory.update(&claims.collect::<Vec<_>>(), now);
        let left_out = self.memory.left_out();
        self.setup.telemetry.set_forecasts_left_out(left_out);
    }

    fn update_one(&mut self, source: &ForecastSource, series: &SourceSeries<'_>, now: Monotonic) {
        let key = &series.key;
        if let Some(refused) = self.memory.refusal(key) {
            self.series.reset(key);
            self.forecasts.withdraw(key.clone(), refused);
            return;
        }
        let entry = self.series.ask(key, now);
        let demand = self.forecasts.demand_history();
        let facts = demand.workload_facts(key);
        // A forecast for the default lead time would be replaced seconds later.
        if facts.is_none() && entry.refresh.is_none() && now.since(entry.first_seen) < FIRST_SYNC {
            return;
        }
        let facts = validation::WorkloadFacts {
            shares_budget: self.budgets.has(source.namespace()),
            ..facts.unwrap_or_default()
        };
        let history = self.workers.source.as_ref();
        let rules = history.map_or(0, |history| history.queries.version());
        let inputs = RequestInputs::new(source, series, facts, demand.pod_names(key), rules);
        if inputs.are_those_of(entry.inputs.as_ref()) {
            return;
        }
        let request = match history {
            Some(history) => RefreshRequest::build(&history.queries, source, series, &inputs),
            None => Err(Refused::new(
                Reason::QueryError,
                "no Prometheus is configured; start the controller with --prometheus URL",
            )),
        };
        entry.inputs = Some(inputs);
        let (note, query) = match &request {
            Ok((request, _)) => (
                self.budgets.note(source.namespace(), &request.algorithm),
                Some(query_text(&request.parts).into()),
            ),
            Err(_) => (None, None),
        };
        self.forecasts.annotate(key.clone(), note, query);
        if let Err(refused) = entry.update(request, now) {
            self.forecasts.withdraw(key.clone(), refused);
        }
    }

    /// Computes the prices that are due, from what the series measured, and passes them on.
    fn update_prices(&mut self, now: Monotonic) {
        let mut namespaces = BTreeMap::<_, Measured<'_>>::new();
        for (key, refresh) in self.series.refreshes() {
            if let Some(trade_offs) = &refresh.trade_offs {
                let namespace = Arc::clone(&refresh.namespace);
                (namespaces.entry(namespace).or_default()).insert(key, trade_offs);
            }
        }
        self.budgets.update(&namespaces, now);
        for (_, refresh) in self.series.refreshes_mut() {
            refresh.price = self.budgets.price(&refresh.namespace);
        }
        self.setup.telemetry.set_budgets(self.budgets.gauges());
    }

    /// Starts every refresh that is due.
    fn start_due(&mut self, now: Monotonic) {
        for (key, refresh) in self.series.refreshes_mut() {
            refresh.start_if_due(now, |refresher| {
                let (workers, key) = (Arc::clone(&self.workers), key.clone());
                self.running.spawn(async move {
                    let result = workers.refresh(&key, refresher).await;
                    (key, result)
                })
            });
        }
    }

    fn publish_servers(&self) {
        let (telemetry, source) = (&self.setup.telemetry, self.workers.source.as_ref());
        let now = self.setup.machine.clock().now();
        let servers = source.map(|source| source.reader.servers());
        telemetry.set_servers(&servers.unwrap_or_default(), now);
        telemetry.set_slow_namespaces(&self.workers.slow_namespaces());
    }

    /// Records results as they come, until there are no more or the next pass is due.
    async fn record_results(&mut self) {
        let clock = self.setup.machine.clock().clone();
        let next_pass = clock.sleep(PASS_PERIOD);
        tokio::pin!(next_pass);
        loop {
            let joined = tokio::select! {
                biased;
                joined = self.running.join_next_with_id() => joined,
                () = &mut next_pass => None,
            };
            match joined {
                Some(Ok((task, (key, result)))) => self.record(task, key, result),
                // The next pass builds a new refresh for a series whose task panicked.
                Some(Err(error)) => self.series.reset_running(error.id()),
                None => break,
            }
        }
    }

    fn record(&mut self, task: Id, key: SeriesKey, result: Option<RefreshResult>) {
        let Some(entry) = self.series.running(&key, task) else {
            return;
        };
        // Absent without a Prometheus, for which no refresh is built.
        let (Some(refresh), Some(result)) = (&mut entry.refresh, result) else {
            return;
        };
        for rejection in result.rejected {
            self.setup.telemetry.rejected(rejection.as_str());
        }
        refresh.schedule_next(&result.outcome, self.setup.machine.clock().monotonic());
        let lead_time = refresh.request.lead_time;
        if let Some(refresher) = result.refresher {
            let bytes = refresher.bytes(&self.workers.history);
            // What could not be read takes no memory yet.
            let is_read = !matches!(result.outcome, Err(RefreshError::Unread(_)));
            refresh.set_idle(refresher, is_read.then_some(bytes));
        } else {
            entry.reset();
        }
        self.record_outcome(key, result.outcome, lead_time);
    }

    fn record_outcome(
        &self,
        key: SeriesKey,
        outcome: Result<Forecast, RefreshError>,
        lead_time: LeadTime,
    ) {
        match outcome {
            Ok(forecast) => self.forecasts.replace(key, forecast, lead_time),
            Err(RefreshError::Refused(refused)) => {
                self.setup.telemetry.refused(refused.reason.as_str());
                self.forecasts.withdraw(key, refused);
            }
            Err(RefreshError::Unread(error)) => {
                let refused = Refused::new(unread_reason(&error), chain(&error));
                self.setup.telemetry.refused(refused.reason.as_str());
                tracing::debug!(metric = %key.metric, error = %refused.message, "could not read history");
                // Not withdrawn: the forecast in force counts until it expires.
                self.forecasts.record_failure(key, refused);
            }
        }
    }
}
