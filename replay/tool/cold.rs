//! Cold start: each counted day replayed by an autoscaler whose forecaster has only a few hours of history.

use std::fmt::{Error, Write as _};

use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_replay::{
    AutoCandidate, Bounds, CandidateForecast, DAY, History, Means, ReplayConfig, Rule, Score,
    Trace, Workload, forecasts, geometric_mean, mean, run,
};

use crate::goals::{Goal, Limit};
use crate::{Failure, parallel};

/// Hours of history at the start.
const HOURS: [usize; 4] = [3, 12, 24, 72];

const START_UP: usize = 2;
const QUANTILE: &[f64] = &[DEFAULT_QUANTILE];

/// The means over the days of each trace, by hours of history, without and with a forecast.
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
        rule: Rule,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let measure = |_, trace: &Trace| {
            let from = Workload::new(&trace.demand)?.from();
            Ok(HOURS.map(|hours| by_days(&trace.demand, from, hours, rule)))
        };
        let traces = parallel::map(traces, progress, measure)?;
        Ok(Self { traces })
    }

    /// One row per length of history.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = format!(
            "\n**Cold start: every day that counts, each after so much history only; auto, q = {DEFAULT_QUANTILE}, S = 2**\n\n\
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
            limit: Limit::AtLeast(80.0),
            actual: self.row(0).map(Row::cut),
        }]
    }

    fn row(&self, at: usize) -> Option<Row> {
        let pairs = || self.traces.iter().filter_map(|trace| *trace.get(at)?);
        Some(Row {
            alone: mean(pairs().map(|(alone, _)| alone.under))?,
            under: mean(pairs().map(|(_, with_forecast)| with_forecast.under))?,
            replicas: geometric_mean(pairs().map(|(_, with_forecast)| with_forecast.replicas))?,
        })
    }
}

// === impl Row ===

impl Row {
    fn cut(self) -> f64 {
        100.0 * (1.0 - self.under / self.alone)
    }
}

/// Means over the whole days from `from` on; `None` without a day that has demand.
fn by_days(demand: &[f64], from: usize, hours: usize, rule: Rule) -> Option<(Means, Means)> {
    let starts = (from..demand.len()).step_by(DAY);
    let days = starts.filter_map(|start| {
        let known = 60 * hours;
        let seen = demand.get(start.checked_sub(known)?..start + DAY)?;
        Some(day(&Workload::counted_from(seen, known).ok()?, rule))
    });
    let (alone, with_forecast): (Vec<_>, Vec<_>) = days
        .map(|(alone, with_forecast)| ((alone, alone), (with_forecast, alone)))
        .unzip();
    Some((Means::of(&alone)?, Means::of(&with_forecast)?))
}

fn day(workload: &Workload<'_>, rule: Rule) -> (Score, Score) {
    let config = ReplayConfig {
        start_up: START_UP,
        rule,
    };
    let score = |forecast: &[Option<Bounds>]| Score::of(workload, &run(workload, config, forecast));
    let mut auto = AutoCandidate::quantiles(QUANTILE, START_UP);
    let history = History::new(workload.demand(), 1);
    let paths = forecasts(&mut auto, workload, &history);
    let forecast = paths.first().map(CandidateForecast::bounds);
    (score(&[]), score(&forecast.unwrap_or_default()))
}
