//! A chart as plain data, the time axis of every picture, and the chart as SVG.
//!
//! Nothing here knows a terminal, a report or a page: who has minutes and forecasts fills a [`Chart`], and gets text.
//!
//! ```text
//! Chart { panels } --svg--> <svg>
//! Axis --ticks--> both the SVG and the picture in characters (`cli::plot`)
//! ```

mod axis;
mod svg;

use foretide_models::{Prediction, Sample};
use jiff::Timestamp;

#[cfg(test)]
pub(crate) use self::axis::seconds;
pub(crate) use self::axis::{Axis, floor, labels, longest_step, real, second, ticks};

/// Panels one above the other, on one time axis.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the time axis covers.
    pub span: (Timestamp, Timestamp),
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// What is drawn, for the legend.
    pub legend: Legend,
}

/// One pair of axes, and what is drawn in it. Series are in the order of time; values below zero are drawn as zero, and
/// those above the top at the top.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Whose values these are.
    pub name: String,
    /// Totals beside the name.
    pub note: String,
    /// The one number to see first.
    pub headline: Option<Headline>,
    /// The top of the scale.
    pub top: f64,
    /// What was needed: a filled area, interrupted by holes.
    pub area: Vec<Sample>,
    /// What was there: a line of steps.
    pub steps: Vec<Sample>,
    /// What was expected: a band from the expected value to the upper one; a line if no upper value is known.
    pub band: Vec<Prediction>,
    /// Where there was too little: shaded.
    pub shortages: Vec<Shortage>,
}

/// The number that a panel is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// The number and its unit.
    pub text: String,
    /// Whether it is as it should be.
    pub good: bool,
}

/// A time in which more was needed than there was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// Its beginning.
    pub at: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// How much there was.
    pub had: f64,
    /// How much was needed.
    pub needed: f64,
}

/// What the marks mean; an empty text leaves a mark out.
#[derive(Clone, Debug, Default)]
pub struct Legend {
    /// Of the area.
    pub area: String,
    /// Of the steps.
    pub steps: String,
    /// Of the band.
    pub band: String,
    /// Of the shortages.
    pub shortages: String,
}
