//! The time axis of a picture: where an instant stands, and which instants are labeled.
//!
//! Labels stand at round times of day in UTC and never touch each other.

use foretide_models::Sample;
use jiff::{Timestamp, tz::TimeZone};

/// A hole in the samples longer than this many mean distances stays a hole.
const HOLE: f64 = 3.0;

/// Fewest columns between two labels of the time axis.
const LABEL_SPACING: usize = 11;
/// Distances between labels, in seconds: round for people.
const TICKS: [i64; 16] = [
    60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    1_209_600, 2_419_200, 31_536_000,
];

/// The horizontal axis: which column an instant stands in.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) from: f64,
    pub(crate) seconds: f64,
    pub(crate) columns: usize,
}

// === impl Axis ===

impl Axis {
    pub(crate) fn column(self, at: Timestamp) -> usize {
        floor(self.position(at) * real(self.columns)).min(self.columns.saturating_sub(1))
    }

    /// Where an instant stands: 0 at the beginning of the axis, 1 at its end.
    pub(crate) fn position(self, at: Timestamp) -> f64 {
        (second(at) - self.from) / self.seconds
    }

    pub(crate) fn instant(self, column: f64) -> f64 {
        self.from + self.seconds * column / real(self.columns)
    }
}

/// Columns of round instants, and those instants in seconds.
pub(crate) fn ticks(axis: Axis) -> impl Iterator<Item = (usize, i64)> {
    let least = axis.seconds * real(LABEL_SPACING) / real(axis.columns);
    let rarest = TICKS.last().copied().unwrap_or(1);
    let step = TICKS
        .into_iter()
        .find(|step| seconds(*step) >= least)
        .unwrap_or(rarest);
    let first = instant_second(axis.from).div_euclid(step) + 1;
    let newest = instant_second(axis.from + axis.seconds).div_euclid(step);
    (first..=newest).filter_map(move |index| {
        let at = index.checked_mul(step)?;
        Some((axis.column(Timestamp::from_second(at).ok()?), at))
    })
}

/// The row below the axis: `now`, and the labels of the ticks that do not overlap it.
pub(crate) fn labels(axis: Axis, now: Option<usize>) -> String {
    let mut row = vec![' '; axis.columns + LABEL_SPACING];
    if let Some(now) = now {
        put(&mut row, now, "now");
    }
    for (column, at) in ticks(axis) {
        let Ok(at) = Timestamp::from_second(at) else {
            continue;
        };
        put(&mut row, column, &label(at));
    }
    row.into_iter().collect()
}

/// The time of day, or the day at midnight; UTC.
pub(crate) fn label(at: Timestamp) -> String {
    let civil = at.to_zoned(TimeZone::UTC);
    let midnight = civil.hour() == 0 && civil.minute() == 0;
    let format = if midnight { "%a %d %b" } else { "%H:%M" };
    civil.strftime(format).to_string()
}

/// Samples farther apart than this many seconds have a hole between them.
pub(crate) fn longest_step(samples: &[Sample]) -> f64 {
    match samples {
        [first, .., last] => {
            HOLE * (second(last.at) - second(first.at)) / real(samples.len().saturating_sub(1))
        }
        _ => 0.0,
    }
}

/// Writes a text centered on a column, unless it would touch another one or the left edge.
fn put(row: &mut [char], column: usize, text: &str) {
    let length = text.chars().count();
    let Some(start) = column.checked_sub(length / 2) else {
        return;
    };
    let around = row.iter().skip(start.saturating_sub(1)).take(length + 2);
    if around.into_iter().any(|c| *c != ' ') {
        return;
    }
    let cells = row.iter_mut().skip(start);
    cells.zip(text.chars()).for_each(|(cell, c)| *cell = c);
}

pub(crate) fn second(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts of columns and rows")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a calendar")]
pub(crate) fn seconds(count: i64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
pub(crate) fn floor(x: f64) -> usize {
    x.floor() as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn instant_second(x: f64) -> i64 {
    x.floor() as i64
}
