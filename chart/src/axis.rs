//! The time axis of a picture: where an instant stands, and which instants are labeled.
//!
//! Labels stand at round times of day in the reader's zone. Columns are of text; a picture in pixels has as many as
//! words of its labels would take.

use jiff::{Timestamp, tz::TimeZone};

/// A hole in the samples longer than this many mean distances stays a hole.
const HOLE: f64 = 3.0;

/// Fewest columns between two labels of the time axis.
const LABEL_SPACING: usize = 11;
/// Distances between labels, in seconds: round for people.
const STEPS: [i64; 15] = [
    60,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    DAY,
    2 * DAY,
    WEEK,
    2 * WEEK,
    4 * WEEK,
];
const DAY: i64 = 86_400;
const WEEK: i64 = 7 * DAY;
/// The first Monday of the epoch.
const MONDAY: i64 = 4 * DAY;

/// The horizontal axis: which column an instant stands in.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    from: f64,
    seconds: f64,
    columns: usize,
}

// === impl Axis ===

impl Axis {
    /// An axis over a span; none if either is empty.
    pub fn new((from, until): (Timestamp, Timestamp), columns: usize) -> Option<Self> {
        let seconds = until.duration_since(from).as_secs_f64();
        (seconds > 0.0 && columns > 0).then(|| Self {
            from: second(from),
            seconds,
            columns,
        })
    }

    /// The axis of the same span in another number of columns.
    #[must_use]
    pub fn with_columns(self, columns: usize) -> Self {
        Self { columns, ..self }
    }

    /// The number of columns.
    pub const fn columns(self) -> usize {
        self.columns
    }

    /// The column of an instant; the one at the edge for an instant outside.
    pub fn column(self, at: Timestamp) -> usize {
        // The cast makes what is before the axis 0; its end would be one column too far.
        floor(self.position(at) * real(self.columns)).min(self.columns.saturating_sub(1))
    }

    /// The position of an instant: 0 at the beginning of the axis, 1 at its end.
    pub fn position(self, at: Timestamp) -> f64 {
        (second(at) - self.from) / self.seconds
    }

    /// The second, since the epoch, in the middle of a column.
    pub fn middle(self, column: usize) -> f64 {
        self.from + self.seconds * (real(column) + 0.5) / real(self.columns)
    }
}

/// Round instants of a zone, so far apart that their labels do not touch.
pub fn ticks(axis: Axis, zone: &TimeZone) -> Vec<Timestamp> {
    let least = ceil(axis.seconds * real(LABEL_SPACING) / real(axis.columns));
    let round_step = STEPS.into_iter().find(|step| *step >= least);
    // Beyond weeks: as many of the longest step as are needed.
    let longest = STEPS.last().copied().unwrap_or(DAY);
    let step = round_step.unwrap_or_else(|| longest * (least / longest + 1));
    let shift = if step >= WEEK { MONDAY } else { 0 };
    let ends = (
        civil(axis.from, zone),
        civil(axis.from + axis.seconds, zone),
    );
    let (Some(from), Some(until)) = ends else {
        return Vec::new();
    };
    let (from, until) = (from - shift, until - shift);
    let mut instants: Vec<_> = (from.div_euclid(step) + 1..=until.div_euclid(step))
        .filter_map(|index| {
            let local = Timestamp::from_second(index * step + shift).ok()?;
            zone.to_timestamp(TimeZone::UTC.to_datetime(local)).ok()
        })
        .filter(|at| axis.position(*at) > 0.0 && axis.position(*at) <= 1.0)
        .collect();
    // Civil times that a clock change skips are all the instant after the gap.
    instants.dedup();
    instants
}

/// The civil time of a second, as if it were UTC: that makes every zone and clock change one case.
fn civil(second: f64, zone: &TimeZone) -> Option<i64> {
    let at = Timestamp::from_second(ceil(second)).ok()?;
    let local = TimeZone::UTC.to_timestamp(zone.to_datetime(at)).ok()?;
    Some(local.as_second())
}

/// The time of day, or the day at midnight.
pub fn label(at: Timestamp, zone: &TimeZone) -> String {
    let civil = at.to_zoned(zone.clone());
    let midnight = civil.hour() == 0 && civil.minute() == 0;
    let format = if midnight { "%a %d %b" } else { "%H:%M" };
    civil.strftime(format).to_string()
}

/// Samples at these instants, farther apart than this many seconds, have a hole between them.
pub fn longest_step(instants: &[Timestamp]) -> f64 {
    match instants {
        [first, .., last] => {
            HOLE * (second(*last) - second(*first)) / real(instants.len().saturating_sub(1))
        }
        _ => 0.0,
    }
}

/// Seconds since the epoch.
pub fn second(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

/// A count of columns or rows, for calculations of places.
#[expect(clippy::cast_precision_loss, reason = "counts of columns and rows")]
pub fn real(count: usize) -> f64 {
    count as f64
}

/// The column or row that a place is in; the first one for a place before it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
pub fn floor(x: f64) -> usize {
    x.floor() as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn ceil(x: f64) -> i64 {
    x.ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: &str, until: &str, columns: usize, zone: &str) -> Vec<String> {
        let span = (from.parse().unwrap(), until.parse().unwrap());
        let zone = TimeZone::get(zone).unwrap();
        let ticks = ticks(Axis::new(span, columns).unwrap(), &zone);
        ticks.into_iter().map(|at| label(at, &zone)).collect()
    }

    #[test]
    fn labels_are_round_in_the_zone_also_over_a_clock_change() {
        let (from, until) = ("2026-07-06T00:00Z", "2026-07-06T12:00Z");
        assert_eq!(
            labels(from, until, 48, "UTC"),
            ["03:00", "06:00", "09:00", "12:00"]
        );
        assert_eq!(
            labels(from, until, 48, "Asia/Kolkata"),
            ["06:00", "09:00", "12:00", "15:00"]
        );
        let (from, until) = ("2026-03-28T20:00Z", "2026-03-29T06:00Z");
        assert_eq!(
            labels(from, until, 40, "Europe/Berlin"),
            ["Sun 29 Mar", "03:00", "06:00"]
        );
        let (from, until) = ("2026-10-24T21:30Z", "2026-10-25T03:00Z");
        let hours = labels(from, until, 72, "Europe/Berlin");
        assert_eq!(hours, ["Sun 25 Oct", "01:00", "02:00", "03:00", "04:00"]);
    }

    #[test]
    fn weeks_begin_on_monday_and_centuries_have_few_labels() {
        let weeks = labels("2026-07-01T00:00Z", "2026-08-10T00:00Z", 60, "UTC");
        assert!(
            weeks.iter().all(|label| label.starts_with("Mon")),
            "{weeks:?}"
        );
        let centuries = labels("1900-01-01T00:00Z", "2500-01-01T00:00Z", 60, "UTC");
        assert!((2..=6).contains(&centuries.len()), "{centuries:?}");
        let span = (Timestamp::MIN, Timestamp::MAX);
        assert!(ticks(Axis::new(span, 80).unwrap(), &TimeZone::UTC).len() <= 8);
    }
}
