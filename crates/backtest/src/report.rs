//! The report of a back-test: the runs beside each other, and the bounds that they keep.

use crate::{
    Error,
    runs::{RunResult, Runs, Watch, real},
    setup::Setup,
    sweep::{self, SweepRun},
    threshold::{Bound, Outcome},
};

/// The results of a back-test.
#[derive(Debug)]
pub struct BacktestReport {
    /// The input of the runs.
    pub setup: Setup,
    /// The run of the autoscaler as written.
    pub ours: RunResult,
    /// The run of the plain HPA.
    pub plain: Option<RunResult>,
    /// One per quantile of a sweep.
    pub sweep: Vec<SweepRun>,
    /// One per bound.
    pub outcomes: Vec<Outcome>,
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
        let sweep = sweep::runs(runs, quantiles, &mut |done| watch(one + done * (1.0 - one)))?;
        let plain_score = plain.as_ref().map(|plain| &plain.score);
        let bounds = comparison.bounds.iter();
        let outcomes = bounds.map(|bound| bound.outcome(&ours.score, plain_score));
        Ok(Self {
            outcomes: outcomes.collect(),
            ours,
            plain,
            sweep,
            setup,
        })
    }

    /// The runs of Foretide and of the plain HPA.
    pub fn results(&self) -> impl Iterator<Item = &RunResult> {
        [&self.ours].into_iter().chain(&self.plain)
    }
}
