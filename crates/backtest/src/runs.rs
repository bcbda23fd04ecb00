//! The runs of a back-test: the same minutes with the autoscaler as written, with another quantile, in a budget, or as a
//! plain HPA.

use std::ops::ControlFlow;

use foretide_crds::Prediction as PredictionSpec;
use foretide_domain::{
    autoscale::Decision,
    forecast::Refused,
    lead_time::LeadTime,
    proposal::Reason,
    sim::{self, Minute, Run, Score},
};
use foretide_models::{Forecast, Prediction};
use serde::Serialize;

use crate::{
    data,
    forecast::forecaster,
    setup::{self, Setup},
    worst::Shortages,
};
use foretide_api::validation::{self, WorkloadFacts};

/// The runs that a set-up allows.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    setup: &'a Setup,
    prediction: Option<&'a PredictionSpec>,
}

/// The result of one run of Foretide or of the baseline.
#[derive(Debug, Default, Serialize)]
pub struct RunResult {
    /// Name of the run.
    pub name: &'static str,
    /// Totals over the evaluated minutes.
    #[serde(flatten, serialize_with = "data::score")]
    pub score: Score,
    /// Worst minutes and hours, known after the last minute.
    #[serde(flatten)]
    pub shortages: Shortages,
    /// Evaluated minutes.
    #[serde(skip)]
    pub minutes: Vec<Minute>,
    /// The forecast for each minute, made one lead time before, in replicas.
    #[serde(skip)]
    pub forecasts: Vec<Prediction>,
    /// The quantile of the forecast in force, if it has one.
    #[serde(skip)]
    pub quantile: Option<f64>,
}

/// Reason for which runs cannot be made or compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The runs were stopped by their [`Watch`].
    #[error("the back-test was stopped before its end")]
    Stopped,
    /// No other quantile can be tried: the autoscaler has no forecast.
    #[error("--sweep: expected spec.prediction, whose quantile is varied")]
    NoPrediction,
    /// No other quantile can be tried: the algorithm has none.
    #[error("--sweep: {0}")]
    NoQuantile(String),
    /// No autoscaler leaves its quantile to a budget.
    #[error(
        "--max-cost-percent: expected an autoscaler with spec.prediction of the algorithm auto, without quantile and \
         maxUnderProvisionedPercent, and with a target per replica"
    )]
    NotShared,
    /// A bound is relative to a baseline that does not run.
    #[error("--fail-if '{0}' needs --compare hpa: it is relative to the plain HPA")]
    NoBaseline(String),
}

/// Called with the fraction that is done; a break stops the runs.
pub type Watch<'a> = dyn FnMut(f64) -> ControlFlow<()> + 'a;

// === impl RunResult ===

impl RunResult {
    /// The result of a run before its first minute.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Advances the run by one minute and records it.
    pub fn add(&mut self, run: &mut Run<'_>) -> Decision {
        let (minute, decision) = run.minute();
        self.score.add(&minute, &decision);
        self.minutes.push(minute);
        self.forecasts.extend(run.forecast_for(minute.at));
        let peak = run.forecast().and_then(Forecast::direct);
        // The last known quantile: in the last minute there may be no forecast.
        self.quantile = peak.map(|peak| peak.quantile).or(self.quantile);
        decision
    }
}

// === impl Runs ===

impl<'a> Runs<'a> {
    /// The runs of a set-up.
    pub fn of(setup: &'a Setup) -> Self {
        let prediction = setup.autoscaler.spec().prediction.as_ref();
        Self { setup, prediction }
    }

    /// The run of the autoscaler as written, in strategy Auto.
    pub fn ours(self) -> Run<'a> {
        self.predicting(self.prediction, false)
    }

    /// The run of the autoscaler with forecasts of another quantile.
    pub(crate) fn with_quantile(self, quantile: f64) -> Run<'a> {
        self.predicting(self.at_quantile(quantile).as_ref(), false)
    }

    /// The run of the autoscaler as one of those that share a budget.
    pub(crate) fn in_budget(self) -> Run<'a> {
        self.predicting(self.prediction, true)
    }

    /// The run of the plain HPA: without prediction and crons.
    pub fn plain(self) -> Run<'a> {
        let workload = sim::plain(self.setup.workload.clone());
        Run::new(&self.setup.environment, workload, Vec::new())
    }

    /// The time from asking for a pod until it serves: that of the spec, or that of the environment.
    pub fn lead_time(self) -> LeadTime {
        let written = setup::written(&self.setup.autoscaler);
        LeadTime::of(written, Some(self.setup.environment.start_up))
    }

    /// Returns the number of minutes before the first evaluated one.
    pub fn lead_in(self) -> u32 {
        setup::minutes(self.setup.environment.begin, self.setup.from)
    }

    /// Returns the number of evaluated minutes.
    pub fn minutes(self) -> u32 {
        setup::minutes(self.setup.from, self.setup.until)
    }

    /// Returns whether a budget chooses the quantile of the autoscaler.
    pub fn shares_budget(self) -> bool {
        let priced = |target: Option<f64>| {
            let facts = self.facts(target, true);
            let algorithm = self.prediction.map(|it| validation::algorithm(it, facts));
            algorithm.is_some_and(|algorithm| algorithm.is_ok_and(|it| validation::is_priced(&it)))
        };
        self.setup.environment.targets().into_iter().any(priced)
    }

    /// Requires a forecast that has a quantile.
    ///
    /// # Errors
    /// There is no forecast, or its algorithm has no quantile.
    pub(crate) fn require_quantile(self, quantile: f64) -> Result<(), RunError> {
        let prediction = self.at_quantile(quantile).ok_or(RunError::NoPrediction)?;
        // Facts of the workload do not decide whether the algorithm takes a quantile.
        validation::algorithm(&prediction, WorkloadFacts::default())
            .map(drop)
            .map_err(|violation| RunError::NoQuantile(violation.to_string()))
    }

    /// Evaluates all minutes of a run.
    pub(crate) fn evaluate(
        self,
        name: &'static str,
        run: Run<'a>,
        watch: &mut Watch<'_>,
    ) -> Result<RunResult, RunError> {
        let mut result = RunResult::new(name);
        self.replay(run, watch, |run| {
            result.add(run);
        })?;
        result.shortages = Shortages::new(&result.score, &result.minutes, &self.setup.environment);
        Ok(result)
    }

    /// Runs up to the first evaluated minute, and gives each evaluated one to `minute`.
    pub(crate) fn replay(
        self,
        mut run: Run<'a>,
        watch: &mut Watch<'_>,
        mut minute: impl FnMut(&mut Run<'a>),
    ) -> Result<(), RunError> {
        for _ in 0..self.lead_in() {
            run.minute();
        }
        let all = self.minutes();
        for index in 0..all {
            minute(&mut run);
            if watch(f64::from(index + 1) / f64::from(all)).is_break() {
                return Err(RunError::Stopped);
            }
        }
        Ok(())
    }

    fn at_quantile(self, quantile: f64) -> Option<PredictionSpec> {
        Some(PredictionSpec {
            quantile: Some(quantile),
            max_under_provisioned_percent: None,
            ..self.prediction?.clone()
        })
    }

    fn predicting(self, prediction: Option<&PredictionSpec>, shares_budget: bool) -> Run<'a> {
        let Setup {
            environment,
            workload,
            ..
        } = self.setup;
        let forecasters = environment
            .targets()
            .into_iter()
            .map(|target| match prediction {
                Some(prediction) => forecaster(prediction, self.facts(target, shares_budget)),
                None => Err(Refused::new(Reason::Pending, "no prediction")),
            })
            .collect();
        Run::new(environment, workload.clone(), forecasters).with_lead_time(self.lead_time())
    }

    /// The measurements that the controller would have.
    fn facts(self, per_replica: Option<f64>, shares_budget: bool) -> WorkloadFacts {
        WorkloadFacts {
            lead_time: Some(self.setup.environment.start_up),
            per_replica,
            shares_budget,
            not_divided: false,
        }
    }
}

/// A count of runs, for fractions of them.
pub(crate) fn real(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
