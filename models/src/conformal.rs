//! Weighted split conformal prediction: an upper bound is the forecast plus a quantile of the forecaster's own past
//! errors, those at about the same time of day and the recent ones. The caller decides what an error is.
//!
//! ```text
//! (a) on each of the last seven days    30 min before  0.2 ... 1 at this time of day ... 0.2  30 min after
//! (b) the last two days                 two days ago   0.3 ....................... 1  now
//! ```
//!
//! The weights of (b) are scaled such that both groups weigh the same.
//!
//! # Source
//! Weights and spans are those of a study on workload traces. The benchmark `foretide-replay` prints the
//! coverage that this code reaches.

use crate::grid::Grid;
use crate::series::count;

/// Days whose errors at the same time of day count.
const DAYS: usize = 7;
/// The largest distance from the same time of day, in minutes.
const NEARBY: i64 = 30;
/// The reduction of the weight at that distance.
const NEARBY_FADES: f64 = 0.8;
/// The span of recent errors, in minutes: two days.
const RECENT: i64 = 2880;
/// The reduction of the weight of the oldest of those.
const RECENT_FADES: f64 = 0.7;
/// Minutes between two errors in use; neighboring errors are nearly equal.
const EVERY: i64 = 3;
/// The least number of errors for a quantile.
pub const LEAST: usize = 40;

/// The errors of one forecaster, each by the step at which the forecast was made.
///
/// # Shape
/// An error is the logarithm of the ratio of the outcome to the forecast: positive when the forecast was too low.
#[derive(Debug, Clone)]
pub struct Errors {
    /// The step of the first value.
    first: usize,
    values: Vec<Half>,
}

/// An error in half precision, or none: three digits are enough for an error, and a week of them is most of a model.
///
/// # Shape
/// Bit 15 is the sign, 14 to 10 are the exponent and the others the significand, as in IEEE 754, but without infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Half(u16);

/// The errors in use, sorted, each with the cumulative weight up to it; none by default.
#[derive(Debug, Clone, Default)]
pub struct RankedErrors {
    ranks: Vec<Rank>,
}

/// An error and its weight packed into one number, which sorts three times as fast as a pair: the upper half sorts like
/// the error.
///
/// # Shape
/// Bits 63 to 32 are the error, ordered as an unsigned number; bits 31 to 0 are those of the weight, an `f32` of at
/// least 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u64);

/// The steps that decide which errors can be ranked.
#[derive(Debug, Clone, Copy)]
struct Cutoff {
    /// The step that the forecast is made at.
    now: usize,
    /// The newest step whose forecast has a known outcome.
    known: usize,
}

/// Steps between two errors in use: of those at the same time of day, and of the recent ones.
#[derive(Debug, Clone, Copy)]
struct Spacing {
    nearby: usize,
    recent: usize,
}

/// The sign bit of an `f32`.
const SIGN: u32 = 1 << 31;
/// The difference between the exponents of an `f32` and those of a [`Half`]: 112, from a bias of 127 to one of 15.
const EXPONENTS_APART: i32 = 112;
/// The bits of a significand that a [`Half`] lacks.
const DROPPED_BITS: u32 = 13;

// === impl Errors ===

impl Errors {
    /// No errors, with capacity for `keep` of them.
    pub fn with_capacity(keep: usize) -> Self {
        Self {
            first: 0,
            values: Vec::with_capacity(keep),
        }
    }

    /// Records the error of the forecast made at `step`, which must be later than the last one. Skipped steps have
    /// none.
    pub fn record(&mut self, step: usize, error: f64) {
        if self.values.is_empty() {
            self.first = step;
        }
        let end = self.first + self.values.len();
        let skipped = step.saturating_sub(end);
        self.values.extend(std::iter::repeat_n(Half::NONE, skipped));
        self.values.push(Half::of(error));
    }

    /// Drops the errors before `step`.
    pub fn drop_before(&mut self, step: usize) {
        let gone = step.saturating_sub(self.first).min(self.values.len());
        self.values.drain(..gone);
        self.first += gone;
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<Half>() * self.values.capacity()
    }

    /// The error of the forecast made at `step`, if there is one.
    pub fn get(&self, step: usize) -> Option<f32> {
        let at = step.checked_sub(self.first)?;
        self.values.get(at)?.get()
    }
}

// === impl Half ===

impl Half {
    const NONE: Self = Self(0x7FFF);
    const LARGEST: u32 = 0x7FFE;

    /// The nearest value to an error; none of one that is not a number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "three digits are enough for an error"
    )]
    fn of(error: f64) -> Self {
        if error.is_nan() {
            return Self::NONE;
        }
        // With the smaller exponent, the upper bits of an `f32` are those of a half.
        let bits = (error.abs() as f32 * 2.0_f32.powi(-EXPONENTS_APART)).to_bits();
        let nearest = (bits + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS;
        let sign = u16::from(error.is_sign_negative()) << 15;
        Self(nearest.min(Self::LARGEST) as u16 | sign)
    }

    fn get(self) -> Option<f32> {
        let magnitude = f32::from_bits(u32::from(self.0 & 0x7FFF) << DROPPED_BITS);
        let magnitude = magnitude * 2.0_f32.powi(EXPONENTS_APART);
        let is_negative = self.0 >> 15 == 1;
        let value = if is_negative { -magnitude } else { magnitude };
        (self != Self::NONE).then_some(value)
    }
}

// === impl Spacing ===

impl Spacing {
    fn even(every: usize) -> Self {
        let (nearby, recent) = (every, every);
        Self { nearby, recent }
    }
}

// === impl RankedErrors ===

impl RankedErrors {
    /// No errors, with capacity for all that can be in use.
    pub fn new(grid: Grid) -> Self {
        let every = grid.minutes(EVERY);
        let nearby = 2 * grid.minutes(NEARBY) / every + 1;
        let recent = (grid.minutes(RECENT) / every).max(LEAST * every) + 1;
        Self {
            ranks: Vec::with_capacity(DAYS * nearby + recent),
        }
    }

    /// Ranks the errors for a forecast made at step `now`; outcomes of forecasts made after `known` are not known.
    ///
    /// Two groups of equal weight: (a) on each of the last seven days within half an hour of this time of day, fading
    /// to a fifth at the edges; (b) the last two days, fading to three tenths. Returns whether there are
    /// at least [`LEAST`] of them.
    pub fn rank(&mut self, errors: &Errors, grid: Grid, now: usize, known: usize) -> bool {
        // A short history needs all of its errors.
        let young = errors.values.len() < LEAST * grid.minutes(EVERY);
        let every = if young { 1 } else { grid.minutes(EVERY) };
        let cutoff = Cutoff { now, known };
        let spacing = Spacing {
            nearby: grid.minutes(EVERY),
            recent: every,
        };
        self.rank_each(|step| errors.get(step), grid, cutoff, spacing)
    }

    /// Like [`rank`](Self::rank), but half as dense and twice as fast.
    pub fn rank_roughly(&mut self, errors: &Errors, grid: Grid, now: usize, known: usize) -> bool {
        let cutoff = Cutoff { now, known };
        let nearby = grid.minutes(EVERY);
        let spacing = Spacing {
            nearby,
            recent: 3 * nearby,
        };
        self.rank_each(|step| errors.get(step), grid, cutoff, spacing)
    }

    /// Like [`rank`](Self::rank), with errors that are computed on demand.
    pub fn rank_by(
        &mut self,
        error_at: impl Fn(usize) -> Option<f32>,
        grid: Grid,
        now: usize,
        known: usize,
    ) -> bool {
        let spacing = Spacing::even(grid.minutes(EVERY));
        self.rank_each(error_at, grid, Cutoff { now, known }, spacing)
    }

    /// Fills `ranks` with the errors of both groups, sorted, each with the cumulative weight up to it.
    fn rank_each(
        &mut self,
        error_at: impl Fn(usize) -> Option<f32>,
        grid: Grid,
        cutoff: Cutoff,
        spacing: Spacing,
    ) -> bool {
        self.ranks.clear();
        let of_the_hour = self.add_time_of_day(&error_at, grid, cutoff, spacing.nearby);
        let split = self.ranks.len();
        let lately = self.add_recent(&error_at, grid, cutoff.known, spacing.recent);
        if of_the_hour > 0.0 && lately > 0.0 {
            // Both groups weigh the same in total, whatever their sizes.
            let scale = of_the_hour / lately;
            for rank in self.ranks.iter_mut().skip(split) {
                *rank = Rank::new(rank.error(), rank.weight() * scale);
            }
        }
        self.ranks.sort_unstable();
        let mut total = 0.0;
        for rank in &mut self.ranks {
            total += rank.weight();
            *rank = Rank::new(rank.error(), total);
        }
        self.ranks.len() >= LEAST
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<Rank>() * self.ranks.capacity()
    }

    /// The `q`-quantile of the weighted errors; zero without any.
    ///
    /// # Guarantees
    /// - A larger `q` never gives a smaller answer.
    /// - The result is one of the ranked errors.
    pub fn quantile(&self, q: f64) -> f64 {
        let total = self
            .ranks
            .last()
            .map_or(0.0, |rank| f64::from(rank.weight()));
        let reached = self
            .ranks
            .partition_point(|rank| f64::from(rank.weight()) < q * total);
        match self.ranks.get(reached).or(self.ranks.last()) {
            Some(rank) => f64::from(rank.error()),
            None => 0.0,
        }
    }

    /// Adds the errors around this time of day on each of the last days; returns the sum of their weights.
    fn add_time_of_day(
        &mut self,
        error_at: &impl Fn(usize) -> Option<f32>,
        grid: Grid,
        cutoff: Cutoff,
        every: usize,
    ) -> f32 {
        let reach = grid.minutes(NEARBY);
        let centres = (1..=DAYS).map_while(|day| cutoff.now.checked_sub(day * grid.day()));
        let mut sum = 0.0;
        for centre in centres {
            // A multiple of `every` before the center, so that the center itself is visited.
            let first = centre.saturating_sub(reach - reach % every);
            for at in (first..=cutoff.known.min(centre + reach)).step_by(every) {
                let weight = fade(at.abs_diff(centre), reach, NEARBY_FADES);
                sum += self.add(error_at(at), weight);
            }
        }
        sum
    }

    /// Adds the errors of the last two days; returns the sum of their weights.
    fn add_recent(
        &mut self,
        error_at: &impl Fn(usize) -> Option<f32>,
        grid: Grid,
        known: usize,
        every: usize,
    ) -> f32 {
        let reach = grid.minutes(RECENT);
        (0..reach.min(known + 1))
            .step_by(every)
            .map(|age| self.add(error_at(known - age), fade(age, reach, RECENT_FADES)))
            .sum()
    }

    /// Adds one error, if there is one; returns the weight that was added.
    fn add(&mut self, error: Option<f32>, weight: f32) -> f32 {
        let Some(error) = error else { return 0.0 };
        self.ranks.push(Rank::new(error, weight));
        weight
    }
}

// === impl Rank ===

impl Rank {
    fn new(error: f32, weight: f32) -> Self {
        let bits = error.to_bits();
        // Flip all bits of negative numbers and the sign bit of the others, so that the bits sort like the numbers.
        let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
        Self(u64::from(ordered) << 32 | u64::from(weight.to_bits()))
    }

    fn error(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        let bits = if ordered & SIGN == 0 {
            !ordered
        } else {
            ordered ^ SIGN
        };
        f32::from_bits(bits)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is the weight"
    )]
    fn weight(self) -> f32 {
        f32::from_bits(self.0 as u32)
    }
}

/// The weight at a distance: `1 - by * distance / reach`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits are enough for a weight"
)]
fn fade(distance: usize, reach: usize, by: f64) -> f32 {
    (1.0 - by * count(distance) / count(reach)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn hourly() -> Grid {
        Grid::new(SignedDuration::from_hours(1))
    }

    /// Errors 0, 1, 2, ... of forecasts made at steps 0, 1, 2, ...
    fn rising(n: u16) -> Errors {
        let mut errors = Errors::with_capacity(usize::from(n));
        for step in 0..n {
            errors.record(usize::from(step), f64::from(step));
        }
        errors
    }

    #[test]
    fn too_few_errors_give_no_quantile() {
        // At one value an hour, the first day is within both groups from the second on.
        let mut ranked = RankedErrors::new(hourly());
        assert!(!ranked.rank(&rising(22), hourly(), 22, 21));
        assert!(ranked.rank(&rising(40), hourly(), 40, 39));
        assert!(!RankedErrors::new(hourly()).rank(&Errors::with_capacity(0), hourly(), 0, 0));
    }

    #[test]
    fn both_groups_have_equal_weight_and_the_newest_errors_the_most() {
        // At one value an hour, each of seven days gives errors at -1, 0 and +1 h of this time of day.
        let mut ranked = RankedErrors::new(hourly());
        assert!(ranked.rank(&rising(240), hourly(), 240, 239));
        let total = ranked.ranks.last().unwrap().weight();
        let below = |error: f32| {
            let at = ranked.ranks.partition_point(|rank| rank.error() < error);
            ranked.ranks[at - 1].weight() / total
        };
        // Older than the recent two days are the same hours of five days and an hour of a sixth: more than five of
        // seven parts of one half, and what the weights within the hours add.
        let older = below(192.0);
        assert!((5.0 / 14.0..6.0 / 14.0).contains(&older), "{older}");
    }

    #[test]
    fn a_rank_keeps_error_and_weight_and_sorts_by_error() {
        let errors = [-f32::MAX, -2.5, -1e-30, -0.0, 0.0, 1e-30, 0.1, 7.0];
        let ranks = errors.map(|error| Rank::new(error, 0.3));
        for (rank, error) in ranks.iter().zip(errors) {
            assert_eq!(rank.error().to_bits(), error.to_bits());
            assert_eq!(rank.weight().to_bits(), 0.3_f32.to_bits());
        }
        assert!(ranks.is_sorted());
    }

    #[test]
    fn unknown_outcomes_are_not_ranked() {
        let mut ranked = RankedErrors::new(hourly());
        assert!(ranked.rank(&rising(240), hourly(), 240, 200));
        assert!(ranked.ranks.iter().all(|rank| rank.error() <= 200.0));
        assert_eq!(ranked.quantile(1.0).to_bits(), 200.0_f64.to_bits());
    }

    #[test]
    fn an_error_is_kept_with_three_digits() {
        for exponent in -40..40_i32 {
            let error = 1.234_567 * 2.0_f64.powf(f64::from(exponent) * 0.4);
            for error in [error, -error] {
                let kept = f64::from(Half::of(error).get().unwrap());
                assert!((kept / error - 1.0).abs() < 0.0005, "{error}: {kept}");
            }
        }
        let kept = [0.0, -0.0, 1.0, -0.25, 1e9, f64::NEG_INFINITY, f64::NAN];
        let kept = kept.map(|error| Half::of(error).get());
        let expected = [0.0, 0.0, 1.0, -0.25, 130_944.0, -130_944.0].map(Some);
        assert_eq!((&kept[..6], kept[6]), (&expected[..], None));
    }

    #[test]
    fn skipped_and_dropped_steps_have_no_error() {
        let mut errors = Errors::with_capacity(8);
        errors.record(2, 1.5);
        errors.record(4, 2.5);
        errors.drop_before(3);
        let seen: Vec<_> = (0..6).map(|step| errors.get(step)).collect();
        assert_eq!(seen, [None, None, None, None, Some(2.5), None]);
    }
}
