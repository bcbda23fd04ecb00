//! What is learnt on one scale: predicts at every step, learns from each prediction as soon as its outcome is known, and
//! says what the decision window stays within. Made anew when the scale changes. Next: `ridge`, `margins`, `path`.

use std::collections::VecDeque;

use super::derived::Derived;
use super::features::{Distances, Row, Scale, Scene, View, Window};
use super::margins::{Margins, REFRESHED_EVERY};
use super::objective::{LADDER, Objective};
use super::path::{Ahead, Path};
use super::ridge::Ridge;
use super::track::{Outcome, Track};
use crate::forecast::CEILING_RATIO;
use crate::grid::Grid;
use crate::series::count;

/// Minutes of demand before anything is predicted.
pub(super) const LEAST_MINUTES: i64 = 120;
/// Minutes of demand before a step is learnt from.
pub(super) const FEATURES_FROM: i64 = 60;
/// Weight of a prediction that was too low, against one that was too high, in the model's loss.
const TAU: f64 = 0.8;
/// Minutes between two solutions of the model, and between two looks at the whole history.
const SOLVE_EVERY: i64 = 10;
const EXTREMES_EVERY: i64 = 360;
/// Minutes between two comparisons with "it stays as it is".
const COMPARE_EVERY: i64 = 240;

/// A model on one scale, and how well it does.
#[derive(Debug, Clone)]
pub(super) struct Learner {
    fit: Fit,
    window: Window,
    ridge: Ridge,
    /// Whether the equations had a solution when they were last asked for it.
    sound: bool,
    /// Whether the model was no better than "it stays as it is" at the last comparison.
    unskilled: bool,
    distances: Distances,
    /// What the last step looked like.
    scene: Option<Scene>,
    issued: VecDeque<Issued>,
    margins: Margins,
    track: Track,
    target: Target,
    /// The highest and the lowest demand that is remembered.
    extremes: (f64, f64),
    path: Option<Path>,
}

/// A scale, the mean that it fits, and the step it was made at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    pub(super) scale: Scale,
    pub(super) mean: f64,
    pub(super) made_at: usize,
}

/// Which quantile is aimed for.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// Always this one.
    Quantile(f64),
    /// The one that keeps an objective.
    Objective(Box<Objective>),
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

/// What an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The calibrated model.
    Model,
    /// Too few of its errors are known yet: "it stays as it is", calibrated.
    Warming,
    /// It is no better than "it stays as it is", which is used instead.
    NoSkill,
    /// Its equations have no solution; "it stays as it is" is used instead.
    Numerical,
}

// === impl Learner ===

impl Learner {
    /// Nothing learnt yet.
    pub(super) fn new(
        fit: Fit,
        target: Target,
        (grid, window): (Grid, Window),
        path: Option<Path>,
    ) -> Self {
        let day = count(grid.day());
        Self {
            fit,
            window,
            ridge: Ridge::new(TAU, day),
            sound: true,
            unskilled: false,
            distances: Distances::default(),
            scene: None,
            issued: VecDeque::with_capacity(window.to + 2),
            margins: Margins::new(grid, window.to, COMPARE_EVERY),
            track: Track::new(day),
            target,
            extremes: (0.0, f64::INFINITY),
            path,
        }
    }

    /// One step, with what can be looked up instead of reckoned.
    pub(super) fn advance(&mut self, view: &View<'_>, derived: &mut Option<Derived>, now: usize) {
        if let Some(derived) = derived {
            derived.extend(view, now);
        }
        let derived = derived.as_ref();
        self.step(&View { derived, ..*view }, now);
    }

    /// Brings the margins up to date, as they were at step `at`.
    pub(super) fn calibrate(&mut self, at: usize) {
        self.margins.refresh(at, self.fallen_back());
        let quantile = self.quantile();
        if let Some(path) = &mut self.path {
            path.calibrate(at, quantile);
        }
    }

    /// The quantile in use.
    pub(super) fn quantile(&self) -> f64 {
        match &self.target {
            Target::Quantile(quantile) => *quantile,
            Target::Objective(objective) => objective.quantile(),
        }
    }

    /// The level of the last five minutes and the prediction relative to it, both scaled.
    pub(super) fn point(&self) -> Option<(f64, f64)> {
        let newest = self.issued.back()?;
        Some((newest.level, newest.point?))
    }

    /// What an answer rests on; `None` while there is none. Without `fall_back` it is the model, whatever its record.
    pub(super) fn basis(&self, fall_back: bool) -> Option<Basis> {
        let instead = fall_back && self.margins.of_persistence();
        match self.margins.of_model() {
            true if instead && !self.sound => Some(Basis::Numerical),
            true if instead && self.unskilled => Some(Basis::NoSkill),
            true => Some(Basis::Model),
            false => instead.then_some(Basis::Warming),
        }
    }

    /// What the window that was looked at last stays within, on this basis.
    pub(super) fn bound(&self, quantile: f64, basis: Basis) -> Option<f64> {
        let (level, point) = self.point()?;
        let scaled = match basis {
            Basis::Model => level + point + self.margins.model(quantile),
            Basis::Warming | Basis::NoSkill | Basis::Numerical => {
                level + self.margins.persistence(quantile)
            }
        };
        match basis {
            Basis::Model if !scaled.is_finite() => self.bound(quantile, Basis::Numerical),
            _ => scaled.is_finite().then(|| self.demand(scaled)),
        }
    }

    /// The path over the next `steps` steps and its upper band, in demand; `None` when none was asked for.
    pub(super) fn path(&self, view: &View<'_>, steps: usize) -> Option<Ahead> {
        let mut ahead = self.path.as_ref()?.ahead(view, self.scene.as_ref()?, steps);
        for value in ahead.point.iter_mut().chain(&mut ahead.upper) {
            *value = self.demand(*value);
        }
        Some(ahead)
    }

    pub(super) fn fit(&self) -> Fit {
        self.fit
    }

    /// How often what was said came true, on this basis.
    pub(super) fn coverage(&self, basis: Basis) -> Option<f64> {
        match basis {
            Basis::Model => self.track.coverage(),
            Basis::Warming | Basis::NoSkill | Basis::Numerical => {
                self.track.coverage_of_persistence()
            }
        }
    }

    /// How much better the model is than "it stays as it is".
    pub(super) fn skill(&self) -> Option<f64> {
        self.track.skill()
    }

    /// The highest and the lowest demand that is remembered.
    pub(super) fn extremes(&self) -> (f64, f64) {
        self.extremes
    }

    /// What is kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        let objective = match &self.target {
            Target::Quantile(_) => 0,
            Target::Objective(objective) => objective.bytes(),
        };
        self.margins.bytes()
            + objective
            + size_of::<Issued>() * self.issued.capacity()
            + self.path.as_ref().map_or(0, Path::bytes)
    }

    /// Learns what has become known just before `now`, and predicts the window that begins there.
    fn step(&mut self, view: &View<'_>, now: usize) {
        self.see(view, now);
        if let Some(made_at) = now.checked_sub(self.window.to + 1) {
            self.settle(view, made_at);
        }
        if now.is_multiple_of(view.grid.minutes(SOLVE_EVERY)) {
            self.sound = self.ridge.solve();
        }
        let scene = view.scene(now, &mut self.distances);
        self.predict(view, &scene);
        self.compare(view.grid, now);
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
    fn settle(&mut self, view: &View<'_>, made_at: usize) {
        let Some(issued) = self.issued.pop_front_if(|issued| issued.step <= made_at) else {
            return;
        };
        if view.past.made_up(made_at, made_at + self.window.to + 1) > 0 {
            return;
        }
        let outcome = view.outcome(made_at, self.window);
        let said = issued
            .point
            .unwrap_or_else(|| self.ridge.predict(&issued.row));
        let error = outcome - said;
        self.ridge.learn(&issued.row, outcome, error);
        self.margins
            .record(made_at, outcome, issued.point.map(|_| error));
        if let Some((bounds, quantile)) = issued.bounds {
            let steps = self.window.after(made_at);
            self.track.note(&Outcome {
                demand: view.past.highest(steps.from, steps.to),
                bounds,
                quantile,
            });
        }
    }

    fn predict(&mut self, view: &View<'_>, scene: &Scene) {
        let row = view.row(scene, self.window);
        let age = scene.step() - view.past.first();
        let ready = age >= view.grid.minutes(LEAST_MINUTES);
        self.issued.push_back(Issued {
            step: scene.step(),
            row,
            level: scene.now.five,
            point: ready.then(|| self.ridge.predict(&row)),
            bounds: None,
        });
    }

    /// Renews what predictions are compared by, when it is time; while too little is known, as soon as can be.
    fn compare(&mut self, grid: Grid, now: usize) {
        let soon = now.is_multiple_of(grid.minutes(REFRESHED_EVERY));
        let young = !(self.margins.of_model() && self.margins.of_persistence());
        if now.is_multiple_of(grid.minutes(COMPARE_EVERY)) || young && soon {
            self.margins.compare(now, self.quantile());
            // Between two comparisons the verdict stands, so that an even race is no back and forth.
            self.unskilled = self.track.skill().is_some_and(|skill| skill <= 0.0);
        }
        // An objective is judged by what would really have been said.
        if matches!(self.target, Target::Objective(_)) && soon {
            self.margins.refresh(now, self.fallen_back());
        }
    }

    fn fallen_back(&self) -> bool {
        self.unskilled || !self.sound
    }

    /// Says what the coming window stays within, by the model and by "it stays as it is", and how every rung of the
    /// objective would decide.
    fn announce(&mut self, view: &View<'_>, now: usize) {
        let (Some((level, point)), Some(compared)) = (self.point(), self.margins.compared()) else {
            return;
        };
        let model = self.demand(level + point + compared.model);
        let persistence = self.demand(level + compared.persistence);
        if let Some(newest) = self.issued.back_mut() {
            newest.bounds = Some(((model, persistence), compared.quantile));
        }
        if matches!(self.target, Target::Quantile(_)) {
            return;
        }
        let basis = self.basis(true).unwrap_or(Basis::Model);
        let rungs = LADDER.map(|rung| self.bound(rung, basis).unwrap_or(model));
        if let Target::Objective(objective) = &mut self.target {
            objective.step(view.past.at(now.saturating_sub(1)).unwrap_or(0.0), &rungs);
        }
    }

    /// Demand of a scaled value, within zero and one and a half times the highest that is remembered.
    fn demand(&self, scaled: f64) -> f64 {
        let ceiling = CEILING_RATIO * self.extremes.0;
        self.fit.scale.inverse(scaled).min(ceiling)
    }
}
