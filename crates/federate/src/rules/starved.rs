//! R7: one replica of minimum moves from a member that idles at its minimum to one that wants more than its own. Off
//! unless the policy sets a utilization. The sum of minimums does not change.

use crate::{Budget, Reason};

use super::fleet::{RuleContext, Step};
use super::member::{Change, Effect, MemberState};

/// Finds members that idle at their minimum, and since when.
pub fn find_idle<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let Some(limit) = fleet.policy.min_utilization else {
        return Step::default();
    };
    Step::of(fleet.active().map(|state| {
        let since = state.entry.idle_since.unwrap_or(fleet.now);
        Change::silent(state, Effect::Idle(idles(state, limit).then_some(since)))
    }))
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
pub fn move_minimum<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    if fleet.policy.min_utilization.is_none() {
        return Step::default();
    }
    let mut free: Vec<_> = fleet.active().collect();
    free.retain(|state| !fleet.is_cooling_down(state));
    let donor = free
        .iter()
        .filter(|state| fleet.settled(state.entry.idle_since))
        .max_by_key(|state| state.min());
    let receiver = free
        .iter()
        .filter(|state| starves(state))
        .max_by_key(|state| state.desired.unwrap_or(0).saturating_sub(state.min()));
    let (Some(donor), Some(receiver)) = (donor, receiver) else {
        return Step::default();
    };
    if donor.position == receiver.position {
        return Step::default();
    }
    let text = format!(
        "one replica of minReplicas moves from {}, which is idle, to {}",
        donor.name(),
        receiver.name()
    );
    let less = Effect::Budget(Budget::new(donor.min() - 1, donor.max()));
    let more = Effect::Budget(Budget::new(receiver.min() + 1, receiver.max()));
    Step::of([
        Change::because(donor, less, Reason::Starved, text.clone()),
        Change::because(receiver, more, Reason::Starved, text),
    ])
}
