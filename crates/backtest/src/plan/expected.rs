//! The expected replicas of a span, by forecasts, cron windows and bounds, minute by minute.
//!
//! ```text
//! Situation --forecasts, made at one moment--> sim::Ahead --minutes of the span--> changes, chart, page
//! ```
//!
//! Future measurements are unknown, so these are the fewest replicas of a workload with metrics.

use foretide_domain::{
    ReplicaBounds, Replicas,
    proposal::Source,
    sim::{Ahead, ExpectedMinute},
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

use super::{PlanError, Situation, Times};
use crate::{Error, Metadata, clock};

/// The span without `--to`.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The longest span: a year of cron windows.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Horizon of a forecast. A longer one would only repeat its week.
const FORECAST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A span ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Beginning.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
}

/// The expected replicas of a span.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedReport {
    /// The state from which the span is expected.
    #[serde(flatten, serialize_with = "known")]
    pub situation: Situation,
    /// The span.
    #[serde(flatten)]
    pub span: Span,
    /// The last minute whose prediction window is covered by every forecast; `None` without forecasts.
    pub forecast_until: Option<Timestamp>,
    /// Replica-hours of the span.
    pub replica_hours: f64,
    /// The span in one sentence.
    pub message: String,
    /// Minutes of the span.
    #[serde(skip)]
    pub minutes: Vec<Minute>,
    /// Minutes in which the count changes.
    pub changes: Vec<Change>,
}

/// One minute, without its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    /// Beginning of the minute.
    pub at: Timestamp,
    /// Expected count.
    pub replicas: Replicas,
    /// Replicas that the forecasts ask for, before rounding.
    pub forecast_replicas: Option<f64>,
    /// Source of the count; `None` for the bounds.
    pub source: Option<Source>,
}

/// A minute in which the expected count changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Beginning of the minute.
    pub at: Timestamp,
    /// Count before; `None` at the beginning of the span.
    pub from: Option<Replicas>,
    /// Count after.
    pub to: Replicas,
    /// Source of the count after; `None` for the bounds.
    #[serde(serialize_with = "source_word")]
    pub source: Option<Source>,
    /// Reason for the count after.
    #[serde(rename = "message")]
    pub reason: String,
}

// === impl Span ===

impl Span {
    /// The span of `times`, for what is known at `at`: a day, if they give no end.
    ///
    /// # Errors
    /// The span is empty, or longer than a year.
    pub fn new(times: Times, at: Timestamp) -> Result<Self, Error> {
        let from = times.from.unwrap_or(at);
        let to = times.to.or_else(|| from.checked_add(DAY).ok());
        let to = to.unwrap_or(Timestamp::MAX);
        if to <= from {
            return Err(PlanError::EmptySpan(to, from).into());
        }
        let span = to.duration_since(from);
        if span > LONGEST {
            let [days, most] = [span, LONGEST].map(|it| it.as_hours() / 24);
            return Err(PlanError::LongSpan(to, days, from, most).into());
        }
        Ok(Self { from, to })
    }

    /// Returns the length of a forecast made at `at` that covers the window of the last minute.
    pub(super) fn forecast_length(self, workload: &Workload, at: Timestamp) -> SignedDuration {
        let window = workload.floor.prediction.as_ref().map(|p| p.window);
        let reach = self.to.duration_since(at).min(FORECAST);
        reach.saturating_add(window.unwrap_or_default())
    }
}

// === impl ExpectedReport ===

impl ExpectedReport {
    /// The expected replicas of a span, which the forecasts of the situation cover.
    ///
    /// # Errors
    /// Neither cron windows nor a forecast apply to the span.
    pub fn new(mut situation: Situation, span: Span) -> Result<Self, Error> {
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
        let forecast_until = forecasts.iter().filter_map(|it| it.reach(workload)).min();
        situation.require_knowledge(span, forecast_until)?;
        let count = situation.observation.scale.spec;
        let ahead = Ahead::new(workload.clone(), forecasts, count, span.from);
        let (minutes, changes) = collected(ahead.take_while(|minute| minute.at < span.to));
        situation.note_span(span, forecast_until);
        Ok(Self {
            situation,
            span,
            forecast_until,
            replica_hours: replica_hours(&minutes),
            message: verdict(&minutes, span),
            minutes,
            changes,
        })
    }
}

/// Returns the replica-hours of some minutes.
fn replica_hours(minutes: &[Minute]) -> f64 {
    minutes.iter().map(|it| it.replicas.as_f64()).sum::<f64>() / 60.0
}

/// The minutes of a span in one sentence.
fn verdict(minutes: &[Minute], span: Span) -> String {
    let least = minutes.iter().map(|it| it.replicas).min();
    let least = least.unwrap_or_default();
    // The last maximum in reverse order is the first one in the order of time.
    let most = minutes.iter().rev().max_by_key(|it| it.replicas);
    let (most, at) = most.map_or((least, span.from), |it| (it.replicas, it.at));
    let hours = replica_hours(minutes);
    if least == most {
        return format!("{most} replicas throughout, {hours:.1} replica-hours");
    }
    format!(
        "{least} to {most} replicas, {hours:.1} replica-hours; the most from {}",
        clock(at)
    )
}

/// Writes a situation without its forecasts, which a span shows otherwise.
fn known<S: Serializer>(of: &Situation, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Header<'a> {
        metadata: Metadata,
        known_at: Timestamp,
        bounds: ReplicaBounds,
        assumptions: &'a [String],
    }
    Header {
        metadata: (&of.autoscaler).into(),
        known_at: of.at,
        bounds: of.workload.bounds,
        assumptions: &of.assumptions,
    }
    .serialize(to)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
#[expect(clippy::ref_option, reason = "serde passes references")]
fn source_word<S: Serializer>(of: &Option<Source>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(source(*of))
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
    ) -> Result<(), PlanError> {
        if self.workload.asks_without_metrics() {
            return Ok(());
        }
        if self.workload.floor.prediction.is_none() {
            return Err(PlanError::NothingAhead);
        }
        match forecast_until {
            Some(reach) if span.to > reach => {
                Err(PlanError::BeyondForecast(span.to, self.at, reach))
            }
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

/// The word for a source; the bounds where nothing proposes a count.
pub const fn source(source: Option<Source>) -> &'static str {
    match source {
        Some(source) => source.as_str(),
        None => "bounds",
    }
}
