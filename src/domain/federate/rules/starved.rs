//! R7: one unit of minimum moves from a member that idles at its minimum to one that wants more than its own. Off
//! unless the policy names a utilization. It refuses to change the sum of minima.

use crate::domain::federate::Reason;

use super::fleet::{Fleet, MemberState};

/// Looks at who idles at its minimum, and since when.
pub(super) fn observe(fleet: &mut Fleet<'_>) {
    let Some(limit) = fleet.policy.min_utilization else {
        return;
    };
    let now = fleet.now;
    for seat in fleet.active_mut() {
        let idles = idles(seat, limit);
        seat.entry.idle_since = idles.then(|| seat.entry.idle_since.unwrap_or(now));
    }
}

fn idles(seat: &MemberState<'_>, limit: f64) -> bool {
    let count = f64::from(seat.replicas);
    seat.min() > seat.lo().max(1)
        && seat.replicas == seat.min()
        && seat.desired.is_none_or(|desired| desired <= seat.min())
        && seat.demand.is_some_and(|demand| demand < limit * count)
}

fn starves(seat: &MemberState<'_>) -> bool {
    let wants = seat.desired.or_else(|| seat.asks(0.0));
    seat.is_awake() && !seat.blocked && seat.min() < seat.max() && wants > Some(seat.min())
}

/// Moves one unit.
pub(super) fn move_minimum(fleet: &mut Fleet<'_>) {
    if fleet.policy.min_utilization.is_none() {
        return;
    }
    let (now, seats) = (fleet.now, &fleet.seats);
    let free = |seat: &&MemberState<'_>| seat.is_active() && !fleet.cools(seat);
    let donors = seats
        .iter()
        .filter(free)
        .filter(|seat| fleet.settled(seat.entry.idle_since));
    let donor = donors.max_by_key(|seat| seat.min());
    let starving = seats.iter().filter(free).filter(|seat| starves(seat));
    let receiver = starving.max_by_key(|seat| seat.desired.unwrap_or(0).saturating_sub(seat.min()));
    let (Some(donor), Some(receiver)) = (donor, receiver) else {
        return;
    };
    let (from, to) = (donor.name().to_owned(), receiver.name().to_owned());
    if from == to {
        return;
    }
    for seat in fleet.active_mut() {
        let change = i8::from(seat.name() == to) - i8::from(seat.name() == from);
        if change == 0 {
            continue;
        }
        let min = if change > 0 {
            seat.min() + 1
        } else {
            seat.min() - 1
        };
        seat.set_budget(min, seat.max());
        seat.entry.moved = Some(now);
        seat.tell(Reason::Starved, || {
            format!("one unit of minimum moves from {from}, which idles, to {to}")
        });
    }
}
