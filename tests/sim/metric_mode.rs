//! Mode Metric: the metrics of the child follow what is published, and a switch of the mode changes the child in place.

use foretide_api::published::Published;
use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::world::prometheus::Defects;

use crate::{
    cluster::{Cluster, PER_POD, SHOP, START, STATUSES, always},
    predictions::silent,
};

const HOST: &str = "pod-0";
const CHILD: &str = "ehpa-web";
/// Days of history, on each of which the load but this one rises to that of nine pods twenty minutes after midnight.
const DAYS: i64 = 4;
const RISE: SignedDuration = SignedDuration::from_mins(20);

/// An autoscaler `web` of three pods, whose forecast is of nine or more.
struct World {
    cluster: Cluster,
    prometheus: simkube::world::prometheus::Prometheus,
}

impl World {
    fn started(mode: &str, rest: &Value) -> Self {
        let mut cluster = Cluster::without_election();
        let midnight = |day: i64| START + SignedDuration::from_hours(24 * day);
        let prometheus = cluster.add_prometheus(midnight(-DAYS));
        for day in -DAYS..=0 {
            cluster.load.set("web", midnight(day), 3 * PER_POD);
            cluster.load.set("web", midnight(day) + RISE, 9 * PER_POD);
        }
        cluster.autoscaler("web", 3, mode, rest);
        let prediction = json!({"leadTimeSeconds": RISE.as_secs()});
        cluster.edit("web", &json!({"prediction": prediction}));
        cluster.start(HOST);
        let mut world = Self {
            cluster,
            prometheus,
        };
        world.until("a forecast", Self::is_published);
        world
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _second in 0..300 {
            if holds(self) {
                return;
            }
            self.cluster.run_for(1);
        }
        panic!("{what}: {}, {:?}", self.cluster.status("web"), self.child());
    }

    /// The minimum of the child, and the names and targets of its external metrics.
    fn child(&self) -> Option<(Value, Vec<(Value, Value)>)> {
        let spec = self.cluster.hpa(CHILD)?["spec"].take();
        let metrics = spec["metrics"].as_array().unwrap().iter();
        let external = metrics.filter(|metric| metric["type"] == "External");
        let read = external.map(|metric| {
            let (metric, target) = (&metric["external"]["metric"], &metric["external"]["target"]);
            let labels = &metric["selector"]["matchLabels"];
            assert_eq!(labels["targetName"], "web", "{metric}");
            (
                labels["resourceIdentifier"].clone(),
                target["averageValue"].clone(),
            )
        });
        Some((spec["minReplicas"].clone(), read.collect()))
    }

    /// Returns whether other processes read the forecast.
    fn is_published(&self) -> bool {
        let ehpa = serde_json::from_value((*self.cluster.ehpa("web")).clone()).unwrap();
        let published = Published::of(&ehpa, self.cluster.now());
        published.forecast("resource.cpu").is_ok()
    }
}

fn forecast() -> (Value, Value) {
    (json!("resource.cpu"), json!("100m"))
}

fn cron() -> (Value, Value) {
    (json!("cron"), json!("1"))
}

#[test]
fn the_child_reads_forecasts_while_they_last_and_crons_and_a_switch_of_the_mode_changes_it_in_place()
 {
    let mut world = World::started("Metric", &always(5));
    world.until("both", |it| {
        it.child() == Some((json!(1), vec![forecast(), cron()]))
    });
    let decision = world.cluster.ehpa("web")["status"]["decision"].clone();
    // The HPA doubles the count at most in one pass; a floor would not wait.
    assert_eq!(
        (&decision["desired"], &decision["limit"]),
        (&json!(6), &json!("ScaleUpLimit"))
    );
    assert_eq!(decision["floor"], Value::Null);
    assert!(world.is_published());
    let uid = world.cluster.hpa(CHILD).unwrap()["metadata"]["uid"].clone();

    world.prometheus.set(silent(""));
    world.until("its end", |it| it.child() == Some((json!(1), vec![cron()])));
    assert!(!world.is_published());
    world.prometheus.set(Defects::default());
    world.until("its return", |it| {
        it.child() == Some((json!(1), vec![forecast(), cron()]))
    });

    world.cluster.edit("web", &json!({"mode": null}));
    world.until("a floor", |it| {
        it.child()
            .is_some_and(|(min, read)| min.as_u64() > Some(8) && read.is_empty())
    });
    world.until("it is followed", |it| it.cluster.replicas("web") > 8);
    world.cluster.edit("web", &json!({"mode": "Metric"}));
    world.until("metrics again", |it| {
        it.child().is_some_and(|(_, read)| read.len() == 2)
    });
    assert_eq!(world.cluster.hpa(CHILD).unwrap()["metadata"]["uid"], uid);
    // Direct stays in force, because an HPA cannot have a minimum of 0.
    world.cluster.edit("web", &json!({"minReplicas": 0}));
    world.until("no child", |it| it.child().is_none());
    world.until("the forecast", |it| it.cluster.replicas("web") > 8);
}

#[test]
fn what_is_published_is_never_old_and_ends_with_the_controller() {
    let mut world = World::started("Metric", &json!({}));
    let before = world.cluster.writes(HOST, STATUSES);
    for _second in 0..600 {
        world.cluster.run_for(1);
        assert!(world.is_published(), "{}", world.cluster.now());
    }
    assert!(world.cluster.writes(HOST, STATUSES) >= before + 2);
    world.cluster.kill(HOST);
    world.cluster.run_for(600);
    assert!(world.is_published());
    world.cluster.run_for(600);
    assert!(!world.is_published());
}

#[test]
fn an_hpa_of_a_user_that_reads_the_metrics_of_a_preview_is_no_conflict() {
    let mut world = World::started("Metric", &json!({}));
    world.until("the metric", |it| {
        it.child().is_some_and(|(_, read)| read.len() == 1)
    });
    let mut own = world.cluster.hpa(CHILD).unwrap();
    own["metadata"] = json!({"name": "mine", "namespace": SHOP});
    world.cluster.server.create(&own);
    world
        .cluster
        .until_ready(300, "web", "False/TargetConflict");
    world
        .cluster
        .edit("web", &json!({"scaleStrategy": "Preview"}));
    world.cluster.until_ready(300, "web", "True/ReadByHPA");
    // A count that Preview would write is in conflict with the HPA.
    world.cluster.edit("web", &json!({"specificReplicas": 4}));
    world
        .cluster
        .until_ready(300, "web", "False/TargetConflict");
}
