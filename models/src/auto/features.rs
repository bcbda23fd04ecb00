//! What the model looks at: the last minutes and hours, and what followed the same time of the last seven days, days
//! weighted by how much they have looked like today. Everything is relative to the level of the last five minutes.
//!
//! # Source
//! The study that chose them left them out one by one: its pinball loss rose by 18 % without the features of days, by 16 %
//! without those of the last minutes.

use super::derived::Derived;
use super::past::Past;
use crate::grid::Grid;
use crate::series::count;

/// How many features there are.
pub(super) const FEATURES: usize = 20;
/// The feature of what followed on similar days, on which the model's prior leans.
pub(super) const GROWTH_OF_SIMILAR_DAYS: usize = 15;
/// How many days are looked back.
pub(super) const DAYS: usize = 7;
/// How many hours are looked back.
const HOURS: usize = 6;
/// How sharply days are told apart: the part of the smallest distance, and what is added to it.
const SHARPNESS: (f64, f64) = (0.15, 0.002);
/// The least distance that sharpness is a part of.
const LEAST_DISTANCE: f64 = 0.01;
/// Minutes over which the distance of a day is averaged.
const DISTANCE_MEMORY: i64 = 120;
/// Minutes by which the window of a day is widened for its maximum.
const WIDENED_BY: i64 = 5;
/// Minutes that must lie before the same time of a day for it to be looked at.
const BEFORE_A_DAY: i64 = 10;
/// Minutes after which hours are looked at.
const HOURS_FROM: i64 = 130;

/// The features of one step, in the order of the table in `docs/forecasting.md`.
pub(super) type Row = [f64; FEATURES];

/// The steps a prediction is about, as offsets from the step it is made at, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Logarithm of demand, with an offset so large that it bends only a little.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    /// What is added before the logarithm; positive.
    pub(super) offset: f64,
}

/// Mean demand of the last 5, 15 and 60 minutes before a step, scaled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Levels {
    pub(super) five: f64,
    quarter: f64,
    hour: f64,
}

/// How unlike today each of the last days has been, averaged over two hours.
#[derive(Debug, Clone, Default)]
pub(super) struct Distances {
    averages: [Option<f64>; DAYS],
}

/// What a step looks like, whatever is to be predicted of it.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    step: usize,
    pub(super) now: Levels,
    /// The levels at the same time of the last days, newest first.
    days: [Levels; DAYS],
    /// How many of them there are.
    known: usize,
    weights: [f64; DAYS],
    /// The features that do not depend on what is to be predicted.
    shared: Row,
}

/// A history on a scale, looked at in a grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) past: &'a Past,
    pub(super) scale: Scale,
    pub(super) grid: Grid,
    /// What has been reckoned already.
    pub(super) derived: Option<&'a Derived>,
}

// === impl Window ===

impl Window {
    /// The steps themselves, seen from a step.
    pub(super) fn after(self, step: usize) -> Self {
        Self {
            from: step + self.from,
            to: step + self.to,
        }
    }
}

// === impl Scale ===

impl Scale {
    pub(super) fn of(self, demand: f64) -> f64 {
        (demand + self.offset).ln()
    }

    pub(super) fn inverse(self, scaled: f64) -> f64 {
        (scaled.exp() - self.offset).max(0.0)
    }
}

// === impl Levels ===

impl Levels {
    /// Level of the last hour.
    pub(super) fn hour(&self) -> f64 {
        self.hour
    }

    fn trend(&self) -> f64 {
        self.quarter - self.hour
    }

    fn distance(&self, other: &Self) -> f64 {
        0.5 * (self.quarter - other.quarter).abs() + (self.trend() - other.trend()).abs()
    }
}

// === impl Distances ===

impl Distances {
    /// Takes in how far each day is now, and weighs the days: the nearest most.
    fn weigh(&mut self, distances: &[f64], memory: f64) -> [f64; DAYS] {
        for (average, distance) in self.averages.iter_mut().zip(distances) {
            let before = average.unwrap_or(*distance);
            *average = Some(before + (distance - before) / memory);
        }
        let known = || self.averages.iter().take(distances.len()).flatten();
        let nearest = known().copied().fold(f64::INFINITY, f64::min);
        let (part, least) = SHARPNESS;
        let scale = part * nearest.max(LEAST_DISTANCE) + least;
        let mut weights = [0.0; DAYS];
        for (weight, average) in weights.iter_mut().zip(known()) {
            *weight = (-(average - nearest) / scale).exp();
        }
        weights
    }
}

// === impl Scene ===

impl Scene {
    /// The step it is seen from.
    pub(super) fn step(&self) -> usize {
        self.step
    }
}

// === impl View ===

impl<'a> View<'a> {
    /// A history on a scale, nothing of which has been reckoned yet.
    pub(super) fn new(past: &'a Past, scale: Scale, grid: Grid) -> Self {
        Self {
            past,
            scale,
            grid,
            derived: None,
        }
    }
}

impl View<'_> {
    /// What the step `now` looks like to someone who knows the demand before it. Steps are looked at in turn:
    /// `distances` carries what was seen at the last one.
    pub(super) fn scene(&self, now: usize, distances: &mut Distances) -> Scene {
        let day = self.grid.day();
        let age = now.saturating_sub(self.past.first());
        let known = DAYS.min(age.saturating_sub(self.grid.minutes(BEFORE_A_DAY)) / day);
        let mut scene = Scene {
            step: now,
            now: self.levels(now),
            days: [Levels::default(); DAYS],
            known,
            weights: [0.0; DAYS],
            shared: [0.0; FEATURES],
        };
        let mut apart = [0.0; DAYS];
        let lags = scene.days.iter_mut().zip(&mut apart).take(known);
        for (lag, (levels, apart)) in (1..).zip(lags) {
            *levels = self.levels(now - lag * day);
            *apart = scene.now.distance(levels);
        }
        let memory = count(self.grid.minutes(DISTANCE_MEMORY));
        scene.weights = distances.weigh(apart.get(..known).unwrap_or_default(), memory);
        scene.shared = self.shared(&scene);
        scene
    }

    /// What was to be predicted: the highest demand of a window, relative to the level before it.
    pub(super) fn outcome(&self, made_at: usize, window: Window) -> f64 {
        let steps = window.after(made_at);
        self.scale.of(self.past.highest(steps.from, steps.to)) - self.five(made_at)
    }

    /// What was seen on the last days, the similar ones most, `ahead` steps after the scene's time of day, repeated by
    /// the day; and the level of the hour before the scene's time of day. None without a day.
    pub(super) fn similar_days(&self, scene: &Scene, ahead: usize) -> Option<(f64, f64)> {
        let day = self.grid.day();
        let (mut weight, mut then, mut before) = (0.0, 0.0, 0.0);
        let days = scene.days.iter().zip(&scene.weights).take(scene.known);
        for (lag, (levels, w)) in (1..).zip(days) {
            let seen = self.past.at(scene.step - lag * day + ahead % day);
            weight += w;
            then += w * self.scale.of(seen.unwrap_or(0.0));
            before += w * levels.hour;
        }
        (weight > 0.0).then(|| (then / weight, before / weight))
    }

    /// The features for predicting a window seen from a scene.
    pub(super) fn row(&self, scene: &Scene, window: Window) -> Row {
        let mut row = scene.shared;
        if scene.known > 0 {
            self.days(scene, window, &mut row);
        }
        if scene.step.saturating_sub(self.past.first()) >= self.grid.minutes(HOURS_FROM) {
            self.hours(scene, window, &mut row);
        }
        row
    }

    /// The levels before a step.
    pub(super) fn levels(&self, step: usize) -> Levels {
        if let Some(levels) = self.derived.and_then(|derived| derived.levels(step)) {
            return levels;
        }
        let level = |minutes| {
            let mean = self.past.mean_before(step, self.grid.minutes(minutes));
            self.scale.of(mean)
        };
        Levels {
            five: level(5),
            quarter: level(15),
            hour: level(60),
        }
    }

    /// The level of the five minutes before a step.
    fn five(&self, step: usize) -> f64 {
        match self.derived.and_then(|derived| derived.levels(step)) {
            Some(levels) => levels.five,
            None => self
                .scale
                .of(self.past.mean_before(step, self.grid.minutes(5))),
        }
    }

    /// The highest smoothed demand of these steps.
    pub(super) fn followed(&self, steps: Window) -> f64 {
        match self.derived.and_then(|derived| derived.followed(steps)) {
            Some(followed) => followed,
            None => self
                .scale
                .of(self.past.highest_smoothed(steps.from, steps.to)),
        }
    }

    /// The highest demand of these steps and those around them.
    pub(super) fn near(&self, steps: Window) -> f64 {
        if let Some(near) = self.derived.and_then(|derived| derived.near(steps)) {
            return near;
        }
        let wider = self.wider();
        let from = steps.from.saturating_sub(wider);
        self.scale.of(self.past.highest(from, steps.to + wider))
    }

    /// By how many steps a window is widened on each side.
    pub(super) fn wider(&self) -> usize {
        self.grid.minutes(WIDENED_BY)
    }

    /// The features that are about now and the days' levels only, the others zero.
    fn shared(&self, scene: &Scene) -> Row {
        let mut row = [0.0; FEATURES];
        row[0] = 1.0;
        self.last_minutes(scene, &mut row);
        if scene.known > 0 {
            let (mut weight, mut trend) = (0.0, 0.0);
            for (levels, w) in scene.days.iter().zip(scene.weights).take(scene.known) {
                weight += w;
                trend += w * (scene.now.trend() - levels.trend());
            }
            row[14] = scene.now.hour - scene.days[0].hour;
            row[17] = trend / weight;
        }
        row
    }

    fn last_minutes(&self, scene: &Scene, row: &mut Row) {
        let (step, level) = (scene.step, scene.now.five);
        let (ten, hour) = (self.grid.minutes(10), self.grid.minutes(60));
        let last = self.past.at(step.wrapping_sub(1)).unwrap_or(0.0);
        let before = self.five(step.saturating_sub(ten));
        let crest = self
            .past
            .highest(step.saturating_sub(hour), step.saturating_sub(1));
        row[1] = self.scale.of(last) - level;
        row[2] = scene.now.quarter - level;
        row[3] = scene.now.hour - level;
        row[4] = level - before;
        row[5] = self.scale.of(crest) - level;
    }

    fn days(&self, scene: &Scene, window: Window, row: &mut Row) {
        let (level, day) = (scene.now.five, self.grid.day());
        let (mut growth, mut above) = ([0.0; DAYS], [0.0; DAYS]);
        let (mut crest, mut recent_crest) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for lag in 0..scene.known {
            let then = scene.step - (lag + 1) * day;
            let steps = window.after(then);
            let followed = self.followed(steps);
            growth[lag] = followed - scene.days[lag].five;
            above[lag] = followed - level;
            let near = self.near(steps) - level;
            crest = crest.max(near);
            if lag < 3 {
                recent_crest = recent_crest.max(near);
            }
        }
        let weight: f64 = scene.weights.iter().take(scene.known).sum();
        let mean = |of: &[f64; DAYS]| of.iter().sum::<f64>() / count(scene.known);
        let weighted = |of: &[f64; DAYS]| {
            let products = of.iter().zip(&scene.weights).map(|(value, w)| value * w);
            products.sum::<f64>() / weight
        };
        let last = |of: &[f64; DAYS]| {
            if scene.known == DAYS {
                of[DAYS - 1]
            } else {
                mean(of)
            }
        };
        row[6] = growth[0];
        row[7] = mean(&growth);
        row[8] = last(&growth);
        row[9] = above[0];
        row[10] = mean(&above);
        row[11] = last(&above);
        row[12] = crest;
        row[13] = recent_crest;
        row[GROWTH_OF_SIMILAR_DAYS] = weighted(&growth);
        row[16] = weighted(&above);
    }

    fn hours(&self, scene: &Scene, window: Window, row: &mut Row) {
        let hour = self.grid.minutes(60);
        let (mut growth, mut highest, mut seen) = (0.0, f64::NEG_INFINITY, 0);
        for lag in (1..=HOURS).map(|hours| hours * hour) {
            let enough = scene.step >= self.past.first() + lag + self.grid.minutes(BEFORE_A_DAY);
            // The smoothing must not look into the future.
            if lag <= window.to + 1 || !enough {
                continue;
            }
            let then = scene.step - lag;
            let followed = self.followed(window.after(then));
            growth += followed - self.five(then);
            highest = f64::max(highest, followed);
            seen += 1;
        }
        if seen > 0 {
            row[18] = growth / count(seen);
            row[19] = highest - scene.now.five;
        }
    }
}
