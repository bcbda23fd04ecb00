//! Detects when a series began to be counted in another unit, so that earlier samples can be left out.
//!
//! A change of unit is a step by one of the factors between units, to a level that the series never had before. Steps
//! that recur every day or every week are load.

use std::collections::BTreeMap;

use foretide_models::Series;
use jiff::{SignedDuration, Timestamp};

/// The factors between units: decimal and binary prefixes, and minutes to seconds.
const FACTORS: [f64; 5] = [60.0, 1000.0, 1024.0, 1e6, 1e9];
/// Largest relative distance of a step from its factor.
const STEP_TOLERANCE: f64 = 0.20;
/// Largest factor between the ratio to the same time of the day before and the factor of the step: days differ.
const DAY_TOLERANCE: f64 = 2.0;
/// Largest factor between levels that count as the same: load varies by less within a day, units differ by more.
const LEVEL_TOLERANCE: f64 = 4.0;
/// Time that the new level must last.
const SETTLE: SignedDuration = SignedDuration::from_mins(30);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The fewest samples whose median is compared.
const MIN_SAMPLES: usize = 3;
/// Factor up to which a step between two samples is not examined: it is below the least factor with its tolerance.
const MIN_STEP: f64 = 30.0;

/// A change of unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitChange {
    /// The first sample in the new unit.
    pub at: Timestamp,
    /// The factor by which numbers have become larger; below one they are smaller.
    pub factor: f64,
}

/// The levels that a series had for half an hour more than a day ago, even if its samples are no longer kept.
/// Levels are distinguished by their power of two.
#[derive(Clone, Debug, Default)]
pub struct PastLevels(BTreeMap<i32, Timestamp>);

/// Time for which a level is kept: four weeks, for load that comes once a month.
const RECORDED: SignedDuration = SignedDuration::from_hours(28 * 24);

// === impl PastLevels ===

impl PastLevels {
    /// Records the levels of a series without its last day, in which a change may still be detected.
    pub fn record(&mut self, series: &Series) {
        let Some((window, day)) = sample_counts(series) else {
            return;
        };
        let settled = series.values().len().saturating_sub(day);
        let values = series.values().get(..settled).unwrap_or_default();
        for (i, level) in levels(values, window).enumerate() {
            let Some(level) = level else { continue };
            let at = series.time_at(i * window);
            let last = self.0.entry(octave(level)).or_insert(at);
            *last = at.max(*last);
        }
        let end = series.end();
        self.0
            .retain(|_, last| end.duration_since(*last) <= RECORDED);
    }

    /// True if a level was recorded whose power of two is this one's or next to it.
    fn contains(&self, level: f64) -> bool {
        let octave = octave(level);
        self.0.range(octave - 1..=octave + 1).next().is_some()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a power of two of an f64 is within 1100 of zero"
)]
fn octave(level: f64) -> i32 {
    level.log2().floor() as i32
}

/// The median of each run of `window` samples.
fn levels(values: &[f64], window: usize) -> impl Iterator<Item = Option<f64>> {
    values.chunks_exact(window).map(median)
}

/// Numbers of samples that make half an hour, and a day.
fn sample_counts(series: &Series) -> Option<(usize, usize)> {
    let step = series.step();
    let count = |span: SignedDuration| {
        let steps = span.as_nanos().checked_div(step.as_nanos())?;
        usize::try_from(steps).ok()
    };
    Some((count(SETTLE)?.max(MIN_SAMPLES), count(DAY)?))
}

/// The newest change of unit that has lasted for half an hour.
///
/// A step is a change of unit if
///
/// - the medians of the half hours before and after it differ by a factor of 60, 1000, 1024, 10^6 or 10^9, or its
///   inverse, within 20 %;
/// - the same half hour of the day before differs by that factor, too, within a half and twice (without a day before,
///   it may be a launch);
/// - the series never was near the new level before, in its samples or in `past`, and not near the old level since:
///   units do not alternate.
pub fn unit_change(series: &Series, past: &PastLevels) -> Option<UnitChange> {
    let values = series.values();
    let (window, day) = sample_counts(series)?;
    let newest = values.len().checked_sub(window)?;
    (day..=newest).rev().find_map(|at| {
        // A cheap test first: the medians are costly, and few samples are such a step.
        if !is_step(values, at) {
            return None;
        }
        let level = |from: usize| median(values.get(from..from + window)?);
        let (after, before) = (level(at)?, level(at.checked_sub(window)?)?);
        let factor = near(after / before, 1.0 + STEP_TOLERANCE)?;
        let daily = after / level(at - day)?;
        let had_level = |part: Option<&[f64]>, at: f64| {
            let mut levels = levels(part.unwrap_or_default(), window).flatten();
            levels.any(|level| within(level / at, LEVEL_TOLERANCE))
        };
        // A level that has been there before is a pattern of the load.
        let recurs = past.contains(after)
            || had_level(values.get(..at), after)
            || had_level(values.get(at..), before);
        (within(daily / factor, DAY_TOLERANCE) && !recurs).then(|| UnitChange {
            at: series.time_at(at),
            factor,
        })
    })
}

/// True if the value at `at` is far from the one before it.
fn is_step(values: &[f64], at: usize) -> bool {
    let Some(value) = values.get(at).copied().filter(|value| !value.is_nan()) else {
        return false;
    };
    let backwards = values.get(..at).unwrap_or_default().iter().rev();
    let before = backwards.copied().find(|value| !value.is_nan());
    let ratio = before.map_or(f64::NAN, |before| value / before);
    ratio.is_finite() && ratio > 0.0 && !within(ratio, MIN_STEP)
}

/// The factor that a ratio is within `tolerance` of.
fn near(ratio: f64, tolerance: f64) -> Option<f64> {
    let inverse = FACTORS.iter().map(|factor| factor.recip());
    let mut all = FACTORS.iter().copied().chain(inverse);
    all.find(|factor| within(ratio / factor, tolerance))
}

fn within(ratio: f64, tolerance: f64) -> bool {
    ratio <= tolerance && ratio >= tolerance.recip()
}

/// The median of the present values, if at least half are present and it is above zero.
fn median(values: &[f64]) -> Option<f64> {
    let mut present: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    if present.len() < MIN_SAMPLES.max(values.len() / 2) {
        return None;
    }
    let middle = present.len() / 2;
    let (_, value, _) = present.select_nth_unstable_by(middle, f64::total_cmp);
    (*value > 0.0).then_some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    /// Two days of a wave with some noise, changed by `change` minute by minute.
    fn series(minutes: usize, change: impl Fn(usize, f64) -> f64) -> Series {
        let wave = |i: usize| {
            let t = f64::from(u32::try_from(i).unwrap());
            10.0 + 4.0 * (t / 1440.0 * std::f64::consts::TAU).sin() + (t * 1.7).sin()
        };
        let values = (0..minutes).map(|i| change(i, wave(i))).collect();
        Series::from_values(START, MINUTE, values)
    }

    /// The same wave, times `factor` in some minutes.
    fn scaled(minutes: usize, factor: f64, is_scaled: impl Fn(usize) -> bool) -> Series {
        series(minutes, |i, v| if is_scaled(i) { v * factor } else { v })
    }

    fn found(series: &Series) -> Option<(i64, f64)> {
        let change = unit_change(series, &PastLevels::default())?;
        Some((
            change.at.duration_since(START).as_secs() / 60,
            change.factor,
        ))
    }

    #[test]
    fn a_lasting_change_of_unit_is_found_where_it_happened() {
        for factor in [60.0, 1000.0, 1e6, 1e9, 1e-3, 1.0 / 60.0] {
            let changed = scaled(2000, factor, |i| i >= 1900);
            assert_eq!(found(&changed), Some((1900, factor)));
        }
        let twice = scaled(5000, 1000.0, |i| (2000..4000).contains(&i));
        assert_eq!(found(&twice), None);
    }

    #[test]
    fn a_step_of_less_than_half_an_hour_or_without_a_day_before_is_no_change() {
        let new = scaled(2000, 1000.0, |i| i >= 1971);
        assert_eq!(found(&new), None);
        let short = scaled(2000, 1000.0, |i| (1900..1910).contains(&i));
        assert_eq!(found(&short), None);
        let young = scaled(600, 1000.0, |i| i >= 300);
        assert_eq!(found(&young), None);
    }

    #[test]
    fn neither_a_daily_step_nor_growth_by_another_factor_is_a_change() {
        let nightly = scaled(5000, 60.0, |i| i % 1440 < 120);
        assert_eq!(found(&nightly), None);
        for factor in [2.0, 10.0, 100.0, 300.0, 1e4] {
            let grown = scaled(3000, factor, |i| i >= 2500);
            assert_eq!(found(&grown), None, "{factor}");
        }
        assert_eq!(found(&series(3000, |_, v| v)), None);
        let holes = series(3000, |i, v| if i % 3 == 0 { f64::NAN } else { v });
        assert_eq!(found(&holes), None);
        assert_eq!(found(&Series::from_values(START, MINUTE, vec![])), None);
        assert_eq!(found(&series(3000, |_, _| 0.0)), None);
    }

    fn is_weekday(minute: usize) -> bool {
        minute / 1440 % 7 < 5
    }

    /// The last 26 hours of two weeks of a batch job that runs on weekdays and has 60 times the usual load.
    fn weekdays(last: usize) -> Series {
        let all = scaled(last, 60.0, is_weekday);
        let from = last.saturating_sub(26 * 60);
        let start = START + MINUTE * i32::try_from(from).unwrap();
        Series::from_values(start, MINUTE, all.values()[from..].to_vec())
    }

    #[test]
    fn a_level_that_occurred_before_is_no_change_even_after_its_samples_are_gone() {
        let (monday, long) = (14 * 1440 + 45, 7 * 1440 + 720);
        let whole = scaled(long, 60.0, is_weekday);
        assert_eq!(found(&whole), None);
        // The samples cover Sunday only; earlier levels are recorded.
        let mut levels = PastLevels::default();
        assert!(unit_change(&weekdays(monday), &levels).is_some());
        for hour in 26..=monday / 60 {
            levels.record(&weekdays(hour * 60));
        }
        assert_eq!(unit_change(&weekdays(monday), &levels), None);
        // A level that never occurred still is a change.
        let changed = scaled(2000, 1e6, |i| i >= 1900);
        assert!(unit_change(&changed, &levels).is_some());
    }

    #[test]
    fn a_service_that_recovers_after_more_than_a_day_is_no_change() {
        let outage = |minutes| scaled(minutes, 1e-3, |i| (4000..6000).contains(&i));
        let mut levels = PastLevels::default();
        levels.record(&outage(5900));
        assert_eq!(unit_change(&outage(6100), &PastLevels::default()), None);
        let kept = outage(6100).values()[6100 - 26 * 60..].to_vec();
        let kept = Series::from_values(START, MINUTE, kept);
        assert!(unit_change(&kept, &PastLevels::default()).is_some());
        assert_eq!(unit_change(&kept, &levels), None);
    }
}
