//! The score of a run: the minutes in which too few pods served, and the replica-minutes that were requested.

use std::collections::BTreeMap;

use super::{MINUTE, Minute};
use crate::{Replicas, autoscale::Decision, proposal::Source};

/// How far past its target a replica may run before a minute counts: the autoscaler's own tolerance.
pub const TOLERATED: f64 = 1.1;

/// The totals over the evaluated minutes of a run: those with a known demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Evaluated minutes.
    pub minutes: u32,
    /// Minutes without a known demand, which count in nothing else.
    pub unknown: u32,
    /// Minutes with `demand > 1.1 * ready * target`.
    pub under: u32,
    /// What was not served: the sum of `(demand / target - 1.1 * ready)+`, in replica-minutes.
    pub missing: f64,
    /// What had to be served: the sum of `demand / target`, in replica-minutes.
    pub needed: f64,
    /// The sum of the replicas that were asked for, in replica-minutes.
    pub replica_minutes: u64,
    /// How often the count was changed.
    pub actions: u32,
    /// The minute in which the most replicas were missing, of those that were under-provisioned.
    pub worst: Option<Minute>,
    /// For how many minutes a forecast was absent, by metric and reason.
    pub absent: BTreeMap<(String, &'static str), MissingForecast>,
}

/// A reason for missing forecasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingForecast {
    /// For how many minutes.
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
        let absent = decision.proposals.iter();
        let absent = absent.filter(|p| p.source == Source::Forecast && p.replicas.is_none());
        for proposal in absent {
            let key = (proposal.name.clone(), proposal.reason.as_str());
            let missing = self.absent.entry(key).or_insert(MissingForecast {
                minutes: 0,
                message: String::new(),
            });
            missing.minutes += 1;
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
            let worse = |worst: &Minute| minute.missing_replicas() > worst.missing_replicas();
            if self.worst.as_ref().is_none_or(worse) {
                self.worst = Some(*minute);
            }
        }
    }

    /// The part of the evaluated minutes in which too few replicas served, in percent.
    #[must_use]
    pub fn under_percent(&self) -> f64 {
        percent(f64::from(self.under), f64::from(self.minutes))
    }

    /// The part of the demand beyond what served, in percent.
    #[must_use]
    pub fn missing_percent(&self) -> f64 {
        percent(self.missing, self.needed)
    }

    /// What the replicas that were asked for add up to, in hours of one.
    #[must_use]
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
    /// Whether the replicas that served were driven past their target and the tolerance.
    #[must_use]
    pub fn is_under_provisioned(&self) -> bool {
        let Some(load) = self.load else { return false };
        load.demand > TOLERATED * self.ready.as_f64() * load.target
    }

    /// How many replicas carry the demand at their target.
    #[must_use]
    pub fn needed(&self) -> Option<Replicas> {
        Some(Replicas::for_demand(self.load?.replicas()))
    }

    /// How many replicas more would have carried the demand at their target, before rounding.
    #[must_use]
    pub fn missing_replicas(&self) -> f64 {
        self.load
            .map_or(0.0, |load| load.replicas() - self.ready.as_f64())
    }
}

fn percent(part: f64, of: f64) -> f64 {
    if of > 0.0 { 100.0 * part / of } else { 0.0 }
}
