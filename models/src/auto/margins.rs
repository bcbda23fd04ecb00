//! [`Margins`]: the additions that make a prediction an upper bound, for the model and for persistence (repeating the
//! current level), each from its own errors.
//!
//! | margin | renewed | for |
//! |---|---|---|
//! | `model`, and `persistence` where it is in use | every five minutes | the bounds that are published and that counts are held against |
//! | `compared` | every four hours | the recorded bounds of both, whose losses are compared |
//! | `compared.published` | every half an hour | the recorded bound whose coverage is followed |

use super::features::DAYS;
use crate::conformal::{Errors, RankedErrors};
use crate::grid::Grid;

/// Minutes between two refreshes of the model's margins.
pub const REFRESHED_EVERY: i64 = 5;

/// The errors so far, and the margins that follow from them.
///
/// # Units
/// Errors and margins are differences of logarithms, as on the scale of the learner; `reach` is a number of steps.
#[derive(Debug, Clone)]
pub struct Margins {
    grid: Grid,
    /// The number of steps of a decision window after its first one.
    reach: usize,
    /// The errors of the model, and those of persistence, unless it is not compared.
    errors: Errors,
    outcomes: Option<Errors>,
    model: RankedErrors,
    persistence: RankedErrors,
    /// True if enough errors of the model are known.
    has_model: bool,
    /// True if enough errors of persistence are known.
    has_persistence: bool,
    refreshed_at: Option<usize>,
    compared: Option<Compared>,
}

/// The margins that the recorded bounds have. They are renewed less often than those of the published ones, so that
/// learning a whole history at once is cheap and gives the same result as learning it step by step.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    pub quantile: f64,
    pub model: f64,
    pub persistence: f64,
    /// The model's at the quantile of the published bound; renewed more often.
    pub published: f64,
}

// === impl Margins ===

impl Margins {
    /// No errors, of windows with `reach` steps after the first one, compared every `compared_every` minutes.
    pub fn new(grid: Grid, reach: usize, compared_every: i64, compared: bool) -> Self {
        let kept = DAYS * grid.day() + grid.minutes(2 * compared_every);
        Self {
            grid,
            reach,
            errors: Errors::with_capacity(kept),
            outcomes: compared.then(|| Errors::with_capacity(kept)),
            model: RankedErrors::new(grid),
            persistence: if compared {
                RankedErrors::new(grid)
            } else {
                RankedErrors::default()
            },
            has_model: false,
            has_persistence: false,
            refreshed_at: None,
            compared: None,
        }
    }

    /// Records the outcome of the prediction made at a step, relative to the level then, and the error of the model.
    pub fn record(&mut self, made_at: usize, outcome: f64, error: Option<f64>) {
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.record(made_at, outcome);
        }
        if let Some(error) = error {
            self.errors.record(made_at, error);
        }
    }

    /// Updates the margins of the model to step `at`, and those of persistence if they are in use.
    pub fn refresh(&mut self, at: usize, fallen_back: bool) {
        if self.refreshed_at == Some(at) {
            return;
        }
        self.refreshed_at = Some(at);
        let known = self.known(at);
        self.has_model = self.model.rank(&self.errors, self.grid, at, known);
        // Ranking is expensive, and persistence is needed only as the fallback.
        if fallen_back || !self.has_model {
            self.rank_persistence(at);
        }
    }

    /// Renews the margins for the comparison at a quantile, and that of the published bound, at `adjusted`.
    pub fn compare(&mut self, now: usize, quantile: f64, adjusted: f64) {
        self.refresh(now, false);
        self.rank_persistence(now);
        self.compared = (self.has_model && self.has_persistence).then(|| Compared {
            quantile,
            model: self.model.quantile(quantile),
            persistence: self.persistence.quantile(quantile),
            published: self.model.quantile(adjusted),
        });
    }

    /// Renews the margin at the quantile of the published bound. The margins in use must be refreshed after it.
    pub fn update_published(&mut self, now: usize, adjusted: f64) {
        let known = self.known(now);
        if let Some(compared) = &mut self.compared {
            self.model.rank_roughly(&self.errors, self.grid, now, known);
            compared.published = self.model.quantile(adjusted);
            // The ranks of the margins in use were just replaced by rough ones.
            self.refreshed_at = None;
        }
    }

    /// Drops the errors that are no longer used.
    pub fn forget(&mut self, now: usize) {
        let oldest = now.saturating_sub(DAYS * self.grid.day() + self.grid.minutes(60));
        self.errors.drop_before(oldest);
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.drop_before(oldest);
        }
    }

    /// Returns true if enough errors of the model are known.
    pub fn has_model(&self) -> bool {
        self.has_model
    }

    /// Returns true if enough errors of persistence are known.
    pub fn has_persistence(&self) -> bool {
        self.has_persistence
    }

    /// The margins for the comparison, once enough errors of both are known.
    pub fn compared(&self) -> Option<Compared> {
        self.compared
    }

    /// The margin of the model's prediction.
    pub fn model(&self, quantile: f64) -> f64 {
        self.model.quantile(quantile)
    }

    /// The margin of persistence.
    pub fn persistence(&self, quantile: f64) -> f64 {
        self.persistence.quantile(quantile)
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        let errors = self.errors.bytes() + self.outcomes.as_ref().map_or(0, Errors::bytes);
        errors + self.model.bytes() + self.persistence.bytes()
    }

    /// Ranks the errors of persistence for step `now`, if they are recorded.
    fn rank_persistence(&mut self, now: usize) {
        let known = self.known(now);
        let Some(outcomes) = &self.outcomes else {
            return;
        };
        self.has_persistence = self.persistence.rank(outcomes, self.grid, now, known);
    }

    /// The step of the newest prediction whose outcome is known at step `now`.
    fn known(&self, now: usize) -> usize {
        now.saturating_sub(self.reach + 1)
    }
}
