//! Membership: a member whose description disappears is a member that does not answer, and one that leaves on purpose
//! is drained.

use std::collections::BTreeMap;

use crate::{
    Action, Affinity, AssignmentKind, ConditionKind, FailurePolicy, FleetDecision, Health, Ledger,
    Member, Membership, Policy, Preference, Profile, Reason,
};

use super::fixtures::{Hub, KINDS, PERIOD, Random, at, member, n, policy, secs};

/// Clusters are selected, weighted and ranked by their labels only.
fn labelled(kind: AssignmentKind, random: &mut Random) -> Policy {
    let group = |name: &str| Affinity {
        labels: format!("group={name}").parse().expect("a selector"),
        ..Affinity::default()
    };
    let preferences = ["x", "y"].map(|name| Preference {
        targets: group(name),
        weight: Some(u64::from(random.within(1, 4))),
        priority: Some(i64::from(random.within(1, 3))),
        max: random.one_in(3).then(|| n(random.within(6, 12))),
        ..Preference::default()
    });
    Policy {
        affinity: Affinity {
            labels: "group".parse().expect("a selector"),
            ..Affinity::default()
        },
        preferences: preferences.to_vec(),
        failure: random.pick(&[FailurePolicy::Retain, FailurePolicy::Reassign]),
        ..policy(kind, random.within(1, 8), random.within(12, 40))
    }
}

/// A fleet whose budgets are assigned and no longer move.
fn settled(kind: AssignmentKind, random: &mut Random) -> Hub {
    let policy = labelled(kind, random);
    let count = random.within(2, 5);
    let members = (0..count).map(|at| Member {
        profile: Profile {
            name: format!("m{at}"),
            labels: BTreeMap::from([("group".to_owned(), random.pick(&["x", "y"]).to_owned())]),
            ..Profile::default()
        },
        capacity: Some(n(random.within(6, 20))),
        ..member("", 1)
    });
    let mut hub = Hub::new(policy, members.collect(), Ledger::default());
    (0..30).for_each(|_| drop(hub.step()));
    hub
}

/// The Secret of a member is deleted, and the hub restarts: it knows the name, the ledger, and when it lost the member.
fn lose_the_description(hub: &mut Hub, name: &str) {
    let since = hub.now;
    let member = hub.member(name);
    member.profile = Profile {
        name: name.to_owned(),
        ..Profile::default()
    };
    member.membership = Membership::Missing;
    member.health = Health::Unknown { since };
}

fn each_fleet(check: impl Fn(u64, Hub)) {
    for seed in 0..200 {
        for kind in KINDS {
            check(seed, settled(kind, &mut Random::new(seed)));
        }
    }
}

fn budgets(hub: &Hub) -> Vec<(String, u32, u32)> {
    let owned = |(name, min, max): &(&str, u32, u32)| ((*name).to_owned(), *min, *max);
    hub.budgets().iter().map(owned).collect()
}

#[test]
fn a_member_whose_description_disappears_is_as_one_that_does_not_answer() {
    each_fleet(|seed, mut missing| {
        let context = format!("seed {seed}, {:?}", missing.policy.kind);
        let mut silent = settled(missing.policy.kind, &mut Random::new(seed));
        let described = silent.member("m1").clone();
        let since = silent.now;
        silent.member("m1").health = Health::Unknown { since };
        lose_the_description(&mut missing, "m1");
        for step in 0..30 {
            if step == 20 {
                *missing.member("m1") = described.clone();
                *silent.member("m1") = described.clone();
            }
            let decisions = [missing.step(), silent.step()];
            let [a, b] = decisions.map(|decision| decision.members);
            assert_eq!(a, b, "{context}, step {step}");
            assert_eq!(missing.ledger, silent.ledger, "{context}, step {step}");
        }
    });
}

/// Two members with room for the whole fleet each.
fn pair(kind: AssignmentKind) -> Hub {
    let mut policy = labelled(kind, &mut Random::new(0));
    policy.bounds.min = n(4);
    policy.bounds.max = n(12);
    policy.preferences.iter_mut().for_each(|p| p.max = None);
    policy.failure = FailurePolicy::Retain;
    let members = ["a", "b"].map(|name| Member {
        profile: Profile {
            name: name.to_owned(),
            labels: BTreeMap::from([("group".to_owned(), "x".to_owned())]),
            ..Profile::default()
        },
        capacity: Some(n(20)),
        ..member("", 4)
    });
    let mut hub = Hub::new(policy, members.to_vec(), Ledger::default());
    hub.total.demand = Some(8.0);
    hub.step();
    hub
}

fn reason(decision: &FleetDecision, name: &str) -> Option<Reason> {
    let member = decision.member(name)?;
    member.reasons.first().copied()
}

fn writes(decision: &FleetDecision, name: &str) -> bool {
    let member = decision.member(name);
    member.is_some_and(|member| member.action.writes())
}

#[test]
fn a_member_that_leaves_is_drained_when_others_are_ready_and_then_forgotten() {
    for kind in KINDS {
        let mut hub = pair(kind);
        hub.member("b").membership = Membership::Leaving;
        let mut actions = Vec::new();
        for _ in 0..4 {
            let decision = hub.step();
            let b = decision.member("b").expect("b");
            actions.push(b.action);
            let wanted = decision.member("a").map_or(0, |a| a.min.get());
            hub.pods("a", wanted.max(4), 0);
            if let Some(replicas) = b.replicas {
                hub.pods("b", replicas.get(), 0);
            }
        }
        // Under Duplicated no member serves for another.
        let waits = kind != AssignmentKind::Duplicated;
        assert_eq!(actions[0] == Action::Keep, waits, "{kind:?}: {actions:?}");
        assert!(actions.contains(&Action::Drain), "{kind:?}: {actions:?}");
        assert_eq!(hub.ledger.members.keys().collect::<Vec<_>>(), ["a"]);
        hub.member("b").hpa = None;
        assert_eq!(reason(&hub.step(), "b"), Some(Reason::Leaving), "{kind:?}");
        // Until somebody says otherwise.
        hub.member("b").membership = Membership::Listed;
        hub.step();
        assert_eq!(hub.ledger.members.len(), 2, "{kind:?}");
    }
}

#[test]
fn a_lost_member_that_leaves_is_forgotten_without_a_toleration() {
    for kind in KINDS {
        let mut hub = pair(kind);
        let before = budgets(&hub);
        let since = at(4 * PERIOD);
        hub.member("b").membership = Membership::Leaving;
        hub.member("b").health = Health::Unknown { since };
        // A short silence is waited for.
        while hub.now < since {
            assert_eq!(reason(&hub.step(), "b"), Some(Reason::Unknown), "{kind:?}");
            assert_eq!(budgets(&hub), before, "{kind:?}");
        }
        let decision = hub.step();
        assert_eq!(reason(&decision, "b"), Some(Reason::Leaving), "{kind:?}");
        assert!(!writes(&decision, "b"), "{kind:?}");
        assert_eq!(budgets(&hub), [("a".to_owned(), 4, 12)], "{kind:?}");
        assert_eq!(hub.ledger.members.len(), 1, "{kind:?}");
    }
}

#[test]
fn a_member_that_was_being_drained_or_had_failed_is_forgotten_when_it_is_lost_and_leaves() {
    let lost = |hub: &mut Hub| {
        let since = hub.now.checked_sub(secs(1)).expect("a time");
        hub.member("b").health = Health::Unknown { since };
    };
    let mut drained = pair(AssignmentKind::StaticWeighted);
    drained.member("b").membership = Membership::Leaving;
    drained.step();
    lost(&mut drained);
    let mut failed = pair(AssignmentKind::StaticWeighted);
    failed.policy.failure = FailurePolicy::Reassign;
    failed.member("b").health = Health::Unknown { since: at(-10_000) };
    failed.step();
    failed.member("b").membership = Membership::Leaving;
    for mut hub in [drained, failed] {
        assert_eq!(hub.ledger.members.len(), 2);
        let before = budgets(&hub);
        hub.step();
        assert_eq!(hub.ledger.members.len(), 1);
        assert_eq!(budgets(&hub), before, "the others have its share already");
    }
}

#[test]
fn the_last_member_of_a_fleet_is_not_drained() {
    let mut hub = pair(AssignmentKind::StaticWeighted);
    let before = budgets(&hub);
    for name in ["a", "b"] {
        hub.member(name).membership = Membership::Leaving;
    }
    for _ in 0..5 {
        let decision = hub.step();
        let assigned = decision
            .conditions
            .iter()
            .find(|c| c.kind == ConditionKind::Assigned);
        assert_eq!(assigned.map(|c| c.reason), Some("NoCandidate"));
        assert!(!writes(&decision, "a") && !writes(&decision, "b"));
        assert_eq!(budgets(&hub), before);
    }
}
