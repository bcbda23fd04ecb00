//! Prints the tables: every candidate at its settings, and by class of load.

use std::fmt::{Error, Result as Written, Write as _};

use foretide_replay::{Means, NaiveCandidate, Rule, START_UPS};

use crate::results::{CRANE, Part, Results, Set};

/// The settings that have a row.
const SHOWN: [&str; 9] = [
    "+0 %", "q=0.5", "q=0.8", "q=0.94", "q=0.95", "a=0.5 %", "a=1 %", "a=2 %", "a=5 %",
];

/// Settings that have a row for the HPA alone: a lower target.
const HEADROOM: [&str; 2] = ["+10 %", "+20 %"];

/// Replica-hours at which candidates are compared.
const COSTS: [f64; 3] = [1.10, 1.15, 1.20];

/// All tables.
pub(crate) fn tables(results: &Results<'_>, rule: Rule) -> Result<String, Error> {
    let mut text = format!("\nThe tables below are by the rule {rule}. {LEGEND}");
    for start_up in START_UPS {
        all_traces(&mut text, results, Part::all(start_up, rule))?;
    }
    for start_up in START_UPS {
        by_class(&mut text, results, Part::all(start_up, rule))?;
    }
    Ok(text)
}

const LEGEND: &str = "RH: replica-hours against the autoscaler alone, geometric mean. U, unmet, O: mean percent (U med: median). \
gJ: cost, geometric mean. U at RH: on the straight lines between the settings of a candidate; - is beyond them. pin90, pin95, \
MAE: percent of the mean demand, of the highest demand of the decision window; of a candidate with margins, at the best \
margin. cov: percent of minutes whose window stayed within the forecast. Minutes without a forecast are left out of these \
four; answered: percent of minutes with one.\n";

/// One row per candidate and setting, over all traces.
fn all_traces(text: &mut String, results: &Results<'_>, part: Part<'_>) -> Written {
    let crane = results.crane(part);
    let at_crane = crane.map_or("U at crane's RH".to_owned(), |crane| {
        format!("U at RH {:.3} ({CRANE})", crane.replicas)
    });
    write!(
        text,
        "\n**All traces, start-up {} min**\n\n| candidate | tuning | RH | U % | U med % | unmet % | O % | actions/d | gJ | \
         U at RH 1.10 | 1.15 | 1.20 | {at_crane} | pin90 | pin95 | MAE | cov % | answered % |\n{}\n",
        part.start_up,
        "|---".repeat(18) + "|",
    )?;
    for candidate in results.candidates() {
        for (n, setting) in shown(results, candidate).into_iter().enumerate() {
            let Some(means) = results.means(candidate, setting, part) else {
                continue;
            };
            let at_equal = if n == 0 {
                equal(results, candidate, part)?
            } else {
                " |".repeat(7)
            };
            let coverage = results.accuracy(candidate, setting, part, |accuracy| accuracy.coverage);
            writeln!(
                text,
                "| {candidate} | {setting} | {} |{at_equal} {} | {} |",
                columns(&means),
                number(coverage, 1),
                number(results.answered(candidate, setting, part), 1),
            )?;
        }
    }
    if let Some(crane) = crane {
        let blank = " |".repeat(9);
        writeln!(
            text,
            "| {CRANE} (from the file) | | {} |{blank}",
            columns(&crane)
        )?;
    }
    Ok(())
}

/// The settings that have a row.
pub(crate) fn shown<'a>(results: &Results<'a>, candidate: &str) -> Vec<&'a str> {
    let wanted = |setting: &&str| {
        SHOWN.contains(setting) || candidate == NaiveCandidate::HPA && HEADROOM.contains(setting)
    };
    results
        .settings(candidate)
        .iter()
        .copied()
        .filter(wanted)
        .collect()
}

fn columns(means: &Means) -> String {
    let Means {
        replicas,
        under,
        under_median,
        unmet,
        over,
        actions,
        cost,
    } = means;
    format!(
        "{replicas:.3} | {under:.2} | {under_median:.2} | {unmet:.2} | {over:.2} | {actions:.0} | {cost:.2}"
    )
}

/// The columns with one value per candidate: under-provisioning at equal cost, and losses.
fn equal(results: &Results<'_>, candidate: &str, part: Part<'_>) -> Result<String, Error> {
    let curve = results.curve(candidate, part);
    let crane = results.crane(part).map(|crane| crane.replicas);
    let at_cost = COSTS.map(|cost| curve.at(cost)).into_iter();
    let at_cost = at_cost.chain([crane.and_then(|cost| curve.at(cost))]);
    let losses = [
        results.loss(candidate, "q=0.9", part, |accuracy| accuracy.pinball_90),
        results.loss(candidate, "q=0.95", part, |accuracy| accuracy.pinball_95),
        results.loss(candidate, "q=0.5", part, |accuracy| accuracy.absolute),
    ];
    let mut text = String::new();
    for value in at_cost.chain(losses) {
        write!(text, " {} |", number(value, 2))?;
    }
    Ok(text)
}

/// A number, or a dash for none.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// One column per kind of load.
fn by_class(text: &mut String, results: &Results<'_>, part: Part<'_>) -> Written {
    let start_up = part.start_up;
    let classes = results.classes();
    write!(
        text,
        "\n**By kind of load, start-up {start_up} min: RH / U / O / actions a day**\n\n| candidate |"
    )?;
    for class in &classes {
        write!(text, " {class} |")?;
    }
    writeln!(text, "\n{}", "|---".repeat(classes.len() + 1) + "|")?;
    let mut row = |name: String, means: &dyn Fn(Part<'_>) -> Option<Means>| {
        if means(part).is_none() {
            return Ok(());
        }
        write!(text, "| {name} |")?;
        for class in &classes {
            let cell = means(Part {
                set: Set::Class(class),
                ..part
            })
            .map_or("-".to_owned(), |means| {
                let Means {
                    replicas,
                    under,
                    over,
                    actions,
                    ..
                } = means;
                format!("{replicas:.3} / {under:.2} / {over:.2} / {actions:.0}")
            });
            write!(text, " {cell} |")?;
        }
        writeln!(text)
    };
    for candidate in results.candidates() {
        for setting in shown(results, candidate) {
            row(format!("{candidate} {setting}"), &|part| {
                results.means(candidate, setting, part)
            })?;
        }
    }
    if results.crane(part).is_some() {
        row(format!("{CRANE} (from the file)"), &|part| {
            results.crane(part)
        })?;
    }
    Ok(())
}
