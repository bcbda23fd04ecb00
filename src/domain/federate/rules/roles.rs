//! R1, R2, R4: what each member is to its fleet now, and what is believed of it. It refuses to decide what follows.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::fleet::{MemberState, Role};
use super::participation::Participation;
use super::taints;
use crate::domain::federate::{
    Dropped, Entry, FailurePolicy, Health, Member, Policy, Reason, ShareStatus, Standing,
    WorkloadSource,
};

/// A sample older than this many periods is none.
const STALE_PERIODS: i32 = 3;

/// Those that take part or have something of ours.
pub(super) fn seats<'a>(
    policy: &Policy,
    members: &'a [Member],
    entries: &BTreeMap<String, Entry>,
    now: Timestamp,
) -> Vec<MemberState<'a>> {
    let standings = policy.standings(members.iter().map(|member| &member.profile));
    let closed = taints::closed(policy, members, &standings);
    let all = members.iter().zip(standings).zip(closed);
    let seats = all.filter_map(|((member, standing), closed)| {
        let entry = entries.get(&member.profile.name);
        let judge = RoleClassifier {
            policy,
            member,
            entry,
            closed,
            now,
        };
        let role = judge.role(standing)?;
        let mut seat = judge.seat(role, standing.unwrap_or_default());
        let tainted = taints::seen(member, seat.entry.tainted, now);
        seat.entry.tainted = tainted.filter(|_| standing.is_ok());
        Some(seat)
    });
    seats.collect()
}

/// What is looked at to say what a member is to the fleet.
struct RoleClassifier<'j, 'a> {
    policy: &'j Policy,
    member: &'a Member,
    entry: Option<&'j Entry>,
    closed: bool,
    now: Timestamp,
}

impl<'a> RoleClassifier<'_, 'a> {
    /// None: not of this fleet.
    fn role(&self, standing: Result<Standing, Dropped>) -> Option<Role> {
        match standing {
            Err(Dropped::NotSelected) => self.unselected(None),
            Err(Dropped::NoPreference) => {
                self.unselected(Some(Role::Outside(Reason::NoPreference)))
            }
            Ok(_) => Some(self.selected()),
        }
    }

    /// The role of a member that the policy does not mean: `outside`, unless it has something of ours. An autoscaler
    /// of ours that nobody remembers is a leftover, to be removed like any other.
    fn unselected(&self, outside: Option<Role>) -> Option<Role> {
        let is_ours = self.entry.is_some() || self.member.hpa.is_some();
        match (is_ours, self.answers()) {
            (true, true) => Some(Role::Leaving),
            (true, false) if self.entry.is_some() => Some(Role::Lost),
            _ => outside,
        }
    }

    fn selected(&self) -> Role {
        let answers = self.answers();
        match self.failure() {
            Some(Failure::Evicted) if answers && self.entry.is_some() => Role::Leaving,
            Some(_) if self.entry.is_some() => Role::Failed,
            Some(_) => Role::Outside(Reason::Failed),
            None if self.is_recovering() => Role::Recovering,
            None if self.has_share() => self.with_share(answers),
            None => self.without_share(answers),
        }
    }

    fn has_share(&self) -> bool {
        let holds = |e: &Entry| matches!(e.tenure, ShareStatus::Candidate | ShareStatus::Pinned);
        self.entry.is_some_and(holds)
    }

    fn with_share(&self, answers: bool) -> Role {
        if !answers {
            Role::Lost
        } else if self.is_absent() {
            Role::Outside(Reason::TargetAbsent)
        } else if self.is_unwell() {
            Role::Lost
        } else if self.member.is_scaled_by_others() {
            Role::Foreign
        } else {
            Role::Active
        }
    }

    fn without_share(&self, answers: bool) -> Role {
        if !answers {
            Role::Outside(Reason::Unknown)
        } else if self.is_absent() {
            Role::Outside(Reason::TargetAbsent)
        } else if self.is_unwell() {
            Role::Outside(Reason::Failed)
        } else if self.member.is_scaled_by_others() {
            // A share would have to be written once before it was left alone.
            Role::Outside(Reason::Foreign)
        } else if self.closed {
            Role::Outside(Reason::Tainted)
        } else {
            Role::Active
        }
    }

    /// R1: whether it can be seen and written.
    fn answers(&self) -> bool {
        let fresh = self.policy.period.checked_mul(STALE_PERIODS);
        let is_fresh =
            |seen: Timestamp| fresh.is_none_or(|fresh| self.now.duration_since(seen) <= fresh);
        !matches!(self.member.health, Health::Unknown { .. })
            && self.member.observed.is_none_or(is_fresh)
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

    /// Whether it has not been well for longer than tolerated.
    fn is_unwell(&self) -> bool {
        let since = match self.member.health {
            Health::Ready => return false,
            Health::NotReady { since } | Health::Unknown { since } => since,
        };
        self.now.duration_since(since) >= self.policy.toleration
    }

    /// Whether it had lost its share and has not been well for long enough since.
    fn is_recovering(&self) -> bool {
        self.entry.is_some_and(|entry| {
            let well = |since: Timestamp| self.now.duration_since(since) >= self.policy.cooldown;
            entry.tenure == ShareStatus::Failed && !entry.recovered.is_some_and(well)
        })
    }

    fn is_absent(&self) -> bool {
        self.policy.source == WorkloadSource::Members && self.member.pods.is_none()
    }

    fn seat(&self, role: Role, standing: Standing) -> MemberState<'a> {
        let max = self.policy.bounds.max.get();
        let entry = self.entry.copied().unwrap_or_default();
        let most = if self.entry.is_some() {
            entry.written.get()
        } else {
            max
        };
        let pods = self.member.pods.unwrap_or_default();
        // A member without a budget may still have pods, and one pod is enough to tell.
        let replicas = pods.replicas.get().min(most.max(1));
        // Cut after the subtraction: a maximum that was just lowered ends the unschedulable pods, not the others.
        let placed = pods
            .replicas
            .get()
            .saturating_sub(pods.unschedulable.get())
            .min(replicas);
        let usable = |demand: &f64| demand.is_finite() && *demand >= 0.0;
        let mut seat = MemberState {
            member: self.member,
            standing,
            role,
            known: self.entry.is_some(),
            entry,
            replicas,
            ready: pods.ready.get().min(replicas),
            placed,
            desired: self.member.desired.map(|desired| desired.get().min(most)),
            demand: self.member.demand.filter(usable),
            capacity: 0,
            counted: false,
            closed: self.closed,
            blocked: false,
            need: 0,
            floor: 0,
            keep: 0,
            write: None,
            count: replicas,
            previous: self.entry.map(|entry| (entry.min, entry.written)),
            hold: false,
            reasons: Vec::new(),
            because: String::new(),
        };
        let estimate = seat
            .estimate()
            .map_or(max, |estimate| estimate.get().min(max));
        seat.capacity = estimate.max(placed);
        seat.counted = seat.participation() == Participation::Counted;
        seat
    }
}

/// How a share is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It is not well.
    Lost,
    /// A taint says so; it can still be drained.
    Evicted,
}
