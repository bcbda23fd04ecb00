//! What a user asks of a fleet, already validated. Data only.

use jiff::SignedDuration;

use super::{Affinity, TaintEffect};
use crate::domain::{ReplicaBounds, Replicas, workload::Mode};

/// How a fleet is divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The assignment policy.
    pub kind: Kind,
    /// MIN and MAX: totals, or those of each member under [`Kind::Duplicated`].
    pub bounds: ReplicaBounds,
    /// Which clusters are candidates.
    pub affinity: Affinity,
    /// Weights, priorities and thresholds by cluster.
    pub preferences: Vec<Preference>,
    /// What weighs under [`Kind::DynamicWeighted`].
    pub weight_by: WeightBy,
    /// Whether members may sleep at zero replicas.
    pub scaling_to_zero: bool,
    /// How long pods must be unschedulable before other members get the replicas.
    pub delay: SignedDuration,
    /// What happens to a lost member's share.
    pub failure: FailurePolicy,
    /// How long a member may be lost before it counts as failed.
    pub toleration: SignedDuration,
    /// Taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// Who puts the workload into members.
    pub source: WorkloadSource,
    /// Who writes the scale in members.
    pub mode: Mode,
    /// Least time between two moves that touch one member.
    pub cooldown: SignedDuration,
    /// How many observations in a row must see a reason before anything is taken away.
    pub settle: u32,
    /// The hub's own period: how long an observation lasts.
    pub period: SignedDuration,
    /// Utilization, as a part of the target, below which a minimum may move; absent means never (R7).
    pub min_utilization: Option<f64>,
    /// The tolerance of the member autoscalers: a demand within it asks for no change.
    pub tolerance: f64,
    /// The generation of the spec, so that a change assigns anew.
    pub generation: i64,
}

impl Policy {
    /// The policy of a fleet of which nothing else is written.
    ///
    /// # Units
    /// `delay` 60 s, `toleration` 300 s, `cooldown` 120 s, `settle` 3 observations: the defaults that users read about.
    /// `period`, `tolerance` and `generation` are the hub's to know; here they are 15 s, 0.1 and 1.
    #[must_use]
    pub fn new(kind: Kind, bounds: ReplicaBounds) -> Self {
        Self {
            kind,
            bounds,
            affinity: Affinity::default(),
            preferences: Vec::new(),
            weight_by: WeightBy::default(),
            scaling_to_zero: false,
            delay: SignedDuration::from_secs(60),
            failure: FailurePolicy::default(),
            toleration: SignedDuration::from_secs(300),
            tolerations: Vec::new(),
            source: WorkloadSource::default(),
            mode: Mode::default(),
            cooldown: SignedDuration::from_secs(120),
            settle: 3,
            period: SignedDuration::from_secs(15),
            min_utilization: None,
            tolerance: 0.1,
            generation: 1,
        }
    }

    /// Whether members sleep at zero replicas: `scaling_to_zero`, but never where every member has the whole, because
    /// none of them stands in for another there.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.scaling_to_zero && self.kind != Kind::Duplicated
    }
}

/// The assignment policies of seed 001.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every member gets the whole.
    #[default]
    Duplicated,
    /// As few members as possible, fullest first.
    Aggregated,
    /// By given weights.
    StaticWeighted,
    /// By capacity or demand.
    DynamicWeighted,
    /// Highest priority first.
    Prioritized,
}

/// What weighs under [`Kind::DynamicWeighted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightBy {
    /// The replicas that a member can run.
    #[default]
    Capacity,
    /// The member's part of the demand.
    Demand,
}

/// What happens to a lost member's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// It stays the lost member's.
    #[default]
    Retain,
    /// The others get it.
    Reassign,
}

/// Who puts the workload into members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkloadSource {
    /// Somebody else.
    #[default]
    Members,
    /// We do.
    Hub,
}

/// What is preferred for the clusters that an affinity matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preference {
    /// Which clusters.
    pub targets: Affinity,
    /// Weight under [`Kind::StaticWeighted`].
    pub weight: Option<u64>,
    /// Priority under [`Kind::Prioritized`]; larger comes earlier.
    pub priority: Option<i64>,
    /// Fewest replicas of one cluster.
    pub min: Option<Replicas>,
    /// Most replicas of one cluster.
    pub max: Option<Replicas>,
    /// Whether the clusters add nodes by themselves.
    pub elastic: bool,
}

/// A tolerated taint of clusters, as for pods and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; absent matches every key.
    pub key: Option<String>,
    /// The taint's value; absent matches every value (operator `Exists`).
    pub value: Option<String>,
    /// The taint's effect; absent matches every effect.
    pub effect: Option<TaintEffect>,
    /// For how long a `NoExecute` taint is tolerated; absent means for ever.
    pub seconds: Option<i64>,
}
