//! What rebalancing remembers: every timer and every stored estimate, as values.
//!
//! The memory is plain data with public fields, so that whoever keeps it can write it down and read it back. It
//! refuses to know where it is kept. An empty ledger is a fleet that was never assigned: nothing is remembered, the
//! next decision assigns, and running pods stay.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Standing;
use crate::domain::Replicas;

/// The memory of one fleet. Goes into a decision and comes out of it; kept in status, so that a restart resumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The generation that was assigned last; absent before the first assignment.
    pub generation: Option<i64>,
    /// What no member could take.
    pub unassigned: Replicas,
    /// That members may keep more than their new budget while others become ready; absent when nothing has to land.
    pub landing: Option<Landing>,
    /// The last time that head-room was divided anew (R8).
    pub optimized: Option<Timestamp>,
    /// The last time that a tier was shrunk (R9).
    pub shrunk: Option<Timestamp>,
    /// Since when more is placed than the fleet needs (R9).
    pub excess_since: Option<Timestamp>,
    /// Since when every awake member idles at its minimum (R10).
    pub idle_since: Option<Timestamp>,
    /// What the fleet ran when members began to take over the floor of one that is to sleep (R10); absent when none does.
    /// What they start for that is not what one autoscaler over the whole would keep.
    pub handover: Option<Replicas>,
    /// The last time that a member was woken (R11).
    pub woken: Option<Timestamp>,
    /// The members by name.
    pub members: BTreeMap<String, Entry>,
}

/// The time in which members may keep more than their new budget while others become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// When it ends, whoever is ready then.
    pub until: Timestamp,
    /// As many replicas as ran in the members with a share when it began, or as the demand asked for since, if that is
    /// more: how many are enough while windows, policies or a missing metric keep the demand from being the measure.
    /// Absent in a memory that is older than this field: then what runs now.
    ///
    /// It is a memory, because the count of now includes those that were started in the place of others: a fleet that
    /// went by that would grow for as long as it lands.
    pub served: Option<Replicas>,
}

/// What is remembered of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    /// Where it stands in the fleet.
    pub tenure: ShareStatus,
    /// Its budget: the smallest count.
    pub min: Replicas,
    /// Its budget: the largest count.
    pub max: Replicas,
    /// The largest count that was written for it: its budget, or more while others become ready.
    pub written: Replicas,
    /// What the policy said about it when budgets were divided last: the labels of a cluster may change, and with them
    /// which preferences match it. Absent in a memory that is older than this field.
    pub standing: Option<Standing>,
    /// Its capacity when budgets were divided last; absent when it was unknown. Floors are divided by this one, so
    /// that a flickering estimate moves nothing.
    pub capacity: Option<Replicas>,
    /// Its weight when budgets were divided last.
    pub weight: u64,
    /// Its place in the order of filling when budgets were divided last.
    pub rank: u32,
    /// What its nodes proved to hold, because pods stayed unschedulable.
    pub mark: Option<Backoff>,
    /// That it serves demand of its own, which others cannot.
    pub local: Option<Span>,
    /// Whether its autoscaler was kept from scaling down (R9).
    pub held: bool,
    /// When budget was moved to or from it.
    pub moved: Option<Timestamp>,
    /// When it was shrunk (R9).
    pub shrunk: Option<Timestamp>,
    /// Since when it needs more than its budget.
    pub saturated_since: Option<Timestamp>,
    /// Since when it idles at a minimum that others need (R7).
    pub idle_since: Option<Timestamp>,
    /// When it was put to sleep.
    pub slept: Option<Timestamp>,
    /// That it was needed soon after it was put to sleep, and stays awake.
    pub needed: Option<Span>,
    /// When it was woken.
    pub woken: Option<Timestamp>,
    /// Since when it is well again, after it had lost its share.
    pub recovered: Option<Timestamp>,
    /// Since when it has a `NoExecute` taint: whoever reads taints may not know their age after a restart.
    pub tainted: Option<Timestamp>,
}

/// Where a member stands in the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShareStatus {
    /// A candidate; its budget may be zero.
    #[default]
    Candidate,
    /// A candidate that could not be changed when budgets were divided last, so that others had to make room.
    Pinned,
    /// Lost its share to the others.
    Failed,
    /// No candidate any more: drained, then deleted.
    Leaving,
}

/// Feedback on capacity: this many fitted, whatever the estimate says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// How many pods were placed.
    pub placed: Replicas,
    /// What the estimate claimed then; absent when there was none. A larger one since means that nodes were added.
    pub claimed: Option<Replicas>,
    /// How long it holds. A mark that has ended is kept, because its successor holds twice as long.
    pub span: Span,
}

/// A time that doubles with every repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it ends.
    pub until: Timestamp,
    /// How long it lasts, in seconds.
    pub seconds: u32,
}
