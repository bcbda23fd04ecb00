//! R7: one replica of minimum moves from a member that idles at its minimum to one that wants more than its own. Off
//! unless the policy sets a utilization. The sum of minimums does not change.

use crate::federate::Reason;

use super::fleet::RuleContext;
use super::member::MemberState;

/// Finds members that idle at their minimum, and since when.
pub(super) fn observe(fleet: &mut RuleContext<'_>) {
    let Some(limit) = fleet.policy.min_utilization else {
        return;
    };
    let now = fleet.now;
    for state in fleet.active_mut() {
        let idles = idles(state, limit);
        state.entry.idle_since = idles.then(|| state.entry.idle_since.unwrap_or(now));
    }
}

fn idles(state: &MemberState<'_>, limit: f64) -> bool {
    let count = f64::from(state.replicas);
    state.min() > state.lower_limit().max(1)
        && state.replicas == state.min()
        && state.desired.is_none_or(|desired| desired <= state.min())
        && state.demand.is_some_and(|demand| demand < limit * count)
}

fn starves(state: &MemberState<'_>) -> bool {
    let wants = state.desired.or_else(|| state.demanded_replicas(0.0));
    state.is_awake() && !state.blocked && state.min() < state.max() && wants > Some(state.min())
}

/// Moves one replica of minimum, if a member idles and another needs it.
pub(super) fn move_minimum(fleet: &mut RuleContext<'_>) {
    if fleet.policy.min_utilization.is_none() {
        return;
    }
    let (now, members) = (fleet.now, &fleet.members);
    let free = |state: &&MemberState<'_>| state.is_active() && !fleet.is_cooling_down(state);
    let donors = members
        .iter()
        .filter(free)
        .filter(|state| fleet.settled(state.entry.idle_since));
    let donor = donors.max_by_key(|state| state.min());
    let starving = members.iter().filter(free).filter(|state| starves(state));
    let receiver =
        starving.max_by_key(|state| state.desired.unwrap_or(0).saturating_sub(state.min()));
    let (Some(donor), Some(receiver)) = (donor, receiver) else {
        return;
    };
    let (from, to) = (donor.name().to_owned(), receiver.name().to_owned());
    if from == to {
        return;
    }
    for state in fleet.active_mut() {
        let change = i8::from(state.name() == to) - i8::from(state.name() == from);
        if change == 0 {
            continue;
        }
        let min = if change > 0 {
            state.min() + 1
        } else {
            state.min() - 1
        };
        state.set_budget(min, state.max());
        state.entry.moved = Some(now);
        state.add_reason(Reason::Starved, || {
            format!("one replica of minReplicas moves from {from}, which is idle, to {to}")
        });
    }
}
