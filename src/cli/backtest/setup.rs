//! The input of a back-test: the workload, its recorded demand, its pods, and the evaluated minutes.
//!
//! Each assumption is returned as a sentence. A history too short to train and evaluate is an error.

use foretide_crds::Prediction;
use foretide_domain::{
    demand::{self, TargetError},
    forecast::Refused,
    hpa::MetricSpec,
    lead_time::LeadTime,
    proposal::Reason,
    sim::{self, BuiltForecaster, Environment, MINUTE, RecordedMetric, Run},
    workload::{Strategy, Workload},
};
use jiff::{SignedDuration, Timestamp};

use super::{BacktestArgs, Baseline, Failure};
use crate::cli::{
    cluster,
    context::{CommandContext, Progress},
    history::{Reading, parse_duration},
    inputs::{self, AutoscalerWorkload, History, requests_unknown},
    manifest,
    template::{TemplateSource, WorkloadTemplate},
};
use foretide_api::{
    autoscaler::Autoscaler,
    validation::{self, WorkloadFacts},
};

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
#[derive(Debug)]
pub(in crate::cli) struct BacktestSetup {
    pub(in crate::cli) autoscaler: Autoscaler,
    pub(in crate::cli) workload: Workload,
    pub(in crate::cli) environment: Environment,
    /// The first evaluated minute.
    pub(in crate::cli) from: Timestamp,
    /// The end of the last evaluated minute.
    pub(in crate::cli) until: Timestamp,
    pub(in crate::cli) assumptions: Vec<String>,
}

/// The longest start-up: a workload that takes longer to start is not scaled by its load.
const START_UP_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The flags that select the evaluated part of the histories.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct EvaluationOptions {
    pub(in crate::cli) start_up: Option<SignedDuration>,
    pub(in crate::cli) from: Option<Timestamp>,
    pub(in crate::cli) warm_up: Option<SignedDuration>,
    pub(in crate::cli) until: Option<Timestamp>,
}

/// Reads the time that a pod takes to start.
pub(super) fn parse_start_up(text: &str) -> Result<SignedDuration, String> {
    let start_up = parse_duration(text)?;
    if start_up > START_UP_MAX {
        return Err(format!(
            "expected at most a day, such as 90s or 5m, got {text:?}"
        ));
    }
    Ok(start_up)
}

// === impl BacktestSetup ===

impl BacktestSetup {
    /// The input of a command, with notes on the reading of its histories.
    pub(super) fn read(
        args: &BacktestArgs,
        context: &CommandContext,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(Self, String), Failure> {
        let runtime = cluster::runtime()?;
        let mut source = args.inputs.source(&runtime, &context.machine)?;
        let name = args.inputs.name.as_deref();
        let mut chosen = inputs::chosen_one(&source.documents, name, context)?;
        // The recorded history ends at the present.
        let until = args
            .until
            .map_or(context.now, |until| until.min(context.now));
        let histories = source.histories(&mut chosen, &mut Reading { until, progress })?;
        let options = EvaluationOptions {
            start_up: args.start_up,
            from: args.from,
            warm_up: args.warm_up,
            until: args.until,
        };
        let converted = std::mem::take(&mut source.converted);
        let templates = source.templates(&chosen.workload)?;
        let mut setup = Self::of(chosen, &histories.read, templates, options)?;
        setup.note_input(converted, histories.missing, args.compare);
        Ok((setup, histories.notes))
    }

    /// Adds to the assumptions the differences of a `converted` autoscaler, and the `missing` histories.
    pub(super) fn note_input(
        &mut self,
        converted: Vec<String>,
        missing: Vec<String>,
        compare: Baseline,
    ) {
        let crons = self.autoscaler.spec().crons.as_ref();
        let has_crons = crons.is_some_and(|crons| !crons.is_empty());
        // Among convertible kinds, only a ScaledObject has crons.
        if compare == Baseline::Hpa && has_crons && !converted.is_empty() {
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
    pub(in crate::cli) fn of(
        chosen: AutoscalerWorkload,
        histories: &[History],
        template: TemplateSource<'_>,
        options: EvaluationOptions,
    ) -> Result<Self, Failure> {
        let AutoscalerWorkload {
            autoscaler,
            mut workload,
        } = chosen;
        let mut assumptions = inputs::without_history(&mut workload, histories);
        let template = template.template(&workload)?;
        require_target(&workload, &template)?;
        let start_up = start_up(&autoscaler, options.start_up);
        let (from, until) = evaluated_span(histories, options, workload.prediction.is_some())?;
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

    /// The run of the autoscaler as written, in strategy Auto.
    pub(in crate::cli) fn ours(&self) -> Run<'_> {
        self.predicting(self.autoscaler.spec().prediction.as_ref())
    }

    /// The run of the autoscaler with forecasts of another quantile.
    pub(super) fn with_quantile(&self, quantile: f64) -> Run<'_> {
        self.predicting(self.at_quantile(quantile).as_ref())
    }

    /// The run of the autoscaler as one of those that share a budget.
    pub(super) fn in_budget(&self) -> Run<'_> {
        let prediction = self.autoscaler.spec().prediction.as_ref();
        self.built_by(|target| built(prediction, self.facts(target, true)))
    }

    /// Returns whether the budget chooses the quantile of the autoscaler.
    pub(super) fn shares_budget(&self) -> bool {
        let prediction = self.autoscaler.spec().prediction.as_ref();
        let priced = |target: Option<f64>| {
            let facts = self.facts(target, true);
            let algorithm = prediction.map(|prediction| validation::algorithm(prediction, facts));
            algorithm.is_some_and(|algorithm| algorithm.is_ok_and(|it| validation::is_priced(&it)))
        };
        self.environment.targets().into_iter().any(priced)
    }

    fn at_quantile(&self, quantile: f64) -> Option<Prediction> {
        let prediction = self.autoscaler.spec().prediction.clone()?;
        Some(Prediction {
            quantile: Some(quantile),
            max_under_provisioned_percent: None,
            ..prediction
        })
    }

    /// Requires a forecast that has a quantile.
    ///
    /// # Errors
    /// There is no forecast, or its algorithm has no quantile.
    pub(super) fn require_quantile(&self, quantile: f64) -> Result<(), Failure> {
        let prediction = self.at_quantile(quantile).ok_or_else(|| {
            Failure::usage("--sweep: expected spec.prediction, whose quantile is varied")
        })?;
        // Facts of the workload do not decide whether the algorithm takes a quantile.
        let algorithm = validation::algorithm(&prediction, WorkloadFacts::default());
        algorithm
            .map(drop)
            .map_err(|violation| Failure::usage(format!("--sweep: {violation}")))
    }

    fn predicting(&self, prediction: Option<&Prediction>) -> Run<'_> {
        self.built_by(|target| built(prediction, self.facts(target, false)))
    }

    fn built_by(&self, built: impl Fn(Option<f64>) -> BuiltForecaster) -> Run<'_> {
        let targets = self.environment.targets().into_iter();
        let forecasters = targets.map(built).collect();
        let lead_time = LeadTime::of(written(&self.autoscaler), Some(self.environment.start_up));
        Run::new(&self.environment, self.workload.clone(), forecasters).with_lead_time(lead_time)
    }

    /// The measurements that the controller would have.
    fn facts(&self, per_replica: Option<f64>, shares_budget: bool) -> WorkloadFacts {
        WorkloadFacts {
            lead_time: Some(self.environment.start_up),
            per_replica,
            shares_budget,
            not_divided: false,
        }
    }

    /// The run of the plain HPA: without prediction and crons.
    pub(in crate::cli) fn plain(&self) -> Run<'_> {
        Run::new(
            &self.environment,
            sim::plain(self.workload.clone()),
            Vec::new(),
        )
    }

    /// Evaluates the span that all histories share, from the same first minute.
    ///
    /// # Errors
    /// The histories share no span.
    pub(super) fn align(setups: &mut [Self]) -> Result<(), Failure> {
        let from = setups.iter().map(|setup| setup.from).max();
        let until = setups.iter().map(|setup| setup.until).min();
        let (from, until) = (from.unwrap_or_default(), until.unwrap_or_default());
        if minutes(from, until) == 0 {
            return Err(Failure::usage(format!(
                "nothing to evaluate: the evaluated parts of the histories have no minute in common, the last begins at \
                 {from} and the first ends at {until}"
            )));
        }
        let begin = from.checked_sub(LEAD_IN).unwrap_or(from);
        // No run begins before the first sample of its own history.
        let begins = setups.iter().map(|setup| setup.environment.begin);
        let begin = begins.fold(begin, Timestamp::max);
        for setup in setups {
            (setup.from, setup.until) = (from, until);
            setup.environment.begin = begin;
        }
        Ok(())
    }

    /// Returns the number of minutes before the first evaluated one.
    pub(in crate::cli) fn lead_in(&self) -> u32 {
        minutes(self.environment.begin, self.from)
    }

    /// Returns the number of evaluated minutes.
    pub(in crate::cli) fn minutes(&self) -> u32 {
        minutes(self.from, self.until)
    }
}

/// The forecaster of a metric.
fn built(prediction: Option<&Prediction>, facts: WorkloadFacts) -> BuiltForecaster {
    let prediction = prediction.ok_or_else(|| Refused::new(Reason::Pending, "no prediction"))?;
    validation::algorithm(prediction, facts)
        .and_then(validation::build)
        .map_err(|violation| Refused::new(Reason::InvalidSpec, violation.to_string()))
}

/// Requires a metric with a target per replica.
fn require_target(workload: &Workload, template: &WorkloadTemplate) -> Result<(), Failure> {
    let one = [template.pod.serving("one", Timestamp::UNIX_EPOCH)];
    let mut reason = None;
    for metric in &workload.metrics {
        match demand::target(metric, &one, None) {
            Ok(_) => return Ok(()),
            // An error, and not a reason to try the next metric: a flag or a manifest can add the request.
            Err(error @ TargetError::MissingRequest { .. }) => {
                return Err(requests_unknown(template, &error));
            }
            Err(error) => reason = Some(error),
        }
    }
    Err(match reason {
        Some(error) => Failure::invalid(error),
        None => Failure::invalid(
            "a spec without metrics cannot be back-tested: no target says how much a replica can serve",
        ),
    })
}

fn start_up(autoscaler: &Autoscaler, asked: Option<SignedDuration>) -> SignedDuration {
    asked.or_else(|| written(autoscaler)).unwrap_or(START_UP)
}

/// The lead time of the spec.
fn written(autoscaler: &Autoscaler) -> Option<SignedDuration> {
    let seconds = autoscaler.spec().prediction.as_ref()?.lead_time_seconds?;
    Some(SignedDuration::from_secs(seconds.into()))
}

/// The first evaluated minute and the end of the last one.
fn evaluated_span(
    histories: &[History],
    options: EvaluationOptions,
    learns: bool,
) -> Result<(Timestamp, Timestamp), Failure> {
    let first = histories.iter().filter_map(|h| h.recording.first()).min();
    let last = histories.iter().filter_map(|h| h.recording.last()).max();
    let (first, last) = first
        .zip(last)
        .ok_or_else(|| Failure::usage("--csv FILE is required: there is no demand to evaluate"))?;
    if options.from.is_some_and(|from| from < first) {
        return Err(Failure::usage(format!(
            "--from: the history begins at {first}; give a longer one (--last), or a later time"
        )));
    }
    let length = last.duration_since(first);
    let warm_up = options
        .warm_up
        .map_or_else(|| warm_up(length, learns), Ok)?;
    let from = options.from.or_else(|| first.checked_add(warm_up).ok());
    let from = whole_minute(from.unwrap_or(last).max(first));
    let until = options.until.unwrap_or(last).min(last);
    if minutes(from, until) == 0 {
        return Err(Failure::usage(format!(
            "nothing to evaluate between {from} and {until}: the history covers {first} to {last}"
        )));
    }
    if until.duration_since(from) > LONGEST {
        return Err(Failure::usage(format!(
            "{} days from {from} to {until} are too many to evaluate, expected at most {}: set --from and --until",
            until.duration_since(from).as_hours() / 24,
            LONGEST.as_hours() / 24
        )));
    }
    Ok((from, until))
}

fn warm_up(length: SignedDuration, learns: bool) -> Result<SignedDuration, Failure> {
    if !learns {
        return Ok(SignedDuration::ZERO);
    }
    if length >= LONG {
        return Ok(WARM_UP);
    }
    if length < LEAST_WARM_UP + DAY {
        return Err(Failure::invalid(format!(
            "the history covers {length:#}; at least 72h are required: two days to train and one to evaluate \
             (two weeks are better); provide a longer history, or set a shorter --warm-up"
        )));
    }
    Ok(length.saturating_sub(LAST).max(LEAST_WARM_UP))
}

fn assumed(
    workload: &Workload,
    template: &WorkloadTemplate,
    start_up: SignedDuration,
) -> Vec<String> {
    let mut all = vec![format!(
        "a pod serves {start_up:#} after it is requested, and the pods share the demand evenly; {}",
        template.origin
    )];
    all.push("the demand does not depend on how many pods serve".to_owned());
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
    let up = at.as_second().div_euclid(seconds) + i64::from(at.as_second().rem_euclid(seconds) > 0);
    up.checked_mul(seconds)
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(at)
}

fn minutes(from: Timestamp, until: Timestamp) -> u32 {
    let whole = until.duration_since(from).as_secs() / MINUTE.as_secs();
    u32::try_from(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use foretide_domain::cron::Zone;

    use super::*;
    use crate::cli::output::Screen;

    /// A workload of external demand with this prediction, two days of it to learn from.
    fn setup(prediction: &str, start_up: Option<i64>) -> BacktestSetup {
        let yaml = format!(
            "{{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, \
             metadata: {{name: web, namespace: shop}}, spec: {{scaleTargetRef: {{apiVersion: apps/v1, \
             kind: Deployment, name: web}}, minReplicas: 1, maxReplicas: 9, prediction: {prediction}, metrics: \
             [{{type: External, external: {{metric: {{name: queue}}, target: {{type: AverageValue, averageValue: 10}}}}}}]}}}}"
        );
        let documents = crate::cli::manifest::parse("test", &yaml).unwrap();
        let context = CommandContext {
            screen: Screen::default(),
            local: Zone::utc(),
            now: Timestamp::UNIX_EPOCH,
            machine: foretide_base::machine::Machine::system(),
        };
        let chosen = inputs::chosen_one(&documents, None, &context).unwrap();
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
        BacktestSetup::of(chosen, &[history], template, options).unwrap()
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
            let (_, decision) = setup.ours().minute();
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
