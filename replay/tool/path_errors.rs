//! The error of the published path 5 to 60 minutes ahead, relative to repeating the day before.

use std::fmt::{Error, Write as _};

use foretide_replay::{DAY, Trace, Workload, geometric_mean};

use crate::goals::{Goal, Limit};
use crate::product::Product;
use crate::report::number;
use crate::{Failure, parallel};

/// Minutes ahead.
const AHEAD: [usize; 4] = [5, 15, 30, 60];

/// Minutes between two forecasts: seven covers all phases of five- and ten-minute jobs.
const EVERY: usize = 7;

/// The compared forecasts; the last one is the reference.
const COMPARED: [&str; 4] = ["auto", "last value", "last week", "yesterday"];

/// Summed absolute errors by candidate and time ahead; `None` if any forecast is missing.
type Errors = [[Option<f64>; AHEAD.len()]; COMPARED.len()];

/// The errors on all traces.
#[derive(Debug)]
pub(crate) struct PathErrors {
    traces: Vec<Errors>,
}

// === impl PathErrors ===

impl PathErrors {
    pub(crate) fn measure(
        traces: &[Trace],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let traces = parallel::map(traces, progress, |_, trace| errors(trace))?;
        Ok(Self { traces })
    }

    /// One row per candidate.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = String::from(
            "\n**Single values ahead: mean absolute error against that of the same time yesterday, geometric mean**\n\n\
             | candidate | 5 min | 15 min | 30 min | 60 min |\n|---|---|---|---|---|\n",
        );
        for (candidate, name) in COMPARED.iter().enumerate().take(COMPARED.len() - 1) {
            write!(text, "| {name} |")?;
            for at in 0..AHEAD.len() {
                write!(text, " {} |", number(self.ratio(candidate, at), 3))?;
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// How far it lies from yesterday depends on how much a day is like the next.
    pub(crate) fn figures(&self) -> Vec<Goal> {
        let goal = |at: usize, most| Goal {
            what: format!(
                "error {} min ahead, against yesterday's (1: equal)",
                AHEAD[at]
            ),
            limit: Limit::AtMost(most),
            actual: self.ratio(0, at),
        };
        vec![goal(0, 0.26), goal(3, 0.46)]
    }

    /// The ratio over the traces without missing forecasts.
    fn ratio(&self, candidate: usize, at: usize) -> Option<f64> {
        let of = |errors: &Errors, candidate: usize| *errors.get(candidate)?.get(at)?;
        let ratio =
            |errors: &Errors| Some(of(errors, candidate)? / of(errors, COMPARED.len() - 1)?);
        geometric_mean(self.traces.iter().filter_map(ratio))
    }
}

fn errors(trace: &Trace) -> Result<Errors, Failure> {
    let workload = Workload::new(&trace.demand)?;
    let demand = workload.demand();
    let mut auto = Product::auto(2)?;
    let mut errors = [[Some(0.0); AHEAD.len()]; COMPARED.len()];
    let last = demand.len().saturating_sub(AHEAD[AHEAD.len() - 1]);
    for now in (workload.from()..last).step_by(EVERY) {
        let known = demand.get(..now).unwrap_or_default();
        let path = auto.path(known, AHEAD[AHEAD.len() - 1] + 1);
        for (i, ahead) in AHEAD.into_iter().enumerate() {
            let ago = |minutes| known.get((now + ahead).checked_sub(minutes)?).copied();
            let predicted = [
                path.as_ref().and_then(|path| path.get(ahead).copied()),
                known.last().copied(),
                ago(7 * DAY),
                ago(DAY),
            ];
            let actual = demand.get(now + ahead).copied();
            for (errors, predicted) in errors.iter_mut().zip(predicted) {
                let off = predicted
                    .zip(actual)
                    .map(|(predicted, actual)| (predicted - actual).abs());
                errors[i] = errors[i].zip(off).map(|(sum, off)| sum + off);
            }
        }
    }
    Ok(errors)
}
