//! R7: one replica of minimum moves from a member that idles at its minimum to one that wants more than its own. Off
//! unless the policy sets a utilization. The sum of minimums does not change.

use crate::federate::Reason;

use super::fleet::{RuleContext, Step};
use super::member::{Change, Effect, MemberState, budget};

/// Finds members that idle at their minimum, and since when.
pub(super) fn observe<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let Some(limit) = fleet.policy.min_utilization else {
        return Step::default();
    };
    let since = |state: &MemberState<'_>| {
        let since = state.entry.idle_since.unwrap_or(fleet.now);
        idles(state, limit).then_some(since)
    };
    let members = fleet.members.iter().enumerate();
    let active = members.filter(|(_, state)| state.is_active());
    let change = |(at, state)| Change::silent(at, Effect::Idle(since(state)));
    Step::of(active.map(change).collect())
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
pub(super) fn move_minimum<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    if fleet.policy.min_utilization.is_none() {
        return Step::default();
    }
    let free = || {
        let members = fleet.members.iter().enumerate();
        members.filter(|(_, state)| state.is_active() && !fleet.is_cooling_down(state))
    };
    let donors = free().filter(|(_, state)| fleet.settled(state.entry.idle_since));
    let donor = donors.max_by_key(|(_, state)| state.min());
    let starving = free().filter(|(_, state)| starves(state));
    let receiver =
        starving.max_by_key(|(_, state)| state.desired.unwrap_or(0).saturating_sub(state.min()));
    let (Some((from, donor)), Some((to, receiver))) = (donor, receiver) else {
        return Step::default();
    };
    if from == to {
        return Step::default();
    }
    let change = |at, budget| {
        let text = format!(
            "one replica of minReplicas moves from {}, which is idle, to {}",
            donor.name(),
            receiver.name()
        );
        Change::because(at, Effect::Budget(budget), Reason::Starved, text)
    };
    Step::of(vec![
        change(from, budget(donor.min() - 1, donor.max())),
        change(to, budget(receiver.min() + 1, receiver.max())),
    ])
}
