//! [`View`]: the demand so far on a logarithmic scale, and the levels and peaks that features are made of.
//!
//! While a whole history is learned, the features of many steps ask for the same levels and peaks, so [`LookupCache`]
//! keeps them. It is dropped afterwards: one step a minute does not need it.
//!
//! ```text
//! step       8    9   10   11   12   13   14
//!                now ->|       [window]            Window { from: 2, to: 3 } of a prediction made at step 10
//! levels of 10: the means of the minutes before it
//! ```

use super::buffer::DemandBuffer;
use crate::grid::Grid;

/// Minutes by which the window of a day is widened for its maximum.
const WIDENED_BY: i64 = 5;

/// The steps that a prediction is for, as offsets from the step it is made at, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: usize,
    pub to: usize,
}

/// The logarithm of demand plus an offset, which keeps it close to linear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Added to demand before the logarithm; positive.
    pub offset: f64,
}

/// The scaled mean demand of the 5, 15 and 60 minutes before a step.
///
/// # Units
/// Natural logarithms of demand plus the offset of the scale.
#[derive(Debug, Clone, Copy, Default)]
pub struct Levels {
    pub five: f64,
    pub quarter: f64,
    pub hour: f64,
}

/// The demand on a scale and a grid.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub buffer: &'a DemandBuffer,
    pub scale: Scale,
    pub grid: Grid,
    /// Values that were computed before.
    pub cache: Option<&'a LookupCache>,
}

/// Levels and peaks by step, on one scale.
#[derive(Debug, Clone)]
pub struct LookupCache {
    /// The step of the first value of each list.
    first: usize,
    levels: Vec<Levels>,
    spans: Vec<Span>,
}

/// Peaks of the windows of one width, by their first step.
#[derive(Debug, Clone)]
struct Span {
    width: usize,
    smoothed_peak: Vec<f64>,
    widened_peak: Vec<f64>,
}

// === impl Window ===

impl Window {
    /// The absolute steps of the window of a prediction made at `step`.
    pub fn after(self, step: usize) -> Self {
        Self {
            from: step + self.from,
            to: step + self.to,
        }
    }
}

// === impl Scale ===

impl Scale {
    /// `ln(demand + offset)`.
    pub fn of(self, demand: f64) -> f64 {
        (demand + self.offset).ln()
    }

    /// The demand of a scaled value, never below zero.
    pub fn inverse(self, scaled: f64) -> f64 {
        (scaled.exp() - self.offset).max(0.0)
    }
}

// === impl Levels ===

impl Levels {
    /// The level of the last hour.
    pub fn hour(&self) -> f64 {
        self.hour
    }

    /// The level of the last quarter of an hour above that of the last hour.
    pub fn trend(&self) -> f64 {
        self.quarter - self.hour
    }

    /// The difference of the demand before two steps: half the difference of their levels, and all of that of their
    /// trends.
    pub fn distance(&self, other: &Self) -> f64 {
        0.5 * (self.quarter - other.quarter).abs() + (self.trend() - other.trend()).abs()
    }
}

// === impl View ===

impl<'a> View<'a> {
    /// The demand on a scale and a grid, without a cache.
    pub fn new(buffer: &'a DemandBuffer, scale: Scale, grid: Grid) -> Self {
        Self {
            buffer,
            scale,
            grid,
            cache: None,
        }
    }
}

impl View<'_> {
    /// The levels before a step.
    pub fn levels(&self, step: usize) -> Levels {
        if let Some(levels) = self.cache.and_then(|cache| cache.levels(step)) {
            return levels;
        }
        let level = |minutes| {
            let mean = self.buffer.mean_before(step, self.grid.minutes(minutes));
            self.scale.of(mean)
        };
        Levels {
            five: level(5),
            quarter: level(15),
            hour: level(60),
        }
    }

    /// The level of the five minutes before a step.
    pub fn five(&self, step: usize) -> f64 {
        match self.cache.and_then(|cache| cache.levels(step)) {
            Some(levels) => levels.five,
            None => self
                .scale
                .of(self.buffer.mean_before(step, self.grid.minutes(5))),
        }
    }

    /// The highest smoothed demand of these steps.
    pub fn smoothed_peak(&self, steps: Window) -> f64 {
        match self.cache.and_then(|cache| cache.smoothed_peak(steps)) {
            Some(smoothed_peak) => smoothed_peak,
            None => self
                .scale
                .of(self.buffer.highest_smoothed(steps.from, steps.to)),
        }
    }

    /// The highest demand of these steps and those around them.
    #[inline]
    pub fn widened_peak(&self, steps: Window) -> f64 {
        if let Some(widened_peak) = self.cache.and_then(|cache| cache.widened_peak(steps)) {
            return widened_peak;
        }
        let wider = self.wider();
        let from = steps.from.saturating_sub(wider);
        self.scale.of(self.buffer.highest(from, steps.to + wider))
    }

    /// The number of steps by which a window is widened on each side.
    pub fn wider(&self) -> usize {
        self.grid.minutes(WIDENED_BY)
    }
}

// === impl LookupCache ===

impl LookupCache {
    /// An empty cache for windows of these widths.
    pub fn new(first: usize, widths: &[usize]) -> Self {
        let spans = widths
            .iter()
            .map(|width| Span {
                width: *width,
                smoothed_peak: Vec::new(),
                widened_peak: Vec::new(),
            })
            .collect();
        Self {
            first,
            levels: Vec::new(),
            spans,
        }
    }

    /// Adds the values that are known at the step `now`.
    #[inline]
    pub fn extend(&mut self, view: &View<'_>, now: usize) {
        for step in self.first + self.levels.len()..=now {
            self.levels.push(view.levels(step));
        }
        let wider = view.wider();
        for span in &mut self.spans {
            // Only windows that are over, with the steps around them.
            let known = (now.saturating_sub(span.width + wider + 1)).max(self.first);
            for from in self.first + span.widened_peak.len()..known {
                let to = from + span.width;
                let window = Window { from, to };
                span.widened_peak.push(view.widened_peak(window));
                span.smoothed_peak.push(view.smoothed_peak(window));
            }
        }
    }

    /// The levels before a step.
    pub fn levels(&self, step: usize) -> Option<Levels> {
        self.levels.get(step.checked_sub(self.first)?).copied()
    }

    /// The highest smoothed demand of a window of steps.
    pub fn smoothed_peak(&self, steps: Window) -> Option<f64> {
        self.span(steps)?
            .smoothed_peak
            .get(steps.from.checked_sub(self.first)?)
            .copied()
    }

    /// The highest demand around a window of steps.
    pub fn widened_peak(&self, steps: Window) -> Option<f64> {
        self.span(steps)?
            .widened_peak
            .get(steps.from.checked_sub(self.first)?)
            .copied()
    }

    /// The peaks of the windows that are as wide as this one, if they are kept.
    fn span(&self, steps: Window) -> Option<&Span> {
        self.spans
            .iter()
            .find(|span| span.width == steps.to - steps.from)
    }
}
