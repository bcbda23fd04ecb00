//! The model at work on one series: takes one step of demand after another, learns from each prediction as soon as its
//! outcome is known, and answers what the highest demand of the decision window will stay within.
//! Sees clean demand only; what is missing or absurd is dealt with in `mod`. Next: `features`, `ridge`, `path`.

use std::collections::VecDeque;

use jiff::SignedDuration;

use super::Aim;
use super::features::{Distances, Row, Scale, Scene, View, Window};
use super::objective::{HELD_MINUTES, LADDER, Objective};
use super::past::Past;
use super::path::{Ahead, Path};
use super::ridge::Ridge;
use super::track::{Outcome, Track};
use crate::conformal::{Errors, Ranked};
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
const EXTREMES_EVERY: i64 = 60;
/// Minutes between two refreshes of the quantile of persistence.
const PERSISTENCE_EVERY: i64 = 15;
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
    /// Minutes until added capacity serves.
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
    errors: Errors,
    ranked: Ranked,
    /// Whether there are enough errors of the model, and of "it stays as it is".
    calibrated: bool,
    settled: bool,
    persistence: Ranked,
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
    /// What the decision window and "it stays as it is" were said to stay within, in demand.
    bounds: Option<(f64, f64)>,
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
        }
    }

    /// Takes the demand of the next step: finite and not negative.
    pub fn push(&mut self, demand: f64) {
        self.past.push(demand);
        self.advance(demand);
    }

    /// Takes a demand that nobody saw, in place of one that is missing.
    pub(super) fn push_made_up(&mut self, demand: f64) {
        self.past.push_made_up(demand);
        self.advance(demand);
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

    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    pub(super) fn track(&self) -> Option<&Track> {
        self.learner.as_ref().map(|learner| &learner.track)
    }

    /// The highest and the lowest demand that is remembered.
    pub(super) fn extremes(&self) -> Option<(f64, f64)> {
        self.learner.as_ref().map(|learner| learner.extremes)
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
        };
        let scene = learner.scene.as_ref()?;
        let mut ahead = learner.path.as_ref()?.ahead(&view, scene, steps);
        for value in ahead.point.iter_mut().chain(&mut ahead.upper) {
            *value = learner.demand(*value);
        }
        Some(ahead)
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
                (self.average > 0.0).then(|| (OFFSET * self.average, self.average))
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
                };
                learner.step(&view, self.window, now);
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
        (mean > 0.0).then(|| (OFFSET * mean, mean))
    }

    /// Learns everything that is remembered, on this scale.
    fn build(&mut self, scale: Scale, mean: f64) {
        let now = self.past.end();
        let mut learner = Learner::new(scale, mean, now, self);
        let view = View {
            past: &self.past,
            scale,
            grid: self.grid,
        };
        for step in self.past.first() + self.grid.minutes(FEATURES_FROM)..=now {
            learner.step(&view, self.window, step);
        }
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
        let kept = settings.remember.min(8 * grid.day());
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
            ranked: Ranked::default(),
            calibrated: false,
            settled: false,
            persistence: Ranked::default(),
            track: Track::new(day),
            objective: online.aim.objective(grid, settings.lead_minutes),
            at_first: online.aim.at_first(),
            extremes: (0.0, f64::INFINITY),
            path: settings.path.then(|| Path::new(grid)),
        }
    }

    /// Learns what has become known just before `now`, and predicts the window that begins there.
    fn step(&mut self, view: &View<'_>, window: Window, now: usize) {
        self.see(view, now);
        if let Some(made_at) = now.checked_sub(window.to + 1) {
            self.settle(view, window, made_at);
        }
        let grid = view.grid;
        if now % grid.minutes(SOLVE_EVERY) == 0 {
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
        if now % grid.minutes(QUANTILE_EVERY) == 0 {
            self.calibrate(view, window, now);
        }
        self.announce(view, now);
        if let Some(path) = &mut self.path {
            let quantile = self
                .objective
                .as_ref()
                .map_or(self.at_first, Objective::quantile);
            path.step(view, &scene, quantile);
        }
        self.scene = Some(scene);
    }

    /// Keeps the highest and the lowest demand up to date.
    fn see(&mut self, view: &View<'_>, now: usize) {
        let (from, last) = (view.past.first(), now.saturating_sub(1));
        if now % view.grid.minutes(EXTREMES_EVERY) == 0 || self.extremes.1.is_infinite() {
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
        let said = issued
            .point
            .unwrap_or_else(|| self.ridge.predict(&issued.row));
        let error = outcome - said;
        self.ridge.learn(&issued.row, outcome, error);
        if issued.point.is_some() {
            self.errors.record(made_at, error);
        }
        if let Some(bounds) = issued.bounds {
            self.track.note(&Outcome {
                demand: view
                    .past
                    .highest(made_at + window.from, made_at + window.to),
                bounds,
                quantile: self.quantile(),
            });
        }
    }

    /// Ranks the errors anew: the model's, and those of "it stays as it is".
    fn calibrate(&mut self, view: &View<'_>, window: Window, now: usize) {
        let Some(known) = now.checked_sub(window.to + 1) else {
            return;
        };
        let (grid, past) = (view.grid, view.past);
        self.calibrated = self.ranked.rank(&self.errors, grid, now, known);
        if self.calibrated && now % grid.minutes(PERSISTENCE_EVERY) != 0 {
            return;
        }
        let from = past.first() + grid.minutes(QUANTILE_EVERY);
        let of_persistence = |step: usize| {
            let seen = step >= from && past.made_up(step, step + window.to + 1) == 0;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "as the model's own errors are kept"
            )]
            seen.then(|| view.outcome(step, window) as f32)
        };
        self.settled = self.persistence.rank_by(of_persistence, grid, now, known);
        self.errors
            .forget_before(now.saturating_sub(8 * grid.day()));
    }

    /// Says what the coming window stays within, by the model and by "it stays as it is"; and how every rung of the
    /// objective would decide.
    fn announce(&mut self, view: &View<'_>, now: usize) {
        if let (Some(mut objective), Some(demand)) =
            (self.objective.take(), view.past.at(now.saturating_sub(1)))
        {
            let basis = self.basis(true);
            let rungs = basis.and_then(|basis| {
                let mut rungs = [0.0; LADDER.len()];
                for (rung, quantile) in rungs.iter_mut().zip(LADDER) {
                    *rung = self.bound(quantile, basis)?;
                }
                Some(rungs)
            });
            if let Some(rungs) = rungs {
                objective.step(demand, &rungs);
            }
            self.objective = Some(objective);
        }
        let quantile = self.quantile();
        let model = self.calibrated.then(|| self.bound(quantile, Basis::Model));
        let persistence = self.bound(quantile, Basis::Warming);
        if let (Some(newest), Some(model), Some(persistence)) =
            (self.issued.back_mut(), model.flatten(), persistence)
        {
            newest.bounds = Some((model, persistence));
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
