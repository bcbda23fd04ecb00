//! Reads the results of the reference implementation, and compares with them.

use std::collections::BTreeMap;
use std::fmt::{Error, Write as _};
use std::path::{Path, PathBuf};

use foretide_models::replay::{AutoCandidate, Candidate as _, Score};

use crate::comparison::{AUTO_GOLDEN, Entry};
use crate::traces::{Failure, Trace, fields, read};

/// The columns of `auto_<trace>.csv` that are compared: level, prediction, and four quantiles.
const MODEL: [&str; 6] = ["L5", "p", "F50", "F80", "F90", "F95"];

/// The quantiles of the last four of them, and the start-up they were made for.
const QUANTILES: &[f64] = &[0.5, 0.8, 0.9, 0.95];
const START_UP: usize = 2;

/// What identifies a row: trace, start-up and method.
type Key = (String, usize, String);

/// The rows of `sim_open.csv`.
#[derive(Debug)]
pub(crate) struct Golden {
    folder: PathBuf,
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
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
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
        Ok(Self {
            folder: folder.to_owned(),
            rows,
        })
    }

    /// Where the files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The score of a method on a trace.
    pub(crate) fn score(&self, trace: &str, start_up: usize, method: &str) -> Option<Score> {
        self.rows
            .get(&(trace.to_owned(), start_up, method.to_owned()))
            .copied()
    }

    /// Per method and column the largest absolute and relative deviation of the entries.
    pub(crate) fn compare(&self, traces: &[Trace], entries: &[Entry]) -> Result<String, Error> {
        let mut methods: BTreeMap<String, (usize, [Deviation; 7])> = BTreeMap::new();
        for entry in entries {
            let Some(trace) = traces.get(entry.trace) else {
                continue;
            };
            let method = entry.method();
            let theirs = method.replace(AUTO_GOLDEN, "auto");
            let Some(golden) = self.score(&trace.name, entry.start_up, &theirs) else {
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

/// Per trace that has a file `auto_<trace>.csv` and column of it: the largest deviation of the model.
pub(crate) fn compare_model(folder: &Path, traces: &[Trace]) -> Result<String, Failure> {
    let mut text = format!(
        "| trace | minutes | {} |\n|---|---|---|---|---|---|---|---|\n",
        MODEL.join(" | ")
    );
    for trace in traces {
        let path = folder.join(format!("auto_{}.csv", trace.name));
        if !path.exists() {
            continue;
        }
        let rows = rows(&path)?;
        let worst = deviations(trace, &rows)?;
        write!(text, "| {} | {} |", trace.name, rows.len())?;
        for Deviation { absolute, relative } in worst {
            write!(text, " {absolute:.1e} ({relative:.1e}) |")?;
        }
        text.push('\n');
    }
    Ok(text)
}

/// The numbers of a file `t,y_prev,c,L5,p,F50,F80,F90,F95`.
fn rows(path: &Path) -> Result<Vec<[f64; 9]>, Failure> {
    let text = read(path)?;
    let numbers = |(at, line): (usize, &str)| {
        let numbers: Option<Vec<f64>> = fields(line)
            .iter()
            .map(|field| field.parse().ok())
            .collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| {
            format!("{}, line {}: expected nine numbers", path.display(), at + 1).into()
        })
    };
    text.lines().enumerate().skip(1).map(numbers).collect()
}

fn deviations(trace: &Trace, rows: &[[f64; 9]]) -> Result<[Deviation; 6], Failure> {
    let offset = rows.first().ok_or("no rows")?[2];
    let mut model = AutoCandidate::with_offset("auto", QUANTILES, START_UP, offset);
    let mut golden = rows.iter().peekable();
    let mut worst = [Deviation::default(); 6];
    for t in 1..trace.demand.len() {
        let answer = model.at(trace.demand.get(..t).unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "minutes of weeks are exact")]
        let Some(row) = golden.next_if(|row| (row[0] - t as f64).abs() < 0.5) else {
            continue;
        };
        let (level, point) = model.point().ok_or("the model has no point forecast")?;
        let seen = [level, point].into_iter().chain(answer);
        for ((worst, seen), golden) in worst.iter_mut().zip(seen).zip(row.iter().skip(3)) {
            worst.widen(seen, *golden);
        }
    }
    Ok(worst)
}

/// The heading of the file.
pub(crate) fn heading() -> String {
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

fn table(methods: &BTreeMap<String, (usize, [Deviation; 7])>) -> Result<String, Error> {
    let mut text = String::from("| method | rows |");
    for column in Score::COLUMNS {
        write!(text, " {column} |")?;
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|---|\n");
    for (method, (rows, worst)) in methods {
        write!(text, "| {method} | {rows} |")?;
        for Deviation { absolute, relative } in worst {
            write!(text, " {absolute:.1e} ({relative:.1e}) |")?;
        }
        text.push('\n');
    }
    Ok(text)
}
