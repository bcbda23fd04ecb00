//! Keeps forecasts and `TimeSeriesPrediction` objects fresh, on a cadence of its own.
//!
//! A pass reads what the autoscalers ask for, refreshes the series whose turn it is, and publishes
//! what people may want to see. Syncs only ever read the table of [`forecasts`]: a slow Prometheus
//! delays no decision. It refuses to propose replicas.

pub mod feed;
pub mod forecasts;
pub mod history;
mod plan;
mod publish;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_models::{Forecast, REFRESH_PERIOD};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

pub(crate) use self::publish::shown;
use self::{
    forecasts::{Forecasts, SeriesKey},
    history::HistoryCache,
    plan::{Failure, Plan, Refreshed, Request},
};
use crate::{
    clock::Clock,
    domain::{
        cron::Zone,
        forecast::{Refused, horizon},
        hpa::MetricSpec,
        lead_time::LeadTime,
        proposal::Reason,
        workload::Workload,
    },
    ports::{Cluster, Demand, DemandQueries, HistoryError, HistoryReader},
    telemetry::Telemetry,
    validate::{self, chain},
};

/// Prefix of the annotations that give a metric's history query; the identifier follows.
const QUERY_ANNOTATION: &str = "metric-query.autoscaling.crane.io/";
/// How often the forecaster looks for work.
const PASS_PERIOD: SignedDuration = SignedDuration::from_secs(5);
/// How many series are refreshed at once.
const CONCURRENT_REFRESHES: usize = 4;
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

/// The forecaster of one cluster.
#[derive(Debug)]
pub struct Forecaster<C, H, Q> {
    cluster: Arc<C>,
    source: Option<Arc<Source<H, Q>>>,
    clock: Clock,
    local_zone: Zone,
    forecasts: Arc<Forecasts>,
    telemetry: Arc<Telemetry>,
    histories: HistoryCache,
    plans: HashMap<SeriesKey, Plan>,
    valid: HashMap<String, Predicting>,
    /// When a series without a plan was first wanted.
    wanted: HashMap<SeriesKey, Timestamp>,
}

/// An autoscaler with a prediction, as it last was valid, and what it means.
type Predicting = (Arc<EffectiveHorizontalPodAutoscaler>, Workload);

// === impl Forecaster ===

impl<C: Cluster, H: HistoryReader, Q: DemandQueries> Forecaster<C, H, Q> {
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
            source: source.map(Arc::new),
            clock,
            local_zone,
            forecasts,
            telemetry,
            histories: HistoryCache::default(),
            plans: HashMap::new(),
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

    /// One pass: plan, refresh what is due, publish.
    pub async fn pass(&mut self) {
        let now = self.clock.now();
        let autoscalers = self.predicting();
        self.plan(&autoscalers, now);
        self.refresh(now).await;
        publish::publish(&*self.cluster, &self.forecasts, &autoscalers, now).await;
    }

    /// The autoscalers with predictions, and what they mean; one whose spec is not valid now keeps
    /// the forecasts that it last asked for.
    fn predicting(&mut self) -> Vec<Predicting> {
        let mut known = self.cluster.autoscalers();
        known.retain(|ehpa| ehpa.metadata.deletion_timestamp.is_none());
        let uids: HashSet<String> = known.iter().filter_map(|ehpa| ehpa.uid()).collect();
        self.valid.retain(|uid, _| uids.contains(uid));
        for ehpa in known {
            let uid = ehpa.uid().unwrap_or_default();
            if let Ok(workload) = validate::workload(&ehpa, &self.local_zone) {
                if ehpa.spec.prediction.is_some() {
                    self.valid.insert(uid, (ehpa, workload));
                } else {
                    self.valid.remove(&uid);
                }
            }
        }
        self.valid.values().cloned().collect()
    }

    /// Brings the plans in line with what is asked for; a changed request starts afresh.
    fn plan(&mut self, autoscalers: &[Predicting], now: Timestamp) {
        let mut wanted = HashSet::new();
        for (ehpa, workload) in autoscalers {
            for metric in &workload.metrics {
                let uid = ehpa.uid().unwrap_or_default();
                let key = SeriesKey {
                    uid,
                    metric: metric.identifier(),
                };
                // A second metric of the same identifier has no forecast of its own.
                if !wanted.insert(key.clone()) {
                    continue;
                }
                let first = *self.wanted.entry(key.clone()).or_insert(now);
                let known = self.forecasts.feed().situation(&key);
                let patience = first.saturating_add(FIRST_SYNC).unwrap_or(first);
                if known.is_none() && now < patience && !self.plans.contains_key(&key) {
                    continue;
                }
                let request = self.request((ehpa, workload), metric, known.unwrap_or_default());
                let kept = request.and_then(|request| self.keep(key.clone(), request, now));
                if let Err(refused) = kept {
                    self.plans.remove(&key);
                    self.forecasts.withdraw(key, refused);
                }
            }
        }
        self.plans.retain(|key, _| wanted.contains(key));
        self.wanted.retain(|key, _| wanted.contains(key));
        self.forecasts.feed().retain(|key| wanted.contains(key));
        let read: HashSet<_> = self.plans.values().map(Plan::history).collect();
        self.histories.retain(|history| read.contains(history));
        self.forecasts.retain(|key| wanted.contains(key));
    }

    /// Keeps a plan whose request is unchanged, so that its turn and its failures go on.
    fn keep(
        &mut self,
        key: SeriesKey,
        (request, forecaster): (Request, Box<dyn foretide_models::Forecaster>),
        now: Timestamp,
    ) -> Result<(), Refused> {
        match self.plans.get_mut(&key) {
            Some(plan) if plan.asks_for(&request) => plan.situate(&request),
            _ => {
                self.plans.insert(key, Plan::new(request, forecaster, now)?);
            }
        }
        Ok(())
    }

    fn request(
        &self,
        (ehpa, workload): (&EffectiveHorizontalPodAutoscaler, &Workload),
        metric: &MetricSpec,
        known: validate::Known,
    ) -> Result<(Request, Box<dyn foretide_models::Forecaster>), Refused> {
        let source = self.source.as_deref().ok_or_else(|| {
            let message = "no history is configured: start the controller with --prometheus URL";
            Refused::new(Reason::QueryError, message)
        })?;
        let prediction = ehpa.spec.prediction.clone().unwrap_or_default();
        let invalid = |violation: validate::Violation| {
            Refused::new(Reason::InvalidSpec, violation.to_string())
        };
        let written = prediction.lead_time_seconds;
        let written = written.map(|seconds| SignedDuration::from_secs(seconds.into()));
        let lead_time = LeadTime::of(written, known.lead_time);
        let algorithm = validate::algorithm(&prediction, known).map_err(invalid)?;
        let forecaster = validate::build(algorithm.clone()).map_err(invalid)?;
        let annotation = format!("{QUERY_ANNOTATION}{}", metric.identifier());
        let query = source.queries.query(&Demand {
            target: &workload.target,
            metric,
            written: ehpa.annotations().get(&annotation).map(String::as_str),
            span: forecaster.history_length(),
        })?;
        let window = workload
            .prediction
            .as_ref()
            .map_or(SignedDuration::ZERO, |p| p.window);
        let request = Request {
            query,
            algorithm,
            horizon: horizon(window, forecaster.sample_interval()),
            lead_time,
        };
        Ok((request, forecaster))
    }

    /// Refreshes every series whose turn it is, a few at a time.
    async fn refresh(&mut self, now: Timestamp) {
        let Some(source) = self.source.clone() else {
            return;
        };
        // A turn beyond the longest wait was set before the clock was put back.
        let latest = now.saturating_add(REFRESH_PERIOD).unwrap_or(Timestamp::MAX);
        let due: Vec<SeriesKey> = self
            .plans
            .iter()
            .filter(|(_, plan)| plan.turn() <= now || plan.turn() > latest)
            .map(|(key, _)| key.clone())
            .collect();
        let due = due
            .into_iter()
            .filter_map(|key| self.plans.remove_entry(&key));
        let due: Vec<_> = due.collect();
        let (reader, histories) = (&source.reader, &self.histories);
        let feed = self.forecasts.feed();
        let mut refreshed = stream::iter(due)
            .map(|(key, plan)| async move {
                let live = feed.minutes(&key, now);
                let refreshed = plan.refresh(reader, histories, &live, now).await;
                (key, refreshed)
            })
            .buffer_unordered(CONCURRENT_REFRESHES);
        // Each as it comes: one slow answer does not hold back the others.
        while let Some((key, refreshed)) = refreshed.next().await {
            let Refreshed {
                plan,
                outcome,
                rejected,
            } = refreshed;
            for rejection in rejected {
                self.telemetry.rejected(rejection.as_str());
            }
            // A plan that broke off is made anew by the next pass.
            if let Some(mut plan) = plan {
                plan.set_turn(&outcome, now);
                self.record(key.clone(), outcome, plan.lead_time());
                self.plans.insert(key, plan);
            } else {
                self.record(key, outcome, LeadTime::of(None, None));
            }
        }
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
        HistoryError::Empty => Reason::NoData,
        HistoryError::QueryRefused { .. } | HistoryError::MultiSeries(_) => Reason::QueryRefused,
        HistoryError::Partial { .. } => Reason::PartialHistory,
        _ => Reason::QueryError,
    }
}
