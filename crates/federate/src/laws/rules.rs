//! Each rule alone: when it acts, and when it does not.

use std::collections::BTreeMap;

use crate::AssignmentKind::{
    self, Aggregated, Duplicated, DynamicWeighted, Prioritized, StaticWeighted,
};
use crate::{
    Action, Affinity, Backoff, Condition, ConditionKind, EffectivePreference, Entry, FailurePolicy,
    Health, Ledger, Member, Membership, Policy, Preference, Reason, Remark, ShareStatus, Span,
    Taint, TaintEffect, Toleration, Total, WeightBy, WorkloadSource,
};
use foretide_domain::observation::Status;
use foretide_domain::workload::Mode;
use foretide_domain::{ReplicaBounds, Replicas};
use jiff::Timestamp;

use super::fixtures::{Hub, at, ledger, member, n, only, policy, prefer, priorities, secs};

/// Two members with capacities of 10 and 10.
fn pair() -> Hub {
    let members = ["a", "b"].map(|name| Member {
        capacity: Some(n(10)),
        ..member(name, 4)
    });
    let start = ledger(&[("a", 1, 10), ("b", 1, 10)]);
    Hub::new(policy(DynamicWeighted, 2, 20), members.to_vec(), start)
}

/// Two members in Direct.
fn direct() -> Hub {
    let mut hub = pair();
    hub.policy.mode = Mode::Direct;
    hub
}

/// Two members without budgets.
fn unassigned() -> Hub {
    let mut hub = pair();
    hub.ledger = Ledger::default();
    hub.members.iter_mut().for_each(|m| m.hpa = None);
    hub
}

/// Gives all to `a`, which makes its share land.
fn give_all_to_a(hub: &mut Hub) {
    hub.policy.generation = 2;
    hub.policy.affinity = only("a");
}

/// Gives `b` at most two replicas, so that the rest of its share lands in others.
fn limit_b(hub: &mut Hub) {
    hub.policy.generation = 2;
    hub.policy.preferences = vec![Preference {
        max: Some(n(2)),
        ..prefer("b")
    }];
}

/// The decision for the fleet asks for what runs.
fn keep_what_runs(hub: &mut Hub) {
    let pods = hub.members.iter().filter_map(|member| member.pods);
    hub.total.desired = Some(n(pods.map(|pods| pods.replicas.get()).sum()));
}

/// A condition in the next decision.
fn condition(hub: &mut Hub, kind: ConditionKind) -> Condition {
    let mut conditions = hub.step().conditions.into_iter();
    conditions.find(|c| c.kind == kind).expect("a condition")
}

fn status(hub: &mut Hub, kind: ConditionKind) -> (Status, &'static str) {
    let condition = condition(hub, kind);
    (condition.status, condition.reason)
}

#[test]
fn an_invalid_policy_writes_nothing_and_reports_the_reason() {
    let mut crossed = pair();
    crossed.policy.bounds.min = n(21);
    let mut unselected = unassigned();
    unselected.policy.affinity.exclude = vec!["a".to_owned(), "b".to_owned()];
    let mut unranked = unassigned();
    unranked.policy.kind = Prioritized;
    let [mut elsewhere, mut running] = [unassigned(), pair()];
    for hub in [&mut elsewhere, &mut running] {
        hub.policy.kind = Prioritized;
        hub.policy.preferences = priorities(&[("c", 1)]);
    }
    // Whether one without a Secret is selected is not known, so it is no reason to drain the other.
    let mut missing = pair();
    missing.policy.affinity = unselected.policy.affinity.clone();
    let b = missing.member("b");
    b.membership = Membership::Missing;
    b.health = Health::Unknown { since: at(-10_000) };
    missing.entry("b").preference = Some(EffectivePreference::default());
    let cases = [
        (crossed, "InvalidBounds"),
        (unselected, "NoCandidate"),
        (missing, "NoCandidate"),
        (unranked, "NoPriority"),
        (elsewhere, "NoPriority"),
        (running, "NoPriority"),
    ];
    for (mut hub, reason) in cases {
        let before = hub.ledger.clone();
        let found = status(&mut hub, ConditionKind::Assigned);
        assert_eq!(found, (Status::False, reason));
        assert_eq!(hub.ledger, before, "{reason}");
    }
}

#[test]
fn a_fleet_without_a_candidate_names_the_member_that_cannot_be_read() {
    let mut hub = pair();
    hub.ledger = Ledger::default();
    for member in &mut hub.members {
        member.health = Health::Unknown { since: at(0) };
        member.problem = Some("pods are left out".to_owned());
    }
    let assigned = condition(&mut hub, ConditionKind::Assigned);
    let message = "no member can be a candidate: a: pods are left out";
    assert_eq!(assigned.message, message);
}

#[test]
fn the_condition_names_members_whose_capacity_is_only_an_upper_bound() {
    let mut hub = pair();
    hub.member("b").is_capacity_soft = true;
    let known = condition(&mut hub, ConditionKind::CapacityKnown);
    let message = "the capacity of every member is known; it is an upper bound in b, where pods have spread constraints";
    assert_eq!(known.message, message);
}

#[test]
fn a_member_that_does_not_answer_is_not_written_and_keeps_its_share() {
    let mut hub = pair();
    hub.member("b").health = Health::Unknown { since: at(-10_000) };
    hub.policy.bounds.max = n(30);
    hub.policy.generation = 2;
    let b = hub.decided("b");
    assert_eq!(b.action, Action::Hold);
    assert_eq!(b.reasons, [Reason::Unknown]);
    assert_eq!(hub.budgets(), [("a", 1, 20), ("b", 1, 10)]);
    let found = status(&mut hub, ConditionKind::MembersReachable);
    assert_eq!(found, (Status::False, "Unreachable"));
    // It answers again: budgets are assigned again.
    hub.member("b").health = Health::Ready;
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 15), ("b", 1, 15)]);
}

#[test]
fn an_observation_older_than_three_periods_counts_as_no_answer() {
    let mut hub = pair();
    hub.member("a").observed = Some(at(-90));
    hub.member("b").observed = Some(at(-91));
    let decision = hub.step();
    let actions: Vec<_> = decision.members.iter().map(|m| m.action).collect();
    assert_eq!(actions, [Action::Keep, Action::Hold]);
}

#[test]
fn a_lost_share_goes_to_the_others_after_the_toleration_and_returns_after_a_cooldown() {
    let mut hub = pair();
    hub.policy.failure = FailurePolicy::Reassign;
    hub.member("b").health = Health::Unknown { since: at(-290) };
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 10), ("b", 1, 10)]);
    let b = hub.decided("b");
    assert_eq!(hub.budgets(), [("a", 2, 20)]);
    assert_eq!(b.action, Action::Hold);
    assert_eq!(b.reasons, [Reason::Failed]);
    // A hub that has just started has not heard of it yet.
    hub.member("b").health = Health::Unknown {
        since: hub.now + secs(45),
    };
    let b = hub.decided("b");
    assert_eq!(b.reasons, [Reason::Failed]);
    hub.member("b").health = Health::Ready;
    for _ in 0..4 {
        hub.step();
        let why = "b must stay healthy for the cooldown";
        assert_eq!(hub.budgets(), [("a", 2, 20)], "{why}");
    }
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 10), ("b", 1, 10)]);
}

#[test]
fn a_member_that_comes_and_goes_moves_no_budget() {
    let mut hub = pair();
    hub.policy.failure = FailurePolicy::Reassign;
    let come_and_go = |hub: &mut Hub, held: &[(&str, u32, u32)]| {
        for _ in 0..20 {
            let since = hub.now;
            hub.member("b").health = Health::Unknown { since };
            hub.step();
            hub.member("b").health = Health::Ready;
            hub.step();
            assert_eq!(hub.budgets(), held, "at {}", hub.now);
        }
    };
    come_and_go(&mut hub, &[("a", 1, 10), ("b", 1, 10)]);
    // One that has lost its share gets it back when it has stayed for a cooldown.
    let since = hub.now - hub.policy.toleration;
    hub.member("b").health = Health::Unknown { since };
    hub.step();
    come_and_go(&mut hub, &[("a", 2, 20)]);
}

fn maintenance(effect: TaintEffect, since: Option<Timestamp>) -> Taint {
    Taint {
        key: "maintenance".to_owned(),
        value: String::new(),
        effect,
        since,
    }
}

/// A toleration of [`maintenance`], for this long.
fn tolerated(seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some("maintenance".to_owned()),
        seconds,
        ..Toleration::default()
    }
}

#[test]
fn taints_prevent_new_shares_and_evict_when_their_toleration_expires() {
    let taint = |effect| maintenance(effect, Some(at(-200)));
    let fresh = |effect, tolerations: Vec<Toleration>| {
        let mut hub = pair();
        hub.ledger = Ledger::default();
        hub.policy.tolerations = tolerations;
        hub.member("b").taints = vec![taint(effect)];
        hub.step();
        hub.budgets()
            .iter()
            .map(|(name, _, _)| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(fresh(TaintEffect::NoSchedule, Vec::new()), ["a"]);
    assert_eq!(fresh(TaintEffect::PreferNoSchedule, Vec::new()), ["a"]);
    let both = fresh(TaintEffect::NoSchedule, vec![tolerated(None)]);
    assert_eq!(both, ["a", "b"]);
    for (seconds, kept) in [(None, true), (Some(100), false), (Some(300), true)] {
        let mut hub = pair();
        hub.policy.failure = FailurePolicy::Reassign;
        hub.member("b").taints = vec![taint(TaintEffect::NoExecute)];
        hub.policy.tolerations = vec![tolerated(seconds)];
        hub.step();
        assert_eq!(hub.budgets().len() == 2, kept, "{seconds:?}");
    }
}

#[test]
fn a_tolerated_taint_of_unknown_age_counts_from_its_first_observation_even_after_a_restart() {
    let mut hub = pair();
    hub.policy.failure = FailurePolicy::Reassign;
    hub.policy.tolerations = vec![tolerated(Some(100))];
    let first = hub.now;
    let taint = |since| maintenance(TaintEffect::NoExecute, since);
    let mut shares = Vec::new();
    for pass in 0..40 {
        // The adapter knows the age until it restarts.
        let known = Some(first).filter(|_| pass < 2);
        hub.member("b").taints = vec![taint(known)];
        let age = hub.now.duration_since(first).as_secs();
        hub.step();
        shares.push((age >= 100, hub.budgets().len()));
        if pass > 8 {
            hub.pods("b", 0, 0);
            hub.member("b").hpa = None;
        }
    }
    assert!(shares.iter().any(|(ended, _)| *ended), "{shares:?}");
    let expected = |ended: bool| if ended { 1 } else { 2 };
    assert!(
        shares.iter().all(|(ended, n)| *n == expected(*ended)),
        "{shares:?}"
    );
    hub.member("b").taints.clear();
    hub.step();
    assert_eq!(hub.budgets().len(), 2);
}

#[test]
fn the_hub_places_the_workload_where_it_is_missing() {
    for (scaling_to_zero, replicas) in [(false, 1), (true, 0)] {
        let mut hub = pair();
        hub.policy.source = WorkloadSource::Hub;
        hub.policy.scaling_to_zero = scaling_to_zero;
        hub.policy.bounds.min = n(1);
        hub.member("b").pods = None;
        let b = hub.decided("b");
        assert_eq!((b.action, b.replicas), (Action::Create, Some(n(replicas))));
    }
}

#[test]
fn without_load_the_others_reach_the_minimum_before_pods_end() {
    for floor in [None, Some(n(4))] {
        let mut hub = pair();
        hub.policy.bounds.min = n(3);
        hub.total.demand = Some(0.0);
        hub.total.floor = floor;
        hub.pods("a", 1, 0);
        hub.policy.affinity.exclude = vec!["b".to_owned()];
        hub.policy.generation = 2;
        let needed = floor.map_or(3, Replicas::get);
        for ready in 1..needed {
            hub.pods("a", ready, 0);
            let decision = hub.step();
            let b = decision.member("b").expect("b");
            assert_eq!(b.action, Action::Keep, "{ready} of {needed} are ready");
            assert_eq!(decision.member("a").expect("a").min, n(needed));
        }
        hub.pods("a", needed, 0);
        assert_eq!(hub.decided("b").action, Action::Drain);
    }
}

/// A change of the preference that matches.
type Change = fn(&mut Preference);

#[test]
fn labels_that_match_other_preferences_reassign_budgets_once() {
    let labelled = |value: &str| BTreeMap::from([("size".to_owned(), value.to_owned())]);
    let large = || Affinity {
        labels: "size=large".parse().expect("a selector"),
        ..Affinity::default()
    };
    let base = Preference {
        weight: Some(1),
        priority: Some(1),
        ..Preference::default()
    };
    let cases: [(AssignmentKind, Change, [u32; 2]); 4] = [
        (StaticWeighted, |p| p.weight = Some(3), [5, 15]),
        (Prioritized, |p| p.priority = Some(2), [10, 10]),
        (DynamicWeighted, |p| p.max = Some(n(6)), [14, 6]),
        (DynamicWeighted, |p| p.elastic = true, [6, 14]),
    ];
    let maximums = |hub: &Hub| hub.budgets().iter().map(|b| b.2).collect::<Vec<_>>();
    for (kind, change, expected) in cases {
        let mut preference = base.clone();
        change(&mut preference);
        let mut hub = pair();
        hub.policy.kind = kind;
        hub.policy.preferences = vec![
            Preference {
                targets: large(),
                ..preference
            },
            base.clone(),
        ];
        hub.step();
        assert_eq!(maximums(&hub), [10, 10], "an older ledger moves nothing");
        hub.member("b").profile.labels = labelled("large");
        hub.step();
        assert_eq!(maximums(&hub), expected, "{kind:?}");
        let mut members = hub.step().members.into_iter();
        let again = members.any(|m| m.reasons.contains(&Reason::Assigned));
        assert!(!again, "{kind:?}: once only");
    }
}

#[test]
fn a_foreign_autoscaler_is_named_and_its_member_is_not_written() {
    let mut hub = pair();
    hub.member("a").foreign_hpa = Some("theirs".to_owned());
    let a = hub.decided("a");
    assert_eq!(a.action, Action::Hold);
    assert_eq!(a.reasons, [Reason::Foreign]);
    assert_eq!(
        a.sentence(),
        "horizontalpodautoscaler theirs scales the same target; its replicas are not changed"
    );
    let found = status(&mut hub, ConditionKind::ReplicaConflict);
    assert_eq!(found, (Status::False, "NoConflict"));
}

#[test]
fn a_write_after_a_landing_has_the_reason_landed() {
    for mode in [Mode::Delegated, Mode::Direct] {
        let mut hub = pair();
        hub.policy.mode = mode;
        limit_b(&mut hub);
        hub.total.demand = Some(8.0);
        hub.total.desired = (mode == Mode::Direct).then_some(n(8));
        for reason in [Reason::Assigned, Reason::Landing] {
            assert_eq!(hub.decided("b").reasons[0], reason);
        }
        hub.pods("a", 8, 0);
        let b = hub.decided("b");
        assert_eq!(b.reasons[0], Reason::Landed, "{mode:?}");
        let sentence = b.sentence();
        for part in [
            "max 4 -> 2",
            "other members are ready or the wait has timed out",
        ] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}

#[test]
fn a_landing_counts_on_the_minimum_of_a_member_that_does_not_answer() {
    for (min, kept) in [(4, 2), (1, 4)] {
        let mut hub = pair();
        hub.members.push(Member {
            health: Health::Unknown { since: at(-10) },
            ..member("c", 4)
        });
        hub.ledger = ledger(&[("a", 1, 10), ("b", 1, 10), ("c", min, 10)]);
        limit_b(&mut hub);
        hub.total.demand = Some(10.0);
        let b = hub.decided("b");
        // 4 of a, 2 of b, and 4 of c: if its autoscaler has not scaled it down since.
        assert_eq!(b.max, n(kept), "{min}: {b:?}");
    }
}

#[test]
fn pods_that_a_landing_keeps_are_not_started_again_with_every_sync() {
    let mut hub = direct();
    give_all_to_a(&mut hub);
    hub.total.demand = Some(8.0);
    for step in 0..4 {
        // While new pods are not ready, the decision for the fleet keeps what runs: at first 8, then 4 more.
        keep_what_runs(&mut hub);
        assert_eq!(hub.decided("a").replicas, Some(n(8)), "{step}");
    }
    // A load that the new pods do not carry is added to all of it.
    for (demand, desired, divided) in [
        (Some(9.0), 13, 9),
        // Without a demand it is not known which pods are too many; 10 is what fits.
        (None, 13, 10),
    ] {
        hub.total.demand = demand;
        hub.total.desired = Some(n(desired));
        let a = hub.decided("a");
        assert_eq!(a.replicas, Some(n(divided)), "{demand:?}");
    }
}

#[test]
fn pods_of_a_member_that_waits_for_a_share_are_not_started_again_with_every_sync() {
    let failed = Health::NotReady { since: at(-1_000) };
    for (health, demand, divided) in [
        // Healthy again, for less than a cooldown.
        (Health::Ready, Some(7.0), 7),
        (Health::Ready, None, 4),
        // Pods of a member that has failed may not serve, so others take over the demand, and nothing beyond it.
        (failed, Some(8.0), 8),
        (failed, None, 4),
    ] {
        let mut hub = direct();
        hub.policy.failure = FailurePolicy::Reassign;
        hub.policy.cooldown = hub.policy.toleration;
        hub.member("b").health = failed;
        hub.total.desired = Some(n(8));
        hub.step();
        hub.ledger.landing = None;
        hub.pods("a", 4, 0);
        hub.member("b").health = health;
        hub.total.demand = demand;
        for step in 0..4 {
            // While the history is lost or a metric is missing, the decision for the fleet keeps what runs.
            keep_what_runs(&mut hub);
            let a = hub.decided("a").replicas;
            assert_eq!(a, Some(n(divided)), "{step}: {health:?} {demand:?}");
        }
    }
}

#[test]
fn a_landing_does_not_wait_for_pods_of_a_workload_that_the_hub_did_not_place() {
    for foreign_workload in [false, true] {
        let mut hub = pair();
        hub.policy.source = WorkloadSource::Hub;
        give_all_to_a(&mut hub);
        hub.member("b").foreign_workload = foreign_workload;
        hub.step();
        assert!(hub.ledger.landing.is_some());
        hub.pods("a", 8, 0);
        hub.step();
        assert_eq!(hub.ledger.landing.is_none(), foreign_workload);
    }
}

#[test]
fn a_landing_in_direct_waits_for_no_more_pods_than_there_is_room_for() {
    let mut hub = direct();
    give_all_to_a(&mut hub);
    hub.member("a").capacity = Some(n(6));
    hub.total.desired = Some(n(8));
    let drains_b = |hub: &mut Hub| hub.decided("b").replicas == Some(n(0));
    hub.total.demand = Some(5.0);
    assert!(!drains_b(&mut hub));
    hub.pods("a", 6, 0);
    // What the load asks for is waited for all the same.
    hub.total.demand = Some(8.0);
    assert!(!drains_b(&mut hub));
    hub.total.demand = Some(5.0);
    assert!(drains_b(&mut hub));
}

#[test]
fn a_floor_stays_while_it_is_not_known_whether_pods_beyond_the_budgets_have_ended() {
    let mut hub = pair();
    give_all_to_a(&mut hub);
    hub.total.demand = Some(8.0);
    let min_of_a = |hub: &mut Hub| hub.decided("a").min;
    assert_eq!(min_of_a(&mut hub), n(8));
    hub.pods("a", 8, 0);
    hub.member("b").health = Health::Unknown { since: hub.now };
    hub.total.demand = None;
    for step in 0..3 {
        assert_eq!(min_of_a(&mut hub), n(8), "{step}");
    }
    hub.now = hub.ledger.landing.expect("a landing").until;
    assert_eq!(min_of_a(&mut hub), n(2));
}

#[test]
fn a_landing_starts_what_is_asked_for_although_other_pods_are_kept() {
    for (min, floor, divided) in [(1, None, 8), (10, None, 10), (1, Some(n(9)), 9)] {
        let mut hub = direct();
        give_all_to_a(&mut hub);
        hub.policy.bounds.min = n(min);
        hub.total = Total {
            demand: Some(8.0),
            floor,
            desired: Some(n(12)),
        };
        let a = hub.decided("a");
        assert_eq!(a.replicas, Some(n(divided)), "{min} {floor:?}");
    }
}

#[test]
fn ready_pods_end_when_those_that_others_start_instead_are_ready() {
    let mut hub = direct();
    hub.policy.kind = Aggregated;
    hub.total.desired = Some(n(8));
    let count_of_b = |hub: &mut Hub| hub.decided("b").replicas;
    assert_eq!(count_of_b(&mut hub), Some(n(4)));
    hub.pods("a", 7, 0);
    assert_eq!(count_of_b(&mut hub), Some(n(1)));
}

#[test]
fn a_count_that_the_hub_writes_does_not_have_the_reason_restored() {
    let mut hub = direct();
    hub.total.desired = Some(n(2));
    let a = hub.decided("a");
    assert_eq!(a.replicas, Some(n(1)));
    assert_eq!(a.reasons, [Reason::Floor]);
}

#[test]
fn a_foreign_writer_is_named_and_its_member_is_not_written() {
    let mut hub = pair();
    hub.member("a").foreign_writer = Some("argocd".to_owned());
    assert_eq!(hub.decided("a").action, Action::Hold);
    let found = status(&mut hub, ConditionKind::ReplicaConflict);
    assert_eq!(found, (Status::True, "ForeignWriter"));
}

#[test]
fn a_member_that_a_foreign_writer_keeps_below_its_minimum_is_raised_to_it_in_direct() {
    for (mode, runs, written) in [
        (Mode::Direct, 1, Some(n(3))),
        (Mode::Direct, 3, None),
        (Mode::Direct, 0, None),
        (Mode::Delegated, 1, None),
    ] {
        let mut hub = pair();
        hub.policy.mode = mode;
        hub.policy.bounds.min = n(6);
        hub.policy.generation = 2;
        hub.total.desired = Some(n(6));
        hub.step();
        let min = hub.ledger.members["a"].min;
        assert_eq!(min, n(3));
        hub.member("a").foreign_writer = Some("argocd".to_owned());
        hub.pods("a", runs, 0);
        let a = hub.decided("a");
        assert_eq!((a.replicas, a.min), (written, min), "{mode:?} {runs}");
        // A pause of KEDA may keep it there.
        hub.member("a").paused_by = Some("so".to_owned());
        let paused = hub.decided("a").replicas;
        assert_eq!(paused, None, "{mode:?} {runs}");
    }
}

#[test]
fn floors_follow_capacities_and_move_budget_to_members_with_room() {
    let mut hub = Hub::new(
        policy(DynamicWeighted, 2, 24),
        vec![member("a", 10), member("b", 4)],
        ledger(&[("a", 1, 20), ("b", 1, 4)]),
    );
    hub.member("b").capacity = Some(n(40));
    for (name, capacity, weight) in [("a", 10, 10), ("b", 40, 40)] {
        hub.entry(name).capacity = Some(n(capacity));
        hub.entry(name).weight = weight;
    }
    hub.member("a").capacity = Some(n(10));
    hub.total.floor = Some(n(18));
    let decision = hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 16), ("b", 1, 8)]);
    let floors: Vec<_> = decision.members.iter().map(|m| m.floor.get()).collect();
    assert_eq!((floors, decision.unmet_floor), (vec![10, 8], n(0)));
}

#[test]
fn a_proved_capacity_caps_a_floor_share_and_does_not_change_demand_weights() {
    let mut hub = pair();
    hub.policy.weight_by = WeightBy::Demand;
    // Thousandths of a replica, as the division of budgets stores them.
    for (name, weight) in [("a", 9_000), ("b", 3_000)] {
        hub.entry(name).capacity = Some(n(10));
        hub.entry(name).weight = weight;
    }
    let full = Backoff {
        placed: n(8),
        claimed: Some(n(10)),
        span: Span {
            until: at(600),
            seconds: 600,
        },
    };
    hub.entry("a").backoff = Some(full);
    let mut shares = Vec::new();
    for floor in [8, 12] {
        hub.total.floor = Some(n(floor));
        let decision = hub.step();
        shares.extend(decision.members.iter().map(|m| m.floor.get()));
    }
    // Three to one, up to the proved capacity.
    assert_eq!(shares, [6, 2, 8, 4]);
}

#[test]
fn what_was_only_shown_ends_no_pod_when_it_is_written() {
    for generation in [1, 2] {
        let mut hub = pair();
        hub.policy.previewed = true;
        hub.pods("a", 16, 0);
        hub.step();
        assert_eq!(hub.budgets(), [("a", 1, 10), ("b", 1, 10)]);
        hub.policy.previewed = false;
        hub.policy.generation = generation;
        let decision = hub.step();
        let a = decision.member("a").expect("a").max;
        assert!(a >= n(16), "{a} in generation {generation}");
    }
}

#[test]
fn a_blocked_member_keeps_budget_for_running_and_starting_pods() {
    let mut hub = pair();
    hub.pods("a", 9, 2);
    hub.member("a").pods.as_mut().expect("pods").ready = n(3);
    let found = status(&mut hub, ConditionKind::Balanced);
    assert_eq!(found, (Status::False, "NoCapacityAnywhere"));
    let kept = [("a", 1, 10), ("b", 1, 10)];
    assert_eq!(hub.budgets(), kept, "b has no room beyond its maximum");
    hub.member("b").capacity = Some(n(20));
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 7), ("b", 1, 13)]);
    assert!(hub.ledger.members["a"].backoff.is_some());
}

#[test]
fn a_saturated_member_gets_what_others_do_not_use() {
    let mut hub = pair();
    hub.pods("a", 10, 0);
    hub.member("a").capacity = Some(n(16));
    hub.member("a").desired = Some(n(10));
    hub.member("a").demand = Some(13.2);
    hub.member("b").demand = Some(4.0);
    let decision = hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 14), ("b", 1, 6)]);
    let a = decision.member("a").expect("a");
    assert_eq!(
        a.sentence(),
        "max 10 -> 14: its demand is 13.2 replicas, 4 above its maximum"
    );
    assert_eq!(decision.order, [1, 0], "what shrinks is written first");
    // Within the tolerance nothing is needed.
    let mut calm = pair();
    calm.pods("a", 10, 0);
    calm.member("a").demand = Some(10.9);
    calm.ledger.optimized = Some(at(-1));
    calm.step();
    assert_eq!(calm.budgets(), [("a", 1, 10), ("b", 1, 10)]);
}

#[test]
fn the_need_of_a_member_with_unknown_demand_doubles_each_round() {
    let mut hub = pair();
    hub.policy.bounds.max = n(30);
    hub.ledger = ledger(&[("a", 1, 10), ("b", 1, 20)]);
    hub.member("a").capacity = None;
    let mut maximums = Vec::new();
    for _ in 0..12 {
        let max = hub.ledger.members["a"].max.get();
        hub.pods("a", max, 0);
        hub.member("a").desired = Some(n(max));
        hub.member("a").hpa = Some(ReplicaBounds::new(n(1), n(max)));
        hub.step();
        maximums.push(hub.ledger.members["a"].max.get());
    }
    maximums.dedup();
    assert_eq!(maximums, [11, 13, 17]);
}

#[test]
fn one_replica_of_minimum_moves_from_an_idle_member_only_if_the_policy_says_so() {
    for (limit, minimums) in [(None, [4, 1]), (Some(0.5), [3, 2])] {
        let mut hub = pair();
        hub.ledger = ledger(&[("a", 4, 10), ("b", 1, 10)]);
        hub.policy.min_utilization = limit;
        for (name, demand) in [("a", 1.0), ("b", 4.0)] {
            let entry = hub.member(name);
            entry.demand = Some(demand);
            entry.desired = Some(n(4));
        }
        for _ in 0..4 {
            hub.step();
        }
        let found: Vec<_> = hub.budgets().iter().map(|(_, min, _)| *min).collect();
        assert_eq!(found, minimums, "{limit:?}");
    }
}

#[test]
fn a_member_sleeps_only_after_the_others_run_its_share_of_the_floor() {
    let mut hub = pair();
    hub.policy.bounds.min = n(1);
    hub.policy.scaling_to_zero = true;
    hub.total = Total {
        demand: Some(2.0),
        floor: Some(n(6)),
        ..Total::default()
    };
    for entry in hub.ledger.members.values_mut() {
        entry.capacity = Some(n(10));
        entry.weight = 10;
    }
    for name in ["a", "b"] {
        hub.pods(name, 3, 0);
        hub.member(name).demand = Some(1.0);
        hub.member(name).hpa = Some(ReplicaBounds::new(n(3), n(10)));
    }
    let (mut minimums, mut slept) = (Vec::new(), Vec::new());
    for step in 0..6 {
        let decision = hub.step();
        let of = |name: &str| decision.member(name).expect("a member").clone();
        minimums.push((of("a").min.get(), of("b").min.get()));
        slept.extend(of("b").replicas.map(|replicas| (step, replicas)));
        // Its autoscaler scales at once, its pods are ready two syncs later.
        let ready = if step < 4 { 3 } else { minimums[step].0 };
        let replicas = of("a").min;
        let pods = hub.member("a").pods.as_mut().expect("pods");
        (pods.replicas, pods.ready) = (replicas, n(ready));
    }
    assert_eq!(minimums, [(3, 3), (3, 3), (6, 3), (6, 3), (6, 3), (6, 1)]);
    assert_eq!(slept, [(5, n(0))]);
}

#[test]
fn headroom_by_demand_goes_to_members_with_capacity() {
    let mut hub = pair();
    hub.policy.weight_by = WeightBy::Demand;
    hub.pods("a", 10, 0);
    hub.pods("b", 1, 0);
    hub.member("a").demand = Some(10.0);
    hub.member("b").demand = Some(1.0);
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 10), ("b", 1, 10)], "a is full");
    hub.member("a").capacity = Some(n(15));
    hub.ledger.optimized = None;
    hub.step();
    assert_eq!(hub.budgets(), [("a", 1, 15), ("b", 1, 5)]);
}

#[test]
fn a_fleet_whose_members_all_lost_their_share_is_assigned_again_when_one_recovers() {
    let mut hub = pair();
    hub.policy.failure = FailurePolicy::Reassign;
    // Its share went to b, which is not listed any more.
    hub.members.truncate(1);
    for entry in hub.ledger.members.values_mut() {
        *entry = Entry {
            share_status: ShareStatus::Failed,
            ..Entry::default()
        };
    }
    for _ in 0..4 {
        let found = status(&mut hub, ConditionKind::Assigned);
        assert_eq!(found, (Status::False, "NoCandidate"));
    }
    let found = status(&mut hub, ConditionKind::Assigned);
    assert_eq!(found, (Status::True, "Assigned"));
    assert_eq!(hub.budgets(), [("a", 2, 20)]);
}

#[test]
fn a_member_at_zero_is_woken_where_members_may_not_sleep() {
    let mut hub = pair();
    hub.pods("a", 0, 0);
    let a = hub.decided("a");
    assert_eq!((a.action, a.replicas), (Action::Wake, Some(n(1))));
}

#[test]
fn sleeping_members_wake_at_their_minimum_when_sleep_is_disabled() {
    for (kind, scaling_to_zero, expected) in [
        (DynamicWeighted, false, n(2)),
        (Duplicated, true, n(4)),
        (Duplicated, false, n(4)),
    ] {
        for mode in [Mode::Delegated, Mode::Direct] {
            let mut hub = pair();
            hub.ledger = ledger(&[("a", 4, 10), ("b", 1, 10)]);
            hub.policy = Policy {
                scaling_to_zero,
                mode,
                generation: 2,
                ..policy(kind, 4, 20)
            };
            hub.total.desired = (mode == Mode::Direct).then_some(n(4));
            hub.pods("b", 0, 0);
            let b = hub.decided("b");
            let case = format!("{kind:?} {scaling_to_zero} {mode:?}");
            assert_eq!(
                (b.action, b.replicas),
                (Action::Wake, Some(expected)),
                "{case}"
            );
        }
    }
}

#[test]
fn the_hub_places_no_sleeping_workload_under_duplicated() {
    let mut hub = pair();
    hub.policy = Policy {
        source: WorkloadSource::Hub,
        scaling_to_zero: true,
        generation: 2,
        ..policy(Duplicated, 3, 20)
    };
    hub.member("b").pods = None;
    let b = hub.decided("b");
    assert_eq!((b.action, b.replicas), (Action::Create, Some(n(3))));
}

#[test]
fn a_shrunk_member_that_needs_budget_back_has_local_demand() {
    let mut hub = pair();
    hub.policy.kind = Prioritized;
    hub.policy.preferences = priorities(&[("a", 2), ("b", 1)]);
    hub.pods("b", 10, 0);
    hub.member("b").demand = Some(13.0);
    hub.entry("b").shrunk = Some(at(-600));
    hub.step();
    let local = hub.ledger.members["b"].local.expect("it has local demand");
    assert_eq!(local.seconds, 3_600);
}

#[test]
fn a_member_that_keeps_replicas_for_local_demand_has_the_reason() {
    let mut hub = pair();
    hub.policy.kind = Prioritized;
    hub.policy.preferences = priorities(&[("a", 2), ("b", 1)]);
    hub.total.demand = Some(10.0);
    for (name, demand) in [("a", 1.0), ("b", 9.0)] {
        hub.pods(name, 10, 0);
        hub.member(name).demand = Some(demand);
    }
    let has_reason = |hub: &mut Hub| hub.decided("b").reasons.contains(&Reason::LocalDemand);
    assert!(!has_reason(&mut hub));
    let span = Span {
        until: at(3_600),
        seconds: 3_600,
    };
    hub.entry("b").local = Some(span);
    assert!(has_reason(&mut hub));
}

/// Whether a member is put to sleep within five syncs.
fn sleeps(hub: &mut Hub) -> bool {
    hub.policy.scaling_to_zero = true;
    hub.policy.bounds.min = n(1);
    (0..5).any(|_| {
        let decision = hub.step();
        decision.members.iter().any(|m| m.action == Action::Sleep)
    })
}

#[test]
fn in_direct_mode_a_member_under_load_is_not_at_its_minimum() {
    for (replicas, demand, expected) in [(6, 2.5, false), (1, 0.3, true)] {
        let mut hub = direct();
        hub.total.desired = Some(n(2 * replicas));
        for name in ["a", "b"] {
            hub.pods(name, replicas, 0);
            hub.member(name).demand = Some(demand);
        }
        assert_eq!(sleeps(&mut hub), expected, "{replicas}");
    }
}

#[test]
fn where_all_metrics_are_the_fleets_its_demand_decides_whether_a_member_sleeps() {
    for (demand, expected) in [(Some(0.5), true), (Some(1.9), false), (None, false)] {
        let mut hub = pair();
        hub.total.demand = demand;
        hub.pods("a", 1, 0);
        hub.pods("b", 1, 0);
        assert_eq!(sleeps(&mut hub), expected, "{demand:?}");
    }
}

#[test]
fn every_decision_reports_limits_that_contradict_the_bounds() {
    let message = |min: Option<u32>, max: Option<u32>| {
        let mut hub = pair();
        hub.ledger = Ledger::default();
        let limited = |name| Preference {
            min: min.map(n),
            max: max.map(n),
            ..prefer(name)
        };
        hub.policy.preferences = ["a", "b"].map(limited).to_vec();
        hub.step();
        hub.step().conditions.swap_remove(0).message
    };
    let text = "the budget is divided over 2 members";
    assert_eq!(message(None, None), text);
    let (above_min, above_max) = (Remark::ThresholdsAboveMin, Remark::ThresholdsAboveMax);
    let cases = [
        (Some(2), None, vec![above_min]),
        (Some(11), None, vec![above_min, above_max]),
        (None, Some(9), vec![Remark::ThresholdsBelowMax]),
    ];
    for (min, max, remarks) in cases {
        let remarks = remarks.iter().map(|remark| format!("; {}", remark.text()));
        let expected = format!("{text}{}", remarks.collect::<String>());
        assert_eq!(message(min, max), expected);
    }
}

#[test]
fn the_reason_of_an_elastic_member_does_not_call_its_capacity_unknown() {
    let mut hub = pair();
    hub.ledger = Ledger::default();
    hub.policy.preferences = ["a", "b"].map(prefer).to_vec();
    hub.policy.preferences[1].elastic = true;
    let because = hub.decided("b").because;
    let expected = "elastic, so its capacity counts as maxReplicas";
    assert!(because.ends_with(expected), "{because}");
}
