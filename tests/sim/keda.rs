//! A target that a `ScaledObject` of KEDA scales: a conflict without a trigger of Foretide, and none with it; and a pause
//! of KEDA's scaling.

use foretide_api::published::{Published, Unpublished};
use serde_json::{Value, json};
use simkube::network::Effect;

use crate::cluster::{Cluster, HPAS, SHOP, STATUSES, always, cpu, hpa};

const HOST: &str = "pod-0";
const CHILD: &str = "ehpa-web";
const KEDAS: &str = "keda-hpa-web";
const SCALED_OBJECTS: &str = "scaledobjects.keda.sh";
/// The triggers of a `ScaledObject`, as the metrics of KEDA's HPA name them.
const FLOOR: &str = "s0-foretide-floor-web";
const OTHER: &str = "s0-cpu-something";

/// An autoscaler `web` of three pods with a floor of eight, in a cluster that KEDA may be installed in.
fn started(mode: &str, rest: &Value) -> Cluster {
    let cluster = Cluster::without_election();
    cluster.server.create(&scaled_objects());
    cluster.autoscaler("web", 3, mode, &always(8));
    cluster.edit("web", rest);
    cluster.needs("web", 3);
    cluster
}

/// The definition of `ScaledObject`s.
pub(crate) fn scaled_objects() -> Value {
    let versions = json!([{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }}}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": SCALED_OBJECTS},
        "spec": {
            "group": "keda.sh", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "scaledobjects", "singular": "scaledobject", "kind": "ScaledObject"},
        },
    })
}

/// A `ScaledObject` `web` of this Deployment.
pub(crate) fn scaled_object(target: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": SHOP, "annotations": annotations},
        "spec": {"scaleTargetRef": {"name": target}},
    })
}

/// Lets KEDA scale a Deployment: a `ScaledObject` with these triggers, and the HPA that KEDA makes of it.
fn scale_by_keda(cluster: &Cluster, target: &str, triggers: &[&str]) {
    let made_of = cluster.server.create(&scaled_object(target, &json!({})));
    let owner = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web",
        "uid": made_of["metadata"]["uid"], "controller": true,
    });
    let spec = json!({"minReplicas": 1, "maxReplicas": 12, "metrics": metrics(triggers)});
    let mut hpa = hpa(SHOP, KEDAS, target, spec);
    hpa["metadata"]["ownerReferences"] = json!([owner]);
    cluster.server.create(&hpa);
}

fn metrics(triggers: &[&str]) -> Vec<Value> {
    let external = triggers.iter().map(|name| {
        json!({"type": "External", "external": {
            "metric": {"name": name, "selector": {"matchLabels": {"scaledobject.keda.sh/name": "web"}}},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }})
    });
    [cpu()].into_iter().chain(external).collect()
}

/// Changes the triggers of the `ScaledObject`.
fn trigger(cluster: &Cluster, triggers: &[&str]) {
    cluster.edit_hpa(KEDAS, &json!({"spec": {"metrics": metrics(triggers)}}));
}

/// Pauses as KEDA does, which deletes its HPA.
fn pause(cluster: &Cluster) {
    let change = json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}});
    (cluster.server).patch(SCALED_OBJECTS, SHOP, "web", &change);
    if cluster.hpa(KEDAS).is_some() {
        cluster.server.delete(HPAS, SHOP, KEDAS);
    }
}

fn floor(cluster: &Cluster) -> Result<Option<i32>, Unpublished> {
    let ehpa = serde_json::from_value((*cluster.ehpa("web")).clone()).unwrap();
    Published::of(&ehpa, cluster.now()).floor()
}

#[test]
fn without_a_trigger_the_conflict_names_the_one_to_add_and_with_it_the_floor_is_served() {
    let mut cluster = started("Delegated", &json!({"prediction": {}}));
    cluster.start(HOST);
    cluster.until_ready(30, "web", "True/Decided");
    assert!(cluster.hpa(CHILD).is_some());
    scale_by_keda(&cluster, "web", &[OTHER]);
    let conflict = "False/TargetConflict: not acting: ScaledObject web (horizontalpodautoscaler keda-hpa-web) scales the \
        same target and is not changed; add the trigger {type: external, metadata: {scalerAddress: \
        \"foretide-keda-scaler.foretide-system.svc:9000\", enableTLS: \"true\", autoscaler: web}} to it, with an \
        authenticationRef for the scaler's caCert, so that it keeps the floor of this object, or delete one of the two";
    cluster.until_ready(30, "web", conflict);
    assert_eq!(cluster.hpa(CHILD), None);
    for reason in ["HPARemoved", "TargetConflict"] {
        assert_eq!(cluster.events(reason).len(), 1, "{reason}");
    }
    trigger(&cluster, &[OTHER, "s1-foretide-floor-web"]);
    let served = "True/ScaledByKEDA: ScaledObject web scales the target, and reads this object as s1-foretide-floor-web; 8 \
        replicas: ";
    cluster.until_ready(30, "web", served);
    assert_eq!(floor(&cluster), Ok(Some(8)));
    trigger(&cluster, &[OTHER]);
    cluster.until_ready(30, "web", conflict);
    cluster.server.delete(SCALED_OBJECTS, SHOP, "web");
    cluster.until_ready(30, "web", "True/Decided");
    assert_eq!(cluster.hpa(CHILD).unwrap()["spec"]["minReplicas"], 8);
}

#[test]
fn a_served_floor_is_written_every_five_minutes_and_that_of_another_target_is_not() {
    for (mode, target) in [
        ("Delegated", "web"),
        ("Metric", "web"),
        ("Direct", "web"),
        ("Delegated", "other"),
    ] {
        let mut cluster = started(mode, &json!({}));
        scale_by_keda(&cluster, target, &[FLOOR]);
        cluster.start(HOST);
        cluster.until(30, "a floor", |cluster| floor(cluster) == Ok(Some(8)));
        cluster.run_for(60);
        let before = cluster.writes(HOST, STATUSES);
        for second in 0..600 {
            cluster.run_for(1);
            assert_eq!(floor(&cluster), Ok(Some(8)), "{mode} at {second}");
        }
        let is_served = target == "web";
        assert_eq!(cluster.hpa(CHILD).is_none(), is_served, "{mode}");
        let written = cluster.writes(HOST, STATUSES) - before;
        assert_eq!(written, if is_served { 2 } else { 0 }, "{mode}");
        cluster.run_for(300);
        let is_stale = matches!(floor(&cluster), Err(Unpublished::Stale { .. }));
        assert_eq!(is_stale, !is_served, "{mode}");
    }
}

#[test]
fn a_workload_that_keda_scaled_to_zero_has_a_floor_and_waits_for_a_trigger_and_not_for_its_owner() {
    let waits = "it is scaled to zero until a trigger is active";
    for (more, says) in [
        (json!({}), waits),
        (json!({"minReplicas": 0, "specificReplicas": 0}), ""),
        (json!({"minReplicas": 1, "specificReplicas": 1}), ""),
    ] {
        let mut cluster = started("Delegated", &more);
        cluster.scale_by_hand("web", 0);
        scale_by_keda(&cluster, "web", &[FLOOR]);
        cluster.start(HOST);
        let served = "True/ScaledByKEDA: ScaledObject web scales the target, and reads this object as \
            s0-foretide-floor-web; ";
        cluster.until_ready(30, "web", &format!("{served}{says}"));
        assert_eq!(floor(&cluster), Ok(Some(8)), "{more}");
        cluster.run_for(45);
        assert_eq!((cluster.replicas("web"), cluster.hpa(CHILD)), (0, None));
    }
}

#[test]
fn a_target_that_keda_has_paused_is_left_alone_until_keda_scales_it_again() {
    let pinned = json!({"scaleStrategy": "Preview", "specificReplicas": 6});
    for (mode, more) in [
        ("Delegated", json!({})),
        ("Direct", json!({})),
        ("Metric", json!({})),
        ("Delegated", json!({"metrics": []})),
        ("Delegated", pinned),
    ] {
        let mut cluster = started(mode, &more);
        scale_by_keda(&cluster, "web", &[FLOOR]);
        cluster.start(HOST);
        cluster.until_ready(30, "web", "True/ScaledByKEDA");
        pause(&cluster);
        for _restart in 0..2 {
            cluster.run_for(45);
            assert_eq!((cluster.replicas("web"), cluster.hpa(CHILD)), (3, None));
            cluster.crash(HOST, 2);
        }
        cluster.run_for(20);
        if more["scaleStrategy"].is_null() {
            let paused = "True/PausedByKEDA: not acting: KEDA has paused the target: ScaledObject web has the annotation \
                autoscaling.keda.sh/paused; to resume, run kubectl annotate scaledobject web -n shop \
                autoscaling.keda.sh/paused-";
            cluster.until_ready(30, "web", paused);
        }
        cluster.server.delete(SCALED_OBJECTS, SHOP, "web");
        scale_by_keda(&cluster, "web", &[FLOOR]);
        cluster.until_ready(30, "web", "True/ScaledByKEDA");
        assert_eq!((cluster.replicas("web"), cluster.hpa(CHILD)), (3, None));
        cluster.server.delete(SCALED_OBJECTS, SHOP, "web");
        cluster.until(60, "it acts", |cluster| {
            cluster.replicas("web") > 3 || cluster.hpa(CHILD).is_some()
        });
    }
}

#[test]
fn a_child_that_is_in_the_way_of_a_pause_is_removed() {
    let mut cluster = started("Delegated", &json!({}));
    cluster.start(HOST);
    cluster.until_ready(30, "web", "True/Decided");
    cluster.server.create(&scaled_object("web", &json!({})));
    pause(&cluster);
    cluster.until(30, "it is removed", |cluster| cluster.hpa(CHILD).is_none());
    cluster.run_for(45);
    assert_eq!(cluster.hpa(CHILD), None);
}

#[test]
fn where_a_pause_cannot_be_seen_the_objects_that_keda_scales_say_so() {
    let says = |cluster: &Cluster| {
        cluster.said("web", "Ready").ends_with(
            "; a pause by KEDA cannot be seen: grant the controller get, list and watch of scaledobjects.keda.sh",
        )
    };
    let mut cluster = started("Delegated", &json!({}));
    cluster.trouble("GET", &["/scaledobjects"], Effect::Refused(403));
    cluster.start(HOST);
    cluster.until_ready(30, "web", "True/Decided");
    cluster.run_for(30);
    assert!(!says(&cluster), "KEDA has nothing to do with it");
    scale_by_keda(&cluster, "web", &[OTHER]);
    cluster.until(30, "with a conflict", says);
    trigger(&cluster, &[FLOOR]);
    cluster.until(30, "with a trigger", |it| {
        says(it) && it.said("web", "Ready").starts_with("True/ScaledByKEDA")
    });
    // Paused and deleted look the same. A restart does not forget that KEDA scaled the target.
    cluster.server.delete(SCALED_OBJECTS, SHOP, "web");
    for _restart in 0..2 {
        cluster.run_for(20);
        assert!(says(&cluster), "{}", cluster.said("web", "Ready"));
        cluster.crash(HOST, 2);
    }
    cluster.network().end_all();
    cluster.edit("web", &json!({"minReplicas": 2}));
    cluster.until(90, "a pause can be seen", |cluster| !says(cluster));
}
