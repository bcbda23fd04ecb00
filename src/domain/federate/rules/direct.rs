//! Direct: the count of the fleet as counts of its members. It refuses to scale a member whose state is not known.

use crate::domain::Replicas;
use crate::domain::workload::Mode;

use super::fleet::Fleet;

/// Counts for the members that can be changed, within their budgets; without a count for the fleet, those they have.
pub(super) fn count(fleet: &mut Fleet<'_>) {
    if fleet.policy.mode != Mode::Direct {
        return;
    }
    let is_known = fleet.total.desired.is_some();
    for seat in fleet.active_mut().filter(|seat| seat.max() > 0) {
        let wanted = if is_known { seat.floor } else { seat.replicas };
        let count = wanted.max(seat.min()).min(seat.max());
        seat.count = if seat.is_asleep() { 0 } else { count };
        if let Some(write) = seat.write.filter(|write| *write > 0) {
            seat.write = Some(Replicas::new(write).get().max(count));
        }
    }
}
