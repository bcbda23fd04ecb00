//! Compares a candidate with a baseline trace by trace, at equal replica-hours.

use std::fmt::{Error, Write as _};

use foretide_replay::{Curve, Rule, START_UPS, mean};

use crate::results::{Baseline, CRANE, Case, Part, Results};

/// Points of under-provisioning within which two results are equal.
const EVEN: f64 = 0.01;

/// One row per start-up and baseline.
pub(crate) fn table(results: &Results<'_>, candidate: &str, rule: Rule) -> Result<String, Error> {
    let mut text = format!(
        "\n**{candidate}, {rule}, trace by trace, tuned to the replica-hours of the baseline** (the cheapest setting if \
         it costs more, the most expensive one if it costs less)\n\n\
         | baseline | start-up | wins | even | losses | U of the baseline | U | cut % |\n|---|---|---|---|---|---|---|---|\n"
    );
    for start_up in START_UPS {
        for (name, baseline) in [
            (CRANE, Baseline::Crane),
            ("hpa +10 %", Baseline::Lowered("+10 %")),
        ] {
            let pairs: Vec<(f64, f64)> = (0..results.traces().len())
                .filter_map(|trace| {
                    let case = Case { trace, start_up };
                    let theirs = results.baseline(case, baseline)?;
                    let curve = curve(results, candidate, trace, Part::all(start_up, rule));
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
fn curve(results: &Results<'_>, candidate: &str, trace: usize, part: Part<'_>) -> Curve {
    let settings = results.settings(candidate).iter();
    let scores = settings.filter_map(|setting| results.score(trace, candidate, setting, part));
    Curve::through(scores.map(|score| (score.replicas, score.under)))
}
