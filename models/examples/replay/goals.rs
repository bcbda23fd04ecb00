//! The goals of a forecaster, and whether it meets them on these traces. Limits that hold for another set of traces
//! only are not judged; they are shown beside the result of the golden file on these traces.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{Curve, mean};

use crate::comparison::{AUTO_OBJECTIVE, START_UPS};
use crate::report::number;
use crate::results::{Part, Results};

/// The limits at start-ups of 2, 5 and 10 minutes.
const AT_CRANE: [f64; 3] = [0.35, 0.70, 1.05];
const CUT_AGAINST_CRANE: [f64; 3] = [80.0, 72.0, 68.0];
const UNDER: [f64; 3] = [0.50, 0.72, 0.80];
const REPLICAS: [f64; 3] = [1.14, 1.18, 1.23];

/// The default setting.
const DEFAULT: &str = "q=0.9";

/// One row of the table of goals.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    pub(crate) actual: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// Goals and figures that are measured outside the comparison.
#[derive(Debug, Default)]
pub(crate) struct ExtraGoals {
    pub(crate) goals: Vec<Goal>,
    /// Figures that depend on the set of traces, which are not judged.
    pub(crate) figures: Vec<Goal>,
}

/// A figure that depends on the set of traces, the limit that was set for another set, and what the golden file comes
/// to on this one.
#[derive(Debug)]
struct Figure {
    goal: Goal,
    golden: Option<f64>,
}

/// The table of goals of one candidate: those of the comparison, and those of the other measurements.
pub(crate) fn table(
    results: &Results<'_>,
    candidate: &str,
    extra: &ExtraGoals,
) -> Result<String, Error> {
    let mut text =
        format!("\n**Goals, {candidate}**\n\n| goal | limit | actual | met |\n|---|---|---|---|\n");
    let mut goals = Vec::new();
    for (i, start_up) in START_UPS.into_iter().enumerate() {
        goals.extend(by_start_up(results, candidate, i, start_up));
    }
    goals.extend(at_two_minutes(results, candidate));
    goals.extend_from_slice(&extra.goals);
    for Goal {
        what,
        limit,
        actual,
    } in goals
    {
        let met = match actual {
            Some(actual) if limit.holds(actual) => "yes",
            Some(_) => "no",
            None => "not judged",
        };
        let actual = number(actual, 3);
        writeln!(text, "| {what} | {} | {actual} | {met} |", limit.text())?;
    }
    let apart = extra.figures.iter().cloned();
    let apart = apart.map(|goal| Figure { goal, golden: None });
    let figures = figures(results, candidate).into_iter().chain(apart);
    text += &figures_table(candidate, figures)?;
    Ok(text)
}

fn figures_table(candidate: &str, figures: impl Iterator<Item = Figure>) -> Result<String, Error> {
    let mut text = format!(
        "\n**Figures that depend on the set of traces, {candidate}**: the limits were set for another set and are not \
         judged; beside them what the golden file's auto comes to on these traces\n\n\
         | figure | limit there | actual here | golden file |\n|---|---|---|---|\n"
    );
    for Figure { goal, golden } in figures {
        let Goal {
            what,
            limit,
            actual,
        } = goal;
        let (actual, golden) = (number(actual, 3), number(golden, 3));
        writeln!(text, "| {what} | {} | {actual} | {golden} |", limit.text())?;
    }
    Ok(text)
}

fn figures(results: &Results<'_>, candidate: &str) -> Vec<Figure> {
    let figure = |what: String, most, actual, golden| Figure {
        goal: Goal {
            what,
            limit: Limit::AtMost(most),
            actual,
        },
        golden,
    };
    let mut figures = Vec::new();
    for ((start_up, at_crane), replicas) in START_UPS.into_iter().zip(AT_CRANE).zip(REPLICAS) {
        let part = Part::all(start_up);
        let (own, golden) = (results.curve(candidate, part), results.golden_curve(part));
        let crane = results.crane(part).map(|crane| crane.replicas);
        let at = |curve: &Curve| curve.at(crane?);
        figures.push(figure(
            format!("U at crane15-W60's RH, %, S = {start_up}"),
            at_crane,
            at(&own),
            at(&golden),
        ));
        let own = results.means(candidate, DEFAULT, part);
        let golden = results.golden_means("auto q=0.9", part);
        figures.push(figure(
            format!("RH at q = 0.9, S = {start_up}"),
            replicas,
            own.map(|means| means.replicas),
            golden.map(|means| means.replicas),
        ));
    }
    let part = Part::all(2);
    figures.push(figure(
        "U at RH 1.10, S = 2, %".to_owned(),
        0.80,
        results.curve(candidate, part).at(1.10),
        results.golden_curve(part).at(1.10),
    ));
    figures.push(figure(
        "pinball loss at 0.9, S = 2, %".to_owned(),
        2.85,
        results.loss(candidate, DEFAULT, part, |accuracy| accuracy.pinball_90),
        None,
    ));
    figures
}

fn by_start_up(results: &Results<'_>, candidate: &str, i: usize, start_up: usize) -> Vec<Goal> {
    let part = Part::all(start_up);
    let own = results.means(candidate, DEFAULT, part);
    let alone = results.means("hpa", "+0 %", part);
    let crane = results.crane(part);
    let at_crane = crane.and_then(|crane| results.curve(candidate, part).at(crane.replicas));
    let cut = |under: Option<f64>, of: Option<f64>| Some(100.0 * (1.0 - under? / of?));
    let under = own.map(|own| own.under);
    let at = |limits: [f64; 3]| limits.get(i).copied().unwrap_or(0.0);
    let goal = |what: &str, limit, actual| Goal {
        what: format!("{what}, S = {start_up}"),
        limit,
        actual,
    };
    vec![
        goal(
            "cut of U against crane15-W60 at its RH, %",
            Limit::AtLeast(at(CUT_AGAINST_CRANE)),
            cut(at_crane, crane.map(|crane| crane.under)),
        ),
        goal("U at q = 0.9, %", Limit::AtMost(at(UNDER)), under),
        goal(
            "cut of U against the HPA alone at q = 0.9, %",
            Limit::AtLeast(90.0),
            cut(under, alone.map(|alone| alone.under)),
        ),
        goal(
            "actions a day at q = 0.9, HPA alone allows",
            Limit::AtMost(alone.map_or(0.0, |alone| alone.actions)),
            own.map(|own| own.actions),
        ),
    ]
}

fn at_two_minutes(results: &Results<'_>, candidate: &str) -> Vec<Goal> {
    let part = Part::all(2);
    let smooth = results.means(
        candidate,
        DEFAULT,
        Part {
            class: Some("smooth"),
            ..part
        },
    );
    let goal = |what: &str, limit, actual| Goal {
        what: what.to_owned(),
        limit,
        actual,
    };
    let mut goals = vec![
        goal(
            "smooth loads: RH at q = 0.9, S = 2",
            Limit::AtMost(1.05),
            smooth.map(|m| m.replicas),
        ),
        goal(
            "smooth loads: U at q = 0.9, S = 2, %",
            Limit::AtMost(0.2),
            smooth.map(|m| m.under),
        ),
    ];
    goals.extend(coverage(results, candidate, part));
    if candidate == "auto" {
        let under = results
            .means(AUTO_OBJECTIVE, "a=1 %", part)
            .map(|means| means.under);
        let what = "U with a limit of 1 %, S = 2, %";
        goals.push(goal(what, Limit::AtMost(1.2), under));
        goals.push(goal(what, Limit::AtLeast(0.8), under));
    }
    goals
}

/// The deviation of coverage from the quantile.
fn coverage(results: &Results<'_>, candidate: &str, part: Part<'_>) -> Vec<Goal> {
    let goal = |what, limit, actual| Goal {
        what,
        limit,
        actual,
    };
    let mut goals = Vec::new();
    for (setting, asked) in [("q=0.8", 80.0), ("q=0.9", 90.0), ("q=0.95", 95.0)] {
        let actual: Vec<f64> = results
            .entries(candidate, setting, part)
            .filter_map(|entry| entry.accuracy.map(|accuracy| accuracy.coverage))
            .collect();
        let off = mean(actual.iter().copied()).map(|mean| (mean - asked).abs());
        let near = actual
            .iter()
            .map(|actual| f64::from((actual - asked).abs() <= 2.0));
        goals.push(goal(
            format!("coverage at {setting}, S = 2: the mean is off by, points"),
            Limit::AtMost(1.0),
            off,
        ));
        goals.push(goal(
            format!("coverage at {setting}, S = 2: traces within 2 points, %"),
            Limit::AtLeast(80.0),
            mean(near).map(|part| 100.0 * part),
        ));
    }
    goals
}

// === impl Limit ===

impl Limit {
    fn holds(self, actual: f64) -> bool {
        match self {
            Self::AtMost(most) => actual <= most,
            Self::AtLeast(least) => actual >= least,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most:.2}"),
            Self::AtLeast(least) => format!(">= {least:.2}"),
        }
    }
}
