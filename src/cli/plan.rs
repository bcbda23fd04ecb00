//! `foretide plan`: one decision, offline, from a manifest and a recorded history; or the expected replicas of a span.
//!
//! ```text
//! manifest -> validate -> Workload --+           +-> decide --> view
//! Deployment or --request -----------+-> Situation
//! history -outlook-> demand, forecast+           +-> sim::Ahead --> expected
//! ```
//!
//! Everything between the files and the text is code of the controller. The state of a cluster is assumed, and each
//! assumption is printed. A fleet is decided as one workload and then divided.

mod expected;
mod view;

use std::path::PathBuf;

use foretide_backtest::{
    inputs::{self, AutoscalerKind},
    plan::{self, Evidence, ExpectedReport, PlanReport, Situation, Span, Subject, Times},
};
use jiff::Timestamp;

use self::expected::page;
use super::{
    assign, cluster,
    context::{CommandContext, Progress, parse_time},
    history::Reading,
    inputs::{Inputs, Source},
    output::{CommandOutput, Failure, ReportFormat, Screen},
};
use foretide_api::validation::MAX_REPLICAS;

/// Arguments of `foretide plan`.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Current number of replicas [default: what the demand needs]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_REPLICAS))
    )]
    pub replicas: Option<u32>,
    /// Clusters of the FederatedHPA, in the format of examples/clusters.yaml
    #[arg(long, value_name = "FILE")]
    pub clusters: Option<PathBuf>,
    /// Time of the decision, in RFC 3339 [default: the time of the last sample]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<Timestamp>,
    /// Instead of one decision, the replicas that forecast, cron windows and bounds ask for from this time on, in RFC
    /// 3339 [default: the time of the last sample]; a time in the history is forecast from what was known then
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "at")]
    pub from: Option<Timestamp>,
    /// End of that span [default: a day after --from]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "at")]
    pub to: Option<Timestamp>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format; csv, svg and html show a span, as of --from and --to
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ReportFormat,
}

/// Runs `foretide plan`.
///
/// # Errors
/// A file cannot be read or used, or the flags are invalid or incomplete.
pub fn run(
    args: &PlanArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    let (situation, span, notes) = read(args, context, progress)?;
    let output = match span {
        None => decision(&PlanReport::new(situation)?, args.output, screen),
        Some(span) => ahead(&ExpectedReport::new(situation, span)?, args.output, screen)?,
    };
    Ok(CommandOutput { notes, ..output })
}

fn decision(plan: &PlanReport, format: ReportFormat, screen: Screen) -> CommandOutput {
    match format {
        ReportFormat::Json => CommandOutput::json("Plan", plan),
        _ => CommandOutput::text(view::text(plan, screen)),
    }
}

fn ahead(
    report: &ExpectedReport,
    format: ReportFormat,
    screen: Screen,
) -> Result<CommandOutput, Failure> {
    Ok(match format {
        ReportFormat::Table => CommandOutput::text(expected::view::text(report, screen)),
        ReportFormat::Json => CommandOutput::json("ExpectedReplicas", report),
        ReportFormat::Csv => CommandOutput::text(expected::view::csv(report)),
        ReportFormat::Svg => CommandOutput::text(page::chart(report).draw().svg()),
        ReportFormat::Html => CommandOutput::text(page::html(report)?),
    })
}

/// The state at `--at`, or at `--from` if that is in the history; the span, if one is asked for; and notes on the
/// reading of the histories.
fn read(
    args: &PlanArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Situation, Option<Span>, String), Failure> {
    let runtime = cluster::runtime()?;
    let mut source = Source::new(&args.inputs, &runtime, &context.machine)?;
    let name = args.inputs.name.as_deref();
    let kind = AutoscalerKind::Any;
    let accepted = inputs::chosen(&source.documents, kind, name, &context.validator())?;
    let given = args.clusters.as_deref();
    let needed = plan::needs_clusters(&accepted, given.is_some())?;
    let clusters = given.filter(|_| needed).map(assign::clusters).transpose()?;
    let converted = std::mem::take(&mut source.converted);
    let mut subject = Subject::new(accepted, clusters, converted);
    // The demand after --from is shown together with its forecast.
    let until = args
        .at
        .or(args.to)
        .map_or(context.now, |at| at.min(context.now));
    let histories = source.histories(&mut subject.chosen, &mut Reading { until, progress })?;
    let times = args.times();
    let at = times.moment(&histories.read, context.now)?;
    let span = args.is_ahead().then(|| Span::new(times, at));
    let evidence = Evidence {
        histories: histories.read,
        missing: histories.missing,
        at,
        span: span.transpose()?,
    };
    let (span, workload) = (evidence.span, &subject.chosen.workload);
    let template = source.templates(workload)?.template(workload)?;
    let situation = subject.situation(evidence, template, args.replicas)?;
    Ok((situation, span, histories.notes))
}

// === impl PlanArgs ===

impl PlanArgs {
    const fn times(&self) -> Times {
        Times {
            at: self.at,
            from: self.from,
            to: self.to,
        }
    }

    /// Returns whether a span is asked for, which alone has charts.
    const fn is_ahead(&self) -> bool {
        let has_chart = matches!(
            self.output,
            ReportFormat::Csv | ReportFormat::Svg | ReportFormat::Html
        );
        self.from.is_some() || self.to.is_some() || has_chart
    }
}
