//! `TimeSeriesPrediction` objects: one per autoscaler with a prediction, owned by it and filled from the table of
//! forecasts.
//!
//! A status is written when the readiness or the reason of a metric changed, and otherwise once per prediction window:
//! when the published samples no longer reach a window ahead; only then are samples formatted. An object that no
//! autoscaler owns gets the reason `NotManaged`, once, and is not touched otherwise. A pass decides what is to be
//! written; `queue` writes it beside the passes.

mod queue;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use foretide_crds::{
    PredictedSample, PredictedSeries, PredictionMetricStatus, TimeSeriesPrediction,
    TimeSeriesPredictionStatus,
};
use foretide_domain::{
    forecast::Refused,
    hpa::MetricSpec,
    proposal::{ForecastDetails, Reason},
};
use foretide_models::{Forecast, Prediction};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde_json::{Value, json};

pub use self::queue::Queue;
use self::queue::{PredictionWrite, WriteKey};
use super::{
    forecasts::Forecasts,
    series_key::SeriesKey,
    source::{ForecastSource, SourceSeries, autoscalers},
};
use foretide_api::ports::Cluster;
use foretide_api::{
    ownership::{if_absent, is_part_of},
    status::{condition, forecast_status, with_transition_times},
};

/// Maximum number of samples that a status carries for one metric, so that objects stay small. Of more samples every
/// n-th is published, so that they reach as far.
const MAX_SAMPLES: usize = 1_000;

/// Decides which predictions of one cluster are to be written.
#[derive(Debug)]
pub struct Publisher<C> {
    /// The writes that passes have decided.
    pub queue: Arc<Queue<C>>,
    /// The specs that are as wanted, by UID of their autoscaler.
    up_to_date: HashMap<String, UpToDate>,
}

/// The objects that a spec was compared for: while they are the same, the spec is as wanted.
#[derive(Debug)]
struct UpToDate {
    source: Arc<ForecastSource>,
    live: Arc<TimeSeriesPrediction>,
    series: Vec<SeriesKey>,
}

/// An autoscaler whose prediction is published.
struct Publication<'a> {
    source: &'a Arc<ForecastSource>,
    series: Vec<SourceSeries<'a>>,
    live: Option<&'a Arc<TimeSeriesPrediction>>,
    now: Timestamp,
}

/// Outcome of the forecast of one series.
struct SeriesOutcome {
    identifier: String,
    outcome: Result<(Arc<Forecast>, ForecastDetails), Refused>,
    query: Option<Arc<str>>,
}

// === impl Publisher ===

impl<C: Cluster> Publisher<C> {
    pub fn new(queue: Queue<C>) -> Self {
        Self {
            queue: Arc::new(queue),
            up_to_date: HashMap::new(),
        }
    }

    /// Has predictions created, updated and deleted as the autoscalers require; waits for no write. What still waits
    /// from before and is not required any more is not written.
    pub fn publish(&mut self, sources: &[Arc<ForecastSource>], now: Timestamp) {
        let existing = self.queue.cluster.every_prediction();
        let by_key: HashMap<_, _> = existing.iter().map(|tsp| (key_of(tsp), tsp)).collect();
        let uids: HashSet<&str> = sources.iter().map(|source| source.uid()).collect();
        self.up_to_date.retain(|uid, _| uids.contains(&**uid));
        let mut wanted = self.clean_up(&existing);
        let forecasts = Arc::clone(&self.queue.forecasts);
        for source in sources {
            let key = WriteKey {
                namespace: source.workload.target.namespace.as_str().into(),
                name: source.prediction_name(),
            };
            let live = by_key.get(&key).copied();
            // An object of this name that a user created is never written.
            if live.is_some_and(|tsp| controller_uid(tsp) != Some(source.uid())) {
                continue;
            }
            let publication = Publication::new(source, live, &forecasts, now);
            if !self.is_up_to_date(&publication) || publication.due_outcomes(&forecasts).is_some() {
                let (source, live) = (Arc::clone(source), live.cloned());
                wanted.insert(key, PredictionWrite::Publish { source, live });
            }
        }
        self.queue.submit(wanted);
    }

    /// Writes nothing of what still waits: it was decided from copies that are no longer current, or by the leader that
    /// this process no longer is.
    pub fn withdraw(&self) {
        self.queue.submit(BTreeMap::new());
    }

    /// True if the spec is as wanted.
    fn is_up_to_date(&mut self, publication: &Publication<'_>) -> bool {
        let (source, live) = (publication.source, publication.live);
        let known = self.up_to_date.get(source.uid());
        if known.is_some_and(|known| known.is_for(publication)) {
            return true;
        }
        let Some(live) = live.filter(|_| publication.has_spec()) else {
            return false;
        };
        let up_to_date = UpToDate {
            source: Arc::clone(source),
            live: Arc::clone(live),
            series: (publication.series.iter())
                .map(|series| series.key.clone())
                .collect(),
        };
        self.up_to_date.insert(source.uid().to_owned(), up_to_date);
        true
    }

    /// The writes that delete predictions that their autoscaler no longer asks for, and mark those that no autoscaler
    /// owns.
    fn clean_up(
        &self,
        existing: &[Arc<TimeSeriesPrediction>],
    ) -> BTreeMap<WriteKey, PredictionWrite> {
        let (readable, _) = autoscalers(&*self.queue.cluster);
        let predicts: HashMap<String, bool> = readable
            .map(|one| (one.uid().to_owned(), one.spec().prediction.is_some()))
            .collect();
        let mut writes = BTreeMap::new();
        for tsp in existing {
            let write = match controller_uid(tsp) {
                // A prediction whose owner no longer exists is left to the garbage collector.
                Some(owner) if predicts.get(owner) == Some(&false) => PredictionWrite::Delete,
                None if !is_marked(tsp) => PredictionWrite::MarkNotManaged,
                Some(_) | None => continue,
            };
            writes.insert(key_of(tsp), write(Arc::clone(tsp)));
        }
        writes
    }
}

fn key_of(tsp: &TimeSeriesPrediction) -> WriteKey {
    WriteKey {
        namespace: tsp.namespace().unwrap_or_default().into(),
        name: tsp.name_any(),
    }
}

// === impl UpToDate ===

impl UpToDate {
    fn is_for(&self, publication: &Publication<'_>) -> bool {
        let series = publication.series.iter().map(|series| &series.key);
        // Pointers suffice: an object that changed is another `Arc` in the store, and comparing specs would cost
        // every pass.
        Arc::ptr_eq(&self.source, publication.source)
            && (publication.live).is_some_and(|live| Arc::ptr_eq(&self.live, live))
            && self.series.iter().eq(series)
    }
}

// === impl Publication ===

impl<'a> Publication<'a> {
    fn new(
        source: &'a Arc<ForecastSource>,
        live: Option<&'a Arc<TimeSeriesPrediction>>,
        forecasts: &Forecasts,
        now: Timestamp,
    ) -> Self {
        Self {
            series: source.series(forecasts),
            source,
            live,
            now,
        }
    }

    /// The manifest of the prediction; with the UID of the live one, so that no other is changed, or, if there is none,
    /// only for one that does not exist.
    fn manifest(&self) -> Value {
        let source = self.source;
        let uid = self.live.and_then(|tsp| tsp.uid()).unwrap_or_default();
        let mut metadata = source.prediction_metadata();
        if !uid.is_empty()
            && let Some(fields) = metadata.as_object_mut()
        {
            fields.insert("uid".into(), uid.as_str().into());
        }
        let target = &source.workload.target;
        let prediction = source.prediction();
        let algorithm = (prediction.prediction_algorithm.as_ref())
            .and_then(|algorithm| serde_json::to_value(algorithm).ok());
        let mut metrics = Vec::new();
        for series in &self.series {
            let mut entry = described(series.metric, &source.identifier(&series.key));
            if let (Some(algorithm), Some(fields)) = (&algorithm, entry.as_object_mut()) {
                fields.insert("algorithm".into(), algorithm.clone());
            }
            metrics.push(entry);
        }
        let manifest = json!({
            "apiVersion": "prediction.crane.io/v1alpha1",
            "kind": "TimeSeriesPrediction",
            "metadata": metadata,
            "spec": {
                "targetRef": {
                    "apiVersion": target.api_version,
                    "kind": target.kind,
                    "name": target.name,
                    "namespace": target.namespace,
                },
                "predictionWindowSeconds": source.window().as_secs(),
                "predictionMetrics": metrics,
            },
        });
        if uid.is_empty() {
            return if_absent(&manifest);
        }
        manifest
    }

    /// True if the stored spec is as wanted.
    fn has_spec(&self) -> bool {
        let manifest = self.manifest();
        let wanted = manifest.get("spec").unwrap_or(&Value::Null);
        (self.live)
            .and_then(|tsp| serde_json::to_value(&tsp.spec).ok())
            .is_some_and(|stored| is_part_of(wanted, &stored))
    }

    fn stored_status(&self) -> Option<&TimeSeriesPredictionStatus> {
        self.live?.status.as_ref()
    }

    /// The outcomes for the status, if it is to be written.
    fn due_outcomes(&self, forecasts: &Forecasts) -> Option<Vec<SeriesOutcome>> {
        let outcomes: Vec<_> = (self.series.iter())
            .map(|series| SeriesOutcome {
                identifier: self.source.identifier(&series.key),
                outcome: forecasts.with_details(&series.key, self.now),
                query: forecasts.query(&series.key),
            })
            .collect();
        let window = self.source.window();
        needs_write(self.stored_status(), &outcomes, window, self.now).then_some(outcomes)
    }

    /// The status that is to be written, if one is.
    fn status(&self, forecasts: &Forecasts) -> Option<TimeSeriesPredictionStatus> {
        let (outcomes, before) = (self.due_outcomes(forecasts)?, self.stored_status());
        Some(status(outcomes, before, self.source.window(), self.now))
    }
}

// === impl SeriesOutcome ===

impl SeriesOutcome {
    /// True if there is a forecast, with the reason that its status shows.
    fn readiness(&self) -> (bool, Option<&str>) {
        match &self.outcome {
            Ok((_, details)) => (true, details.remark.map(Reason::as_str)),
            Err(refused) => (false, Some(refused.reason.as_str())),
        }
    }

    /// The last sample that would be published now, as seconds since the epoch.
    fn last_sample(&self, window: SignedDuration, now: Timestamp) -> Option<i64> {
        let (forecast, _) = self.outcome.as_ref().ok()?;
        let last = published(forecast, window, now).last()?;
        Some(last.at.as_second())
    }

    fn into_status(self, window: SignedDuration, now: Timestamp) -> PredictionMetricStatus {
        let (ready, reason) = self.readiness();
        let status = PredictionMetricStatus {
            ready,
            reason: reason.map(str::to_owned),
            resource_identifier: Some(self.identifier),
            query: self.query.as_deref().map(str::to_owned),
            ..PredictionMetricStatus::default()
        };
        match self.outcome {
            Ok((forecast, details)) => PredictionMetricStatus {
                peak: forecast.demand(now, window).map(rounded),
                prediction: Some(vec![PredictedSeries {
                    samples: Some(samples(&forecast, window, now)),
                    ..PredictedSeries::default()
                }]),
                message: Some(details.notes.clone()).filter(|notes| !notes.is_empty()),
                forecast: Some(forecast_status(&details)),
                ..status
            },
            Err(refused) => PredictionMetricStatus {
                message: Some(refused.message),
                ..status
            },
        }
    }
}

/// A number for people, to three decimals.
fn rounded(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

fn controller_uid(tsp: &TimeSeriesPrediction) -> Option<&str> {
    (tsp.metadata.owner_references.iter().flatten())
        .find(|owner| owner.controller == Some(true))
        .map(|owner| &*owner.uid)
}

fn described(metric: &MetricSpec, identifier: &str) -> Value {
    match metric {
        MetricSpec::Resource { name, .. } => json!({
            "resourceIdentifier": identifier, "type": "ResourceQuery", "resourceQuery": name,
        }),
        _ => json!({ "resourceIdentifier": identifier, "type": "ExpressionQuery" }),
    }
}

fn status(
    outcomes: Vec<SeriesOutcome>,
    before: Option<&TimeSeriesPredictionStatus>,
    window: SignedDuration,
    now: Timestamp,
) -> TimeSeriesPredictionStatus {
    let metrics: Vec<_> = (outcomes.into_iter())
        .map(|one| one.into_status(window, now))
        .collect();
    let conditions = match metrics.iter().find(|metric| !metric.ready) {
        None => {
            let message = "every metric has a forecast";
            ready(before, true, "PredictSucceed", message, now)
        }
        Some(metric) => {
            let [name, message] = [&metric.resource_identifier, &metric.message]
                .map(|text| text.as_deref().unwrap_or_default());
            let message = format!("{name} has no forecast: {message}");
            ready(before, false, "PredictPartial", &message, now)
        }
    };
    TimeSeriesPredictionStatus {
        prediction_metrics: Some(metrics),
        conditions: Some(conditions),
    }
}

/// The samples of a forecast that a status carries.
fn published(
    forecast: &Forecast,
    window: SignedDuration,
    now: Timestamp,
) -> impl Iterator<Item = Prediction> + '_ {
    // Twice the window, so that the status is written once per window and not with every refresh.
    let end = now.saturating_add(window + window).unwrap_or(now);
    let count = within(forecast, now, end).count();
    within(forecast, now, end).step_by(count.div_ceil(MAX_SAMPLES).max(1))
}

fn within(
    forecast: &Forecast,
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = Prediction> + '_ {
    (forecast.samples()).filter(move |sample| (from..=to).contains(&sample.at))
}

/// The published samples, to five decimals, as crane writes.
fn samples(forecast: &Forecast, window: SignedDuration, now: Timestamp) -> Vec<PredictedSample> {
    published(forecast, window, now)
        .map(|sample| PredictedSample {
            value: Some(format!("{:.5}", sample.value)),
            timestamp: Some(sample.at.as_second()),
            upper: sample.upper.map(|upper| format!("{upper:.5}")),
        })
        .collect()
}

/// True if readiness or a reason changed, or the published samples end within a window and there are later ones.
fn needs_write(
    before: Option<&TimeSeriesPredictionStatus>,
    outcomes: &[SeriesOutcome],
    window: SignedDuration,
    now: Timestamp,
) -> bool {
    let known = metrics_of(before).map(|m| {
        (
            m.resource_identifier.as_deref(),
            (m.ready, m.reason.as_deref()),
        )
    });
    let found = outcomes
        .iter()
        .map(|one| (Some(&*one.identifier), one.readiness()));
    if !known.eq(found) {
        return true;
    }
    let window_end = now.saturating_add(window).unwrap_or(now).as_second();
    metrics_of(before).zip(outcomes).any(|(before, series)| {
        let last = last_sample(before);
        // One without a forecast has no samples to renew.
        before.ready
            && last.is_none_or(|last| last < window_end)
            // Without later samples the same status would be written with every pass.
            && last < series.last_sample(window, now)
    })
}

fn metrics_of(
    status: Option<&TimeSeriesPredictionStatus>,
) -> impl Iterator<Item = &PredictionMetricStatus> {
    (status.into_iter()).flat_map(|status| status.prediction_metrics.iter().flatten())
}

fn last_sample(metric: &PredictionMetricStatus) -> Option<i64> {
    let series = metric.prediction.as_deref()?.first()?;
    series.samples.as_deref()?.last()?.timestamp
}

fn is_marked(tsp: &TimeSeriesPrediction) -> bool {
    (tsp.status.iter())
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.reason == "NotManaged")
}

fn not_managed(
    before: Option<&TimeSeriesPredictionStatus>,
    now: Timestamp,
) -> TimeSeriesPredictionStatus {
    let message = "not owned by an EffectiveHorizontalPodAutoscaler or a FederatedHPA, so it is not updated; \
                   set spec.prediction of one to get a forecast";
    TimeSeriesPredictionStatus {
        prediction_metrics: None,
        conditions: Some(ready(before, false, "NotManaged", message, now)),
    }
}

/// The condition `Ready`, with the time of its last transition.
fn ready(
    before: Option<&TimeSeriesPredictionStatus>,
    ready: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if ready { "True" } else { "False" };
    let conditions = vec![condition("Ready", status, reason, message)];
    let known = before.and_then(|status| status.conditions.as_deref());
    with_transition_times(conditions, known, now)
}

#[cfg(test)]
mod tests {
    use foretide_domain::lead_time::LeadTime;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const MINUTE: SignedDuration = SignedDuration::from_mins(1);
    const MORE: SignedDuration = SignedDuration::from_mins(20);

    /// The outcome of a forecast that reaches two windows and `more` ahead.
    fn outcomes(window: SignedDuration, more: SignedDuration) -> Vec<SeriesOutcome> {
        let points = usize::try_from((window + window + more).as_secs() / 60 + 1).unwrap();
        let forecast =
            Forecast::new("test", NOW, MINUTE, vec![1.0; points], Timestamp::MAX).unwrap();
        let forecasts = Forecasts::default();
        let key = SeriesKey {
            uid: "uid".into(),
            metric: "resource.cpu".into(),
        };
        forecasts.replace(key.clone(), forecast, LeadTime::of(None, None));
        vec![SeriesOutcome {
            identifier: key.metric.clone(),
            outcome: forecasts.with_details(&key, NOW),
            query: None,
        }]
    }

    fn status_at(window: SignedDuration, now: Timestamp) -> TimeSeriesPredictionStatus {
        status(outcomes(window, MORE), None, window, now)
    }

    #[test]
    fn samples_are_few_reach_two_windows_ahead_and_are_rewritten_after_one() {
        for window in [1, 17, 168].map(SignedDuration::from_hours) {
            let before = status_at(window, NOW);
            let series = before.prediction_metrics.as_ref().unwrap()[0]
                .prediction
                .as_ref();
            let count = series.unwrap()[0].samples.as_ref().unwrap().len();
            assert!(count <= MAX_SAMPLES, "{window:#}: {count}");
            for (later, due) in [
                (MINUTE, false),
                (window / 2, false),
                (window + MINUTE, true),
            ] {
                let now = NOW + later;
                assert_eq!(
                    needs_write(Some(&before), &outcomes(window, MORE), window, now),
                    due,
                    "{window:#} {later:#}"
                );
            }
        }
    }

    #[test]
    fn samples_that_reach_no_further_are_not_rewritten() {
        let window = MINUTE * 30;
        let before = status_at(window, NOW);
        let outcomes = outcomes(window, SignedDuration::ZERO);
        assert!(!needs_write(
            Some(&before),
            &outcomes,
            window,
            NOW + MINUTE * 50
        ));
    }
}
