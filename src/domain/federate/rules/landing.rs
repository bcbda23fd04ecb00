//! Landing: after budgets were divided anew, pods stay where they are until others are ready. It refuses to wait
//! for ever.

use crate::domain::Replicas;
use crate::domain::federate::Reason;

use super::fleet::{Fleet, Role, Seat, sum};

/// Lets members with more replicas than their new maximum keep them, and raises the floor so that the others grow,
/// while fewer pods are ready within the new budgets than are needed.
///
/// Needed is the largest of the demand, MIN and the floor; where the demand is not known, what is placed now counts for
/// it. Without MIN a fleet without load would be served by nobody while members change.
pub(super) fn land(fleet: &mut Fleet<'_>) {
    let Some(until) = fleet.ledger.landing else {
        return;
    };
    let seats = || {
        let takes_part = |role: Role| role == Role::Active || role.is_pinned();
        fleet.seats.iter().filter(move |seat| takes_part(seat.role))
    };
    let room = sum(seats().map(Seat::max));
    let served = sum(seats().map(|seat| seat.ready.min(seat.max())));
    let goal = needed(fleet).min(room);
    if fleet.now >= until || served >= goal {
        fleet.ledger.landing = None;
        return;
    }
    fleet.floor = fleet.floor.max(goal);
    for seat in &mut fleet.seats {
        let may_stay = matches!(seat.role, Role::Active | Role::Leaving);
        if may_stay && seat.replicas > seat.max() {
            seat.keep = seat.replicas;
            let (replicas, max) = (seat.replicas, seat.max());
            // Its maximum is what it keeps, whatever it was assigned.
            seat.tell_above(
                Reason::Landing,
                format!("it keeps {replicas} replicas, its share being {max}, until {goal} pods are ready in the fleet"),
            );
        }
    }
}

fn needed(fleet: &Fleet<'_>) -> u32 {
    let demand = fleet.total.demand.filter(|demand| demand.is_finite());
    let demand = demand.map(|demand| Replicas::from_f64_ceil(demand).get());
    let placed = || sum(fleet.seats.iter().map(|seat| seat.placed));
    let least = fleet.policy.bounds.min.get();
    demand.unwrap_or_else(placed).max(least).max(fleet.floor)
}
