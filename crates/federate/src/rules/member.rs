//! One member while the rules run: what is observed of it, its entry of the ledger, and what the rules decide for it.
//!
//! Counts that a member reports are capped at the largest count that was written for it, and its capacity at MAX, so
//! that a wrong report of one member cannot take replicas from the others.

use std::ops::Deref;

use jiff::Timestamp;

use crate::{Budget, Candidate, EffectivePreference, Entry, Member, Reason, Span};
use foretide_domain::{ReplicaBounds, Replicas};

use super::participation::{MemberRole, Participation};

/// One member while the rules run.
#[derive(Debug)]
pub struct MemberState<'a> {
    observed: Observed<'a>,
    /// The position among the members by name; zero until all are classified.
    pub position: usize,
    /// The budget and its timers.
    pub entry: Entry,
    /// True if the ledger has an entry for it; if this is false in the end, the entry is removed.
    pub known: bool,
    pub decided: Decided,
}

/// The observation of a member. Rules read these fields through their [`MemberState`] and cannot change them.
#[derive(Debug)]
pub struct Observed<'a> {
    pub member: &'a Member,
    pub preference: EffectivePreference,
    pub role: MemberRole,
    pub participation: Participation,
    /// `spec.replicas`, capped.
    pub replicas: u32,
    /// Pods that are ready, capped.
    pub ready: u32,
    /// Pods that have a node or will get one, capped.
    pub placed: u32,
    /// The count that its autoscaler wants, capped.
    pub desired: Option<u32>,
    /// The demand in replicas.
    pub demand: Option<f64>,
    /// The number of replicas that it can run in all; MAX when unknown.
    pub capacity: u32,
    /// The capacity that its unschedulable pods have proved, while that holds.
    pub proved: Option<u32>,
    /// True if a taint keeps it from getting more than it has.
    pub closed: bool,
    /// True if its pods have been unschedulable for longer than the delay (R5).
    pub blocked: bool,
    /// The minimum and written maximum after the last decision; absent for a new member.
    pub previous: Option<ReplicaBounds>,
}

/// The decisions of the rules for a member, beside its budget.
#[derive(Debug, Default)]
pub struct Decided {
    /// The share of the fleet's floor.
    pub floor: u32,
    /// The amount that it needs beyond the budget that it had before budgets moved (R6).
    pub need: u32,
    /// The count to keep while others become ready (landing).
    pub keep: u32,
    /// True if its autoscaler must not scale down now (R9).
    pub hold: bool,
    /// The replicas to write: of a workload that the hub creates (R3), of a member that is put to sleep or woken (R10,
    /// R11).
    pub write: Option<u32>,
    /// The count, where the hub writes it.
    pub count: Option<u32>,
    /// The reasons, the deciding one first. R10 and R11 read from them what the rules before them did.
    pub reasons: Vec<Reason>,
    /// The deciding reason with its numbers.
    pub because: String,
}

/// The change of one member by a rule.
pub struct Change {
    /// The position of the member.
    position: usize,
    effect: Effect,
    /// The reason with its numbers; the text is empty when [`Reason::text`] says it all. Absent for what later rules are to
    /// know, but what nobody sees.
    why: Option<(Reason, String)>,
}

/// The effects of the rules on a member, each with all that it sets.
pub enum Effect {
    /// Nothing; only the reason is given.
    Explain,
    /// R3: its share.
    Assign(Box<Assigned>),
    /// R3, where nothing is assigned: since when it is healthy again, and its merged preferences.
    Wait {
        recovered: Option<Timestamp>,
        preference: Option<EffectivePreference>,
    },
    /// Landing: it keeps this count until others are ready.
    Keep(u32),
    /// The amount that it needs beyond its budget.
    Need(Need),
    /// The share of the fleet's floor.
    Floor(u32),
    /// The basis of the division of floors from now on.
    FloorBasis(FloorBasis),
    /// R5 to R8: another budget.
    Budget(Budget),
    /// R7: since when it idles at its minimum.
    Idle(Option<Timestamp>),
    /// R9: a smaller budget, which ends pods.
    Shrink(Budget),
    /// R9: its autoscaler must not scale down.
    Hold,
    /// R10: it is scaled to zero.
    Sleep,
    /// R11: it is scaled to this count, and not put to sleep again before the span ends.
    Wake {
        count: u32,
        stays_awake: Option<Span>,
    },
    /// The count in Direct mode.
    Count(u32),
}

/// The parts of a member that R3 sets.
pub struct Assigned {
    pub entry: Entry,
    /// True if its entry stays in the ledger.
    pub known: bool,
    /// The count to begin with, where the hub creates the workload.
    pub write: Option<u32>,
}

/// The amount that a member needs beyond its budget, and the consequences for its timers (R6).
pub struct Need {
    pub count: u32,
    /// Since when it needs more.
    pub since: Option<Timestamp>,
    /// The time for which its demand counts as local.
    pub local: Option<Span>,
    /// The time at which R9 shrank it last, unless that proved wrong.
    pub shrunk: Option<Timestamp>,
}

/// By what the fleet's floor is divided until budgets are divided again.
#[derive(Clone, Copy)]
pub(crate) struct FloorBasis {
    pub capacity: Option<Replicas>,
    pub weight: u64,
    /// The position in the order of filling.
    pub rank: u32,
}

impl Change {
    /// A change for a reason with its numbers.
    pub fn because(state: &MemberState<'_>, effect: Effect, reason: Reason, text: String) -> Self {
        Self {
            position: state.position,
            effect,
            why: Some((reason, text)),
        }
    }

    /// A change that only later rules see.
    pub fn silent(state: &MemberState<'_>, effect: Effect) -> Self {
        Self {
            position: state.position,
            effect,
            why: None,
        }
    }

    /// The position of the member, and its new budget if that moves.
    pub fn budget(&self) -> Option<(usize, Budget)> {
        match self.effect {
            Effect::Budget(budget) | Effect::Shrink(budget) => Some((self.position, budget)),
            _ => None,
        }
    }

    /// Applies what the rule changes to its member.
    pub fn apply(self, members: &mut [MemberState<'_>], now: Timestamp) {
        if let Some(state) = members.get_mut(self.position) {
            // What it keeps is the maximum to write, so this text replaces that of the assignment.
            let replaces = matches!(self.effect, Effect::Keep(_));
            state.apply_effect(self.effect, now);
            if let Some((reason, text)) = self.why {
                state.add_reason(reason, || text.clone());
                if replaces {
                    state.decided.because = text;
                }
            }
        }
    }
}

/// The amount that one member may take in a division.
#[derive(Clone, Copy, Debug)]
pub struct DivisionLimits {
    /// At most this.
    pub max: u32,
    /// The weight, and the count up to which it is filled.
    pub capacity: u32,
    /// The tier, if that is not its own priority.
    pub priority: Option<i64>,
}

impl DivisionLimits {
    /// At most `room`, weighted by it.
    pub const fn room(room: u32) -> Self {
        Self {
            max: room,
            capacity: room,
            priority: None,
        }
    }
}

impl<'a> Deref for MemberState<'a> {
    type Target = Observed<'a>;

    fn deref(&self) -> &Observed<'a> {
        &self.observed
    }
}

impl Observed<'_> {
    /// The estimate of its capacity; absent when unknown or elastic.
    pub fn estimated_capacity(&self) -> Option<Replicas> {
        self.member.capacity.filter(|_| !self.preference.elastic)
    }
}

impl Entry {
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            min: self.min,
            max: self.max,
        }
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) {
        (self.min, self.max) = (budget.min, budget.max);
    }

    pub(crate) fn floor_basis(&self) -> FloorBasis {
        FloorBasis {
            capacity: self.capacity,
            weight: self.weight,
            rank: self.rank,
        }
    }

    pub(crate) fn set_floor_basis(&mut self, basis: FloorBasis) {
        self.capacity = basis.capacity;
        self.weight = basis.weight;
        self.rank = basis.rank;
    }
}

impl FloorBasis {
    /// With another capacity, also as weight where the policy weighs by capacity.
    pub fn with_capacity(self, capacity: Replicas, weighs: bool) -> Self {
        Self {
            capacity: Some(capacity),
            weight: if weighs {
                u64::from(capacity.get())
            } else {
                self.weight
            },
            ..self
        }
    }
}

impl Budget {
    pub(crate) fn new(min: u32, max: u32) -> Self {
        Self {
            min: Replicas::new(min),
            max: Replicas::new(max),
        }
    }

    /// With a larger maximum; without a budget so far, with a minimum of one.
    pub(crate) fn raised(self, n: u32) -> Self {
        let max = self.max.get().saturating_add(n);
        // 1 is the least that an HPA accepts.
        Self::new(self.min.get().max(1).min(max), max)
    }

    /// With a smaller maximum, and a minimum of at most that.
    pub(crate) fn lowered(self, n: u32) -> Self {
        let max = self.max.get().saturating_sub(n);
        Self::new(self.min.get().min(max), max)
    }
}

impl<'a> MemberState<'a> {
    pub fn new(observed: Observed<'a>, entry: &Entry, known: bool) -> Self {
        Self {
            observed,
            position: 0,
            entry: *entry,
            known,
            decided: Decided::default(),
        }
    }

    pub fn name(&self) -> &'a str {
        &self.member.profile.name
    }

    /// True if its pods count as the fleet's.
    pub fn is_counted(&self) -> bool {
        self.participation == Participation::Counted
    }

    pub fn is_active(&self) -> bool {
        self.role == MemberRole::Active
    }

    /// The pods that are ready within its budget.
    pub fn ready_in_budget(&self) -> u32 {
        self.ready.min(self.max())
    }

    /// The placed pods within its budget.
    pub fn placed_in_budget(&self) -> u32 {
        self.placed.min(self.max())
    }

    /// The priority by its preferences.
    pub fn priority(&self) -> Option<i64> {
        self.preference.priority
    }

    /// True if a rule has given this reason.
    pub fn has_reason(&self, reason: Reason) -> bool {
        self.decided.reasons.contains(&reason)
    }

    /// The replicas by its own report: what was written for it may be less already.
    pub fn reported(&self) -> u32 {
        self.member.pods.map_or(0, |pods| pods.replicas.get())
    }

    pub fn max(&self) -> u32 {
        self.entry.max.get()
    }

    pub fn min(&self) -> u32 {
        self.entry.min.get()
    }

    pub fn lower_limit(&self) -> u32 {
        self.preference.min.get()
    }

    pub fn upper_limit(&self) -> u32 {
        self.upper_limit_with(self.max())
    }

    /// The upper limit if its maximum were `max`, which a taint keeps from growing.
    pub fn upper_limit_with(&self, max: u32) -> u32 {
        let limit = self.preference.max.get();
        if self.closed { limit.min(max) } else { limit }
    }

    /// The `minReplicas` to write: the larger of its minimum and its floor.
    pub fn written_min(&self) -> u32 {
        self.min().max(self.decided.floor).min(self.max())
    }

    /// The replicas after this decision, as far as the rules before have set them.
    pub fn next_replicas(&self) -> u32 {
        self.decided.write.unwrap_or(self.replicas)
    }

    /// True if it has a budget, and replicas now or after this decision.
    pub fn is_awake(&self) -> bool {
        self.max() > 0 && self.next_replicas() > 0
    }

    /// True if it has a budget, and no replicas now or after this decision.
    pub fn is_asleep(&self) -> bool {
        self.max() > 0 && self.next_replicas() == 0
    }

    /// The replicas that its demand needs: the current ones if the demand is within the tolerance.
    pub fn demanded_replicas(&self, tolerance: f64) -> Option<u32> {
        let demand = self.demand?;
        let there = f64::from(self.replicas);
        Some(if (demand - there).abs() <= tolerance * there {
            self.replicas
        } else {
            Replicas::from_f64_ceil(demand).get()
        })
    }

    /// The demand after this decision: that of a member that is put to sleep goes to the others.
    pub fn lasting_demand(&self) -> Option<f64> {
        let ends = self.decided.write == Some(0);
        if ends { Some(0.0) } else { self.demand }
    }

    /// The further budget that it could be given and use.
    pub fn room(&self) -> u32 {
        self.room_beyond(self.max())
    }

    /// The same as [`MemberState::room`], if its maximum were `max`.
    pub fn room_beyond(&self, max: u32) -> u32 {
        let limit = self.upper_limit_with(max).min(self.capacity);
        limit.saturating_sub(max)
    }

    fn apply_effect(&mut self, effect: Effect, now: Timestamp) {
        let (entry, decided) = (&mut self.entry, &mut self.decided);
        match effect {
            Effect::Explain => {}
            Effect::Assign(assigned) => {
                (*entry, self.known) = (assigned.entry, assigned.known);
                decided.write = assigned.write;
            }
            Effect::Wait {
                recovered,
                preference,
            } => {
                (entry.recovered, entry.preference) = (recovered, preference);
            }
            Effect::Keep(count) => decided.keep = count,
            Effect::Need(need) => {
                decided.need = need.count;
                entry.saturated_since = need.since;
                (entry.local, entry.shrunk) = (need.local, need.shrunk);
            }
            Effect::Floor(share) => decided.floor = share,
            Effect::FloorBasis(basis) => entry.set_floor_basis(basis),
            Effect::Budget(budget) => self.move_budget(budget, now),
            Effect::Idle(since) => entry.idle_since = since,
            Effect::Shrink(budget) => {
                entry.shrunk = Some(now);
                self.move_budget(budget, now);
            }
            Effect::Hold => decided.hold = true,
            Effect::Sleep => {
                (decided.write, decided.floor) = (Some(0), 0);
                (entry.moved, entry.slept) = (Some(now), Some(now));
            }
            Effect::Wake { count, stays_awake } => {
                decided.write = Some(count);
                (entry.woken, entry.slept) = (Some(now), None);
                entry.needed = stays_awake.or(entry.needed);
            }
            Effect::Count(count) => decided.count = Some(count),
        }
    }

    fn move_budget(&mut self, budget: Budget, now: Timestamp) {
        self.entry.set_budget(budget);
        self.entry.moved = Some(now);
    }

    /// Adds a reason; the text is that of the first one.
    pub fn add_reason(&mut self, reason: Reason, because: impl FnOnce() -> String) {
        if self.decided.reasons.is_empty() {
            self.decided.because = because();
        }
        if !self.has_reason(reason) {
            self.decided.reasons.push(reason);
        }
    }

    /// The member as a candidate of a division.
    pub fn candidate(&self, limits: DivisionLimits) -> Candidate<'a> {
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
pub fn sum(counts: impl IntoIterator<Item = u32>) -> u32 {
    counts.into_iter().fold(0, u32::saturating_add)
}
