//! `--max-cost-percent`: several autoscalers that share a budget, as those of a namespace do, beside the same ones as
//! written.
//!
//! The runs that share it advance together, minute by minute, and every five minutes the price is computed from what
//! their forecasters measured up to then: by the rule of the controller.

use foretide_backtest::budget::{BudgetReport, BudgetRun};

use super::{BacktestArgs, read, view::heading_span};
use crate::cli::{
    context::{CommandContext, Progress},
    output::{CommandOutput, Failure, Paint, ReportFormat, Screen},
};

/// Reads the percentage of a budget.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|percent| (0.0..=1000.0).contains(percent))
        .ok_or_else(|| format!("expected a percentage from 0 to 1000, such as 15, got {text:?}"))
}

/// Runs `foretide backtest --max-cost-percent`.
///
/// # Errors
/// As those of [`run`](super::run), or no autoscaler leaves its quantile to the budget.
pub fn run(
    percent: f64,
    args: &BacktestArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    if !matches!(args.output, ReportFormat::Table | ReportFormat::Json) {
        return Err(Failure::usage(
            "--max-cost-percent: expected -o table or json",
        ));
    }
    let (mut setups, mut notes) = (Vec::new(), String::new());
    for inputs in args.inputs.each()? {
        let (setup, read) = read(&inputs, args.evaluation(), args.compare, context, progress)?;
        setups.push(setup);
        notes.push_str(&read);
    }
    let report = BudgetReport::new(percent, setups, &mut |done| {
        progress(Progress::Replaying(done));
    })?;
    let output = match args.output {
        ReportFormat::Json => CommandOutput::json("BudgetBacktest", &report),
        _ => CommandOutput::text(text(&report, context.screen.with_ascii(args.ascii))),
    };
    Ok(CommandOutput { notes, ..output })
}

fn text(report: &BudgetReport, screen: Screen) -> String {
    let title = format!(
        "{} autoscalers with a budget of {} % more replicas than plain HPAs",
        report.autoscalers.len(),
        report.max_cost_percent
    );
    let about = heading_span(report.from, report.until);
    let [_, written, sharing] = &report.sum;
    let verdict = format!(
        "In the budget: {} min short instead of {}, for {:+.1} % replica-hours beside the plain HPAs instead of {:+.1} %.",
        sharing.under_provisioned_minutes,
        written.under_provisioned_minutes,
        sharing.replica_hours_percent,
        written.replica_hours_percent,
    );
    let remarks = report.remarks.iter();
    format!(
        "{}\n{}\n\n{}\n{}\n{}",
        screen.paint(Paint::Strong, &title),
        screen.paint(Paint::Dim, &about),
        table(report, screen),
        screen.verdict(&verdict),
        remarks
            .map(|remark| screen.line(Some(Paint::Dim), remark))
            .collect::<String>()
    )
}

/// Three rows per autoscaler and for all.
fn table(report: &BudgetReport, screen: Screen) -> String {
    let header = ["", "", ">QUANTILE", ">SHORT", ">", ">REPLICA-HOURS", ">"];
    let first = |index: usize, name: &str| {
        let name = if index == 0 { name } else { "" };
        name.to_owned()
    };
    let each = report.autoscalers.iter().flat_map(|autoscaler| {
        let [plain, ..] = &autoscaler.candidates;
        autoscaler.candidates.iter().enumerate().map(
            move |(
                index,
                BudgetRun {
                    name,
                    quantile,
                    score,
                },
            )| {
                [
                    first(index, &autoscaler.metadata.name),
                    (*name).to_owned(),
                    quantile.map_or_else(String::new, |quantile| quantile.to_string()),
                    format!("{} min", score.under),
                    format!("{:.2} %", score.under_percent()),
                    format!("{:.1}", score.replica_hours()),
                    format!("{:+.1} %", score.more_percent(&plain.score)),
                ]
            },
        )
    });
    let all = report.sum.iter().enumerate().map(|(index, sum)| {
        let short = sum.under_provisioned_minutes;
        [
            first(index, "all"),
            sum.name.to_owned(),
            String::new(),
            format!("{short} min"),
            format!(
                "{:.2} %",
                100.0 * f64::from(short) / f64::from(sum.minutes.max(1))
            ),
            format!("{:.1}", sum.replica_hours),
            format!("{:+.1} %", sum.replica_hours_percent),
        ]
    });
    screen.table(header, each.chain(all))
}
