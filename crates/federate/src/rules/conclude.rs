//! R12: makes the decision and the next ledger from what the rules decided. It clamps the bounds, drops writes that
//! change nothing, and orders the others.

use jiff::Timestamp;

use crate::{
    Action, Budget, Entry, FleetDecision, Ledger, Member, MemberDecision, Reason, ShareStatus,
    WorkloadSource,
};
use foretide_domain::words::counted;
use foretide_domain::{ReplicaBounds, Replicas};

use super::conditions;
use super::fleet::RuleContext;
use super::member::MemberState;
use super::participation::MemberRole;

/// The urgency of writes that end ready pods, which may be needed until other members have grown.
const AFTER_GROWTH: u8 = 2;

/// The write for one member.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    action: Action,
    bounds: ReplicaBounds,
    replicas: Option<u32>,
}

impl Outcome {
    fn of(action: Action, bounds: ReplicaBounds) -> Self {
        Self {
            action,
            bounds,
            replicas: None,
        }
    }

    fn min(&self) -> u32 {
        self.bounds.min.get()
    }

    fn max(&self) -> u32 {
        self.bounds.max.get()
    }
}

/// The decision and the next ledger.
pub fn conclude(mut fleet: RuleContext<'_>) -> (FleetDecision, Ledger) {
    fleet.members.iter_mut().for_each(put_in_order);
    let conditions = conditions::conditions(&fleet);
    let mut ledger = std::mem::take(&mut fleet.ledger);
    ledger.previewed = fleet.policy.previewed;
    let mut members = Vec::with_capacity(fleet.members.len());
    let mut order = Vec::new();
    let (unmet, policy, now) = (fleet.floor.unmet, fleet.policy, fleet.now);
    let goal = fleet.floor.lands.then_some(fleet.floor.count);
    for mut state in fleet.members {
        let before = (fleet.rule_set.present)(&state);
        let outcome = outcome(&state, policy.source, before);
        if outcome.action.writes() {
            // The order of the members decides between equal urgencies.
            order.push((
                urgency(&state, outcome, before, now),
                order.len(),
                members.len(),
            ));
        }
        if let Some(entry) = next_entry(&state, outcome) {
            ledger.members.insert(state.name().to_owned(), entry);
        }
        if let Some(goal) = goal.filter(|_| outcome.min() > state.min()) {
            explain_raised_minimum(&mut state, outcome, before, goal);
        }
        settle_reasons(&mut state, outcome, before);
        members.push(decided(state, outcome, before));
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

fn put_in_order(state: &mut MemberState<'_>) {
    let max = state.max().min(state.preference.max.get());
    if state.is_active() {
        let min = state.min().max(1).min(max);
        state.entry.set_budget(Budget::new(min, max));
    }
}

fn outcome(
    state: &MemberState<'_>,
    source: WorkloadSource,
    before: Option<ReplicaBounds>,
) -> Outcome {
    let none = ReplicaBounds::default();
    match state.role {
        MemberRole::Foreign if let Some(min) = state.decided.count => Outcome {
            replicas: Some(min),
            ..Outcome::of(Action::Update, counts(min, state.max()))
        },
        MemberRole::Lost | MemberRole::Foreign | MemberRole::Failed | MemberRole::Recovering => {
            Outcome::of(
                Action::Hold,
                before.unwrap_or_else(|| counts(state.min(), state.max())),
            )
        }
        // One that leaves and can be reached is drained instead.
        MemberRole::Outside(
            Reason::Unknown | Reason::Failed | Reason::Foreign | Reason::Leaving,
        ) => Outcome::of(Action::Hold, before.unwrap_or_default()),
        MemberRole::Outside(_) if state.member.hpa.is_some() => Outcome::of(Action::Delete, none),
        MemberRole::Outside(_) => Outcome::default(),
        MemberRole::Draining => ended(state, source, before),
        MemberRole::Active if state.max() == 0 => ended(state, source, before),
        MemberRole::Active => running(state, before),
    }
}

/// A member without a share keeps its pods until others are ready, then is drained, then Foretide's objects in it are
/// deleted. Where the hub places the workload, one that is not from the hub is not changed.
fn ended(
    state: &MemberState<'_>,
    source: WorkloadSource,
    present: Option<ReplicaBounds>,
) -> Outcome {
    let Member {
        pods,
        foreign_workload: is_theirs,
        ..
    } = *state.member;
    let runs = pods.is_some_and(|pods| pods.replicas > Replicas::ZERO);
    let is_ours = source == WorkloadSource::Hub && pods.is_some() && !is_theirs;
    let present = present.filter(|bounds| bounds.max > Replicas::ZERO);
    if state.decided.keep > 0 {
        // Pods that never were the fleet's are kept without bounds, and none are stored.
        let never_was_ours = state
            .previous
            .is_none_or(|written| written.max == Replicas::ZERO);
        let bounds = if present.is_none() && never_was_ours {
            ReplicaBounds::default()
        } else {
            let min = present.map_or(1, |bounds| bounds.min.get().min(state.decided.keep));
            counts(min, state.decided.keep)
        };
        Outcome::of(Action::Keep, bounds)
    } else if runs && !is_theirs {
        Outcome {
            replicas: Some(0),
            ..Outcome::of(Action::Drain, ReplicaBounds::default())
        }
    } else if state.member.hpa.is_some() || is_ours {
        Outcome::of(Action::Delete, ReplicaBounds::default())
    } else {
        Outcome::default()
    }
}

fn running(state: &MemberState<'_>, present: Option<ReplicaBounds>) -> Outcome {
    let bounds = counts(state.written_min(), state.max().max(state.decided.keep));
    let there = state.member.pods.map(|pods| pods.replicas.get());
    let replicas = match state.decided.count {
        None => state.decided.write,
        Some(count) => Some(direct(state, count)),
    };
    // A minimum of the ledger, from which a count may come, is not in order before the rules have run.
    let replicas = replicas.map(|count| count.min(bounds.max.get()));
    let is_bounded = state.decided.count.is_none();
    let differs = if is_bounded {
        present != Some(bounds) || state.decided.hold != state.entry.held
    } else {
        replicas != there
    };
    let action = match (there, replicas) {
        // Only the hub's: a member that lacks another's is no candidate.
        (None, _) => Action::Create,
        (Some(0), Some(n)) if n > 0 => Action::Wake,
        (Some(r), Some(0)) if r > 0 => Action::Sleep,
        _ if is_bounded && present.is_none() => Action::Create,
        _ if differs => Action::Update,
        _ => Action::Keep,
    };
    let replicas = replicas.or(there.is_none().then_some(0));
    Outcome {
        action,
        bounds,
        replicas,
    }
}

fn counts(min: u32, max: u32) -> ReplicaBounds {
    ReplicaBounds::new(Replicas::new(min), Replicas::new(max))
}

/// The count to write where the hub writes it: `count`, unless the member sleeps or keeps pods for a while.
fn direct(state: &MemberState<'_>, count: u32) -> u32 {
    match (state.decided.keep, state.decided.write) {
        (0, Some(0)) => 0,
        (0, _) => count,
        (keep, _) => keep,
    }
}

/// The position of a write: maximums that shrink first, then those that grow or stay, then what ends ready pods that
/// may be needed until other members have grown.
fn urgency(
    state: &MemberState<'_>,
    outcome: Outcome,
    before: Option<ReplicaBounds>,
    now: Timestamp,
) -> u8 {
    let was = before.map_or(0, |bounds| bounds.max.get());
    let ends = outcome.replicas.is_some_and(|n| n < state.ready) || outcome.max() < state.ready;
    // R9 ends only pods that the fleet does not need, so nobody waits for others to grow.
    let in_excess = state.entry.shrunk == Some(now);
    if ends && !in_excess {
        AFTER_GROWTH
    } else {
        u8::from(outcome.max() >= was)
    }
}

/// The next entry of a member; `None` removes it from the ledger.
fn next_entry(state: &MemberState<'_>, outcome: Outcome) -> Option<Entry> {
    let mut entry = state.entry;
    let is_over = outcome.action == Action::Keep && outcome.max() == 0 && state.decided.keep == 0;
    let gone = entry.share_status == ShareStatus::Draining && is_over;
    // A member that a taint evicted returns when the taint is removed, not when its entry would be.
    if !state.known || gone && entry.tainted.is_none() {
        return None;
    }
    // Nothing is written for the others, so what was written last is still in force.
    if matches!(state.role, MemberRole::Active | MemberRole::Draining) {
        entry.written = outcome.bounds.max;
        entry.held = state.decided.hold;
    }
    Some(entry)
}

/// Explains a minimum that is raised only because other members are to end pods.
fn explain_raised_minimum(
    state: &mut MemberState<'_>,
    outcome: Outcome,
    before: Option<ReplicaBounds>,
    goal: u32,
) {
    let is_raised = before.is_some_and(|bounds| bounds.min < outcome.bounds.min);
    if is_raised && state.is_active() && outcome.action.writes() {
        state.add_reason(Reason::Floor, || {
            format!(
                "its part of {} that must be ready before other members scale down",
                counted(goal, "pod")
            )
        });
    }
}

/// Adds the reason of the member's role, where no rule has given one.
fn settle_reasons(state: &mut MemberState<'_>, outcome: Outcome, before: Option<ReplicaBounds>) {
    if outcome.action.writes() && state.is_active() && state.decided.reasons.is_empty() {
        state.add_reason(default_reason(state, outcome, before), String::new);
    }
    let reason = match state.role {
        MemberRole::Lost if matches!(state.member.health, crate::Health::NotReady { .. }) => {
            Reason::Failed
        }
        MemberRole::Lost => Reason::Unknown,
        MemberRole::Foreign => Reason::Foreign,
        MemberRole::Failed => Reason::Failed,
        MemberRole::Recovering => Reason::Recovered,
        MemberRole::Outside(reason) => reason,
        MemberRole::Draining if state.decided.keep == 0 => Reason::Drained,
        MemberRole::Draining => Reason::Landing,
        MemberRole::Active if state.max() == 0 => Reason::NoBudget,
        MemberRole::Active if state.is_asleep() => Reason::Asleep,
        MemberRole::Active if state.blocked => Reason::Blocked,
        MemberRole::Active => Reason::Steady,
    };
    // These two say that nothing happens, which any other reason contradicts.
    if state.decided.reasons.is_empty() || !matches!(reason, Reason::Steady | Reason::Asleep) {
        let because = match reason {
            Reason::Foreign => foreign_controller(state),
            Reason::Unknown | Reason::Failed => unavailable_cause(state, reason),
            _ => String::new(),
        };
        state.add_reason(reason, || because);
    }
}

/// The reason of a write where no rule has moved anything.
fn default_reason(
    state: &MemberState<'_>,
    outcome: Outcome,
    before: Option<ReplicaBounds>,
) -> Reason {
    let ReplicaBounds { min, max } = before.unwrap_or_default();
    // If the present maximum is the one written last, it exceeded the budget only to wait for other members.
    let is_ours = state.previous.is_some_and(|written| written.max == max);
    let there = state.member.pods.map(|pods| pods.replicas.get());
    let changes = outcome.replicas.is_some_and(|count| there != Some(count));
    if is_ours && max.get() > outcome.max() {
        Reason::Landed
    } else if changes || before.is_some() && min != outcome.bounds.min {
        Reason::Floor
    } else {
        Reason::Restored
    }
}

/// The other autoscaler or writer that controls a member.
fn foreign_controller(state: &MemberState<'_>) -> String {
    let Member {
        foreign_hpa,
        foreign_writer,
        paused_by,
        ..
    } = state.member;
    if let Some(paused_by) = paused_by {
        return format!(
            "KEDA has paused it by ScaledObject {paused_by}; its replicas are not changed"
        );
    }
    match (foreign_hpa, foreign_writer) {
        (Some(foreign_hpa), _) => {
            format!(
                "horizontalpodautoscaler {foreign_hpa} scales the same target; its replicas are not changed"
            )
        }
        (None, Some(manager)) => {
            format!(
                "{manager} keeps writing its replicas; they are not changed, except below its minimum"
            )
        }
        (None, None) => String::new(),
    }
}

/// The problem of a member that cannot be observed or is unhealthy; empty when it is not known.
fn unavailable_cause(state: &MemberState<'_>, reason: Reason) -> String {
    let follows = match reason {
        Reason::Failed => "it counts as failed",
        _ if state.known => "its share and bounds stay unchanged",
        _ => "it gets no share until it can be observed",
    };
    let problem = state.member.problem.as_ref();
    problem.map_or_else(String::new, |problem| format!("{problem}; {follows}"))
}

fn decided(
    state: MemberState<'_>,
    outcome: Outcome,
    before: Option<ReplicaBounds>,
) -> MemberDecision {
    let known = state.member.capacity.is_some()
        || state.capacity < u32::MAX && state.entry.capacity.is_some();
    MemberDecision {
        name: state.name().to_owned(),
        action: outcome.action,
        min: outcome.bounds.min,
        max: outcome.bounds.max,
        before,
        floor: Replicas::new(state.decided.floor),
        replicas: outcome.replicas.map(Replicas::new),
        hold: state.decided.hold,
        capacity: known.then_some(Replicas::new(state.capacity)),
        reasons: state.decided.reasons,
        because: state.decided.because,
    }
}
