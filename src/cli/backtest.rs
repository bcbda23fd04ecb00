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
mod view;

use std::ops::ControlFlow;

use clap::ValueEnum;
use foretide_backtest::{
    inputs,
    report::{BacktestReport, Comparison},
    setup::{EvaluationOptions, Setup},
    sweep::Quantiles,
    threshold::{self, Bound},
};
use foretide_base::exit::Exit;
use jiff::{SignedDuration, Timestamp};

pub use self::panel::{Panel, legend, points};
use super::{
    cluster,
    context::{CommandContext, Progress, parse_time},
    history::{Reading, parse_duration},
    inputs::{Inputs, Source},
    output::{CommandOutput, Failure, ReportFormat},
};

/// The longest start-up: a workload that takes longer to start is not scaled by its load.
const START_UP_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Arguments of `foretide backtest`.
#[derive(Debug, Clone, clap::Args)]
pub struct BacktestArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    inputs: Inputs,
    /// Baseline that runs over the same history: hpa is the same autoscaler without prediction and crons
    #[arg(long, value_enum, default_value_t)]
    compare: Baseline,
    /// Time from requesting a pod until it serves, such as 90s or 5m [default: leadTimeSeconds
    /// of the spec, else 2m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_start_up)]
    start_up: Option<SignedDuration>,
    /// Start of the evaluation, in RFC 3339; earlier samples only train the forecaster
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "warm_up")]
    from: Option<Timestamp>,
    /// History that only trains the forecaster, such as 3d [default: 7d; of a history shorter than 10.5 days all but
    /// the last 4 days, at least 2d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    warm_up: Option<SignedDuration>,
    /// End of the evaluation, in RFC 3339 [default: the end of the history]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<Timestamp>,
    /// Exit with code 4 if Foretide exceeds this bound: under>1% (minutes), cost>10% (replica-hours more than
    /// the plain HPA) or actions>50; repeatable
    #[arg(long, value_name = "BOUND")]
    fail_if: Vec<Bound>,
    /// Replay each of these quantiles as well, to compare their costs with the minutes in which replicas are short
    #[arg(
        long,
        value_name = "QUANTILES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.5,0.7,0.8,0.9,0.94,0.99"
    )]
    sweep: Option<Quantiles>,
    /// Let all autoscalers of the manifests share a budget: together at most so many percent more replicas than plain
    /// HPAs. Each history names its autoscaler: --csv NAME=FILE or NAME/METRIC=FILE
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = budget::parse_percent,
        conflicts_with_all = ["sweep", "fail_if", "compare"]
    )]
    max_cost_percent: Option<f64>,
    /// Draw with ASCII characters only
    #[arg(long)]
    ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
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

/// Reads the time that a pod takes to start.
fn parse_start_up(text: &str) -> Result<SignedDuration, String> {
    let start_up = parse_duration(text)?;
    if start_up > START_UP_MAX {
        return Err(format!(
            "expected at most a day, such as 90s or 5m, got {text:?}"
        ));
    }
    Ok(start_up)
}

/// Runs `foretide backtest`; `progress` is called with the current step.
///
/// # Errors
/// A file cannot be read or used, or the flags are invalid or incomplete.
pub fn run(
    args: &BacktestArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    if let Some(percent) = args.max_cost_percent {
        return budget::run(percent, args, context, progress);
    }
    let screen = context.screen.with_ascii(args.ascii);
    let comparison = args.comparison();
    threshold::check(&comparison.bounds, comparison.with_plain)?;
    let (setup, read) = read(
        &args.inputs,
        args.evaluation(),
        args.compare,
        context,
        progress,
    )?;
    let report = BacktestReport::new(setup, &comparison, &mut |done| {
        progress(Progress::Replaying(done));
        ControlFlow::Continue(())
    })?;
    let exceeded = report.outcomes.iter().filter(|outcome| outcome.exceeded);
    let failures: Vec<_> = exceeded.map(|it| format!("foretide: {it}\n")).collect();
    let exit = if failures.is_empty() {
        Exit::Ok
    } else {
        Exit::Threshold
    };
    let output = match args.output {
        ReportFormat::Table => CommandOutput::text(view::text(&report, screen)),
        ReportFormat::Json => CommandOutput::json("Backtest", &report),
        ReportFormat::Csv => CommandOutput::text(view::csv(&report)),
        ReportFormat::Svg => CommandOutput::text(page::chart(&report).draw().svg()),
        ReportFormat::Html => CommandOutput::text(page::html(&report)?),
    };
    Ok(CommandOutput {
        notes: read + &failures.concat(),
        exit,
        ..output
    })
}

/// The set-up of an autoscaler with its histories, and notes on the reading of the histories.
fn read(
    inputs: &Inputs,
    options: EvaluationOptions,
    compare: Baseline,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Setup, String), Failure> {
    let runtime = cluster::runtime()?;
    let mut source = Source::new(inputs, &runtime, &context.machine)?;
    let name = inputs.name.as_deref();
    let mut chosen = inputs::chosen_one(&source.documents, name, &context.validator())?;
    // The recorded history ends at the present.
    let until = options
        .until
        .map_or(context.now, |until| until.min(context.now));
    let histories = source.histories(&mut chosen, &mut Reading { until, progress })?;
    let converted = std::mem::take(&mut source.converted);
    let templates = source.templates(&chosen.workload)?;
    let mut setup = Setup::of(chosen, &histories.read, templates, options)?;
    setup.note_input(converted, histories.missing, compare == Baseline::Hpa);
    Ok((setup, histories.notes))
}

// === impl BacktestArgs ===

impl BacktestArgs {
    fn evaluation(&self) -> EvaluationOptions {
        EvaluationOptions {
            start_up: self.start_up,
            from: self.from,
            warm_up: self.warm_up,
            until: self.until,
        }
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            with_plain: self.compare == Baseline::Hpa,
            quantiles: self.sweep.as_ref().map_or_else(Vec::new, Quantiles::to_vec),
            bounds: self.fail_if.clone(),
        }
    }
}
