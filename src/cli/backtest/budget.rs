//! `--max-cost-percent`: several autoscalers that share a budget, as those of a namespace do, beside the same ones as
//! written.
//!
//! The runs that share it advance together, minute by minute, and every five minutes the price is computed from what
//! their forecasters measured up to then: by the rule of the controller.

use std::fmt::Write as _;

use foretide_backtest::{
    budget::{BudgetReport, RUNS, Totals},
    runs::{RunResult, Runs},
};
use serde_json::{Value, json};

use super::{
    BacktestArgs, read,
    view::{heading_span, score_json},
};
use crate::cli::{
    context::{CommandContext, Progress},
    output::{CommandOutput, Failure, Paint, ReportFormat, Screen, Side, wrapped},
};

/// Reads the percentage of a budget.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| format!("expected a percentage from 0 to 1000, such as 15, got {text:?}"))
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
        ReportFormat::Json => CommandOutput::json("BudgetBacktest", json(&report)),
        _ => CommandOutput::text(text(&report, context.screen.with_ascii(args.ascii))),
    };
    Ok(CommandOutput { notes, ..output })
}

fn text(report: &BudgetReport, screen: Screen) -> String {
    let title = format!(
        "{} autoscalers with a budget of {} % more replicas than plain HPAs",
        report.setups.len(),
        report.percent
    );
    let about = report.setups.first().map_or_else(String::new, heading_span);
    let [plain, written, sharing] = report.sums();
    let verdict = format!(
        "In the budget: {} min short instead of {}, for {:+.1} % replica-hours beside the plain HPAs instead of {:+.1} %.",
        sharing.short,
        written.short,
        sharing.more_percent(plain),
        written.more_percent(plain),
    );
    let mut text = format!(
        "{}\n{}\n\n{}\n{}\n\n",
        screen.paint(Paint::Strong, &title),
        screen.paint(Paint::Dim, &about),
        table(report, screen),
        screen.paint(Paint::Strong, &wrapped(&verdict, screen.width(), "")),
    );
    for line in report.remarks() {
        let line = wrapped(&line, screen.width(), "  ");
        let _infallible = writeln!(text, "{}", screen.paint(Paint::Dim, &line));
    }
    text
}

/// Three rows per autoscaler and for all.
fn table(report: &BudgetReport, screen: Screen) -> String {
    let header = [
        ("", Side::Left),
        ("", Side::Left),
        ("QUANTILE", Side::Right),
        ("SHORT", Side::Right),
        ("", Side::Right),
        ("REPLICA-HOURS", Side::Right),
        ("", Side::Right),
    ];
    let mut rows = Vec::new();
    let mut add = |name: &str, totals: [Totals; 3], quantiles: [Option<f64>; 3]| {
        for (index, (run, quantile)) in totals.iter().zip(quantiles).enumerate() {
            let name = if index == 0 { name } else { "" };
            rows.push([
                name.to_owned(),
                RUNS[index].to_owned(),
                quantile.map_or_else(String::new, |quantile| quantile.to_string()),
                format!("{} min", run.short),
                format!("{:.2} %", run.short_percent()),
                format!("{:.1}", run.replica_hours),
                format!("{:+.1} %", run.more_percent(totals[0])),
            ]);
        }
    };
    for (setup, results) in report.setups.iter().zip(&report.results) {
        let totals = results.each_ref().map(Totals::of);
        let quantiles = results.each_ref().map(|result| result.quantile);
        add(setup.autoscaler.name(), totals, quantiles);
    }
    add("all", report.sums(), [None; 3]);
    screen.table(header, &rows)
}

fn json(report: &BudgetReport) -> Value {
    let run = |result: &RunResult| json!({ "name": result.name, "quantile": result.quantile, "score": score_json(&result.score) });
    let autoscalers = report.setups.iter().zip(&report.results).map(|(setup, results)| {
        json!({
            "metadata": {
                "name": setup.autoscaler.name(), "namespace": setup.autoscaler.metadata().namespace,
            },
            "sharesBudget": Runs::of(setup).shares_budget(),
            "candidates": results.each_ref().map(run),
        })
    });
    let sums = report.sums();
    let sum = |(name, totals): (&&str, &Totals)| {
        json!({
            "name": name,
            "underProvisionedMinutes": totals.short,
            "replicaHours": totals.replica_hours,
            "replicaHoursPercent": totals.more_percent(sums[0]),
        })
    };
    json!({
        "maxCostPercent": report.percent,
        "from": report.setups.first().map(|setup| setup.from.to_string()),
        "until": report.setups.first().map(|setup| setup.until.to_string()),
        "price": report.price.map(|shared| shared.price),
        "autoscalers": autoscalers.collect::<Vec<_>>(),
        "sum": RUNS.iter().zip(&sums).map(sum).collect::<Vec<_>>(),
        "remarks": report.remarks(),
    })
}
