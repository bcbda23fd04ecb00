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

use arguments::Arguments;
use cold::ColdStart;
use faults::Faults;
use goals::ExtraGoals;
use golden::Golden;
use path_errors::PathErrors;
use results::Results;

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
    if let Some((candidate, path)) = arguments.export() {
        return write::forecasts(&traces, candidate, path, arguments.history());
    }
    let golden = arguments.golden.as_deref().map(Golden::read).transpose()?;
    let before = arguments.before.as_deref().map(Golden::read_rows);
    let before = before.transpose()?;
    let contenders = contenders(arguments, &traces)?;
    let entries =
        comparison::replay_all(&traces, &contenders, arguments.options(), &report_progress)?;
    let more = arguments.more.then(|| measure_more(&traces, arguments));
    let more = more.transpose()?;
    if let Some(path) = &arguments.csv {
        fs::write(path, write::rows(&traces, &entries))?;
    }
    if let Some(folder) = &arguments.plot {
        write::pictures(&traces, folder, arguments.rule)?;
    }
    let results = Results::new(&traces, &entries, golden.as_ref());
    let mut report = tables(&results, arguments, before.as_ref(), more)?;
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

fn tables(
    results: &Results<'_>,
    arguments: &Arguments,
    before: Option<&Golden>,
    more: Option<(String, ExtraGoals)>,
) -> Result<String, Failure> {
    let mut report = headline::tables(results, arguments, before)?;
    report += &report::tables(results, arguments.rule)?;
    // The goals are those of plain `auto`.
    let (tables, extra) = more.unwrap_or_default();
    report += &tables;
    report += &goals::table(results, arguments, &extra)?;
    for candidate in results.quantile_candidates() {
        report += &pairwise::table(results, candidate, arguments.rule)?;
    }
    Ok(report)
}

/// The tables and goals of the measurements of `--more`.
fn measure_more(traces: &[Trace], arguments: &Arguments) -> Result<(String, ExtraGoals), Failure> {
    let ahead = PathErrors::measure(traces, &|line| {
        report_progress(&format!("ahead       {line}"));
    })?;
    let cold = ColdStart::measure(traces, arguments.rule, &|line| {
        report_progress(&format!("cold start  {line}"));
    })?;
    let faults = Faults::measure(traces, arguments.rule, &|line| {
        report_progress(&format!("faults      {line}"));
    })?;
    let tables = ahead.table()? + &cold.table()? + &faults.table()?;
    let extra = ExtraGoals {
        goals: [cold.goals(), faults.goals()].concat(),
        figures: ahead.figures(),
    };
    Ok((tables, extra))
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
