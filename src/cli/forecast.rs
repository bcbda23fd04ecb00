//! `foretide forecast`: one series and its forecast by `auto`, as a picture, for a query or a recorded history.

use std::fmt::Write as _;

use foretide_backtest::clock;
use foretide_crds::Prediction as PredictionSpec;
use foretide_domain::{cron::Zone, forecast::Refused, proposal::Unit, sim::Recording};
use foretide_models::{Forecast, Prediction};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    cluster,
    context::{CommandContext, Progress},
    history::{HistoryArgs, Reading, parse_span},
    inputs,
    output::{CommandOutput, Failure, OutputFormat, Paint, Screen, Size, wrapped},
    plot::Plot,
    recording,
};
use foretide_api::validation;

/// The columns beside the picture, for its scale.
const SCALE: usize = 12;
/// Rows of the picture.
const ROWS: usize = 8;
/// Hours of the past that are drawn at most for each hour of the forecast.
const PAST: i32 = 3;

/// Arguments of `foretide forecast`.
#[expect(
    clippy::doc_markdown,
    reason = "the help shows the doc comments as they are"
)]
#[derive(Debug, Clone, clap::Args)]
pub struct ForecastArgs {
    /// PromQL query that returns one series
    #[arg(
        long,
        value_name = "QUERY",
        required_unless_present = "csv",
        conflicts_with = "csv"
    )]
    pub query: Option<String>,
    /// Recorded history instead of a query: lines of timestamp,value, or the JSON of a range query of Prometheus
    #[arg(long, value_name = "FILE")]
    pub csv: Option<String>,
    /// Zone of the times in a history that have none, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = foretide_backtest::recording::parse_zone, requires = "csv")]
    pub time_zone: Option<Zone>,
    /// The server to which the query is sent.
    #[command(flatten)]
    pub history: HistoryArgs,
    /// Length of the forecast to draw, at most 366d
    #[arg(long, value_name = "DURATION", value_parser = parse_span, default_value = "12h")]
    pub ahead: SignedDuration,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// A series and its forecast.
struct Report {
    title: String,
    recording: Recording,
    /// End of the history.
    at: Timestamp,
    ahead: SignedDuration,
    forecast: Result<Forecast, Refused>,
}

/// Runs `foretide forecast`.
///
/// # Errors
/// The history cannot be read, or is empty.
pub fn run(
    args: &ForecastArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = Screen {
        unicode: context.screen.unicode && !args.ascii,
        ..context.screen
    };
    let mut notes = String::new();
    let (title, recording) = match (&args.csv, &args.query) {
        (Some(file), _) => {
            let history = recording::read("", file, args.time_zone.as_ref())?;
            notes = inputs::notes(std::slice::from_ref(&history));
            (file.clone(), history.recording)
        }
        (None, query) => {
            let query = query.as_deref().unwrap_or_default();
            let until = context.now;
            let runtime = cluster::runtime()?;
            let mut reading = Reading { until, progress };
            let recording =
                args.history
                    .recording_of(query, &runtime, &context.machine, &mut reading)?;
            (query.to_owned(), recording)
        }
    };
    let at = recording.last().unwrap_or(context.now);
    let report = Report {
        title,
        at,
        ahead: args.ahead,
        forecast: forecast(&recording, at, args.ahead),
        recording,
    };
    let output = match args.output {
        OutputFormat::Table => CommandOutput::text(report.text(screen)),
        OutputFormat::Json => CommandOutput::json("Forecast", report.json()),
    };
    Ok(CommandOutput { notes, ..output })
}

/// The forecast that an autoscaler with `prediction: {}` would make of the metric.
fn forecast(
    recording: &Recording,
    at: Timestamp,
    ahead: SignedDuration,
) -> Result<Forecast, Refused> {
    let invalid = |violation: validation::Violation| {
        Refused::new(
            foretide_domain::proposal::Reason::InvalidSpec,
            violation.to_string(),
        )
    };
    let mut forecaster = validation::forecaster(&PredictionSpec::default()).map_err(invalid)?;
    let series = recording.series(
        forecaster.sample_interval(),
        forecaster.history_length(),
        at,
    );
    let made = forecaster.forecast(&series, ahead);
    made.map_err(|refusal| Refused::from(&refusal))
}

// === impl Report ===

impl Report {
    fn text(&self, screen: Screen) -> String {
        let span = self
            .at
            .duration_since(self.recording.first().unwrap_or(self.at));
        let about = format!(
            "{} samples of {:.1} days, to {}; all times are UTC",
            self.recording.samples().len(),
            span.as_secs_f64() / 86_400.0,
            clock(self.at)
        );
        let title = screen.paint(Paint::Strong, &self.title);
        let mut text = format!("{title}\n{}\n\n", screen.paint(Paint::Dim, &about));
        text.push_str(&self.picture(screen));
        text.push('\n');
        text.push_str(&self.summary(screen));
        text
    }

    fn picture(&self, screen: Screen) -> String {
        let from = self
            .at
            .saturating_sub(self.ahead * PAST)
            .unwrap_or(Timestamp::MIN);
        let samples = self.recording.samples().iter();
        let past: Vec<_> = samples
            .filter(|sample| sample.at >= from)
            .copied()
            .collect();
        let path = self.path();
        let label = |value| Unit::Plain.amount(value);
        let plot = Plot {
            history: &past,
            forecast: &path,
            now: Some(self.at),
            ..Plot::new(&label)
        };
        let (area, line) = if screen.unicode {
            ("⣿", "⠒⠒")
        } else {
            ("::", "**")
        };
        let mut signs = format!("{area} history");
        if !path.is_empty() {
            let line = screen.paint(Paint::Future, line);
            let _infallible = write!(signs, "   {line} forecast, shaded up to the upper quantile");
        }
        let size = Size {
            columns: screen.width() - SCALE,
            rows: ROWS,
        };
        format!("{signs}\n{}", plot.render(size, screen))
    }

    /// The forecast in numbers, or the reason for its absence.
    fn summary(&self, screen: Screen) -> String {
        let forecast = match &self.forecast {
            Ok(forecast) => forecast,
            Err(refused) => {
                let line = format!(
                    "no forecast ({}): {}",
                    refused.reason.as_str(),
                    refused.message
                );
                return format!(
                    "{}\n",
                    screen.paint(Paint::Warning, &wrapped(&line, screen.width(), "  "))
                );
            }
        };
        let highest = self
            .path()
            .into_iter()
            .max_by(|a, b| a.value.total_cmp(&b.value));
        let mut text = String::new();
        if let Some(peak) = highest {
            let amount = |value| Unit::Plain.amount(value);
            let upper = peak
                .upper
                .map(|upper| format!(", at most {} by the upper quantile", amount(upper)));
            let line = format!(
                "highest in the next {:#}: {} at {}{}",
                self.ahead,
                amount(peak.value),
                clock(peak.at),
                upper.unwrap_or_default()
            );
            let _infallible = writeln!(text, "{}", wrapped(&line, screen.width(), "  "));
        }
        for note in forecast.notes() {
            let note = wrapped(
                &format!("note on the forecast: {note}"),
                screen.width(),
                "  ",
            );
            let _infallible = writeln!(text, "{}", screen.paint(Paint::Dim, &note));
        }
        text
    }

    /// The forecast from now on, as long as it is drawn.
    fn path(&self) -> Vec<Prediction> {
        let Ok(forecast) = &self.forecast else {
            return Vec::new();
        };
        let until = self.at.saturating_add(self.ahead).unwrap_or(Timestamp::MAX);
        let drawn = forecast
            .samples()
            .filter(|it| it.at >= self.at && it.at <= until);
        drawn.collect()
    }

    fn json(&self) -> Value {
        let forecast = match &self.forecast {
            Err(refused) => {
                json!({ "reason": refused.reason.as_str(), "message": refused.message })
            }
            Ok(forecast) => json!({
                "method": forecast.method(),
                "notes": forecast.notes().iter().map(ToString::to_string).collect::<Vec<_>>(),
                "samples": self.path().iter().map(|it| json!({
                    "timestamp": it.at.as_second(), "value": it.value, "upper": it.upper,
                })).collect::<Vec<_>>(),
            }),
        };
        json!({
            "query": self.title,
            "at": self.at.to_string(),
            "samples": self.recording.samples().len(),
            "forecast": forecast,
        })
    }
}
