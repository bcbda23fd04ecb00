//! `foretide backtest`: the controller's decisions over a recorded history, scored beside a plain HPA.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request -----------+--> sim: decide, minute by minute --> Score --> table, JSON, CSV
//! CSV or Prometheus -----------------+         once as written, once as a plain HPA
//! ```
//!
//! The decisions and forecasts are the controller's own. The state of a cluster is assumed, and each assumption is
//! printed.

mod panel;
mod setup;
mod threshold;
mod view;

use clap::ValueEnum;
use foretide_domain::sim::{Minute, Run, Score};
use foretide_models::{Forecast, Prediction};
use jiff::{SignedDuration, Timestamp};

use self::threshold::{Bound, Outcome};
pub(super) use self::{
    panel::{Panel, chart_legend, legend},
    setup::{BacktestSetup, EvaluationOptions},
    view::verdict,
};
use super::{
    context::{CommandContext, Progress, parse_time},
    exit::Exit,
    history::parse_duration,
    inputs::Inputs,
    output::{CommandOutput, Failure},
};

/// Arguments of `foretide backtest`.
#[derive(Debug, Clone, clap::Args)]
pub struct BacktestArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Baseline that runs over the same history: hpa is the same autoscaler without prediction and crons
    #[arg(long, value_enum, default_value_t)]
    pub compare: Baseline,
    /// Time from requesting a pod until it serves, such as 90s or 5m [default: leadTimeSeconds
    /// of the spec, else 2m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = setup::parse_start_up)]
    pub start_up: Option<SignedDuration>,
    /// Start of the evaluation, in RFC 3339; earlier samples only train the forecaster
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "warm_up")]
    pub from: Option<Timestamp>,
    /// How much of the history only trains the forecaster, such as 3d [default: 7d; of a history shorter than
    /// 10.5 days all but the last 4 days, at least 2d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub warm_up: Option<SignedDuration>,
    /// End of the evaluation, in RFC 3339 [default: the end of the history]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,
    /// Exit with code 4 if Foretide exceeds this bound: under>1% (minutes), cost>10% (replica-hours more than
    /// the plain HPA) or actions>50; repeatable
    #[arg(long, value_name = "BOUND")]
    pub fail_if: Vec<Bound>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ReportFormat,
}

/// The baseline that Foretide is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// The same autoscaler without prediction and crons
    #[default]
    Hpa,
    /// No baseline
    None,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    #[default]
    Table,
    /// Every number, for programs
    Json,
    /// One row per minute
    Csv,
}

/// The result of one run: Foretide or the baseline.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) name: &'static str,
    pub(super) score: Score,
    pub(super) minutes: Vec<Minute>,
    /// The forecast for each minute, made one lead time before, in replicas.
    pub(super) forecasts: Vec<Prediction>,
    /// The quantile of the forecast in force, if it has one.
    pub(super) quantile: Option<f64>,
}

/// Everything that is reported.
#[derive(Debug)]
struct BacktestReport {
    setup: BacktestSetup,
    ours: RunResult,
    plain: Option<RunResult>,
    outcomes: Vec<Outcome>,
}

// === impl RunResult ===

impl RunResult {
    /// The result of a run before its first minute.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            score: Score::default(),
            minutes: Vec::new(),
            forecasts: Vec::new(),
            quantile: None,
        }
    }

    /// Advances the run by one minute and records it.
    pub(super) fn add(&mut self, run: &mut Run<'_>) -> foretide_domain::autoscale::Decision {
        let (minute, decision) = run.minute();
        self.score.add(&minute, &decision);
        self.minutes.push(minute);
        self.forecasts.extend(run.forecast_for(minute.at));
        let peak = run.forecast().and_then(Forecast::direct);
        self.quantile = peak.map(|peak| peak.quantile).or(self.quantile);
        decision
    }
}

/// Runs `foretide backtest`; `progress` is told what it is doing.
///
/// # Errors
/// A file cannot be read or used, or the flags are invalid or incomplete.
pub(super) fn run(
    args: &BacktestArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    threshold::check(&args.fail_if, args.compare)?;
    let (setup, read) = BacktestSetup::new(args, context, progress)?;
    let report = report(setup, args, progress);
    let failed = report.outcomes.iter().filter(|o| o.exceeded);
    let failed: Vec<String> = failed.map(ToString::to_string).collect();
    let failures = failed.iter().flat_map(|o| ["foretide: ", o.as_str(), "\n"]);
    let notes: String = [read.as_str()].into_iter().chain(failures).collect();
    let exit = if failed.is_empty() {
        Exit::Ok
    } else {
        Exit::Threshold
    };
    let output = match args.output {
        ReportFormat::Table => CommandOutput::text(view::text(&report, screen)),
        ReportFormat::Json => CommandOutput::json("Backtest", view::json(&report)),
        ReportFormat::Csv => CommandOutput::text(view::csv(&report)),
    };
    Ok(CommandOutput {
        notes,
        exit,
        ..output
    })
}

fn report(
    setup: BacktestSetup,
    args: &BacktestArgs,
    progress: &mut dyn FnMut(Progress<'_>),
) -> BacktestReport {
    let (ours, plain) = match args.compare {
        // The forecasts cost the most by far, so the progress of the baseline is not shown.
        Baseline::None => (evaluate(&setup, "Foretide", setup.ours(), progress), None),
        Baseline::Hpa => (
            evaluate(&setup, "Foretide", setup.ours(), progress),
            Some(evaluate(&setup, "plain HPA", setup.plain(), &mut |_| {})),
        ),
    };
    let bounds = args.fail_if.iter();
    let outcomes = bounds.map(|bound| bound.outcome(&ours.score, plain.as_ref().map(|p| &p.score)));
    BacktestReport {
        outcomes: outcomes.collect(),
        setup,
        ours,
        plain,
    }
}

fn evaluate(
    setup: &BacktestSetup,
    name: &'static str,
    mut run: Run<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> RunResult {
    let mut result = RunResult::new(name);
    for _ in 0..setup.lead_in() {
        run.minute();
    }
    let all = setup.minutes();
    for minute in 0..all {
        result.add(&mut run);
        progress(Progress::Replaying(f64::from(minute + 1) / f64::from(all)));
    }
    result
}
