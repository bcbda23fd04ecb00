//! Published claims about the HPA algorithm that are wrong, each with a check of what the algorithm does instead.
//!
//! The claims are from two documents: a vendor's page on a federated autoscaler, and an article on the controller's
//! internals. Where a document contradicts the other, itself or the controller, the controller counts.

use std::sync::Arc;

use foretide_domain::{
    Observation, ReplicaBounds, Replicas, Scale,
    hpa::{
        Behavior, Hpa, Log, MetricSpec, PolicyKind, Recommendation, Reconciliation, ScalingPolicy,
        ScalingRules, Settings, Step, Target, Tolerance, Verdict, WrittenTarget, ZeroRule,
        normalize, reconcile, utilization_ratio,
    },
    observation::{
        Cause, Container, ContainerUsage, Measured, Phase, Pod, PodUsage, Readiness, Requests,
        Status, Unavailable,
    },
};
use jiff::{SignedDuration, Timestamp};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

type Claim = (&'static str, fn() -> bool);

/// (what a document claims, whether the correct rule holds here instead).
const CLAIMS: &[Claim] = &[
    (
        "above 1.1 times the target scales in after 300 s",
        high_usage_scales_out_at_once,
    ),
    (
        "below 0.9 times the target scales out after 0 s",
        low_usage_waits_for_the_window,
    ),
    (
        "the tolerance of 0.1 cannot be changed",
        tolerance_is_set_per_direction,
    ),
    (
        "the tolerance is abs(ratio - 1)",
        tolerance_is_two_inclusive_bounds,
    ),
    (
        "current pods are all ready pods",
        the_base_depends_on_the_case,
    ),
    (
        "desired is current times usage over target",
        percents_are_cut_before_the_ratio,
    ),
    (
        "usage is the mean of used over requested",
        utilization_is_a_ratio_of_sums,
    ),
    (
        "the metric must stay low throughout the window",
        one_high_reading_holds_the_whole_window,
    ),
    (
        "the largest recommendation of 5 minutes is always taken",
        the_window_bounds_scale_in_only,
    ),
    ("scale-up waits 3 minutes", high_usage_scales_out_at_once),
    (
        "a mean over the last minute of 5 minutes is used",
        an_old_sample_counts_as_it_is,
    ),
    ("pending pods are ignored", a_pending_pod_damps_a_scale_up),
    (
        "missing pods are the failed ones",
        a_failed_pod_is_ignored_and_a_silent_one_is_missing,
    ),
    (
        "there are three types of metrics",
        there_are_five_types_of_metrics,
    ),
    (
        "metrics are read at any count",
        outside_the_bounds_no_metric_is_read,
    ),
    (
        "at zero replicas nothing ever happens",
        zero_is_left_by_an_autoscaler_that_caused_it,
    ),
    (
        "one window is chosen by the direction",
        both_windows_act_at_once,
    ),
    (
        "a failed metric is left out of the maximum",
        a_failed_metric_forbids_scale_in,
    ),
    (
        "the ratio multiplies the current count",
        unready_pods_do_not_multiply,
    ),
    ("there is no cap on a scale-up", a_scale_up_at_most_doubles),
    (
        "an absent behavior is the default behavior",
        absent_behavior_is_not_the_default_one,
    ),
    (
        "the window is a delay after a change",
        a_new_log_holds_scale_in_without_any_change,
    ),
];

#[test]
fn sources_contradict_hpa() {
    let wrong: Vec<_> = CLAIMS
        .iter()
        .filter(|(_, holds)| !holds())
        .map(|(claim, _)| claim)
        .collect();
    assert!(
        wrong.is_empty(),
        "behaves as the documents wrongly claim: {wrong:#?}"
    );
}

// ---------------------------------------------------------------- a small world

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

fn ago(seconds: i64) -> Timestamp {
    NOW - SignedDuration::from_secs(seconds)
}

fn cpu_metric(percent: i32) -> MetricSpec {
    MetricSpec::Resource {
        name: "cpu".into(),
        target: Target::Utilization(percent),
    }
}

fn milli_cpu(milli: i64) -> Requests {
    [("cpu", milli)].into_iter().collect()
}

/// A pod that requests one core, has been running for an hour and is ready.
fn ready_pod(name: &str) -> Pod {
    Pod {
        name: name.into(),
        phase: Phase::Running,
        deleting: false,
        created: None,
        ready: Some(Readiness {
            status: Status::True,
            since: ago(3500),
        }),
        started: Some(ago(3600)),
        containers: Arc::new([Container {
            name: "app".into(),
            requests: milli_cpu(1000),
        }]),
        pod_level_requests: None,
    }
}

fn usage(pod: &str, milli: i64, age_s: i64) -> Arc<PodUsage> {
    Arc::new(PodUsage {
        pod: pod.into(),
        at: ago(age_s),
        window: SignedDuration::from_secs(30),
        containers: vec![ContainerUsage {
            name: "app".into(),
            usage: milli_cpu(milli),
        }],
    })
}

/// As many ready pods as there are values, each using that much.
fn world(milli: &[i64]) -> Observation {
    let names: Vec<String> = (0..milli.len()).map(|i| format!("pod-{i}")).collect();
    let count = n(u32::try_from(milli.len()).unwrap_or_default());
    let samples = names
        .iter()
        .zip(milli)
        .map(|(name, milli)| usage(name, *milli, 10))
        .collect();
    Observation {
        scale: Scale {
            spec: count,
            status: count,
        },
        unseen: Replicas::ZERO,
        pods: names.iter().map(|name| Arc::new(ready_pod(name))).collect(),
        readings: vec![Ok(Measured::Usage(samples))],
    }
}

fn pass_with(
    seen: &Observation,
    metrics: &[MetricSpec],
    behavior: Option<&Behavior>,
) -> Reconciliation {
    let bounds = ReplicaBounds::new(n(1), n(100));
    let hpa = Hpa {
        bounds,
        metrics,
        behavior,
    };
    let empty = Log {
        recommendations: Some(Vec::new()),
        ..Log::default()
    };
    reconcile(&hpa, seen, &empty, &Settings::default(), NOW)
}

/// A pass over cpu against 50 %, with an empty log and no behavior.
fn pass(seen: &Observation) -> Reconciliation {
    pass_with(seen, &[cpu_metric(50)], None)
}

fn logged(readings: &[(i64, u32)]) -> Log {
    let entry = |(age_s, count): &(i64, u32)| Recommendation {
        at: ago(*age_s),
        replicas: n(*count),
        mirrored: false,
    };
    Log {
        recommendations: Some(readings.iter().map(entry).collect()),
        ..Log::default()
    }
}

/// What stabilization and limits leave of a recommendation.
fn normalized(current: u32, recommended: u32, log: Log, behavior: Option<&Behavior>) -> Replicas {
    let hpa = Hpa {
        bounds: ReplicaBounds::new(n(1), n(100)),
        metrics: &[],
        behavior,
    };
    let step = Step {
        current: n(current),
        recommended: n(recommended),
    };
    normalize(&hpa, step, log, &Settings::default(), NOW).desired
}

// ---------------------------------------------------------------- the claims

fn high_usage_scales_out_at_once() -> bool {
    let seen = world(&[600, 600, 600, 600]);
    let hpa = Hpa {
        bounds: ReplicaBounds::new(n(1), n(100)),
        metrics: &[cpu_metric(50)],
        behavior: None,
    };
    let low_before = logged(&[(170, 1), (60, 1)]);
    reconcile(&hpa, &seen, &low_before, &Settings::default(), NOW).desired == n(5)
}

fn low_usage_waits_for_the_window() -> bool {
    normalized(10, 4, logged(&[(299, 10)]), None) == n(10)
        && normalized(10, 4, logged(&[(301, 10)]), None) == n(4)
}

fn tolerance_is_set_per_direction() -> bool {
    let tolerant = |up| Behavior {
        scale_up: ScalingRules {
            tolerance: Some(up),
            ..ScalingRules::default()
        },
        ..Behavior::default()
    };
    let seen = world(&[530, 530, 530, 530]);
    let desired = |up| pass_with(&seen, &[cpu_metric(50)], Some(&tolerant(up))).desired;
    desired(0.1) == n(4) && desired(0.05) == n(5)
}

fn tolerance_is_two_inclusive_bounds() -> bool {
    // abs(1 - 1.1) is a little more than 0.1, so that form would scale here.
    let tenth = Tolerance { down: 0.1, up: 0.1 };
    (1.0_f64 - 1.1).abs() > 0.1 && tenth.covers(1.1) && pass(&world(&[550; 10])).desired == n(10)
}

fn the_base_depends_on_the_case() -> bool {
    // Within the tolerance it is spec.replicas, though only two of five are there.
    let mut seen = world(&[500, 500]);
    seen.scale.spec = n(5);
    let kept = pass(&seen).desired == n(5);
    // With a missing pod it is the size of the filled list.
    let mut seen = world(&[900, 900, 900]);
    seen.readings = vec![Ok(Measured::Usage(vec![
        usage("pod-0", 900, 10),
        usage("pod-1", 900, 10),
    ]))];
    let filled = pass(&seen).desired == n(4);
    // For a total per pod it is status.replicas.
    let metric = MetricSpec::External {
        metric: "queue".into(),
        selector: None,
        target: Target::AverageValue(1000),
    };
    let seen = Observation {
        scale: Scale {
            spec: n(4),
            status: n(6),
        },
        unseen: Replicas::ZERO,
        pods: Vec::new(),
        readings: vec![Ok(Measured::Total(vec![6000]))],
    };
    kept && filled && pass_with(&seen, &[metric], None).recommended == Some(n(6))
}

fn percents_are_cut_before_the_ratio() -> bool {
    // 3.9 % of the request against a target of 3 % would be 1.3 times the target.
    let seen = world(&[39; 10]);
    pass_with(&seen, &[cpu_metric(3)], None).desired == n(10)
}

fn utilization_is_a_ratio_of_sums() -> bool {
    // A mean of the two ratios would be 55 %.
    utilization_ratio([(100, 100), (100, 1000)], 50).is_some_and(|r| r.usage == 18)
}

fn one_high_reading_holds_the_whole_window() -> bool {
    let low_but_once = logged(&[(290, 4), (280, 10), (270, 4), (100, 4), (15, 4)]);
    normalized(10, 4, low_but_once, None) == n(10)
}

fn the_window_bounds_scale_in_only() -> bool {
    // A higher recommendation of the past does not raise the count beyond where it is.
    let rules = Behavior::default();
    normalized(10, 12, logged(&[(200, 20)]), Some(&rules)) == n(12)
}

fn an_old_sample_counts_as_it_is() -> bool {
    let mut seen = world(&[0, 0]);
    let old = vec![usage("pod-0", 1000, 3000), usage("pod-1", 1000, 3000)];
    seen.readings = vec![Ok(Measured::Usage(old))];
    pass(&seen).desired == n(4)
}

fn with_third_pod(change: impl Fn(&mut Pod)) -> Observation {
    let mut seen = world(&[1000, 1000]);
    let mut third = ready_pod("pod-2");
    change(&mut third);
    seen.pods.push(Arc::new(third));
    seen.scale = Scale {
        spec: n(3),
        status: n(3),
    };
    seen
}

fn a_pending_pod_damps_a_scale_up() -> bool {
    // Two pods at 100 % of 50 % would be 4; with the third taken as idle it is 66 % * 3.
    let seen = with_third_pod(|pod| pod.phase = Phase::Pending);
    let pass = pass(&seen);
    let basis = pass
        .proposals
        .first()
        .and_then(|p| p.as_ref().ok())
        .map(|p| p.basis);
    pass.desired == n(4) && basis.is_some_and(|b| (b.unready, b.ignored, b.base) == (1, 0, 3))
}

fn a_failed_pod_is_ignored_and_a_silent_one_is_missing() -> bool {
    let counts = |seen: &Observation| {
        let pass = pass(seen);
        let basis = pass
            .proposals
            .first()
            .and_then(|p| p.as_ref().ok())
            .map(|p| p.basis);
        basis.map(|b| (b.ready, b.missing, b.ignored))
    };
    // Listed by the metrics API, but with nothing measured.
    let mut listed_without_containers = with_third_pod(|_| ());
    let mut third = PodUsage::clone(&usage("pod-2", 1000, 10));
    third.containers.clear();
    if let Some(Ok(Measured::Usage(all))) = listed_without_containers.readings.first_mut() {
        all.push(Arc::new(third));
    }
    counts(&with_third_pod(|pod| pod.phase = Phase::Failed)) == Some((2, 0, 1))
        && counts(&with_third_pod(|_| ())) == Some((2, 1, 0))
        && counts(&listed_without_containers) == Some((2, 1, 0))
}

fn there_are_five_types_of_metrics() -> bool {
    use foretide_domain::hpa::MetricKind;
    let written = WrittenTarget {
        kind: "AverageValue",
        average_value: Some(1),
        ..WrittenTarget::default()
    };
    let usable = |kind: &MetricKind| Target::read(*kind, written) == Target::AverageValue(1);
    let kinds = [
        MetricKind::Resource,
        MetricKind::ContainerResource,
        MetricKind::Pods,
        MetricKind::Object,
        MetricKind::External,
    ];
    kinds.iter().all(usable) && !usable(&MetricKind::Unknown)
}

fn outside_the_bounds_no_metric_is_read() -> bool {
    let metrics = [cpu_metric(50)];
    let pass = |min, max| {
        let bounds = ReplicaBounds::new(n(min), n(max));
        let hpa = Hpa {
            bounds,
            metrics: &metrics,
            behavior: None,
        };
        let log = logged(&[]);
        reconcile(&hpa, &world(&[2000; 4]), &log, &Settings::default(), NOW)
    };
    let (above, below) = (pass(1, 3), pass(6, 9));
    (above.verdict, above.desired) == (Verdict::AboveMax, n(3))
        && (below.verdict, below.desired) == (Verdict::BelowMin, n(6))
        && above.proposals.is_empty()
        && below.log.recommendations().is_empty()
}

fn zero_is_left_by_an_autoscaler_that_caused_it() -> bool {
    let metrics = [MetricSpec::External {
        metric: "queue".into(),
        selector: None,
        target: Target::AverageValue(1000),
    }];
    let seen = Observation {
        scale: Scale::default(),
        unseen: Replicas::ZERO,
        pods: Vec::new(),
        readings: vec![Ok(Measured::Total(vec![2500]))],
    };
    let desired = |min, scaled_to_zero, zero| {
        let bounds = ReplicaBounds::new(n(min), n(9));
        let hpa = Hpa {
            bounds,
            metrics: &metrics,
            behavior: None,
        };
        let log = Log {
            scaled_to_zero,
            ..Log::default()
        };
        let settings = Settings {
            zero,
            ..Settings::default()
        };
        reconcile(&hpa, &seen, &log, &settings, NOW).desired
    };
    desired(1, false, ZeroRule::WhenScaledToZero) == n(0)
        && desired(0, false, ZeroRule::WhenScaledToZero) == n(0)
        && desired(0, true, ZeroRule::WhenScaledToZero) == n(3)
        && desired(0, false, ZeroRule::WhenMinIsZero) == n(3)
}

fn windows(up_s: i64, down_s: i64) -> Behavior {
    let rules = |s| ScalingRules {
        window: Some(SignedDuration::from_secs(s)),
        ..ScalingRules::default()
    };
    Behavior {
        scale_up: rules(up_s),
        scale_down: rules(down_s),
    }
}

fn both_windows_act_at_once() -> bool {
    // The recommendation goes up, yet the lowest one of the scale-up window is below: nothing moves.
    let log = logged(&[(30, 5), (20, 15)]);
    normalized(10, 12, log.clone(), Some(&windows(60, 60))) == n(10)
        && normalized(10, 8, log, Some(&windows(60, 60))) == n(10)
}

fn a_failed_metric_forbids_scale_in() -> bool {
    let mut seen = world(&[100, 100, 100, 100]);
    seen.readings
        .push(Err(Unavailable::new(Cause::NotRead, "503")));
    let queue = MetricSpec::External {
        metric: "queue".into(),
        selector: None,
        target: Target::Value(1000),
    };
    let metrics = [cpu_metric(50), queue];
    let low = pass_with(&seen, &metrics, None);
    let mut high = world(&[1000, 1000, 1000, 1000]);
    high.readings
        .push(Err(Unavailable::new(Cause::NotRead, "503")));
    low.desired == n(4)
        && low.recommended.is_none()
        && low.log.recommendations().is_empty()
        && pass_with(&high, &metrics, None).desired == n(8)
}

fn unready_pods_do_not_multiply() -> bool {
    // Ten wanted, four of them unready, the six others at half the target: 3, not 5.
    let mut seen = world(&[250; 6]);
    seen.pods.extend((6..10).map(|i| {
        Arc::new(Pod {
            phase: Phase::Pending,
            ..ready_pod(&format!("pod-{i}"))
        })
    }));
    seen.scale = Scale {
        spec: n(10),
        status: n(10),
    };
    pass(&seen).desired == n(3)
}

fn a_scale_up_at_most_doubles() -> bool {
    normalized(10, 90, logged(&[]), None) == n(20) && normalized(1, 90, logged(&[]), None) == n(4)
}

fn absent_behavior_is_not_the_default_one() -> bool {
    let default = Behavior::default();
    let reach = |current, behavior| normalized(current, 90, logged(&[]), behavior);
    let up = [1, 3, 10].map(|current| (reach(current, None), reach(current, Some(&default))));
    // An explicit policy of the user also takes the place of both defaults.
    let one = ScalingPolicy {
        kind: PolicyKind::Pods,
        value: 1,
        period: SignedDuration::from_secs(15),
    };
    let explicit = Behavior {
        scale_up: ScalingRules {
            policies: Some(vec![one]),
            ..ScalingRules::default()
        },
        ..Behavior::default()
    };
    up == [(n(4), n(5)), (n(6), n(7)), (n(20), n(20))] && reach(10, Some(&explicit)) == n(11)
}

fn a_new_log_holds_scale_in_without_any_change() -> bool {
    let hpa = Hpa {
        bounds: ReplicaBounds::new(n(1), n(100)),
        metrics: &[cpu_metric(50)],
        behavior: None,
    };
    let seen = world(&[100; 10]);
    let first = reconcile(&hpa, &seen, &Log::default(), &Settings::default(), NOW);
    let later = NOW + SignedDuration::from_secs(301);
    let second = reconcile(&hpa, &seen, &first.log, &Settings::default(), later);
    first.desired == n(10) && second.desired == n(2)
}
