//! Both lanes and their join: from what was seen to one count, with every number in between.
//!
//! ```text
//! readings   -> observed lane (the autoscaler's own algorithm) --+
//!                                                                +-> max -> pauses, holds -> desired
//! forecast, cron -> floor lane ----------------------------------+
//! ```
//!
//! A child autoscaler is given bounds under which it reaches `desired` by itself; only where it would
//! not, its minimum is `desired`, because below its minimum it reads no metrics. Pure: the same
//! arguments give the same decision, and the history comes back as a value. It refuses to act:
//! [`action`] says what to do, others do it.

pub mod action;
mod combine;
mod delegated;
pub mod floor;
pub mod history;
#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "an index out of range fails the test, as it should"
)]
mod laws;
mod proposals;

use jiff::{SignedDuration, Timestamp};

use super::cron::WindowState;
use super::explain::{self, Condition};
use super::forecast::ForecastReading;
use super::hpa::{Behavior, Pass, Settings};
use super::proposal::{Proposal, Source};
use super::workload::{Mode, Strategy, Workload};
use super::{Observation, ReplicaBounds, Replicas};
use action::Action;
use floor::{Floor, Lane};
use history::{History, Sighting, Windows};

pub(super) use combine::Joined;
use delegated::Shaping;
use proposals::Asked;

/// Everything one decision is made from besides the spec and the history.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Scale, pods and readings; the readings parallel to the workload's metrics.
    pub observation: Observation,
    /// What the forecaster says, one entry per metric it knows of.
    pub forecasts: Vec<ForecastReading>,
    /// The child autoscaler as it stands in the cluster, if there is one.
    pub child: Option<Child>,
    /// This workload's part of a floor that was decided for a whole fleet, if it is part of one and something
    /// asks: it passed every window there, and is the floor as it is.
    pub share: Option<Replicas>,
}

/// A child autoscaler as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its `minReplicas`.
    pub min: Replicas,
    /// Its `maxReplicas`.
    pub max: Replicas,
    /// Its `desiredReplicas`, if it has a status: what it scaled to, which another hand may have changed
    /// since.
    pub desired: Option<Replicas>,
    /// Its `lastScaleTime`. The API cuts it to seconds; what was cut off belongs added back, so that
    /// a change is never taken for older than it is.
    pub last_scale: Option<Timestamp>,
}

/// The explained result.
#[derive(Clone, Debug)]
pub struct Decision {
    /// When it was made.
    pub at: Timestamp,
    /// The count then.
    pub current: Replicas,
    /// What each source asked for: observed, forecast, cron.
    pub proposals: Vec<Proposal>,
    /// Whose proposal is the largest.
    pub winner: Option<Winner>,
    /// The largest proposal.
    pub maximum: Option<Replicas>,
    /// After the stabilization windows of both lanes.
    pub stabilized: Replicas,
    /// After the scaling policies of both lanes.
    pub limited: Replicas,
    /// After bounds, pauses and holds: the result.
    pub desired: Replicas,
    /// The floor lane's result; absent if forecast and cron ask for nothing and nothing is held.
    pub floor: Option<Replicas>,
    /// What changed the result last, if anything did.
    pub limit: Option<Limit>,
    /// Until when it does, if a window or a hold does it and time alone ends it.
    pub limit_until: Option<Timestamp>,
    /// The cron windows by name.
    pub windows: Vec<(String, WindowState)>,
    /// `Ready`, `PredictionReady`, `CronReady`, `AbleToScale`, `ScalingActive`, `ScalingLimited`; with
    /// a child autoscaler its own last three count instead.
    pub conditions: Vec<Condition>,
    /// What to do.
    pub action: Action,
    /// The observed lane's pass; absent without metrics.
    pub observed: Option<Pass>,
    /// The floor lane's steps.
    pub floor_lane: Floor,
    /// What the child autoscaler, as it stood, is expected to answer to this reading.
    pub mirror_desired: Option<Replicas>,
    /// The bounds it was made under.
    pub bounds: ReplicaBounds,
    /// How far the forecasts look ahead, if there are any.
    pub prediction_window: Option<SignedDuration>,
}

/// Whose proposal is the largest; of equal ones, the first in the order of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winner {
    /// The source.
    pub source: Source,
    /// The metric or cron.
    pub name: String,
}

/// What can change the count between the largest proposal and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Raised to `minReplicas`.
    TooFewReplicas,
    /// Lowered to `maxReplicas`.
    TooManyReplicas,
    /// Lowered to what scaling up may reach now.
    ScaleUpLimit,
    /// Raised to what scaling down may reach now.
    ScaleDownLimit,
    /// A lower value in the scale-up window holds it down.
    ScaleUpStabilized,
    /// A higher value in the scale-down window holds it up.
    ScaleDownStabilized,
    /// A metric is unavailable: not below the current count.
    MetricUnavailable,
    /// History was lost: not below the current count.
    HistoryLost,
    /// At zero replicas by somebody else's hand: left alone.
    Paused,
    /// There is nothing but cron windows, and none is open: the current count stays.
    NoActiveWindow,
    /// `maxReplicas` is below `minReplicas`: nothing is decided.
    InvalidBounds,
}

impl Limit {
    /// The `UpperCamelCase` word used in status and conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooFewReplicas => "TooFewReplicas",
            Self::TooManyReplicas => "TooManyReplicas",
            Self::ScaleUpLimit => "ScaleUpLimit",
            Self::ScaleDownLimit => "ScaleDownLimit",
            Self::ScaleUpStabilized => "ScaleUpStabilized",
            Self::ScaleDownStabilized => "ScaleDownStabilized",
            Self::MetricUnavailable => "MetricUnavailable",
            Self::HistoryLost => "HistoryLost",
            Self::Paused => "Paused",
            Self::NoActiveWindow => "NoActiveWindow",
            Self::InvalidBounds => "InvalidBounds",
        }
    }
}

/// Decides how many replicas a workload shall have at `now`, and what to do about it.
///
/// # Guarantees
/// - `desired` is within the bounds, but for a paused workload (zero) and crossed bounds (no action).
/// - A missing reading never lowers the count, a missing forecast never blocks anything.
/// - The returned history is the one to give to the next decision, also when nothing was written.
#[must_use]
pub fn decide(
    workload: &Workload,
    seen: &Seen,
    history: &History,
    settings: &Settings,
    now: Timestamp,
) -> (Decision, History) {
    let step = Step {
        workload,
        seen,
        settings,
        now,
    };
    let mut history = step.recall(history.clone());
    let asked = step.ask(&mut history);
    let floor = step.floor(asked.raw, &history);
    let joined = step.join(asked.pass.as_ref(), &floor, &history);
    let shaping = step.shape(asked.pass.as_ref(), &floor, &joined, &history);
    let outcome = Outcome {
        floor,
        joined,
        shaping,
        until: step.limit_until(&joined, &history),
    };
    step.remember(&mut history, &asked, shaping);
    (step.explained(asked, &outcome), history)
}

/// The arguments of a decision, passed around as one.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    workload: &'a Workload,
    seen: &'a Seen,
    settings: &'a Settings,
    now: Timestamp,
}

/// What came of it.
struct Outcome {
    floor: Floor,
    joined: Joined,
    shaping: Shaping,
    until: Option<Timestamp>,
}

impl<'a> Step<'a> {
    fn current(&self) -> Replicas {
        self.seen.observation.scale.spec
    }

    fn bounds(&self) -> ReplicaBounds {
        self.workload.bounds
    }

    fn behavior(&self) -> Option<&'a Behavior> {
        self.workload.behavior.as_ref()
    }

    fn crossed(&self) -> bool {
        self.bounds().max < self.bounds().min
    }

    /// Whether a child autoscaler writes the scale.
    fn delegates(&self) -> bool {
        self.workload.strategy == Strategy::Auto && self.workload.mode_in_force() == Mode::Delegated
    }

    /// Whether the workload is at zero by somebody else's hand, which is a pause.
    fn paused(&self, history: &History) -> bool {
        let hpa = self.workload.hpa(self.bounds());
        self.current() == Replicas::ZERO
            && self.bounds().min > Replicas::ZERO
            && !self
                .settings
                .zero
                .computes_at_zero(&hpa, history.log.scaled_to_zero)
    }

    fn lane(&self) -> Lane<'a> {
        Lane {
            bounds: self.bounds(),
            behavior: self.behavior(),
            windows: Windows::in_force(self.behavior(), self.settings),
            current: self.current(),
            slack: if self.delegates() {
                delegated::SYNC_PERIOD
            } else {
                SignedDuration::ZERO
            },
        }
    }

    /// The floor lane's result, and at least what a fleet decided for this workload.
    fn floor(&self, raw: Option<Replicas>, history: &History) -> Floor {
        let lane = self.lane().floor(raw, history, self.now);
        let share = self.seen.share;
        Floor {
            raw: lane.raw.max(share),
            held: lane.held.max(share),
            limited: lane.limited.max(share),
            floor: lane
                .floor
                .max(self.bounds().clamp(share.unwrap_or_default())),
        }
    }

    /// The history as the decision begins: changes of the child taken in, logs started.
    fn recall(&self, mut history: History) -> History {
        history.release(self.now);
        if !self.delegates() {
            history.sighting = None;
            return history;
        }
        let child = self.seen.child;
        let child_scaled = child.and_then(|child| child.last_scale);
        let sighting = Sighting {
            current: self.current(),
            child_scaled,
            awaited: None,
        };
        let scaled_to = child.and_then(|child| child.desired);
        history = history.notice(self.behavior(), sighting, scaled_to);
        history.begin_mirror(child.is_none(), self.current(), self.now);
        history
    }

    /// Until when a window or a hold keeps the count where it is.
    fn limit_until(&self, joined: &Joined, history: &History) -> Option<Timestamp> {
        let windows = Windows::in_force(self.behavior(), self.settings);
        let (window, up) = match joined.limit? {
            Limit::HistoryLost => return history.hold_until,
            Limit::ScaleDownStabilized => (windows.down, false),
            Limit::ScaleUpStabilized => (windows.up, true),
            _ => return None,
        };
        let binds = |(at, count): &(Timestamp, Replicas)| {
            let holds = if up {
                *count <= joined.desired
            } else {
                *count >= joined.desired
            };
            holds && windows.reaches(window, *at, self.now)
        };
        let last = if joined.from_floor {
            history
                .floors
                .iter()
                .map(|f| (f.at, f.raw))
                .filter(binds)
                .map(|(at, _)| at)
                .max()
        } else {
            let readings = history
                .log
                .recommendations()
                .iter()
                .map(|r| (r.at, r.replicas));
            readings.filter(binds).map(|(at, _)| at).max()
        };
        last?.checked_add(window).ok()
    }

    fn explained(&self, asked: Asked, outcome: &Outcome) -> Decision {
        let Outcome {
            floor,
            joined,
            shaping,
            until,
        } = *outcome;
        let winner = asked.winner();
        let mut decision = Decision {
            at: self.now,
            current: self.current(),
            winner: winner.map(|(p, _)| Winner {
                source: p.source,
                name: p.name.clone(),
            }),
            maximum: winner.map(|(_, count)| count),
            stabilized: joined.stabilized,
            limited: joined.limited,
            desired: joined.desired,
            floor: floor.held.map(|_| floor.floor),
            limit: joined.limit,
            limit_until: until,
            conditions: Vec::new(),
            action: action::action(self.workload, self.current(), &joined, shaping.bounds),
            floor_lane: floor,
            mirror_desired: shaping.expected,
            bounds: self.bounds(),
            prediction_window: self.workload.prediction.as_ref().map(|p| p.window),
            proposals: asked.proposals,
            windows: asked.windows,
            observed: asked.pass,
        };
        decision.conditions = explain::conditions(self.workload, &decision);
        decision
    }

    /// Writes down what this decision adds to the history.
    fn remember(&self, history: &mut History, asked: &Asked, shaping: Shaping) {
        if self.crossed() {
            return;
        }
        let paused = self.paused(history);
        if let Some(pass) = &asked.pass {
            history.log = pass.log.clone();
        }
        history.await_child(shaping.awaited, self.now);
        if self.delegates() && self.current() >= shaping.bounds.min {
            history.log.mark_mirrored(self.now);
        }
        let remembers = history
            .floors
            .iter()
            .any(|floor| floor.raw > Replicas::ZERO);
        if paused {
            return;
        }
        if self.workload.has_floor_sources() || remembers {
            let windows = Windows::in_force(self.behavior(), self.settings);
            history.log_floor(asked.raw, windows, self.now);
        } else {
            history.floors.clear();
        }
    }
}
