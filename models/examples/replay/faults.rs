//! What goes wrong in real life, done to every trace: measurements that are wrong or missing, and demand that does what
//! it has never done. Where, is random and always the same. Next: `mishaps`.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{Candidate as _, Means, Rules, Score, Workload, run};

use crate::comparison::Failure;
use crate::crew;
use crate::fault_cases::{Case, MISHAPS, SEED};
use crate::goals::{Goal, Limit};
use crate::product::Product;
use crate::traces::Trace;

const START_UP: usize = 2;

/// Points of under-provisioning that a mishap may add.
const MAY_ADD: f64 = 0.15;

/// By trace and mishap: the score with the forecast and that without.
#[derive(Debug)]
pub(crate) struct Faults {
    traces: Vec<Vec<(Score, Score)>>,
}

// === impl Faults ===

impl Faults {
    pub(crate) fn measure(
        traces: &[Trace],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let measure = |at: usize, trace: &Trace| {
            let from = Workload::new(&trace.demand)?.from();
            let scores = MISHAPS.iter().map(|mishap| {
                let seed = SEED + u64::try_from(at)?;
                replay(&mishap.befall(&trace.demand, from, seed))
            });
            scores.collect()
        };
        let traces = crew::each(traces, progress, measure)?;
        Ok(Self { traces })
    }

    /// One row per mishap.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = format!(
            "\n**Mishaps: auto through the door that takes histories with holes, q = 0.9, S = {START_UP}; seed {SEED}**\n\n\
             | mishap | U of the HPA alone % | U % | more than without, points | RH |\n|---|---|---|---|---|\n"
        );
        for (at, mishap) in MISHAPS.iter().enumerate() {
            let Some((told, alone)) = self.means(at) else {
                continue;
            };
            writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:+.2} | {:.3} |",
                mishap.name,
                alone.under,
                told.under,
                self.added(at).unwrap_or(0.0),
                told.replicas,
            )?;
        }
        Ok(text)
    }

    pub(crate) fn goals(&self) -> Vec<Goal> {
        let judged = MISHAPS
            .iter()
            .enumerate()
            .filter(|(_, mishap)| mishap.judged);
        let added = judged.filter_map(|(at, _)| self.added(at));
        vec![Goal {
            what: "worst mishap, holes aside: U above the undisturbed, points".to_owned(),
            must: Limit::AtMost(MAY_ADD),
            seen: added.reduce(f64::max),
        }]
    }

    /// Points of under-provisioning above the first mishap, which is none.
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

/// The score with the forecast, and that without.
fn replay(case: &Case) -> Result<(Score, Score), Failure> {
    let workload = Workload::counted_from(&case.demand, case.from)?;
    let read = Workload::counted_from(&case.read, case.from)?.with_target(workload.target());
    let mut auto = Product::auto(START_UP)?;
    let minutes = workload.first()..case.demand.len();
    let forecast: Vec<Option<f64>> = minutes
        .map(|t| auto.at(case.history.get(..t)?).first().copied())
        .collect();
    let rules = Rules {
        start_up: START_UP,
        ..Rules::default()
    };
    let score = |forecast: &[Option<f64>]| Score::of(&workload, &run(&read, rules, forecast));
    Ok((score(&forecast), score(&[])))
}
