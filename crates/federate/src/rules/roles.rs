//! R1, R2, R4: the role of each member, and its counts as far as they are trusted.

use jiff::Timestamp;

use super::member::{MemberState, Observed};
use super::participation::{MemberRole, Participation};
use super::{proof, taints};
use crate::{
    Dropped, EffectivePreference, Entry, FailurePolicy, Health, Ledger, Member, Membership, Policy,
    Reason, ShareStatus, WorkloadSource, candidate::is_usable,
};
use foretide_domain::ReplicaBounds;

/// An observation older than this many periods counts as no answer.
const STALE_PERIODS: i32 = 3;

/// The members that take part in the fleet, or still have an autoscaler or a share of it.
pub fn classify<'a>(
    policy: &Policy,
    members: &'a [Member],
    ledger: &Ledger,
    now: Timestamp,
) -> Vec<MemberState<'a>> {
    let entries = &ledger.members;
    let mut preferences =
        policy.effective_preferences(members.iter().map(|member| &member.profile));
    for (member, preference) in members.iter().zip(&mut preferences) {
        *preference = in_force(member, entries.get(&member.profile.name), *preference);
    }
    let closed = taints::closed(policy, members, &preferences);
    let mut states = Vec::new();
    for ((member, preference), closed) in members.iter().zip(preferences).zip(closed) {
        let classifier = RoleClassifier {
            policy,
            member,
            entry: entries.get(&member.profile.name),
            previewed: ledger.previewed,
            closed,
            now,
        };
        if let Some(role) = classifier.role(preference) {
            states.push(classifier.state(role, preference));
        }
    }
    states
}

/// A member's preference, unless its membership overrides what its description gives.
fn in_force(
    member: &Member,
    entry: Option<&Entry>,
    described: Result<EffectivePreference, Dropped>,
) -> Result<EffectivePreference, Dropped> {
    match member.membership {
        Membership::Listed => described,
        Membership::Missing => entry.and_then(|e| e.preference).map_or(described, Ok),
        Membership::Leaving => Err(Dropped::NotSelected),
    }
}

/// Finds the role of one member.
struct RoleClassifier<'c, 'a> {
    policy: &'c Policy,
    member: &'a Member,
    entry: Option<&'c Entry>,
    previewed: bool,
    closed: bool,
    now: Timestamp,
}

impl<'a> RoleClassifier<'_, 'a> {
    /// The role; `None` for a member that has nothing to do with the fleet.
    fn role(&self, preference: Result<EffectivePreference, Dropped>) -> Option<MemberRole> {
        match preference {
            Err(_) if self.member.membership == Membership::Leaving => {
                self.unselected(Some(MemberRole::Outside(Reason::Leaving)))
            }
            Err(Dropped::NotSelected) => self.unselected(None),
            Err(Dropped::NoPreference) => {
                self.unselected(Some(MemberRole::Outside(Reason::NoPreference)))
            }
            Ok(_) => Some(self.selected()),
        }
    }

    /// The role of a member that the policy does not select: `outside`, unless it still has a share or an autoscaler
    /// made by Foretide. An autoscaler without an entry in the ledger is a leftover and is removed as well.
    fn unselected(&self, outside: Option<MemberRole>) -> Option<MemberRole> {
        let is_ours = self.entry.is_some() || self.member.hpa.is_some();
        match (is_ours, self.answers()) {
            (true, true) => Some(MemberRole::Draining),
            (true, false) if self.has_left() => outside,
            (true, false) if self.entry.is_some() => Some(MemberRole::Lost),
            _ => outside,
        }
    }

    /// True if it leaves and is lost, so that there is nothing to drain. A short silence is waited for.
    fn has_left(&self) -> bool {
        let is_lost = matches!(self.member.health, Health::Unknown { since } if since <= self.now);
        self.member.membership == Membership::Leaving && is_lost
    }

    fn selected(&self) -> MemberRole {
        let answers = self.answers();
        match self.failure() {
            Some(Failure::Evicted) if answers && self.entry.is_some() => MemberRole::Draining,
            Some(_) if self.entry.is_some() => MemberRole::Failed,
            Some(_) => MemberRole::Outside(Reason::Failed),
            // It is healthy again when it has said so, which a hub that has just started has not heard yet.
            None if self.is_recovering() && self.member.health == Health::Ready => {
                MemberRole::Recovering
            }
            None if self.is_recovering() => MemberRole::Failed,
            None => self.available(answers),
        }
    }

    fn has_share(&self) -> bool {
        self.entry.is_some_and(Entry::has_share)
    }

    /// The role of a member that is not unavailable for too long.
    fn available(&self, answers: bool) -> MemberRole {
        if !answers {
            self.kept(MemberRole::Lost, Reason::Unknown)
        } else if self.policy.source == WorkloadSource::Members && self.member.pods.is_none() {
            MemberRole::Outside(Reason::TargetAbsent)
        } else if self.is_unwell() {
            self.kept(MemberRole::Lost, Reason::Failed)
        } else if self.member.is_scaled_by_others() {
            // To give it a share, the hub would have to overwrite the other writer once.
            self.kept(MemberRole::Foreign, Reason::Foreign)
        } else if self.closed && !self.has_share() {
            MemberRole::Outside(Reason::Tainted)
        } else {
            MemberRole::Active
        }
    }

    /// The role of a member that cannot be changed: with a share it keeps that, without one it gets none for a reason.
    fn kept(&self, role: MemberRole, reason: Reason) -> MemberRole {
        if self.has_share() {
            role
        } else {
            MemberRole::Outside(reason)
        }
    }

    /// R1: whether it can be observed and written.
    fn answers(&self) -> bool {
        let fresh = self.policy.period.checked_mul(STALE_PERIODS);
        let observed = self.member.observed.zip(fresh);
        let is_stale = observed.is_some_and(|(seen, fresh)| self.now.duration_since(seen) > fresh);
        !matches!(self.member.health, Health::Unknown { .. }) && !is_stale
    }

    /// R2: why its share goes to the others, if it does.
    fn failure(&self) -> Option<Failure> {
        if self.policy.failure == FailurePolicy::Retain {
            return None;
        }
        if self.is_unwell() {
            return Some(Failure::Lost);
        }
        let seen = self.entry.and_then(|entry| entry.tainted);
        taints::evict(self.policy, self.member, seen, self.now).then_some(Failure::Evicted)
    }

    /// True if it has been unhealthy for longer than tolerated.
    fn is_unwell(&self) -> bool {
        let since = match self.member.health {
            Health::Ready => return false,
            Health::NotReady { since } | Health::Unknown { since } => since,
        };
        self.now.duration_since(since) >= self.policy.toleration
    }

    /// True if it had lost its share and has been healthy for less than a cooldown since.
    fn is_recovering(&self) -> bool {
        self.entry.is_some_and(|entry| {
            let healthy = entry.recovered.map(|since| self.now.duration_since(since));
            entry.share_status == ShareStatus::Failed
                && healthy.is_none_or(|healthy| healthy < self.policy.cooldown)
        })
    }

    /// The state that the rules start from.
    fn state(
        &self,
        role: MemberRole,
        preference: Result<EffectivePreference, Dropped>,
    ) -> MemberState<'a> {
        let tainted = self.entry.and_then(|entry| entry.tainted);
        let tainted = taints::seen(self.member, tainted, self.now);
        let mut entry = Entry {
            // An entry with a taint is kept, which one of a member that is no longer selected must not be.
            tainted: tainted.filter(|_| preference.is_ok()),
            ..self.entry.copied().unwrap_or_default()
        };
        let mut observed = self.observed(role, preference.unwrap_or_default());
        proof::observe(&mut observed, &mut entry, self.policy, self.now);
        // A member that has left with a share is removed by the next assignment, others at once.
        let known = self.entry.is_some() && (self.has_share() || !self.has_left());
        MemberState::new(observed, &entry, known)
    }

    fn observed(&self, role: MemberRole, preference: EffectivePreference) -> Observed<'a> {
        let max = self.policy.bounds.max.get();
        // Pods beyond the maximum that was written are about to end. A preview writes none.
        let most = match self.entry {
            Some(entry) if !self.previewed => entry.written.get(),
            _ => max,
        };
        let pods = self.member.pods.unwrap_or_default();
        // A member without a budget may still have pods; one is enough to know that.
        let replicas = pods.replicas.get().min(most.max(1));
        // Capped after the subtraction: a maximum that was just lowered ends the unschedulable pods first.
        let placed = pods.placed().get().min(replicas);
        let mut observed = Observed {
            member: self.member,
            preference,
            role,
            participation: Participation::of(self.member, role, self.entry),
            replicas,
            ready: pods.ready.get().min(replicas),
            placed,
            desired: self.member.desired.map(|desired| desired.get().min(most)),
            demand: self.member.demand.filter(|demand| is_usable(*demand)),
            capacity: max,
            proved: None,
            closed: self.closed,
            blocked: false,
            previous: self
                .entry
                .map(|entry| ReplicaBounds::new(entry.min, entry.written)),
        };
        if let Some(estimate) = observed.estimated_capacity() {
            observed.capacity = estimate.get().min(max);
        }
        // What runs there fits there, whatever the estimate is.
        observed.capacity = observed.capacity.max(placed);
        observed
    }
}

/// The ways in which a share is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// A member that is unhealthy or does not answer.
    Lost,
    /// A taint evicts its pods; it can still be drained.
    Evicted,
}
