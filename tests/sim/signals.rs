//! The metrics of a controller show each trouble that an alert of `deploy/monitoring` is about, while it lasts. The rules
//! over these series are tested by promtool (`tests/cluster/monitoring`), their labels in `tests/it/monitoring.rs`.

use serde_json::json;
use simkube::{faults::Plan, network::Effect};

use crate::{
    cluster::{Cluster, MAX, TENANT},
    fleet::world::{plain, token},
};

const HOST: &str = "pod-0";

/// The highest value of the series of a metric that have these labels.
fn value(cluster: &Cluster, host: &str, metric: &str, labels: &str) -> Option<f64> {
    let text = cluster.metrics(host);
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.split_once("} ").or_else(|| line.split_once(' '))?;
        let rest = series.strip_prefix("foretide_")?.strip_prefix(metric)?;
        let is_meant = rest.is_empty() || rest.starts_with('{');
        let has_labels = labels.split(' ').all(|label| rest.contains(label));
        (is_meant && has_labels).then(|| value.parse().unwrap())
    });
    values.reduce(f64::max)
}

/// Waits until the highest of these series is above a bound, and until it is not any more after the end of the cause.
fn rises_and_falls(
    cluster: &mut Cluster,
    (metric, labels, bound): (&str, &str, f64),
    begin: impl FnOnce(&mut Cluster),
    end: impl FnOnce(&mut Cluster),
) {
    let is_above = |cluster: &Cluster| {
        value(cluster, HOST, metric, labels).is_some_and(|found| found.abs() > bound)
    };
    assert!(!is_above(cluster), "{metric} before");
    begin(cluster);
    cluster.until(240, &format!("{metric} with {labels}"), is_above);
    end(cluster);
    cluster.until(240, &format!("{metric} as before"), |it| !is_above(it));
}

#[test]
fn what_happens_to_a_controller_and_its_autoscalers_is_in_its_metrics() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.autoscaler("web", 2, "Direct", &json!({}));
    cluster.autoscaler_in(TENANT, "own", (1, "Direct"), &json!({}));
    cluster.needs("web", 2);
    cluster.start(HOST);
    cluster.until(60, "it leads", |cluster| cluster.leader() == HOST);
    cluster.start("pod-1");
    cluster.run_for(60);
    let leaders = [HOST, "pod-1"].map(|host| value(&cluster, host, "leader", ""));
    assert_eq!(leaders, [Some(1.0), Some(0.0)]);

    let pods = ("watch_staleness_seconds", r#"kind="Pod""#, 60.0);
    let (hold, release) = (
        |it: &mut Cluster| it.hold(HOST),
        |it: &mut Cluster| {
            it.release(HOST);
        },
    );
    rises_and_falls(&mut cluster, pods, hold, release);
    let garbled = |least: &str| {
        let spec = json!({"minReplicas": least.parse::<u64>().map_or(json!(least), |n| json!(n))});
        move |it: &mut Cluster| it.edit_in(TENANT, "own", &spec)
    };
    let unreadable = (
        "objects_unreadable",
        r#"kind="EffectiveHorizontalPodAutoscaler""#,
        0.0,
    );
    rises_and_falls(&mut cluster, unreadable, garbled("one"), garbled("1"));
    let (ahead, back) = (
        |it: &mut Cluster| it.step_clock(HOST, 90),
        |it: &mut Cluster| {
            it.step_clock(HOST, -90);
        },
    );
    rises_and_falls(&mut cluster, ("clock_skew_seconds", "", 30.0), ahead, back);
    let hang = |it: &mut Cluster| it.trouble("GET", &["metrics.k8s.io"], Effect::Hang);
    let open = ("circuit_open", r#"api="kubernetes""#, 0.0);
    rises_and_falls(&mut cluster, open, hang, Cluster::heal);

    let refused = r#"kind="scale",result="#;
    let before = value(&cluster, HOST, "writes_total", refused);
    let failing = (
        "condition",
        r#"name="web" type="Ready" reason="FailedUpdateScale""#,
        0.0,
    );
    let refuse = |it: &mut Cluster| {
        it.trouble("PATCH", &["/scale"], Effect::Refused(403));
        it.needs("web", 5);
    };
    rises_and_falls(&mut cluster, failing, refuse, Cluster::heal);
    assert!(value(&cluster, HOST, "writes_total", refused) > before);
    cluster.needs("web", 2 * MAX);
    #[expect(clippy::cast_precision_loss, reason = "a few replicas")]
    let most = Some(MAX as f64);
    for stage in ["current", "desired", "observed", "max"] {
        let stage = format!(r#"name="web" stage="{stage}""#);
        cluster.until(60, &stage, |it| value(it, HOST, "replicas", &stage) >= most);
    }
}

#[test]
fn what_happens_to_members_and_fleets_is_in_the_metrics() {
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    cluster.deploy_everywhere(2);
    cluster.evenly(4_000);
    let spec = json!({"federatedHPAAssignment": plain("StaticWeighted")});
    cluster.ask_for("StaticWeighted", (2, 20), &spec);
    cluster.start(HOST);
    cluster.capped(60, "halves", &[("one", 10), ("two", 10)]);
    cluster.until(60, "a member is ready", |it| {
        value(it, HOST, "member_ready", r#"member="one""#) == Some(1.0)
    });
    let max = value(
        &cluster,
        HOST,
        "member_replicas",
        r#"member="one" count="max""#,
    );
    assert_eq!(max, Some(10.0));
    let silent = ("member_staleness_seconds", r#"member="one""#, 60.0);
    rises_and_falls(
        &mut cluster,
        silent,
        |it| it.block("one"),
        |it| {
            assert_eq!(
                value(it, HOST, "member_ready", r#"member="one""#),
                Some(0.0)
            );
            it.edit_fleet(&json!({"maxReplicas": 9}));
            let unbalanced = r#"kind="federatedhpa" type="Balanced""#;
            it.until(60, "the fleet is not balanced", |it| {
                value(it, HOST, "condition", unbalanced).is_some()
            });
            it.unblock("one");
        },
    );
    let unusable = ("members_unusable", "", 0.0);
    rises_and_falls(
        &mut cluster,
        unusable,
        |it| it.spoil("two"),
        |it| it.rotate("two", &token("two")),
    );
}
