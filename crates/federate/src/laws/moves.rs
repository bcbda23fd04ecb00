//! The laws of one decision: sums that moves of budget keep, and how little one member's report can change for the
//! others.
//!
//! `single_decisions` and `convergence` check every decision that they make.

use jiff::Timestamp;

use crate::{
    AssignmentKind, Candidate, EffectivePreference, Entry, FleetDecision, Health, Ledger, Member,
    MemberDecision, Policy, Reason, ShareStatus, Total, assign,
};
use foretide_domain::Replicas;

use super::fixtures::{Violation, violation};

/// One decision and its inputs.
pub struct Move<'a> {
    pub policy: &'a Policy,
    pub total: &'a Total,
    pub members: &'a [Member],
    pub before: &'a Ledger,
    pub decision: &'a FleetDecision,
    pub after: &'a Ledger,
}

/// A member with a share before and after the decision, and its observation.
#[derive(Clone, Copy, Debug)]
struct MemberChange<'a> {
    member: &'a Member,
    preference: EffectivePreference,
    old: &'a Entry,
    new: &'a Entry,
    decided: &'a MemberDecision,
}

impl MemberChange<'_> {
    fn gain(&self) -> u32 {
        self.new.max.get().saturating_sub(self.old.max.get())
    }

    fn loss(&self) -> u32 {
        self.old.max.get().saturating_sub(self.new.max.get())
    }

    fn is_for(&self, reason: Reason) -> bool {
        self.decided.reasons.contains(&reason)
    }

    /// The pods with a node that it reports.
    fn placed(&self) -> u32 {
        self.member.pods.map_or(0, |pods| pods.placed().get())
    }

    fn replicas(&self) -> u32 {
        self.member.pods.map_or(0, |pods| pods.replicas.get())
    }

    /// Whether it sleeps, or is put to sleep.
    fn sleeps(&self) -> bool {
        self.replicas() == 0 || self.decided.replicas == Some(Replicas::ZERO)
    }

    /// Whether its pods have been unschedulable for longer than the delay.
    fn is_blocked(&self, policy: &Policy, now: Timestamp) -> bool {
        let since = self.member.pods.and_then(|pods| pods.unschedulable_since);
        since.is_some_and(|since| now.duration_since(since) >= policy.delay)
    }

    /// Whether it can be changed.
    fn is_active(&self) -> bool {
        let skipped = [Reason::Unknown, Reason::Failed, Reason::Foreign];
        self.member.health == Health::Ready && !skipped.iter().any(|r| self.is_for(*r))
    }
}

fn total(of: impl Iterator<Item = Replicas>) -> u64 {
    of.map(|n| u64::from(n.get())).sum()
}

impl<'a> Move<'a> {
    /// Checks every law of this file.
    pub fn check(&self) -> Result<(), Violation> {
        if self.decision.conditions.len() == 1 || !self.changes() {
            return Ok(());
        }
        if self.policy.kind != AssignmentKind::Duplicated {
            self.minima_suffice()?;
            self.minima_are_no_more_than_asked_for()?;
        }
        if self.is_assigned() {
            self.maxima_are_divided()?;
            return self.given_weights_divide_what_is_left();
        }
        self.sums_stay()?;
        self.what_does_not_move_stays()?;
        self.member_changes()
            .filter(MemberChange::is_active)
            .try_for_each(|change| self.others_take_no_minimum(&change))?;
        self.saturation_takes_what_it_gives()?;
        self.one_unit_of_minimum_moves()?;
        self.one_lie_shrinks_no_more_than_its_own_budget()
    }

    /// Whether budgets have changed, so that there is something to check.
    fn changes(&self) -> bool {
        let is_same = |(a, b): ((&String, &Entry), (&String, &Entry))| {
            let budget = |e: &Entry| (e.min, e.max, e.share_status);
            a.0 == b.0 && budget(a.1) == budget(b.1)
        };
        let (was, is) = (self.before, self.after);
        let same = was.members.len() == is.members.len()
            && was.members.iter().zip(&is.members).all(is_same);
        !same || (was.unassigned, was.generation) != (is.unassigned, is.generation)
    }

    /// Whether R3 assigned budgets, as far as the result shows.
    fn is_assigned(&self) -> bool {
        let stand = |ledger: &Ledger| -> Vec<_> {
            let all = ledger.members.iter();
            let all = all.filter(|(_, entry)| entry.share_status != ShareStatus::Draining);
            all.map(|(name, entry)| (name.clone(), entry.share_status))
                .collect()
        };
        let is_assigned = |m: &MemberDecision| m.reasons.contains(&Reason::Assigned);
        self.before.generation != self.after.generation
            || stand(self.before) != stand(self.after)
            || self.decision.members.iter().any(is_assigned)
    }

    fn preference(&self, name: &str) -> Option<EffectivePreference> {
        let member = self.members.iter().find(|m| m.profile.name == name)?;
        self.policy.effective_preference(&member.profile)
    }

    /// The members with a share before and after.
    fn member_changes(&self) -> impl Iterator<Item = MemberChange<'a>> {
        self.decision.members.iter().filter_map(|decided| {
            let name = decided.name.as_str();
            let change = MemberChange {
                member: self.members.iter().find(|m| m.profile.name == name)?,
                preference: self.preference(name)?,
                old: self.before.members.get(name)?,
                new: self.after.members.get(name)?,
                decided,
            };
            (change.old.has_share() && change.new.has_share()).then_some(change)
        })
    }

    /// The entries with a share, and whether each was kept because its member could not be changed.
    fn shares(&self) -> impl Iterator<Item = (&'a Entry, bool)> {
        let shares = self.after.members.values().filter(|e| e.has_share());
        shares.map(|entry| (entry, entry.share_status == ShareStatus::Pinned))
    }

    /// The sum of the lower limits.
    fn least(&self) -> u64 {
        let shares = self.after.members.iter().filter(|(_, e)| e.has_share());
        total(shares.filter_map(|(name, _)| Some(self.preference(name)?.min)))
    }

    /// P3. Of a member that was lost when budgets were divided, the minimum counts: no other member can use its
    /// maximum.
    fn minima_suffice(&self) -> Result<(), Violation> {
        let minimums = total(self.shares().map(|(entry, _)| entry.min));
        let able = total(
            self.shares()
                .map(|(e, kept)| if kept { e.min } else { e.max }),
        );
        let requested = u64::from(self.policy.bounds.min.get()).min(able);
        if minimums < requested {
            return violation(
                "P3 minimums sum to MIN",
                format!(
                    "{minimums} < {requested}: {:?} {}",
                    self.after,
                    self.decision.message()
                ),
            );
        }
        Ok(())
    }

    /// P4. Minimums that were raised to one are recognizable only right after an assignment: minimums of blocked
    /// members may have been added since.
    fn minima_are_no_more_than_asked_for(&self) -> Result<(), Violation> {
        let requested = u64::from(self.policy.bounds.min.get()).max(self.least());
        let divided = || self.shares().filter(|(_, kept)| !kept).map(|(e, _)| e);
        let is_moved = |m: &MemberDecision| m.reasons.contains(&Reason::Relief);
        let exact = self.is_assigned()
            && self.shares().all(|(_, kept)| !kept)
            && !self.decision.members.iter().any(is_moved);
        let may_be_lifted = |e: &&Entry| e.max > Replicas::ZERO && (!exact || e.min.get() == 1);
        let lifted = divided().filter(may_be_lifted).count() as u64;
        let minimums = total(divided().map(|e| e.min));
        if minimums > requested + lifted {
            return violation(
                "P4 minimums sum to no more than MIN, thresholds and lifted ones",
                format!("{minimums} > {requested} + {lifted}: {:?}", self.after),
            );
        }
        Ok(())
    }

    /// P2 right after an assignment with members that cannot be changed: the others divide what is left of MAX, at
    /// least their lower limits, at most those and their shares of MIN.
    fn maxima_are_divided(&self) -> Result<(), Violation> {
        if self.policy.kind == AssignmentKind::Duplicated {
            return Ok(());
        }
        let kept = total(self.shares().filter(|(_, kept)| *kept).map(|(e, _)| e.max));
        let divided = self.shares().filter(|(_, kept)| !kept);
        let given = total(divided.map(|(e, _)| e.max)) + u64::from(self.after.unassigned.get());
        let left = u64::from(self.policy.bounds.max.get()).saturating_sub(kept);
        let least = u64::from(self.policy.bounds.min.get()).max(self.least());
        let most = left.max(least + self.shares().count() as u64);
        if given < left || given > most {
            return violation(
                "P2 what the lost ones leave is divided",
                format!("{given} not within {left} and {most}: {:?}", self.after),
            );
        }
        Ok(())
    }

    /// P2 and P4 exactly, where weights are given, so that the shares of lost members are known: the others divide what
    /// those leave of MAX and MIN, and none has less than its share of MIN.
    fn given_weights_divide_what_is_left(&self) -> Result<(), Violation> {
        let shares = || self.after.members.iter().filter(|(_, e)| e.has_share());
        let is_kept = |entry: &Entry| entry.share_status == ShareStatus::Pinned;
        if self.policy.kind != AssignmentKind::StaticWeighted || !shares().any(|(_, e)| is_kept(e))
        {
            return Ok(());
        }
        let candidates = shares().map(|(name, _)| Candidate {
            name,
            preference: self.preference(name).unwrap_or_default(),
            ..Candidate::default()
        });
        let candidates: Vec<_> = candidates.collect();
        let unpinned = assign(self.policy, self.policy.bounds, &candidates).members;
        let least = candidates.iter().filter_map(|candidate| {
            let entry = self.after.members.get(candidate.name)?;
            let share = unpinned
                .get(candidate.name)
                .map_or(Replicas::ZERO, |b| b.min);
            (!is_kept(entry)).then_some(share.max(candidate.preference.min))
        });
        let least = total(least);
        let sum = |kept: bool, of: fn(&Entry) -> Replicas| {
            let of_these = shares().filter(|(_, e)| is_kept(e) == kept);
            total(of_these.map(|(_, entry)| of(entry)))
        };
        let left = |bound: Replicas, of: fn(&Entry) -> Replicas| {
            u64::from(bound.get())
                .saturating_sub(sum(true, of))
                .max(least)
        };
        let (min, max) = (sum(false, |e| e.min), sum(false, |e| e.max));
        let max = max + u64::from(self.after.unassigned.get());
        let most = left(self.policy.bounds.min, |e| e.min);
        let lifted = shares().filter(|(_, e)| !is_kept(e) && e.min.get() == 1);
        let lifted = lifted.count() as u64;
        if max != left(self.policy.bounds.max, |e| e.max) || min > most + lifted {
            return violation(
                "P2, P4 the others divide what the lost ones leave",
                format!("{min} of {most} and {lifted}, {max}: {:?}", self.after),
            );
        }
        Ok(())
    }

    /// P10: moves keep the sum of maximums and unassigned budget, and the sum of minimums. A member that gets its first
    /// budget gets a minimum of one; one that sleeps needs none.
    fn sums_stay(&self) -> Result<(), Violation> {
        let maximums = |ledger: &Ledger| {
            let shares = ledger.members.values().filter(|e| e.has_share());
            total(shares.map(|e| e.max)) + u64::from(ledger.unassigned.get())
        };
        let (was, is) = (maximums(self.before), maximums(self.after));
        if was != is {
            return violation(
                "P10 moves keep the sum of the maximums",
                format!("{was} -> {is}: {}", self.decision.message()),
            );
        }
        let lifted = self
            .member_changes()
            .filter(|p| p.old.max == Replicas::ZERO && p.gain() > 0);
        let lifted = lifted.count() as u64;
        let slept = self.member_changes().filter(MemberChange::sleeps);
        let slept = slept.map(|p| u64::from(p.old.min.get().saturating_sub(p.new.min.get())));
        let slept: u64 = slept.sum();
        let was = total(self.member_changes().map(|p| p.old.min));
        let is = total(self.member_changes().map(|p| p.new.min));
        if is + slept < was || is > was + lifted {
            return violation(
                "P10 moves keep the sum of the minimums",
                format!(
                    "{was} -> {is}, {lifted} lifted, {slept} slept: {}",
                    self.decision.message()
                ),
            );
        }
        Ok(())
    }

    /// Budgets under policies that do not rebalance never move.
    fn what_does_not_move_stays(&self) -> Result<(), Violation> {
        let fixed = matches!(
            self.policy.kind,
            AssignmentKind::Duplicated | AssignmentKind::StaticWeighted
        );
        let moved = |p: &MemberChange<'_>| (p.old.min, p.old.max) != (p.new.min, p.new.max);
        match self.member_changes().find(|change| fixed && moved(change)) {
            Some(change) => violation("given budgets stay", format!("{change:?}")),
            None => Ok(()),
        }
    }

    /// X10: whatever others report, a member that runs and has a node for each pod keeps its minimum, and a maximum
    /// that allows it. R7 takes one replica from a member that is idle.
    fn others_take_no_minimum(&self, change: &MemberChange<'_>) -> Result<(), Violation> {
        if change.is_blocked(self.policy, self.decision.at) || change.sleeps() {
            return Ok(());
        }
        let given = u32::from(change.is_for(Reason::Starved));
        let least = change.old.min.get() - given;
        let (min, max) = (change.new.min.get(), change.new.max.get());
        if min < least || max < least.max(change.preference.min.get()) {
            return violation("X10 no other member takes a minimum", format!("{change:?}"));
        }
        Ok(())
    }

    /// X10: R6 takes no more than it gives, and gives no member more than its upper limit.
    fn saturation_takes_what_it_gives(&self) -> Result<(), Violation> {
        let gains = |reason: Reason| {
            let gaining = self.member_changes().filter(move |p| p.is_for(reason));
            gaining.map(|p| p.gain()).sum::<u32>()
        };
        let taken = self.member_changes().filter(|p| p.is_for(Reason::Donor));
        let taken: u32 = taken.map(|p| p.loss()).sum();
        let given = gains(Reason::Saturated) + gains(Reason::FloorLifted);
        let greedy = |p: &MemberChange<'_>| p.gain() > 0 && p.new.max > p.preference.max;
        if taken > given || self.member_changes().any(|p| greedy(&p)) {
            return violation(
                "X10 R6 moves no more than the receiver's threshold",
                format!("{taken} for {given}: {}", self.decision.message()),
            );
        }
        Ok(())
    }

    /// X10, R7: one replica of minimum moves, from one member to another.
    fn one_unit_of_minimum_moves(&self) -> Result<(), Violation> {
        let moved = self.member_changes().filter(|p| p.is_for(Reason::Starved));
        let changes = moved.map(|p| i64::from(p.new.min.get()) - i64::from(p.old.min.get()));
        let mut changes: Vec<_> = changes.collect();
        changes.sort_unstable();
        if !changes.is_empty() && changes != [-1, 1] {
            return violation("X10 R7 moves one unit", format!("{changes:?}"));
        }
        Ok(())
    }

    /// X10, R9: without the report of any one member, the pods that it ends are still an excess, except for as many as
    /// that member's own budget.
    fn one_lie_shrinks_no_more_than_its_own_budget(&self) -> Result<(), Violation> {
        let running = |p: &MemberChange<'_>| p.replicas().min(p.old.max.get());
        let ended = self
            .member_changes()
            .filter(|p| p.is_for(Reason::ShrinkOrder));
        let ended = ended.map(|p| running(&p).saturating_sub(p.new.max.get()));
        let ended: u32 = ended.sum();
        if ended == 0 {
            return Ok(());
        }
        let demand = self
            .total
            .demand
            .map_or(0, |d| Replicas::from_f64_ceil(d).get());
        let floor = self.total.floor.map_or(0, Replicas::get);
        let needed = demand.max(floor).max(self.policy.bounds.min.get());
        for reporter in self.member_changes() {
            let name = reporter.decided.name.as_str();
            let others = self.member_changes().filter(|p| p.decided.name != name);
            let others: u32 = others.map(|p| p.placed()).sum();
            let own = reporter.preference.max.max(reporter.old.written).get();
            if ended > others.saturating_sub(needed).saturating_add(own) {
                return violation(
                    "X10 R9 ends no more for one member than its threshold",
                    format!(
                        "{ended} ended, {others} placed in members other than {name}: {}",
                        self.decision.message()
                    ),
                );
            }
        }
        Ok(())
    }
}
