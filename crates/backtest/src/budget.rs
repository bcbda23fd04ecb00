//! Several autoscalers that share a budget, as those of a namespace do, beside the same ones as written.
//!
//! The runs that share it advance together, minute by minute, and every five minutes the price is computed from what
//! their forecasters measured up to then: by the rule of the controller.

use std::{iter::Sum, ops::ControlFlow};

use foretide_domain::sim::Run;
use foretide_models::{SharedPrice, TradeOffs};

use crate::{
    Error,
    runs::{RunResult, Runs, real},
    setup::Setup,
};

/// Period of the computation of the price, in minutes: as in the controller.
const PRICE_MINUTES: u32 = 5;
/// The names of the runs.
pub const RUNS: [&str; 3] = ["plain HPA", "as written", "in the budget"];

/// The results of a back-test with a budget.
#[derive(Debug)]
pub struct BudgetReport {
    /// Replica-hours more than those of plain HPAs, in percent, that are allowed.
    pub percent: f64,
    /// The autoscalers.
    pub setups: Vec<Setup>,
    /// Results of each autoscaler, in the order of [`RUNS`].
    pub results: Vec<[RunResult; 3]>,
    /// The price at the end.
    pub price: Option<SharedPrice>,
}

/// The totals of a run, of one autoscaler or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Evaluated minutes.
    pub minutes: u32,
    /// Minutes short of replicas.
    pub short: u32,
    /// Requested replicas.
    pub replica_hours: f64,
}

/// No autoscaler leaves its quantile to the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--max-cost-percent: expected an autoscaler with spec.prediction of the algorithm auto, without quantile and \
     maxUnderProvisionedPercent, and with a target per replica"
)]
pub struct BudgetError;

/// Runs all autoscalers together, at one price.
fn together(
    runs: &[Runs<'_>],
    percent: f64,
    watch: &mut dyn FnMut(f64),
) -> (Vec<RunResult>, Option<SharedPrice>) {
    let mut shared: Vec<Run<'_>> = runs.iter().map(|runs| runs.in_budget()).collect();
    let mut results: Vec<_> = runs.iter().map(|_| RunResult::new(RUNS[2])).collect();
    let shares: Vec<bool> = runs.iter().map(|runs| runs.shares_budget()).collect();
    let mut price = None;
    let Some(first) = runs.first() else {
        return (results, price);
    };
    let (lead_in, all) = (first.lead_in(), first.lead_in() + first.minutes());
    for minute in 0..all {
        if minute % PRICE_MINUTES == 0 {
            let sharing = shared.iter().zip(&shares).filter(|(_, shares)| **shares);
            let known: Vec<TradeOffs> = sharing.flat_map(|(run, _)| run.trade_offs()).collect();
            // As in the controller: the last price counts until a new one can be measured.
            price = SharedPrice::within(percent, &known).or(price);
        }
        for (run, result) in shared.iter_mut().zip(&mut results) {
            if let Some(shared) = price {
                run.set_price(shared.price);
            }
            if minute < lead_in {
                run.minute();
            } else {
                result.add(run);
            }
        }
        watch(f64::from(minute + 1) / f64::from(all));
    }
    (results, price)
}

// === impl BudgetReport ===

impl BudgetReport {
    /// Runs all autoscalers over the span that their histories share; `watch` is called with the fraction that is done.
    ///
    /// # Errors
    /// No autoscaler leaves its quantile to the budget, or the histories share no span.
    pub fn new(
        percent: f64,
        mut setups: Vec<Setup>,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Self, Error> {
        if !setups.iter().any(|setup| Runs::of(setup).shares_budget()) {
            return Err(BudgetError.into());
        }
        Setup::align(&mut setups)?;
        let runs: Vec<_> = setups.iter().map(Runs::of).collect();
        // The runs as plain HPAs take next to no time.
        let one = 0.5 / real(runs.len());
        let mut alone = Vec::new();
        for (index, runs) in runs.iter().enumerate() {
            let plain = runs.evaluate(RUNS[0], runs.plain(), &mut |_| ControlFlow::Continue(()))?;
            let written = runs.evaluate(RUNS[1], runs.ours(), &mut |done| {
                watch(one * (real(index) + done));
                ControlFlow::Continue(())
            })?;
            alone.push((plain, written));
        }
        let (sharing, price) = together(&runs, percent, &mut |done| watch(0.5 + 0.5 * done));
        let all = alone.into_iter().zip(sharing);
        let results = all.map(|((plain, written), sharing)| [plain, written, sharing]);
        Ok(Self {
            percent,
            results: results.collect(),
            price,
            setups,
        })
    }

    /// The totals over all autoscalers, in the order of [`RUNS`].
    #[must_use]
    pub fn sums(&self) -> [Totals; 3] {
        [0, 1, 2].map(|run| {
            let each = self.results.iter().filter_map(|results| results.get(run));
            each.map(Totals::of).sum()
        })
    }

    /// Autoscalers without a part in the budget, and the assumptions, each sentence once.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let without_share = self
            .setups
            .iter()
            .filter(|setup| !Runs::of(setup).shares_budget());
        let left = without_share.map(|setup| {
            let name = setup.autoscaler.name();
            format!("{name} takes no part in the budget: its spec chooses its quantile, or its algorithm has none")
        });
        let assumptions = self.setups.iter().flat_map(|setup| &setup.assumptions);
        let assumed = assumptions.map(|assumption| format!("assumed: {assumption}"));
        let mut remarks = Vec::new();
        for remark in left.chain(assumed) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }
}

// === impl Totals ===

impl Totals {
    /// The totals of one run.
    #[must_use]
    pub fn of(result: &RunResult) -> Self {
        Self {
            minutes: result.score.minutes,
            short: result.score.under,
            replica_hours: result.score.replica_hours(),
        }
    }

    /// Returns the part of the minutes short of replicas, in percent.
    #[must_use]
    pub fn short_percent(self) -> f64 {
        100.0 * f64::from(self.short) / f64::from(self.minutes.max(1))
    }

    /// Returns how many percent more replica-hours this run has than another.
    #[must_use]
    pub fn more_percent(self, other: Self) -> f64 {
        if other.replica_hours > 0.0 {
            100.0 * (self.replica_hours / other.replica_hours - 1.0)
        } else {
            0.0
        }
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| Self {
            minutes: sum.minutes + one.minutes,
            short: sum.short + one.short,
            replica_hours: sum.replica_hours + one.replica_hours,
        })
    }
}
