//! The working copy of a fleet while the rules run: its totals, its ledger, and the state of each member.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{
    ClassifiedFleet,
    member::{Change, DivisionLimits, MemberState, sum},
};
use crate::{Ledger, Policy, Surplus, Total, share};
use foretide_domain::{ReplicaBounds, Replicas};

/// A fleet while the rules run.
pub struct RuleContext<'a> {
    pub policy: &'a Policy,
    pub rule_set: &'a RuleSet,
    pub total: &'a Total,
    pub now: Timestamp,
    /// The next ledger; its entries are in `members` until the end.
    pub ledger: Ledger,
    /// By name.
    pub members: Vec<MemberState<'a>>,
    /// True if a member with a share is no longer listed.
    pub vanished: bool,
    pub floor: Floor<'a>,
}

/// The floor of a fleet, and in Direct its count, which is divided alike.
#[derive(Clone, Default)]
pub struct Floor<'a> {
    /// The number that is divided.
    pub count: u32,
    /// The count of the fleet that is divided in Direct, as far as it is for the active members.
    pub desired: Option<u32>,
    /// The count that one autoscaler over the whole fleet would keep, if that is known.
    pub kept: Option<u32>,
    /// The part of `count` that members which keep their share and cannot be changed meet by their minimums.
    pub met: u32,
    /// The part of `met` by members that others scale.
    pub met_by_others: u32,
    /// The number that forecast, cron windows and fleet metrics alone request.
    pub requested: u32,
    /// True if a landing raises it above what is requested, so that others become ready before pods end.
    pub lands: bool,
    /// The part of it that no member can run.
    pub unmet: u32,
    /// The shares that members have while another sleeps, and take over before it does (R10).
    pub reassigned: BTreeMap<&'a str, u32>,
}

/// A rule: it reads the fleet as the rules before it have left it, and returns what it changes.
pub type Rule = for<'f, 'a> fn(&'f RuleContext<'a>) -> Step<'a>;

/// The rules of one policy, and the orders that they go by.
pub struct RuleSet {
    /// The count that is divided in addition to the floor.
    pub claim: &'static [Rule],
    /// The shares of the floor.
    pub shares: &'static [Rule],
    /// Budget moves between members.
    pub moves: &'static [Rule],
    /// The end of pods in members of low priority.
    pub shrink: &'static [Rule],
    /// The member that is put to sleep.
    pub sleep: &'static [Rule],
    /// The members that are woken.
    pub wake: &'static [Rule],
    /// The counts that the hub writes.
    pub counts: &'static [Rule],
    /// The present bounds of a member.
    pub present: fn(&MemberState<'_>) -> Option<ReplicaBounds>,
    /// The most that a member can be given of what is divided.
    pub room: fn(&MemberState<'_>) -> u32,
    /// The tier of a member, where members are filled by priority.
    pub tier: fn(&MemberState<'_>) -> Option<i64>,
    /// The rank of a member by the policy; the lowest sleeps first.
    pub rank: fn(&MemberState<'_>) -> i64,
}

/// The changes of a rule: of members, and of the fleet as a whole where that is given.
#[derive(Default)]
pub struct Step<'a> {
    changes: Vec<Change>,
    /// The timers of the fleet and what is unassigned, afterwards.
    ledger: Option<Ledger>,
    /// The floor afterwards.
    floor: Option<Floor<'a>>,
}

impl<'a> Step<'a> {
    /// Changes of members.
    pub fn of(changes: impl IntoIterator<Item = Change>) -> Self {
        Self {
            changes: changes.into_iter().collect(),
            ..Self::default()
        }
    }

    /// With timers of the fleet, or what is unassigned.
    pub fn with_ledger(self, ledger: Ledger) -> Self {
        let ledger = Some(ledger);
        Self { ledger, ..self }
    }

    /// With another floor.
    pub fn with_floor(self, floor: Floor<'a>) -> Self {
        let floor = Some(floor);
        Self { floor, ..self }
    }
}

impl<'a> RuleContext<'a> {
    /// Applies rules, one after the other.
    pub fn follow(&mut self, rules: &[Rule]) {
        for rule in rules {
            let step = rule(self);
            if let Some(ledger) = step.ledger {
                self.ledger = ledger;
            }
            if let Some(floor) = step.floor {
                self.floor = floor;
            }
            for change in step.changes {
                change.apply(&mut self.members, self.now);
            }
        }
    }

    /// The priority of a member, where members are filled by priority.
    pub fn tier(&self, state: &MemberState<'_>) -> Option<i64> {
        (self.rule_set.tier)(state)
    }

    /// The context before the first rule.
    pub fn new(fleet: ClassifiedFleet<'a>, rule_set: &'a RuleSet, total: &'a Total) -> Self {
        let (policy, states) = (fleet.policy, fleet.members);
        let mut ledger = fleet.ledger.clone();
        let entries = std::mem::take(&mut ledger.members);
        let known = states.iter().filter(|s| s.known && s.entry.has_share());
        let floor = total.floor.map_or(0, Replicas::get);
        let mut context = Self {
            // A member with a share is no longer listed.
            vanished: known.count() < entries.values().filter(|e| e.has_share()).count(),
            floor: Floor {
                count: floor,
                requested: floor,
                kept: total.desired.map(Replicas::get),
                ..Floor::default()
            },
            policy,
            rule_set,
            total,
            now: fleet.now,
            ledger,
            members: states,
        };
        let of_others = context.pinned().filter(|state| !state.is_counted());
        context.floor.met_by_others = sum(of_others.map(MemberState::min));
        context.floor.met = sum(context.holders().map(MemberState::min));
        context
    }

    /// MAX.
    pub fn max(&self) -> u32 {
        self.policy.bounds.max.get()
    }

    /// The members that can be changed.
    pub fn active(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.members.iter().filter(|state| state.is_active())
    }

    /// The active members with a share: pods of the others are not the fleet's.
    pub fn sharing(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.active().filter(|state| state.max() > 0)
    }

    /// The active members that run, now or after this decision.
    pub fn awake(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.active().filter(|state| state.is_awake())
    }

    /// The members that keep their share and cannot be changed.
    pub fn pinned(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.members.iter().filter(|state| state.role.is_pinned())
    }

    /// The pinned members that hold a part of what the others divide.
    pub fn holders(&self) -> impl Iterator<Item = &MemberState<'a>> {
        let divides = self.policy.scheme().divides;
        self.pinned().filter(move |_| divides)
    }

    /// The members with an amount above zero, and that amount; `amounts` is parallel to `members`.
    pub fn with_amounts<'f>(
        &'f self,
        amounts: &'f [u32],
    ) -> impl Iterator<Item = (&'f MemberState<'a>, u32)> {
        self.members
            .iter()
            .zip(amounts.iter().copied())
            .filter(|(_, amount)| *amount > 0)
    }

    /// The members whose pods count as the fleet's.
    pub fn counted(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.members.iter().filter(|state| state.is_counted())
    }

    /// The time for which something has lasted.
    pub fn age(&self, since: Timestamp) -> SignedDuration {
        self.now.duration_since(since)
    }

    /// True if a member's budget moved less than a cooldown ago.
    pub fn is_cooling_down(&self, state: &MemberState<'_>) -> bool {
        self.within(state.entry.moved, self.policy.cooldown)
    }

    /// True if pods of an active member are unschedulable, or it cools down.
    pub fn is_disturbed(&self) -> bool {
        self.active()
            .any(|state| state.blocked || self.is_cooling_down(state))
    }

    /// The demand below which this many replicas are below their target, the tolerance included.
    pub fn low_demand(&self, replicas: u32) -> f64 {
        f64::from(replicas) * (1.0 - self.policy.tolerance)
    }

    /// True if something happened less than `span` ago.
    pub fn within(&self, when: Option<Timestamp>, span: SignedDuration) -> bool {
        when.is_some_and(|when| self.age(when) < span)
    }

    /// True if something has lasted for as many observations as the policy requires before anything is taken away.
    pub fn settled(&self, since: Option<Timestamp>) -> bool {
        // The first observation begins the span, so `n` of them are `n - 1` periods apart.
        let passes = i32::try_from(self.policy.settle).unwrap_or(i32::MAX);
        let span = self
            .policy
            .period
            .checked_mul(passes.saturating_sub(1).max(0));
        since.is_some_and(|since| span.is_some_and(|span| self.age(since) >= span))
    }

    /// Divides `n` by the policy over the members for which there are `limits`; the shares are parallel to `members`.
    pub fn divide(
        &self,
        n: u32,
        surplus: Surplus,
        limits: impl Fn(&MemberState<'a>) -> Option<DivisionLimits>,
    ) -> Vec<u32> {
        let mut shares = vec![0; self.members.len()];
        if n == 0 {
            return shares;
        }
        let (places, candidates): (Vec<_>, Vec<_>) = shares
            .iter_mut()
            .zip(&self.members)
            .filter_map(|(share, state)| Some((share, state.candidate(limits(state)?))))
            .unzip();
        let split = share(self.policy, Replicas::new(n), &candidates, surplus);
        for (place, share) in places.into_iter().zip(split.shares) {
            *place = share;
        }
        shares
    }
}
