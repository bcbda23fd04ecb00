//! What is known of one member cluster when the fleet is decided. Data only.

use std::str::FromStr;

use jiff::Timestamp;

use super::Profile;
use crate::domain::Replicas;

/// One cluster of the fleet, as it was seen.
///
/// An observation that failed is no observation: the member is [`Health::Unknown`] and its counts are those of its
/// last observation, never zero. By default it answers, and nothing else is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Its name and what it is.
    pub profile: Profile,
    /// Whether it can be reached.
    pub health: Health,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The workload there; absent when it does not exist.
    pub pods: Option<Pods>,
    /// Bounds of our autoscaler there, as they stand; absent when there is none.
    pub hpa: Option<(Replicas, Replicas)>,
    /// The count that the member's own autoscaler wants, if it says so.
    pub desired: Option<Replicas>,
    /// The demand there in replicas: the largest, over the metrics, of usage divided by the target per pod.
    /// Absent when it cannot be measured.
    pub demand: Option<f64>,
    /// How many replicas its nodes and quotas hold in all, those that are there included; absent when unknown.
    pub capacity: Option<Replicas>,
    /// Whether that is only an upper bound, because spread constraints were not looked at.
    pub is_capacity_soft: bool,
    /// When it was last seen.
    pub observed: Option<Timestamp>,
    /// Another field manager that keeps writing the replicas, if one does (R4).
    pub fought_by: Option<String>,
    /// An autoscaler of somebody else that scales the same workload, if there is one: it is not fought either.
    pub rival: Option<String>,
    /// The hub places the workload, and the one that is there is not from it: it is neither drained nor deleted.
    pub foreign: bool,
    /// Why it cannot be seen, or what will keep it from being seen before long, if anything does: lower case, no full
    /// stop.
    pub problem: Option<String>,
}

impl Member {
    /// Whether somebody else has a say in its replicas (R4): another autoscaler, or a hand that keeps writing them.
    pub(super) fn is_scaled_by_others(&self) -> bool {
        self.fought_by.is_some() || self.rival.is_some()
    }
}

/// The workload's pods in one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// `spec.replicas`.
    pub replicas: Replicas,
    /// Pods that are ready.
    pub ready: Replicas,
    /// Pods that the scheduler reports unschedulable, and those that could not be created.
    pub unschedulable: Replicas,
    /// Since when the oldest of them is.
    pub unschedulable_since: Option<Timestamp>,
}

impl Pods {
    /// The pods that have a place: those that start count, those that no node takes do not.
    #[must_use]
    pub fn placed(&self) -> Replicas {
        Replicas::new(self.replicas.get().saturating_sub(self.unschedulable.get()))
    }
}

/// Whether a member can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    #[default]
    Ready,
    /// It answers, and says that it is not healthy.
    NotReady {
        /// Since when.
        since: Timestamp,
    },
    /// It does not answer, or what it said is too old.
    Unknown {
        /// Since when it counts as lost, which may be yet to come: for a while nobody thinks anything of a silence.
        since: Timestamp,
    },
}

/// A taint of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty for none.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
    /// Since when it is there; absent means since it was seen first.
    pub since: Option<Timestamp>,
}

/// What a taint does to clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaintEffect {
    /// No new share; what is there stays.
    NoSchedule,
    /// As `NoSchedule`, where there is another choice.
    PreferNoSchedule,
    /// The share is lost when the toleration ends.
    NoExecute,
}

/// A text that is no taint effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected NoSchedule, PreferNoSchedule or NoExecute")]
pub struct ParseTaintEffectError;

impl TaintEffect {
    /// The effect as the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl FromStr for TaintEffect {
    type Err = ParseTaintEffectError;

    fn from_str(text: &str) -> Result<Self, ParseTaintEffectError> {
        let all = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];
        let found = all.into_iter().find(|effect| effect.as_str() == text);
        found.ok_or(ParseTaintEffectError)
    }
}

/// What the policy says about one member: of several preferences that match, the largest weight and priority and the
/// tightest thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Weight, if any preference gives one.
    pub weight: Option<u64>,
    /// Priority, if any preference gives one.
    pub priority: Option<i64>,
    /// Fewest replicas (zero where nothing is said, and under Duplicated).
    pub lo: Replicas,
    /// Most replicas (MAX where nothing is said, and under Duplicated).
    pub hi: Replicas,
    /// Whether it adds nodes by itself.
    pub elastic: bool,
}

/// What the fleet as a whole needs, decided before it is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// The demand of the whole fleet in replicas: the largest, over the metrics, of total usage divided by the target
    /// per pod. Absent when a metric or a member is missing.
    pub demand: Option<f64>,
    /// What forecast, cron windows and fleet-scoped metrics ask for, after stabilization: to be divided. Absent when
    /// they ask for nothing.
    pub floor: Option<Replicas>,
    /// The count that one autoscaler over the whole would set now, with the user's metrics, windows, policies and bounds.
    /// Direct divides it; Delegated, where each member has an autoscaler of its own, ends no ready pod below it. Absent
    /// when there is no such count, as under Duplicated: then Direct keeps the counts, and Delegated ends nothing.
    pub desired: Option<Replicas>,
}
