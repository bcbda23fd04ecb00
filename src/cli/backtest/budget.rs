//! `--max-cost-percent`: several autoscalers that share a budget, as those of a namespace do, beside the same ones as
//! written.
//!
//! The runs that share it advance together, minute by minute, and every five minutes the price is computed from what
//! their forecasters measured up to then: by the rule of the controller.

use std::{fmt::Write as _, ops::ControlFlow};

use foretide_domain::sim::Run;
use foretide_models::{SharedPrice, TradeOffs};
use serde_json::{Value, json};

use super::{
    BacktestArgs, BacktestSetup, RunResult, evaluate, real,
    view::{heading_span, score_json},
};
use crate::cli::{
    context::{CommandContext, Progress},
    output::{CommandOutput, Failure, Paint, ReportFormat, Screen, Side, wrapped},
};

/// Period of the computation of the price, in minutes: as in the controller.
const PRICE_MINUTES: u32 = 5;
/// The names of the runs.
const RUNS: [&str; 3] = ["plain HPA", "as written", "in the budget"];

/// The results of a back-test with a budget.
struct BudgetReport {
    percent: f64,
    setups: Vec<BacktestSetup>,
    /// Results of each autoscaler, in the order of [`RUNS`].
    results: Vec<[RunResult; 3]>,
    /// The price at the end.
    price: Option<SharedPrice>,
}

/// The totals of a run, of one autoscaler or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    minutes: u32,
    short: u32,
    replica_hours: f64,
}

/// Reads the percentage of a budget.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| format!("expected a percentage from 0 to 1000, such as 15, got {text:?}"))
}

/// Runs `foretide backtest --max-cost-percent`.
///
/// # Errors
/// As those of [`run`](super::run), or no autoscaler leaves its quantile to the budget.
pub(super) fn run(
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
        let one = BacktestArgs {
            inputs,
            ..args.clone()
        };
        let (setup, read) = BacktestSetup::read(&one, context, progress)?;
        setups.push(setup);
        notes.push_str(&read);
    }
    if !setups.iter().any(BacktestSetup::shares_budget) {
        return Err(Failure::usage(
            "--max-cost-percent: expected an autoscaler with spec.prediction of the algorithm auto, without quantile and \
             maxUnderProvisionedPercent, and with a target per replica",
        ));
    }
    BacktestSetup::align(&mut setups)?;
    let report = BudgetReport::new(percent, setups, progress)?;
    let output = match args.output {
        ReportFormat::Json => CommandOutput::json("BudgetBacktest", report.json()),
        _ => CommandOutput::text(report.text(context.screen.with_ascii(args.ascii))),
    };
    Ok(CommandOutput { notes, ..output })
}

/// Runs all autoscalers together, at one price.
fn together(
    setups: &[BacktestSetup],
    percent: f64,
    watch: &mut dyn FnMut(f64),
) -> (Vec<RunResult>, Option<SharedPrice>) {
    let mut runs: Vec<Run<'_>> = setups.iter().map(BacktestSetup::in_budget).collect();
    let mut results: Vec<_> = setups.iter().map(|_| RunResult::new(RUNS[2])).collect();
    let shares: Vec<bool> = setups.iter().map(BacktestSetup::shares_budget).collect();
    let mut price = None;
    let Some(first) = setups.first() else {
        return (results, price);
    };
    let (lead_in, all) = (first.lead_in(), first.lead_in() + first.minutes());
    for minute in 0..all {
        if minute % PRICE_MINUTES == 0 {
            let sharing = runs.iter().zip(&shares).filter(|(_, shares)| **shares);
            let known: Vec<TradeOffs> = sharing.flat_map(|(run, _)| run.trade_offs()).collect();
            // As in the controller: the last price counts until a new one can be measured.
            price = SharedPrice::within(percent, &known).or(price);
        }
        for (run, result) in runs.iter_mut().zip(&mut results) {
            if let Some(shared) = price {
                run.set_price(shared.price);
            }
            if minute < lead_in {
                run.minute();
            } else {
                result.add(run);
            }
        }
        watch(f64::from(minute + 1) / f64::from(all));
    }
    (results, price)
}

// === impl BudgetReport ===

impl BudgetReport {
    fn new(
        percent: f64,
        setups: Vec<BacktestSetup>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, Failure> {
        // The runs as plain HPAs take next to no time.
        let one = 0.5 / real(setups.len());
        let mut results = Vec::new();
        for (index, setup) in setups.iter().enumerate() {
            let plain = evaluate(setup, RUNS[0], setup.plain(), &mut |_| {
                ControlFlow::Continue(())
            })?;
            let written = evaluate(setup, RUNS[1], setup.ours(), &mut |done| {
                progress(Progress::Replaying(one * (real(index) + done)));
                ControlFlow::Continue(())
            })?;
            results.push((plain, written));
        }
        let (sharing, price) = together(&setups, percent, &mut |done| {
            progress(Progress::Replaying(0.5 + 0.5 * done));
        });
        let pairs = results.into_iter().zip(sharing);
        let results = pairs.map(|((plain, written), sharing)| [plain, written, sharing]);
        Ok(Self {
            percent,
            results: results.collect(),
            setups,
            price,
        })
    }

    /// The totals over all autoscalers, in the order of [`RUNS`].
    fn sums(&self) -> [Totals; 3] {
        let mut sums = [Totals::default(); 3];
        for results in &self.results {
            for (sum, result) in sums.iter_mut().zip(results) {
                *sum += Totals::of(result);
            }
        }
        sums
    }

    fn text(&self, screen: Screen) -> String {
        let title = format!(
            "{} autoscalers with a budget of {} % more replicas than plain HPAs",
            self.setups.len(),
            self.percent
        );
        let about = self.setups.first().map_or_else(String::new, heading_span);
        let [plain, written, sharing] = self.sums();
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
            self.table(screen),
            screen.paint(Paint::Strong, &wrapped(&verdict, screen.width(), "")),
        );
        for line in self.remarks() {
            let line = wrapped(&line, screen.width(), "  ");
            let _infallible = writeln!(text, "{}", screen.paint(Paint::Dim, &line));
        }
        text
    }

    /// Three rows per autoscaler and for all.
    fn table(&self, screen: Screen) -> String {
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
        for (setup, results) in self.setups.iter().zip(&self.results) {
            let totals = results.each_ref().map(Totals::of);
            let quantiles = results.each_ref().map(|result| result.quantile);
            add(setup.autoscaler.name(), totals, quantiles);
        }
        add("all", self.sums(), [None; 3]);
        screen.table(header, &rows)
    }

    /// Autoscalers without a part in the budget, and the assumptions, each sentence once.
    fn remarks(&self) -> Vec<String> {
        let without_share = self.setups.iter().filter(|setup| !setup.shares_budget());
        let left = without_share.map(|setup| {
            let name = setup.autoscaler.name();
            format!("{name} takes no part in the budget: its spec chooses its quantile, or its algorithm has none")
        });
        let assumptions = self.setups.iter().flat_map(|setup| &setup.assumptions);
        let assumed = assumptions.map(|assumption| format!("assumed: {assumption}"));
        let mut remarks = Vec::new();
        for remark in left.chain(assumed) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }

    fn json(&self) -> Value {
        let run = |result: &RunResult| json!({ "name": result.name, "quantile": result.quantile, "score": score_json(&result.score) });
        let autoscalers = self.setups.iter().zip(&self.results).map(|(setup, results)| {
            json!({
                "metadata": {
                    "name": setup.autoscaler.name(), "namespace": setup.autoscaler.metadata().namespace,
                },
                "sharesBudget": setup.shares_budget(),
                "candidates": results.each_ref().map(run),
            })
        });
        let sums = self.sums();
        let sum = |(name, totals): (&&str, &Totals)| {
            json!({
                "name": name,
                "underProvisionedMinutes": totals.short,
                "replicaHours": totals.replica_hours,
                "replicaHoursPercent": totals.more_percent(sums[0]),
            })
        };
        json!({
            "maxCostPercent": self.percent,
            "from": self.setups.first().map(|setup| setup.from.to_string()),
            "until": self.setups.first().map(|setup| setup.until.to_string()),
            "price": self.price.map(|shared| shared.price),
            "autoscalers": autoscalers.collect::<Vec<_>>(),
            "sum": RUNS.iter().zip(&sums).map(sum).collect::<Vec<_>>(),
            "remarks": self.remarks(),
        })
    }
}

// === impl Totals ===

impl Totals {
    fn of(result: &RunResult) -> Self {
        Self {
            minutes: result.score.minutes,
            short: result.score.under,
            replica_hours: result.score.replica_hours(),
        }
    }

    fn short_percent(self) -> f64 {
        100.0 * f64::from(self.short) / f64::from(self.minutes.max(1))
    }

    /// Returns how many percent more replica-hours this run has than another.
    fn more_percent(self, other: Self) -> f64 {
        if other.replica_hours > 0.0 {
            100.0 * (self.replica_hours / other.replica_hours - 1.0)
        } else {
            0.0
        }
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.minutes += other.minutes;
        self.short += other.short;
        self.replica_hours += other.replica_hours;
    }
}
