//! How far the published path lies from what came, 5 to 60 minutes ahead, against repeating yesterday.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{DAY, Workload, geometric_mean};

use crate::comparison::Failure;
use crate::crew;
use crate::goals::{Goal, Limit};
use crate::product::Product;
use crate::report::number;
use crate::traces::Trace;

/// Minutes ahead.
const AHEAD: [usize; 4] = [5, 15, 30, 60];

/// Minutes between two questions: all phases of anything that is done every five or ten minutes are met.
const EVERY: usize = 7;

/// Who is judged; the last one is what they are compared with.
const JUDGED: [&str; 4] = ["auto", "last value", "last week", "yesterday"];

/// By contender and time ahead: summed absolute errors; none where it once had no answer.
type Errors = [[Option<f64>; AHEAD.len()]; JUDGED.len()];

/// Of all traces.
#[derive(Debug)]
pub(crate) struct Ahead {
    traces: Vec<Errors>,
}

// === impl Ahead ===

impl Ahead {
    pub(crate) fn measure(
        traces: &[Trace],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, Failure> {
        let traces = crew::each(traces, progress, |_, trace| errors(trace))?;
        Ok(Self { traces })
    }

    /// One row per contender.
    pub(crate) fn table(&self) -> Result<String, Error> {
        let mut text = String::from(
            "\n**Single values ahead: mean absolute error against that of the same time yesterday, geometric mean**\n\n\
             | contender | 5 min | 15 min | 30 min | 60 min |\n|---|---|---|---|---|\n",
        );
        for (who, name) in JUDGED.iter().enumerate().take(JUDGED.len() - 1) {
            write!(text, "| {name} |")?;
            for at in 0..AHEAD.len() {
                write!(text, " {} |", number(self.ratio(who, at), 3))?;
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
            must: Limit::AtMost(most),
            seen: self.ratio(0, at),
        };
        vec![goal(0, 0.26), goal(3, 0.46)]
    }

    /// Over the traces where it always had an answer.
    fn ratio(&self, who: usize, at: usize) -> Option<f64> {
        let of = |errors: &Errors, who: usize| *errors.get(who)?.get(at)?;
        let ratio = |errors: &Errors| Some(of(errors, who)? / of(errors, JUDGED.len() - 1)?);
        geometric_mean(self.traces.iter().filter_map(ratio))
    }
}

fn errors(trace: &Trace) -> Result<Errors, Failure> {
    let workload = Workload::new(&trace.demand)?;
    let demand = workload.demand();
    let mut auto = Product::auto(2)?;
    let mut errors = [[Some(0.0); AHEAD.len()]; JUDGED.len()];
    let last = demand.len().saturating_sub(AHEAD[AHEAD.len() - 1]);
    for now in (workload.from()..last).step_by(EVERY) {
        let known = demand.get(..now).unwrap_or_default();
        let path = auto.path(known, AHEAD[AHEAD.len() - 1] + 1);
        for (i, ahead) in AHEAD.into_iter().enumerate() {
            let ago = |minutes| known.get((now + ahead).checked_sub(minutes)?).copied();
            let said = [
                path.as_ref().and_then(|path| path.get(ahead).copied()),
                known.last().copied(),
                ago(7 * DAY),
                ago(DAY),
            ];
            let came = demand.get(now + ahead).copied();
            for (errors, said) in errors.iter_mut().zip(said) {
                let off = said.zip(came).map(|(said, came)| (said - came).abs());
                errors[i] = errors[i].zip(off).map(|(sum, off)| sum + off);
            }
        }
    }
    Ok(errors)
}
