//! The working copy of a fleet while the rules run: who takes part, what is believed of each, and what was decided so
//! far. It refuses to decide anything itself.
//!
//! What a member says of itself is believed only as far as it can hurt nobody else: counts are cut to the largest
//! count that was written for it, and its capacity to MAX.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::roles::seats;
use crate::domain::{
    Replicas,
    federate::{
        Candidate, Entry, Kind, Ledger, Member, Policy, Reason, ShareStatus, Standing, Surplus,
        Total, WeightBy, share,
    },
    workload::Mode,
};

/// A fleet in the making.
pub(super) struct Fleet<'a> {
    pub(super) policy: &'a Policy,
    pub(super) total: &'a Total,
    pub(super) now: Timestamp,
    /// The memory, without the members: theirs is in the seats until the end.
    pub(super) ledger: Ledger,
    /// By name.
    pub(super) seats: Vec<MemberState<'a>>,
    /// Whether a member with a budget is not there any more.
    pub(super) vanished: bool,
    /// What has to be divided as floor; in Direct also the count of the fleet, which is divided alike.
    pub(super) floor: u32,
    /// What forecast, cron windows and metrics of the fleet ask for, and nothing else.
    pub(super) asked: u32,
    /// Whether more is to be divided than is asked for, so that others become ready before pods end.
    pub(super) lands: bool,
    /// What of it nobody can take.
    pub(super) unmet: u32,
    /// The shares of the floor that members have when another sleeps, and take over before it does (R10).
    pub(super) bequest: BTreeMap<&'a str, u32>,
}

/// One member in the making.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one member, not the states of a machine"
)]
pub(super) struct MemberState<'a> {
    pub(super) member: &'a Member,
    pub(super) standing: Standing,
    pub(super) role: Role,
    /// Whether the ledger knows it; one that it does not know at the end is forgotten.
    pub(super) known: bool,
    pub(super) entry: Entry,
    /// Replicas asked for, as believed.
    pub(super) replicas: u32,
    /// Pods that are ready, as believed.
    pub(super) ready: u32,
    /// Pods that have or get a node.
    pub(super) placed: u32,
    /// What its autoscaler wants.
    pub(super) desired: Option<u32>,
    /// Its demand in replicas.
    pub(super) demand: Option<f64>,
    /// What it can run in all; MAX when unknown.
    pub(super) capacity: u32,
    /// Whether its pods were the fleet's when the fleet was measured.
    pub(super) counted: bool,
    /// Whether it may get no more than it has.
    pub(super) closed: bool,
    /// Whether pods have been unschedulable for too long.
    pub(super) blocked: bool,
    /// What it needs beyond its budget.
    pub(super) need: u32,
    pub(super) floor: u32,
    /// The count to keep while others become ready.
    pub(super) keep: u32,
    /// The replicas to write.
    pub(super) write: Option<u32>,
    /// The count for it in Direct.
    pub(super) count: u32,
    /// The bounds that were decided last; absent for a new member.
    pub(super) previous: Option<(Replicas, Replicas)>,
    pub(super) hold: bool,
    pub(super) reasons: Vec<Reason>,
    pub(super) because: String,
}

/// What a member is to its fleet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes part and can be changed.
    Active,
    /// Has a share and cannot be changed: it does not answer, or has been unwell for long.
    Lost,
    /// Has a share and is not changed, because somebody else writes its replicas or scales it.
    Foreign,
    /// Its share went to the others.
    Failed,
    /// As `Failed`, but well again since a short time.
    Recovering,
    /// Has to be drained.
    Leaving,
    /// Takes no part, for this reason.
    Outside(Reason),
}

impl Role {
    /// Whether it keeps what it has, whatever the others do.
    pub(super) fn is_pinned(self) -> bool {
        matches!(self, Self::Lost | Self::Foreign)
    }
}

impl<'a> Fleet<'a> {
    /// Who takes part, and what is believed.
    pub(super) fn gather(
        policy: &'a Policy,
        total: &'a Total,
        members: &'a [Member],
        mut ledger: Ledger,
        now: Timestamp,
    ) -> Self {
        let entries = std::mem::take(&mut ledger.members);
        let mut seats = seats(policy, members, &entries, now);
        seats.sort_by(|a, b| a.name().cmp(b.name()));
        let had_budget =
            |entry: &Entry| matches!(entry.tenure, ShareStatus::Candidate | ShareStatus::Pinned);
        let known = seats.iter().filter(|s| s.known && had_budget(&s.entry));
        let floor = total.floor.map_or(0, Replicas::get);
        let desired = match policy.mode {
            Mode::Direct => total.desired.map_or(0, Replicas::get),
            Mode::Delegated => 0,
        };
        Self {
            vanished: known.count() < entries.values().filter(|e| had_budget(e)).count(),
            floor: floor.max(desired),
            asked: floor,
            lands: false,
            unmet: 0,
            bequest: BTreeMap::new(),
            policy,
            total,
            now,
            ledger,
            seats,
        }
    }

    /// Whether budgets move at run time under this policy.
    pub(super) fn moves(&self) -> bool {
        matches!(
            self.policy.kind,
            Kind::Aggregated | Kind::DynamicWeighted | Kind::Prioritized
        )
    }

    /// Whether what a member can run is its weight.
    pub(super) fn weighs_capacity(&self) -> bool {
        let by_demand = self.policy.weight_by == WeightBy::Demand;
        match self.policy.kind {
            Kind::Duplicated | Kind::StaticWeighted => false,
            Kind::DynamicWeighted => !by_demand,
            Kind::Aggregated | Kind::Prioritized => true,
        }
    }

    /// MAX.
    pub(super) fn max(&self) -> u32 {
        self.policy.bounds.max.get()
    }

    /// The members that can be changed.
    pub(super) fn active(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.seats.iter().filter(|seat| seat.is_active())
    }

    /// The same, to change them.
    pub(super) fn active_mut(&mut self) -> impl Iterator<Item = &mut MemberState<'a>> {
        self.seats.iter_mut().filter(|seat| seat.is_active())
    }

    /// Those of them that have a share: the pods of the others are not the fleet's.
    pub(super) fn sharing(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.active().filter(|seat| seat.max() > 0)
    }

    /// Those whose pods are the fleet's.
    pub(super) fn counted(&self) -> impl Iterator<Item = &MemberState<'a>> {
        self.seats.iter().filter(|seat| seat.counted)
    }

    /// How long something has lasted.
    pub(super) fn age(&self, since: Timestamp) -> SignedDuration {
        self.now.duration_since(since)
    }

    /// Whether a member was moved too recently to be moved again.
    pub(super) fn cools(&self, seat: &MemberState<'_>) -> bool {
        self.within(seat.entry.moved, self.policy.cooldown)
    }

    /// Whether something happened less than `span` ago.
    pub(super) fn within(&self, when: Option<Timestamp>, span: SignedDuration) -> bool {
        when.is_some_and(|when| self.age(when) < span)
    }

    /// How long a reason must be seen before anything is taken away.
    pub(super) fn settled(&self, since: Option<Timestamp>) -> bool {
        let passes = i32::try_from(self.policy.settle).unwrap_or(i32::MAX);
        let span = self
            .policy
            .period
            .checked_mul(passes.saturating_sub(1).max(0));
        since.is_some_and(|since| span.is_some_and(|span| self.age(since) >= span))
    }

    /// Divides `n` by the policy over those members that `part` gives a part; parallel to the seats.
    pub(super) fn spread(
        &self,
        n: u32,
        surplus: Surplus,
        part: impl Fn(&MemberState<'a>) -> Option<Part>,
    ) -> Vec<u32> {
        let mut shares = vec![0; self.seats.len()];
        if n == 0 {
            return shares;
        }
        let parts = self.seats.iter().map(part);
        let slots = shares.iter_mut().zip(&self.seats).zip(parts);
        let (places, candidates): (Vec<_>, Vec<_>) = slots
            .filter_map(|((share, seat), part)| Some((share, seat.candidate(part?))))
            .unzip();
        let split = share(self.policy, Replicas::new(n), &candidates, surplus);
        for (place, share) in places.into_iter().zip(split.shares) {
            *place = share;
        }
        shares
    }
}

/// One member's part in a division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// At most this.
    pub(super) hi: u32,
    /// What weighs, and what is filled up to.
    pub(super) capacity: u32,
    /// Its tier, if not its own priority.
    pub(super) priority: Option<i64>,
}

impl Part {
    /// Up to `room`.
    pub(super) const fn room(room: u32) -> Self {
        Self {
            hi: room,
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
        self.role == Role::Active
    }

    pub(super) fn max(&self) -> u32 {
        self.entry.max.get()
    }

    pub(super) fn min(&self) -> u32 {
        self.entry.min.get()
    }

    pub(super) fn lo(&self) -> u32 {
        self.standing.lo.get()
    }

    pub(super) fn hi(&self) -> u32 {
        if self.closed {
            self.standing.hi.get().min(self.max())
        } else {
            self.standing.hi.get()
        }
    }

    /// The minimum that is written: of its budget and of its floor.
    pub(super) fn written_min(&self) -> u32 {
        self.min().max(self.floor).min(self.max())
    }

    /// Whether it has a budget and runs, or is about to.
    pub(super) fn is_awake(&self) -> bool {
        self.max() > 0 && self.write.unwrap_or(self.replicas) > 0
    }

    /// Whether it has a budget and no replicas.
    pub(super) fn is_asleep(&self) -> bool {
        self.max() > 0 && self.write.unwrap_or(self.replicas) == 0
    }

    /// Demand by the metrics in whole replicas, none within the tolerance of what is there.
    pub(super) fn asks(&self, tolerance: f64) -> Option<u32> {
        let demand = self.demand?;
        let there = f64::from(self.replicas);
        Some(if (demand - there).abs() <= tolerance * there {
            self.replicas
        } else {
            Replicas::from_f64_ceil(demand).get()
        })
    }

    /// Its demand as far as it stays there: what pods serve that are put to sleep goes to the others.
    pub(super) fn lasting_demand(&self) -> Option<f64> {
        let ends = self.write == Some(0);
        if ends { Some(0.0) } else { self.demand }
    }

    /// Budget it could still be given and use.
    pub(super) fn room(&self) -> u32 {
        self.hi().min(self.capacity).saturating_sub(self.max())
    }

    /// What its nodes are said to hold in all; absent when unknown or said to grow.
    pub(super) fn estimate(&self) -> Option<Replicas> {
        self.member.capacity.filter(|_| !self.standing.elastic)
    }

    /// Whether feedback says that it is full.
    pub(super) fn is_marked(&self, now: Timestamp) -> bool {
        self.entry.mark.is_some_and(|mark| now < mark.span.until)
    }

    /// Its capacity as stored when budgets were divided last, or less where feedback says so.
    pub(super) fn stored_capacity(&self, now: Timestamp) -> u32 {
        let stored = self.entry.capacity.map_or(u32::MAX, Replicas::get);
        let mark = self.entry.mark.filter(|_| self.is_marked(now));
        stored.min(mark.map_or(u32::MAX, |mark| mark.placed.get()))
    }

    /// Replaces what is stored of its capacity.
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

    /// Gives budget; a member that had none gets a minimum, because autoscalers need one.
    pub(super) fn gain(&mut self, n: u32, now: Timestamp) {
        let max = self.max().saturating_add(n);
        self.set_budget(self.min().max(1).min(max), max);
        self.entry.moved = Some(now);
    }

    /// Takes budget, its maximum only.
    pub(super) fn lose(&mut self, n: u32, now: Timestamp) {
        let max = self.max().saturating_sub(n);
        self.set_budget(self.min().min(max), max);
        self.entry.moved = Some(now);
    }

    /// Adds a reason, and what there is to say about it if it is the first.
    pub(super) fn tell(&mut self, reason: Reason, because: impl FnOnce() -> String) {
        if self.reasons.is_empty() {
            self.because = because();
        }
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Adds a reason whose words say more than those of the first, and stand in their place.
    pub(super) fn tell_above(&mut self, reason: Reason, because: String) {
        self.tell(reason, String::new);
        self.because = because;
    }

    /// It as a candidate of a division.
    pub(super) fn candidate(&self, part: Part) -> Candidate<'a> {
        Candidate {
            name: self.name(),
            standing: Standing {
                lo: Replicas::ZERO,
                hi: Replicas::new(part.hi),
                priority: part.priority.or(self.standing.priority),
                elastic: false,
                ..self.standing
            },
            capacity: Some(part.capacity),
            demand: self.lasting_demand(),
            hosts: self.replicas > 0,
        }
    }
}

/// The sum of counts.
pub(super) fn sum(counts: impl IntoIterator<Item = u32>) -> u32 {
    counts.into_iter().fold(0, u32::saturating_add)
}
