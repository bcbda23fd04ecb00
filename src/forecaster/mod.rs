//! Keeps forecasts and `TimeSeriesPrediction` objects fresh, on a cadence of its own.
//!
//! A pass reads what the autoscalers ask for, sends out the series whose turn it is to be refreshed, takes in those
//! that come back, and publishes what people may want to see. Who does not come back in time comes in with a later
//! pass. Syncs only ever read the table of [`forecasts`]: a slow Prometheus delays no decision. It refuses to propose
//! replicas.

pub mod demand_history;
pub mod forecasts;
pub mod history;
mod ingest;
mod plan;
mod publish;
pub mod shares;
mod source;
mod unit_change;
mod workers;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};
use tokio::task::{Id, JoinError, JoinSet};

use self::{
    forecasts::{Forecasts, SeriesKey},
    plan::{Failure, Plan, Refreshed, Request},
    source::{ForecastSource, Object, SeriesScope, Wanted},
    workers::Workers,
};
use crate::{
    api::spec,
    clock::Clock,
    domain::{
        cron::Zone,
        forecast::{Refused, forecast_length},
        lead_time::LeadTime,
        proposal::Reason,
    },
    error::chain,
    ports::{Cluster, Demand, DemandQueries, HistoryError, HistoryReader},
    telemetry::Telemetry,
};

/// Prefix of the annotations that give a metric's history query; the identifier follows.
const QUERY_ANNOTATION: &str = "metric-query.autoscaling.crane.io/";
/// How often the forecaster looks for work.
const PASS_PERIOD: SignedDuration = SignedDuration::from_secs(5);
/// How long a new series waits for the first sync of its object, which tells how long its pods take to start.
const FIRST_SYNC: SignedDuration = SignedDuration::from_secs(20);

/// Where history comes from: who reads it, and who knows what to ask.
#[derive(Debug)]
pub struct Source<H, Q> {
    /// Reads samples.
    pub reader: H,
    /// Makes queries.
    pub queries: Q,
}

/// The forecaster of the autoscalers of one cluster, and of the fleets that it is the hub of.
#[derive(Debug)]
pub struct Forecaster<C, H, Q> {
    cluster: Arc<C>,
    bench: Arc<Workers<H, Q>>,
    clock: Clock,
    local_zone: Zone,
    forecasts: Arc<Forecasts>,
    telemetry: Arc<Telemetry>,
    plans: HashMap<SeriesKey, Plan>,
    /// What the plans, and what was refused, were made from.
    bases: HashMap<SeriesKey, Basis>,
    /// The refreshes under way.
    running: JoinSet<(SeriesKey, Option<Refreshed>)>,
    valid: HashMap<String, ForecastSource>,
    /// When a series without a plan was first wanted.
    wanted: HashMap<SeriesKey, Timestamp>,
}

/// What a request is worked out from: the same again gives the same request.
#[derive(Debug, Clone, PartialEq)]
struct Basis {
    generation: Option<i64>,
    written: Option<String>,
    known: spec::Known,
    whose: SeriesScope,
    rules: u64,
}

// === impl Forecaster ===

impl<C: Cluster, H: HistoryReader + 'static, Q: DemandQueries + 'static> Forecaster<C, H, Q> {
    /// A forecaster without any series yet; without a `source` every series is refused.
    #[must_use]
    pub fn new(
        cluster: Arc<C>,
        source: Option<Source<H, Q>>,
        (clock, local_zone): (Clock, Zone),
        forecasts: Arc<Forecasts>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            cluster,
            bench: Arc::new(Workers::new(source, clock.clone(), Arc::clone(&forecasts))),
            clock,
            local_zone,
            forecasts,
            telemetry,
            plans: HashMap::new(),
            bases: HashMap::new(),
            running: JoinSet::new(),
            valid: HashMap::new(),
            wanted: HashMap::new(),
        }
    }

    /// Passes, for ever.
    pub async fn run(mut self) {
        loop {
            if self.cluster.is_synced() {
                self.pass().await;
            }
            self.clock.sleep(PASS_PERIOD).await;
        }
    }

    /// One pass: plan, refresh what is due, publish. Waits for refreshes no longer than for the next pass.
    pub async fn pass(&mut self) {
        let now = self.clock.now();
        let subjects = self.predicting();
        self.plan(&subjects, now);
        self.send(now);
        self.take_in().await;
        publish::publish(&*self.cluster, &self.forecasts, &subjects, now).await;
    }

    /// The autoscalers with predictions, and what they mean; one whose spec is not valid now keeps
    /// the forecasts that it last asked for.
    fn predicting(&mut self) -> Vec<ForecastSource> {
        let ones = self.cluster.autoscalers().into_iter().map(Object::One);
        let fleets = self.cluster.federated().into_iter().map(Object::Fleet);
        let known: Vec<Object> = ones.chain(fleets).filter(|it| !it.is_leaving()).collect();
        let uids: HashSet<String> = known.iter().map(Object::uid).collect();
        self.valid.retain(|uid, _| uids.contains(uid));
        self.forecasts.fleets().retain(|uid| uids.contains(uid));
        for object in known {
            let (uid, predicts) = (object.uid(), object.predicts());
            if let Some(subject) = object.read(&self.local_zone) {
                if predicts {
                    self.valid.insert(uid, subject);
                } else {
                    self.valid.remove(&uid);
                }
            }
        }
        self.valid.values().cloned().collect()
    }

    /// Brings the plans in line with what is asked for; a changed request starts afresh.
    fn plan(&mut self, subjects: &[ForecastSource], now: Timestamp) {
        let mut wanted = HashSet::new();
        for subject in subjects {
            for series in subject.wanted(&self.forecasts) {
                wanted.insert(series.key.clone());
                self.plan_one(subject, &series, now);
            }
        }
        self.plans.retain(|key, _| wanted.contains(key));
        self.bases.retain(|key, _| wanted.contains(key));
        self.wanted.retain(|key, _| wanted.contains(key));
        self.forecasts.feed().retain(|key| wanted.contains(key));
        let read: HashSet<_> = self.plans.values().flat_map(Plan::histories).collect();
        let histories = &self.bench.histories;
        histories.retain(|history| read.contains(history));
        self.forecasts.retain(|key| wanted.contains(key));
    }

    fn plan_one(&mut self, subject: &ForecastSource, series: &Wanted<'_>, now: Timestamp) {
        let key = series.key.clone();
        let first = *self.wanted.entry(key.clone()).or_insert(now);
        let known = self.forecasts.feed().situation(&key);
        let patience = first.saturating_add(FIRST_SYNC).unwrap_or(first);
        if known.is_none() && now < patience && !self.plans.contains_key(&key) {
            return;
        }
        let basis = self.basis(subject, series, known.unwrap_or_default());
        if basis.generation.is_some() && self.bases.get(&key) == Some(&basis) {
            return;
        }
        let request = self.request(subject, series, &basis);
        let kept = request.and_then(|request| self.keep(key.clone(), request, now));
        if let Err(refused) = kept {
            self.plans.remove(&key);
            self.forecasts.withdraw(key.clone(), refused);
        }
        self.bases.insert(key, basis);
    }

    /// Keeps a plan whose request is unchanged, so that its turn and its failures go on. Of another query, what is in
    /// force says nothing.
    fn keep(
        &mut self,
        key: SeriesKey,
        (request, forecaster): (Request, Box<dyn foretide_models::Forecaster>),
        now: Timestamp,
    ) -> Result<(), Refused> {
        match self.plans.get_mut(&key) {
            Some(plan) if plan.asks_for(&request) => plan.situate(request),
            before => {
                if before.is_some_and(|plan| !plan.reads(&request)) {
                    let message = "the query of its history has changed, and no forecast of what it asks now has been computed yet";
                    let pending = Refused::new(Reason::Pending, message);
                    self.forecasts.withdraw(key.clone(), pending);
                }
                self.plans.insert(key, Plan::new(request, forecaster, now)?);
            }
        }
        Ok(())
    }

    fn basis(&self, subject: &ForecastSource, series: &Wanted<'_>, known: spec::Known) -> Basis {
        let annotation = format!("{QUERY_ANNOTATION}{}", series.metric.identifier());
        let source = self.bench.source.as_ref();
        Basis {
            generation: subject.generation(),
            written: subject.annotation(&annotation).cloned(),
            known,
            whose: series.whose.clone(),
            rules: source.map_or(0, |source| source.queries.version()),
        }
    }

    fn request(
        &self,
        subject: &ForecastSource,
        series: &Wanted<'_>,
        basis: &Basis,
    ) -> Result<(Request, Box<dyn foretide_models::Forecaster>), Refused> {
        let known = basis.known;
        let source = self.bench.source.as_ref().ok_or_else(|| {
            let message = "no history is configured: start the controller with --prometheus URL";
            Refused::new(Reason::QueryError, message)
        })?;
        let prediction = subject.prediction();
        let invalid =
            |violation: spec::Violation| Refused::new(Reason::InvalidSpec, violation.to_string());
        let lead_time = spec::lead_time(&prediction, known).map_err(invalid)?;
        let algorithm = spec::algorithm(&prediction, known).map_err(invalid)?;
        let forecaster = spec::build(algorithm.clone()).map_err(invalid)?;
        let demand = Demand {
            target: &subject.workload.target,
            metric: series.metric,
            written: basis.written.as_deref(),
            span: forecaster.history_length(),
            member: None,
        };
        let as_written = basis.written.is_some() && subject.is_written_for(&series.key);
        let whose = if as_written {
            &SeriesScope::Whole
        } else {
            &series.whose
        };
        let request = Request {
            parts: whose.parts(&source.queries, demand)?,
            idle: whose.idle(),
            algorithm,
            horizon: forecast_length(subject.window(), forecaster.sample_interval()),
            lead_time,
        };
        Ok((request, forecaster))
    }

    /// Sends out every series whose turn it is.
    fn send(&mut self, now: Timestamp) {
        for (key, plan) in &mut self.plans {
            let (bench, running) = (&self.bench, &mut self.running);
            plan.send(now, |refresher| {
                let (bench, key) = (Arc::clone(bench), key.clone());
                let refresh = async move {
                    let refreshed = bench.refresh(&key, refresher).await;
                    (key, refreshed)
                };
                running.spawn(refresh).id()
            });
        }
    }

    /// Takes in refreshes as they come, until there are no more or it is time for the next pass.
    async fn take_in(&mut self) {
        let clock = self.clock.clone();
        let patience = clock.sleep(PASS_PERIOD);
        tokio::pin!(patience);
        loop {
            let back = tokio::select! {
                back = self.running.join_next_with_id() => back,
                () = &mut patience => None,
            };
            match back {
                Some(Ok((task, (key, refreshed)))) => self.settle(task, key, refreshed),
                Some(Err(error)) => self.give_up(&error),
                None => break,
            }
        }
    }

    fn settle(&mut self, task: Id, key: SeriesKey, refreshed: Option<Refreshed>) {
        // What was asked for has changed meanwhile, or nobody asks any more.
        let Some(plan) = self.plans.get_mut(&key).filter(|plan| plan.is_out_as(task)) else {
            return;
        };
        let Some(refreshed) = refreshed else {
            return;
        };
        for rejection in refreshed.rejected {
            self.telemetry.rejected(rejection.as_str());
        }
        plan.set_turn(&refreshed.outcome, refreshed.now);
        let lead_time = plan.lead_time();
        if let Some(refresher) = refreshed.refresher {
            plan.take_back(refresher);
        } else {
            // It is made anew by the next pass.
            self.plans.remove(&key);
            self.bases.remove(&key);
        }
        self.record(key, refreshed.outcome, lead_time);
    }

    /// A refresh that broke off is made anew by the next pass.
    fn give_up(&mut self, error: &JoinError) {
        let broken = |plan: &Plan| plan.is_out_as(error.id());
        self.bases
            .retain(|key, _| !self.plans.get(key).is_some_and(broken));
        self.plans.retain(|_, plan| !broken(plan));
    }

    fn record(&self, key: SeriesKey, outcome: Result<Forecast, Failure>, lead_time: LeadTime) {
        match outcome {
            Ok(forecast) => self.forecasts.renew(key, forecast, lead_time),
            Err(Failure::Refused(refused)) => {
                self.telemetry.refused(refused.reason.as_str());
                self.forecasts.withdraw(key, refused);
            }
            Err(Failure::Unread(error)) => {
                let refused = Refused::new(unread_reason(&error), chain(&error));
                self.telemetry.refused(refused.reason.as_str());
                tracing::debug!(metric = %key.metric, error = %refused.message, "history not read");
                self.forecasts.trouble(key, refused);
            }
        }
    }
}

fn unread_reason(error: &HistoryError) -> Reason {
    match error {
        HistoryError::Member { source, .. } => match unread_reason(source) {
            refused @ Reason::QueryRefused => refused,
            _ => Reason::PartialHistory,
        },
        HistoryError::Empty => Reason::NoData,
        HistoryError::QueryRefused { .. } | HistoryError::MultiSeries(_) => Reason::QueryRefused,
        HistoryError::Partial { .. } => Reason::PartialHistory,
        _ => Reason::QueryError,
    }
}
