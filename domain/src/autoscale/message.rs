//! One sentence per decision: the count, the proposal it comes from, and what changed it.
//!
//! ```text
//! 7 replicas: the forecast for load (6.6 over the next 60 min at 1 per replica) asks for 7, above observed 4
//! ```

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::limit::Limit;
use crate::Replicas;
use crate::proposal::{Proposal, Source};
use crate::words::counted;

impl Decision {
    /// Why this many replicas, in one English sentence without a full stop. Times are UTC; the same
    /// decision always gives the same sentence.
    #[must_use]
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

    /// What changed the count last, without the count; empty if nothing did.
    #[must_use]
    pub fn limit_clause(&self) -> String {
        let until = self
            .limit_until
            .map(|at| format!(" until {}", clock(at, self.at)));
        let until = until.unwrap_or_default();
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
                let next = self
                    .windows
                    .iter()
                    .filter_map(|(name, w)| Some((w.next_transition?, name)));
                let next = next
                    .min()
                    .map(|(at, name)| format!("; {name} opens at {}", clock(at, self.at)));
                let next = next.unwrap_or_default();
                format!("no cron window is open, so the current count stays{next}")
            }
        }
    }

    fn unavailable(&self) -> String {
        let absent = self.proposals.iter();
        let absent = absent.filter(|p| p.source == Source::Observed && p.replicas.is_none());
        let names: Vec<_> = absent
            .map(|p| format!("{} ({})", short(&p.name), p.reason))
            .collect();
        format!(
            "not lowered while metrics are unavailable: {}",
            names.join(", ")
        )
    }

    /// The largest proposal, its numbers, and the proposals of the other sources.
    fn cause(&self) -> String {
        let Some((winner, count)) = self.winning() else {
            return "no metric, forecast or cron asks for a count".to_owned();
        };
        let mut text = format!("{} asks for {count}", self.subject(winner));
        if let (Source::Cron, Some(until)) = (winner.source, self.open_until(&winner.name)) {
            let _infallible = write!(text, " until {}", clock(until, self.at));
        }
        let others = [Source::Observed, Source::Forecast, Source::Cron].into_iter();
        let others = others
            .filter(|source| *source != winner.source)
            .filter_map(|source| {
                let of_source = self.proposals.iter().filter(|p| p.source == source);
                let largest = of_source.filter_map(|p| p.replicas).max()?;
                Some((source, largest))
            });
        let (same, below): (Vec<_>, Vec<_>) = others.partition(|(_, other)| *other == count);
        for (word, list) in [("as does", same), ("above", below)] {
            let names = list.iter().map(|(source, other)| match word {
                "above" => format!("{source} {other}"),
                _ => source.to_string(),
            });
            let names: Vec<_> = names.collect();
            if !names.is_empty() {
                let _infallible = write!(text, ", {word} {}", names.join(" and "));
            }
        }
        text
    }

    fn winning(&self) -> Option<(&Proposal, Replicas)> {
        let winner = self.winner.as_ref()?;
        let mut all = self.proposals.iter();
        let proposal = all.find(|p| p.source == winner.source && p.name == winner.name)?;
        Some((proposal, proposal.replicas?))
    }

    fn open_until(&self, cron: &str) -> Option<Timestamp> {
        self.windows.iter().find(|(name, _)| name == cron)?.1.until
    }

    fn subject(&self, proposal: &Proposal) -> String {
        let name = short(&proposal.name);
        let numbers = proposal.value.zip(proposal.target);
        match (proposal.source, numbers) {
            (Source::Cron, _) => format!("the cron window {name}"),
            (Source::Observed, Some((value, target))) => {
                let (value, target) = (proposal.unit.amount(value), proposal.unit.amount(target));
                format!("{name} at {value} against a target of {target}")
            }
            (Source::Observed, None) => name,
            (Source::Forecast, Some((value, target))) => {
                let (value, target) = (proposal.unit.amount(value), proposal.unit.plain(target));
                // A direct forecast covers the lead time, which may be shorter than the prediction window.
                let direct = proposal.details.as_ref().and_then(|details| details.window);
                let ahead = direct
                    .or(self.prediction_window)
                    .map(|w| format!(" over the next {}", span(w)));
                let ahead = ahead.unwrap_or_default();
                format!("the forecast for {name} ({value}{ahead} at {target} per replica)")
            }
            (Source::Forecast, None) => format!("the forecast for {name}"),
        }
    }
}

fn replicas(decision: &Decision) -> String {
    counted(decision.desired.get(), "replica")
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

fn span(window: SignedDuration) -> String {
    match (window.as_secs(), window.as_secs().checked_rem(60)) {
        (seconds, Some(0)) => format!("{} min", seconds.div_euclid(60)),
        (seconds, _) => format!("{seconds} s"),
    }
}

/// A time of day, with the date if it is 20 hours away or more.
fn clock(at: Timestamp, now: Timestamp) -> String {
    let near = at.duration_since(now).abs() < SignedDuration::from_hours(20);
    let format = match (near, at.as_second().rem_euclid(60)) {
        (true, 0) => "%H:%M UTC",
        (true, _) => "%H:%M:%S UTC",
        (false, _) => "%F %H:%M UTC",
    };
    at.strftime(format).to_string()
}
