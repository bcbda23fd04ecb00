//! A service that has just begun: every day that counts, by an autoscaler whose forecaster has seen a few hours only.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{
    DAY, Learning, Means, Rules, Score, Workload, geometric_mean, mean, paths, run,
};

use crate::comparison::Failure;
use crate::crew;
use crate::goals::{Goal, Limit};
use crate::traces::Trace;

/// Hours of history.
const HOURS: [usize; 4] = [3, 12, 24, 72];

const START_UP: usize = 2;
const QUANTILE: &[f64] = &[0.9];

/// Of each trace, by hours of history: means over its days, without a forecast and with.
#[derive(Debug)]
pub(crate) struct ColdStart {
    traces: Vec<[Option<(Means, Means)>; HOURS.len()]>,
}

/// Means over the traces.
#[derive(Debug, Clone, Copy)]
struct Row {
    alone: f64,
    under: f64,
    replicas: f64,
}

// === impl ColdStart ===

impl ColdStart {
    pub(crate) fn measure(
        traces: &[Trace],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let measure = |_, trace: &Trace| {
            let from = Workload::new(&trace.demand)?.from();
            Ok(HOURS.map(|hours| by_days(&trace.demand, from, hours)))
        };
        let traces = crew::each(traces, progress, measure)?;
        Ok(Self { traces })
    }

    /// One row per length of history.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = String::from(
            "\n**Cold start: every day that counts, each after so much history only; auto, q = 0.9, S = 2**\n\n\
             | history | U of the HPA alone % | U % | RH | cut % |\n|---|---|---|---|---|\n",
        );
        for (at, hours) in HOURS.iter().enumerate() {
            if let Some(row) = self.row(at) {
                let Row {
                    alone,
                    under,
                    replicas,
                } = row;
                let cut = row.cut();
                writeln!(
                    text,
                    "| {hours} h | {alone:.2} | {under:.2} | {replicas:.3} | {cut:.0} |"
                )?;
            }
        }
        Ok(text)
    }

    pub(crate) fn goals(&self) -> Vec<Goal> {
        vec![Goal {
            what: format!(
                "cut of U against the HPA alone after {} h of history, %",
                HOURS[0]
            ),
            must: Limit::AtLeast(80.0),
            seen: self.row(0).map(Row::cut),
        }]
    }

    fn row(&self, at: usize) -> Option<Row> {
        let pairs = || self.traces.iter().filter_map(|trace| *trace.get(at)?);
        Some(Row {
            alone: mean(pairs().map(|(alone, _)| alone.under))?,
            under: mean(pairs().map(|(_, told)| told.under))?,
            replicas: geometric_mean(pairs().map(|(_, told)| told.replicas))?,
        })
    }
}

// === impl Row ===

impl Row {
    fn cut(self) -> f64 {
        100.0 * (1.0 - self.under / self.alone)
    }
}

/// Means over the whole days from `from` on; none without a day that has any demand.
fn by_days(demand: &[f64], from: usize, hours: usize) -> Option<(Means, Means)> {
    let starts = (from..demand.len()).step_by(DAY);
    let days = starts.filter_map(|start| {
        let known = 60 * hours;
        let seen = demand.get(start.checked_sub(known)?..start + DAY)?;
        Some(day(&Workload::counted_from(seen, known).ok()?))
    });
    let (alone, told): (Vec<_>, Vec<_>) = days
        .map(|(alone, told)| ((alone, alone), (told, alone)))
        .unzip();
    Some((Means::of(&alone)?, Means::of(&told)?))
}

fn day(workload: &Workload<'_>) -> (Score, Score) {
    let rules = Rules {
        start_up: START_UP,
        ..Rules::default()
    };
    let score = |forecast: &[Option<f64>]| Score::of(workload, &run(workload, rules, forecast));
    let paths = paths(&mut Learning::quantiles(QUANTILE, START_UP), workload);
    let forecast = paths.first().map(|path| path.forecast.as_slice());
    (score(&[]), score(forecast.unwrap_or_default()))
}
