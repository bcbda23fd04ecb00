//! `foretide forecast`: one series and its forecast by `auto`, as a picture, for a query or a recorded history.

use foretide_backtest::{clock, forecast::ForecastReport, recording::parse_zone};
use foretide_domain::{cron::Zone, forecast::Refused, proposal::Unit};
use jiff::{SignedDuration, Timestamp};

use super::{
    cluster,
    context::{CommandContext, Progress},
    history::{HistoryArgs, Reading, parse_span},
    inputs,
    output::{CommandOutput, Failure, OutputFormat, Paint, Screen},
    plot::{Plot, size_beside},
    recording,
};

/// The columns beside the picture, for its scale.
const SCALE: usize = 12;
/// Hours of the past that are drawn at most for each hour of the forecast.
const PAST: i32 = 3;

/// Arguments of `foretide forecast`.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
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
    #[arg(long, value_name = "ZONE", value_parser = parse_zone, requires = "csv")]
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

/// Runs `foretide forecast`.
///
/// # Errors
/// The history cannot be read, or is empty.
pub fn run(
    args: &ForecastArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
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
    let report = ForecastReport::new(title, recording, args.ahead, context.now);
    let output = match args.output {
        OutputFormat::Table => CommandOutput::text(text(&report, screen)),
        OutputFormat::Json => CommandOutput::json("Forecast", &report),
    };
    Ok(CommandOutput { notes, ..output })
}

fn text(report: &ForecastReport, screen: Screen) -> String {
    let first = report.recording.first().unwrap_or(report.at);
    let about = format!(
        "{} samples of {:.1} days, to {}; all times are UTC",
        report.recording.samples().len(),
        report.at.duration_since(first).as_secs_f64() / 86_400.0,
        clock(report.at)
    );
    format!(
        "{}\n{}\n\n{}\n{}",
        screen.paint(Paint::Strong, &report.query),
        screen.paint(Paint::Dim, &about),
        picture(report, screen),
        summary(report, screen)
    )
}

fn picture(report: &ForecastReport, screen: Screen) -> String {
    let from = report
        .at
        .saturating_sub(report.ahead * PAST)
        .unwrap_or(Timestamp::MIN);
    let past: Vec<_> = report
        .recording
        .samples()
        .iter()
        .filter(|sample| sample.at >= from)
        .copied()
        .collect();
    let path = report.path();
    let plot = Plot {
        history: &past,
        forecast: &path,
        now: Some(report.at),
        ..Plot::new(&amount)
    };
    let (area, line) = if screen.unicode {
        ("⣿", "⠒⠒")
    } else {
        ("::", "**")
    };
    let mut signs = format!("{area} history");
    if !path.is_empty() {
        let line = screen.paint(Paint::Future, line);
        signs.extend([format!(
            "   {line} forecast, shaded up to the upper quantile"
        )]);
    }
    let drawn = plot.render(size_beside(SCALE, screen), screen);
    format!("{signs}\n{drawn}")
}

/// The forecast in numbers, or the reason for its absence.
fn summary(report: &ForecastReport, screen: Screen) -> String {
    let forecast = match &report.made {
        Ok(forecast) => forecast,
        Err(Refused { reason, message }) => {
            let line = format!("no forecast ({}): {message}", reason.as_str());
            return screen.line(Some(Paint::Warning), line);
        }
    };
    let path = report.path().into_iter();
    let highest = path.max_by(|a, b| a.value.total_cmp(&b.value)).map(|peak| {
        let upper = peak.upper.map_or_else(String::new, |upper| {
            format!(", at most {} by the upper quantile", amount(upper))
        });
        let (ahead, value, at) = (report.ahead, amount(peak.value), clock(peak.at));
        screen.line(
            None,
            format!("highest in the next {ahead:#}: {value} at {at}{upper}"),
        )
    });
    let notes = forecast.notes().iter().map(|note| {
        let line = format!("note on the forecast: {note}");
        screen.line(Some(Paint::Dim), line)
    });
    highest.into_iter().chain(notes).collect()
}

fn amount(value: f64) -> String {
    Unit::Plain.amount(value)
}
