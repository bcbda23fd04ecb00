//! The input of a back-test: the workload, its recorded demand, its pods, and the evaluated minutes.
//!
//! Each assumption is returned as a sentence. A history too short to train and evaluate is an error.

use foretide_domain::{
    demand::{self, TargetError},
    hpa::MetricSpec,
    sim::{Environment, MINUTE, RecordedMetric},
    workload::{Strategy, Workload},
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::{
    Error, data,
    inputs::{self, AutoscalerWorkload},
    manifest,
    recording::History,
    template::{TemplateError, TemplateSource, WorkloadTemplate},
};
use foretide_api::autoscaler::Autoscaler;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Default training span, where the history is long enough.
const WARM_UP: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Length of a history below which only the last four days are evaluated.
const LONG: SignedDuration = SignedDuration::from_hours(252);
/// The evaluated part of shorter histories.
const LAST: SignedDuration = SignedDuration::from_hours(4 * 24);
/// The least training span: two days, to see one repetition.
const LEAST_WARM_UP: SignedDuration = SignedDuration::from_hours(48);
/// The longest evaluated span: a run over it takes some ten seconds.
const LONGEST: SignedDuration = SignedDuration::from_hours(1000 * 24);
/// Length of the runs before the evaluation starts.
const LEAD_IN: SignedDuration = SignedDuration::from_mins(30);
/// Start-up time of a pod if neither flag nor spec sets it.
const START_UP: SignedDuration = SignedDuration::from_mins(2);
/// Note on a part of a converted `ScaledObject` with cron triggers that the comparison leaves out.
const WITHOUT_TRIGGERS: &str = "the plain HPA runs without the cron triggers that KEDA applies";

/// A workload and the environment that it runs in.
#[derive(Debug, Serialize)]
pub struct Setup {
    /// The autoscaler.
    #[serde(rename = "metadata", serialize_with = "data::metadata")]
    pub autoscaler: Autoscaler,
    /// The meaning of its spec, without metrics that have no history.
    #[serde(rename = "bounds", serialize_with = "data::bounds")]
    pub workload: Workload,
    /// Recorded demand and pods.
    #[serde(rename = "startUpSeconds", serialize_with = "data::start_up")]
    pub environment: Environment,
    /// The first evaluated minute.
    pub from: Timestamp,
    /// The end of the last evaluated minute.
    pub until: Timestamp,
    /// Everything that is assumed, one sentence each.
    pub assumptions: Vec<String>,
}

/// The part of the histories that is evaluated, and the start-up of pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvaluationOptions {
    /// Time from requesting a pod until it serves.
    pub start_up: Option<SignedDuration>,
    /// Beginning of the evaluation.
    pub from: Option<Timestamp>,
    /// History before the evaluation.
    pub warm_up: Option<SignedDuration>,
    /// End of the evaluation.
    pub until: Option<Timestamp>,
}

/// Reason for which there is nothing to back-test.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// The spec has no metrics.
    #[error(
        "a spec without metrics cannot be back-tested: no target says how much a replica can serve"
    )]
    NoMetrics,
    /// There is no history.
    #[error("--csv FILE is required: there is no demand to evaluate")]
    NoHistory,
    /// The evaluation begins before the history.
    #[error("--from: the history begins at {0}; give a longer one (--last), or a later time")]
    BeforeHistory(Timestamp),
    /// The history is too short to train and evaluate.
    #[error(
        "the history covers {0:#}; at least 72h are required: two days to train and one to evaluate (two weeks are better); \
         provide a longer history, or set a shorter --warm-up"
    )]
    TooShort(SignedDuration),
    /// The evaluated part has no minute.
    #[error("nothing to evaluate between {from} and {until}: the history covers {first} to {last}")]
    Nothing {
        /// Beginning of the evaluation.
        from: Timestamp,
        /// End of the evaluation.
        until: Timestamp,
        /// First sample.
        first: Timestamp,
        /// Last sample.
        last: Timestamp,
    },
    /// The evaluated part between two times is too long.
    #[error(
        "{days} days from {0} to {1} are too many to evaluate, expected at most {most}: set --from and --until",
        days = .1.duration_since(*.0).as_hours() / 24,
        most = LONGEST.as_hours() / 24
    )]
    TooLong(Timestamp, Timestamp),
    /// Several histories share no minute: the last begins at a time, the first ends at another.
    #[error(
        "nothing to evaluate: the evaluated parts of the histories have no minute in common, the last begins at {0} and the \
         first ends at {1}"
    )]
    NothingInCommon(Timestamp, Timestamp),
}

// === impl Setup ===

impl Setup {
    /// Adds to the assumptions the differences of a `converted` autoscaler, which may be compared with a plain HPA, and
    /// the `missing` histories.
    pub fn note_input(&mut self, converted: Vec<String>, missing: Vec<String>, is_compared: bool) {
        let crons = self.autoscaler.spec().crons.as_ref();
        let has_crons = crons.is_some_and(|crons| !crons.is_empty());
        // Among convertible kinds, only a ScaledObject has crons.
        if is_compared && has_crons && !converted.is_empty() {
            self.assumptions.push(WITHOUT_TRIGGERS.to_owned());
        }
        if !converted.is_empty() {
            manifest::preview(&mut self.autoscaler);
        }
        let about_input = converted.into_iter().chain(missing);
        self.assumptions.splice(0..0, about_input);
    }

    /// A workload in the environment of its histories.
    ///
    /// # Errors
    /// The histories are too short, or no metric has a target per replica.
    pub fn of(
        chosen: AutoscalerWorkload,
        histories: &[History],
        template: TemplateSource<'_>,
        options: EvaluationOptions,
    ) -> Result<Self, Error> {
        let AutoscalerWorkload {
            autoscaler,
            mut workload,
        } = chosen;
        let mut assumptions = inputs::without_history(&mut workload, histories);
        let template = template.template(&workload)?;
        require_target(&workload, &template)?;
        let start_up = options
            .start_up
            .or_else(|| written(&autoscaler))
            .unwrap_or(START_UP);
        let (from, until) =
            evaluated_span(histories, options, workload.floor.prediction.is_some())?;
        let first = histories.iter().filter_map(|h| h.recording.first()).min();
        let begin = from.checked_sub(LEAD_IN).unwrap_or(from);
        assumptions.extend(assumed(&workload, &template, start_up));
        let environment = Environment {
            metrics: metrics(&workload, histories),
            template: template.pod,
            start_up,
            // Starts at the first sample at the earliest, because no demand is known before it.
            begin: whole_minute(first.map_or(begin, |first| begin.max(first))),
        };
        Ok(Self {
            autoscaler,
            workload,
            environment,
            from,
            until,
            assumptions,
        })
    }

    /// Evaluates the span that all histories share, from the same first minute; returns its ends.
    ///
    /// # Errors
    /// The histories share no span.
    pub(crate) fn align(setups: &mut [Self]) -> Result<(Timestamp, Timestamp), SetupError> {
        let from = setups.iter().map(|setup| setup.from).max();
        let until = setups.iter().map(|setup| setup.until).min();
        let (from, until) = (from.unwrap_or_default(), until.unwrap_or_default());
        if minutes(from, until) == 0 {
            return Err(SetupError::NothingInCommon(from, until));
        }
        let begin = from.checked_sub(LEAD_IN).unwrap_or(from);
        // No run begins before the first sample of its own history.
        let begins = setups.iter().map(|setup| setup.environment.begin);
        let begin = begins.fold(begin, Timestamp::max);
        for setup in setups {
            (setup.from, setup.until) = (from, until);
            setup.environment.begin = begin;
        }
        Ok((from, until))
    }
}

/// Requires a metric with a target per replica.
fn require_target(workload: &Workload, template: &WorkloadTemplate) -> Result<(), Error> {
    let one = [template.pod.serving("one", Timestamp::UNIX_EPOCH)];
    let mut reason = None;
    for metric in &workload.metrics {
        match demand::target(metric, &one, None) {
            Ok(_) => return Ok(()),
            // An error, and not a reason to try the next metric: a flag or a manifest can add the request.
            Err(error @ TargetError::MissingRequest { .. }) => {
                return Err(template.refused(error).into());
            }
            Err(error) => reason = Some(error),
        }
    }
    Err(match reason {
        Some(error) => TemplateError::NoTarget(error).into(),
        None => SetupError::NoMetrics.into(),
    })
}

/// The lead time of the spec.
pub(crate) fn written(autoscaler: &Autoscaler) -> Option<SignedDuration> {
    let seconds = autoscaler.spec().prediction.as_ref()?.lead_time_seconds?;
    Some(SignedDuration::from_secs(seconds.into()))
}

/// The first evaluated minute and the end of the last one.
fn evaluated_span(
    histories: &[History],
    options: EvaluationOptions,
    learns: bool,
) -> Result<(Timestamp, Timestamp), SetupError> {
    let first = histories.iter().filter_map(|h| h.recording.first()).min();
    let last = histories.iter().filter_map(|h| h.recording.last()).max();
    let (first, last) = first.zip(last).ok_or(SetupError::NoHistory)?;
    if options.from.is_some_and(|from| from < first) {
        return Err(SetupError::BeforeHistory(first));
    }
    let length = last.duration_since(first);
    let warm_up = options
        .warm_up
        .map_or_else(|| warm_up(length, learns), Ok)?;
    let from = options.from.or_else(|| first.checked_add(warm_up).ok());
    let from = whole_minute(from.unwrap_or(last).max(first));
    let until = options.until.unwrap_or(last).min(last);
    if minutes(from, until) == 0 {
        return Err(SetupError::Nothing {
            from,
            until,
            first,
            last,
        });
    }
    if until.duration_since(from) > LONGEST {
        return Err(SetupError::TooLong(from, until));
    }
    Ok((from, until))
}

fn warm_up(length: SignedDuration, learns: bool) -> Result<SignedDuration, SetupError> {
    if !learns {
        return Ok(SignedDuration::ZERO);
    }
    if length >= LONG {
        return Ok(WARM_UP);
    }
    if length < LEAST_WARM_UP + DAY {
        return Err(SetupError::TooShort(length));
    }
    Ok(length.saturating_sub(LAST).max(LEAST_WARM_UP))
}

fn assumed(
    workload: &Workload,
    template: &WorkloadTemplate,
    start_up: SignedDuration,
) -> Vec<String> {
    let mut all = vec![
        format!(
            "a pod serves {start_up:#} after it is requested, and the pods share the demand evenly; {}",
            template.origin
        ),
        "the demand does not depend on how many pods serve".to_owned(),
    ];
    if workload.strategy == Strategy::Preview {
        all.push("scaleStrategy Auto instead of Preview".to_owned());
    }
    all
}

fn metrics(workload: &Workload, histories: &[History]) -> Vec<RecordedMetric> {
    let recorded = |metric: &MetricSpec| {
        let history = histories.iter().find(|h| h.metric == metric.identifier())?;
        Some(RecordedMetric {
            metric: metric.clone(),
            recording: history.recording.clone(),
        })
    };
    workload.metrics.iter().filter_map(recorded).collect()
}

/// The next full minute, so that rows have round times.
fn whole_minute(at: Timestamp) -> Timestamp {
    let seconds = MINUTE.as_secs();
    (at.as_second().div_euclid(seconds) + i64::from(at.as_second().rem_euclid(seconds) > 0))
        .checked_mul(seconds)
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(at)
}

/// Number of whole minutes of a span.
pub(crate) fn minutes(from: Timestamp, until: Timestamp) -> u32 {
    let whole = until.duration_since(from).as_secs() / MINUTE.as_secs();
    u32::try_from(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use foretide_domain::cron::Zone;

    use super::*;
    use crate::{runs::Runs, validate::Validator};
    use foretide_domain::sim;

    /// A workload of external demand with this prediction, two days of it to learn from.
    fn setup(prediction: &str, start_up: Option<i64>) -> Setup {
        let yaml = format!(
            "{{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, \
             metadata: {{name: web, namespace: shop}}, spec: {{scaleTargetRef: {{apiVersion: apps/v1, \
             kind: Deployment, name: web}}, minReplicas: 1, maxReplicas: 9, prediction: {prediction}, metrics: \
             [{{type: External, external: {{metric: {{name: queue}}, target: {{type: AverageValue, averageValue: 10}}}}}}]}}}}"
        );
        let documents = manifest::parse("test", &yaml).unwrap();
        let local = Zone::utc();
        let validator = Validator::new(&local, Timestamp::UNIX_EPOCH);
        let chosen = inputs::chosen_one(&documents, None, &validator).unwrap();
        let sample = |minute: i64| foretide_models::Sample {
            at: Timestamp::from_second(minute * 60).unwrap(),
            value: 40.0,
        };
        let history = History {
            metric: "external.queue".to_owned(),
            file: "test".to_owned(),
            recording: sim::Recording::new((0..=72 * 60).map(sample).collect()),
            notes: Vec::new(),
        };
        let options = EvaluationOptions {
            start_up: start_up.map(SignedDuration::from_secs),
            ..EvaluationOptions::default()
        };
        let template = TemplateSource {
            documents: &documents,
            requests: &[],
        };
        Setup::of(chosen, &[history], template, options).unwrap()
    }

    #[test]
    fn the_reported_lead_time_is_that_of_the_forecaster() {
        let naive = "predictionAlgorithm: {algorithmType: seasonalNaive, calibrate: false}";
        for (written, start_up, seconds, origin) in [
            ("", None, 120, "measured"),
            ("", Some(90), 120, "measured"),
            ("leadTimeSeconds: 60, ", None, 60, "spec"),
            ("leadTimeSeconds: 60, ", Some(300), 60, "spec"),
        ] {
            let setup = setup(&format!("{{{written}{naive}}}"), start_up);
            let (_, decision) = Runs::of(&setup).ours().minute();
            let grounds = decision.proposals.iter().find_map(|p| p.details.as_ref());
            let shown = grounds.unwrap().lead_time;
            let shown = (shown.span.as_secs(), shown.origin.as_str());
            assert_eq!(shown, (seconds, origin), "{written}{start_up:?}");
        }
    }

    #[test]
    fn the_warm_up_follows_from_the_length_of_the_history() {
        let hours = SignedDuration::from_hours;
        for (length, expected) in [
            (71, None),
            (72, Some(48)),
            (5 * 24, Some(48)),
            (8 * 24, Some(4 * 24)),
            (252, Some(7 * 24)),
            (30 * 24, Some(7 * 24)),
        ] {
            assert_eq!(
                warm_up(hours(length), true).ok(),
                expected.map(hours),
                "{length} h"
            );
        }
        assert_eq!(warm_up(hours(1), false), Ok(SignedDuration::ZERO));
    }

    #[test]
    fn the_evaluation_begins_on_a_full_minute() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (second, expected) in [(0, 0), (1, 60), (60, 60), (-61, -60)] {
            assert_eq!(whole_minute(at(second)), at(expected));
        }
    }
}
