//! The policy of a fleet: how a validated spec divides its replicas over member clusters. Data only.

use jiff::SignedDuration;

use super::{Affinity, Toleration};
use foretide_domain::{ReplicaBounds, Replicas, workload::Mode};

/// The division of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The assignment policy.
    pub kind: AssignmentKind,
    /// MIN and MAX: `minReplicas` and `maxReplicas` of the fleet, or of each member under
    /// [`AssignmentKind::Duplicated`].
    pub bounds: ReplicaBounds,
    /// The clusters that are candidates.
    pub affinity: Affinity,
    /// Weights, priorities and thresholds by cluster.
    pub preferences: Vec<Preference>,
    /// The weight of members under [`AssignmentKind::DynamicWeighted`].
    pub weight_by: WeightBy,
    /// True if members may be scaled to zero replicas.
    pub scaling_to_zero: bool,
    /// The time for which pods must be unschedulable before other members get the replicas.
    pub delay: SignedDuration,
    /// The fate of a lost member's share.
    pub failure: FailurePolicy,
    /// The time for which a member may be lost before it counts as failed.
    pub toleration: SignedDuration,
    /// Taints of clusters that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// The creator of the workload in members.
    pub source: WorkloadSource,
    /// The writer of the scale in members.
    pub mode: Mode,
    /// True if what is decided is only shown.
    pub previewed: bool,
    /// Least time between two changes of one member's budget.
    pub cooldown: SignedDuration,
    /// The number of consecutive observations that must confirm a reason before budget or pods are taken away.
    pub settle: u32,
    /// The sync period of the hub: how far apart observations are.
    pub period: SignedDuration,
    /// Utilization, as a fraction of the target, below which a minimum may move; absent means never (R7).
    pub min_utilization: Option<f64>,
    /// The tolerance of the members' autoscalers: a demand within it needs no change.
    pub tolerance: f64,
    /// The generation of the spec; budgets are assigned again when it changes.
    pub generation: i64,
}

impl Policy {
    /// The policy of a fleet with defaults for all optional fields.
    ///
    /// # Units
    /// `delay` 60 s, `toleration` 300 s, `cooldown` 120 s, `settle` 3 observations: the documented defaults of the
    /// spec. `period`, `tolerance` and `generation` do not come from the spec; here they are 15 s, 0.1 and 1.
    pub fn new(kind: AssignmentKind, bounds: ReplicaBounds) -> Self {
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
            previewed: false,
            cooldown: SignedDuration::from_secs(120),
            settle: 3,
            period: SignedDuration::from_secs(15),
            min_utilization: None,
            tolerance: 0.1,
            generation: 1,
        }
    }
}

foretide_domain::words! {
    /// The assignment policies.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum AssignmentKind {
        /// Every member gets MIN and MAX in full.
        #[default]
        Duplicated,
        /// The fewest members possible: those that run pods first, then the largest.
        Aggregated,
        /// By the weights of the preferences.
        StaticWeighted,
        /// By capacity or by demand.
        DynamicWeighted,
        /// Highest priority first.
        Prioritized,
    }
}

/// The weight of members under [`AssignmentKind::DynamicWeighted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightBy {
    /// The replicas that a member can run.
    #[default]
    Capacity,
    /// The member's part of the demand.
    Demand,
}

/// The fate of a lost member's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The lost member keeps it.
    #[default]
    Retain,
    /// The other members get it.
    Reassign,
}

/// The creator of the workload in members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkloadSource {
    /// Other tools; a member without the workload is no candidate.
    #[default]
    Members,
    /// The hub copies it there.
    Hub,
}

/// The terms of the policy for the clusters that an affinity matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preference {
    /// The clusters.
    pub targets: Affinity,
    /// Weight under [`AssignmentKind::StaticWeighted`].
    pub weight: Option<u64>,
    /// Priority under [`AssignmentKind::Prioritized`]; larger comes earlier.
    pub priority: Option<i64>,
    /// Fewest replicas of one cluster.
    pub min: Option<Replicas>,
    /// Most replicas of one cluster.
    pub max: Option<Replicas>,
    /// True if the clusters add nodes by themselves, so that their capacity counts as MAX.
    pub elastic: bool,
}
