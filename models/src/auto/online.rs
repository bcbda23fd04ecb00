//! The model at work on one series: takes one step of demand after another, learns from each prediction as soon as its
//! outcome is known, and answers what the highest demand of the decision window will stay within.
//! Sees clean demand only; what is missing or absurd is dealt with in `mod`. Next: `features`, `ridge`, `path`.

use std::collections::VecDeque;

use jiff::SignedDuration;

use super::Aim;
use super::derived::Derived;
use super::features::{DAYS, Distances, Row, Scale, Scene, View, Window};
use super::objective::{HELD_MINUTES, LADDER, Objective, Rungs};
use super::past::Past;
use super::path::{Ahead, Path};
use super::ridge::Ridge;
use super::track::{Outcome, Track};
use crate::conformal::{self, Errors, Ranked};
use crate::forecast::CEILING_RATIO;
use crate::grid::Grid;
use crate::series::count;

/// Minutes of demand before anything is predicted.
pub(super) const LEAST_MINUTES: i64 = 120;
/// Minutes of demand before a step is learnt from.
const FEATURES_FROM: i64 = 60;
/// Weight of a prediction that was too low, against one that was too high, in the model's loss.
const TAU: f64 = 0.8;
/// Minutes between two solutions of the model, two refreshes of the quantile, and two looks at the whole history.
const SOLVE_EVERY: i64 = 10;
const QUANTILE_EVERY: i64 = 5;
const EXTREMES_EVERY: i64 = 360;
/// Minutes between two comparisons with "it stays as it is".
const COMPARE_EVERY: i64 = 240;
/// The offset of the logarithm, as a multiple of the mean.
const OFFSET: f64 = 2.0;
/// How far the average may leave the mean that the scale was made from, as a ratio, before the scale is made anew.
const SHIFT: f64 = 2.0;
/// Minutes that a scale is kept at least.
const SCALE_KEPT: i64 = 360;
/// Days that the mean of a scale is taken over.
const MEAN_DAYS: usize = 7;

/// How an [`Online`] works.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Minutes until added capacity serves, at most a day of them.
    pub lead_minutes: i64,
    /// Steps that are remembered; `usize::MAX` for all.
    pub remember: usize,
    /// A constant offset of the logarithm from the first step on; `None` makes it from the mean, and again when the
    /// level shifts.
    pub offset: Option<f64>,
    /// Whether to fall back on "it stays as it is" while the model is no better than that.
    pub fall_back: bool,
    /// Whether to predict the path as well as the decision window.
    pub path: bool,
}

/// The longest lead time, in minutes.
const LONGEST_LEAD: i64 = 1440;
/// Minutes beyond the lead time that a decision looks ahead.
pub(super) const LOOK_BEYOND: i64 = 3;

/// The model of one series.
#[derive(Debug, Clone)]
pub struct Online {
    settings: Settings,
    grid: Grid,
    window: Window,
    past: Past,
    /// Moving average over a day; where it goes, the scale follows.
    average: f64,
    aim: Aim,
    learner: Option<Learner>,
    /// Kept while a whole history is learnt.
    derived: Option<Derived>,
}

/// Everything that is made anew when the scale changes.
#[derive(Debug, Clone)]
struct Learner {
    scale: Scale,
    /// The mean that the scale was made from.
    mean: f64,
    built_at: usize,
    ridge: Ridge,
    sound: bool,
    distances: Distances,
    /// What the last step looked like.
    scene: Option<Scene>,
    issued: VecDeque<Issued>,
    /// The model's errors, and those of "it stays as it is".
    errors: Errors,
    outcomes: Errors,
    ranked: Ranked,
    /// Whether there are enough errors of the model, and of "it stays as it is".
    calibrated: bool,
    calibrated_at: usize,
    settled: bool,
    persistence: Ranked,
    margins: Margins,
    track: Track,
    objective: Option<Objective>,
    /// The quantile in use where there is no objective.
    at_first: f64,
    /// The highest and the lowest demand that is remembered.
    extremes: (f64, f64),
    path: Option<Path>,
}

/// A prediction whose outcome is open.
#[derive(Debug, Clone)]
struct Issued {
    step: usize,
    row: Row,
    level: f64,
    /// None while the model warms up.
    point: Option<f64>,
    /// What it was said to stay within, by the model and by "it stays as it is", and with which quantile.
    bounds: Option<((f64, f64), f64)>,
}

/// What is added to a prediction to make it a bound: set every four hours, so that learning a whole history is cheap and
/// comes to the same as having watched it.
#[derive(Debug, Clone, Default)]
struct Margins {
    quantile: f64,
    model: Option<f64>,
    /// Of "it stays as it is".
    persistence: Option<f64>,
    /// Of the model, for every rung of the objective.
    rungs: Rungs,
}

/// Where a demand comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was measured.
    Measured,
    /// It stands for one that is missing or cannot be believed.
    MadeUp,
}

/// Why an answer is not the model's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The calibrated model.
    Model,
    /// Too few of its errors are known yet: "it stays as it is", calibrated.
    Warming,
    /// It is no better than "it stays as it is".
    NoSkill,
    /// Its equations have no solution.
    Numerical,
}

// === impl Online ===

impl Online {
    /// A model that has seen nothing; `step` is the grid of the demand.
    #[must_use]
    pub fn new(settings: Settings, step: SignedDuration, aim: Aim) -> Self {
        let grid = Grid::new(step);
        let settings = Settings {
            lead_minutes: settings.lead_minutes.clamp(0, LONGEST_LEAD),
            ..settings
        };
        let window = Window {
            from: 0,
            to: grid.minutes(settings.lead_minutes + LOOK_BEYOND),
        };
        Self {
            past: Past::new(settings.remember),
            settings,
            grid,
            window,
            aim,
            average: 0.0,
            learner: None,
            derived: None,
        }
    }

    /// Takes the demand of the next step: finite and not negative.
    pub fn push(&mut self, demand: f64) {
        self.take(demand, Seen::Measured);
        self.calibrate();
    }

    /// Takes the demand of the next step without answering yet: [`calibrate`](Self::calibrate) before asking.
    pub fn take(&mut self, demand: f64, seen: Seen) {
        match seen {
            Seen::Measured => self.past.push(demand),
            Seen::MadeUp => self.past.push_made_up(demand),
        }
        self.advance(demand);
    }

    /// Brings the margins up to date, as they were at the last multiple of five minutes. Cheap when they are.
    pub fn calibrate(&mut self) {
        let every = self.grid.minutes(QUANTILE_EVERY);
        let at = self.past.end() / every * every;
        self.derived = None;
        let Some(learner) = &mut self.learner else {
            return;
        };
        if learner.calibrated_at != at {
            learner.calibrate(self.grid, self.window, at);
        }
        let quantile = learner.quantile();
        if let Some(path) = &mut learner.path {
            path.calibrate(self.past.end(), quantile);
        }
    }

    /// What the highest demand of the decision window that begins with the next step stays within, with probability
    /// `quantile`; `None` while there is too little to go by.
    #[must_use]
    pub fn upper(&self, quantile: f64) -> Option<f64> {
        let learner = self.learner.as_ref()?;
        learner.bound(quantile, self.basis()?)
    }

    /// The level of the last five minutes and the model's prediction relative to it, both scaled.
    #[must_use]
    pub fn point(&self) -> Option<(f64, f64)> {
        let newest = self.learner.as_ref()?.issued.back()?;
        Some((newest.level, newest.point?))
    }

    /// The quantile in use.
    #[must_use]
    pub fn quantile(&self) -> f64 {
        let learnt = self
            .learner
            .as_ref()
            .and_then(|learner| learner.objective.as_ref());
        learnt.map_or(self.aim.at_first(), Objective::quantile)
    }

    /// What the answer rests on; `None` while there is none.
    pub(super) fn basis(&self) -> Option<Basis> {
        let learner = self.learner.as_ref()?;
        learner.basis(self.settings.fall_back)
    }

    pub(super) fn past(&self) -> &Past {
        &self.past
    }

    pub(super) fn track(&self) -> Option<&Track> {
        self.learner.as_ref().map(|learner| &learner.track)
    }

    /// The highest and the lowest demand that is remembered.
    pub(super) fn extremes(&self) -> Option<(f64, f64)> {
        self.learner.as_ref().map(|learner| learner.extremes)
    }

    /// The highest demand so far, as far as it is remembered.
    pub(super) fn highest(&self) -> f64 {
        match self.extremes() {
            Some((highest, _)) => highest,
            None => self.past.highest(self.past.first(), self.past.end()),
        }
    }

    /// How many steps without a hole it takes until there is an answer.
    pub(super) fn least(&self) -> usize {
        let known = self.grid.minutes(FEATURES_FROM) + self.window.to + conformal::LEAST;
        known.max(self.grid.minutes(LEAST_MINUTES))
    }

    /// Since which step the scale has been what it is.
    pub(super) fn scale_since(&self) -> Option<usize> {
        self.learner.as_ref().map(|learner| learner.built_at)
    }

    /// The path over the next `steps` steps and its upper band, in demand; `None` while there is no model, or when
    /// none was asked for.
    pub(super) fn path(&self, steps: usize) -> Option<Ahead> {
        let learner = self.learner.as_ref()?;
        let view = View {
            past: &self.past,
            scale: learner.scale,
            grid: self.grid,
            derived: None,
        };
        let scene = learner.scene.as_ref()?;
        let mut ahead = learner.path.as_ref()?.ahead(&view, scene, steps);
        for value in ahead.point.iter_mut().chain(&mut ahead.upper) {
            *value = learner.demand(*value);
        }
        Some(ahead)
    }

    /// What is kept, the model itself included.
    pub(super) fn bytes(&self) -> usize {
        let learnt = self.learner.as_ref().map_or(0, Learner::bytes);
        size_of::<Self>() + self.past.bytes() + learnt
    }

    fn advance(&mut self, demand: f64) {
        let now = self.past.end();
        let age = now - self.past.first();
        let day = count(self.grid.day());
        self.average += (demand - self.average) / day;
        let scale = match &self.learner {
            None if age < self.grid.minutes(LEAST_MINUTES) => None,
            None if self.settings.offset.is_some() => self.settings.offset.map(|c| (c, 0.0)),
            None => {
                self.average = self.past.mean_before(now, age);
                (self.average > 0.0).then_some((OFFSET * self.average, self.average))
            }
            Some(learner) => self.rescale(learner, now),
        };
        match (scale, &mut self.learner) {
            (Some((offset, mean)), _) => self.build(Scale { offset }, mean),
            (None, Some(learner)) => {
                let view = View {
                    past: &self.past,
                    scale: learner.scale,
                    grid: self.grid,
                    derived: None,
                };
                learner.advance(&view, &mut self.derived, self.window, now);
            }
            (None, None) => {}
        }
    }

    /// The offset and the mean of a new scale, when the average has left the mean of the one in use.
    fn rescale(&self, learner: &Learner, now: usize) -> Option<(f64, f64)> {
        let near = |mean: f64, of: f64| (of / SHIFT..=of * SHIFT).contains(&mean);
        let kept = now - learner.built_at >= self.grid.minutes(SCALE_KEPT);
        if self.settings.offset.is_some() || !kept || near(self.average, learner.mean) {
            return None;
        }
        let lately = self.past.mean_before(now, MEAN_DAYS * self.grid.day());
        let mean = if near(lately, self.average) {
            lately
        } else {
            self.average
        };
        (mean > 0.0).then_some((OFFSET * mean, mean))
    }

    /// Learns everything that is remembered, on this scale.
    fn build(&mut self, scale: Scale, mean: f64) {
        let now = self.past.end();
        let mut learner = Learner::new(scale, mean, now, self);
        let view = View {
            past: &self.past,
            scale,
            grid: self.grid,
            derived: None,
        };
        let first = self.past.first();
        let mut derived = Some(Derived::new(first, &[self.window.to - self.window.from, 0]));
        for step in first + self.grid.minutes(FEATURES_FROM)..=now {
            learner.advance(&view, &mut derived, self.window, step);
        }
        self.derived = derived;
        self.learner = Some(learner);
    }
}

// === impl Aim ===

impl Aim {
    /// The quantile in use before there is evidence.
    fn at_first(self) -> f64 {
        match self {
            Self::Quantile(quantile) => quantile,
            Self::UnderProvisioned { .. } => Objective::AT_FIRST,
        }
    }

    fn objective(self, grid: Grid, lead_minutes: i64) -> Option<Objective> {
        let Self::UnderProvisioned {
            percent,
            per_replica,
        } = self
        else {
            return None;
        };
        let spans = (grid.minutes(lead_minutes), grid.minutes(HELD_MINUTES));
        Some(Objective::new(
            percent,
            per_replica,
            spans,
            count(grid.day()),
        ))
    }
}

// === impl Learner ===

impl Learner {
    fn new(scale: Scale, mean: f64, built_at: usize, online: &Online) -> Self {
        let (grid, settings) = (online.grid, &online.settings);
        let day = count(grid.day());
        let ahead = online.window.to + 2;
        let kept = DAYS * grid.day() + grid.minutes(2 * COMPARE_EVERY);
        Self {
            scale,
            mean,
            built_at,
            ridge: Ridge::new(TAU, day),
            sound: true,
            distances: Distances::default(),
            scene: None,
            issued: VecDeque::with_capacity(ahead),
            errors: Errors::with_capacity(kept),
            outcomes: Errors::with_capacity(kept),
            margins: Margins::default(),
            ranked: Ranked::new(grid),
            calibrated: false,
            calibrated_at: 0,
            settled: false,
            persistence: Ranked::new(grid),
            track: Track::new(day),
            objective: online.aim.objective(grid, settings.lead_minutes),
            at_first: online.aim.at_first(),
            extremes: (0.0, f64::INFINITY),
            path: settings.path.then(|| Path::new(grid)),
        }
    }

    /// What is kept on the heap.
    fn bytes(&self) -> usize {
        let errors = self.errors.bytes() + self.outcomes.bytes();
        let ranks = self.ranked.bytes() + self.persistence.bytes();
        errors
            + ranks
            + size_of::<Issued>() * self.issued.capacity()
            + self.objective.as_ref().map_or(0, Objective::bytes)
            + self.path.as_ref().map_or(0, Path::bytes)
    }

    /// One [`step`](Self::step), with what can be looked up instead of reckoned.
    fn advance(
        &mut self,
        view: &View<'_>,
        derived: &mut Option<Derived>,
        window: Window,
        now: usize,
    ) {
        if let Some(derived) = derived {
            derived.extend(view, now);
        }
        let derived = derived.as_ref();
        self.step(&View { derived, ..*view }, window, now);
    }

    /// Learns what has become known just before `now`, and predicts the window that begins there.
    fn step(&mut self, view: &View<'_>, window: Window, now: usize) {
        self.see(view, now);
        if let Some(made_at) = now.checked_sub(window.to + 1) {
            self.settle(view, window, made_at);
        }
        let grid = view.grid;
        if now.is_multiple_of(grid.minutes(SOLVE_EVERY)) {
            self.sound = self.ridge.solve();
        }
        let scene = view.scene(now, &mut self.distances);
        let row = view.row(&scene, window);
        let age = now - view.past.first();
        let point = (age >= grid.minutes(LEAST_MINUTES)).then(|| self.ridge.predict(&row));
        self.issued.push_back(Issued {
            step: now,
            row,
            level: scene.now.five,
            point,
            bounds: None,
        });
        let young = !(self.calibrated && self.settled);
        let of_quantile = now.is_multiple_of(grid.minutes(QUANTILE_EVERY));
        if now.is_multiple_of(grid.minutes(COMPARE_EVERY)) || young && of_quantile {
            self.compare(grid, window, now);
        }
        // An objective is judged by what it would really have said.
        if self.objective.is_some() && of_quantile {
            self.calibrate(grid, window, now);
            self.margins.rungs = LADDER.map(|rung| self.ranked.quantile(rung));
        }
        self.announce(view, now);
        if let Some(path) = &mut self.path {
            path.step(view, &scene);
        }
        self.scene = Some(scene);
    }

    /// Keeps the highest and the lowest demand up to date.
    fn see(&mut self, view: &View<'_>, now: usize) {
        let (from, last) = (view.past.first(), now.saturating_sub(1));
        if now.is_multiple_of(view.grid.minutes(EXTREMES_EVERY)) || self.extremes.1.is_infinite() {
            self.extremes = view.past.extremes(from, last);
        } else if let Some(demand) = view.past.at(last) {
            let (highest, lowest) = self.extremes;
            self.extremes = (highest.max(demand), lowest.min(demand));
        }
    }

    /// Learns from the prediction made at `made_at`, whose outcome has become known.
    fn settle(&mut self, view: &View<'_>, window: Window, made_at: usize) {
        let Some(issued) = self.issued.pop_front_if(|issued| issued.step <= made_at) else {
            return;
        };
        if view.past.made_up(made_at, made_at + window.to + 1) > 0 {
            return;
        }
        let outcome = view.outcome(made_at, window);
        self.outcomes.record(made_at, outcome);
        let said = issued
            .point
            .unwrap_or_else(|| self.ridge.predict(&issued.row));
        let error = outcome - said;
        self.ridge.learn(&issued.row, outcome, error);
        if issued.point.is_some() {
            self.errors.record(made_at, error);
        }
        if let Some((bounds, quantile)) = issued.bounds {
            self.track.note(&Outcome {
                demand: view
                    .past
                    .highest(made_at + window.from, made_at + window.to),
                bounds,
                quantile,
            });
        }
    }

    /// Ranks the model's errors anew.
    fn calibrate(&mut self, grid: Grid, window: Window, now: usize) {
        let known = now.saturating_sub(window.to + 1);
        self.calibrated_at = now;
        self.calibrated = self.ranked.rank(&self.errors, grid, now, known);
    }

    /// Every four hours: sets the margins that the model and "it stays as it is" are compared by.
    fn compare(&mut self, grid: Grid, window: Window, now: usize) {
        self.calibrate(grid, window, now);
        let known = now.saturating_sub(window.to + 1);
        self.settled = self.persistence.rank(&self.outcomes, grid, now, known);
        let quantile = self.quantile();
        self.margins = Margins {
            quantile,
            model: self.calibrated.then(|| self.ranked.quantile(quantile)),
            persistence: self.settled.then(|| self.persistence.quantile(quantile)),
            rungs: self.margins.rungs,
        };
        let oldest = now.saturating_sub(DAYS * grid.day() + grid.minutes(60));
        self.errors.forget_before(oldest);
        self.outcomes.forget_before(oldest);
    }

    /// Says what the coming window stays within, by the model and by "it stays as it is", and how every rung of the
    /// objective would decide.
    fn announce(&mut self, view: &View<'_>, now: usize) {
        let Some((level, Some(point))) = self
            .issued
            .back()
            .map(|newest| (newest.level, newest.point))
        else {
            return;
        };
        let (Some(model), Some(persistence)) = (self.margins.model, self.margins.persistence)
        else {
            return;
        };
        let bounds = (
            self.demand(level + point + model),
            self.demand(level + persistence),
        );
        if let Some(newest) = self.issued.back_mut() {
            newest.bounds = Some((bounds, self.margins.quantile));
        }
        let rungs = self.margins.rungs;
        if let Some(mut objective) = self.objective.take() {
            let last = view.past.at(now.saturating_sub(1)).unwrap_or(0.0);
            objective.step(
                last,
                &rungs.map(|margin| self.demand(level + point + margin)),
            );
            self.objective = Some(objective);
        }
    }

    fn quantile(&self) -> f64 {
        self.objective
            .as_ref()
            .map_or(self.at_first, Objective::quantile)
    }

    fn basis(&self, fall_back: bool) -> Option<Basis> {
        let no_skill = || self.track.skill().is_some_and(|skill| skill <= 0.0);
        if self.calibrated && !(fall_back && self.settled) {
            return Some(Basis::Model);
        }
        match (self.calibrated, self.settled) {
            (true, _) if !self.sound => Some(Basis::Numerical),
            (true, _) if no_skill() => Some(Basis::NoSkill),
            (true, _) => Some(Basis::Model),
            (false, true) if fall_back => Some(Basis::Warming),
            (false, _) => None,
        }
    }

    /// What the window that was looked at last stays within, on this basis.
    fn bound(&self, quantile: f64, basis: Basis) -> Option<f64> {
        let newest = self.issued.back()?;
        let point = newest.point?;
        let scaled = match basis {
            Basis::Model => newest.level + point + self.ranked.quantile(quantile),
            Basis::Warming | Basis::NoSkill | Basis::Numerical => {
                newest.level + self.persistence.quantile(quantile)
            }
        };
        Some(self.demand(scaled))
    }

    /// Demand of a scaled value, within zero and one and a half times the highest that is remembered.
    fn demand(&self, scaled: f64) -> f64 {
        self.scale
            .inverse(scaled)
            .min(CEILING_RATIO * self.extremes.0)
    }
}
