//! Golden files: rows of scores, of the study (`sim_open.csv`) or of this tool (what `--csv` writes), and the inner
//! values of the first version of `auto`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Error, Write as _};
use std::path::{Path, PathBuf};

use foretide_replay::{AutoCandidate, Candidate as _, Rule, Score, Trace, fields, read};

use crate::Failure;
use crate::candidates::AUTO_GOLDEN;
use crate::comparison::Entry;

/// The columns of `auto_<trace>.csv` that are compared: level, prediction, and four quantiles.
const MODEL: [&str; 6] = ["L5", "p", "F50", "F80", "F90", "F95"];

/// The quantiles of the last four of them, and the start-up they were made for.
const QUANTILES: &[f64] = &[0.5, 0.8, 0.9, 0.95];
const START_UP: usize = 2;

/// What a row is of, apart from its trace and method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Replayed {
    pub(crate) start_up: usize,
    /// Of how many minutes each value of the history is the mean.
    pub(crate) history: usize,
    pub(crate) rule: Rule,
}

/// What identifies a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    method: String,
    trace: String,
    replayed: Replayed,
}

/// Rows of scores.
#[derive(Debug)]
pub(crate) struct Golden {
    folder: PathBuf,
    rows: BTreeMap<Key, Score>,
    /// Whether they are those of the study, whose `auto` is the first version.
    is_of_the_study: bool,
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
        Self::read_rows(&folder.join("sim_open.csv"))
    }

    /// Reads a file of rows. Without columns `history` and `rule`, they are of minutes and by the rule of the HPA.
    pub(crate) fn read_rows(path: &Path) -> Result<Self, Failure> {
        let text = read(path)?;
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let is_ours = first == heading();
        if !is_ours && first != study_heading() {
            let (own, study) = (heading(), study_heading());
            let path = path.display();
            return Err(format!(
                "{path}, line 1: the heading is {first:?}; expected {own} or {study}"
            )
            .into());
        }
        let mut rows = BTreeMap::new();
        for (at, line) in lines {
            let (key, score) = parse(line, is_ours)
                .ok_or_else(|| format!("{}, line {}: expected {first}", path.display(), at + 1))?;
            rows.insert(key, score);
        }
        Ok(Self {
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            rows,
            is_of_the_study: !is_ours,
        })
    }

    /// Where the files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The methods whose name begins so.
    pub(crate) fn methods<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let names: BTreeSet<&str> = self.rows.keys().map(|key| key.method.as_str()).collect();
        names
            .into_iter()
            .filter(move |name| name.starts_with(prefix))
    }

    /// The score of a method on a trace.
    pub(crate) fn score(&self, trace: &str, replayed: Replayed, method: &str) -> Option<Score> {
        let key = Key {
            method: method.to_owned(),
            trace: trace.to_owned(),
            replayed,
        };
        self.rows.get(&key).copied()
    }

    /// Per method and column the largest absolute and relative deviation of the entries.
    pub(crate) fn compare(&self, traces: &[Trace], entries: &[Entry]) -> Result<String, Error> {
        let mut methods: BTreeMap<String, (usize, [Deviation; 7])> = BTreeMap::new();
        for entry in entries {
            let Some(trace) = traces.get(entry.trace) else {
                continue;
            };
            let method = entry.method();
            let theirs = if self.is_of_the_study {
                method.replace(AUTO_GOLDEN, "auto")
            } else {
                method.clone()
            };
            let replayed = Replayed {
                start_up: entry.start_up,
                history: entry.history,
                rule: entry.rule,
            };
            let Some(golden) = self.score(&trace.name, replayed, &theirs) else {
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

/// Per trace that has a file `auto_<trace>.csv` and column of it: the largest deviation of the first version of the
/// model. Empty without such files.
pub(crate) fn compare_model(folder: &Path, traces: &[Trace]) -> Result<String, Failure> {
    let mut text = String::new();
    for trace in traces {
        let path = folder.join(format!("auto_{}.csv", trace.name));
        if !path.exists() {
            continue;
        }
        if text.is_empty() {
            let columns = MODEL.join(" | ");
            let lines = "|---".repeat(MODEL.len() + 2);
            write!(
                text,
                "\n**Largest deviations of the model on the last day**\n\n| trace | minutes | {columns} |\n{lines}|\n"
            )?;
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
    let mut model = AutoCandidate::first_version(QUANTILES, START_UP, offset);
    let mut golden = rows.iter().peekable();
    let mut worst = [Deviation::default(); 6];
    for t in 1..trace.demand.len() {
        let answers = model.at(trace.demand.get(..t).unwrap_or_default().into());
        #[expect(clippy::cast_precision_loss, reason = "minutes of weeks are exact")]
        let Some(row) = golden.next_if(|row| (row[0] - t as f64).abs() < 0.5) else {
            continue;
        };
        let (level, point) = model.point().ok_or("the model has no point forecast")?;
        // The promised value follows its coverage, which the first version did not.
        let upper = answers.into_iter().map(|answer| answer.bounds.hold);
        let seen = [level, point].into_iter().chain(upper);
        for ((worst, seen), golden) in worst.iter_mut().zip(seen).zip(row.iter().skip(3)) {
            worst.widen(seen, *golden);
        }
    }
    Ok(worst)
}

/// The heading of the files that `--csv` writes.
pub(crate) fn heading() -> String {
    format!("name,S,history,rule,method,{}", Score::COLUMNS.join(","))
}

/// The heading of the file of the study.
fn study_heading() -> String {
    heading().replace("history,rule,", "")
}

fn parse(line: &str, is_ours: bool) -> Option<(Key, Score)> {
    let row = fields(line);
    let (key, numbers) = row.split_at_checked(if is_ours { 5 } else { 3 })?;
    let (history, rule) = match (key.get(2), key.get(3)) {
        (Some(history), Some(rule)) => (history.parse().ok()?, rule.parse().ok()?),
        _ => (1, Rule::HPA),
    };
    let key = Key {
        method: key.last()?.clone(),
        trace: key.first()?.clone(),
        replayed: Replayed {
            start_up: key.get(1)?.parse().ok()?,
            history,
            rule,
        },
    };
    let numbers: Vec<f64> = numbers
        .iter()
        .map(|n| n.parse().ok())
        .collect::<Option<_>>()?;
    let numbers: [f64; 7] = numbers.try_into().ok()?;
    Some((key, Score::from(numbers)))
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
