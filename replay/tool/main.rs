//! `foretide-replay`: replays a folder of demand traces against an autoscaler with the forecasts of every candidate, and
//! prints cost and unserved demand of each.

mod arguments;
mod candidates;
mod cold;
mod comparison;
mod fault_cases;
mod faults;
mod goals;
mod golden;
mod headline;
mod namespace;
mod pairwise;
mod parallel;
mod path_errors;
mod plot;
mod product;
mod report;
mod results;
mod write;

use std::fs;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

use clap::Parser as _;
use foretide_replay::{Contender, Trace};

use arguments::{Arguments, Options};
use cold::ColdStart;
use faults::Faults;
use goals::More;
use golden::Golden;
use namespace::SharedBudget;
use path_errors::PathErrors;
use results::Results;

/// What the columns of the tables are.
const LEGEND: &str = "U, short: percent of minutes with too few replicas. RH, replica-hours: against the HPA alone. \
The rules, the scores and how values at equal replica-hours are interpolated are described in README.md of \
foretide-replay.\n";

/// Any error of the tool.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match replay(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report_progress(&format!("error: {}", explain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

fn replay(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.synthetic {
        write::synthetic(&arguments.folder)?;
    }
    let traces = arguments.traces()?;
    let histories = arguments.histories();
    let first = histories.first().copied().unwrap_or(1);
    if let Some((candidate, path)) = arguments.export() {
        return write::forecasts(&traces, candidate, path, first);
    }
    let golden = arguments.golden.as_deref().map(Golden::read).transpose()?;
    let before = arguments.before.as_deref().map(Golden::read_rows);
    let before = before.transpose()?;
    let contenders = contenders(arguments, &traces)?;
    let mut entries = Vec::new();
    for history in histories.iter().copied() {
        let options = Options {
            history,
            more: arguments.more && history == first,
        };
        let progress = |line: &str| report_progress(&format!("history {history} min  {line}"));
        let all = comparison::replay_all(&traces, &contenders, options, &progress)?;
        entries.extend(all);
    }
    let more = arguments.more.then(|| measure_more(&traces, arguments));
    let more = more.transpose()?.unwrap_or_default();
    if let Some(path) = &arguments.csv {
        fs::write(path, write::rows(&traces, &entries))?;
    }
    if let Some(folder) = &arguments.plot {
        write::pictures(&traces, folder, arguments.rule)?;
    }
    let results = |history| Results::new(&traces, &entries, history, golden.as_ref());
    let mut report = String::from(LEGEND);
    for history in histories {
        report += &headline::tables(&results(history), arguments, before.as_ref())?;
    }
    report += &tables(&results(first), arguments, &more)?;
    if let Some(golden) = &golden {
        report += "\n**Largest deviations from the golden file: absolute (relative, of values above 0.01)**\n\n";
        report += &golden.compare(&traces, &entries)?;
        report += &golden::compare_model(golden.folder(), &traces)?;
    }
    stdout().write_all(report.as_bytes())?;
    Ok(())
}

fn contenders(arguments: &Arguments, traces: &[Trace]) -> Result<Vec<Contender>, Failure> {
    let mut contenders = Vec::new();
    for path in &arguments.contender {
        let contender = Contender::read(path, traces)?;
        for trace in contender.missing(traces) {
            let name = &contender.name;
            report_progress(&format!(
                "{name} has no forecast for {trace}: the HPA alone counts there"
            ));
        }
        contenders.push(contender);
    }
    Ok(contenders)
}

/// The tables of one history after the first ones.
fn tables(results: &Results<'_>, arguments: &Arguments, more: &More) -> Result<String, Failure> {
    let mut report = report::tables(results, arguments.rule)?;
    report += &more.tables;
    // The goals are those of plain `auto`.
    report += &goals::table(results, arguments, more)?;
    for candidate in results.quantile_candidates() {
        report += &pairwise::table(results, candidate, arguments.rule)?;
    }
    Ok(report)
}

/// The tables and goals of the measurements of `--more`.
fn measure_more(traces: &[Trace], arguments: &Arguments) -> Result<More, Failure> {
    let ahead = PathErrors::measure(traces, &|line| {
        report_progress(&format!("ahead       {line}"));
    })?;
    let cold = ColdStart::measure(traces, arguments.rule, &|line| {
        report_progress(&format!("cold start  {line}"));
    })?;
    let faults = Faults::measure(traces, arguments.rule, &|line| {
        report_progress(&format!("faults      {line}"));
    })?;
    let budget = SharedBudget::measure(traces, arguments.rule, &|line| {
        report_progress(&format!("budget      {line}"));
    })?;
    Ok(More {
        tables: ahead.table()?
            + &budget.table(arguments.replica_hours)?
            + &cold.table()?
            + &faults.table()?,
        goals: [cold.goals(), faults.goals()].concat(),
        figures: ahead.figures(),
    })
}

/// The message of an error and its causes.
fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Prints one line of progress.
#[expect(
    clippy::let_underscore_must_use,
    reason = "progress is lost when standard error is closed"
)]
fn report_progress(line: &str) {
    let _: Result<(), _> = writeln!(stderr(), "{line}");
}
