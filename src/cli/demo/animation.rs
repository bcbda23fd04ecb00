//! The frames of a back-test: both runs over the same minutes, drawn on one time axis.

use std::fmt::Write as _;

use foretide_domain::sim::Run;
use foretide_models::Prediction;
use jiff::{SignedDuration, Timestamp};

use super::{Animation, scenario::Scenario};
use crate::cli::{
    backtest::{BacktestSetup, Panel, RunResult, legend, verdict},
    decision::{WIDTH, clock},
    output::{Paint, Screen, wrapped},
    plot::Size,
};

/// Each picture leaves room for its scale within the width of the text; ours is taller, because it shows a forecast.
const OURS: Size = Size {
    columns: 74,
    rows: 8,
};
const PLAIN: Size = Size { rows: 6, ..OURS };
/// Number of frames.
const FRAMES: u32 = 360;
/// How much of the forecast is drawn.
const AHEAD: SignedDuration = SignedDuration::from_hours(4);
/// How many lines the sentence of a decision may take.
const SENTENCE: usize = 2;

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

    fn heading(&self, screen: Screen) -> String {
        let about = format!("{}; {}", clock(self.now), self.scenario.about());
        format!(
            "{}  {}",
            screen.paint(Paint::Strong, "foretide demo"),
            screen.paint(Paint::Dim, &about)
        )
    }

    /// The forecast in force, in replicas, as far as the axis goes.
    fn ahead(&self) -> Vec<Prediction> {
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

    fn frame(&self, screen: Screen) -> String {
        let mut forecast = self.ours.1.forecasts.clone();
        forecast.extend(self.ahead());
        let mut text = format!("{}\n", self.heading(screen));
        for ((_, result), forecast, size) in [
            (&self.ours, forecast.as_slice(), OURS),
            (&self.plain, &[], PLAIN),
        ] {
            let _infallible = writeln!(text, "{}", totals(result, screen));
            let panel = Panel {
                minutes: &result.minutes,
                forecast,
                span: (self.setup.from, self.setup.until),
                top: self.top,
                now: (!self.is_over()).then_some(self.now),
            };
            let drawn = panel.draw(size, screen);
            // The times are shown once, under the lower picture.
            let times = drawn.trim_end().rfind('\n').filter(|_| size == OURS);
            text.push_str(times.and_then(|end| drawn.get(..=end)).unwrap_or(&drawn));
        }
        let _infallible = writeln!(text, "{}\n", legend(&self.ours.1, screen));
        let sentence = wrapped(&self.sentence, WIDTH, "");
        let lines = sentence.lines().map(Some).chain(std::iter::repeat(None));
        for line in lines.take(SENTENCE) {
            let _infallible = writeln!(text, "{}", line.unwrap_or_default());
        }
        text
    }

    fn summary(&self, screen: Screen) -> String {
        let words = verdict(&self.ours.1.score, &self.plain.1.score);
        let words = screen.paint(Paint::Strong, &wrapped(&words, WIDTH, ""));
        let more = "Next: foretide demo --fleet, and foretide backtest over your own history.";
        format!("{words}\n{}\n", screen.paint(Paint::Dim, more))
    }
}

/// The totals of a run, in one line.
fn totals(result: &RunResult, screen: Screen) -> String {
    let score = &result.score;
    let under = format!("under-provisioned {:>3} min", score.under);
    let paint = if score.under > 0 {
        Paint::Error
    } else {
        Paint::Dim
    };
    format!(
        "{}  {}   replica-hours {:>5.1}   scale actions {:>3}",
        screen.paint(Paint::Strong, &format!("{:<9}", result.name)),
        screen.paint(paint, &under),
        score.replica_hours(),
        score.actions,
    )
}
