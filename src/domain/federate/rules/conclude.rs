//! R12: what the rules left becomes a decision and a memory: bounds are put in order, what is already so is not written
//! again, and the writes are ordered. It refuses to move anything.

use jiff::Timestamp;

use crate::domain::Replicas;
use crate::domain::federate::{
    Action, Entry, FleetDecision, Ledger, Member, MemberDecision, Reason, ShareStatus,
    WorkloadSource,
};
use crate::domain::workload::Mode;

use super::conditions;
use super::fleet::{Fleet, MemberState, Role};

/// The urgency of what ends ready pods that may be needed until the others have grown.
const AFTER_GROWTH: u8 = 2;

/// What is written for one member.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    action: Action,
    min: u32,
    max: u32,
    replicas: Option<u32>,
}

impl Outcome {
    fn of(action: Action, (min, max): (u32, u32)) -> Self {
        Self {
            action,
            min,
            max,
            replicas: None,
        }
    }
}

/// The decision and the memory.
pub(super) fn conclude(mut fleet: Fleet<'_>) -> (FleetDecision, Ledger) {
    fleet.seats.iter_mut().for_each(put_in_order);
    let conditions = conditions::conditions(&fleet);
    let mut ledger = std::mem::take(&mut fleet.ledger);
    let mut members = Vec::with_capacity(fleet.seats.len());
    let mut order = Vec::new();
    let (unmet, policy, now) = (fleet.unmet, fleet.policy, fleet.now);
    let goal = fleet.lands.then_some(fleet.floor);
    for mut seat in fleet.seats {
        let before = before(&seat, policy.mode);
        let outcome = outcome(&seat, policy.source, policy.mode, before);
        if outcome.action.writes() {
            order.push((
                urgency(&seat, outcome, before, now),
                order.len(),
                members.len(),
            ));
        }
        if let Some(entry) = remembered(&seat, outcome) {
            ledger.members.insert(seat.name().to_owned(), entry);
        }
        if let Some(goal) = goal.filter(|_| outcome.min > seat.min()) {
            tell_of_landing(&mut seat, outcome, before, goal);
        }
        settle_reasons(&mut seat, outcome, before);
        members.push(decided(seat, outcome, before));
    }
    order.sort_unstable();
    let late = order
        .iter()
        .filter(|(urgency, _, _)| *urgency == AFTER_GROWTH);
    let decision = FleetDecision {
        at: now,
        members,
        after_growth: late.map(|(_, _, at)| *at).collect(),
        order: order.into_iter().map(|(_, _, at)| at).collect(),
        unassigned: ledger.unassigned,
        unmet_floor: Replicas::new(unmet),
        conditions,
    };
    (decision, ledger)
}

fn put_in_order(seat: &mut MemberState<'_>) {
    let max = seat.max().min(seat.standing.hi.get());
    if seat.is_active() {
        seat.set_budget(seat.min().max(1).min(max), max);
    }
}

/// The bounds that stand: those of its autoscaler; in Direct those that were decided last.
fn before(seat: &MemberState<'_>, mode: Mode) -> Option<(Replicas, Replicas)> {
    match mode {
        Mode::Delegated => seat.member.hpa,
        Mode::Direct => seat.previous,
    }
}

fn outcome(
    seat: &MemberState<'_>,
    source: WorkloadSource,
    mode: Mode,
    before: Option<(Replicas, Replicas)>,
) -> Outcome {
    let stands = before.map(|(min, max)| (min.get(), max.get()));
    match seat.role {
        Role::Lost | Role::Foreign | Role::Failed | Role::Recovering => {
            Outcome::of(Action::Skip, stands.unwrap_or((seat.min(), seat.max())))
        }
        Role::Outside(Reason::Unknown | Reason::Failed | Reason::Foreign) => {
            Outcome::of(Action::Skip, stands.unwrap_or_default())
        }
        Role::Outside(_) if seat.member.hpa.is_some() => Outcome::of(Action::Delete, (0, 0)),
        Role::Outside(_) => Outcome::default(),
        Role::Leaving => ended(seat, source, stands),
        Role::Active if seat.max() == 0 => ended(seat, source, stands),
        Role::Active => running(seat, source, mode, stands),
    }
}

/// A member without a share: it keeps its pods while the others land, then they end, then all of ours goes; a
/// workload that the hub did not place stays as it is.
fn ended(seat: &MemberState<'_>, source: WorkloadSource, stands: Option<(u32, u32)>) -> Outcome {
    let runs = seat
        .member
        .pods
        .is_some_and(|pods| pods.replicas > Replicas::ZERO);
    let is_theirs = source == WorkloadSource::Hub && seat.member.foreign;
    let is_ours = source == WorkloadSource::Hub && seat.member.pods.is_some() && !is_theirs;
    let stands = stands.filter(|(_, max)| *max > 0);
    if seat.keep > 0 {
        // Pods that never were the fleet's are kept without bounds of ours, and none are to be remembered.
        let never_was_ours = seat
            .previous
            .is_none_or(|(_, written)| written == Replicas::ZERO);
        let bounds = if stands.is_none() && never_was_ours {
            (0, 0)
        } else {
            let min = stands.map_or(1, |(min, _)| min.min(seat.keep));
            (min, seat.keep)
        };
        Outcome::of(Action::Keep, bounds)
    } else if runs && !is_theirs {
        Outcome {
            replicas: Some(0),
            ..Outcome::of(Action::Drain, (0, 0))
        }
    } else if seat.member.hpa.is_some() || is_ours {
        Outcome::of(Action::Delete, (0, 0))
    } else {
        Outcome::default()
    }
}

fn running(
    seat: &MemberState<'_>,
    source: WorkloadSource,
    mode: Mode,
    stands: Option<(u32, u32)>,
) -> Outcome {
    let (min, max) = (seat.written_min(), seat.max().max(seat.keep));
    let there = seat.member.pods.map(|pods| pods.replicas.get());
    let replicas = match mode {
        Mode::Delegated => seat.write,
        Mode::Direct => Some(direct(seat)),
    };
    let changes = |n: u32| there != Some(n);
    let action = match (there, replicas) {
        (None, _) if source == WorkloadSource::Hub => Action::Create,
        (Some(0), Some(n)) if n > 0 => Action::Wake,
        (Some(r), Some(0)) if r > 0 => Action::Sleep,
        _ if mode == Mode::Direct => {
            if replicas.is_some_and(changes) {
                Action::Update
            } else {
                Action::Keep
            }
        }
        _ if stands.is_none() => Action::Create,
        _ if stands != Some((min, max)) || seat.hold != seat.entry.held => Action::Update,
        _ => Action::Keep,
    };
    let replicas = replicas.or((action == Action::Create && there.is_none()).then_some(0));
    Outcome {
        action,
        min,
        max,
        replicas,
    }
}

/// Direct: the count to write.
fn direct(seat: &MemberState<'_>) -> u32 {
    match (seat.keep, seat.write) {
        (0, Some(0)) => 0,
        (0, _) => seat.count,
        (keep, _) => keep,
    }
}

/// When a write comes: maxima that shrink first, then what grows or stays, last what ends ready pods that may be
/// needed until the others have grown.
fn urgency(
    seat: &MemberState<'_>,
    outcome: Outcome,
    before: Option<(Replicas, Replicas)>,
    now: Timestamp,
) -> u8 {
    let was = before.map_or(0, |(_, max)| max.get());
    let ends = outcome.replicas.is_some_and(|n| n < seat.ready) || outcome.max < seat.ready;
    let in_excess = seat.entry.shrunk == Some(now);
    if ends && !in_excess {
        AFTER_GROWTH
    } else {
        u8::from(outcome.max >= was)
    }
}

/// What is remembered; none for a member that is forgotten.
fn remembered(seat: &MemberState<'_>, outcome: Outcome) -> Option<Entry> {
    let mut entry = seat.entry;
    let is_over = outcome.action == Action::Keep && outcome.max == 0 && seat.keep == 0;
    let gone = entry.tenure == ShareStatus::Leaving && is_over;
    // What a taint has evicted comes back when the taint goes, not when it is forgotten.
    if !seat.known || gone && entry.tainted.is_none() {
        return None;
    }
    if matches!(seat.role, Role::Active | Role::Leaving) {
        entry.written = Replicas::new(outcome.max);
        entry.held = seat.hold;
    }
    Some(entry)
}

/// Says why a member runs more though nothing asks for it.
fn tell_of_landing(
    seat: &mut MemberState<'_>,
    outcome: Outcome,
    before: Option<(Replicas, Replicas)>,
    goal: u32,
) {
    let is_raised = before.is_some_and(|(min, _)| min.get() < outcome.min);
    if is_raised && seat.is_active() && outcome.action.writes() {
        seat.tell(Reason::Floor, || {
            format!("its part of the {goal} pods that have to be ready before others end theirs")
        });
    }
}

fn settle_reasons(
    seat: &mut MemberState<'_>,
    outcome: Outcome,
    before: Option<(Replicas, Replicas)>,
) {
    if outcome.action.writes() && seat.is_active() && seat.reasons.is_empty() {
        seat.tell(unforced(seat, outcome, before), String::new);
    }
    let reason = match seat.role {
        Role::Lost
            if matches!(
                seat.member.health,
                crate::domain::federate::Health::NotReady { .. }
            ) =>
        {
            Reason::Failed
        }
        Role::Lost => Reason::Unknown,
        Role::Foreign => Reason::Foreign,
        Role::Failed => Reason::Failed,
        Role::Recovering => Reason::Recovered,
        Role::Outside(reason) => reason,
        Role::Leaving if seat.keep == 0 => Reason::Drained,
        Role::Leaving => Reason::Landing,
        Role::Active if seat.max() == 0 => Reason::NoBudget,
        Role::Active if seat.is_asleep() => Reason::Asleep,
        Role::Active if seat.blocked => Reason::Blocked,
        Role::Active => Reason::Steady,
    };
    if seat.reasons.is_empty() || !matches!(reason, Reason::Steady | Reason::Asleep) {
        let because = match reason {
            Reason::Foreign => whose_it_is(seat),
            Reason::Unknown | Reason::Failed => why_it_is_away(seat, reason),
            _ => String::new(),
        };
        seat.tell(reason, || because);
    }
}

/// Why something is written although no rule has moved anything.
fn unforced(
    seat: &MemberState<'_>,
    outcome: Outcome,
    before: Option<(Replicas, Replicas)>,
) -> Reason {
    let (min, max) = before.unwrap_or_default();
    // What we wrote was more than its budget only because it had to wait for others.
    let is_ours = seat.previous.is_some_and(|(_, written)| written == max);
    let there = seat.member.pods.map(|pods| pods.replicas.get());
    let counts = outcome.replicas.is_some_and(|count| there != Some(count));
    if is_ours && max.get() > outcome.max {
        Reason::Landed
    } else if counts || before.is_some() && min.get() != outcome.min {
        Reason::Floor
    } else {
        Reason::Restored
    }
}

/// Who has a say in a member that is left alone for it.
fn whose_it_is(seat: &MemberState<'_>) -> String {
    let Member {
        rival, fought_by, ..
    } = seat.member;
    match (rival, fought_by) {
        (Some(rival), _) => {
            format!("horizontalpodautoscaler {rival} scales the same target, so it is left alone")
        }
        (None, Some(manager)) => {
            format!("{manager} keeps writing its replicas, so it is left alone")
        }
        (None, None) => String::new(),
    }
}

/// What is wrong with a member that cannot be seen or is not well, if more is known than that.
fn why_it_is_away(seat: &MemberState<'_>, reason: Reason) -> String {
    let follows = match reason {
        Reason::Failed => "it counts as failed",
        _ if seat.known => "it keeps what it has and is left alone",
        _ => "it gets no share before it can be seen",
    };
    let problem = seat.member.problem.as_ref();
    problem.map_or_else(String::new, |problem| format!("{problem}; {follows}"))
}

fn decided(
    seat: MemberState<'_>,
    outcome: Outcome,
    before: Option<(Replicas, Replicas)>,
) -> MemberDecision {
    let known =
        seat.member.capacity.is_some() || seat.capacity < u32::MAX && seat.entry.capacity.is_some();
    MemberDecision {
        name: seat.name().to_owned(),
        action: outcome.action,
        min: Replicas::new(outcome.min),
        max: Replicas::new(outcome.max),
        before,
        floor: Replicas::new(seat.floor),
        replicas: outcome.replicas.map(Replicas::new),
        hold: seat.hold,
        capacity: known.then_some(Replicas::new(seat.capacity)),
        reasons: seat.reasons,
        because: seat.because,
    }
}
