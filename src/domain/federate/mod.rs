//! One autoscaler over a fleet: bounds and counts of the whole, divided over member clusters and kept divided well.
//!
//! ```text
//! policy, members -> assign -> budgets (min, max of each member)
//! floor of the fleet -> floors -> its share for each member
//! budgets, floors, what was seen, ledger -> rules R0..R12 -> decision, ledger
//! ```
//!
//! An autoscaler of one cluster is the fleet of one: the same proposals and the same floor, undivided. Everything
//! is pure and deterministic; every timer is a value in the [`Ledger`]. It refuses to know how a member is reached
//! and to propose a count for the fleet: `decide` next door does that.

mod affinity;
mod assign;
mod capacity;
mod decision;
mod distribute;
mod divide;
#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "an index out of range fails the test, as it should"
)]
mod division_laws;
mod floors;
mod ledger;
mod member;
mod policy;
mod rules;

pub use affinity::{Affinity, Dropped, Profile};
pub use assign::{Budget, Budgets, Candidate, Remark, assign, share, weights};
pub use capacity::{
    BoundPod, Estimate, Node, NodeTerm, Own, PodShape, Quota, Role, Supply, effective_requests,
};
pub use decision::{Action, Condition, ConditionKind, FleetDecision, MemberDecision, Reason};
pub use distribute::distribute;
pub use divide::{Slot, Split, Surplus, Ties, fill, quota_split, webster};
pub use ledger::{Backoff, Entry, Landing, Ledger, ShareStatus, Span};
pub use member::{
    Health, Member, ParseTaintEffectError, Pods, Standing, Taint, TaintEffect, Total,
};
pub use policy::{FailurePolicy, Kind, Policy, Preference, Toleration, WeightBy, WorkloadSource};
pub use rules::{Participation, decide, participation};

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "an index out of range fails the test, as it should"
)]
mod laws;
