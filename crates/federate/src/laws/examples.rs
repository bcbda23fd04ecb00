//! The worked examples of the `FederatedHPA` proposal that are about run time, with its numbers.

use crate::{Action, AssignmentKind};

use super::fixtures::{Hub, ledger, member, n, policy, priorities, secs};

/// Member 1 has a maximum of 23, 10 ready and 6 pending pods; member 2 stands by.
fn scale_up(standby: u32) -> Hub {
    let mut policy = policy(AssignmentKind::Prioritized, 8, 24);
    policy.preferences = priorities(&[("member1", 2), ("member2", 1)]);
    policy.scaling_to_zero = standby == 0;
    let members = vec![member("member1", 16), member("member2", standby)];
    let mut hub = Hub::new(
        policy,
        members,
        ledger(&[("member1", 8, 23), ("member2", 1, 1)]),
    );
    hub.pods("member1", 16, 6);
    hub
}

#[test]
fn pending_pods_of_the_first_priority_become_budget_of_the_second() {
    for standby in [0, 1] {
        let mut hub = scale_up(standby);
        let decision = hub.step();
        assert_eq!(hub.budgets(), [("member1", 8, 10), ("member2", 1, 14)]);
        let second = decision.member("member2").expect("member2");
        let pods = hub.member("member2").pods.expect("pods");
        assert_eq!(pods.replicas, n(1), "standby {standby}");
        let because = "6 pods unschedulable for 75 s in member1; member2 has capacity for 24";
        let (action, change) = match standby {
            0 => (Action::Wake, "max 1 -> 14, replicas 1"),
            _ => (Action::Update, "max 1 -> 14"),
        };
        assert_eq!(second.action, action);
        assert_eq!(second.sentence(), format!("{change}: {because}"));
    }
}

#[test]
fn a_blocked_member_wakes_no_lower_priority_than_its_pods_need() {
    for (second, woken) in [(5, [1, 0]), (3, [1, 1])] {
        let mut policy = policy(AssignmentKind::Prioritized, 2, 20);
        policy.scaling_to_zero = true;
        policy.preferences = priorities(&[("member1", 3), ("member2", 2), ("member3", 1)]);
        let mut members = ["member1", "member2", "member3"].map(|name| member(name, 0));
        members[1].capacity = Some(n(second));
        let start = [("member1", 2, 20), ("member2", 0, 0), ("member3", 0, 0)];
        let mut hub = Hub::new(policy, members.to_vec(), ledger(&start));
        hub.pods("member1", 9, 4);
        hub.step();
        let budgets = hub.budgets().into_iter().map(|(_, _, max)| max);
        assert_eq!(budgets.collect::<Vec<_>>(), [5, second, 15 - second]);
        let pods = ["member2", "member3"].map(|name| hub.member(name).pods.expect("pods"));
        let replicas = pods.map(|pods| pods.replicas.get());
        assert_eq!(replicas, woken, "member2 has capacity for {second}");
    }
}

#[test]
fn higher_priorities_do_not_scale_down_while_the_lowest_drains_but_not_forever() {
    // Demand, the sync in which the low member has drained, and for how many syncs the high one is held.
    let cases = [
        (6.0, 1, 1),
        (6.0, 3, 3),
        (6.0, 100, 40),
        (9.5, 1, 1),
        (9.5, 3, 3),
    ];
    for (demand, drains_after, held_for) in cases {
        let mut policy = policy(AssignmentKind::Prioritized, 2, 13);
        policy.preferences = priorities(&[("high", 2), ("low", 1)]);
        let members = vec![member("high", 9), member("low", 4)];
        let start = ledger(&[("high", 1, 9), ("low", 1, 4)]);
        let mut hub = Hub::new(policy, members, start);
        hub.total.demand = Some(demand);
        while hub.budgets()[1].2 > 1 {
            hub.step();
        }
        let mut held = 0;
        for step in 1..50 {
            if step == drains_after {
                hub.pods("low", 1, 0);
            }
            // Every pod serves the same load, terminating ones included, unless it cannot be measured.
            let low = hub.member("low").pods.map_or(0, |pods| pods.ready.get());
            let served = demand * f64::from(low) / f64::from(9 + low);
            hub.member("low").demand = (drains_after < 50).then_some(served);
            let decision = hub.step();
            held += u32::from(decision.member("high").expect("a member").hold);
        }
        // The sync that shrinks holds as well.
        assert_eq!(held + 1, held_for, "{demand}, after {drains_after} syncs");
    }
}

#[test]
fn pending_pods_move_budget_only_after_the_delay() {
    let mut hub = scale_up(1);
    hub.policy.delay = secs(76);
    hub.step();
    assert_eq!(hub.budgets(), [("member1", 8, 23), ("member2", 1, 1)]);
    hub.step();
    assert_eq!(hub.budgets(), [("member1", 8, 10), ("member2", 1, 14)]);
}
