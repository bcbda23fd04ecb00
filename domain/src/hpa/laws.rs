//! Laws that hold for any input, as property tests: tolerance, total arithmetic, order, log.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{
    Behavior, Hpa, Log, MetricSpec, ObjectRef, PolicyKind, PolicySelect, Recommendation,
    Reconciliation, ScaleEvent, ScalingPolicy, ScalingRules, Settings, Step, Target, Verdict,
    normalize, reconcile, record_scale,
};
use crate::{
    Observation, Reading, ReplicaBounds, Replicas, Scale,
    observation::{
        Cause, Container, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness,
        Requests, Status, Unavailable, examples,
    },
};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

/// Instants from long before to a little after now.
fn instant() -> impl Strategy<Value = Timestamp> {
    let ago = |s: i64| NOW - SignedDuration::from_secs(s);
    prop_oneof![
        (-60_i64..1200).prop_map(ago),
        Just(Timestamp::MIN),
        Just(Timestamp::MAX)
    ]
}

/// Mostly small values, so that interesting cases are frequent.
fn milli() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0_i64..3000, 1 => any::<i64>(), 1 => Just(i64::MAX)]
}

fn requests() -> impl Strategy<Value = Requests> {
    let cpu = prop_oneof![9 => milli().prop_map(Some), 1 => Just(None)];
    cpu.prop_map(|milli| milli.into_iter().map(|milli| ("cpu", milli)).collect())
}

fn pod() -> impl Strategy<Value = Pod> {
    let phase = select(vec![
        Phase::Running,
        Phase::Running,
        Phase::Running,
        Phase::Pending,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Unknown,
    ]);
    let status = select(vec![
        Status::True,
        Status::True,
        Status::False,
        Status::Unknown,
    ]);
    let ready = option::of((status, instant()));
    let containers = vec(requests(), 1..3);
    (
        phase,
        prop::bool::weighted(0.1),
        ready,
        option::of(instant()),
        containers,
    )
        .prop_map(|(phase, deleting, ready, started, containers)| Pod {
            name: "".into(),
            phase,
            deleting,
            created: None,
            ready: ready.map(|(status, since)| Readiness { status, since }),
            started,
            containers: containers
                .into_iter()
                .map(|requests| Container {
                    name: "app".into(),
                    requests,
                })
                .collect(),
            pod_level_requests: None,
        })
}

fn pods() -> impl Strategy<Value = Vec<Arc<Pod>>> {
    vec(pod(), 0..8).prop_map(|pods| {
        let named = |(i, pod)| {
            Arc::new(Pod {
                name: format!("pod-{i}").into(),
                ..pod
            })
        };
        pods.into_iter().enumerate().map(named).collect()
    })
}

fn usage() -> impl Strategy<Value = Vec<Arc<PodUsage>>> {
    let one = (0_usize..9, instant(), vec(requests(), 0..3));
    vec(one, 0..9).prop_map(|all| {
        let mut all: Vec<_> = all
            .into_iter()
            .map(|(pod, at, containers)| PodUsage {
                pod: format!("pod-{pod}").into(),
                at,
                window: SignedDuration::from_secs(30),
                containers: containers
                    .into_iter()
                    .map(|usage| ContainerUsage {
                        name: "app".into(),
                        usage,
                    })
                    .collect(),
            })
            .collect();
        all.sort_by(|a, b| a.pod.cmp(&b.pod));
        all.dedup_by(|a, b| a.pod == b.pod);
        all.into_iter().map(Arc::new).collect()
    })
}

fn samples() -> impl Strategy<Value = Vec<PodSample>> {
    usage().prop_map(|usage| {
        let value = |u: &PodUsage| u.containers.first().and_then(|c| c.usage.get("cpu"));
        let sample = |u: &Arc<PodUsage>| PodSample {
            pod: u.pod.clone(),
            value: value(u).unwrap_or_default(),
            at: u.at,
            window: u.window,
        };
        usage.iter().map(sample).collect()
    })
}

/// A metric of the pods and a reading that fits it.
fn pod_metric() -> impl Strategy<Value = (MetricSpec, Measured)> {
    let percent = (1_i32..300).prop_map(Target::Utilization);
    let average = || (1_i64..5000).prop_map(Target::AverageValue);
    let usage = || usage().prop_map(Measured::Usage);
    let name = || String::from("cpu");
    prop_oneof![
        (percent, usage()).prop_map(move |(target, measured)| {
            (
                MetricSpec::Resource {
                    name: name(),
                    target,
                },
                measured,
            )
        }),
        (average(), usage()).prop_map(move |(target, measured)| {
            let container = "app".into();
            (
                MetricSpec::ContainerResource {
                    name: name(),
                    container,
                    target,
                },
                measured,
            )
        }),
        (average(), samples().prop_map(Measured::Samples)).prop_map(|(target, measured)| {
            (
                MetricSpec::Pods {
                    metric: "qps".into(),
                    selector: None,
                    target,
                },
                measured,
            )
        }),
    ]
}

/// A metric of type Object or External and a reading that fits it.
fn total_metric() -> impl Strategy<Value = (MetricSpec, Measured)> {
    let average = (1_i64..5000).prop_map(Target::AverageValue);
    let target = prop_oneof![average, (1_i64..5000).prop_map(Target::Value)];
    let totals = vec(milli(), 0..4).prop_map(Measured::Total);
    (target, totals, any::<bool>()).prop_map(|(target, measured, is_object)| {
        let (metric, selector) = ("qps".into(), None);
        let (api_version, kind, name) = ("v1".into(), "Service".into(), "web".into());
        let described = ObjectRef {
            api_version,
            kind,
            name,
        };
        let spec = if is_object {
            MetricSpec::Object {
                described,
                metric,
                selector,
                target,
            }
        } else {
            MetricSpec::External {
                metric,
                selector,
                target,
            }
        };
        (spec, measured)
    })
}

/// A metric and a reading that fits it, or that failed.
fn metric() -> impl Strategy<Value = (MetricSpec, Reading)> {
    let fitting = prop_oneof![3 => pod_metric(), 2 => total_metric()];
    (fitting, prop::bool::weighted(0.1)).prop_map(|((spec, measured), fails)| {
        let failed = Err(Unavailable::new(Cause::NotRead, "503"));
        (spec, if fails { failed } else { Ok(measured) })
    })
}

fn rules() -> impl Strategy<Value = ScalingRules> {
    let policy = (
        any::<bool>(),
        prop_oneof![1_i32..200, Just(i32::MAX)],
        1_i64..1800,
    )
        .prop_map(|(pods, value, period)| ScalingPolicy {
            kind: if pods {
                PolicyKind::Pods
            } else {
                PolicyKind::Percent
            },
            value,
            period: SignedDuration::from_secs(period),
        });
    let select = select(vec![
        PolicySelect::Max,
        PolicySelect::Min,
        PolicySelect::Disabled,
    ]);
    let window = (0_i64..3600).prop_map(SignedDuration::from_secs);
    (
        option::of(window),
        option::of(select),
        option::of(vec(policy, 1..4)),
        option::of(0.0..2.0),
    )
        .prop_map(|(window, select, policies, tolerance)| ScalingRules {
            window,
            select,
            policies,
            tolerance,
        })
}

fn behavior() -> impl Strategy<Value = Option<Behavior>> {
    let both = (rules(), rules());
    option::of(both.prop_map(|(scale_up, scale_down)| Behavior {
        scale_up,
        scale_down,
    }))
}

fn any_count() -> impl Strategy<Value = Replicas> {
    prop_oneof![8 => (0_u32..50).prop_map(n), 1 => any::<u32>().prop_map(n), 1 => Just(n(1_000_000))]
}

fn log() -> impl Strategy<Value = Log> {
    let reading = (instant(), any_count(), any::<bool>()).prop_map(|(at, replicas, mirrored)| {
        Recommendation {
            at,
            replicas,
            mirrored,
        }
    });
    let event = || {
        (instant(), any_count(), any::<bool>()).prop_map(|(at, change, outdated)| ScaleEvent {
            at,
            change,
            outdated,
        })
    };
    (
        option::of(vec(reading, 0..6)),
        vec(event(), 0..5),
        vec(event(), 0..5),
        any::<bool>(),
    )
        .prop_map(
            |(recommendations, scale_up, scale_down, scaled_to_zero)| Log {
                recommendations,
                scale_up,
                scale_down,
                scaled_to_zero,
            },
        )
}

/// Everything a reconciliation reads.
#[derive(Clone, Debug)]
struct World {
    bounds: ReplicaBounds,
    metrics: Vec<MetricSpec>,
    behavior: Option<Behavior>,
    observation: Observation,
    log: Log,
}

fn world() -> impl Strategy<Value = World> {
    let counts = (any_count(), any_count(), any_count(), any_count());
    (counts, vec(metric(), 0..4), behavior(), pods(), log()).prop_map(
        |((min, max, spec, status), metrics, behavior, pods, log)| {
            let (metrics, readings) = metrics.into_iter().unzip();
            let bounds = ReplicaBounds::new(min.min(max), max.max(min));
            let observation = Observation {
                scale: Scale { spec, status },
                pods,
                readings,
                ..Observation::default()
            };
            World {
                bounds,
                metrics,
                behavior,
                observation,
                log,
            }
        },
    )
}

impl World {
    fn hpa(&self) -> Hpa<'_> {
        Hpa {
            bounds: self.bounds,
            metrics: &self.metrics,
            behavior: self.behavior.as_ref(),
        }
    }

    fn reconcile(&self) -> Reconciliation {
        reconcile(
            &self.hpa(),
            &self.observation,
            &self.log,
            &Settings::default(),
            NOW,
        )
    }

    /// The same world with every list in another order.
    fn shuffled(&self, turn: usize) -> Self {
        let mut other = self.clone();
        let turned = turn.min(other.metrics.len());
        other.metrics.rotate_left(turned);
        other.observation.readings.rotate_left(turned);
        other.observation.pods.reverse();
        for measured in other.observation.readings.iter_mut().flatten() {
            match measured {
                Measured::Usage(all) => all.reverse(),
                Measured::Samples(all) => all.reverse(),
                Measured::Total(all) => all.reverse(),
            }
        }
        other
    }
}

/// Ready pods that request one core each and use `milli`.
fn ready_world(milli: i64, pods: usize, current: Replicas) -> Observation {
    let pod = |i: usize| {
        let app = Container {
            name: "app".into(),
            requests: [("cpu", 1000)].into_iter().collect(),
        };
        Arc::new(Pod {
            containers: [app].into(),
            ..examples::pod(&format!("pod-{i}"), Timestamp::MIN, Status::True)
        })
    };
    let usage = |i: usize| {
        Arc::new(PodUsage {
            pod: format!("pod-{i}").into(),
            at: NOW,
            window: SignedDuration::from_secs(30),
            containers: vec![ContainerUsage {
                name: "app".into(),
                usage: [("cpu", milli)].into_iter().collect(),
            }],
        })
    };
    let usage = Measured::Usage((0..pods).map(usage).collect());
    examples::observation(current.get(), (0..pods).map(pod).collect(), usage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn within_the_tolerance_the_count_stays(
        target in 1_i32..200,
        off in -10_i32..=10,
        pods in 1_usize..20,
        current in 1_u32..100,
    ) {
        let percent = target + target * off / 100;
        let ratio = f64::from(percent) / f64::from(target);
        prop_assume!(super::Tolerance { down: 0.1, up: 0.1 }.covers(ratio));
        let metrics = [MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::Utilization(target),
        }];
        let hpa = Hpa { bounds: ReplicaBounds::new(n(1), n(100)), metrics: &metrics, behavior: None };
        let seen = ready_world(i64::from(percent) * 10, pods, n(current));
        let empty = Log { recommendations: Some(Vec::new()), ..Log::default() };
        let result = reconcile(&hpa, &seen, &empty, &Settings::default(), NOW);
        prop_assert_eq!(result.desired, n(current));
    }

    #[test]
    fn replicas_that_cannot_be_observed_are_added_to_what_pods_ask_for(
        milli in 0_i64..3000,
        pods in 1_usize..20,
        current in 1_u32..30,
        unseen in 0_u32..30,
    ) {
        let metrics = [MetricSpec::Resource { name: "cpu".into(), target: Target::Utilization(50) }];
        let hpa = Hpa { bounds: ReplicaBounds::new(n(1), n(1000)), metrics: &metrics, behavior: None };
        let reading = |seen: &Observation| {
            reconcile(&hpa, seen, &Log::default(), &Settings::default(), NOW).recommended
        };
        let alone = ready_world(milli, pods, n(current));
        let whole = Observation { unseen: n(unseen), ..ready_world(milli, pods, n(current + unseen)) };
        let beside = reading(&alone).map(|asked| asked.saturating_add(n(unseen)));
        prop_assert_eq!(reading(&whole), beside);
    }

    #[test]
    fn arithmetic_never_overflows(world in world()) {
        let result = world.reconcile();
        prop_assert!(result.desired <= Replicas::MAX);
        for proposal in result.proposals.iter().flatten() {
            prop_assert!(proposal.replicas <= Replicas::MAX);
        }
        let (behavior, log) = (world.behavior.as_ref(), result.log.clone());
        let after = record_scale(log, behavior, result.current, result.desired, NOW);
        prop_assert_eq!(after.recommendations, result.log.recommendations);
    }

    #[test]
    fn the_order_of_metrics_pods_and_samples_does_not_matter(world in world(), turn in 0_usize..4) {
        let (here, there) = (world.reconcile(), world.shuffled(turn).reconcile());
        prop_assert_eq!(here.desired, there.desired);
        prop_assert_eq!(here.recommended, there.recommended);
    }

    #[test]
    fn a_missing_metric_never_lowers_the_count(world in world()) {
        let result = world.reconcile();
        let fails = result.proposals.iter().any(Result::is_err);
        if fails && result.verdict != Verdict::AboveMax {
            prop_assert!(result.recommended.is_none_or(|r| r >= result.current), "{:?}", result);
            if matches!(result.verdict, Verdict::Unavailable { .. }) {
                prop_assert_eq!(result.desired, result.current);
            }
        }
    }

    #[test]
    fn a_reconciliation_logs_exactly_its_recommendation(world in world()) {
        let result = world.reconcile();
        let started = world.log.clone().started(result.current, NOW);
        let (before, after) = (started.recommendations(), result.log.recommendations());
        let grown = after.len() - before.len();
        match result.recommended {
            None => prop_assert_eq!(before, after),
            Some(reading) => {
                prop_assert!(grown <= 1);
                let written = Recommendation { at: NOW, replicas: reading, mirrored: false };
                prop_assert!(after.contains(&written));
            }
        }
    }

    #[test]
    fn a_count_within_the_bounds_stays_within_them(world in world(), recommended in any_count()) {
        let hpa = world.hpa();
        let step = Step { current: hpa.bounds.clamp(world.observation.scale.spec), recommended };
        let got = normalize(&hpa, step, world.log.clone(), &Settings::default(), NOW);
        prop_assert!(hpa.bounds.contains(got.desired), "{:?}", got);
    }

    #[test]
    fn an_applied_change_is_stored_in_its_direction_only(
        log in log(),
        behavior in behavior(),
        from in any_count(),
        to in any_count(),
    ) {
        let after = record_scale(log.clone(), behavior.as_ref(), from, to, NOW);
        prop_assert_eq!(&after.recommendations, &log.recommendations);
        let event = ScaleEvent { at: NOW, change: from.distance(to), outdated: false };
        let stores = behavior.is_some();
        if stores && to > from {
            prop_assert!(after.scale_up.contains(&event));
        } else {
            prop_assert_eq!(&after.scale_up, &log.scale_up);
        }
        if stores && to < from {
            prop_assert!(after.scale_down.contains(&event));
        } else {
            prop_assert_eq!(&after.scale_down, &log.scale_down);
        }
    }
}

#[test]
fn a_million_pods_and_the_largest_usage_fit() {
    let metrics = [MetricSpec::Resource {
        name: "cpu".into(),
        target: Target::AverageValue(1),
    }];
    let hpa = Hpa {
        bounds: ReplicaBounds::new(n(1), Replicas::MAX),
        metrics: &metrics,
        behavior: Some(&Behavior::default()),
    };
    let seen = ready_world(i64::MAX, 1000, n(1_000_000));
    let result = reconcile(&hpa, &seen, &Log::default(), &Settings::default(), NOW);
    assert_eq!(result.recommended, Some(Replicas::MAX));
    assert_eq!(result.desired, n(2_000_000));
}
