//! One workload's decision: from an observation to one count, with every number in between.
//!
//! ```text
//! readings       -> observed lane (the HPA's own algorithm) --+
//!                                                             +-> max -> pause, hold, bounds -> desired
//! forecast, cron -> floor lane -------------------------------+
//! ```
//!
//! [`decide`] is pure: the same arguments give the same decision, and the history comes back as a value.
//! A decision says what to do ([`action`]); the caller does it.
//!
//! In Delegated mode the child HPA gets bounds under which it reaches `desired` by itself. Its minimum is
//! `desired` only where it would not: below its minimum the HPA reads no metrics.
//!
//! In Metric mode there is no floor lane: forecast and cron are metrics of the observed lane ([`published`]), and the
//! child has the bounds of the spec.

pub mod action;
mod combine;
mod conditions;
mod context;
mod decision;
mod delegated;
pub mod floor;
pub mod history;
#[cfg(test)]
mod laws;
mod limit;
mod message;
mod proposals;
pub mod published;

use jiff::{SignedDuration, Timestamp};

use super::Replicas;
use super::hpa::{Settings, StabilizationWindows};
use super::proposal::Proposal;
use super::workload::{Workload, Writes};
use combine::Combined;
use context::Context;
use delegated::ChildDecision;
use floor::{Floor, FloorContext};
use history::{ChildState, History};
use proposals::Proposals;

pub use context::{Child, Inputs};
pub use decision::{Condition, ConditionKind, DecidedWindow, Decision, Winner};
pub use limit::Limit;

/// Decides how many replicas a workload should have at `now`, and what to do about it.
///
/// # Guarantees
/// - `desired` is within the bounds, except for a paused workload (zero) and for `maxReplicas` below
///   `minReplicas` (no action).
/// - A missing reading never lowers the count, and a missing forecast never blocks a decision.
/// - The returned history is the one to give to the next decision, even if nothing was written.
///
/// # Examples
/// A queue of 12 messages, 2 replicas, and a target of 4 messages per replica:
///
/// ```
/// use foretide_domain::autoscale::{Inputs, action::Action, decide, history::History};
/// use foretide_domain::hpa::{MetricSpec, Settings, Target};
/// use foretide_domain::observation::Measured;
/// use foretide_domain::workload::{Mode, Workload};
/// use foretide_domain::{Observation, ReplicaBounds, Replicas, Scale};
///
/// let workload = Workload {
///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(10)),
///     mode: Mode::Direct,
///     metrics: vec![MetricSpec::External {
///         metric: "queue".into(),
///         selector: None,
///         target: Target::AverageValue(4_000),
///     }],
///     ..Workload::default()
/// };
/// let two = Replicas::new(2);
/// let inputs = Inputs {
///     observation: Observation {
///         scale: Scale { spec: two, status: two },
///         readings: vec![Ok(Measured::Total(vec![12_000]))],
///         ..Observation::default()
///     },
///     forecasts: vec![],
///     child: None,
///     share: None,
/// };
/// let now = "2026-03-01T10:00:00Z".parse()?;
/// let (decision, _) = decide(&workload, &inputs, &History::default(), &Settings::default(), now);
/// assert_eq!(decision.action, Action::Scale { from: two, to: Replicas::new(3) });
/// assert_eq!(
///     decision.message(),
///     "3 replicas: queue at 6 against a target of 4 asks for 3"
/// );
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn decide(
    workload: &Workload,
    inputs: &Inputs,
    history: &History,
    settings: &Settings,
    now: Timestamp,
) -> (Decision, History) {
    let course = workload.course();
    let context = Context {
        workload,
        course,
        inputs,
        settings,
        now,
    };
    let mut history = context.begin(history.clone());
    let proposals = context.propose(&mut history);
    let floor = context.floor(proposals.floor, &history);
    let combined = context.combine(proposals.observed.as_ref(), &floor, &history);
    let child = context.child_hpa(proposals.observed.as_ref(), &floor, &combined, &history);
    let limit_until = context.limit_until(&combined, &history);
    context.record(&mut history, &proposals, child);
    let winner = proposals.winner(history.winner);
    history.winner = winner
        .map(|(proposal, _)| proposal.source)
        .or(history.winner);
    let limit = combined.limit_after(winner.map(|(_, count)| count));
    let mut decision = Decision {
        at: now,
        current: context.current(),
        winner: winner.map(|(proposal, _)| Winner {
            source: proposal.source,
            name: proposal.name.clone(),
        }),
        maximum: winner.map(|(_, count)| count),
        stabilized: combined.stabilized,
        limited: combined.limited,
        desired: combined.desired,
        floor: floor.held.map(|_| floor.floor),
        limit: limit.or_else(|| context.kept(winner, &combined)),
        // A window that changed nothing has no end that anybody waits for.
        limit_until: limit_until.filter(|_| limit.is_some()),
        conditions: Vec::new(),
        action: action::action(course.writes, context.current(), &combined, child.bounds),
        floor_lane: floor,
        child_desired: child.expected,
        bounds: workload.bounds,
        prediction_window: workload.floor.prediction.as_ref().map(|p| p.window),
        published: proposals.published,
        surplus: history.surplus.is_some(),
        proposals: proposals.all,
        windows: proposals.windows,
        observed: proposals.observed,
    };
    decision.conditions = conditions::conditions(workload, &decision);
    (decision, history)
}

impl Context<'_> {
    fn windows_in_force(&self) -> StabilizationWindows {
        StabilizationWindows::in_force(self.behavior(), self.settings)
    }

    /// The history as the decision begins: times ahead of `now` put back, expired holds dropped, changes by the child
    /// HPA recorded.
    fn begin(&self, history: History) -> History {
        let mut history = history.put_back(self.behavior(), self.settings, self.now);
        history.drop_expired_hold(self.now);
        if self.course.publishes {
            // A floor from before the mode was changed holds nothing.
            history.floors.clear();
        }
        if self.course.writes != Writes::Bounds {
            // A child that is created later starts without the readings of an earlier one.
            history.child = None;
            return history;
        }
        let child = self.inputs.child;
        let state = ChildState {
            current: self.current(),
            last_scale: child.and_then(|child| child.last_scale),
            pending: None,
            moved_from: None,
        };
        let scaled_to = child.and_then(|child| child.desired);
        history = history.observe_child(self.behavior(), state, scaled_to);
        // A child that does not exist yet is created after this decision, and starts its own log then.
        history.begin_mirror(child.is_none(), self.current(), self.now);
        history
    }

    /// The floor lane's result, or this workload's share of a fleet's floor if that is larger.
    fn floor(&self, raw: Option<Replicas>, history: &History) -> Floor {
        let own = FloorContext {
            bounds: self.bounds(),
            behavior: self.behavior(),
            windows: self.windows_in_force(),
            current: self.current(),
            // A child acts on the floor at its next sync.
            slack: history
                .child
                .map_or(SignedDuration::ZERO, |_| delegated::SYNC_PERIOD),
        }
        .floor(raw, history, self.now);
        let share = self.inputs.share;
        Floor {
            raw: own.raw.max(share),
            held: own.held.max(share),
            limited: own.limited.max(share),
            floor: own
                .floor
                .max(self.bounds().clamp(share.unwrap_or_default())),
        }
    }

    /// End of the window or the hold that keeps the count where it is.
    fn limit_until(&self, combined: &Combined, history: &History) -> Option<Timestamp> {
        let windows = self.windows_in_force();
        let (window, up) = match combined.limit? {
            Limit::HistoryLost => return history.hold_until,
            Limit::ScaleDownStabilized => (windows.down, false),
            Limit::ScaleUpStabilized => (windows.up, true),
            _ => return None,
        };
        let entries: Vec<(Timestamp, Replicas)> = if combined.from_floor {
            history.floors.iter().map(|f| (f.at, f.raw)).collect()
        } else {
            let log = history.log.recommendations();
            log.iter().map(|r| (r.at, r.replicas)).collect()
        };
        // The limit ends when the newest entry that still binds leaves its window.
        entries
            .into_iter()
            .filter(|(at, count)| {
                let binds = if up {
                    *count <= combined.desired
                } else {
                    *count >= combined.desired
                };
                binds && windows.reaches(window, *at, self.now)
            })
            .map(|(at, _)| at)
            .max()?
            .checked_add(window)
            .ok()
    }

    /// Reason for keeping the current count in mode Metric, where no step of the observed lane gives one.
    fn kept(&self, winner: Option<(&Proposal, Replicas)>, combined: &Combined) -> Option<Limit> {
        if !self.course.publishes || combined.desired != self.current() {
            return None;
        }
        match winner {
            None => Some(Limit::NoActiveWindow),
            Some((_, count)) if self.bounds().clamp(count) != combined.desired => {
                Some(Limit::WithinTolerance)
            }
            Some(_) => None,
        }
    }

    /// Adds this decision to the history. With crossed bounds nothing was decided, so nothing is added.
    fn record(&self, history: &mut History, proposals: &Proposals, child: ChildDecision) {
        if self.crossed() {
            return;
        }
        let paused = self.paused(history);
        if let Some(observed) = &proposals.observed {
            history.log = observed.log.clone();
        }
        history.expect_scale_up(child.pending, self.now);
        // Below its minimum an HPA reads no metrics, so its own log lacks this entry.
        if history.child.is_some() && self.current() >= child.bounds.min {
            history.log.mark_mirrored(self.now);
        }
        if paused {
            return;
        }
        // A source that was removed from the spec still counts until its last value leaves the window.
        let remembers = history
            .floors
            .iter()
            .any(|floor| floor.raw > Replicas::ZERO);
        let is_floor = self.workload.has_floor_sources() && !self.course.publishes;
        if is_floor || remembers {
            history.log_floor(proposals.floor, self.windows_in_force(), self.now);
        } else {
            history.floors.clear();
        }
    }
}
