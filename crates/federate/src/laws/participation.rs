//! Participation: pods that are not the fleet's change nothing.

use crate::{
    Action, AssignmentKind, ClassifiedFleet, Health, Ledger, Member, Participation, Policy,
    Preference, Reason,
};
use foretide_domain::ReplicaBounds;

use super::fixtures::{Hub, at, ledger, member, n, policy, prefer, priorities};

/// `a` takes part, `b` does not, by the policy's weights or priorities.
fn only_a(kind: AssignmentKind) -> Policy {
    let mut policy = policy(kind, 2, 24);
    policy.preferences = vec![Preference {
        weight: Some(1),
        priority: Some(1),
        ..prefer("a")
    }];
    policy
}

/// Applies the bounds of `a` to its pods, which are ready by the next sync.
fn follow(hub: &mut Hub) {
    let a = hub.member("a");
    let Some(ReplicaBounds { min, max }) = a.hpa else {
        return;
    };
    let replicas = a.pods.map_or(n(0), |pods| pods.replicas).clamp(min, max);
    hub.pods("a", replicas.get(), 0);
}

/// Two members: `a` has the higher priority and can run everything, so `b` has no share.
fn without_a_share() -> Hub {
    let mut policy = policy(AssignmentKind::Prioritized, 2, 10);
    policy.preferences = priorities(&[("a", 2), ("b", 1)]);
    let members = [("a", 2), ("b", 6)].map(|(name, replicas)| Member {
        capacity: Some(n(30)),
        ..member(name, replicas)
    });
    Hub::new(policy, members.to_vec(), Ledger::default())
}

#[test]
fn foreign_pods_without_a_share_end_when_others_serve_their_demand() {
    let mut hub = without_a_share();
    hub.total.demand = Some(8.0);
    let mut minimums = Vec::new();
    let mut drained = Vec::new();
    for step in 0..5 {
        let decision = hub.step();
        follow(&mut hub);
        minimums.push(decision.member("a").expect("a").min.get());
        drained.extend((decision.member("b").expect("b").action == Action::Drain).then_some(step));
        // From the second sync on they do not count for the fleet, and their demand is known.
        hub.total.demand = Some(2.0);
        hub.member("b").demand = (step < 2).then_some(6.0);
        if decision.member("b").expect("b").replicas == Some(n(0)) {
            hub.pods("b", 0, 0);
        }
    }
    assert_eq!(minimums, [8, 8, 2, 2, 2], "until those of b have ended");
    assert_eq!(drained, [1], "as soon as eight are ready in a");
}

#[test]
fn foreign_pods_without_a_share_and_without_metrics_start_no_pods_and_end_after_ten_minutes() {
    let mut hub = without_a_share();
    let mut kept = 0;
    for _ in 0..40 {
        let decision = hub.step();
        follow(&mut hub);
        assert_eq!(decision.member("a").expect("a").min, n(2));
        let b = decision.member("b").expect("b");
        let lands = b.reasons.contains(&Reason::Landing);
        assert_eq!(lands, b.action == Action::Keep && b.replicas.is_none());
        if !lands {
            assert_eq!(b.action, Action::Drain);
            break;
        }
        kept += 1;
    }
    assert_eq!(kept, 20);
}

/// Three members with a share; another autoscaler scales the third, and the first is to leave.
fn beside_a_foreign_one(health: Health) -> Hub {
    let mut policy = policy(AssignmentKind::DynamicWeighted, 3, 90);
    policy.affinity.exclude = vec!["a".to_owned()];
    policy.generation = 2;
    let mut members = ["a", "b", "c"].map(|name| Member {
        capacity: Some(n(40)),
        ..member(name, 12)
    });
    members[2].foreign_hpa = Some("theirs".to_owned());
    members[2].health = health;
    let start = ledger(&[("a", 1, 30), ("b", 1, 30), ("c", 3, 30)]);
    Hub::new(policy, members.to_vec(), start)
}

#[test]
fn pods_that_another_autoscaler_scales_do_not_replace_those_of_a_leaving_member() {
    for health in [Health::Ready, Health::Unknown { since: at(-10) }] {
        let mut hub = beside_a_foreign_one(health);
        // The load of a and b; that of c is not the fleet's.
        hub.total.demand = Some(24.0);
        let decision = hub.step();
        let of = |name: &str| decision.member(name).expect("a member");
        assert_eq!(of("b").min, n(24), "{health:?}: {}", decision.message());
        assert_eq!(of("a").replicas, None, "{health:?}");
        hub.pods("b", 23, 0);
        assert_eq!(hub.decided("a").replicas, None);
        hub.pods("b", 24, 0);
        assert_eq!(hub.decided("a").replicas, Some(n(0)));
    }
}

#[test]
fn a_leaving_member_without_an_autoscaler_stays_in_the_ledger_during_the_landing() {
    let mut hub = beside_a_foreign_one(Health::Ready);
    hub.member("a").hpa = None;
    hub.total.demand = Some(24.0);
    for _ in 0..3 {
        let a = hub.decided("a");
        assert_eq!((a.action, a.reasons[0]), (Action::Keep, Reason::Landing));
        hub.member("a").hpa = None;
    }
    hub.pods("b", 24, 0);
    assert_eq!(hub.decided("a").action, Action::Drain);
}

#[test]
fn pods_count_for_members_with_a_share_and_for_leaving_ones() {
    use Participation::{Counted, Eligible, Excluded};
    let policy = only_a(AssignmentKind::Prioritized);
    let now = at(0);
    let absent = |name: &str| Member {
        pods: None,
        ..member(name, 0)
    };
    let mut foreign_hpa = member("a", 3);
    foreign_hpa.foreign_hpa = Some("theirs".to_owned());
    let away = Member {
        health: Health::Unknown { since: now },
        ..foreign_hpa.clone()
    };
    let no_share = ledger(&[("a", 0, 0)]);
    let mut landing = no_share.clone();
    for entry in landing.members.values_mut() {
        entry.written = n(3);
    }
    let share = ledger(&[("a", 1, 4)]);
    let of_b = ledger(&[("b", 1, 4)]);
    let none = Ledger::default();
    for (what, member, ledger, expected) in [
        ("new", member("a", 3), none.clone(), Some(Counted)),
        ("with a share", member("a", 3), share.clone(), Some(Counted)),
        ("without one", member("a", 3), no_share, Some(Eligible)),
        ("its share ends", member("a", 3), landing, Some(Counted)),
        ("by others", foreign_hpa, share.clone(), Some(Excluded)),
        ("and out of reach", away, share.clone(), Some(Excluded)),
        ("no workload", absent("a"), share, Some(Eligible)),
        ("no preference", member("b", 3), none, Some(Excluded)),
        ("it leaves", member("b", 3), of_b, Some(Counted)),
    ] {
        let name = member.profile.name.clone();
        let members = [member];
        let found = ClassifiedFleet::new(&policy, &members, &ledger, now).participation();
        assert_eq!(found.get(&name).copied(), expected, "{what}");
    }
}
