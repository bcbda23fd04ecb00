//! Trace by trace: a contender, given exactly the replica-hours of a baseline, against that baseline.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{Curve, mean};

use crate::comparison::START_UPS;
use crate::results::{Baseline, CRANE, Results};

/// Points of under-provisioning within which two are even.
const EVEN: f64 = 0.01;

/// One row per start-up and baseline.
pub(crate) fn table(results: &Results<'_>, contender: &str) -> Result<String, Error> {
    let mut text = format!(
        "\n**{contender}, trace by trace, its knob set to the replica-hours of the baseline** (the leanest setting where \
         even that costs more, the most generous one where that costs less)\n\n\
         | baseline | start-up | wins | even | losses | U of the baseline | U | cut % |\n|---|---|---|---|---|---|---|---|\n"
    );
    for start_up in START_UPS {
        for (name, baseline) in [
            (CRANE, Baseline::Crane),
            ("hpa +10 %", Baseline::Own("hpa", "+10 %")),
        ] {
            let pairs: Vec<(f64, f64)> = (0..results.traces().len())
                .filter_map(|trace| {
                    let theirs = results.baseline((trace, start_up), baseline)?;
                    let curve = curve(results, contender, (trace, start_up));
                    Some((curve.at_or_nearest(theirs.replicas)?, theirs.under))
                })
                .collect();
            let count = |of: fn(&f64) -> bool| {
                let differences = pairs.iter().map(|(own, theirs)| own - theirs);
                differences.filter(of).count()
            };
            let (Some(own), Some(theirs)) = (
                mean(pairs.iter().map(|pair| pair.0)),
                mean(pairs.iter().map(|pair| pair.1)),
            ) else {
                continue;
            };
            writeln!(
                text,
                "| {name} | {start_up} min | {} | {} | {} | {theirs:.2} | {own:.2} | {:.0} |",
                count(|off| *off < -EVEN),
                count(|off| off.abs() <= EVEN),
                count(|off| *off > EVEN),
                100.0 * (1.0 - own / theirs),
            )?;
        }
    }
    Ok(text)
}

/// Under-provisioning against replica-hours on one trace.
fn curve(results: &Results<'_>, contender: &str, (trace, start_up): (usize, usize)) -> Curve {
    let settings = results.settings(contender).into_iter();
    let scores =
        settings.filter_map(|setting| results.score((trace, start_up), contender, setting));
    Curve::through(scores.map(|score| (score.replicas, score.under)))
}
