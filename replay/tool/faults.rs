//! Replays every trace with injected faults: wrong or missing measurements, and demand that changes in new ways.
//! Positions are pseudo-random with a fixed seed.

use std::fmt::{Error, Write as _};

use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_replay::{
    Bounds, Candidate as _, Means, ReplayConfig, Rule, Score, Trace, Workload, run,
};

use crate::fault_cases::{FAULTS, FaultyTrace, SEED};
use crate::goals::{Goal, Limit};
use crate::product::Product;
use crate::{Failure, parallel};

const START_UP: usize = 2;

/// Points of under-provisioning that a fault may add.
const MAY_ADD: f64 = 0.15;

/// The scores with and without the forecast, by trace and fault.
#[derive(Debug)]
pub(crate) struct Faults {
    traces: Vec<Vec<(Score, Score)>>,
}

// === impl Faults ===

impl Faults {
    pub(crate) fn measure(
        traces: &[Trace],
        rule: Rule,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let measure = |at: usize, trace: &Trace| {
            let from = Workload::new(&trace.demand)?.from();
            let scores = FAULTS.iter().map(|fault| {
                let seed = SEED + u64::try_from(at)?;
                replay(&fault.inject(&trace.demand, from, seed), rule)
            });
            scores.collect()
        };
        let traces = parallel::map(traces, progress, measure)?;
        Ok(Self { traces })
    }

    /// One row per fault.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = format!(
            "\n**Faults: auto on histories with holes, q = {DEFAULT_QUANTILE}, S = {START_UP}; seed {SEED}**\n\n\
             | fault | U of the HPA alone % | U % | added by the fault, points | RH |\n|---|---|---|---|---|\n"
        );
        for (at, fault) in FAULTS.iter().enumerate() {
            let Some((with_forecast, alone)) = self.means(at) else {
                continue;
            };
            writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:+.2} | {:.3} |",
                fault.name,
                alone.under,
                with_forecast.under,
                self.added(at).unwrap_or(0.0),
                with_forecast.replicas,
            )?;
        }
        Ok(text)
    }

    pub(crate) fn goals(&self) -> Vec<Goal> {
        let limited = FAULTS.iter().enumerate().filter(|(_, fault)| fault.limited);
        let added = limited.filter_map(|(at, _)| self.added(at));
        vec![Goal {
            what: "worst fault, holes aside: U above the undisturbed, points".to_owned(),
            limit: Limit::AtMost(MAY_ADD),
            actual: added.reduce(f64::max),
        }]
    }

    /// Points of under-provisioning above the first case, which has no fault.
    fn added(&self, at: usize) -> Option<f64> {
        Some(self.means(at)?.0.under - self.means(0)?.0.under)
    }

    fn means(&self, at: usize) -> Option<(Means, Means)> {
        let pairs: Vec<_> = self
            .traces
            .iter()
            .filter_map(|scores| scores.get(at).copied())
            .collect();
        let alone: Vec<_> = pairs.iter().map(|(_, alone)| (*alone, *alone)).collect();
        Some((Means::of(&pairs)?, Means::of(&alone)?))
    }
}

/// The scores with and without the forecast.
fn replay(case: &FaultyTrace, rule: Rule) -> Result<(Score, Score), Failure> {
    let workload = Workload::counted_from(&case.demand, case.from)?;
    let read = Workload::counted_from(&case.read, case.from)?.with_target(workload.target());
    let mut auto = Product::auto(START_UP)?;
    let minutes = workload.first()..case.demand.len();
    let forecast = minutes.map(|t| {
        let answers = auto.at(case.history.get(..t)?.into());
        answers.first().map(|answer| answer.bounds)
    });
    let forecast: Vec<Option<Bounds>> = forecast.collect();
    let config = ReplayConfig {
        start_up: START_UP,
        rule,
    };
    let score = |forecast: &[Option<Bounds>]| Score::of(&workload, &run(&read, config, forecast));
    Ok((score(&forecast), score(&[])))
}
