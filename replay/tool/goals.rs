//! The goals of `auto`, and whether it meets them on these traces. They are those of the twenty public traces.

use std::fmt::{Error, Write as _};

use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_replay::{NaiveCandidate, START_UPS, mean};

use crate::arguments::Arguments;
use crate::candidates::AUTO_OBJECTIVE;
use crate::report::number;
use crate::results::{PLAIN, Part, Results, Set};

const CANDIDATE: &str = "auto";

/// The limits at start-ups of 2, 5 and 10 minutes.
const AT_EQUAL_COST: [f64; 3] = [0.50, 0.97, 1.40];
const CUT_AGAINST_CRANE: [f64; 3] = [80.0, 72.0, 68.0];
/// What the first version left short at its default.
const AT_DEFAULT: [f64; 3] = [0.44, 0.57, 0.53];

/// How much more may be short when the history is smoothed.
const SMOOTHED: f64 = 1.03;

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

/// What is measured outside the comparison.
#[derive(Debug, Default)]
pub(crate) struct More {
    pub(crate) tables: String,
    pub(crate) goals: Vec<Goal>,
    /// Figures whose limits were set for another set of traces, which are not judged.
    pub(crate) figures: Vec<Goal>,
}

/// The table of goals: those of the comparison, and those of the other measurements.
pub(crate) fn table(
    results: &Results<'_>,
    arguments: &Arguments,
    more: &More,
) -> Result<String, Error> {
    let mut text = format!(
        "\n**Goals of {CANDIDATE}, by the rule {}**\n\n| goal | limit | actual | met |\n|---|---|---|---|\n",
        arguments.rule
    );
    let mut goals = Vec::new();
    for (i, start_up) in START_UPS.into_iter().enumerate() {
        goals.extend(by_start_up(results, arguments, i, start_up));
    }
    goals.extend(at_two_minutes(results, arguments));
    goals.extend_from_slice(&more.goals);
    let figures = more.figures.iter().map(|figure| (figure, false));
    for (goal, is_judged) in goals.iter().map(|goal| (goal, true)).chain(figures) {
        let Goal {
            what,
            limit,
            actual,
        } = goal;
        let met = match actual {
            Some(_) if !is_judged => "set for other traces",
            Some(actual) if limit.holds(*actual) => "yes",
            Some(_) => "no",
            None => "not judged",
        };
        let actual = number(*actual, 3);
        writeln!(text, "| {what} | {} | {actual} | {met} |", limit.text())?;
    }
    Ok(text)
}

fn default_setting() -> String {
    format!("q={DEFAULT_QUANTILE}")
}

fn by_start_up(
    results: &Results<'_>,
    arguments: &Arguments,
    i: usize,
    start_up: usize,
) -> Vec<Goal> {
    let part = Part::all(start_up, arguments.rule);
    let setting = default_setting();
    let own = results.means(CANDIDATE, &setting, part);
    let alone = results.means(NaiveCandidate::HPA, PLAIN, part);
    let crane = results.crane(part);
    let curve = results.curve(CANDIDATE, part);
    let at_crane = crane.and_then(|crane| curve.at(crane.replicas));
    let cut = |under: Option<f64>, of: Option<f64>| Some(100.0 * (1.0 - under? / of?));
    let under = own.map(|own| own.under);
    let at = |limits: [f64; 3]| limits.get(i).copied().unwrap_or(0.0);
    let is_smoothed = results.history() > 1;
    let allowed = if is_smoothed { SMOOTHED } else { 1.0 };
    let cost = arguments.replica_hours;
    let goal = |what: &str, limit, actual| Goal {
        what: format!("{what}, S = {start_up}"),
        limit,
        actual,
    };
    vec![
        goal(
            &format!("U at RH {cost:.3}, %"),
            Limit::AtMost(allowed * at(AT_EQUAL_COST)),
            curve.at(cost),
        ),
        goal(
            &format!("U at {setting}, %"),
            Limit::AtMost(at(AT_DEFAULT)),
            under,
        ),
        goal(
            "cut of U against crane15-W60 at its RH, %",
            Limit::AtLeast(at(CUT_AGAINST_CRANE)),
            cut(at_crane, crane.map(|crane| crane.under)),
        ),
        goal(
            &format!("cut of U against the HPA alone at {setting}, %"),
            Limit::AtLeast(90.0),
            cut(under, alone.map(|alone| alone.under)),
        ),
        goal(
            &format!("changes a day at {setting}, HPA alone allows"),
            Limit::AtMost(alone.map_or(0.0, |alone| alone.actions)),
            own.map(|own| own.actions),
        ),
        goal(
            &format!("coverage at {setting}: traces within 1 point, %"),
            Limit::AtLeast(90.0),
            results.covered_within(CANDIDATE, DEFAULT_QUANTILE, 1.0, part),
        ),
    ]
}

fn at_two_minutes(results: &Results<'_>, arguments: &Arguments) -> Vec<Goal> {
    let part = Part::all(2, arguments.rule);
    let setting = default_setting();
    let smooth = Part {
        set: Set::Class("smooth"),
        ..part
    };
    let smooth = results.means(CANDIDATE, &setting, smooth);
    let goal = |what: String, limit, actual| Goal {
        what,
        limit,
        actual,
    };
    let mut goals = vec![
        goal(
            format!("smooth loads: RH at {setting}, S = 2"),
            Limit::AtMost(1.05),
            smooth.map(|means| means.replicas),
        ),
        goal(
            format!("smooth loads: U at {setting}, S = 2, %"),
            Limit::AtMost(0.2),
            smooth.map(|means| means.under),
        ),
    ];
    for (setting, asked) in [("q=0.8", 80.0), ("q=0.94", 94.0), ("q=0.95", 95.0)] {
        let coverage = results.accuracies(CANDIDATE, setting, part);
        let coverage = mean(coverage.map(|one| one.coverage));
        goals.push(goal(
            format!("coverage at {setting}, S = 2: the mean is off by, points"),
            Limit::AtMost(1.0),
            coverage.map(|mean| (mean - asked).abs()),
        ));
    }
    let objective = results.means(AUTO_OBJECTIVE, "a=1 %", part);
    let under = objective.map(|means| means.under);
    let what = "U with a limit of 1 %, S = 2, %";
    goals.push(goal(what.to_owned(), Limit::AtMost(1.2), under));
    goals.push(goal(what.to_owned(), Limit::AtLeast(0.8), under));
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
