//! Reads a folder of demand traces. Values must lie on a grid of minutes; an error names the file and the line. Holes
//! are filled.

use std::path::Path;

use jiff::Timestamp;

use crate::DAY;
use crate::csv::{self, FileError, fields};

/// Seconds between two values.
const STEP: i64 = 60;

/// A hole of up to this many minutes repeats the value before it; a longer one repeats the day before.
const HOLD: usize = 5;

/// The demand of one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The name of its file, without `.csv`.
    pub name: String,
    /// What kind of load it is: column `klass` of the index.
    pub class: String,
    /// A few words about it: column `what` of the index, if there is one.
    pub what: Option<String>,
    /// Seconds between two measured values, before they were interpolated: column `native_s` of the index, if there is
    /// one.
    pub native: Option<u32>,
    /// Seconds since 1970 of the first minute.
    pub start: i64,
    /// One value a minute, without holes.
    pub demand: Vec<f64>,
}

// === impl Trace ===

impl Trace {
    /// All traces that `index.csv` of a folder names, in its order.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, FileError> {
        let index = folder.join("index.csv");
        let text = csv::read(&index)?;
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let heading = lines
            .next()
            .map(|(_, line)| fields(line))
            .unwrap_or_default();
        let column = |name: &str| {
            let found = heading.iter().position(|field| field == name);
            found.ok_or_else(|| FileError::Content {
                path: index.clone(),
                what: format!("the heading has no column {name}; expected name and klass"),
            })
        };
        let (name, class) = (column("name")?, column("klass")?);
        let (what, native) = (column("what").ok(), column("native_s").ok());
        let read = |(at, line): (usize, &str)| {
            let row = fields(line);
            let (Some(name), Some(class)) = (row.get(name), row.get(class)) else {
                let what = format!("{} fields, the heading has {}", row.len(), heading.len());
                return Err(FileError::Line {
                    path: index.clone(),
                    line: at + 1,
                    what,
                });
            };
            let path = folder.join(format!("{name}.csv"));
            let (start, demand) = parse(&path, &csv::read(&path)?)?;
            Ok(Self {
                name: name.clone(),
                class: class.clone(),
                what: what.and_then(|what| row.get(what).cloned()),
                native: native.and_then(|native| row.get(native)?.parse().ok()),
                start,
                demand,
            })
        };
        lines.map(read).collect()
    }
}

/// The first second and the values of a file `timestamp,value`.
fn parse(path: &Path, text: &str) -> Result<(i64, Vec<f64>), FileError> {
    let mut demand: Vec<f64> = Vec::new();
    let mut start = None;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || (at == 0 && line.starts_with("timestamp")) {
            continue;
        }
        let wrong = |what| FileError::Line {
            path: path.to_owned(),
            line: at + 1,
            what,
        };
        let (second, value) = row(line).map_err(wrong)?;
        let first = *start.get_or_insert(second);
        let slot = slot(second - first).map_err(wrong)?;
        if slot < demand.len() {
            return Err(wrong("not later than the line before".to_owned()));
        }
        if slot - demand.len() > DAY * 7 {
            return Err(wrong(
                "more than seven days after the line before".to_owned(),
            ));
        }
        demand.resize(slot, f64::NAN);
        demand.push(value);
    }
    let seen = demand
        .iter()
        .position(|value| value.is_finite())
        .ok_or_else(|| FileError::Content {
            path: path.to_owned(),
            what: "no value at all".to_owned(),
        })?;
    // A hole at the start has no value before it to repeat.
    demand.drain(..seen);
    fill(&mut demand);
    let skipped = STEP * i64::try_from(seen).unwrap_or(0);
    Ok((start.unwrap_or(0) + skipped, demand))
}

/// Seconds since 1970, and a value; NaN is missing.
fn row(line: &str) -> Result<(i64, f64), String> {
    let row = fields(line);
    let [at, value] = row.as_slice() else {
        return Err(format!("{} fields; expected timestamp,value", row.len()));
    };
    let second = second(at).ok_or_else(|| {
        format!("timestamp is {at:?}; expected seconds since 1970 or 2026-01-31T12:00:00Z")
    })?;
    let value = match value.as_str() {
        "" | "NaN" | "nan" | "null" => f64::NAN,
        text => csv::demand("value", text)?,
    };
    Ok((second, value))
}

fn second(text: &str) -> Option<i64> {
    let whole = text.strip_suffix(".0").unwrap_or(text);
    if let Ok(second) = whole.parse() {
        return Some(second);
    }
    let at: Option<Timestamp> = text.parse().ok();
    let assumed_utc = || format!("{text}Z").parse::<Timestamp>().ok();
    at.or_else(assumed_utc).map(Timestamp::as_second)
}

fn slot(since_start: i64) -> Result<usize, String> {
    if since_start % STEP != 0 {
        return Err(format!(
            "{since_start} s after the first line; expected whole minutes"
        ));
    }
    usize::try_from(since_start / STEP).map_err(|_| "earlier than the first line".to_owned())
}

/// Up to five minutes: the value before; longer: that of the day before, if there is one.
fn fill(demand: &mut [f64]) {
    let mut at = 0;
    while let Some(hole) = demand.iter().skip(at).position(|value| value.is_nan()) {
        let first = at + hole;
        let length = demand
            .iter()
            .skip(first)
            .take_while(|value| value.is_nan())
            .count();
        for i in first..first + length {
            let before = i - 1;
            let from = if length > HOLD {
                i.checked_sub(DAY).unwrap_or(before)
            } else {
                before
            };
            demand.copy_within(from..=from, i);
        }
        at = first + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(i64, Vec<f64>), String> {
        parse(Path::new("a.csv"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn seconds_and_instants_are_read_and_holes_are_filled() {
        let cases = [
            ("timestamp,value\n60,1\n120,2.5\n", 60, vec![1.0, 2.5]),
            ("60.0,1\n120.0,2\n\n", 60, vec![1.0, 2.0]),
            (
                "1970-01-01T00:01:00Z,1\n1970-01-01 00:02:00,2",
                60,
                vec![1.0, 2.0],
            ),
            ("60,1\n120,\n180,NaN\n240,4", 60, vec![1.0, 1.0, 1.0, 4.0]),
            ("60,1\n240,4", 60, vec![1.0, 1.0, 1.0, 4.0]),
            ("60,\n120,7", 120, vec![7.0]),
        ];
        for (text, start, demand) in cases {
            assert_eq!(parsed(text), Ok((start, demand)), "{text:?}");
        }
    }

    #[test]
    fn a_long_hole_repeats_the_day_before() {
        let mut demand: Vec<f64> = (0..1500_u32).map(f64::from).collect();
        for value in demand.iter_mut().skip(1450).take(6) {
            *value = f64::NAN;
        }
        fill(&mut demand);
        assert_eq!(
            demand[1449..1457],
            [1449.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 1456.0]
        );
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_line() {
        let cases = [
            (
                "60,1\n90,2",
                "a.csv, line 2: 30 s after the first line; expected whole minutes",
            ),
            (
                "60,1\n60,2",
                "a.csv, line 2: not later than the line before",
            ),
            (
                "60,1\n120,x",
                "a.csv, line 2: value is \"x\"; expected a finite number of at least zero",
            ),
            (
                "60,-1",
                "a.csv, line 1: value is \"-1\"; expected a finite number of at least zero",
            ),
            ("60", "a.csv, line 1: 1 fields; expected timestamp,value"),
            ("timestamp,value", "a.csv: no value at all"),
        ];
        for (text, message) in cases {
            assert_eq!(parsed(text), Err(message.to_owned()), "{text:?}");
        }
    }
}
