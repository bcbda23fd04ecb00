//! The expected replicas of a span, by forecasts, cron windows and bounds, minute by minute.
//!
//! ```text
//! Situation --forecasts, made at one moment--> sim::Ahead --minutes of the span--> changes, chart, page
//! ```
//!
//! Future measurements are unknown, so these are the fewest replicas of a workload with metrics.

mod page;
mod view;

use foretide_domain::{
    Replicas,
    proposal::Source,
    sim::{Ahead, ExpectedMinute},
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};

use super::{PlanArgs, Situation};
use crate::cli::{
    context::{CommandContext, Progress},
    decision::clock,
    output::{CommandOutput, Failure, ReportFormat},
};

/// The span without `--to`.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The longest span: a year of cron windows.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Horizon of a forecast. A longer one would only repeat its week.
const FORECAST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The span that the flags ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: Timestamp,
    to: Timestamp,
}

/// The expected replicas of a span.
struct ExpectedReport {
    situation: Situation,
    span: Span,
    /// The last minute whose prediction window is covered by every forecast; `None` without forecasts.
    forecast_until: Option<Timestamp>,
    minutes: Vec<Minute>,
    changes: Vec<Change>,
}

/// One minute, without its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Minute {
    at: Timestamp,
    replicas: Replicas,
    forecast_replicas: Option<f64>,
    source: Option<Source>,
}

/// A minute in which the expected count changes.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    at: Timestamp,
    /// `None` at the beginning of the span.
    from: Option<Replicas>,
    to: Replicas,
    source: Option<Source>,
    reason: String,
}

/// Runs `foretide plan --from --to`.
///
/// # Errors
/// As `foretide plan`, or nothing is known of the span.
pub(super) fn run(
    args: &PlanArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let length = |workload: &Workload, at| Ok(Span::of(args, at)?.forecast_length(workload, at));
    let situation = Situation::read(args, context, length, progress)?;
    let notes = situation.notes.clone();
    let report = ExpectedReport::new(situation, args)?;
    let screen = context.screen.with_ascii(args.ascii);
    let output = match args.output {
        ReportFormat::Table => CommandOutput::text(view::text(&report, screen)),
        ReportFormat::Json => CommandOutput::json("ExpectedReplicas", view::json(&report)),
        ReportFormat::Csv => CommandOutput::text(view::csv(&report)),
        ReportFormat::Svg => CommandOutput::text(page::chart(&report).svg()),
        ReportFormat::Html => CommandOutput::text(page::html(&report)?),
    };
    Ok(CommandOutput { notes, ..output })
}

// === impl Span ===

impl Span {
    /// The span of the flags, for what is known at `at`.
    fn of(args: &PlanArgs, at: Timestamp) -> Result<Self, Failure> {
        let from = args.from.unwrap_or(at);
        let to = args.to.or_else(|| from.checked_add(DAY).ok());
        let to = to.unwrap_or(Timestamp::MAX);
        if to <= from {
            return Err(Failure::usage(format!(
                "--to {to}: expected a time after {from}, where the span begins"
            )));
        }
        let span = to.duration_since(from);
        if span > LONGEST {
            return Err(Failure::usage(format!(
                "--to {to}: {} days after {from}, expected at most {}",
                span.as_hours() / 24,
                LONGEST.as_hours() / 24
            )));
        }
        Ok(Self { from, to })
    }

    /// Returns the length of a forecast made at `at` that covers the window of the last minute.
    fn forecast_length(self, workload: &Workload, at: Timestamp) -> SignedDuration {
        let window = workload.prediction.as_ref().map(|p| p.window);
        let reach = self.to.duration_since(at).min(FORECAST);
        reach.saturating_add(window.unwrap_or_default())
    }
}

// === impl ExpectedReport ===

impl ExpectedReport {
    fn new(mut situation: Situation, args: &PlanArgs) -> Result<Self, Failure> {
        let span = Span::of(args, situation.at)?;
        let (workload, pods) = (&situation.workload, &situation.observation.pods);
        // A paused workload has no pods; each would be as in the template.
        let one = [situation.template.pod.serving("one", situation.at)];
        let pods = if pods.is_empty() {
            &one
        } else {
            pods.as_slice()
        };
        let outlooks = situation.outlooks.iter();
        let forecasts: Vec<_> = outlooks.filter_map(|outlook| outlook.ahead(pods)).collect();
        let reaches = forecasts.iter().filter_map(|it| it.reach(workload));
        let forecast_until = reaches.min();
        situation.require_knowledge(span, forecast_until)?;
        let count = situation.observation.scale.spec;
        let ahead = Ahead::new(workload.clone(), forecasts, count, span.from);
        let (minutes, changes) = collected(ahead.take_while(|minute| minute.at < span.to));
        situation.note_span(span, forecast_until);
        Ok(Self {
            situation,
            span,
            forecast_until,
            minutes,
            changes,
        })
    }

    /// Returns the replica-hours of the span.
    fn replica_hours(&self) -> f64 {
        self.minutes
            .iter()
            .map(|it| it.replicas.as_f64())
            .sum::<f64>()
            / 60.0
    }

    /// The span in one sentence.
    fn verdict(&self) -> String {
        let least = self.minutes.iter().map(|it| it.replicas).min();
        let least = least.unwrap_or_default();
        // The last maximum in reverse order is the first one in the order of time.
        let most = self.minutes.iter().rev().max_by_key(|it| it.replicas);
        let (most, at) = most.map_or((least, self.span.from), |it| (it.replicas, it.at));
        let hours = self.replica_hours();
        if least == most {
            return format!("{most} replicas throughout, {hours:.1} replica-hours");
        }
        format!(
            "{least} to {most} replicas, {hours:.1} replica-hours; the most from {}",
            clock(at)
        )
    }
}

/// The minutes, and those of them in which the count changes.
fn collected(minutes: impl Iterator<Item = ExpectedMinute>) -> (Vec<Minute>, Vec<Change>) {
    let (mut all, mut changes) = (Vec::<Minute>::new(), Vec::new());
    for minute in minutes {
        let from = all.last().map(|before| before.replicas);
        if from != Some(minute.replicas) {
            changes.push(Change {
                at: minute.at,
                from,
                to: minute.replicas,
                source: minute.source,
                reason: minute.reason,
            });
        }
        all.push(Minute {
            at: minute.at,
            replicas: minute.replicas,
            forecast_replicas: minute.forecast_replicas,
            source: minute.source,
        });
    }
    (all, changes)
}

// === impl Situation ===

impl Situation {
    /// Requires that cron windows or a forecast apply to the span.
    fn require_knowledge(
        &self,
        span: Span,
        forecast_until: Option<Timestamp>,
    ) -> Result<(), Failure> {
        if self.workload.has_crons() {
            return Ok(());
        }
        if self.workload.prediction.is_none() {
            return Err(Failure::usage(
                "--from and --to need spec.prediction or spec.crons: what metrics will ask for is not known ahead",
            ));
        }
        match forecast_until {
            Some(reach) if span.to > reach => Err(Failure::usage(format!(
                "--to {}: a forecast of {} reaches to {reach}; choose an earlier time (only cron windows are known \
                 further ahead, and spec.crons has none)",
                span.to, self.at
            ))),
            // The reasons explain the absence of a forecast.
            _ => Ok(()),
        }
    }

    /// Adds the assumptions about a span.
    fn note_span(&mut self, span: Span, forecast_until: Option<Timestamp>) {
        if !self.workload.metrics.is_empty() {
            let message =
                "what metrics will ask for is not known ahead; they can only raise these counts";
            self.assumptions.push(message.to_owned());
        }
        if let Some(reach) = forecast_until {
            let (at, reach) = (clock(self.at), (reach < span.to).then(|| clock(reach)));
            let reach =
                reach.map(|reach| format!("; after {reach} only cron windows and bounds count"));
            self.assumptions.push(format!(
                "the forecast of {at} for the whole span, which the controller renews every few minutes{}",
                reach.unwrap_or_default()
            ));
        }
        if self.fleet.is_some() {
            let message = "the fleet as one workload, which is not divided ahead";
            self.assumptions.push(message.to_owned());
        }
    }
}
