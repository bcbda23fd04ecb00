//! A fleet scales down no sooner than the reference autoscaler, and gives budget only to members with room.

use crate::{Action, AssignmentKind, Member};

use super::fixtures::{Hub, ledger, member, n, policy, priorities};

/// Three priorities with names, pods and capacities.
fn tiers(pods: [(&str, u32, u32); 3]) -> Hub {
    let mut policy = policy(AssignmentKind::Prioritized, 3, 30);
    let [(first, ..), (second, ..), (third, ..)] = pods;
    policy.preferences = priorities(&[(first, 3), (second, 2), (third, 1)]);
    let members = pods.map(|(name, replicas, capacity)| Member {
        capacity: Some(n(capacity)),
        ..member(name, replicas)
    });
    let start = ledger(&[("a", 1, 10), ("b", 1, 10), ("c", 1, 10)]);
    Hub::new(policy, members.to_vec(), start)
}

/// The maximums after this many syncs, in which pods follow the bounds.
fn maximums(hub: &mut Hub, syncs: usize) -> Vec<u32> {
    for _ in 0..syncs {
        hub.step();
        for name in ["a", "b", "c"] {
            let pods = hub.member(name).pods.expect("pods");
            let max = hub.member(name).hpa.expect("an autoscaler").max;
            let member = hub.member(name).pods.as_mut().expect("pods");
            member.replicas = pods.replicas.min(max);
            member.ready = pods.ready.min(max);
        }
    }
    hub.budgets().into_iter().map(|(_, _, max)| max).collect()
}

#[test]
fn the_lowest_priority_shrinks_when_the_reference_autoscaler_would_and_no_further() {
    // Nineteen pods run. Columns: the demand, the count of the reference autoscaler, what is left of c's five.
    for (demand, desired, left) in [
        (9.0, Some(19), 5),
        (9.0, Some(18), 4),
        (9.0, Some(9), 1),
        // The load has returned.
        (19.0, Some(12), 5),
    ] {
        let mut hub = tiers([("a", 10, 10), ("b", 4, 10), ("c", 5, 10)]);
        hub.total.demand = Some(demand);
        hub.total.desired = desired.map(n);
        let held = hub.decided("a").hold;
        assert_eq!(held, demand < 17.0, "higher ones wait meanwhile");
        maximums(&mut hub, 3);
        let c = hub.member("c").pods.expect("pods").replicas;
        assert_eq!(c, n(left), "{demand}, {desired:?}");
    }
}

#[test]
fn budget_of_a_lower_priority_goes_only_to_members_with_room_and_returns_at_once() {
    let mut hub = tiers([("a", 10, 10), ("b", 4, 12), ("c", 5, 10)]);
    // Headroom was redistributed recently.
    hub.ledger.optimized = Some(hub.now);
    hub.total.demand = Some(9.0);
    hub.total.desired = Some(n(9));
    // a is full; b has room for two more than its maximum; the rest is unassigned.
    assert_eq!(maximums(&mut hub, 3), [10, 12, 1]);
    assert_eq!(hub.ledger.unassigned, n(7));
    // The load returns within the cooldown of the move.
    hub.total.demand = Some(19.0);
    hub.total.desired = Some(n(19));
    hub.member("c").demand = Some(5.0);
    assert_eq!(maximums(&mut hub, 1), [10, 12, 5]);
    assert_eq!(hub.ledger.unassigned, n(3));
}

#[test]
fn a_member_sleeps_when_the_reference_autoscaler_would_run_fewer_replicas() {
    let mut hub = tiers([("a", 1, 10), ("b", 1, 10), ("c", 1, 10)]);
    hub.policy.bounds.min = n(1);
    hub.policy.scaling_to_zero = true;
    for name in ["a", "b", "c"] {
        hub.member(name).demand = Some(0.1);
    }
    hub.total.desired = Some(n(3));
    for _ in 0..8 {
        let decision = hub.step();
        assert!(decision.members.iter().all(|m| m.action != Action::Sleep));
    }
    hub.total.desired = Some(n(2));
    let decision = hub.step();
    let asleep = decision
        .members
        .iter()
        .filter(|m| m.action == Action::Sleep);
    let asleep: Vec<_> = asleep.map(|m| &*m.name).collect();
    assert_eq!(asleep, ["c"], "{}", decision.message());
}
