//! The picture of the demo: both runs over the same minutes, drawn on one time axis.

use foretide_backtest::{
    clock,
    runs::{RunResult, Runs},
    setup::Setup,
};
use foretide_chart::{Chart, Headline};
use foretide_models::Prediction;
use jiff::Timestamp;

use super::scenario::Scenario;
use crate::cli::{
    backtest::{Panel, legend},
    output::{Paint, Screen, Size, wrapped},
    web::ADDRESS,
};

/// Columns of each run's picture that its scale takes.
const SCALE: usize = 6;
/// The lowest and the highest picture of a run, in rows.
const LOWEST: usize = 3;
const HIGHEST: usize = 16;
/// The most columns: a column is then 4.5 minutes.
const MOST_COLUMNS: usize = 160;
/// The size in a pipe or a file.
const PIPED: Size = Size {
    columns: 80,
    rows: 28,
};
/// Number of rows from which the summary mentions the next steps.
const ROOMY: usize = 24;
/// The unit of the headline.
const UNIT: &str = "min short";

/// Both runs, completed.
pub struct Picture {
    scenario: Scenario,
    span: (Timestamp, Timestamp),
    ours: RunResult,
    plain: RunResult,
    /// Explanation of the number of replicas that Foretide has at the end.
    pub sentence: String,
}

// === impl Picture ===

impl Picture {
    /// Runs Foretide and the plain HPA.
    pub fn of(setup: &Setup, scenario: Scenario) -> Self {
        let runs = Runs::of(setup);
        let (mut ours, mut plain) = (runs.ours(), runs.plain());
        for _ in 0..runs.lead_in() {
            ours.minute();
            plain.minute();
        }
        let mut picture = Self {
            scenario,
            span: (setup.from, setup.until),
            ours: RunResult::new("Foretide"),
            plain: RunResult::new("plain HPA"),
            sentence: String::new(),
        };
        for _ in 0..runs.minutes() {
            picture.sentence = picture.ours.add(&mut ours).message();
            picture.plain.add(&mut plain);
        }
        picture
    }

    /// The picture and the totals in characters, so that both fit on the screen above the next prompt.
    pub fn text(&self, screen: Screen) -> String {
        let size = screen.size.map_or(PIPED, |size| Size {
            columns: size.columns.clamp(1, MOST_COLUMNS),
            rows: size.rows.saturating_sub(1),
        });
        let summary = self.summary(size, screen);
        let gap = if size.rows < ROOMY { "" } else { "\n" };
        let rows = summary.lines().count() + gap.len();
        let rows = size.rows.saturating_sub(rows);
        let runs = self.runs(Size { rows, ..size }, screen);
        format!("{runs}{gap}{summary}")
    }

    /// The picture as data.
    pub fn chart(&self) -> Chart {
        Chart {
            title: format!("foretide demo: {}", self.scenario.about()),
            span: self.span,
            panels: vec![
                self.chart_of("foretide", &self.ours, &self.ours.forecasts),
                self.chart_of("plain-hpa", &self.plain, &[]),
            ],
            ..Chart::default()
        }
    }

    /// Both runs, in lines that are not wider than `size`, and in no more lines than it has, from 50 columns and 20
    /// rows on.
    fn runs(&self, size: Size, screen: Screen) -> String {
        let legend = legend(&self.ours, size.columns, screen);
        let sentence = wrapped(&self.sentence, size.columns, "");
        // The heading, the totals and the axis of both pictures, and their times.
        let text = 1 + 2 + 2 + 1 + legend.lines().count() + sentence.lines().count();
        let rows = size.rows.saturating_sub(text) / 2;
        let each = Size {
            columns: size.columns,
            rows: rows.clamp(LOWEST, HIGHEST),
        };
        let heading = self.heading(size.columns, screen);
        let with_times = self.run(&self.ours, &self.ours.forecasts, each, screen);
        // The times are shown once, under the lower picture.
        let upper = with_times
            .trim_end()
            .rsplit_once('\n')
            .map_or("", |(rows, _)| rows);
        let lower = self.run(&self.plain, &[], each, screen);
        format!("{heading}\n{upper}\n{lower}{legend}\n{sentence}\n")
    }

    /// The heading with the end of the run, and the scenario if it fits.
    fn heading(&self, columns: usize, screen: Screen) -> String {
        let name = "foretide demo";
        let end = clock(self.span.1);
        let all = format!("{end}; {}", self.scenario.about());
        let fits = name.len() + 2 + all.chars().count() <= columns;
        let about = if fits { all } else { end };
        format!(
            "{}  {}",
            screen.paint(Paint::Strong, name),
            screen.paint(Paint::Dim, &about)
        )
    }

    fn summary(&self, size: Size, screen: Screen) -> String {
        let words = self.ours.score.verdict(&self.plain.score);
        let words = screen.paint(Paint::Strong, &wrapped(&words, size.columns, ""));
        if size.rows < ROOMY {
            return format!("{words}\n");
        }
        let more = format!("Next: foretide demo --web, at http://{ADDRESS}/; foretide backtest.");
        let more = wrapped(&more, size.columns, "");
        format!("{words}\n{}\n", screen.paint(Paint::Dim, &more))
    }

    /// The totals of a run, and its picture with its axis and times.
    fn run(
        &self,
        result: &RunResult,
        forecast: &[Prediction],
        size: Size,
        screen: Screen,
    ) -> String {
        let short = result.score.under;
        let paint = if short > 0 { Paint::Error } else { Paint::Good };
        let name = screen.paint(Paint::Strong, &format!("{:<9}", result.name));
        let short = screen.paint(paint, &format!("{short:>3} {UNIT}"));
        let mut text = format!("{name} {short}");
        let mut columns = 9 + 1 + 3 + 1 + UNIT.len();
        for total in totals(result) {
            columns += 3 + total.chars().count();
            if columns <= size.columns {
                text.extend([format!("   {total}")]);
            }
        }
        let columns = size.columns.saturating_sub(SCALE);
        let drawn = self
            .panel(result, forecast)
            .draw(Size { columns, ..size }, screen);
        format!("{text}\n{drawn}")
    }

    fn panel<'a>(&self, result: &'a RunResult, forecast: &'a [Prediction]) -> Panel<'a> {
        Panel {
            minutes: &result.minutes,
            forecast,
            span: self.span,
            top: self.scenario.top(),
        }
    }

    fn chart_of(
        &self,
        id: &str,
        result: &RunResult,
        forecast: &[Prediction],
    ) -> foretide_chart::Panel {
        foretide_chart::Panel {
            id: id.to_owned(),
            name: result.name.to_owned(),
            note: totals(result).join("; "),
            headline: Some(Headline {
                text: format!("{} {UNIT}", result.score.under),
                good: result.score.under == 0,
            }),
            ..self.panel(result, forecast).chart(result)
        }
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
