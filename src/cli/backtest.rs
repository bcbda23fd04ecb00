//! `foretide backtest`: what the controller would have done over a recorded history, and how it would have fared.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request -----------+--> sim: decide, minute by minute --> Score --> table, JSON, CSV
//! CSV -------------------------------+         once as written, once as a plain HPA
//! ```
//!
//! The decisions and the forecasts are the controller's own. What a cluster would have told is assumed, and each
//! assumption is printed.

mod panel;
mod setup;
mod threshold;
mod view;

use clap::ValueEnum;
use foretide_models::{Forecast, Prediction};
use jiff::{SignedDuration, Timestamp};

use self::threshold::{Bound, Outcome};
pub(super) use self::{
    panel::{Panel, legend},
    setup::{Asked, BacktestSetup},
    view::verdict,
};
use super::{
    exit::Exit,
    inputs::Inputs,
    output::{Answer, Failure, Screen},
};
use crate::{
    domain::cron::Zone,
    sim::{Minute, Run, Score},
};

/// Arguments of `foretide backtest`.
#[derive(Debug, Clone, clap::Args)]
pub struct BacktestArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Who else runs over the same history: hpa is the same autoscaler without prediction and crons
    #[arg(long, value_enum, default_value_t)]
    pub compare: Baseline,
    /// How long a pod takes from being asked for to serving, such as 90s or 5m [default: leadTimeSeconds
    /// of the spec, else 2m]
    #[arg(long, value_name = "DURATION", value_parser = setup::parse_duration)]
    pub start_up: Option<SignedDuration>,
    /// When judging begins, in RFC 3339; all before is there to learn from
    #[arg(long, value_name = "TIME", conflicts_with = "warm_up")]
    pub from: Option<Timestamp>,
    /// How much of the history is only there to learn from, such as 3d [default: 7d, of less than ten
    /// days and a half all but the last four days, and at least 2d]
    #[arg(long, value_name = "DURATION", value_parser = setup::parse_duration)]
    pub warm_up: Option<SignedDuration>,
    /// When judging ends, in RFC 3339 [default: the end of the history]
    #[arg(long, value_name = "TIME")]
    pub until: Option<Timestamp>,
    /// Exit with code 4 if this holds of Foretide: under>1% (minutes), cost>10% (replica-hours more than
    /// the plain HPA) or actions>50; repeatable
    #[arg(long, value_name = "BOUND")]
    pub fail_if: Vec<Bound>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Form,
}

/// Who else runs over the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// The same autoscaler without prediction and crons
    #[default]
    Hpa,
    /// Nobody
    None,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    #[default]
    Table,
    /// Every number, for programs
    Json,
    /// One row per minute
    Csv,
}

/// How one contender fared.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) name: &'static str,
    pub(super) score: Score,
    pub(super) minutes: Vec<Minute>,
    /// What was forecast for each of them a lead time before, in replicas.
    pub(super) foretold: Vec<Prediction>,
    /// The quantile of the forecast in force, if it has one.
    pub(super) quantile: Option<f64>,
}

/// Everything there is to report.
#[derive(Debug)]
struct Report {
    lab: BacktestSetup,
    ours: RunResult,
    plain: Option<RunResult>,
    outcomes: Vec<Outcome>,
}

// === impl RunResult ===

impl RunResult {
    /// A contender that has not begun.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            score: Score::default(),
            minutes: Vec::new(),
            foretold: Vec::new(),
            quantile: None,
        }
    }

    /// Takes one more minute of a run.
    pub(super) fn add(&mut self, run: &mut Run<'_>) -> crate::domain::autoscale::Decision {
        let (minute, decision) = run.minute();
        self.score.add(&minute, &decision);
        self.minutes.push(minute);
        self.foretold.extend(run.foretold(minute.at));
        let peak = run.forecast().and_then(Forecast::direct);
        self.quantile = peak.map(|peak| peak.quantile).or(self.quantile);
        decision
    }
}

/// Answers `foretide backtest`; `progress` hears which part is done.
///
/// # Errors
/// A file cannot be read or used, or the flags leave something open.
pub(super) fn run(
    args: &BacktestArgs,
    screen: Screen,
    (local, now): (&Zone, Timestamp),
    progress: &mut dyn FnMut(f64),
) -> Result<Answer, Failure> {
    let screen = Screen {
        unicode: screen.unicode && !args.ascii,
        ..screen
    };
    threshold::check(&args.fail_if, args.compare)?;
    let lab = BacktestSetup::new(args, local, now)?;
    let report = report(lab, args, progress);
    let failed = report.outcomes.iter().filter(|o| o.exceeded);
    let failed: Vec<String> = failed.map(ToString::to_string).collect();
    let notes: String = failed
        .iter()
        .flat_map(|o| ["foretide: ", o.as_str(), "\n"])
        .collect();
    let exit = if failed.is_empty() {
        Exit::Ok
    } else {
        Exit::Threshold
    };
    let answer = match args.output {
        Form::Table => Answer::text(view::text(&report, screen)),
        Form::Json => Answer::json("Backtest", view::json(&report)),
        Form::Csv => Answer::text(view::csv(&report)),
    };
    Ok(Answer {
        notes,
        exit,
        ..answer
    })
}

fn report(lab: BacktestSetup, args: &BacktestArgs, progress: &mut dyn FnMut(f64)) -> Report {
    let (ours, plain) = match args.compare {
        // The forecasts cost the most by far, so the rival's part of the work is not worth showing.
        Baseline::None => (judged(&lab, "Foretide", lab.ours(), progress), None),
        Baseline::Hpa => (
            judged(&lab, "Foretide", lab.ours(), progress),
            Some(judged(&lab, "plain HPA", lab.plain(), &mut |_| {})),
        ),
    };
    let bounds = args.fail_if.iter();
    let outcomes = bounds.map(|bound| bound.outcome(&ours.score, plain.as_ref().map(|p| &p.score)));
    Report {
        outcomes: outcomes.collect(),
        lab,
        ours,
        plain,
    }
}

fn judged(
    lab: &BacktestSetup,
    name: &'static str,
    mut run: Run<'_>,
    progress: &mut dyn FnMut(f64),
) -> RunResult {
    let mut fared = RunResult::new(name);
    for _ in 0..lab.lead_in() {
        run.minute();
    }
    let all = lab.minutes();
    for minute in 0..all {
        fared.add(&mut run);
        progress(f64::from(minute + 1) / f64::from(all));
    }
    fared
}
