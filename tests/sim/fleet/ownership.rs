//! Ownership of HPAs in members: one of another owner is left alone, or adopted and restored; a target that is created
//! again is managed again; and a deletion waits for a member that does not answer, but not for ever.

use serde_json::{Value, json};

use super::world::{FLEETS, three, with_preferences};
use crate::cluster::{Cluster, PERIOD, SHOP, cpu_at, hpa};

const ADOPT: &str = "autoscaling.foretide.io/adopt";
const BY_HAND: &str = "shop-by-hand";
const HPAS: &str = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";

/// An HPA made by users of a member.
fn by_hand() -> Value {
    let spec = json!({
        "minReplicas": 2, "maxReplicas": 5, "metrics": [cpu_at(80)],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7, "selectPolicy": "Disabled"}},
    });
    let mut hpa = hpa(SHOP, BY_HAND, SHOP, spec);
    hpa["metadata"]["labels"] = json!({"team": "shop"});
    hpa
}

/// The HPA of another owner, without the fields that only its own controller and the server write.
fn foreign(cluster: &Cluster) -> Value {
    let (code, found) =
        cluster
            .site("member2")
            .ask("kubectl", "GET", &format!("{HPAS}/{BY_HAND}"), &Value::Null);
    assert_eq!(code, 200, "{found}");
    let kept = ["uid", "labels", "annotations", "ownerReferences"];
    json!([
        found["spec"],
        kept.map(|field| found["metadata"][field].clone())
    ])
}

#[test]
fn a_writer_in_a_member_keeps_its_count_below_the_minimum_for_no_longer_than_a_sync() {
    for mode in ["Direct", "Delegated"] {
        let mut cluster = Cluster::fleet(&[("member1", 10), ("member2", 10)]);
        cluster.deploy_everywhere(3);
        cluster.evenly(600);
        cluster.ask_for("StaticWeighted", (6, 12), &json!({"mode": mode}));
        cluster.start("pod-0");
        cluster.runs(60, "three each", &[("member1", 3), ("member2", 3)]);
        let path =
            format!("/apis/apps/v1/namespaces/{SHOP}/deployments/{SHOP}/scale?fieldManager=argocd");
        let mut raised = 0;
        for second in 0..180 {
            if second - raised > 2 {
                let scale = json!({"spec": {"replicas": 1}});
                cluster
                    .site("member1")
                    .ask("kubectl", "PATCH", &path, &scale);
            }
            cluster.run_for(1);
            if cluster.counts("member1").unwrap().0 >= 3 {
                raised = second;
            }
            assert!(
                second - raised <= PERIOD.as_secs() + 4,
                "{mode}: since {raised}"
            );
        }
    }
}

#[test]
fn foreign_hpas_in_members_are_kept_or_adopted_and_managed_hpas_are_deleted_with_the_fleet() {
    let rooms = [("member1", 10), ("member3", 10)];
    let mut cluster = Cluster::fleet(&rooms);
    cluster.add_member("member2", 10);
    cluster.deploy_everywhere(2);
    cluster.evenly(6_000);
    let weights = with_preferences("StaticWeighted", "staticWeight", &three([1, 1, 1]));
    cluster.ask_for(
        "StaticWeighted",
        (3, 12),
        &json!({"federatedHPAAssignment": weights}),
    );
    cluster.start("pod-0");
    let halves = [("member1", 6), ("member3", 6)];
    cluster.capped(60, "halves", &halves);

    // A member with an HPA of its own joins.
    cluster.site("member2").create(&by_hand());
    let original = foreign(&cluster);
    cluster.join("member2", &json!({}));
    cluster.until_reason(60, "member2", "Foreign");
    assert_eq!(cluster.condition("Ready"), "False/TargetConflict");
    let message = cluster.fleet_status()["conditions"].to_string();
    for word in ["member2", BY_HAND, ADOPT] {
        assert!(message.contains(word), "{message}");
    }
    cluster.run_for(60);
    assert_eq!(foreign(&cluster), original);
    assert!(
        !cluster
            .member_writes()
            .iter()
            .any(|write| write.starts_with("member2"))
    );

    // The adopted HPA is the same object, and continues with its share of the fleet's bounds.
    cluster.annotate_fleet(&json!({ADOPT: "true"}));
    let thirds = three([4, 4, 4]);
    cluster.capped(90, "thirds", &thirds);
    assert_eq!(foreign(&cluster)[1][0], original[1][0]);
    cluster.runs(120, "two each", &thirds.map(|(name, _)| (name, 2)));

    // The target is deleted in one member, and created again.
    cluster
        .site("member3")
        .delete("deployments.apps", SHOP, SHOP);
    cluster.until_reason(60, "member3", "TargetAbsent");
    cluster.until(60, "the others have its share", |cluster| {
        let bounds = cluster.bounds();
        bounds["member1"].1 == 6 && bounds["member2"].1 == 6
    });
    cluster.deploy("member3", 1);
    cluster.capped(120, "thirds again", &thirds);

    // The fleet is deleted while a member does not answer: its HPA there is deleted when the member returns.
    cluster.block("member3");
    cluster.until_condition(90, "MembersReachable", "False/Unreachable");
    cluster.delete_fleet();
    cluster.until(30, "the HPAs of the others are gone", |cluster| {
        cluster.with_hpas() == ["member2", "member3"] && foreign(cluster) == original
    });
    cluster.run_for(240);
    assert_eq!(
        cluster.server.objects(FLEETS).len(),
        1,
        "the deletion waits"
    );
    cluster.until(90, "it waits no more", |cluster| {
        cluster.server.objects(FLEETS).is_empty()
    });
    assert_eq!(cluster.with_hpas(), ["member2", "member3"]);
    cluster.unblock("member3");
    cluster.until(120, "no managed HPA", |cluster| {
        cluster.with_hpas() == ["member2"]
    });
    assert_eq!(foreign(&cluster), original);
    assert!(cluster.serving() >= 6, "{}", cluster.show());
}
