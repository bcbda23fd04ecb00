//! One sentence per decision: the count, the proposal it comes from, and the limit that changed it.
//!
//! Each source is reported with the count that its value asks for, and with the count that it is held at:
//!
//! ```text
//! 7 replicas: the forecast for load (6.6 over the next 60 min at 1 per replica) asks for 7, above observed 4
//! 7 replicas: the forecast for load (7.2 over the next 3 min at 1 per replica) asks for 7 (3 % above the target)
//! 7 replicas: the forecast for load (6.1 to 7.4 over the next 3 min at 1 per replica) keeps 7, above observed 4
//! 9 replicas: cpu at 35 % against a target of 50 % asks for 7; held at 9: 2 pods have no metrics yet
//! ```

use std::cmp::Ordering;
use std::fmt::Write as _;

use foretide_models::DemandBounds;
use jiff::{SignedDuration, Timestamp};

use super::decision::{DecidedWindow, Decision};
use super::limit::Limit;
use super::proposals::largest;
use crate::Replicas;
use crate::cron::Zone;
use crate::forecast::is_between;
use crate::proposal::{Proposal, Reason, Source, of_source};
use crate::words::{counted, span};

impl Decision {
    /// Explanation of the count in one English sentence without a full stop. Times of a cron window are in its own
    /// zone, others are UTC; the same decision always gives the same sentence.
    pub fn message(&self) -> String {
        match self.limit {
            Some(Limit::InvalidBounds) => {
                let (min, max) = (self.bounds.min, self.bounds.max);
                format!("no decision: maxReplicas {max} is below minReplicas {min}")
            }
            Some(Limit::Paused) => format!(
                "{}: autoscaling is paused because the workload is scaled to zero; scale it up to resume",
                replicas(self)
            ),
            Some(Limit::NoActiveWindow) => format!("{}: {}", replicas(self), self.limit_clause()),
            _ => {
                let mut message = format!("{}: {}", replicas(self), self.cause());
                let clause = self.limit_clause();
                if !clause.is_empty() {
                    message.push_str("; ");
                    message.push_str(&clause);
                }
                message
            }
        }
    }

    /// The limit that changed the count last, without the count; empty if there is none.
    ///
    /// The clause is the part of [`Decision::message`] after the semicolon, and the message of the conditions
    /// `AbleToScale` and `ScalingLimited`.
    pub(super) fn limit_clause(&self) -> String {
        let until = self
            .limit_until
            .map(|at| format!(" until {}", clock(at, &Zone::utc(), self.at)))
            .unwrap_or_default();
        match self.limit {
            None | Some(Limit::Paused | Limit::InvalidBounds) => String::new(),
            Some(Limit::TooFewReplicas) => format!("raised to minReplicas {}", self.bounds.min),
            Some(Limit::TooManyReplicas) => format!("capped at maxReplicas {}", self.bounds.max),
            Some(Limit::ScaleUpLimit) => {
                format!("scale-up is limited to {} in this step", self.desired)
            }
            Some(Limit::ScaleDownLimit) => {
                format!("scale-down is limited to {} in this step", self.desired)
            }
            Some(Limit::ScaleUpStabilized) => format!("held by the scale-up window{until}"),
            Some(Limit::ScaleDownStabilized) => format!("held by the scale-down window{until}"),
            Some(Limit::WithinTolerance) => format!(
                "{} stay, which is within the tolerance of the HorizontalPodAutoscaler",
                self.current
            ),
            Some(Limit::HistoryLost) => format!("not lowered{until}: the scaling history was lost"),
            Some(Limit::MetricUnavailable) => self.unavailable(),
            Some(Limit::NoActiveWindow) => {
                let opens = self
                    .windows
                    .iter()
                    .filter_map(|window| Some((window.state.next_transition?, window)))
                    .min_by_key(|(at, window)| (*at, &window.name))
                    .map_or_else(String::new, |(at, window)| {
                        let time = clock(at, &window.zone, self.at);
                        format!("; {} opens at {time}", window.name)
                    });
                format!("no cron window is open, so the current count stays{opens}")
            }
        }
    }

    fn unavailable(&self) -> String {
        let names: Vec<_> = of_source(&self.proposals, Source::Observed)
            .filter(|p| p.replicas.is_none())
            .map(|p| format!("{} ({})", short(&p.name), p.reason))
            .collect();
        format!(
            "not lowered while a metric has no value: {}",
            names.join(", ")
        )
    }

    /// The winning proposal, its numbers, the proposals of the other sources, and the hold on the count.
    fn cause(&self) -> String {
        let Some((winner, count)) = self.winning() else {
            return "no metric, forecast or cron asks for a count".to_owned();
        };
        let asked = winner.asked.unwrap_or(count);
        let mut text = format!("{} {}", self.subject(winner), asks_for(winner, asked));
        if let (Source::Cron, Some(window)) = (winner.source, self.window(&winner.name))
            && let Some(until) = window.state.next_transition
        {
            let _infallible = write!(text, " until {}", clock(until, &window.zone, self.at));
        }
        if winner.reason == Reason::WithinTolerance && asked != count {
            let _infallible = write!(text, ", which is within the tolerance of {count}");
        }
        let others = self.others(winner);
        for (word, order) in [
            ("the same as", Ordering::Equal),
            ("above", Ordering::Less),
            ("below", Ordering::Greater),
        ] {
            let names: Vec<_> = others
                .iter()
                .filter(|other| other.asked.or(other.replicas).cmp(&Some(asked)) == order)
                .map(|other| other_clause(other, order, self.current))
                .collect();
            if !names.is_empty() {
                let _infallible = write!(text, ", {word} {}", names.join(" and "));
            }
        }
        if winner.reason == Reason::PodsWithoutMetrics {
            let held = held_at(count, self.current);
            let _infallible = write!(text, "; {held}: {}", winner.message);
        }
        text
    }

    /// The largest proposal of each source but that of the winner.
    fn others(&self, winner: &Proposal) -> Vec<&Proposal> {
        Source::ALL
            .iter()
            .filter(|source| **source != winner.source)
            .filter_map(|source| largest(of_source(&self.proposals, *source), None))
            .collect()
    }

    /// The proposal that wins, and its count.
    pub(super) fn winning(&self) -> Option<(&Proposal, Replicas)> {
        let winner = self.winner.as_ref()?;
        let proposal = self
            .proposals
            .iter()
            .find(|p| p.source == winner.source && p.name == winner.name)?;
        Some((proposal, proposal.replicas?))
    }

    fn window(&self, cron: &str) -> Option<&DecidedWindow> {
        self.windows.iter().find(|window| window.name == cron)
    }

    fn subject(&self, proposal: &Proposal) -> String {
        let subject = proposal.source.phrases().subject.to_owned() + &short(&proposal.name);
        let Some((value, target)) = proposal.value.zip(proposal.target) else {
            return subject;
        };
        let unit = proposal.unit;
        if proposal.source != Source::Forecast {
            let (value, target) = (unit.amount(value), unit.amount(target));
            return format!("{subject} at {value} against a target of {target}");
        }
        let value = match kept_between(proposal) {
            Some(DemandBounds { raise, hold }) => {
                format!("{} to {}", unit.plain(raise), unit.amount(hold))
            }
            None => unit.amount(value),
        };
        // A direct forecast covers the lead time, which may be shorter than the prediction window.
        let ahead = proposal
            .details
            .as_ref()
            .and_then(|details| details.window)
            .or(self.prediction_window)
            .map(|window| format!(" over the next {}", span(window)))
            .unwrap_or_default();
        let target = unit.plain(target);
        format!("{subject} ({value}{ahead} at {target} per replica)")
    }
}

fn replicas(decision: &Decision) -> String {
    counted(decision.desired.get(), "replica")
}

/// The bounds of a forecast that keeps its last proposal, if that carries a demand between them; none while they are
/// one value.
fn kept_between(proposal: &Proposal) -> Option<DemandBounds> {
    let bounds = proposal.details.as_ref()?.bounds?;
    let carried = proposal.replicas?.as_f64() * proposal.target?;
    let is_kept = proposal.reason == Reason::WithinTolerance;
    (is_kept && is_between(bounds, carried)).then_some(bounds)
}

/// `asks for 7`; for a forecast also the excess over the target, or `keeps 7`.
fn asks_for(proposal: &Proposal, asked: Replicas) -> String {
    if kept_between(proposal).is_some() {
        return format!("keeps {asked}");
    }
    let over = match (proposal.source, proposal.value, proposal.target) {
        (Source::Forecast, Some(need), Some(target)) => need / (target * asked.as_f64()) - 1.0,
        _ => 0.0,
    };
    // A rounding error is no excess; `Replicas::for_demand` leaves out as much.
    if over > 1e-8 && over.is_finite() {
        format!(
            "asks for {asked} ({:.0} % above the target)",
            (100.0 * over).ceil()
        )
    } else {
        format!("asks for {asked}")
    }
}

/// An identifier without its kind: `cpu` for `resource.cpu`.
fn short(identifier: &str) -> String {
    let (kind, rest) = identifier.split_once('.').unwrap_or(("", identifier));
    match (kind, rest.split_once('.')) {
        ("container-resource", Some((resource, container))) => {
            format!("{resource} of container {container}")
        }
        ("resource" | "pods" | "object" | "external", _) => rest.to_owned(),
        _ => identifier.to_owned(),
    }
}

/// Effect of pods without metrics on a count: they hold it, or make a step smaller.
fn held_at(count: Replicas, current: Replicas) -> String {
    if count == current {
        format!("held at {count}")
    } else {
        format!("limited to {count}")
    }
}

/// The count that a source other than the winner asks for, and the reason for its hold.
fn other_clause(other: &Proposal, order: Ordering, current: Replicas) -> String {
    let (Some(asked), Some(replicas)) = (other.asked, other.replicas) else {
        let count = other
            .replicas
            .filter(|_| order.is_ne())
            .map_or_else(String::new, |count| format!(" {count}"));
        return format!("{}{count}", other.source);
    };
    match other.reason {
        Reason::PodsWithoutMetrics => format!(
            "{} {asked} ({}: {})",
            other.source,
            held_at(replicas, current),
            other.message
        ),
        _ => format!(
            "{} {asked} (within the tolerance of {replicas})",
            other.source
        ),
    }
}

/// A time of day in a zone, with the date if it is 20 hours away or more.
fn clock(at: Timestamp, zone: &Zone, now: Timestamp) -> String {
    // A time of day less than 20 hours away cannot be mistaken for the one of the next day.
    let near = at.duration_since(now).abs() < SignedDuration::from_hours(20);
    let format = match (near, at.as_second().rem_euclid(60)) {
        (true, 0) => "%H:%M",
        (true, _) => "%H:%M:%S",
        (false, _) => "%F %H:%M",
    };
    let local = at.to_zoned(zone.rules().clone());
    format!("{} {}", local.strftime(format), zone.name())
}
