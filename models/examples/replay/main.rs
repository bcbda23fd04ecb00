//! Replays a folder of demand traces against an autoscaler with the forecasts of every candidate, and prints cost and
//! unserved demand of each.

mod cold;
mod comparison;
mod fault_cases;
mod faults;
mod goals;
mod golden;
mod pairwise;
mod parallel;
mod path_errors;
mod plot;
mod product;
mod report;
mod results;
mod traces;

use std::fs;
use std::io::{Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use cold::ColdStart;
use comparison::Entry;
use faults::Faults;
use goals::ExtraGoals;
use golden::Golden;
use path_errors::PathErrors;
use results::Results;
use traces::{Failure, Trace};

const USAGE: &str = "usage: replay FOLDER [--more] [--csv OUT] [--plot DIR] [--golden DIR]

FOLDER holds index.csv, with the columns name and klass, and a <name>.csv for each: timestamp,value every 60 s.
--more also measures single values ahead, cold starts, faults and the selectable forecasters, which takes minutes.";

/// The arguments of the command line.
#[derive(Debug, Default)]
struct Arguments {
    folder: PathBuf,
    csv: Option<PathBuf>,
    plot: Option<PathBuf>,
    golden: Option<PathBuf>,
    more: bool,
}

// === impl Arguments ===

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--csv" => &mut arguments.csv,
                "--plot" => &mut arguments.plot,
                "--golden" => &mut arguments.golden,
                "--more" => {
                    arguments.more = true;
                    continue;
                }
                flag if flag.starts_with('-') => {
                    return Err(format!("{flag} is unknown\n{USAGE}").into());
                }
                folder => {
                    arguments.folder = folder.into();
                    continue;
                }
            };
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value\n{USAGE}"))?;
            *place = Some(value.into());
        }
        if arguments.folder.as_os_str().is_empty() {
            return Err(USAGE.into());
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| replay(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report_progress(&explain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn replay(arguments: &Arguments) -> Result<(), Failure> {
    let golden = arguments.golden.as_deref().map(Golden::read).transpose()?;
    let traces = Trace::read_all(&arguments.folder)?;
    let entries = comparison::replay_all(&traces, arguments.more, &report_progress)?;
    let more = arguments.more.then(|| measure_more(&traces)).transpose()?;
    // These goals are those of plain `auto`, the first of its candidates.
    let (tables, mut extra) = more.unzip();
    if let Some(path) = &arguments.csv {
        fs::write(path, csv(&traces, &entries))?;
    }
    if let Some(folder) = &arguments.plot {
        fs::create_dir_all(folder)?;
        for trace in &traces {
            for (name, picture) in plot::draw(trace)? {
                fs::write(folder.join(name), picture)?;
            }
        }
    }
    let results = Results::new(&traces, &entries, golden.as_ref());
    let mut report = report::tables(&results)? + &tables.unwrap_or_default();
    for candidate in results.candidates() {
        if candidate.starts_with("auto") && results.settings(candidate).contains(&"q=0.9") {
            let extra = extra.take().unwrap_or_default();
            report += &goals::table(&results, candidate, &extra)?;
            report += &pairwise::table(&results, candidate)?;
        }
    }
    if let Some(golden) = &golden {
        report += "\n**Largest deviations from the golden file: absolute (relative, of values above 0.01)**\n\n";
        report += &golden.compare(&traces, &entries)?;
        report += "\n**Largest deviations of the model on the last day**\n\n";
        report += &golden::compare_model(golden.folder(), &traces)?;
    }
    stdout().write_all(report.as_bytes())?;
    Ok(())
}

/// The tables and goals of the measurements of `--more`.
fn measure_more(traces: &[Trace]) -> Result<(String, ExtraGoals), Failure> {
    let ahead = PathErrors::measure(traces, &|line| {
        report_progress(&format!("ahead       {line}"));
    })?;
    let cold = ColdStart::measure(traces, &|line| {
        report_progress(&format!("cold start  {line}"));
    })?;
    let faults = Faults::measure(traces, &|line| {
        report_progress(&format!("faults      {line}"));
    })?;
    let tables = ahead.table()? + &cold.table()? + &faults.table()?;
    let extra = ExtraGoals {
        goals: [cold.goals(), faults.goals()].concat(),
        figures: ahead.figures(),
    };
    Ok((tables, extra))
}

/// The rows in the format of the golden file.
fn csv(traces: &[Trace], entries: &[Entry]) -> String {
    let row = |entry: &Entry| {
        let name = traces.get(entry.trace).map_or("", |trace| &trace.name);
        format!(
            "{name},{},{},{}\n",
            entry.start_up,
            entry.method(),
            entry.score
        )
    };
    let rows = entries.iter().map(row);
    std::iter::once(golden::heading() + "\n")
        .chain(rows)
        .collect()
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
