//! Ownership of HPAs: a child is restored, an HPA of a user is never written, an adopted one is given back as it was,
//! and none of this changes the replicas.

use serde_json::{Value, json};
use simkube::faults::Plan;

use crate::cluster::{Cluster, HPAS, SHOP, cpu_at, hpa};

const CHILD: &str = "ehpa-shop";
const OWN: &str = "shop-by-hand";
const ADOPT: &str = "autoscaling.foretide.io/adopt";

/// The parts of an HPA that a user writes.
fn written(cluster: &Cluster, name: &str) -> Option<[Value; 4]> {
    let hpa = cluster.hpa(name)?;
    let metadata = &hpa["metadata"];
    let of_user = [
        &hpa["spec"],
        &metadata["labels"],
        &metadata["annotations"],
        &metadata["ownerReferences"],
    ];
    Some(of_user.map(Clone::clone))
}

/// The HPA of a user, which asks for half as many pods as the autoscaler.
fn of_a_user() -> Value {
    let spec = json!({
        "minReplicas": 2, "maxReplicas": 9, "metrics": [cpu_at(100)],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7, "selectPolicy": "Disabled"}},
    });
    let mut hpa = hpa(SHOP, OWN, SHOP, spec);
    hpa["metadata"]["labels"] = json!({"team": "shop"});
    hpa["metadata"]["annotations"] = json!({"note": "ours"});
    hpa
}

#[test]
fn a_child_that_was_edited_or_deleted_by_hand_is_restored() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.autoscaler("shop", 5, "Delegated", &json!({}));
    cluster.needs("shop", 5);
    cluster.start("pod-0");
    cluster.run_for(60);
    let child = written(&cluster, CHILD).unwrap();
    for change in [
        json!({"spec": {"metrics": [cpu_at(70)]}}),
        json!({"spec": {"minReplicas": 4}}),
        json!({"spec": {"minReplicas": 7}}),
        json!({"spec": {"maxReplicas": 30}}),
        json!({"spec": {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}}),
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
    ] {
        cluster.edit_hpa(CHILD, &change);
        assert_ne!(written(&cluster, CHILD).unwrap(), child, "{change}");
        // A minimum may stay raised for as long as a decrease would wait.
        cluster.until(90, &change.to_string(), |cluster| {
            written(cluster, CHILD).as_ref() == Some(&child)
        });
    }
    let uid = cluster.hpa(CHILD).unwrap()["metadata"]["uid"].clone();
    cluster.server.delete(HPAS, SHOP, CHILD);
    cluster.until(20, "another child", |cluster| {
        cluster
            .hpa(CHILD)
            .is_some_and(|child| child["metadata"]["uid"] != uid)
    });
    cluster.run_for(60);
    assert_eq!(cluster.replicas("shop"), 5);
    assert_eq!(cluster.scaled("shop"), 0);
}

#[test]
fn an_hpa_of_a_user_is_adopted_on_request_and_given_back_as_it_was() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.autoscaler("shop", 4, "Delegated", &json!({}));
    cluster.needs("shop", 4);
    cluster.server.create(&of_a_user());
    let original = written(&cluster, OWN).unwrap();
    let is_original = |cluster: &Cluster| written(cluster, OWN).as_ref() == Some(&original);
    let is_adopted = |cluster: &Cluster| cluster.hpa(OWN).unwrap()["spec"]["maxReplicas"] == 12;

    // The HPA is named in the status, and not written; there is no child beside it.
    cluster.start("pod-0");
    cluster.until(60, "the conflict", |cluster| {
        let status = cluster.status("shop");
        status.contains("TargetConflict") && status.contains(OWN)
    });
    cluster.run_for(60);
    assert!(is_original(&cluster));
    assert_eq!(cluster.hpa(CHILD), None);

    cluster.annotate_in(SHOP, "shop", ADOPT, "true");
    cluster.until(30, "it is adopted", is_adopted);
    cluster.edit("shop", &json!({"scaleStrategy": "Preview"}));
    cluster.until(30, "a preview gives it back", is_original);
    cluster.edit("shop", &json!({"scaleStrategy": "Auto"}));
    cluster.until(30, "it is adopted again", is_adopted);

    // The adopter is deleted while no controller runs: the next controller gives the HPA back.
    cluster.kill("pod-0");
    cluster.delete("shop");
    cluster.run_for(60);
    assert!(is_adopted(&cluster));
    cluster.start("pod-0");
    cluster.until(90, "the next controller gives it back", is_original);
    assert_eq!(cluster.hpa(CHILD), None);
    assert_eq!((cluster.replicas("shop"), cluster.scaled("shop")), (4, 0));
}
