//! The files that are written: rows, forecasts, pictures and the synthetic traces.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use foretide_replay::{
    Candidate, History, Rule, START_UPS, Trace, Workload, forecasts as forecasts_of,
    synthetic_traces, write_forecasts, write_heading,
};

use crate::arguments::Options;
use crate::comparison::Entry;
use crate::{Failure, candidates, golden, plot, report_progress};

/// The rows in the format of the golden file.
pub(crate) fn rows(traces: &[Trace], entries: &[Entry]) -> String {
    let row = |entry: &Entry| {
        let name = traces.get(entry.trace).map_or("", |trace| &trace.name);
        format!(
            "{name},{},{},{},{},{}\n",
            entry.start_up,
            entry.history,
            entry.rule,
            entry.method(),
            entry.score
        )
    };
    let rows = entries.iter().map(row);
    std::iter::once(golden::heading() + "\n")
        .chain(rows)
        .collect()
}

/// The forecasts of a candidate for every trace and start-up.
pub(crate) fn forecasts(
    traces: &[Trace],
    candidate: &str,
    path: &Path,
    history: usize,
) -> Result<(), Failure> {
    // A file that is there stays as it is when the name is wrong.
    if let Some(trace) = traces.first() {
        named(candidate, trace, START_UPS[0], history)?;
    }
    let mut out = BufWriter::new(File::create(path)?);
    write_heading(&mut out)?;
    for trace in traces {
        let workload = Workload::new(&trace.demand)?;
        let known = History::new(&trace.demand, history);
        for start_up in START_UPS {
            let mut found = named(candidate, trace, start_up, history)?;
            let paths = forecasts_of(found.as_mut(), &workload, &known);
            write_forecasts(&mut out, &trace.name, start_up, &workload, &paths)?;
        }
        report_progress(&format!("{candidate}: {}", trace.name));
    }
    out.flush()?;
    Ok(())
}

/// The candidate with this name.
fn named(
    name: &str,
    trace: &Trace,
    start_up: usize,
    history: usize,
) -> Result<Box<dyn Candidate>, Failure> {
    let options = Options {
        history,
        more: true,
    };
    let workload = Workload::new(&trace.demand)?;
    let mut all = candidates::all(trace, &workload, start_up, options)?;
    let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
    let Some(at) = names.iter().position(|one| *one == name) else {
        let names = names.join(", ");
        return Err(format!("--export {name}: expected one of {names}").into());
    };
    Ok(all.swap_remove(at))
}

/// Two pictures for each trace.
pub(crate) fn pictures(traces: &[Trace], folder: &Path, rule: Rule) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    for trace in traces {
        for (name, picture) in plot::draw(trace, rule)? {
            fs::write(folder.join(name), picture)?;
        }
    }
    Ok(())
}

/// The synthetic traces with their index.
pub(crate) fn synthetic(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let mut index = "name,klass,native_s,what\n".to_owned();
    for trace in synthetic_traces() {
        let Trace { name, class, .. } = &trace;
        writeln!(index, "{name},{class},60,synthetic")?;
        let mut values = "timestamp,value\n".to_owned();
        for (minute, value) in (0_u32..).zip(&trace.demand) {
            writeln!(values, "{},{value}", 60 * minute)?;
        }
        fs::write(folder.join(format!("{name}.csv")), values)?;
    }
    fs::write(folder.join("index.csv"), index)?;
    Ok(())
}
