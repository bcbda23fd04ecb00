//! Several autoscalers that share a budget, as those of a namespace do, beside the same ones as written.
//!
//! The runs that share it advance together, minute by minute, and every five minutes the price is computed from what
//! their forecasters measured up to then: by the rule of the controller.

use std::ops::ControlFlow;

use foretide_domain::sim::{Run, Score};
use foretide_models::{SharedPrice, TradeOffs};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Error, Metadata, data,
    runs::{RunError, RunResult, Runs, real},
    setup::Setup,
};

/// Period of the computation of the price, in minutes: as in the controller.
const PRICE_MINUTES: u32 = 5;
/// The names of the runs.
pub const RUNS: [&str; 3] = ["plain HPA", "as written", "in the budget"];

/// The results of a back-test with a budget.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// Replica-hours more than those of plain HPAs, in percent, that are allowed.
    pub max_cost_percent: f64,
    /// The first evaluated minute.
    pub from: Timestamp,
    /// The end of the last evaluated minute.
    pub until: Timestamp,
    /// The price at the end.
    pub price: Option<f64>,
    /// Results of each autoscaler.
    pub autoscalers: Vec<BudgetedAutoscaler>,
    /// Results of all, in the order of [`RUNS`].
    pub sum: [Totals; 3],
    /// Autoscalers without a part in the budget, and the assumptions, each sentence once.
    pub remarks: Vec<String>,
}

/// The results of one autoscaler.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetedAutoscaler {
    /// Name of the autoscaler.
    pub metadata: Metadata,
    /// Set if the budget chooses its quantile.
    pub shares_budget: bool,
    /// Runs in the order of [`RUNS`].
    pub candidates: [BudgetRun; 3],
}

/// One run of an autoscaler.
#[derive(Debug, Serialize)]
pub struct BudgetRun {
    /// Name of the run.
    pub name: &'static str,
    /// The last quantile of the forecast, if it has one.
    pub quantile: Option<f64>,
    /// Totals over the evaluated minutes.
    #[serde(serialize_with = "data::score")]
    pub score: Score,
}

/// The totals of a run over all autoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Name of the run.
    pub name: &'static str,
    /// Evaluated minutes.
    #[serde(skip)]
    pub minutes: u32,
    /// Minutes short of replicas.
    pub under_provisioned_minutes: u32,
    /// Requested replicas.
    pub replica_hours: f64,
    /// Replica-hours more than those of the plain HPAs, in percent.
    pub replica_hours_percent: f64,
}

/// Runs all autoscalers together, at one price.
fn together(
    runs: &[Runs<'_>],
    percent: f64,
    watch: &mut dyn FnMut(f64),
) -> (Vec<RunResult>, Option<SharedPrice>) {
    let mut shared: Vec<Run<'_>> = runs.iter().map(|runs| runs.in_budget()).collect();
    let mut results: Vec<_> = runs.iter().map(|_| RunResult::new(RUNS[2])).collect();
    let takes_part: Vec<bool> = runs.iter().map(|runs| runs.shares_budget()).collect();
    let mut price = None;
    let Some(first) = runs.first() else {
        return (results, price);
    };
    let (lead_in, all) = (first.lead_in(), first.lead_in() + first.minutes());
    for minute in 0..all {
        if minute % PRICE_MINUTES == 0 {
            let sharing = shared
                .iter()
                .zip(&takes_part)
                .filter(|(_, takes_part)| **takes_part);
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
        max_cost_percent: f64,
        mut setups: Vec<Setup>,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Self, Error> {
        if !setups.iter().any(|setup| Runs::of(setup).shares_budget()) {
            return Err(RunError::NotShared.into());
        }
        let (from, until) = Setup::align(&mut setups)?;
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
        let (sharing, price) =
            together(&runs, max_cost_percent, &mut |done| watch(0.5 + 0.5 * done));
        let all = setups.iter().zip(alone).zip(sharing);
        let autoscalers: Vec<_> = all
            .map(|((setup, (plain, written)), sharing)| BudgetedAutoscaler {
                metadata: Metadata::from(&setup.autoscaler),
                shares_budget: Runs::of(setup).shares_budget(),
                candidates: [plain, written, sharing].map(BudgetRun::from),
            })
            .collect();
        Ok(Self {
            max_cost_percent,
            from,
            until,
            price: price.map(|shared| shared.price),
            sum: Totals::of_all(&autoscalers),
            remarks: remarks(&setups, &autoscalers),
            autoscalers,
        })
    }
}

/// Autoscalers without a part in the budget, and the assumptions, each sentence once.
fn remarks(setups: &[Setup], autoscalers: &[BudgetedAutoscaler]) -> Vec<String> {
    let left = autoscalers.iter().filter(|it| !it.shares_budget).map(|it| {
        let name = &it.metadata.name;
        format!("{name} takes no part in the budget: its spec chooses its quantile, or its algorithm has none")
    });
    let assumptions = setups.iter().flat_map(|setup| &setup.assumptions);
    let assumed = assumptions.map(|assumption| format!("assumed: {assumption}"));
    let mut remarks = Vec::new();
    for remark in left.chain(assumed) {
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
    remarks
}

// === impl BudgetRun ===

impl From<RunResult> for BudgetRun {
    fn from(result: RunResult) -> Self {
        Self {
            name: result.name,
            quantile: result.quantile,
            score: result.score,
        }
    }
}

// === impl Totals ===

impl Totals {
    /// The totals of each run, in the order of [`RUNS`].
    fn of_all(autoscalers: &[BudgetedAutoscaler]) -> [Self; 3] {
        let mut sums = RUNS.map(|name| Self {
            name,
            ..Self::default()
        });
        for autoscaler in autoscalers {
            for (sum, BudgetRun { score, .. }) in sums.iter_mut().zip(&autoscaler.candidates) {
                sum.minutes += score.minutes;
                sum.under_provisioned_minutes += score.under;
                sum.replica_hours += score.replica_hours();
            }
        }
        let plain = sums[0].replica_hours;
        if plain > 0.0 {
            for sum in &mut sums {
                sum.replica_hours_percent = 100.0 * (sum.replica_hours / plain - 1.0);
            }
        }
        sums
    }
}
