//! The frames of a back-test: both runs over the same minutes, drawn on one time axis.

use std::fmt::Write as _;

use foretide_chart::{Chart, Headline};
use foretide_domain::sim::Run;
use foretide_models::Prediction;
use jiff::{SignedDuration, Timestamp};

use super::{Animation, digits, heading, scenario::Scenario, sentence_lines};
use crate::cli::{
    backtest::{BacktestSetup, Panel, RunResult, legend},
    output::{Paint, Screen, Size, wrapped},
    web::ADDRESS,
};

/// What each picture leaves of the width for its scale.
const SCALE: usize = 6;
/// The lowest and the highest picture, in rows.
const LOWEST: usize = 3;
const HIGHEST: usize = 16;
/// The narrowest terminal in which large numbers stand beside the pictures.
const ROOMY: usize = 80;
/// Number of frames.
const FRAMES: u32 = 360;
/// How much of the forecast is drawn.
const AHEAD: SignedDuration = SignedDuration::from_hours(4);
/// The unit of the large numbers.
const UNIT: &str = "min short";

/// Both runs, up to the current minute.
pub(super) struct BacktestAnimation<'a> {
    setup: &'a BacktestSetup,
    scenario: Scenario,
    ours: (Run<'a>, RunResult),
    plain: (Run<'a>, RunResult),
    /// Why Foretide has as many replicas as it has.
    sentence: String,
    now: Timestamp,
    top: f64,
}

// === impl BacktestAnimation ===

impl<'a> BacktestAnimation<'a> {
    /// The state before the first frame.
    pub(super) fn new(setup: &'a BacktestSetup, scenario: Scenario) -> Self {
        let mut ours = setup.ours().with_forecast_span(AHEAD);
        let mut plain = setup.plain();
        for _ in 0..setup.lead_in() {
            ours.minute();
            plain.minute();
        }
        Self {
            setup,
            scenario,
            ours: (ours, RunResult::new("Foretide")),
            plain: (plain, RunResult::new("plain HPA")),
            sentence: String::new(),
            now: setup.from,
            top: scenario.top(),
        }
    }

    /// Advances both runs by a number of minutes, up to the end.
    pub(super) fn pass(&mut self, minutes: u32) {
        for _ in 0..minutes {
            if self.is_over() {
                return;
            }
            let decision = self.ours.1.add(&mut self.ours.0);
            self.plain.1.add(&mut self.plain.0);
            self.sentence = decision.message();
            self.now = self
                .now
                .checked_add(foretide_domain::sim::MINUTE)
                .unwrap_or(self.setup.until);
        }
    }

    #[cfg(test)]
    pub(super) fn set_sentence(&mut self, sentence: &str) {
        sentence.clone_into(&mut self.sentence);
    }

    /// The forecast in force, in replicas, as far as the axis goes.
    fn ahead(&self) -> Vec<Prediction> {
        // The example has one metric.
        let target = self.setup.environment.targets().first().copied().flatten();
        let (Some(forecast), Some(target)) = (self.ours.0.forecast(), target) else {
            return Vec::new();
        };
        let end = self
            .now
            .checked_add(AHEAD)
            .unwrap_or(self.setup.until)
            .min(self.setup.until);
        let within = forecast
            .samples()
            .filter(|p| p.at >= self.now && p.at <= end);
        let path = within.map(|p| Prediction {
            at: p.at,
            value: p.value / target,
            upper: p.upper.map(|upper| upper / target),
        });
        path.collect()
    }
}

impl Animation for BacktestAnimation<'_> {
    fn advance(&mut self) {
        self.pass(self.setup.minutes().div_ceil(FRAMES));
    }

    fn is_over(&self) -> bool {
        self.now >= self.setup.until
    }

    fn frame(&self, size: Size, screen: Screen) -> String {
        let legend = legend(&self.ours.1, size.columns, screen);
        let sentence = sentence_lines(&self.sentence, size.columns, "", self.is_over());
        // The heading, the totals and the axis of both pictures, and their times.
        let text = 1 + 2 + 2 + 1 + legend.lines().count() + sentence.lines().count();
        let rows = size.rows.saturating_sub(text) / 2;
        let picture = Size {
            columns: size.columns,
            rows: rows.clamp(LOWEST, HIGHEST),
        };
        let heading = heading(self.now, self.scenario.about(), size.columns, screen);
        let mut forecast = self.ours.1.forecasts.clone();
        forecast.extend(self.ahead());
        let with_times = self.picture(&self.ours.1, &forecast, picture, screen);
        // The times are shown once, under the lower picture.
        let upper = with_times
            .trim_end()
            .rsplit_once('\n')
            .map_or("", |(rows, _)| rows);
        let lower = self.picture(&self.plain.1, &[], picture, screen);
        format!("{heading}\n{upper}\n{lower}{legend}\n{sentence}")
    }

    fn summary(&self, size: Size, screen: Screen) -> String {
        let words = self.ours.1.score.verdict(&self.plain.1.score);
        let words = screen.paint(Paint::Strong, &wrapped(&words, size.columns, ""));
        if size.rows < super::LEAST.rows {
            return format!("{words}\n");
        }
        let more =
            format!("Next: foretide demo --web, at http://{ADDRESS}/; demo --fleet; backtest.");
        let more = wrapped(&more, size.columns, "");
        format!("{words}\n{}\n", screen.paint(Paint::Dim, &more))
    }

    fn chart(&self) -> Option<Chart> {
        let panel = |id: &str, result: &RunResult, forecast| foretide_chart::Panel {
            id: id.to_owned(),
            name: result.name.to_owned(),
            note: totals(result).join("; "),
            headline: Some(Headline {
                text: format!("{} {UNIT}", result.score.under),
                good: result.score.under == 0,
            }),
            ..self.panel(result, forecast).chart(result)
        };
        let (ours, plain) = (&self.ours.1, &self.plain.1);
        Some(Chart {
            title: format!("foretide demo: {}", self.scenario.about()),
            span: (self.setup.from, self.setup.until),
            panels: vec![
                panel("foretide", ours, &ours.forecasts),
                panel("plain-hpa", plain, &[]),
            ],
            ..Chart::default()
        })
    }
}

// === pictures of BacktestAnimation ===

impl BacktestAnimation<'_> {
    fn panel<'a>(&self, result: &'a RunResult, forecast: &'a [Prediction]) -> Panel<'a> {
        Panel {
            minutes: &result.minutes,
            forecast,
            span: (self.setup.from, self.setup.until),
            top: self.top,
            now: (!self.is_over()).then_some(self.now),
        }
    }

    /// The totals of a run, its picture in `size` with its axis and times, and the minutes short in large digits beside
    /// it if they fit.
    fn picture(
        &self,
        result: &RunResult,
        forecast: &[Prediction],
        size: Size,
        screen: Screen,
    ) -> String {
        let short = result.score.under;
        let paint = if short > 0 { Paint::Error } else { Paint::Good };
        let roomy = size.columns >= ROOMY;
        let badge = roomy.then(|| digits::badge(short, UNIT, paint, size.rows, screen));
        let badge = badge.flatten();
        let name = screen.paint(Paint::Strong, &format!("{:<9}", result.name));
        let mut text = if badge.is_some() {
            format!("{name}    {}\n", totals(result).join("   "))
        } else {
            let short = screen.paint(paint, &format!("{short:>3} {UNIT}"));
            let hours = result.score.replica_hours();
            format!("{name} {short}  {hours:.1} replica-hours\n")
        };
        let beside = badge.as_ref().map_or(0, |_| digits::WIDTH);
        let columns = size.columns.saturating_sub(SCALE + beside);
        let drawn = self
            .panel(result, forecast)
            .draw(Size { columns, ..size }, screen);
        let blank = " ".repeat(beside);
        let mut badge = badge.unwrap_or_default().into_iter();
        for row in drawn.lines() {
            let left = badge.next().unwrap_or_else(|| blank.clone());
            let _infallible = writeln!(text, "{left}{row}");
        }
        text
    }
}

/// The totals of a run, and its worst minute.
fn totals(result: &RunResult) -> Vec<String> {
    let score = &result.score;
    let mut totals = vec![
        format!("{:.1} replica-hours", score.replica_hours()),
        format!("{} scale actions", score.actions),
    ];
    if let Some((minute, needed)) = score.worst.and_then(|worst| Some((worst, worst.needed()?))) {
        let at = minute.at.strftime("%H:%M");
        totals.push(format!("{at}: {needed} needed, {} served", minute.ready));
    }
    totals
}
