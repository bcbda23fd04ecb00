//! `foretide backtest`: the controller's decisions over a recorded history, scored beside a plain HPA.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request -----------+--> sim: decide, minute by minute --> Score --> table, JSON, CSV
//! CSV or Prometheus -----------------+         once as written, once as a plain HPA, once per quantile of a sweep
//! ```
//!
//! Several autoscalers are run beside each other where they share a budget (`budget`).
//!
//! The decisions and forecasts are the controller's own. The state of a cluster is assumed, and each assumption is
//! printed.

mod budget;
pub mod lab;
mod page;
mod panel;
mod setup;
mod sweep;
mod threshold;
mod view;
mod worst;

use std::ops::ControlFlow;

use clap::ValueEnum;
use foretide_base::exit::Exit;
use foretide_domain::sim::{Minute, Run, Score};
use foretide_models::{Forecast, Prediction};
use jiff::{SignedDuration, Timestamp};

pub(super) use self::{
    panel::{Panel, legend},
    setup::{BacktestSetup, EvaluationOptions},
};
use self::{
    sweep::{Quantiles, SweepRun},
    threshold::{Bound, Outcome},
};
use super::{
    context::{CommandContext, Progress, parse_time},
    history::parse_duration,
    inputs::Inputs,
    output::{CommandOutput, Failure, ReportFormat},
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
    /// History that only trains the forecaster, such as 3d [default: 7d; of a history shorter than 10.5 days all but
    /// the last 4 days, at least 2d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub warm_up: Option<SignedDuration>,
    /// End of the evaluation, in RFC 3339 [default: the end of the history]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,
    /// Exit with code 4 if Foretide exceeds this bound: under>1% (minutes), cost>10% (replica-hours more than
    /// the plain HPA) or actions>50; repeatable
    #[arg(long, value_name = "BOUND")]
    pub fail_if: Vec<Bound>,
    /// Replay each of these quantiles as well, to compare their costs with the minutes in which replicas are short
    #[arg(
        long,
        value_name = "QUANTILES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.5,0.7,0.8,0.9,0.94,0.99"
    )]
    pub sweep: Option<Quantiles>,
    /// Let all autoscalers of the manifests share a budget: together at most so many percent more replicas than plain
    /// HPAs. Each history names its autoscaler: --csv NAME=FILE or NAME/METRIC=FILE
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = budget::parse_percent,
        conflicts_with_all = ["sweep", "fail_if", "compare"]
    )]
    pub max_cost_percent: Option<f64>,
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

/// The result of one run of Foretide or of the baseline.
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

/// The results of a back-test.
#[derive(Debug)]
struct BacktestReport {
    setup: BacktestSetup,
    ours: RunResult,
    plain: Option<RunResult>,
    /// One per quantile of a sweep.
    sweep: Vec<SweepRun>,
    outcomes: Vec<Outcome>,
}

/// Runs besides that of the autoscaler as written, and the bounds to check.
#[derive(Clone, Debug, Default)]
struct Comparison {
    baseline: Baseline,
    quantiles: Vec<f64>,
    bounds: Vec<Bound>,
}

/// The runs were stopped by their [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stopped;

/// Called with the fraction that is done; a break stops the runs.
type Watch<'a> = dyn FnMut(f64) -> ControlFlow<()> + 'a;

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
        // The last known quantile: in the last minute there may be no forecast.
        self.quantile = peak.map(|peak| peak.quantile).or(self.quantile);
        decision
    }
}

/// Runs `foretide backtest`; `progress` is called with the current step.
///
/// # Errors
/// A file cannot be read or used, or the flags are invalid or incomplete.
pub(super) fn run(
    args: &BacktestArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    if let Some(percent) = args.max_cost_percent {
        return budget::run(percent, args, context, progress);
    }
    threshold::check(&args.fail_if, args.compare)?;
    let (setup, read) = BacktestSetup::read(args, context, progress)?;
    let comparison = Comparison {
        baseline: args.compare,
        quantiles: args.sweep.as_ref().map_or_else(Vec::new, Quantiles::to_vec),
        bounds: args.fail_if.clone(),
    };
    let report = BacktestReport::new(setup, &comparison, &mut |done| {
        progress(Progress::Replaying(done));
        ControlFlow::Continue(())
    })?;
    let exceeded = report.outcomes.iter().filter(|o| o.exceeded);
    let failed: Vec<String> = exceeded.map(ToString::to_string).collect();
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
        ReportFormat::Svg => CommandOutput::text(page::chart(&report).svg()),
        ReportFormat::Html => CommandOutput::text(page::html(&report)?),
    };
    Ok(CommandOutput {
        notes,
        exit,
        ..output
    })
}

// === impl BacktestReport ===

impl BacktestReport {
    /// Runs everything.
    ///
    /// # Errors
    /// A sweep is asked for and the forecast has no quantile, or `watch` stopped the runs.
    fn new(
        setup: BacktestSetup,
        comparison: &Comparison,
        watch: &mut Watch<'_>,
    ) -> Result<Self, Failure> {
        let quantiles = &comparison.quantiles;
        if let Some(quantile) = quantiles.first() {
            setup.require_quantile(*quantile)?;
        }
        // The run of the baseline does not count, because nearly all time is spent on forecasts.
        let one = 1.0 / (real(quantiles.len()) + 1.0);
        let ours = evaluate(&setup, "Foretide", setup.ours(), &mut |done| {
            watch(done * one)
        })?;
        let plain = match comparison.baseline {
            Baseline::None => None,
            Baseline::Hpa => {
                let run = setup.plain();
                Some(evaluate(&setup, "plain HPA", run, &mut |_| watch(one))?)
            }
        };
        let sweep = sweep::runs(&setup, quantiles, &mut |done| {
            watch(one + done * (1.0 - one))
        })?;
        let plain_score = plain.as_ref().map(|plain| &plain.score);
        let bounds = comparison.bounds.iter();
        let outcomes = bounds.map(|bound| bound.outcome(&ours.score, plain_score));
        Ok(Self {
            outcomes: outcomes.collect(),
            setup,
            ours,
            plain,
            sweep,
        })
    }
}

// === impl Failure ===

impl From<Stopped> for Failure {
    fn from(Stopped: Stopped) -> Self {
        Self::runtime("the back-test was stopped before its end")
    }
}

fn evaluate(
    setup: &BacktestSetup,
    name: &'static str,
    run: Run<'_>,
    watch: &mut Watch<'_>,
) -> Result<RunResult, Stopped> {
    let mut result = RunResult::new(name);
    replay(setup, run, watch, |run| {
        result.add(run);
    })?;
    Ok(result)
}

/// Runs up to the first evaluated minute, and gives each evaluated one to `minute`.
fn replay<'a>(
    setup: &BacktestSetup,
    mut run: Run<'a>,
    watch: &mut Watch<'_>,
    mut minute: impl FnMut(&mut Run<'a>),
) -> Result<(), Stopped> {
    for _ in 0..setup.lead_in() {
        run.minute();
    }
    let all = setup.minutes();
    for index in 0..all {
        minute(&mut run);
        if watch(f64::from(index + 1) / f64::from(all)).is_break() {
            return Err(Stopped);
        }
    }
    Ok(())
}

/// A count of runs, for fractions of them.
fn real(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
