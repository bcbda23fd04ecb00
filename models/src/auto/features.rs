//! The features of the model: the last minutes and hours, and what followed the same time of day on the last seven
//! days, each day weighted by its similarity to today. All are relative to the level of the last five minutes.
//!
//! | index | what | by |
//! |---|---|---|
//! | 0 | the intercept | `shared` |
//! | 1 to 5, 20, 21 | the last minutes and the last hour | `add_last_minutes` |
//! | 6 to 13, 15, 16 | what followed on past days | `add_days` |
//! | 14, 17 | the present compared with past days | `shared` |
//! | 18, 19 | what followed in past hours | `add_hours` |
//!
//! # Source
//! The study that chose the features left out one group at a time: without the features of past days its pinball loss
//! rose by 18 %, without those of the last minutes by 16 %.

use super::view::{Levels, View, Window};
use crate::series::count;

/// The number of features.
pub const FEATURES: usize = 22;
/// The feature of the growth on similar days, which the model's prior uses.
pub const GROWTH_OF_SIMILAR_DAYS: usize = 15;
/// The first of the features of the minutes before the last one, up to the end of the row. They matter where demand is
/// smoothed: what a moving mean takes in and what it loses is in them.
pub const MINUTES_BEFORE: usize = 20;
/// The number of past days used.
pub const DAYS: usize = 7;
/// The number of past hours used.
const HOURS: usize = 6;
/// The width of the kernel that weights days: a part of the smallest distance, plus a constant.
const SHARPNESS: (f64, f64) = (0.15, 0.002);
/// The least distance for the kernel width.
const LEAST_DISTANCE: f64 = 0.01;
/// Minutes over which the distance of a day is averaged.
const DISTANCE_MEMORY: i64 = 120;
/// Minutes of demand that a past day needs before the same time of day to be used.
const BEFORE_A_DAY: i64 = 10;
/// Minutes of demand after which past hours are used.
const HOURS_FROM: i64 = 130;

/// The features of one step, in the order of the table in `docs/forecasting-internals.md`.
///
/// # Units
/// Differences of logarithms: 0.1 is about 10 % of demand plus offset. Index 0 is 1, for the intercept.
pub type Row = [f64; FEATURES];

/// The distance of each past day from today, averaged over two hours.
#[derive(Debug, Clone, Default)]
pub struct Distances {
    averages: [Option<f64>; DAYS],
}

/// The common part of all predictions made at a step.
///
/// It is computed once for each step; the features of each window add the part that depends on the window.
#[derive(Debug, Clone)]
pub struct FeatureContext {
    step: usize,
    pub now: Levels,
    /// The levels at the same time of the last days, newest first.
    days: [Levels; DAYS],
    /// The number of days in use.
    known: usize,
    weights: [f64; DAYS],
    /// The features that do not depend on the predicted window.
    shared: Row,
}

// === impl Distances ===

impl Distances {
    /// Updates the distance of each day, and returns the weights: the nearest day has the largest.
    ///
    /// `exp(-(average - nearest) / scale)`, where `scale` is 0.15 of the smallest average distance, at least of 0.01,
    /// plus 0.002. So the nearest day weighs 1, and one that is twice as far weighs almost nothing.
    ///
    /// # Shape
    /// `distances` are those of the days in use, newest first; the weights of the others are 0.
    fn weigh(&mut self, distances: &[f64], memory: f64) -> [f64; DAYS] {
        for (average, distance) in self.averages.iter_mut().zip(distances) {
            let before = average.unwrap_or(*distance);
            *average = Some(before + (distance - before) / memory);
        }
        let known = self.averages.iter().take(distances.len()).flatten();
        let nearest = known.clone().copied().fold(f64::INFINITY, f64::min);
        let (part, least) = SHARPNESS;
        let scale = part * nearest.max(LEAST_DISTANCE) + least;
        let mut weights = [0.0; DAYS];
        for (weight, average) in weights.iter_mut().zip(known) {
            *weight = (-(average - nearest) / scale).exp();
        }
        weights
    }
}

// === impl FeatureContext ===

impl FeatureContext {
    /// The step that predictions are made at.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The mean of a value over the days in use; the others must be zero.
    fn mean(&self, of: &[f64; DAYS]) -> f64 {
        of.iter().sum::<f64>() / count(self.known)
    }

    /// The value of the same day last week; the mean while that day is not in use.
    fn oldest(&self, of: &[f64; DAYS]) -> f64 {
        if self.known == DAYS {
            of[DAYS - 1]
        } else {
            self.mean(of)
        }
    }

    fn weighted_sum(&self, of: &[f64; DAYS]) -> f64 {
        of.iter()
            .zip(&self.weights)
            .map(|(value, w)| value * w)
            .sum()
    }
}

// === impl View ===

impl View<'_> {
    /// The context of the step `now`, from the demand before it. Call it for each step in turn, with the `distances` of
    /// the step before.
    #[inline]
    pub fn context(&self, now: usize, distances: &mut Distances) -> FeatureContext {
        let day = self.grid.day();
        let age = now.saturating_sub(self.buffer.first());
        let known = DAYS.min(age.saturating_sub(self.grid.minutes(BEFORE_A_DAY)) / day);
        let mut context = FeatureContext {
            step: now,
            now: self.levels(now),
            days: [Levels::default(); DAYS],
            known,
            weights: [0.0; DAYS],
            shared: [0.0; FEATURES],
        };
        let mut apart = [0.0; DAYS];
        let lags = context.days.iter_mut().zip(&mut apart).take(known);
        for (lag, (levels, apart)) in (1..).zip(lags) {
            *levels = self.levels(now - lag * day);
            *apart = context.now.distance(levels);
        }
        let memory = count(self.grid.minutes(DISTANCE_MEMORY));
        context.weights = distances.weigh(apart.get(..known).unwrap_or_default(), memory);
        context.shared = self.shared(&context);
        context
    }

    /// The outcome of a prediction: the peak demand of its window, relative to the level before it.
    pub fn outcome(&self, made_at: usize, window: Window) -> f64 {
        let steps = window.after(made_at);
        self.scale.of(self.buffer.highest(steps.from, steps.to)) - self.five(made_at)
    }

    /// The weighted demand of the past days, `ahead` steps after the context's time of day, repeated daily; and the
    /// level of the hour before that time of day. `None` without a day of history.
    pub fn similar_days(&self, context: &FeatureContext, ahead: usize) -> Option<(f64, f64)> {
        let day = self.grid.day();
        let (mut weight, mut then, mut before) = (0.0, 0.0, 0.0);
        let days = context
            .days
            .iter()
            .zip(&context.weights)
            .take(context.known);
        for (lag, (levels, w)) in (1..).zip(days) {
            let seen = self.buffer.at(context.step - lag * day + ahead % day);
            weight += w;
            then += w * self.scale.of(seen.unwrap_or(0.0));
            before += w * levels.hour;
        }
        (weight > 0.0).then(|| (then / weight, before / weight))
    }

    /// The features for predicting a window.
    pub fn row(&self, context: &FeatureContext, window: Window) -> Row {
        let mut row = context.shared;
        if context.known > 0 {
            self.add_days(context, window, &mut row);
        }
        if context.step.saturating_sub(self.buffer.first()) >= self.grid.minutes(HOURS_FROM) {
            self.add_hours(context, window, &mut row);
        }
        row
    }

    /// The features of the current levels and those of the past days; the others are zero.
    fn shared(&self, context: &FeatureContext) -> Row {
        let mut row = [0.0; FEATURES];
        row[0] = 1.0;
        self.add_last_minutes(context, &mut row);
        if context.known > 0 {
            let (mut weight, mut trend) = (0.0, 0.0);
            for (levels, w) in context.days.iter().zip(context.weights).take(context.known) {
                weight += w;
                trend += w * (context.now.trend() - levels.trend());
            }
            row[14] = context.now.hour - context.days[0].hour;
            row[17] = trend / weight;
        }
        row
    }

    /// Features 1 to 5, and those from [`MINUTES_BEFORE`] on: the last minutes and the last hour.
    fn add_last_minutes(&self, context: &FeatureContext, row: &mut Row) {
        let (step, level) = (context.step, context.now.five);
        let (ten, hour) = (self.grid.minutes(10), self.grid.minutes(60));
        // Before the first step the number wraps around to one that is not in the buffer.
        let last = self.buffer.at(step.wrapping_sub(1)).unwrap_or(0.0);
        let before = self.five(step.saturating_sub(ten));
        let crest = self
            .buffer
            .highest(step.saturating_sub(hour), step.saturating_sub(1));
        row[1] = self.scale.of(last) - level;
        row[2] = context.now.quarter - level;
        row[3] = context.now.hour - level;
        row[4] = level - before;
        row[5] = self.scale.of(crest) - level;
        for (feature, ago) in row.iter_mut().skip(MINUTES_BEFORE).zip(2..) {
            let earlier = self.buffer.at(step.wrapping_sub(ago));
            *feature = self.scale.of(earlier.unwrap_or(0.0)) - level;
        }
    }

    /// Features 6 to 13, 15 and 16: what followed this time of day on past days, as *growth* relative to the level of
    /// that day then, and as height relative to the current level.
    fn add_days(&self, context: &FeatureContext, window: Window, row: &mut Row) {
        let (level, day) = (context.now.five, self.grid.day());
        let (mut growth, mut above) = ([0.0; DAYS], [0.0; DAYS]);
        let (mut crest, mut recent_crest) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for lag in 0..context.known {
            let then = context.step - (lag + 1) * day;
            let steps = window.after(then);
            let smoothed_peak = self.smoothed_peak(steps);
            growth[lag] = smoothed_peak - context.days[lag].five;
            above[lag] = smoothed_peak - level;
            let widened_peak = self.widened_peak(steps) - level;
            crest = crest.max(widened_peak);
            if lag < 3 {
                recent_crest = recent_crest.max(widened_peak);
            }
        }
        let weight: f64 = context.weights.iter().take(context.known).sum();
        row[6] = growth[0];
        row[7] = context.mean(&growth);
        row[8] = context.oldest(&growth);
        row[9] = above[0];
        row[10] = context.mean(&above);
        row[11] = context.oldest(&above);
        row[12] = crest;
        row[13] = recent_crest;
        row[GROWTH_OF_SIMILAR_DAYS] = context.weighted_sum(&growth) / weight;
        row[16] = context.weighted_sum(&above) / weight;
    }

    /// Features 18 and 19: what followed this minute of the last hours.
    fn add_hours(&self, context: &FeatureContext, window: Window, row: &mut Row) {
        let hour = self.grid.minutes(60);
        let (mut growth, mut highest, mut seen) = (0.0, f64::NEG_INFINITY, 0);
        for lag in (1..=HOURS).map(|hours| hours * hour) {
            let enough =
                context.step >= self.buffer.first() + lag + self.grid.minutes(BEFORE_A_DAY);
            // The smoothing must not look into the future.
            if lag <= window.to + 1 || !enough {
                continue;
            }
            let then = context.step - lag;
            let smoothed_peak = self.smoothed_peak(window.after(then));
            growth += smoothed_peak - self.five(then);
            highest = f64::max(highest, smoothed_peak);
            seen += 1;
        }
        if seen > 0 {
            row[18] = growth / count(seen);
            row[19] = highest - context.now.five;
        }
    }
}
