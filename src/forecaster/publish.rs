//! `TimeSeriesPrediction` objects: one per predicting autoscaler, of one cluster or of a fleet, owned by it, filled from
//! the table of forecasts.
//!
//! A status is written when readiness or a reason changed, and otherwise once per prediction window:
//! when the published samples no longer reach a window ahead. An object that is not ours is told so,
//! once, and left alone.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foretide_crds::{
    PredictedSample, PredictedSeries, PredictionMetricStatus, TimeSeriesPrediction,
    TimeSeriesPredictionStatus,
};
use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    forecasts::{Forecasts, SeriesKey},
    source::{ForecastSource, Object, Wanted},
};
use crate::{
    api::{ownership::is_part_of, status::forecast_status},
    domain::hpa::MetricSpec,
    ports::{Cluster, ClusterError},
};

/// Most samples that one status carries for one metric, so that an object stays small; of more, every
/// n-th is shown, so that they still reach as far.
const MAX_SAMPLES: usize = 1_000;

/// Creates, fills and removes predictions until they are as they should be.
pub(super) async fn publish<C: Cluster>(
    cluster: &C,
    forecasts: &Forecasts,
    subjects: &[ForecastSource],
    now: Timestamp,
) {
    let existing = cluster.every_prediction();
    let existing: HashMap<_, _> = existing
        .iter()
        .map(|tsp| ((tsp.namespace().unwrap_or_default(), tsp.name_any()), tsp))
        .collect();
    for subject in subjects {
        let (uid, name) = (subject.uid(), subject.shown_as());
        let namespace = &subject.workload.target.namespace;
        let ours = existing.get(&(namespace.clone(), name.clone())).copied();
        if ours.is_some_and(|tsp| controller_uid(tsp) != Some(&uid)) {
            continue;
        }
        if let Err(error) = fill(cluster, forecasts, subject, ours, now).await {
            tracing::warn!(%namespace, %name, %error, "prediction not written");
        }
    }
    sweep(cluster, now).await;
}

async fn fill<C: Cluster>(
    cluster: &C,
    forecasts: &Forecasts,
    subject: &ForecastSource,
    live: Option<&Arc<TimeSeriesPrediction>>,
    now: Timestamp,
) -> Result<(), ClusterError> {
    let series = subject.wanted(forecasts);
    let manifest = manifest(subject, &series);
    let written = live.and_then(|tsp| serde_json::to_value(&tsp.spec).ok());
    let wanted = manifest.get("spec").unwrap_or(&Value::Null);
    if !written.is_some_and(|spec| is_part_of(wanted, &spec)) {
        cluster.apply_prediction(&manifest).await?;
    }
    let before = live.and_then(|tsp| tsp.status.clone()).unwrap_or_default();
    let after = status(forecasts, (subject, &series), &before, now);
    if is_worth_writing(&before, &after, subject.window(), now) {
        let namespace = &subject.workload.target.namespace;
        cluster
            .write_prediction_status(namespace, &subject.shown_as(), &after)
            .await?;
    }
    Ok(())
}

/// Predictions without their autoscaler's wish: ours are deleted, others are told that they are not.
async fn sweep<C: Cluster>(cluster: &C, now: Timestamp) {
    let ones = cluster.autoscalers().into_iter().map(Object::One);
    let fleets = cluster.federated().into_iter().map(Object::Fleet);
    let known: Vec<Object> = ones.chain(fleets).collect();
    let uids = |predicting: bool| {
        let chosen = known.iter().filter(move |it| !predicting || it.predicts());
        chosen.map(Object::uid).collect::<HashSet<String>>()
    };
    let (wanted, known) = (uids(true), uids(false));
    for tsp in cluster.every_prediction() {
        let outcome = match controller_uid(&tsp) {
            Some(owner) if known.contains(owner) && !wanted.contains(owner) => {
                delete(cluster, &tsp).await
            }
            None if !is_told(&tsp) => tell(cluster, &tsp, now).await,
            Some(_) | None => Ok(()),
        };
        if let Err(error) = outcome {
            let (namespace, name) = (tsp.namespace().unwrap_or_default(), tsp.name_any());
            tracing::warn!(%namespace, %name, %error, "prediction not tidied up");
        }
    }
}

async fn delete<C: Cluster>(cluster: &C, tsp: &TimeSeriesPrediction) -> Result<(), ClusterError> {
    let (namespace, uid) = (
        tsp.namespace().unwrap_or_default(),
        tsp.uid().unwrap_or_default(),
    );
    cluster
        .delete_prediction(&namespace, &tsp.name_any(), &uid)
        .await
}

/// Says on an object that is not ours that nobody fills it.
async fn tell<C: Cluster>(
    cluster: &C,
    tsp: &TimeSeriesPrediction,
    now: Timestamp,
) -> Result<(), ClusterError> {
    let namespace = tsp.namespace().unwrap_or_default();
    let status = not_managed(tsp.status.as_ref(), now);
    cluster
        .write_prediction_status(&namespace, &tsp.name_any(), &status)
        .await
}

fn controller_uid(tsp: &TimeSeriesPrediction) -> Option<&String> {
    let owners = tsp.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| &owner.uid)
}

fn manifest(subject: &ForecastSource, series: &[Wanted<'_>]) -> Value {
    let target = &subject.workload.target;
    let prediction = subject.prediction();
    let algorithm = prediction.prediction_algorithm.as_ref();
    let metrics: Vec<Value> = series
        .iter()
        .map(|series| {
            let mut entry = described(series.metric, &subject.identifier(&series.key));
            if let (Some(algorithm), Some(fields)) = (
                algorithm.and_then(|a| serde_json::to_value(a).ok()),
                entry.as_object_mut(),
            ) {
                fields.insert("algorithm".into(), algorithm);
            }
            entry
        })
        .collect();
    json!({
        "apiVersion": "prediction.crane.io/v1alpha1",
        "kind": "TimeSeriesPrediction",
        "metadata": subject.metadata(),
        "spec": {
            "targetRef": {
                "apiVersion": target.api_version,
                "kind": target.kind,
                "name": target.name,
                "namespace": target.namespace,
            },
            "predictionWindowSeconds": subject.window().as_secs(),
            "predictionMetrics": metrics,
        },
    })
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
    forecasts: &Forecasts,
    (subject, series): (&ForecastSource, &[Wanted<'_>]),
    before: &TimeSeriesPredictionStatus,
    now: Timestamp,
) -> TimeSeriesPredictionStatus {
    let metrics: Vec<PredictionMetricStatus> = series
        .iter()
        .map(|series| PredictionMetricStatus {
            resource_identifier: Some(subject.identifier(&series.key)),
            ..metric_status(forecasts, &series.key, subject.window(), now)
        })
        .collect();
    let missing = metrics.iter().find(|metric| !metric.ready);
    let condition = match missing {
        None => ready(true, "PredictSucceed", "every metric is predicted"),
        Some(metric) => ready(false, "PredictPartial", &partial(metric)),
    };
    TimeSeriesPredictionStatus {
        prediction_metrics: Some(metrics),
        conditions: Some(vec![since(condition, before.conditions.as_deref(), now)]),
    }
}

fn partial(metric: &PredictionMetricStatus) -> String {
    let name = metric.resource_identifier.as_deref().unwrap_or_default();
    format!(
        "{name} is not predicted: {}",
        metric.message.as_deref().unwrap_or_default()
    )
}

fn metric_status(
    forecasts: &Forecasts,
    key: &SeriesKey,
    window: SignedDuration,
    now: Timestamp,
) -> PredictionMetricStatus {
    let mut status = PredictionMetricStatus {
        resource_identifier: Some(key.metric.clone()),
        ..PredictionMetricStatus::default()
    };
    match forecasts.founded(key, now) {
        Ok((forecast, grounds)) => {
            status.ready = true;
            let samples = samples(
                &forecast,
                now,
                now.saturating_add(window + window).unwrap_or(now),
            );
            status.prediction = Some(vec![PredictedSeries {
                samples: Some(samples),
                ..PredictedSeries::default()
            }]);
            status.reason = grounds.remark.map(|remark| remark.as_str().to_owned());
            status.message = Some(grounds.notes.clone()).filter(|notes| !notes.is_empty());
            status.forecast = Some(forecast_status(&grounds));
        }
        Err(refused) => {
            status.reason = Some(refused.reason.as_str().to_owned());
            status.message = Some(refused.message);
        }
    }
    status
}

fn samples(forecast: &Forecast, from: Timestamp, to: Timestamp) -> Vec<PredictedSample> {
    let number = |value: f64| format!("{value:.5}");
    let within = || {
        let samples = forecast.samples();
        samples.filter(|sample| sample.at >= from && sample.at <= to)
    };
    within()
        .step_by(within().count().div_ceil(MAX_SAMPLES).max(1))
        .map(|sample| PredictedSample {
            value: Some(number(sample.value)),
            timestamp: Some(sample.at.as_second()),
            upper: sample.upper.map(number),
        })
        .collect()
}

/// Whether readiness or a reason changed, or the published samples end within a window and there are
/// later ones.
fn is_worth_writing(
    before: &TimeSeriesPredictionStatus,
    after: &TimeSeriesPredictionStatus,
    window: SignedDuration,
    now: Timestamp,
) -> bool {
    let outline = |status: &TimeSeriesPredictionStatus| {
        metrics_of(status)
            .map(|m| (m.resource_identifier.clone(), m.ready, m.reason.clone()))
            .collect::<Vec<_>>()
    };
    if outline(before) != outline(after) {
        return true;
    }
    let horizon = now.saturating_add(window).unwrap_or(now).as_second();
    let metrics = |status| metrics_of(status).filter(|metric| metric.ready);
    metrics(before).zip(metrics(after)).any(|(before, after)| {
        let last = last_sample(before);
        last.is_none_or(|last| last < horizon) && last < last_sample(after)
    })
}

fn metrics_of(
    status: &TimeSeriesPredictionStatus,
) -> impl Iterator<Item = &PredictionMetricStatus> {
    status.prediction_metrics.iter().flatten()
}

fn last_sample(metric: &PredictionMetricStatus) -> Option<i64> {
    let series = metric.prediction.as_deref()?.first()?;
    series.samples.as_deref()?.last()?.timestamp
}

fn is_told(tsp: &TimeSeriesPrediction) -> bool {
    let conditions = tsp
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions.is_some_and(|found| found.iter().any(|c| c.reason == "NotManaged"))
}

fn not_managed(
    before: Option<&TimeSeriesPredictionStatus>,
    now: Timestamp,
) -> TimeSeriesPredictionStatus {
    let message = "this object belongs to no EffectiveHorizontalPodAutoscaler and is left alone; \
                   put a prediction into one to get a forecast";
    let condition = ready(false, "NotManaged", message);
    let known = before.and_then(|status| status.conditions.as_deref());
    TimeSeriesPredictionStatus {
        prediction_metrics: None,
        conditions: Some(vec![since(condition, known, now)]),
    }
}

fn ready(ready: bool, reason: &str, message: &str) -> Condition {
    Condition {
        type_: "Ready".into(),
        status: if ready { "True" } else { "False" }.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// The condition with its transition time: kept while its status stays.
fn since(mut condition: Condition, known: Option<&[Condition]>, now: Timestamp) -> Condition {
    let before = known
        .into_iter()
        .flatten()
        .find(|c| c.type_ == condition.type_);
    condition.last_transition_time = before
        .filter(|before| before.status == condition.status)
        .map_or(Time(now), |before| before.last_transition_time.clone());
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lead_time::LeadTime;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    fn shown(window: SignedDuration, now: Timestamp) -> TimeSeriesPredictionStatus {
        let points = usize::try_from((window + window).as_secs() / 60 + 20).unwrap();
        let forecast =
            Forecast::new("test", NOW, MINUTE, vec![1.0; points], Timestamp::MAX).unwrap();
        let forecasts = Forecasts::default();
        let key = SeriesKey {
            uid: "uid".into(),
            metric: "resource.cpu".into(),
        };
        forecasts.renew(key.clone(), forecast, LeadTime::of(None, None));
        TimeSeriesPredictionStatus {
            prediction_metrics: Some(vec![metric_status(&forecasts, &key, window, now)]),
            conditions: None,
        }
    }

    #[test]
    fn samples_are_few_reach_two_windows_ahead_and_are_written_again_after_one() {
        for window in [1, 17, 168].map(SignedDuration::from_hours) {
            let before = shown(window, NOW);
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
                let after = shown(window, now);
                assert_eq!(
                    is_worth_writing(&before, &after, window, now),
                    due,
                    "{window:#} {later:#}"
                );
            }
        }
    }

    #[test]
    fn samples_that_cannot_be_later_are_not_written_again() {
        let window = MINUTE * 30;
        let before = shown(window, NOW);
        assert!(!is_worth_writing(
            &before,
            &before,
            window,
            NOW + MINUTE * 50
        ));
    }
}
