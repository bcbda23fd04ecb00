//! The decisions ahead: the counts that forecasts, cron windows and bounds ask for, minute by minute, while future
//! measurements are unknown.
//!
//! ```text
//! forecasts made now --peak of each minute's window--+
//!                                                    +--> decide(), without metrics --> ExpectedMinute
//! cron windows, bounds ------------------------------+
//! ```
//!
//! Each decision is made by [`decide`]. Metrics can only ask for more, so these counts are the fewest to expect of a
//! workload with metrics.

use std::fmt::Write as _;

use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};

use super::{MINUTE, acting};
use crate::{
    Observation, Replicas, Scale,
    autoscale::history::History,
    autoscale::{Decision, Inputs, Limit, decide},
    forecast::{ForecastReading, Predicted, Refused},
    hpa::Settings,
    lead_time::LeadTime,
    proposal::{ForecastDetails, Reason, Source},
    words::counted,
    workload::Workload,
};

/// The forecast of one metric, made before the first minute.
#[derive(Clone, Debug)]
pub struct ForecastAhead {
    /// Identifier of the metric.
    pub name: String,
    /// The forecast and the demand that one replica carries, in the same unit; or the reason why there is none.
    pub made: Result<(Forecast, f64), Refused>,
    /// The lead time that the forecast assumes.
    pub lead_time: LeadTime,
}

/// Expectation for one minute.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedMinute {
    /// Beginning of the minute.
    pub at: Timestamp,
    /// Number of replicas that are asked for.
    pub replicas: Replicas,
    /// Number of replicas that the forecasts ask for, before rounding; `None` where no forecast reaches.
    pub forecast_replicas: Option<f64>,
    /// Source of the winning proposal; `None` if neither a forecast nor a cron window proposes a count.
    pub source: Option<Source>,
    /// Explanation of the count, in one sentence without a full stop.
    pub reason: String,
}

/// The expected minutes of a workload, one after the other, without end.
#[derive(Debug)]
pub struct Ahead {
    workload: Workload,
    /// True if the workload has metrics, which are left out.
    measured: bool,
    forecasts: Vec<ForecastAhead>,
    current: Replicas,
    history: History,
    now: Timestamp,
}

// === impl ForecastAhead ===

impl ForecastAhead {
    /// The last time whose window the forecast covers; `None` without a forecast.
    pub fn reach(&self, workload: &Workload) -> Option<Timestamp> {
        let (forecast, _) = self.made.as_ref().ok()?;
        forecast.end().checked_sub(window(forecast, workload)).ok()
    }

    fn reading(&self, workload: &Workload, now: Timestamp) -> ForecastReading {
        let made = self.made.as_ref();
        let outcome = made.map_err(Clone::clone).and_then(|(forecast, target)| {
            // A direct estimate is for the instant at which it was made.
            let window = window(forecast, workload);
            let direct = forecast.direct().filter(|_| now <= forecast.start());
            let direct = direct.map(|peak| Predicted {
                value: peak.value,
                bounds: peak.bounds,
                target: *target,
            });
            direct
                .or_else(|| Some(Predicted::of(forecast.highest(now, window)?, *target)))
                .ok_or_else(|| {
                    let end = forecast.end();
                    Refused::new(Reason::Expired, format!("the forecast ends at {end}"))
                })
        });
        let details = made.ok();
        ForecastReading {
            name: self.name.clone(),
            outcome,
            details: details.map(|(made, _)| ForecastDetails::of(made, self.lead_time, 0.0)),
            query: None,
        }
    }
}

/// The span whose peak is provided for.
fn window(forecast: &Forecast, workload: &Workload) -> SignedDuration {
    match (forecast.direct(), &workload.floor.prediction) {
        (Some(peak), _) => peak.window,
        (None, Some(prediction)) => prediction.window,
        (None, None) => SignedDuration::ZERO,
    }
}

// === impl Ahead ===

impl Ahead {
    /// The minutes from `now` on of a workload with this many replicas. A workload in Preview is scaled, too.
    pub fn new(
        workload: Workload,
        forecasts: Vec<ForecastAhead>,
        current: Replicas,
        now: Timestamp,
    ) -> Self {
        let measured = !workload.metrics.is_empty();
        let mut workload = acting(workload);
        workload.metrics.clear();
        Self {
            workload,
            measured,
            forecasts,
            current,
            history: History::default(),
            now,
        }
    }

    fn decide(&mut self) -> (Decision, Option<f64>) {
        let scale = Scale {
            spec: self.current,
            status: self.current,
        };
        let forecasts = self.forecasts.iter();
        let seen = Inputs {
            forecasts: forecasts
                .map(|forecast| forecast.reading(&self.workload, self.now))
                .collect(),
            observation: Observation {
                scale,
                readings: Vec::new(),
                pods: Vec::new(),
                ..Observation::default()
            },
            child: None,
            share: None,
        };
        let settings = Settings::default();
        let (decision, history) = decide(&self.workload, &seen, &self.history, &settings, self.now);
        self.history = history;
        (decision, super::forecast_replicas(&seen))
    }

    /// The count by the bounds and earlier proposals alone, and its reason.
    fn without_proposals(&self, decision: &Decision) -> (Replicas, String) {
        let floor = decision.floor_lane.floor;
        let cause = if floor > self.workload.bounds.min {
            "held by the scale-down window"
        } else {
            "minReplicas"
        };
        let window = if self.workload.floor.windows.is_empty() {
            ""
        } else {
            "; no cron window is open"
        };
        let count = counted(floor.get(), "replica");
        let mut reason = format!("{count}: {cause}{window}");
        for proposal in &decision.proposals {
            if proposal.source == Source::Forecast && proposal.replicas.is_none() {
                let (name, message) = (&proposal.name, &proposal.message);
                let _infallible = write!(reason, "; no forecast of {name}: {message}");
            }
        }
        (floor, reason)
    }

    fn scale_to(&mut self, to: Replicas) {
        let from = std::mem::replace(&mut self.current, to);
        if from != to {
            let behavior = self.workload.behavior.as_ref();
            self.history = std::mem::take(&mut self.history).applied(behavior, from, to, self.now);
        }
    }
}

impl Iterator for Ahead {
    type Item = ExpectedMinute;

    fn next(&mut self) -> Option<ExpectedMinute> {
        let (decision, forecast_replicas) = self.decide();
        let is_stopped = matches!(decision.limit, Some(Limit::Paused | Limit::InvalidBounds));
        // With metrics, an HPA would lower the count to the floor; without them nothing does.
        let is_floor = self.measured && decision.winner.is_none() && !is_stopped;
        let (replicas, reason) = if is_floor {
            self.without_proposals(&decision)
        } else {
            (decision.desired, decision.message())
        };
        self.scale_to(replicas);
        let at = self.now;
        self.now = at.checked_add(MINUTE).ok()?;
        Some(ExpectedMinute {
            at,
            replicas,
            forecast_replicas,
            source: decision.winner.map(|winner| winner.source),
            reason,
        })
    }
}
