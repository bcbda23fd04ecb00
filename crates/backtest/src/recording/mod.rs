//! Recorded histories, in the forms in which people export them.
//!
//! ```text
//! lines of timestamp,value -> table --+
//!                                     +-> rows --in order, checked--> samples, notes
//! values of a series -----------------+
//! ```
//!
//! This module orders the rows, and refuses rows that cannot be one history: two values for one time, and a time that
//! is far from all others. Accepted rows that may be a mistake become a note.

mod table;

use std::fmt;

use foretide_domain::{
    cron::Zone,
    sim::Recording,
    words::{counted, excerpt},
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

/// The longest span without samples within one history.
///
/// # Source
/// Decision 42: a forecast needs the same hour of the week before; outages are shorter, and stray timestamps are years
/// away.
const LONGEST_GAP: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The largest value: an HPA counts in thousandths, as 64-bit integers.
const LARGEST: f64 = 9.2e15;
/// Number of characters of an input that are quoted.
const QUOTED: usize = 60;

/// The recorded history of one metric.
#[derive(Clone, Debug)]
pub struct History {
    /// Identifier of the metric.
    pub metric: String,
    /// File or server of the history.
    pub file: String,
    /// Samples of the metric.
    pub recording: Recording,
    /// Missing and doubtful parts of the history, one sentence each.
    pub notes: Vec<String>,
}

/// Reason for which a history cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordingError {
    /// A line or a value has another form than expected.
    #[error("{place}: found {found:?}, expected {expected}")]
    Unreadable {
        /// Place of the line or value.
        place: Place,
        /// The beginning of the unreadable text.
        found: String,
        /// Expected form.
        expected: String,
    },
    /// There is no sample at all.
    #[error("{0}: no samples; expected lines such as 2026-03-02T08:00:00Z,0.42")]
    Empty(String),
    /// A file with JSON that is not the result of a range query.
    #[error(
        "{file}: {problem}; expected the response of one series to a range query (/api/v1/query_range)"
    )]
    NotARange {
        /// Name of the file.
        file: String,
        /// Contents of the file instead.
        problem: String,
    },
    /// Two values for one time.
    #[error(
        "{place}: found {value} at {at}, and {other_value} in {other}; expected one value for each time"
    )]
    Conflict {
        /// Place of the later value.
        place: Place,
        /// Time of both values.
        at: Timestamp,
        /// Later value.
        value: f64,
        /// Place of the earlier value.
        other: Position,
        /// Earlier value.
        other_value: f64,
    },
    /// A time far from all others.
    #[error(
        "{place}: {at} is {days} days {side} the nearest other sample, {nearest} in {other}; expected at most {} days: \
         remove it if its timestamp is wrong, or split the file there",
        LONGEST_GAP.as_hours() / 24
    )]
    Stray {
        /// Place of the sample.
        place: Place,
        /// Time of the sample.
        at: Timestamp,
        /// Days to the nearest other sample.
        days: i64,
        /// Side of that sample: `before` or `after`.
        side: &'static str,
        /// Time of that sample.
        nearest: Timestamp,
        /// Place of that sample.
        other: Position,
    },
}

/// Place of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: String,
    position: Position,
}

/// Position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Position {
    /// From 1.
    #[display("line {_0}")]
    Line(usize),
    /// An element of `values`, from 0.
    #[display("values[{_0}]")]
    Value(usize),
}

/// A time, with its measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    position: Position,
    at: Timestamp,
    /// `None` for a time at which nothing was measured.
    value: Option<f64>,
}

/// The rows of a file, in its order.
#[derive(Debug)]
struct Rows {
    file: String,
    rows: Vec<Row>,
}

/// Parses the lines of a file. A time without a zone is in `zone`.
///
/// # Errors
/// The first line that cannot be read or does not belong to the history, or an error if there are no samples.
pub fn parse(
    metric: &str,
    file: &str,
    text: &str,
    zone: Option<&Zone>,
) -> Result<History, RecordingError> {
    // Spreadsheets begin UTF-8 with a byte order mark.
    table::read(file, text.trim_start_matches('\u{feff}'), zone)?.history(metric)
}

/// Checks the values of one series in a file.
///
/// # Errors
/// The first value that is no measurement or does not belong to the history, or an error if there are no samples.
pub fn of_values(metric: &str, file: &str, samples: &[Sample]) -> Result<History, RecordingError> {
    let mut rows = Rows {
        file: file.to_owned(),
        rows: Vec::with_capacity(samples.len()),
    };
    for (index, sample) in samples.iter().enumerate() {
        let position = Position::Value(index);
        let value = measured(sample.value)
            .map_err(|expected| rows.unreadable(position, &sample.value.to_string(), expected))?;
        rows.rows.push(Row {
            position,
            at: sample.at,
            value,
        });
    }
    rows.history(metric)
}

/// Reads the name of a zone.
///
/// # Errors
/// No zone has this name.
pub fn parse_zone(name: &str) -> Result<Zone, String> {
    // Specs may omit their zone, or name that of the controller (`Local`); for a file, both would be a guess.
    Zone::parse(name, &Zone::utc())
        .ok()
        .filter(|zone| !zone.is_assumed() && !zone.is_local())
        .ok_or_else(|| "expected an IANA name such as Europe/Berlin, or UTC".to_owned())
}

/// Description of the gaps in a recording, if it has any.
pub fn holes(file: &str, recording: &Recording) -> Option<String> {
    let holes: Vec<(Timestamp, SignedDuration)> = recording.holes().collect();
    // The last maximum in reverse order is the first one in the order of time.
    let longest = holes.iter().rev().max_by_key(|(_, length)| *length)?;
    let total: SignedDuration = holes.iter().map(|(_, length)| *length).sum();
    let (from, length) = longest;
    Some(if holes.len() == 1 {
        format!("{file}: no samples for {length:#} after {from}")
    } else {
        let holes = counted(u64::try_from(holes.len()).unwrap_or(u64::MAX), "hole");
        format!(
            "{file}: {holes} without samples, {total:#} in total; the longest, {length:#}, is after {from}"
        )
    })
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Position::Line(line) => write!(f, "{}:{line}", self.file),
            position @ Position::Value(_) => write!(f, "{}: {position}", self.file),
        }
    }
}

// === impl Rows ===

impl Rows {
    fn place(&self, position: Position) -> Place {
        Place {
            file: self.file.clone(),
            position,
        }
    }

    fn unreadable(
        &self,
        position: Position,
        found: &str,
        expected: impl Into<String>,
    ) -> RecordingError {
        RecordingError::Unreadable {
            place: self.place(position),
            found: excerpt(found, QUOTED),
            expected: expected.into(),
        }
    }

    /// The history of the rows.
    fn history(mut self, metric: &str) -> Result<History, RecordingError> {
        let mut notes = Vec::new();
        let all = self.rows.len();
        self.rows.retain(|row| row.value.is_some());
        if self.rows.is_empty() {
            return Err(RecordingError::Empty(self.file));
        }
        let unmeasured = all - self.rows.len();
        if unmeasured > 0 {
            notes.push(format!(
                "{}: {unmeasured} of {all} rows have no value",
                self.file
            ));
        }
        if let Some([_, early]) = self.pairs().find(|[a, b]| a.at > b.at) {
            let place = self.place(early.position);
            notes.push(format!(
                "{place}: earlier than the row before it; rows were put in order"
            ));
        }
        // The sort is stable: rows of one time stay in the order of the file, in which messages name them.
        self.rows.sort_by_key(|row| row.at);
        self.check_conflicts()?;
        self.check_gaps()?;
        let samples = self.rows.iter().filter_map(|row| {
            Some(Sample {
                at: row.at,
                value: row.value?,
            })
        });
        let mut samples: Vec<Sample> = samples.collect();
        // Rows of one time have the same value, because others were refused.
        samples.dedup_by_key(|sample| sample.at);
        let recording = Recording::new(samples);
        notes.extend(holes(&self.file, &recording));
        Ok(History {
            metric: metric.to_owned(),
            file: self.file,
            recording,
            notes,
        })
    }

    /// Each row with the next one.
    fn pairs(&self) -> impl Iterator<Item = [Row; 2]> + '_ {
        let next = self.rows.iter().skip(1);
        self.rows.iter().zip(next).map(|(a, b)| [*a, *b])
    }

    fn check_conflicts(&self) -> Result<(), RecordingError> {
        let conflict = self
            .pairs()
            .find(|[a, b]| a.at == b.at && a.value != b.value);
        let Some([first, second]) = conflict else {
            return Ok(());
        };
        Err(RecordingError::Conflict {
            place: self.place(second.position),
            at: second.at,
            value: second.value.unwrap_or_default(),
            other: first.position,
            other_value: first.value.unwrap_or_default(),
        })
    }

    /// Refuses a gap that is too long for a forecast. The rows on its shorter side are called stray.
    fn check_gaps(&self) -> Result<(), RecordingError> {
        let length = |[a, b]: &[Row; 2]| b.at.duration_since(a.at);
        let mut pairs = self.pairs().enumerate();
        let Some((index, pair)) = pairs.find(|(_, pair)| length(pair) > LONGEST_GAP) else {
            return Ok(());
        };
        let (before, after) = (index + 1, self.rows.len() - index - 1);
        let [first, second] = pair;
        let (stray, nearest, side) = if before <= after {
            (first, second, "before")
        } else {
            (second, first, "after")
        };
        Err(RecordingError::Stray {
            place: self.place(stray.position),
            at: stray.at,
            days: length(&pair).as_hours() / 24,
            side,
            nearest: nearest.at,
            other: nearest.position,
        })
    }
}

/// Checks a number that was measured; `None` for the mark of exporters for a missing value.
///
/// # Errors
/// The expected value.
fn measured(value: f64) -> Result<Option<f64>, String> {
    match value {
        value if value.is_nan() => Ok(None),
        value if value.is_infinite() || value < 0.0 => Err(NUMBER.to_owned()),
        value if value > LARGEST => Err(format!(
            "a value of at most {LARGEST:e}, which is the most that an HPA can count"
        )),
        value => Ok(Some(value)),
    }
}

/// Expected form of a value.
const NUMBER: &str = "a value that is a number of at least 0, in base units";

#[cfg(test)]
mod tests;
