//! The results of another implementation, to compare with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use foretide_models::replay::Score;

use crate::tournament::{Entry, Failure};
use crate::traces::{Trace, fields, read};

/// What identifies a row: trace, start-up and method.
type Key = (String, usize, String);

/// The rows of `sim_open.csv`.
#[derive(Debug)]
pub struct Golden {
    rows: BTreeMap<Key, Score>,
}

/// The largest deviations of one column.
#[derive(Debug, Clone, Copy, Default)]
struct Deviation {
    absolute: f64,
    relative: f64,
}

// === impl Golden ===

impl Golden {
    /// Reads `sim_open.csv` of a folder.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("sim_open.csv");
        let text = read(&path)?;
        let mut rows = BTreeMap::new();
        for (at, line) in text.lines().enumerate().skip(1) {
            let row = parse(line).ok_or_else(|| {
                format!(
                    "{}, line {}: expected {}",
                    path.display(),
                    at + 1,
                    heading()
                )
            })?;
            rows.insert(row.0, row.1);
        }
        Ok(Self { rows })
    }

    /// The score of a method on a trace.
    pub fn score(&self, trace: &str, start_up: usize, method: &str) -> Option<Score> {
        self.rows
            .get(&(trace.to_owned(), start_up, method.to_owned()))
            .copied()
    }

    /// Per method and column the largest absolute and relative deviation of the entries.
    pub fn compare(&self, traces: &[Trace], entries: &[Entry]) -> String {
        let mut methods: BTreeMap<String, (usize, [Deviation; 7])> = BTreeMap::new();
        for entry in entries {
            let Some(trace) = traces.get(entry.trace) else {
                continue;
            };
            let method = entry.method();
            let Some(golden) = self.score(&trace.name, entry.start_up, &method) else {
                continue;
            };
            let (rows, worst) = methods.entry(method).or_default();
            *rows += 1;
            let pairs = entry.score.values().into_iter().zip(golden.values());
            for (worst, (seen, golden)) in worst.iter_mut().zip(pairs) {
                worst.widen(seen, golden);
            }
        }
        table(&methods)
    }
}

// === impl Deviation ===

impl Deviation {
    fn widen(&mut self, seen: f64, golden: f64) {
        let off = (seen - golden).abs();
        self.absolute = self.absolute.max(off);
        if golden.abs() > 0.01 {
            self.relative = self.relative.max(off / golden.abs());
        }
    }
}

/// The heading of the file.
pub fn heading() -> String {
    format!("name,S,method,{}", Score::COLUMNS.join(","))
}

fn parse(line: &str) -> Option<(Key, Score)> {
    let row = fields(line);
    let (key, numbers) = row.split_at_checked(3)?;
    let [name, start_up, method] = key else {
        return None;
    };
    let numbers: Vec<f64> = numbers
        .iter()
        .map(|n| n.parse().ok())
        .collect::<Option<_>>()?;
    let numbers: [f64; 7] = numbers.try_into().ok()?;
    Some((
        (name.clone(), start_up.parse().ok()?, method.clone()),
        Score::from(numbers),
    ))
}

fn table(methods: &BTreeMap<String, (usize, [Deviation; 7])>) -> String {
    let mut text = String::from("| method | rows |");
    for column in Score::COLUMNS {
        let _ = write!(text, " {column} |");
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|---|\n");
    for (method, (rows, worst)) in methods {
        let _ = write!(text, "| {method} | {rows} |");
        for Deviation { absolute, relative } in worst {
            let _ = write!(text, " {absolute:.1e} ({relative:.1e}) |");
        }
        text.push('\n');
    }
    text
}
