//! Keeps forecasts and `TimeSeriesPrediction` objects up to date, independently of syncs.
//!
//! ```text
//! autoscalers -> source (their series) -> request (what to forecast) -> refresh (when each is due)
//!                                                                             |
//!                                                         workers (refresher: read history, forecast)
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
pub mod history;
mod ingest;
mod memory;
mod minutes;
mod publish;
mod read_plan;
mod refresh;
mod refresher;
mod request;
mod series_key;
pub mod shares;
mod source;
mod unit_change;
mod workers;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_domain::{cron::Zone, forecast::Refused, lead_time::LeadTime, proposal::Reason};
use foretide_models::Forecast;
use jiff::SignedDuration;
use tokio::task::{Id, JoinError, JoinSet};

use self::{
    budget::{Budgets, Measured},
    forecasts::Forecasts,
    history::query_text,
    memory::{Claim, MemoryBudget},
    publish::{Publisher, Queue},
    refresh::SeriesRefresh,
    refresher::{RefreshError, RefreshResult, unread_reason},
    request::{RefreshRequest, RequestInputs},
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
    /// The time at which each series was first asked for.
    first_seen: HashMap<SeriesKey, Monotonic>,
    /// The inputs that the request of each series was last built from, also where it was refused.
    inputs: HashMap<SeriesKey, RequestInputs>,
    refreshes: BTreeMap<SeriesKey, SeriesRefresh>,
    budgets: Budgets,
    memory: MemoryBudget,
    publisher: Publisher<C>,
    /// The clocks at the last pass.
    clocks: ClockReading,
    running: JoinSet<(SeriesKey, Option<RefreshResult>)>,
    leadership: Leadership,
}

// === impl Forecaster ===

impl<C: Cluster, H: HistoryReader + 'static, Q: DemandQueries + 'static> Forecaster<C, H, Q> {
    /// A forecaster without any series yet; without a `source` every series is refused.
    #[must_use]
    pub fn new(
        cluster: Arc<C>,
        source: Option<HistorySource<H, Q>>,
        forecasts: Arc<Forecasts>,
        setup: ForecasterSetup,
    ) -> Self {
        let workers = Workers::new(source, setup.machine.clone(), Arc::clone(&forecasts));
        let leadership = Leadership::default();
        Self {
            publisher: publisher(&cluster, &forecasts, &leadership, &setup),
            cluster,
            workers: Arc::new(workers),
            clocks: setup.machine.clock().reading(),
            budgets: Budgets::new(setup.cost_limits.clone()),
            memory: MemoryBudget::new(setup.machine.memory().cloned()),
            setup,
            forecasts,
            sources: BTreeMap::new(),
            first_seen: HashMap::new(),
            inputs: HashMap::new(),
            refreshes: BTreeMap::new(),
            running: JoinSet::new(),
            leadership,
        }
    }

    /// The same forecaster, which publishes only while this process is the leader. Its forecasts stay up to date, so
    /// that a new leader has them at once.
    #[must_use]
    pub fn led_by(self, leadership: Leadership) -> Self {
        Self {
            publisher: publisher(&self.cluster, &self.forecasts, &leadership, &self.setup),
            leadership,
            ..self
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
    /// published. It waits for no write; [`delivered`](Self::delivered) does.
    pub async fn pass(&mut self) {
        let now = self.setup.machine.clock().reading();
        let before = std::mem::replace(&mut self.clocks, now);
        if !now.step_since(before).is_zero() {
            let refreshes = self.refreshes.values_mut();
            refreshes.for_each(|refresh| refresh.expedite(now.monotonic()));
        }
        let sources = self.update_sources();
        self.update_series(&sources, now.monotonic());
        self.update_prices(now.monotonic());
        self.start_due(now.monotonic());
        self.record_results().await;
        self.publish_servers();
        if !self.leadership.may_act() || !self.is_current() {
            self.publisher.withdraw();
            return;
        }
        self.publisher.publish(&sources, now.wall());
    }

    /// True if the watched copies of autoscalers and predictions are current. By an old copy that lacks an autoscaler,
    /// its prediction would look left behind.
    fn is_current(&self) -> bool {
        // False without the CRD of fleets; then no list of fleets could ever be current.
        let has_fleets = self.cluster.knows_federated();
        let is_fresh = |kind| self.cluster.stale_autoscalers(kind, None).is_none();
        is_fresh(OwnerKind::Effective)
            && self.cluster.stale_predictions().is_none()
            && (!has_fleets || is_fresh(OwnerKind::Federated))
    }

    /// Waits until everything that earlier passes had published is written, or could not be.
    pub async fn delivered(&self) {
        self.publisher.delivered().await;
    }

    /// The autoscalers with predictions. One whose spec is invalid now, or that cannot be decoded, keeps the series of
    /// its last valid spec.
    fn update_sources(&mut self) -> Vec<Arc<ForecastSource>> {
        let (existing, unreadable) = autoscalers(&*self.cluster);
        let targets = Arc::clone(&self.setup.targets);
        let is_scaled = |one: &Autoscaler| {
            targets
                .check(one.metadata(), &one.spec().scale_target_ref)
                .is_ok()
        };
        let is_used = |one: &Autoscaler| !one.is_deleting() && is_scaled(one);
        let existing: Vec<_> = existing.filter(is_used).collect();
        let uids: HashSet<&str> = existing.iter().map(Autoscaler::uid).collect();
        let exists = |uid: &str| uids.contains(uid) || unreadable.contains(uid);
        self.sources.retain(|uid, _| exists(uid));
        self.forecasts.shares().retain(exists);
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
        self.refreshes.retain(|key, _| needed.contains(key));
        self.inputs.retain(|key, _| needed.contains(key));
        self.first_seen.retain(|key, _| needed.contains(key));
        self.forecasts.retain(|key| needed.contains(key));
        let measured = self.forecasts.demand_history();
        measured.retain(|key| needed.contains(key));
        let refreshes = self.refreshes.values();
        let read: HashSet<_> = refreshes.flat_map(SeriesRefresh::cache_keys).collect();
        self.workers.history.retain(|key| read.contains(key));
    }

    /// Decides which series go without a forecast, because the memory limit does not hold those of all.
    fn update_memory(&mut self, all: &[(&ForecastSource, SourceSeries<'_>)], now: Monotonic) {
        let refreshes = &self.refreshes;
        let claims = all.iter().map(|(source, series)| Claim {
            bytes: refreshes.get(&series.key).and_then(SeriesRefresh::bytes),
            ..source.claim(&series.key)
        });
        self.memory.update(&claims.collect::<Vec<_>>(), now);
        let left_out = self.memory.left_out();
        self.setup.telemetry.set_forecasts_left_out(left_out);
    }

    fn update_one(&mut self, source: &ForecastSource, series: &SourceSeries<'_>, now: Monotonic) {
        let key = series.key.clone();
        if let Some(refused) = self.memory.refusal(&key) {
            self.refreshes.remove(&key);
            self.inputs.remove(&key);
            self.forecasts.withdraw(key, refused);
            return;
        }
        let first_seen = *self.first_seen.entry(key.clone()).or_insert(now);
        let facts = self.forecasts.demand_history().workload_facts(&key);
        // A forecast for the default lead time would be replaced seconds later.
        if facts.is_none()
            && now.since(first_seen) < FIRST_SYNC
            && !self.refreshes.contains_key(&key)
        {
            return;
        }
        let facts = validation::WorkloadFacts {
            shares_budget: self.budgets.has(source.namespace()),
            ..facts.unwrap_or_default()
        };
        let history = self.workers.source.as_ref();
        let rules = history.map_or(0, |history| history.queries.version());
        let pods = self.forecasts.demand_history().pod_names(&key);
        let inputs = RequestInputs::new(source, series, facts, pods, rules);
        if inputs.are_those_of(self.inputs.get(&key)) {
            return;
        }
        let request = self.request(source, series, &inputs);
        let asked = request.as_ref().ok().map(|(request, _)| request);
        let note = asked.and_then(|it| self.budgets.note(source.namespace(), &it.algorithm));
        let query = asked.map(|it| query_text(&it.parts).into());
        self.forecasts.annotate(key.clone(), note, query);
        let updated = request
            .and_then(|(request, forecaster)| self.update_refresh(&key, request, forecaster, now));
        if let Err(refused) = updated {
            self.refreshes.remove(&key);
            self.forecasts.withdraw(key.clone(), refused);
        }
        self.inputs.insert(key, inputs);
    }

    /// Replaces the refresh of a series, unless the request is the same but for its lead time: then its due time, its
    /// failures and what its forecaster has learned stay.
    fn update_refresh(
        &mut self,
        key: &SeriesKey,
        request: RefreshRequest,
        forecaster: Box<dyn foretide_models::Forecaster>,
        now: Monotonic,
    ) -> Result<(), Refused> {
        match self.refreshes.get_mut(key) {
            Some(refresh) if refresh.serves(&request) => refresh.update(request),
            before => {
                let mut refresh = SeriesRefresh::new(request, forecaster, now)?;
                match before {
                    None => {}
                    Some(before) if before.has_same_queries(&refresh) => {
                        refresh.take_trade_offs(before);
                    }
                    // A forecast from another query may be about something else.
                    Some(_) => {
                        let message = "the history query has changed, and no forecast from the new query has been computed yet";
                        let pending = Refused::new(Reason::Pending, message);
                        self.forecasts.withdraw(key.clone(), pending);
                    }
                }
                self.refreshes.insert(key.clone(), refresh);
            }
        }
        Ok(())
    }

    /// Computes the prices that are due, from what the series measured, and passes them on.
    fn update_prices(&mut self, now: Monotonic) {
        let mut namespaces = BTreeMap::<_, Measured<'_>>::new();
        for (key, refresh) in &self.refreshes {
            if let Some(trade_offs) = refresh.trade_offs() {
                let measured = namespaces.entry(refresh.namespace()).or_default();
                measured.insert(key, trade_offs);
            }
        }
        self.budgets.update(&namespaces, now);
        for refresh in self.refreshes.values_mut() {
            refresh.set_price(self.budgets.price(&refresh.namespace()));
        }
        self.setup.telemetry.set_budgets(self.budgets.gauges());
    }

    fn request(
        &self,
        source: &ForecastSource,
        series: &SourceSeries<'_>,
        inputs: &RequestInputs,
    ) -> Result<(RefreshRequest, Box<dyn foretide_models::Forecaster>), Refused> {
        let history = self.workers.source.as_ref().ok_or_else(|| {
            let message = "no Prometheus is configured; start the controller with --prometheus URL";
            Refused::new(Reason::QueryError, message)
        })?;
        RefreshRequest::build(&history.queries, source, series, inputs)
    }

    /// Starts every refresh that is due.
    fn start_due(&mut self, now: Monotonic) {
        for (key, refresh) in &mut self.refreshes {
            let (workers, running) = (&self.workers, &mut self.running);
            refresh.start_if_due(now, |refresher| {
                let (workers, key) = (Arc::clone(workers), key.clone());
                let task = async move {
                    let result = workers.refresh(&key, refresher).await;
                    (key, result)
                };
                running.spawn(task)
            });
        }
    }

    fn publish_servers(&self) {
        let source = self.workers.source.as_ref();
        let now = self.setup.machine.clock().now();
        let servers = source.map(|source| source.reader.servers());
        self.setup
            .telemetry
            .set_servers(&servers.unwrap_or_default(), now);
        let slow = self.workers.slow_namespaces();
        self.setup.telemetry.set_slow_namespaces(&slow);
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
                Some(Err(error)) => self.discard(&error),
                None => break,
            }
        }
    }

    fn record(&mut self, task: Id, key: SeriesKey, result: Option<RefreshResult>) {
        // The series may have been replaced or dropped since the task started.
        let refresh = self.refreshes.get_mut(&key);
        let Some(refresh) = refresh.filter(|refresh| refresh.is_running_as(task)) else {
            return;
        };
        // Without a Prometheus, for which no refresh is built.
        let Some(result) = result else {
            return;
        };
        for rejection in result.rejected {
            self.setup.telemetry.rejected(rejection.as_str());
        }
        refresh.schedule_next(&result.outcome, self.setup.machine.clock().monotonic());
        let lead_time = refresh.lead_time();
        if let Some(refresher) = result.refresher {
            let bytes = refresher.bytes(&self.workers.history);
            // What could not be read takes no memory yet.
            let is_read = !matches!(result.outcome, Err(RefreshError::Unread(_)));
            refresh.set_idle(refresher, Some(bytes).filter(|_| is_read));
        } else {
            // The next pass builds a new one.
            self.refreshes.remove(&key);
            self.inputs.remove(&key);
        }
        self.record_outcome(key, result.outcome, lead_time);
    }

    /// Drops the series whose task panicked; the next pass builds a new refresh for it.
    fn discard(&mut self, error: &JoinError) {
        let failed = |refresh: &SeriesRefresh| refresh.is_running_as(error.id());
        // A task that was aborted with its refresh is not found, and nothing is dropped. The inputs first, because
        // they are found by the refresh.
        self.inputs
            .retain(|key, _| !self.refreshes.get(key).is_some_and(failed));
        self.refreshes.retain(|_, refresh| !failed(refresh));
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

fn publisher<C: Cluster>(
    cluster: &Arc<C>,
    forecasts: &Arc<Forecasts>,
    leadership: &Leadership,
    setup: &ForecasterSetup,
) -> Publisher<C> {
    let (cluster, forecasts) = (Arc::clone(cluster), Arc::clone(forecasts));
    Publisher::new(Queue::new(cluster, forecasts, leadership.clone(), setup))
}
