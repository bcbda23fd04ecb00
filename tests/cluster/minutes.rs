//! A series whose minutes vary much more than its means over three minutes, as Prometheus has them of a counter: the
//! forecasts of a day cover nine tenths of the minutes, also across a restart.
//!
//! Nightly: a day of forecasts takes a minute or two, and only the real `rate` of Prometheus shows something new.

#![expect(
    clippy::cast_precision_loss,
    reason = "seconds of a few weeks, and a random number"
)]

use std::{sync::Arc, time::Duration};

use foretide_api::ports::HistoryServer;
use foretide_api::validation::{CostLimits, TargetRules};
use foretide_base::{clock::Clock, leadership::Leadership, machine::Machine};
use foretide_controller::forecaster::{
    Forecaster, ForecasterSetup, HistorySource, SeriesKey, demand_history::DemandSample,
    forecasts::Forecasts,
};
use foretide_domain::cron::Zone;
use foretide_kube::cluster::{Connection, KubeCluster, WriteGate};
use foretide_prometheus::{Endpoints, QueryRules};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use rig::{ClusterOptions, History, Prometheus, Span, eventually};

use crate::world::{TIMEOUT, World};

/// Midnight at the end of 14 days of history.
const MIDNIGHT: i64 = 1_767_225_600;
const DAY: i64 = 86_400;
/// Interval of the scrapes of Prometheus.
const SCRAPE: i64 = 15;

/// The demand of the minute that ends at `end`, in cores: a daily wave, of which single minutes have between half and one
/// and a half.
fn demand(end: i64) -> f64 {
    let minute = end.div_euclid(60);
    // SplitMix64: every minute varies by itself.
    let mut mixed = minute.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let fraction = (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64;
    let time_of_day = (end - MIDNIGHT).rem_euclid(DAY) as f64 / DAY as f64;
    let wave = 5.0 - 3.0 * (time_of_day * std::f64::consts::TAU).cos();
    wave * (0.5 + fraction)
}

/// The counter of a pod of `checkout` that had this demand, from 15 days before midnight to two days after it.
fn minutes() -> History {
    let span = Span {
        start: (MIDNIGHT - 15 * DAY) as f64,
        end: (MIDNIGHT + 2 * DAY) as f64,
        step: SCRAPE as f64,
    };
    let pod = ["default", "checkout-6d5f8c9b7d-x2v9k", "app"];
    History::new().cpu_usage(pod, span, |at| demand((at as i64).div_euclid(60) * 60 + 60))
}

/// A forecaster that has just started, and its table.
struct Started {
    forecaster: Forecaster<KubeCluster, Endpoints, QueryRules>,
    forecasts: Arc<Forecasts>,
    clock: Clock,
}

impl Started {
    fn at(cluster: &Arc<KubeCluster>, prometheus: &Prometheus, now: Timestamp) -> Self {
        let clock = Clock::standing_at(now);
        let forecasts = Arc::<Forecasts>::default();
        let server = HistoryServer::at(&prometheus.url()).unwrap();
        let source = HistorySource {
            reader: Endpoints {
                hub: Some(foretide_prometheus::Prometheus::new(
                    &server,
                    &Machine::system(),
                )),
                ..Endpoints::default()
            },
            queries: QueryRules::default(),
        };
        let setup = ForecasterSetup {
            machine: Machine::system().with_clock(clock.clone()),
            local_zone: Zone::utc(),
            targets: Arc::new(TargetRules::default()),
            cost_limits: CostLimits::default(),
            telemetry: Arc::default(),
            leadership: Leadership::default(),
        };
        let forecaster = Forecaster::new(
            Arc::clone(cluster),
            Some(source),
            Arc::clone(&forecasts),
            setup,
        );
        Self {
            forecaster,
            forecasts,
            clock,
        }
    }

    /// The share of this many forecasts that are not exceeded, minus that of their quantiles. A sync reads every minute
    /// when it has ended.
    async fn off(&mut self, key: &SeriesKey, minutes: u32) -> f64 {
        let mut more = 0.0;
        for _ in 0..minutes {
            self.clock.advance(Duration::from_mins(1));
            let now = self.clock.now();
            let sample = DemandSample {
                demand: Some(demand(now.as_second())),
                of_a_minute: true,
                ..DemandSample::default()
            };
            let lead_time = Some(SignedDuration::from_mins(2));
            let samples = [(key.metric.clone(), sample)];
            let history = self.forecasts.demand_history();
            history.report(&key.uid, lead_time, samples, now);
            self.forecaster.pass().await;
            let forecast = self.forecasts.in_force(key, now).unwrap();
            let peak = forecast.direct().unwrap();
            assert!((peak.quantile - 0.9).abs() < 0.05, "{peak:?}");
            let first = now.as_second() + 60;
            let ends = (first..=first + peak.window.as_secs()).step_by(60);
            let highest = ends.map(demand).fold(0.0, f64::max);
            more += f64::from(u8::from(highest <= peak.value)) - peak.quantile;
            assert!(forecast.quality().unwrap().raw > 0.9);
        }
        more / f64::from(minutes)
    }
}

/// Replays a day minute by minute, with a restart at noon.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "forecasts every minute of a day: `just nightly`"]
async fn the_forecasts_of_a_day_cover_nine_tenths_of_uneven_minutes() {
    let world = World::start(ClusterOptions::named("minutes")).await;
    let prometheus = Prometheus::start(&minutes()).await.unwrap();
    world
        .apply(
            "{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, \
              metadata: {name: checkout, namespace: default}, spec: {scaleStrategy: Preview, maxReplicas: 50, \
              scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}, prediction: {}, \
              metrics: [{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 200m}}}]}}",
        )
        .await;
    let machine = Machine::system();
    let connection = Connection::from_kubeconfig(Some(world.kubeconfig()), None, &machine);
    let connection = connection.await.unwrap();
    let cluster = KubeCluster::new(connection, &[], WriteGate::default());
    let cluster = Arc::new(cluster);
    let watched = Arc::clone(&cluster);
    let task = tokio::spawn(async move { watched.run().await });
    eventually(TIMEOUT, "the cluster is watched", || async {
        cluster.is_current().then_some(()).ok_or("not yet")
    })
    .await;
    let ehpa = world.ehpas().get("checkout").await.unwrap();
    let key = SeriesKey {
        uid: ehpa.uid().unwrap(),
        metric: "resource.cpu".to_owned(),
    };
    let mut off = 0.0;
    for start in [MIDNIGHT, MIDNIGHT + DAY / 2] {
        let start = Timestamp::from_second(start).unwrap();
        let mut started = Started::at(&cluster, &prometheus, start);
        // A forecaster that learned from the means is .27 off at first.
        let first = started.off(&key, 120).await;
        assert!(first.abs() <= 0.06, "in two hours from {start}: {first:.3}");
        off += (first * 2.0 + started.off(&key, 600).await * 10.0) / 24.0;
    }
    assert!(off.abs() <= 0.02, "in a day: {off:.3}");
    task.abort();
}
