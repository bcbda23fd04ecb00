//! The score of a run: the minutes in which too few pods served, and the replica-minutes that were requested.

use std::collections::BTreeMap;

use super::{MINUTE, Minute};
use crate::{Replicas, autoscale::Decision, proposal::Source, words::grouped};

/// Greatest load of a replica, relative to its target, with which a minute is not short: the autoscaler's own
/// tolerance.
pub const TOLERATED: f64 = 1.1;

/// The totals over the evaluated minutes of a run: those with a known demand.
///
/// ```
/// use foretide_domain::Replicas;
/// use foretide_domain::sim::{Load, Minute, Score};
/// use jiff::Timestamp;
///
/// let minute = Minute {
///     at: Timestamp::UNIX_EPOCH,
///     load: Some(Load { track: 0, demand: 12.0, target: 2.0 }),
///     asked: Replicas::new(6),
///     ready: Replicas::new(5),
///     forecast_replicas: None,
///     changed: true,
/// };
/// // Five replicas at 2 each carry 11 within the tolerance.
/// assert!(minute.is_under_provisioned());
/// let mut score = Score::default();
/// score.add_minute(&minute);
/// assert_eq!((score.under_percent(), score.replica_minutes), (100.0, 6));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Evaluated minutes.
    pub minutes: u32,
    /// Minutes without a known demand, which count in nothing else.
    pub unknown: u32,
    /// Minutes with `demand > 1.1 * ready * target`.
    pub under: u32,
    /// Demand that was not served: the sum of `(demand / target - 1.1 * ready)+`, in replica-minutes.
    pub missing: f64,
    /// Demand that had to be served: the sum of `demand / target`, in replica-minutes.
    pub needed: f64,
    /// The sum of the replicas that were asked for, in replica-minutes.
    pub replica_minutes: u64,
    /// Number of changes of the count.
    pub actions: u32,
    /// The minute in which the most replicas were missing, of those that were under-provisioned.
    pub worst: Option<Minute>,
    /// Minutes without a forecast, by metric and reason.
    pub absent: BTreeMap<(String, &'static str), MissingForecast>,
}

/// A reason for missing forecasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingForecast {
    /// Number of minutes.
    pub minutes: u32,
    /// The latest message.
    pub message: String,
}

// === impl Score ===

impl Score {
    /// Adds one minute and its decision.
    pub fn add(&mut self, minute: &Minute, decision: &Decision) {
        self.add_minute(minute);
        if minute.load.is_none() {
            return;
        }
        let absent = decision
            .proposals
            .iter()
            .filter(|p| p.source == Source::Forecast && p.replicas.is_none());
        for proposal in absent {
            let key = (proposal.name.clone(), proposal.reason.as_str());
            let missing = self.absent.entry(key).or_insert(MissingForecast {
                minutes: 0,
                message: String::new(),
            });
            missing.minutes += 1;
            // Most minutes of a run repeat the message before.
            if missing.message != proposal.message {
                missing.message.clone_from(&proposal.message);
            }
        }
    }

    /// Adds one minute.
    pub fn add_minute(&mut self, minute: &Minute) {
        let Some(load) = minute.load else {
            self.unknown += 1;
            return;
        };
        self.minutes += 1;
        self.replica_minutes += u64::from(minute.asked.get());
        self.actions += u32::from(minute.changed);
        self.needed += load.replicas();
        if minute.is_under_provisioned() {
            self.under += 1;
            self.missing += load.replicas() - TOLERATED * minute.ready.as_f64();
            let missing = minute.missing_replicas();
            if self
                .worst
                .is_none_or(|worst| missing > worst.missing_replicas())
            {
                self.worst = Some(*minute);
            }
        }
    }

    /// The part of the evaluated minutes in which too few replicas served, in percent.
    pub fn under_percent(&self) -> f64 {
        percent(f64::from(self.under), f64::from(self.minutes))
    }

    /// The part of the demand beyond what served, in percent.
    pub fn missing_percent(&self) -> f64 {
        percent(self.missing, self.needed)
    }

    /// Excess of the replica-hours over those of another run, in percent.
    pub fn more_percent(&self, other: &Self) -> f64 {
        let hours = other.replica_hours();
        if hours > 0.0 {
            100.0 * (self.replica_hours() / hours - 1.0)
        } else {
            0.0
        }
    }

    /// Number of minutes without a demand, as a sentence, if there are any.
    pub fn not_evaluated(&self) -> Option<String> {
        if self.unknown == 0 {
            return None;
        }
        let all = self.unknown.saturating_add(self.minutes);
        let [some, all] = [self.unknown, all].map(|minutes| grouped(minutes.into()));
        Some(format!(
            "{some} of {all} min have no recorded demand and are not evaluated"
        ))
    }

    /// Comparison of Foretide with a plain HPA over the same minutes, as a sentence without a full stop.
    ///
    /// Both scores must be of the same minutes, so that their replica-hours can be compared.
    pub fn verdict(&self, plain: &Self) -> String {
        let minutes = match (self.under, plain.under) {
            (0, 0) => "neither Foretide nor a plain HPA is ever short of replicas".to_owned(),
            (0, plain) => format!(
                "Foretide is never short of replicas, a plain HPA {}",
                short(plain)
            ),
            (ours, plain) => format!(
                "Foretide is short of replicas {}, a plain HPA {}",
                short(ours),
                short(plain)
            ),
        };
        let cost = match self.more_percent(plain) / 100.0 {
            // A smaller difference would be shown as 0 %.
            cost if cost.abs() < 0.005 => "as many replica-hours".to_owned(),
            cost if cost > 0.0 => format!("{} more replica-hours", part(cost)),
            cost => format!("{} fewer replica-hours", part(-cost)),
        };
        let sentence = format!("{minutes}; Foretide uses {cost}");
        match self.not_evaluated() {
            Some(skipped) => format!("{sentence}; {skipped}"),
            None => sentence,
        }
    }

    /// Sum of the replicas that were asked for, in replica-hours.
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53 replica-minutes"
    )]
    pub fn replica_hours(&self) -> f64 {
        self.replica_minutes as f64 * MINUTE.as_secs_f64() / 3600.0
    }
}

// === impl Minute ===

impl Minute {
    /// Returns true if the replicas that served were driven past their target and the tolerance.
    pub fn is_under_provisioned(&self) -> bool {
        let Some(load) = self.load else { return false };
        load.demand > TOLERATED * self.ready.as_f64() * load.target
    }

    /// Number of replicas that carry the demand at their target.
    pub fn needed(&self) -> Option<Replicas> {
        Some(Replicas::for_demand(self.load?.replicas()))
    }

    /// Number of additional replicas that would have carried the demand at their target, before rounding.
    pub fn missing_replicas(&self) -> f64 {
        self.load
            .map_or(0.0, |load| load.replicas() - self.ready.as_f64())
    }
}

/// `never`, or a span such as `for 143 min`.
fn short(under: u32) -> String {
    match under {
        0 => "never".to_owned(),
        minutes => format!("for {}", span(minutes)),
    }
}

/// `143 min`; from a day on `1 d 10 h`.
fn span(minutes: u32) -> String {
    if minutes < 24 * 60 {
        return format!("{} min", grouped(minutes.into()));
    }
    let hours = minutes.saturating_add(30) / 60;
    match (hours / 24, hours % 24) {
        (days, 0) => format!("{days} d"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

/// A ratio in percent; `over 99 %` and `less than 1 %` at the ends.
fn part(ratio: f64) -> String {
    match (ratio * 100.0).round() {
        percent if percent >= 100.0 && ratio < 1.0 => "over 99 %".to_owned(),
        percent if percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

fn percent(part: f64, of: f64) -> f64 {
    if of > 0.0 { 100.0 * part / of } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_long_times_in_days_and_hours() {
        let short = |under| Score {
            under,
            minutes: 9000,
            ..Score::default()
        };
        for (minutes, expected) in [
            (143, "143 min"),
            (1439, "1,439 min"),
            (1440, "1 d"),
            (2013, "1 d 10 h"),
            (2851, "2 d"),
        ] {
            let verdict = short(0).verdict(&short(minutes));
            let expected =
                format!("Foretide is never short of replicas, a plain HPA for {expected};");
            assert!(verdict.starts_with(&expected), "{verdict}");
        }
    }
}
