//! The working copy of a fleet while the rules run: its totals, its ledger, and the state of each member.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{
    member::{DivisionLimits, MemberState},
    roles::classify,
};
use crate::{
    Replicas,
    federate::{AssignmentKind, Ledger, Member, Policy, Surplus, Total, WeightBy, share},
    workload::Mode,
};

/// A fleet while the rules run.
pub(super) struct RuleContext<'a> {
    pub(super) policy: &'a Policy,
    pub(super) total: &'a Total,
    pub(super) now: Timestamp,
    /// The next ledger; its entries are in `members` until the end.
    pub(super) ledger: Ledger,
    /// By name.
    pub(super) members: Vec<MemberState<'a>>,
    /// Whether a member with a share is no longer listed.
    pub(super) vanished: bool,
    /// The floor to divide; in Direct mode the count of the fleet if that is larger, because it is divided alike.
    pub(super) floor: u32,
    /// The floor from forecast, cron windows and fleet metrics alone.
    pub(super) requested_floor: u32,
    /// Whether a landing raises the floor above what is requested, so that others become ready before pods end.
    pub(super) lands: bool,
    /// The part of the floor that no member can run.
    pub(super) unmet: u32,
    /// The shares of the floor that members have while another sleeps, and take over before it does (R10).
    pub(super) reassigned: BTreeMap<&'a str, u32>,
}

impl<'a> RuleContext<'a> {
    /// Classifies the members, and takes their entries from the ledger.
    pub(super) fn new(
        policy: &'a Policy,
        total: &'a Total,
        members: &'a [Member],
        mut ledger: Ledger,
        now: Timestamp,
    ) -> Self {
        let entries = std::mem::take(&mut ledger.members);
        let mut states = classify(policy, members, &entries, now);
        // The decision lists members by name, and equal claims are settled by position.
        states.sort_by(|a, b| a.name().cmp(b.name()));
        let known = states.iter().filter(|s| s.known && s.entry.has_share());
        let floor = total.floor.map_or(0, Replicas::get);
        let desired = match policy.mode {
            Mode::Direct => total.desired.map_or(0, Replicas::get),
            Mode::Delegated | Mode::Metric => 0,
        };
        Self {
            // A member with a share is no longer listed.
            vanished: known.count() < entries.values().filter(|e| e.has_share()).count(),
            floor: floor.max(desired),
            requested_floor: floor,
            lands: false,
            unmet: 0,
            reassigned: BTreeMap::new(),
            policy,
            total,
            now,
            ledger,
            members: states,
        }
    }

    /// Whether budgets move at run time under this policy.
    pub(super) fn moves(&self) -> bool {
        matches!(
            self.policy.kind,
            AssignmentKind::Aggregated
                | AssignmentKind::DynamicWeighted
                | AssignmentKind::Prioritized
        )
    }

    /// Whether members are weighted by capacity.
    pub(super) fn weighs_capacity(&self) -> bool {
        let by_demand = self.policy.weight_by == WeightBy::Demand;
        match self.policy.kind {
            AssignmentKind::Duplicated | AssignmentKind::StaticWeighted => false,
            AssignmentKind::DynamicWeighted => !by_demand,
            AssignmentKind::Aggregated | AssignmentKind::Prioritized => true,
        }
    }

    /// MAX.
    pub(super) fn max(&self) -> u32 {
        self.policy.bounds.max.get()
    }

    /// The members that can be changed.
    pub(super) fn active(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.members.iter().filter(|state| state.is_active())
    }

    /// As [`RuleContext::active`], but mutable.
    pub(super) fn active_mut(&mut self) -> impl Iterator<Item = &mut MemberState<'a>> {
        self.members.iter_mut().filter(|state| state.is_active())
    }

    /// The active members with a share: pods of the others are not the fleet's.
    pub(super) fn sharing(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.active().filter(|state| state.max() > 0)
    }

    /// The members whose pods count as the fleet's.
    pub(super) fn counted(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.members.iter().filter(|state| state.counted)
    }

    /// How long something has lasted.
    pub(super) fn age(&self, since: Timestamp) -> SignedDuration {
        self.now.duration_since(since)
    }

    /// Whether a member's budget moved less than a cooldown ago.
    pub(super) fn is_cooling_down(&self, state: &MemberState<'_>) -> bool {
        self.within(state.entry.moved, self.policy.cooldown)
    }

    /// Whether something happened less than `span` ago.
    pub(super) fn within(&self, when: Option<Timestamp>, span: SignedDuration) -> bool {
        when.is_some_and(|when| self.age(when) < span)
    }

    /// Whether something has lasted for as many observations as the policy requires before anything is taken away.
    pub(super) fn settled(&self, since: Option<Timestamp>) -> bool {
        // The first observation begins the span, so `n` of them are `n - 1` periods apart.
        let passes = i32::try_from(self.policy.settle).unwrap_or(i32::MAX);
        let span = self
            .policy
            .period
            .checked_mul(passes.saturating_sub(1).max(0));
        since.is_some_and(|since| span.is_some_and(|span| self.age(since) >= span))
    }

    /// Divides `n` by the policy over the members for which there are `limits`; parallel to `members`.
    pub(super) fn divide(
        &self,
        n: u32,
        surplus: Surplus,
        limits: impl Fn(&MemberState<'a>) -> Option<DivisionLimits>,
    ) -> Vec<u32> {
        let mut shares = vec![0; self.members.len()];
        if n == 0 {
            return shares;
        }
        let limits = self.members.iter().map(limits);
        let recipients = shares.iter_mut().zip(&self.members).zip(limits);
        let (places, candidates): (Vec<_>, Vec<_>) = recipients
            .filter_map(|((share, state), limits)| Some((share, state.candidate(limits?))))
            .unzip();
        let split = share(self.policy, Replicas::new(n), &candidates, surplus);
        for (place, share) in places.into_iter().zip(split.shares) {
            *place = share;
        }
        shares
    }
}
