//! The path ahead, for people to look at: the same model with the demand of a single step as its target, at a few
//! horizons, and straight lines between them; beyond an hour, what followed on similar days. Decides nothing.
//! Learns every five minutes only: a curve needs no more. Next: `online`.

use std::collections::VecDeque;

use super::features::{Row, Scene, View, Window};
use super::ridge::Ridge;
use crate::conformal::{Errors, Ranked};
use crate::grid::Grid;
use crate::series::count;

/// Minutes ahead that are predicted.
const HORIZONS: [i64; 8] = [1, 2, 5, 10, 20, 30, 45, 60];
/// Minutes between two predictions, and between two solutions of the model and looks at its errors.
const EVERY: i64 = 5;
const SOLVE_EVERY: i64 = 60;
/// Days of errors that the band is made of.
const DAYS: usize = 4;
/// The loss minds both sides alike.
const TAU: f64 = 0.5;
/// How much of the present's distance from similar days is left an hour later.
const FADES_TO: f64 = 0.9;

/// Predictions of single steps ahead.
#[derive(Debug, Clone)]
pub(super) struct Path {
    every: usize,
    solve_every: usize,
    /// The step that the margins are of.
    ranked_at: usize,
    /// The grid of the predictions.
    coarse: Grid,
    horizons: Vec<Horizon>,
    ranked: Ranked,
}

/// Predictions of the step `ahead` of the one they are made at.
#[derive(Debug, Clone)]
struct Horizon {
    ahead: usize,
    ridge: Ridge,
    /// Made at which step, from what, and what was predicted.
    issued: VecDeque<(usize, Row, f64)>,
    /// By prediction: the step it was made at over `every`.
    errors: Errors,
    /// The newest prediction, relative to the level then.
    predicted: f64,
    /// The step it was made at, and the level then.
    made_at: usize,
    level: f64,
    /// What makes it an upper bound.
    margin: f64,
}

/// A path and its upper band, on the scale of the model.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead {
    pub(super) point: Vec<f64>,
    pub(super) upper: Vec<f64>,
}

// === impl Path ===

impl Path {
    /// Nothing learnt yet.
    pub(super) fn new(grid: Grid) -> Self {
        let every = grid.minutes(EVERY);
        let coarse = Grid::new(grid.step() * i32::try_from(every).unwrap_or(1));
        let half_life = count(coarse.day());
        let mut ahead = HORIZONS.map(|minutes| grid.minutes(minutes)).to_vec();
        ahead.dedup();
        let horizons = ahead.into_iter().map(|ahead| Horizon {
            ahead,
            ridge: Ridge::new(TAU, half_life),
            issued: VecDeque::with_capacity(ahead / every + 2),
            errors: Errors::with_capacity(DAYS * coarse.day() + ahead + 60),
            predicted: 0.0,
            made_at: 0,
            level: 0.0,
            margin: 0.0,
        });
        Self {
            every,
            // A multiple of the other, so that what is known at the one is known at both.
            solve_every: every * coarse.minutes(SOLVE_EVERY),
            ranked_at: 0,
            coarse,
            horizons: horizons.collect(),
            ranked: Ranked::new(coarse),
        }
    }

    /// Learns from what has become known before `scene`'s step, and predicts from it.
    pub(super) fn step(&mut self, view: &View<'_>, scene: &Scene) {
        let now = scene.step();
        if !now.is_multiple_of(self.every) {
            return;
        }
        // As far back as an error is ever looked for.
        let looked_for = DAYS * self.coarse.day() + self.coarse.minutes(60);
        let oldest = (now / self.every).saturating_sub(looked_for);
        for horizon in &mut self.horizons {
            horizon.learn(view, now, self.every);
            if now.is_multiple_of(self.solve_every) {
                horizon.ridge.solve();
                horizon.errors.forget_before(oldest);
            }
            horizon.predict(view, scene);
        }
    }

    /// Brings the upper band up to date, as it was at the last full hour before `now`.
    pub(super) fn calibrate(&mut self, now: usize, quantile: f64) {
        let at = now / self.solve_every * self.solve_every;
        if self.ranked_at != at {
            self.ranked_at = at;
            self.rank(at, quantile);
        }
    }

    /// The next `steps` steps after `scene`'s, on the scale of the model.
    pub(super) fn ahead(&self, view: &View<'_>, scene: &Scene, steps: usize) -> Ahead {
        let last = view
            .scale
            .of(view.past.at(scene.step().wrapping_sub(1)).unwrap_or(0.0));
        // Knots by steps from now on; what lies before now has become known.
        let mut knots = vec![(-1.0, last, last)];
        for horizon in &self.horizons {
            let gone = count(scene.step() - horizon.made_at);
            let at = count(horizon.ahead) - gone;
            let value = horizon.level + horizon.predicted;
            if at > -1.0 {
                knots.push((at, value, value + horizon.margin.max(0.0)));
            }
        }
        let mut ahead = Ahead::default();
        for step in 0..steps {
            let at = count(step);
            let next = knots.iter().position(|(knot, _, _)| *knot >= at);
            let (point, upper) =
                match next.and_then(|next| knots.get(next.saturating_sub(1)..=next)) {
                    Some([before, after]) => between(*before, *after, at),
                    _ => beyond(view, scene, step, knots.last().copied().unwrap_or_default()),
                };
            ahead.point.push(point);
            ahead.upper.push(upper);
        }
        ahead
    }

    /// What is kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        let horizon = |horizon: &Horizon| {
            size_of::<Horizon>()
                + size_of::<(usize, Row, f64)>() * horizon.issued.capacity()
                + horizon.errors.bytes()
        };
        self.horizons.iter().map(horizon).sum::<usize>() + self.ranked.bytes()
    }

    fn rank(&mut self, now: usize, quantile: f64) {
        for horizon in &mut self.horizons {
            let Some(known) = now.checked_sub(horizon.ahead + 1) else {
                continue;
            };
            let (now, known) = (now / self.every, known / self.every);
            if self.ranked.rank(&horizon.errors, self.coarse, now, known) {
                horizon.margin = self.ranked.quantile(quantile);
            }
        }
    }
}

impl Horizon {
    fn window(&self) -> Window {
        Window {
            from: self.ahead,
            to: self.ahead,
        }
    }

    fn learn(&mut self, view: &View<'_>, now: usize, every: usize) {
        while let Some((made_at, row, predicted)) = self
            .issued
            .pop_front_if(|(made_at, _, _)| *made_at + self.ahead < now)
        {
            if view.past.made_up(made_at, made_at + self.ahead + 1) > 0 {
                continue;
            }
            let outcome = view.outcome(made_at, self.window());
            let error = outcome - predicted;
            self.ridge.learn(&row, outcome, error);
            self.errors.record(made_at / every, error);
        }
    }

    fn predict(&mut self, view: &View<'_>, scene: &Scene) {
        let row = view.row(scene, self.window());
        self.predicted = self.ridge.predict(&row);
        (self.made_at, self.level) = (scene.step(), scene.now.five);
        self.issued.push_back((scene.step(), row, self.predicted));
    }
}

/// A point on the straight line between two knots.
fn between(before: (f64, f64, f64), after: (f64, f64, f64), at: f64) -> (f64, f64) {
    let width = after.0 - before.0;
    let part = if width > 0.0 {
        (at - before.0) / width
    } else {
        1.0
    };
    let line = |from: f64, to: f64| from + part * (to - from);
    (line(before.1, after.1), line(before.2, after.2))
}

/// What followed on similar days, and how far the present is from them, fading by the hour.
fn beyond(
    view: &View<'_>,
    scene: &Scene,
    step: usize,
    (_, last, upper): (f64, f64, f64),
) -> (f64, f64) {
    let Some((then, hour_before)) = view.similar_days(scene, step) else {
        return (last, upper);
    };
    let hours = count(step) / count(view.grid.minutes(60));
    let point = then + FADES_TO.powf(hours) * (scene.now.hour() - hour_before);
    (point, point + (upper - last))
}
