//! The report of a back-test: the runs beside each other, and the bounds that they keep.

use foretide_domain::sim::Score;
use serde::{Serialize, Serializer};

use crate::{
    Error,
    runs::{RunResult, Runs, Watch, real},
    setup::Setup,
    sweep::{self, SweepRun},
    threshold::{Bound, Outcome},
};

/// The results of a back-test.
#[derive(Debug, Serialize)]
pub struct BacktestReport {
    /// The input of the runs.
    #[serde(flatten)]
    pub setup: Setup,
    /// The runs of Foretide and of the plain HPA.
    pub candidates: Candidates,
    /// The difference between the two.
    pub difference: Option<Difference>,
    /// One per quantile of a sweep.
    pub sweep: Vec<SweepRun>,
    /// One per bound.
    #[serde(rename = "failIf")]
    pub outcomes: Vec<Outcome>,
}

/// The runs that are compared.
#[derive(Debug)]
pub struct Candidates {
    /// The run of the autoscaler as written.
    pub ours: RunResult,
    /// The run of the plain HPA.
    pub plain: Option<RunResult>,
}

/// Figures of Foretide beside those of the plain HPA.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Minutes short of replicas more than those of the plain HPA.
    pub under_provisioned_minutes: i64,
    /// Replica-hours more than those of the plain HPA, in percent.
    pub replica_hours_percent: f64,
    /// The difference in one sentence.
    pub message: String,
}

/// Runs besides that of the autoscaler as written, and the bounds to check.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Set if a plain HPA runs, too.
    pub with_plain: bool,
    /// Quantiles that run, too.
    pub quantiles: Vec<f64>,
    /// Bounds on the score.
    pub bounds: Vec<Bound>,
}

// === impl BacktestReport ===

impl BacktestReport {
    /// Runs everything.
    ///
    /// # Errors
    /// A sweep is asked for and the forecast has no quantile, or `watch` stopped the runs.
    pub fn new(
        setup: Setup,
        comparison: &Comparison,
        watch: &mut Watch<'_>,
    ) -> Result<Self, Error> {
        let runs = Runs::of(&setup);
        let quantiles = &comparison.quantiles;
        if let Some(quantile) = quantiles.first() {
            runs.require_quantile(*quantile)?;
        }
        // The run of the baseline does not count, because nearly all time is spent on forecasts.
        let one = 1.0 / (real(quantiles.len()) + 1.0);
        let ours = runs.evaluate("Foretide", runs.ours(), &mut |done| watch(done * one))?;
        let plain = if comparison.with_plain {
            Some(runs.evaluate("plain HPA", runs.plain(), &mut |_| watch(one))?)
        } else {
            None
        };
        let mut sweep = sweep::runs(runs, quantiles, &mut |done| watch(one + done * (1.0 - one)))?;
        let baseline = plain.as_ref().map(|plain| &plain.score);
        for run in &mut sweep {
            run.more_percent = baseline.map(|plain| run.score.more_percent(plain));
        }
        let bounds = comparison.bounds.iter();
        Ok(Self {
            outcomes: bounds
                .map(|bound| bound.outcome(&ours.score, baseline))
                .collect(),
            difference: baseline.map(|plain| Difference::new(&ours.score, plain)),
            candidates: Candidates { ours, plain },
            sweep,
            setup,
        })
    }
}

// === impl Candidates ===

impl Candidates {
    /// Foretide and then the plain HPA.
    pub fn iter(&self) -> impl Iterator<Item = &RunResult> {
        [&self.ours].into_iter().chain(&self.plain)
    }
}

impl Serialize for Candidates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

// === impl Difference ===

impl Difference {
    fn new(ours: &Score, plain: &Score) -> Self {
        Self {
            under_provisioned_minutes: i64::from(ours.under) - i64::from(plain.under),
            replica_hours_percent: ours.more_percent(plain),
            message: ours.verdict(plain),
        }
    }
}
