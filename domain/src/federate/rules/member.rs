//! The working copy of one member while the rules run: its observed state, its role, and what the rules have decided
//! for it so far.
//!
//! Counts that a member reports are capped at the largest count that was written for it, and its capacity at MAX, so
//! that a wrong report of one member cannot take replicas from the others.

use jiff::Timestamp;

use crate::{
    ReplicaBounds, Replicas,
    federate::{Candidate, EffectivePreference, Entry, Member, Reason},
};

/// One member while the rules run.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one member, not the states of a machine"
)]
pub(super) struct MemberState<'a> {
    pub(super) member: &'a Member,
    pub(super) preference: EffectivePreference,
    pub(super) role: MemberRole,
    /// Whether the ledger has an entry for it; if this is false in the end, the entry is removed.
    pub(super) known: bool,
    pub(super) entry: Entry,
    /// `spec.replicas`, capped.
    pub(super) replicas: u32,
    /// Pods that are ready, capped.
    pub(super) ready: u32,
    /// Pods that have a node or will get one, capped.
    pub(super) placed: u32,
    /// What its autoscaler wants, capped.
    pub(super) desired: Option<u32>,
    /// Its demand in replicas.
    pub(super) demand: Option<f64>,
    /// What it can run in all; MAX when unknown.
    pub(super) capacity: u32,
    /// Whether its pods count as the fleet's: [`Participation::Counted`](super::Participation::Counted).
    pub(super) counted: bool,
    /// Whether a taint keeps it from getting more than it has.
    pub(super) closed: bool,
    /// Whether its pods have been unschedulable for longer than the delay (R5).
    pub(super) blocked: bool,
    /// How much it needs beyond its budget (R6).
    pub(super) need: u32,
    /// Its share of the floor.
    pub(super) floor: u32,
    /// The count to keep while others become ready.
    pub(super) keep: u32,
    /// The replicas to write, if a rule sets them.
    pub(super) write: Option<u32>,
    /// Its count in Direct mode.
    pub(super) count: u32,
    /// Its minimum and written maximum after the last decision; absent for a new member.
    pub(super) previous: Option<ReplicaBounds>,
    /// Whether its autoscaler must not scale down now (R9).
    pub(super) hold: bool,
    pub(super) reasons: Vec<Reason>,
    pub(super) because: String,
}

/// The role of a member in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberRole {
    /// It takes part and can be changed.
    Active,
    /// It has a share and cannot be changed: it does not answer, or has been unhealthy for longer than tolerated.
    Lost,
    /// It has a share and is not changed, because another writer or autoscaler controls its replicas.
    Foreign,
    /// Its share went to the others.
    Failed,
    /// As `Failed`, but healthy again for less than a cooldown.
    Recovering,
    /// It is to be drained.
    Draining,
    /// It takes no part, for this reason.
    Outside(Reason),
}

impl MemberRole {
    /// Whether it keeps its share while the others divide the rest.
    pub(super) fn is_pinned(self) -> bool {
        matches!(self, Self::Lost | Self::Foreign)
    }
}

/// What one member may take in a division.
#[derive(Clone, Copy, Debug)]
pub(super) struct DivisionLimits {
    /// At most this.
    pub(super) max: u32,
    /// Its weight, and what it is filled up to.
    pub(super) capacity: u32,
    /// Its tier, if that is not its own priority.
    pub(super) priority: Option<i64>,
}

impl DivisionLimits {
    /// At most `room`, weighted by it.
    pub(super) const fn room(room: u32) -> Self {
        Self {
            max: room,
            capacity: room,
            priority: None,
        }
    }
}

impl<'a> MemberState<'a> {
    pub(super) fn name(&self) -> &'a str {
        &self.member.profile.name
    }

    pub(super) fn is_active(&self) -> bool {
        self.role == MemberRole::Active
    }

    pub(super) fn max(&self) -> u32 {
        self.entry.max.get()
    }

    pub(super) fn min(&self) -> u32 {
        self.entry.min.get()
    }

    pub(super) fn lower_limit(&self) -> u32 {
        self.preference.min.get()
    }

    pub(super) fn upper_limit(&self) -> u32 {
        if self.closed {
            self.preference.max.get().min(self.max())
        } else {
            self.preference.max.get()
        }
    }

    /// The `minReplicas` to write: the larger of its minimum and its floor.
    pub(super) fn written_min(&self) -> u32 {
        self.min().max(self.floor).min(self.max())
    }

    /// Whether it has a budget, and replicas now or after this decision.
    pub(super) fn is_awake(&self) -> bool {
        self.max() > 0 && self.write.unwrap_or(self.replicas) > 0
    }

    /// Whether it has a budget, and no replicas now or after this decision.
    pub(super) fn is_asleep(&self) -> bool {
        self.max() > 0 && self.write.unwrap_or(self.replicas) == 0
    }

    /// The replicas that its demand needs: the current ones if the demand is within the tolerance.
    pub(super) fn demanded_replicas(&self, tolerance: f64) -> Option<u32> {
        let demand = self.demand?;
        let there = f64::from(self.replicas);
        Some(if (demand - there).abs() <= tolerance * there {
            self.replicas
        } else {
            Replicas::from_f64_ceil(demand).get()
        })
    }

    /// Its demand after this decision: that of a member that is put to sleep goes to the others.
    pub(super) fn lasting_demand(&self) -> Option<f64> {
        let ends = self.write == Some(0);
        if ends { Some(0.0) } else { self.demand }
    }

    /// How much more budget it could be given and use.
    pub(super) fn room(&self) -> u32 {
        self.upper_limit()
            .min(self.capacity)
            .saturating_sub(self.max())
    }

    /// The estimate of its capacity; absent when unknown or elastic.
    pub(super) fn estimate(&self) -> Option<Replicas> {
        self.member.capacity.filter(|_| !self.preference.elastic)
    }

    /// Whether unschedulable pods have proved its capacity, and that still holds.
    pub(super) fn is_backed_off(&self, now: Timestamp) -> bool {
        self.entry
            .backoff
            .is_some_and(|backoff| now < backoff.span.until)
    }

    /// Its capacity when budgets were divided last, or the proved one if that is less.
    pub(super) fn stored_capacity(&self, now: Timestamp) -> u32 {
        let stored = self.entry.capacity.map_or(u32::MAX, Replicas::get);
        let backoff = self.entry.backoff.filter(|_| self.is_backed_off(now));
        stored.min(backoff.map_or(u32::MAX, |backoff| backoff.placed.get()))
    }

    /// Stores another capacity, also as weight where the policy weighs by capacity.
    pub(super) fn store_capacity(&mut self, capacity: Replicas, weighs: bool) {
        self.entry.capacity = Some(capacity);
        if weighs {
            self.entry.weight = u64::from(capacity.get());
        }
    }

    /// Sets its budget.
    pub(super) fn set_budget(&mut self, min: u32, max: u32) {
        self.entry.min = Replicas::new(min);
        self.entry.max = Replicas::new(max);
    }

    /// Raises its maximum; a member without a budget gets a minimum of one, because an HPA needs one.
    pub(super) fn gain(&mut self, n: u32, now: Timestamp) {
        let max = self.max().saturating_add(n);
        // 1 is the least that an HPA accepts.
        self.set_budget(self.min().max(1).min(max), max);
        self.entry.moved = Some(now);
    }

    /// Lowers its maximum, and its minimum to that if needed.
    pub(super) fn lose(&mut self, n: u32, now: Timestamp) {
        let max = self.max().saturating_sub(n);
        self.set_budget(self.min().min(max), max);
        self.entry.moved = Some(now);
    }

    /// Adds a reason; the text is that of the first one.
    pub(super) fn add_reason(&mut self, reason: Reason, because: impl FnOnce() -> String) {
        if self.reasons.is_empty() {
            self.because = because();
        }
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Adds a reason, and replaces the text by its own.
    pub(super) fn override_reason(&mut self, reason: Reason, because: String) {
        self.add_reason(reason, String::new);
        self.because = because;
    }

    /// The member as a candidate of a division.
    pub(super) fn candidate(&self, limits: DivisionLimits) -> Candidate<'a> {
        Candidate {
            name: self.name(),
            preference: EffectivePreference {
                // What is divided here comes on top of what a member has.
                min: Replicas::ZERO,
                max: Replicas::new(limits.max),
                priority: limits.priority.or(self.preference.priority),
                elastic: false,
                ..self.preference
            },
            capacity: Some(limits.capacity),
            demand: self.lasting_demand(),
            hosts: self.replicas > 0,
        }
    }
}

/// The sum of counts, saturating.
pub(super) fn sum(counts: impl IntoIterator<Item = u32>) -> u32 {
    counts.into_iter().fold(0, u32::saturating_add)
}
