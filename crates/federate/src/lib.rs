//! One autoscaler over a fleet: its bounds and counts, divided over member clusters and rebalanced as they change.
//!
//! ```text
//! policy, members                         -> assign        -> budgets (min and max of each member)
//! floor of the fleet, budgets             -> divide        -> floor of each member
//! budgets, floors, observations, ledger   -> rules R0..R12 -> decision, next ledger
//! ```
//!
//! The crate owns the rules ([`decide`]), the divisions below them ([`assign()`], [`share`], [`distribute()`],
//! [`quota_split`], [`webster`], [`fill`]), what an assignment policy and a mode mean for both (`scheme` and `rules`), the
//! capacity of a cluster ([`Supply::capacity`]), the selection of clusters ([`Affinity`], [`Toleration`]), and the
//! [`Ledger`], which is stored between decisions. Everything is pure and deterministic; every timer is a value in the
//! ledger. MIN and MAX stand for the fleet's `minReplicas` and `maxReplicas`.
//!
//! Of Foretide it uses the domain alone, which also decides the count of the fleet
//! ([`autoscale`](foretide_domain::autoscale)). It must not read a clock, a file, a network or the environment, start a
//! task, or know wire types of Kubernetes; adapters observe the members and write what is decided.
//!
//! ```
//! use foretide_domain::{ReplicaBounds, Replicas};
//! use foretide_federate::{AssignmentKind, Ledger, Member, Pods, Policy, Profile, Total, decide};
//! use jiff::Timestamp;
//!
//! let member = |name: &str| Member {
//!     profile: Profile { name: name.to_owned(), ..Profile::default() },
//!     pods: Some(Pods::default()),
//!     ..Member::default()
//! };
//! let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(10));
//! let policy = Policy::new(AssignmentKind::StaticWeighted, bounds);
//! let (members, total, now) = ([member("eu"), member("us")], Total::default(), Timestamp::UNIX_EPOCH);
//!
//! let (decision, ledger) = decide(&policy, &total, &members, &Ledger::default(), now);
//! assert_eq!(decision.member("eu").map(|eu| eu.max.get()), Some(5));
//! // The ledger goes into the next decision, which changes nothing.
//! assert_eq!(decide(&policy, &total, &members, &ledger, now).1, ledger);
//! ```

mod affinity;
mod assign;
mod candidate;
mod capacity;
mod decision;
mod divide;
#[cfg(test)]
mod division_laws;
mod ledger;
mod member;
mod policy;
mod preference;
mod rules;
mod scheme;
mod taint;

pub use affinity::{Affinity, Profile};
pub use assign::{Budget, Budgets, assign};
pub use candidate::{Candidate, EffectivePreference};
pub use capacity::{
    BoundPod, ContainerRole, Estimate, Node, NodeTerm, OwnPods, PodShape, Quota, Supply,
    effective_requests,
};
pub use decision::{Action, Condition, ConditionKind, FleetDecision, MemberDecision, Reason};
pub use divide::{Recipient, Split, Surplus, Ties, fill, quota_split, webster};
pub use ledger::{Backoff, Entry, Landing, Ledger, ShareStatus, Span};
pub use member::{Health, Member, Membership, Pods, Total};
pub use policy::{AssignmentKind, FailurePolicy, Policy, Preference, WeightBy, WorkloadSource};
pub use preference::Dropped;
pub use rules::{ClassifiedFleet, Participation, decide};
pub use scheme::{Remark, distribute, share, weights};
pub use taint::{ParseTaintEffectError, Taint, TaintEffect, Toleration};

#[cfg(test)]
mod laws;
