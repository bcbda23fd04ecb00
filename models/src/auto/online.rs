//! The model at work on one series: takes one step of demand after another, and answers what the highest demand of the
//! decision window will stay within. Keeps the demand, and the scale that fits its level; what is learnt on a scale is
//! the [`Learner`]'s. Sees clean demand only: what is missing or absurd is dealt with in `intake`. Next: `learner`.

use jiff::SignedDuration;

use super::Aim;
use super::derived::Derived;
use super::features::{Scale, View, Window};
use super::learner::{Basis, FEATURES_FROM, Fit, LEAST_MINUTES, Learner, Target};
use super::margins::REFRESHED_EVERY;
use super::objective::{HELD_MINUTES, Objective};
use super::past::Past;
use super::path::{Ahead, Path};
use crate::conformal;
use crate::grid::Grid;
use crate::series::count;

/// The offset of the logarithm, as a multiple of the mean.
const OFFSET: f64 = 2.0;
/// How far the average may leave the mean that the scale was made from, as a ratio, before the scale is made anew.
const SHIFT: f64 = 2.0;
/// Minutes that a scale is kept at least.
const SCALE_KEPT: i64 = 360;
/// Days that the mean of a scale is taken over.
const MEAN_DAYS: usize = 7;
/// Minutes that are remembered: eight days.
const REMEMBERED_MINUTES: i64 = 8 * 1440;
/// Minutes beyond the lead time that a decision looks ahead.
pub(super) const LOOK_BEYOND: i64 = 3;

/// How an [`Online`] works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Minutes until added capacity serves, at most a day of them.
    pub lead_minutes: i64,
    /// Minutes that are remembered; `i64::MAX` for all.
    pub remember_minutes: i64,
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
    /// None before there is enough demand.
    learner: Option<Learner>,
    /// Kept while a whole history is learnt.
    derived: Option<Derived>,
}

/// Where a demand comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was measured.
    Measured,
    /// It stands for one that is missing or cannot be believed.
    MadeUp,
}

// === impl Settings ===

impl Settings {
    /// As a controller wants it: remembers what is looked at, follows the level, falls back when it must; no path.
    #[must_use]
    pub fn new(lead_minutes: i64) -> Self {
        Self {
            lead_minutes,
            remember_minutes: REMEMBERED_MINUTES,
            offset: None,
            fall_back: true,
            path: false,
        }
    }
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
            past: Past::new(grid.minutes(settings.remember_minutes)),
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
        let every = self.grid.minutes(REFRESHED_EVERY);
        let at = self.past.end() / every * every;
        self.derived = None;
        let Some(learner) = &mut self.learner else {
            return;
        };
        learner.calibrate(at);
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
        self.learner.as_ref()?.point()
    }

    /// The quantile in use.
    #[must_use]
    pub fn quantile(&self) -> f64 {
        let learner = self.learner.as_ref();
        learner.map_or_else(|| self.aim.at_first(), Learner::quantile)
    }

    /// What the answer rests on; `None` while there is none.
    pub(super) fn basis(&self) -> Option<Basis> {
        let learner = self.learner.as_ref()?;
        learner.basis(self.settings.fall_back)
    }

    pub(super) fn past(&self) -> &Past {
        &self.past
    }

    /// How often what was said lately came true, on the basis in use.
    pub(super) fn coverage(&self) -> Option<f64> {
        self.learner.as_ref()?.coverage(self.basis()?)
    }

    /// How much better than "it stays as it is" the model has been lately.
    pub(super) fn skill(&self) -> Option<f64> {
        self.learner.as_ref()?.skill()
    }

    /// The highest and the lowest demand that is remembered.
    pub(super) fn extremes(&self) -> Option<(f64, f64)> {
        self.learner.as_ref().map(Learner::extremes)
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
        self.learner.as_ref().map(|learner| learner.fit().made_at)
    }

    /// The path over the next `steps` steps and its upper band, in demand; `None` while there is no model, or when
    /// none was asked for.
    pub(super) fn path(&self, steps: usize) -> Option<Ahead> {
        let learner = self.learner.as_ref()?;
        learner.path(&self.view(learner.fit().scale), steps)
    }

    /// What is kept, the model itself included.
    pub(super) fn bytes(&self) -> usize {
        let learnt = self.learner.as_ref().map_or(0, Learner::bytes);
        size_of::<Self>() + self.past.bytes() + learnt
    }

    fn view(&self, scale: Scale) -> View<'_> {
        View::new(&self.past, scale, self.grid)
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
                let (past, grid, scale) = (&self.past, self.grid, learner.fit().scale);
                let view = View::new(past, scale, grid);
                learner.advance(&view, &mut self.derived, now);
            }
            (None, None) => {}
        }
    }

    /// The offset and the mean of a new scale, when the average has left the mean of the one in use.
    fn rescale(&self, learner: &Learner, now: usize) -> Option<(f64, f64)> {
        let near = |mean: f64, of: f64| (of / SHIFT..=of * SHIFT).contains(&mean);
        let kept = now - learner.fit().made_at >= self.grid.minutes(SCALE_KEPT);
        if self.settings.offset.is_some() || !kept || near(self.average, learner.fit().mean) {
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
        let fit = Fit {
            scale,
            mean,
            made_at: now,
        };
        let target = self.aim.target(self.grid, self.settings.lead_minutes);
        let path = self.settings.path.then(|| Path::new(self.grid));
        let mut learner = Learner::new(fit, target, (self.grid, self.window), path);
        let view = self.view(scale);
        let first = self.past.first();
        let mut derived = Some(Derived::new(first, &[self.window.to - self.window.from, 0]));
        for step in first + self.grid.minutes(FEATURES_FROM)..=now {
            learner.advance(&view, &mut derived, step);
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

    fn target(self, grid: Grid, lead_minutes: i64) -> Target {
        match self {
            Self::Quantile(quantile) => Target::Quantile(quantile),
            Self::UnderProvisioned {
                percent,
                per_replica,
            } => {
                let spans = (grid.minutes(lead_minutes), grid.minutes(HELD_MINUTES));
                let day = count(grid.day());
                Target::Objective(Box::new(Objective::new(percent, per_replica, spans, day)))
            }
        }
    }
}
