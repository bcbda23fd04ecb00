//! What the features of many steps look up again and again, reckoned once: kept while a whole history is learnt, and
//! dropped afterwards, when a step a minute is all there is to do. Next: `features`.

use super::features::{Levels, View, Window};

/// Looked-up values by step, on one scale.
#[derive(Debug, Clone)]
pub(super) struct Derived {
    /// The step of the first of each.
    first: usize,
    levels: Vec<Levels>,
    spans: Vec<Span>,
}

/// Of windows of one width, by their first step.
#[derive(Debug, Clone)]
struct Span {
    width: usize,
    followed: Vec<f64>,
    near: Vec<f64>,
}

// === impl Derived ===

impl Derived {
    /// Nothing yet, of windows as wide as these.
    pub(super) fn new(first: usize, widths: &[usize]) -> Self {
        let span = |width: &usize| Span {
            width: *width,
            followed: Vec::new(),
            near: Vec::new(),
        };
        Self {
            first,
            levels: Vec::new(),
            spans: widths.iter().map(span).collect(),
        }
    }

    /// Reckons what has become known before the step `now`.
    pub(super) fn extend(&mut self, view: &View<'_>, now: usize) {
        for step in self.first + self.levels.len()..=now {
            self.levels.push(view.levels(step));
        }
        let wider = view.wider();
        for span in &mut self.spans {
            let window = |from: usize| Window {
                from,
                to: from + span.width,
            };
            let known = (now.saturating_sub(span.width + wider + 1)).max(self.first);
            for from in self.first + span.near.len()..known {
                span.near.push(view.near(window(from)));
                span.followed.push(view.followed(window(from)));
            }
        }
    }

    /// The levels before a step.
    pub(super) fn levels(&self, step: usize) -> Option<Levels> {
        self.levels.get(step.checked_sub(self.first)?).copied()
    }

    /// The highest smoothed demand of a window of steps.
    pub(super) fn followed(&self, steps: Window) -> Option<f64> {
        self.span(steps)?
            .followed
            .get(steps.from.checked_sub(self.first)?)
            .copied()
    }

    /// The highest demand around a window of steps.
    pub(super) fn near(&self, steps: Window) -> Option<f64> {
        self.span(steps)?
            .near
            .get(steps.from.checked_sub(self.first)?)
            .copied()
    }

    fn span(&self, steps: Window) -> Option<&Span> {
        self.spans
            .iter()
            .find(|span| span.width == steps.to - steps.from)
    }
}
