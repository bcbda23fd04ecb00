//! One autoscaler over a fleet: its bounds and counts, divided over member clusters and rebalanced as they change.
//!
//! ```text
//! policy, members                         -> assign        -> budgets (min and max of each member)
//! floor of the fleet, budgets             -> divide        -> floor of each member
//! budgets, floors, observations, ledger   -> rules R0..R12 -> decision, next ledger
//! ```
//!
//! [`decide`] does all of it; [`assign()`], [`share`], [`distribute()`] and the divisions below them ([`quota_split`],
//! [`webster`], [`fill`]) and [`Supply::capacity`] can be used alone. Everything is pure and deterministic; every timer
//! is a value in the [`Ledger`]. The count of the fleet comes from [`autoscale`](foretide_domain::autoscale), and adapters reach
//! the members. MIN and MAX stand for the fleet's `minReplicas` and `maxReplicas`.

mod affinity;
mod assign;
mod capacity;
mod decision;
mod distribute;
mod divide;
#[cfg(test)]
mod division_laws;
mod ledger;
mod member;
mod policy;
mod preference;
mod rules;
mod taint;

pub use affinity::{Affinity, Profile};
pub use assign::{Budget, Budgets, Candidate, Remark, assign, share, weights};
pub use capacity::{
    BoundPod, ContainerRole, Estimate, Node, NodeTerm, OwnPods, PodShape, Quota, Supply,
    effective_requests,
};
pub use decision::{Action, Condition, ConditionKind, FleetDecision, MemberDecision, Reason};
pub use distribute::distribute;
pub use divide::{Recipient, Split, Surplus, Ties, fill, quota_split, webster};
pub use ledger::{Backoff, Entry, Landing, Ledger, ShareStatus, Span};
pub use member::{Health, Member, Membership, Pods, Total};
pub use policy::{AssignmentKind, FailurePolicy, Policy, Preference, WeightBy, WorkloadSource};
pub use preference::{Dropped, EffectivePreference};
pub use rules::{ClassifiedFleet, Participation, decide};
pub use taint::{ParseTaintEffectError, Taint, TaintEffect, Toleration};

#[cfg(test)]
mod laws;
