//! What was decided for a fleet, with every reason. Data, and the words for it.

use jiff::Timestamp;

use crate::domain::{Replicas, observation::Status};

/// The explained result for a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetDecision {
    /// When it was made.
    pub at: Timestamp,
    /// The members, by name; those that are not candidates and have nothing of ours are left out.
    pub members: Vec<MemberDecision>,
    /// The order in which to write, as positions in `members`: a count that one loses comes before one that another
    /// gains, unless ready pods would end (then the other way round).
    pub order: Vec<usize>,
    /// What no member can take of MAX.
    pub unassigned: Replicas,
    /// What no member can take of the floor.
    pub unmet_floor: Replicas,
    /// `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    pub conditions: Vec<Condition>,
}

/// What was decided for one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberDecision {
    /// The member's name.
    pub name: String,
    /// What is to be done.
    pub action: Action,
    /// The `minReplicas` to write: the larger of its budget's and its floor.
    pub min: Replicas,
    /// The `maxReplicas` to write; zero means no autoscaler there.
    pub max: Replicas,
    /// Its share of the fleet's floor.
    pub floor: Replicas,
    /// The replicas to write, where the hub writes them: Create, Wake, Sleep, Drain; and always in Direct.
    pub replicas: Option<Replicas>,
    /// Whether its autoscaler may not scale down now, because another member shall first (R9).
    pub hold: bool,
    /// What it can run in all; absent when unknown.
    pub capacity: Option<Replicas>,
    /// Why, the deciding reason first.
    pub reasons: Vec<Reason>,
}

/// What is to be done with a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing differs.
    #[default]
    Keep,
    /// The workload (where the hub places it) and the autoscaler are to be created.
    Create,
    /// The autoscaler's bounds or the replicas are to be changed.
    Update,
    /// From zero replicas to one or more.
    Wake,
    /// To zero replicas; the autoscaler stays.
    Sleep,
    /// Deselected or without a budget: to zero replicas once the others serve.
    Drain,
    /// Deselected and drained: the autoscaler goes, and the workload if the hub placed it.
    Delete,
    /// Not touched, because its state is not known or somebody else writes it.
    Skip,
}

/// Why a member has what it has. Stable words, `UpperCamelCase` in status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// R0: the policy cannot be carried out.
    Invalid,
    /// R1: its state is not known.
    Unknown,
    /// R2: lost for longer than tolerated; its share is retained or reassigned.
    Failed,
}

/// One condition of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionKind,
    /// Whether it holds.
    pub status: Status,
    /// Why: one `UpperCamelCase` word of a closed set.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// The type of a fleet's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionKind {
    /// Whether budgets could be assigned.
    Assigned,
    /// Whether the budgets fit what the members need.
    Balanced,
    /// Whether every candidate can be reached.
    MembersReachable,
    /// Whether somebody else writes replicas in a member.
    ReplicaConflict,
    /// Whether the capacity of every candidate is known.
    CapacityKnown,
}
