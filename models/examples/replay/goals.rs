//! What a forecaster has to reach, and whether it did on these traces. Limits that were set for another set of traces
//! and only mean something there are not judged: they stand beside what another implementation reaches on these.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{Curve, mean};

use crate::comparison::{AUTO_OBJECTIVE, START_UPS};
use crate::report::number;
use crate::results::{Part, Results};

/// What is asked at start-ups of 2, 5 and 10 minutes.
const AT_CRANE: [f64; 3] = [0.35, 0.70, 1.05];
const CUT_AGAINST_CRANE: [f64; 3] = [80.0, 72.0, 68.0];
const UNDER: [f64; 3] = [0.50, 0.72, 0.80];
const REPLICAS: [f64; 3] = [1.14, 1.18, 1.23];

/// The default setting.
const DEFAULT: &str = "q=0.9";

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) must: Limit,
    pub(crate) seen: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// What is measured apart from the tournament.
#[derive(Debug, Default)]
pub(crate) struct Further {
    pub(crate) goals: Vec<Goal>,
    /// Those that depend on the set of traces.
    pub(crate) figures: Vec<Goal>,
}

/// A figure that depends on the set of traces, the limit that was set for another set, and what the golden file comes
/// to on this one.
#[derive(Debug)]
struct Figure {
    goal: Goal,
    golden: Option<f64>,
}

/// The table of goals of one contender: those that these replays can judge, and what was measured apart.
pub(crate) fn table(
    results: &Results<'_>,
    contender: &str,
    further: &Further,
) -> Result<String, Error> {
    let mut text =
        format!("\n**Goals, {contender}**\n\n| goal | must | seen | met |\n|---|---|---|---|\n");
    let mut goals = Vec::new();
    for (i, start_up) in START_UPS.into_iter().enumerate() {
        goals.extend(by_start_up(results, contender, (i, start_up)));
    }
    goals.extend(at_two_minutes(results, contender));
    goals.extend_from_slice(&further.goals);
    for Goal { what, must, seen } in goals {
        let met = match seen {
            Some(seen) if must.holds(seen) => "yes",
            Some(_) => "no",
            None => "not judged",
        };
        let seen = number(seen, 3);
        writeln!(text, "| {what} | {} | {seen} | {met} |", must.text())?;
    }
    let apart = further.figures.iter().cloned();
    let apart = apart.map(|goal| Figure { goal, golden: None });
    let figures = figures(results, contender).into_iter().chain(apart);
    text += &figures_table(contender, figures)?;
    Ok(text)
}

fn figures_table(contender: &str, figures: impl Iterator<Item = Figure>) -> Result<String, Error> {
    let mut text = format!(
        "\n**Figures that depend on the set of traces, {contender}**: the limits were set for another set and are not \
         judged; beside them what the golden file's auto comes to on these traces\n\n\
         | figure | limit there | seen here | golden file |\n|---|---|---|---|\n"
    );
    for Figure { goal, golden } in figures {
        let Goal { what, must, seen } = goal;
        let (seen, golden) = (number(seen, 3), number(golden, 3));
        writeln!(text, "| {what} | {} | {seen} | {golden} |", must.text())?;
    }
    Ok(text)
}

fn figures(results: &Results<'_>, contender: &str) -> Vec<Figure> {
    let figure = |what: String, most, seen, golden| Figure {
        goal: Goal {
            what,
            must: Limit::AtMost(most),
            seen,
        },
        golden,
    };
    let mut figures = Vec::new();
    for ((start_up, at_crane), replicas) in START_UPS.into_iter().zip(AT_CRANE).zip(REPLICAS) {
        let part = Part::all(start_up);
        let (own, golden) = (results.curve(contender, part), results.golden_curve(part));
        let crane = results.crane(part).map(|crane| crane.replicas);
        let at = |curve: &Curve| curve.at(crane?);
        figures.push(figure(
            format!("U at crane15-W60's RH, %, S = {start_up}"),
            at_crane,
            at(&own),
            at(&golden),
        ));
        let own = results.means(contender, DEFAULT, part);
        let golden = results.filed("auto q=0.9", part);
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
        results.curve(contender, part).at(1.10),
        results.golden_curve(part).at(1.10),
    ));
    figures.push(figure(
        "pinball loss at 0.9, S = 2, %".to_owned(),
        2.85,
        results.loss(contender, DEFAULT, part, |accuracy| accuracy.pinball_90),
        None,
    ));
    figures
}

fn by_start_up(results: &Results<'_>, contender: &str, (i, start_up): (usize, usize)) -> Vec<Goal> {
    let part = Part::all(start_up);
    let own = results.means(contender, DEFAULT, part);
    let alone = results.means("hpa", "+0 %", part);
    let crane = results.crane(part);
    let at_crane = crane.and_then(|crane| results.curve(contender, part).at(crane.replicas));
    let cut = |under: Option<f64>, of: Option<f64>| Some(100.0 * (1.0 - under? / of?));
    let under = own.map(|own| own.under);
    let limit = |limits: [f64; 3]| limits.get(i).copied().unwrap_or(0.0);
    let goal = |what: &str, must, seen| Goal {
        what: format!("{what}, S = {start_up}"),
        must,
        seen,
    };
    vec![
        goal(
            "cut of U against crane15-W60 at its RH, %",
            Limit::AtLeast(limit(CUT_AGAINST_CRANE)),
            cut(at_crane, crane.map(|crane| crane.under)),
        ),
        goal("U at q = 0.9, %", Limit::AtMost(limit(UNDER)), under),
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

fn at_two_minutes(results: &Results<'_>, contender: &str) -> Vec<Goal> {
    let part = Part::all(2);
    let smooth = results.means(
        contender,
        DEFAULT,
        Part {
            class: Some("smooth"),
            ..part
        },
    );
    let goal = |what: &str, must, seen| Goal {
        what: what.to_owned(),
        must,
        seen,
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
    goals.extend(coverage(results, contender, part));
    if contender == "auto" {
        let under = results
            .means(AUTO_OBJECTIVE, "a=1 %", part)
            .map(|means| means.under);
        let what = "U asked to stay below 1 %, S = 2, %";
        goals.push(goal(what, Limit::AtMost(1.2), under));
        goals.push(goal(what, Limit::AtLeast(0.8), under));
    }
    goals
}

/// How far coverage is from what was asked.
fn coverage(results: &Results<'_>, contender: &str, part: Part<'_>) -> Vec<Goal> {
    let goal = |what, must, seen| Goal { what, must, seen };
    let mut goals = Vec::new();
    for (setting, asked) in [("q=0.8", 80.0), ("q=0.9", 90.0), ("q=0.95", 95.0)] {
        let seen: Vec<f64> = results
            .entries(contender, setting, part)
            .filter_map(|entry| entry.accuracy.map(|accuracy| accuracy.coverage))
            .collect();
        let off = mean(seen.iter().copied()).map(|mean| (mean - asked).abs());
        let near = seen
            .iter()
            .map(|seen| f64::from((seen - asked).abs() <= 2.0));
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
    fn holds(self, seen: f64) -> bool {
        match self {
            Self::AtMost(most) => seen <= most,
            Self::AtLeast(least) => seen >= least,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most:.2}"),
            Self::AtLeast(least) => format!(">= {least:.2}"),
        }
    }
}
