//! The first tables: minutes short at equal replica-hours, and what `auto` costs and covers at its default quantile.

use std::fmt::{Error, Result as Written, Write as _};

use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_replay::{Curve, NaiveCandidate, Rule, START_UPS};

use crate::arguments::Arguments;
use crate::golden::Golden;
use crate::report::number;
use crate::results::{CRANE, PLAIN, Part, Results, Set};

/// The sets of traces that have columns.
const SETS: [Set<'static>; 2] = [Set::All, Set::Native];

/// All of them.
pub(crate) fn tables(
    results: &Results<'_>,
    arguments: &Arguments,
    before: Option<&Golden>,
) -> Result<String, Error> {
    let mut text = String::new();
    at_equal_cost(&mut text, results, arguments, before)?;
    at_default(&mut text, results)?;
    coverage(&mut text, results)?;
    Ok(text)
}

/// One row per candidate and rule.
fn at_equal_cost(
    text: &mut String,
    results: &Results<'_>,
    arguments: &Arguments,
    before: Option<&Golden>,
) -> Written {
    let cost = arguments.replica_hours;
    let [all, native] = SETS.map(|set| results.size(set));
    write!(
        text,
        "\n**Minutes short (U, %) at replica-hours of {cost:.3}, on a history of {} min; start-up 2 / 5 / 10 min**\n\n\
         | candidate | rule | all {all} traces | the {native} measured every minute |\n|---|---|---|---|\n",
        results.history(),
    )?;
    let mut row = |candidate: &str, rule: Rule, curve: &dyn Fn(Part<'_>) -> Curve| {
        let cells = SETS.map(|set| {
            let under = START_UPS.map(|start_up| {
                let part = Part {
                    start_up,
                    rule,
                    set,
                };
                number(curve(part).at(cost), 3)
            });
            under.join(" / ")
        });
        let is_empty = cells.iter().all(|cell| cell == "- / - / -");
        if is_empty {
            return Ok(());
        }
        writeln!(text, "| {candidate} | {rule} | {} |", cells.join(" | "))
    };
    for candidate in results.candidates() {
        let rules: &[Rule] = match *candidate {
            NaiveCandidate::HPA => &[Rule::HPA],
            _ => &Rule::ALL,
        };
        for rule in rules {
            row(candidate, *rule, &|part| results.curve(candidate, part))?;
        }
    }
    for rule in Rule::ALL {
        if let Some(before) = before {
            row("auto, before", rule, &|part| {
                results.curve_of_rows(before, part)
            })?;
        }
    }
    let crane = START_UPS.map(|start_up| {
        let crane = results.crane(Part::all(start_up, Rule::HPA));
        crane.map(|crane| format!("{:.2} at {:.3}", crane.under, crane.replicas))
    });
    if let [Some(two), Some(five), Some(ten)] = crane {
        writeln!(
            text,
            "| {CRANE} (from the file) | hpa | {two} / {five} / {ten} | |"
        )?;
    }
    Ok(())
}

/// What `auto` comes to at its default quantile, by every rule.
fn at_default(text: &mut String, results: &Results<'_>) -> Written {
    let setting = format!("q={DEFAULT_QUANTILE}");
    write!(
        text,
        "\n**At the default, {setting}**\n\n| candidate | rule | start-up | replica-hours | short % | changes a day | of the HPA alone |\n\
         {}\n",
        "|---".repeat(7) + "|",
    )?;
    for candidate in results.quantile_candidates() {
        for rule in Rule::ALL {
            for start_up in START_UPS {
                let part = Part::all(start_up, rule);
                let Some(own) = results.means(candidate, &setting, part) else {
                    continue;
                };
                let alone = results.means(NaiveCandidate::HPA, PLAIN, part);
                writeln!(
                    text,
                    "| {candidate} | {rule} | {start_up} min | {:.3} | {:.2} | {:.0} | {} |",
                    own.replicas,
                    own.under,
                    own.actions,
                    number(alone.map(|alone| alone.actions), 0),
                )?;
            }
        }
    }
    Ok(())
}

/// How far the promised quantiles are kept.
fn coverage(text: &mut String, results: &Results<'_>) -> Written {
    write!(
        text,
        "\n**Coverage of the decision window: mean, and the share of traces within one and two points**\n\n\
         | candidate | quantile | start-up 2 | 5 | 10 |\n|---|---|---|---|---|\n"
    )?;
    for candidate in results.quantile_candidates() {
        for setting in results.settings(candidate) {
            let quantile = setting.strip_prefix("q=").unwrap_or(setting);
            let Ok(quantile) = quantile.parse::<f64>() else {
                continue;
            };
            write!(text, "| {candidate} | {quantile} |")?;
            for start_up in START_UPS {
                let part = Part::all(start_up, Rule::HPA);
                let mean = results.accuracy(candidate, setting, part, |one| one.coverage);
                let within = [1.0, 2.0].map(|points| {
                    let share = results.covered_within(candidate, quantile, points, part);
                    number(share, 0)
                });
                write!(text, " {}, {} |", number(mean, 1), within.join(", "))?;
            }
            text.push('\n');
        }
    }
    Ok(())
}
