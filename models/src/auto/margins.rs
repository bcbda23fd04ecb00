//! What is added to a prediction to make it an upper bound: for the model, and for "it stays as it is", each from its
//! own errors. Next: `conformal`.

use super::features::DAYS;
use crate::conformal::{Errors, Ranked};
use crate::grid::Grid;

/// Minutes between two refreshes of the model's margins.
pub(super) const REFRESHED_EVERY: i64 = 5;

/// The errors so far, and the margins that follow from them.
#[derive(Debug, Clone)]
pub(super) struct Margins {
    grid: Grid,
    /// Steps after the first of a decision window.
    reach: usize,
    /// The model's errors, and those of "it stays as it is".
    errors: Errors,
    outcomes: Errors,
    model: Ranked,
    persistence: Ranked,
    /// Whether there are enough errors of either.
    of_model: bool,
    of_persistence: bool,
    refreshed_at: usize,
    compared: Option<Compared>,
}

/// The margins that the two are compared by: renewed every few hours, so that learning a whole history is cheap and comes
/// to the same as having watched it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    pub(super) quantile: f64,
    pub(super) model: f64,
    pub(super) persistence: f64,
}

// === impl Margins ===

impl Margins {
    /// No errors yet, of windows that reach so far; `compared_every` minutes are between two comparisons.
    pub(super) fn new(grid: Grid, reach: usize, compared_every: i64) -> Self {
        let kept = DAYS * grid.day() + grid.minutes(2 * compared_every);
        Self {
            grid,
            reach,
            errors: Errors::with_capacity(kept),
            outcomes: Errors::with_capacity(kept),
            model: Ranked::new(grid),
            persistence: Ranked::new(grid),
            of_model: false,
            of_persistence: false,
            refreshed_at: 0,
            compared: None,
        }
    }

    /// Notes what came of the prediction made at a step: relative to the level then, and to what the model said.
    pub(super) fn record(&mut self, made_at: usize, outcome: f64, error: Option<f64>) {
        self.outcomes.record(made_at, outcome);
        if let Some(error) = error {
            self.errors.record(made_at, error);
        }
    }

    /// Brings the model's margins to what they are at step `at`; those of "it stays as it is", too, where they are used.
    pub(super) fn refresh(&mut self, at: usize, fallen_back: bool) {
        if self.refreshed_at == at {
            return;
        }
        self.refreshed_at = at;
        let known = self.known(at);
        self.of_model = self.model.rank(&self.errors, self.grid, at, known);
        if fallen_back || !self.of_model {
            self.of_persistence = self.persistence.rank(&self.outcomes, self.grid, at, known);
        }
    }

    /// Sets what the two are compared by from now on, and forgets errors that no one will ask for.
    pub(super) fn compare(&mut self, now: usize, quantile: f64) {
        self.refresh(now, false);
        let known = self.known(now);
        self.of_persistence = self.persistence.rank(&self.outcomes, self.grid, now, known);
        self.compared = (self.of_model && self.of_persistence).then(|| Compared {
            quantile,
            model: self.model.quantile(quantile),
            persistence: self.persistence.quantile(quantile),
        });
        let oldest = now.saturating_sub(DAYS * self.grid.day() + self.grid.minutes(60));
        self.errors.forget_before(oldest);
        self.outcomes.forget_before(oldest);
    }

    /// Whether enough of the model's errors are known.
    pub(super) fn of_model(&self) -> bool {
        self.of_model
    }

    /// Whether enough errors of "it stays as it is" are known.
    pub(super) fn of_persistence(&self) -> bool {
        self.of_persistence
    }

    /// What the two are compared by, once there is enough of both.
    pub(super) fn compared(&self) -> Option<Compared> {
        self.compared
    }

    /// What makes the model's prediction a bound.
    pub(super) fn model(&self, quantile: f64) -> f64 {
        self.model.quantile(quantile)
    }

    /// What makes "it stays as it is" a bound.
    pub(super) fn persistence(&self, quantile: f64) -> f64 {
        self.persistence.quantile(quantile)
    }

    /// What is kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        let errors = self.errors.bytes() + self.outcomes.bytes();
        errors + self.model.bytes() + self.persistence.bytes()
    }

    /// The newest prediction whose outcome is known at a step.
    fn known(&self, now: usize) -> usize {
        now.saturating_sub(self.reach + 1)
    }
}
