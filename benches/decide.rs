//! The cost of a decision: one thousand workloads with pods, a metric, a forecast and cron windows, each decided once.
//! The throughput is in decisions; the limit is 20 us for one on average. Then windows of which each end touches a start.

#![expect(
    clippy::expect_used,
    reason = "a bench may stop on input of its own that is wrong"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foretide_domain::autoscale::history::History;
use foretide_domain::autoscale::{Child, Inputs, decide};
use foretide_domain::cron::{Window, WindowText, Zone};
use foretide_domain::forecast::{ForecastReading, Predicted};
use foretide_domain::hpa::{MetricSpec, Settings, Target};
use foretide_domain::observation::{
    Container, ContainerUsage, Measured, Phase, Pod, PodUsage, Readiness, Requests, Status,
};
use foretide_domain::workload::{FloorSources, Mode, Prediction, Workload};
use foretide_domain::{Observation, ReplicaBounds, Replicas, Scale, ScaleTarget};
use jiff::{SignedDuration, Timestamp};

const WORKLOADS: u32 = 1_000;
const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);
/// As many syncs as the stabilization window of 300 s holds.
const SYNCS_BEFORE: i32 = 20;

/// Everything one decision is made from.
struct Case {
    workload: Workload,
    inputs: Inputs,
    history: History,
}

fn window(name: &str, start: &str, end: &str, target_replicas: u32) -> Window {
    let text = WindowText {
        name,
        start,
        end,
        timezone: "",
        target_replicas,
    };
    Window::parse(&text, &Zone::utc()).expect("a window")
}

fn workload(i: u32) -> Workload {
    Workload {
        target: ScaleTarget {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: format!("web-{i}"),
        },
        bounds: ReplicaBounds::new(Replicas::new(2), Replicas::new(100)),
        mode: if i.is_multiple_of(4) {
            Mode::Direct
        } else {
            Mode::Delegated
        },
        metrics: vec![MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::Utilization(50),
        }],
        floor: FloorSources {
            prediction: Some(Prediction {
                window: SignedDuration::from_hours(1),
                algorithm: "dsp".into(),
            }),
            ..windows()
        },
        ..Workload::default()
    }
}

fn windows() -> FloorSources {
    FloorSources {
        windows: vec![
            window("office", "0 8 ? * 1-5", "0 18 ? * *", 10),
            window("batch", "30 1 * * *", "0 4 * * *", 30),
        ],
        ..FloorSources::default()
    }
}

fn pod(i: u32, now: Timestamp) -> Pod {
    let started = now - SignedDuration::from_hours(2);
    Pod {
        name: format!("web-{i}").into(),
        phase: Phase::Running,
        deleting: false,
        created: None,
        ready: Some(Readiness {
            status: Status::True,
            since: started,
        }),
        started: Some(started),
        containers: Arc::new([Container {
            name: "web".into(),
            requests: cpu(200),
        }]),
        pod_level_requests: None,
    }
}

fn cpu(milli: i64) -> Requests {
    [("cpu", milli)].into_iter().collect()
}

/// From 1 to 50 pods; usage and forecast differ from one workload to the next.
fn inputs(i: u32, now: Timestamp) -> Inputs {
    let count = 1 + i % 50;
    let usage = |pod: u32| {
        let milli = 60 + i64::from((i * 7 + pod * 13) % 90);
        Arc::new(PodUsage {
            pod: format!("web-{pod}").into(),
            at: now,
            window: SignedDuration::from_secs(15),
            containers: vec![ContainerUsage {
                name: "web".into(),
                usage: cpu(milli),
            }],
        })
    };
    let replicas = Replicas::new(count);
    let value = f64::from(count) * (0.08 + f64::from(i % 10) / 100.0);
    Inputs {
        observation: Observation {
            scale: Scale {
                spec: replicas,
                status: replicas,
            },
            pods: (0..count)
                .map(|pod_number| Arc::new(pod(pod_number, now)))
                .collect(),
            readings: vec![Ok(Measured::Usage((0..count).map(usage).collect()))],
            ..Observation::default()
        },
        forecasts: vec![ForecastReading::new(
            "resource.cpu".into(),
            Ok(Predicted::of(value, 0.1)),
        )],
        child: Some(Child {
            min: Replicas::new(2),
            max: Replicas::new(100),
            desired: None,
            last_scale: None,
        }),
        share: None,
    }
}

/// A workload in the middle of its life: its history holds a whole stabilization window.
fn case(i: u32, settings: &Settings, now: Timestamp) -> Case {
    let (workload, inputs) = (workload(i), inputs(i, now));
    let history = (1..=SYNCS_BEFORE)
        .rev()
        .fold(History::default(), |history, ago| {
            decide(
                &workload,
                &inputs,
                &history,
                settings,
                now - SYNC_PERIOD * ago,
            )
            .1
        });
    Case {
        workload,
        inputs,
        history,
    }
}

fn decisions(c: &mut Criterion) {
    let settings = Settings::default();
    // A Thursday at noon: one window is open.
    let now = Timestamp::from_second(1_772_712_000).expect("a time");
    let cases: Vec<Case> = (0..WORKLOADS).map(|i| case(i, &settings, now)).collect();
    let mut group = c.benchmark_group("decide");
    group.throughput(Throughput::Elements(u64::from(WORKLOADS)));
    group.bench_function("1,000 workloads", |b| {
        b.iter(|| {
            for Case {
                workload,
                inputs,
                history,
            } in &cases
            {
                black_box(decide(workload, black_box(inputs), history, &settings, now));
            }
        });
    });
    group.finish();
}

fn touching_windows(c: &mut Criterion) {
    let now = Timestamp::from_second(1_772_712_000).expect("a time");
    let windows: Vec<Window> = (1..=32)
        .map(|minute| {
            let start = format!("{minute} * * * *");
            let end = format!("TZ=Asia/Tokyo {start}");
            window("touching", &start, &end, 10)
        })
        .collect();
    c.bench_function("32 touching windows", |b| {
        b.iter(|| {
            for window in &windows {
                black_box(window.state(black_box(now)));
            }
        });
    });
}

criterion_group!(benches, decisions, touching_windows);
criterion_main!(benches);
