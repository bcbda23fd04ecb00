//! Logs and metrics: the subscriber, the registry, and every name in one place.
//!
//! Labels come from closed sets, plus namespace and name of the object. A deleted object's series are removed. Callers
//! pass finished values.

mod budgets;
mod conditions;
mod fleets;
mod forecasts;
mod logging;
mod progress;
mod servers;
mod watches;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use foretide_domain::{proposal::Source, words};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};

pub use self::budgets::BudgetGauges;
pub use self::fleets::MemberGauges;
pub use self::forecasts::ForecastQuality;
pub use self::logging::{BadFilter, log_to, start_logging};
pub use self::watches::WatchHealth;
use self::{
    budgets::Budgets, conditions::Conditions, fleets::Fleets, forecasts::Forecasts,
    progress::Progress, servers::Servers,
};

/// Log fields and metric labels that say which object a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ObjectLabels {
    /// Lower-case kind of the autoscaler. One of a single cluster and one of a fleet may have the same name.
    pub kind: &'static str,
    /// Namespace of the autoscaler.
    pub namespace: String,
    /// Name of the autoscaler.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    cluster: String,
    namespace: String,
}

/// The replica counts that are published for every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replicas of the target.
    pub current: u32,
    /// Replicas that the target should have.
    pub desired: u32,
    /// The largest proposal of each source that has one.
    pub proposed: BTreeMap<Source, u32>,
    /// The lower bound, of an autoscaler that acts.
    pub min: Option<u32>,
    /// The upper bound, of an autoscaler that acts.
    pub max: Option<u32>,
}

words! {
    /// Target of a write to the API server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Write {
        /// The scale subresource of a target.
        Scale = "scale",
        /// A child `HorizontalPodAutoscaler`.
        Hpa = "hpa",
        /// A workload that a hub places.
        Workload = "workload",
        /// A `TimeSeriesPrediction`.
        Prediction = "prediction",
        /// The status of an autoscaler.
        Status = "status",
        /// An event.
        Event = "event",
    }
}

/// A registry that makes the metrics it has.
struct Metrics(Registry);

/// The metric registry of one controller.
#[derive(Debug)]
pub struct Telemetry {
    registry: Mutex<Registry>,
    ready: AtomicBool,
    leader: Gauge,
    hides_objects: AtomicBool,
    replicas: Family<StageLabels, Gauge>,
    writes: Family<WriteLabels, Counter>,
    sync_seconds: Histogram,
    objects: Family<KindLabels, Gauge>,
    watch_errors: Family<KindLabels, Counter>,
    watch_age_seconds: Family<KindLabels, Gauge<f64, AtomicU64>>,
    unreadable: Family<KindLabels, Gauge>,
    objects_left_out: Family<TenantLabels, Gauge>,
    budgets: Budgets,
    conditions: Conditions,
    fleets: Fleets,
    forecasts: Forecasts,
    progress: Progress,
    servers: Servers,
}

// === impl Telemetry ===

impl Default for Telemetry {
    fn default() -> Self {
        let mut metrics = Metrics(Registry::with_prefix("foretide"));
        let telemetry = Self {
            // The order of the metrics in the text.
            leader: metrics.add(
                "leader",
                "1 if this process decides and writes, 0 if it is a standby",
            ),
            replicas: metrics.add(
                "replicas",
                format!(
                    "Replicas of an autoscaler by stage: current, {}, desired, min, max",
                    Source::words().join(", ")
                ),
            ),
            writes: metrics.add("writes", "Writes to the API server by kind and result"),
            sync_seconds: metrics
                .add_durations("sync_duration", "Duration of the sync of one autoscaler"),
            objects: metrics.add("objects", "Autoscalers that the controller knows, by kind"),
            watch_errors: metrics.add("watch_errors", "Failures of the watch of a kind"),
            watch_age_seconds: metrics.add_seconds(
                "watch_staleness",
                "Time since the watch of a kind last received anything from the API server",
            ),
            unreadable: metrics.add(
                "objects_unreadable",
                "Objects of a kind that cannot be decoded or kept, and are not reconciled \
                 until they change",
            ),
            objects_left_out: metrics.add(
                "objects_left_out",
                "Objects of a namespace that the memory limit has no room for, by cluster; the \
                 hub has no name",
            ),
            forecasts: Forecasts::new(&mut metrics),
            budgets: Budgets::new(&mut metrics),
            conditions: Conditions::new(&mut metrics),
            fleets: Fleets::new(&mut metrics),
            progress: Progress::new(&mut metrics),
            servers: Servers::new(&mut metrics),
            registry: Mutex::new(metrics.0),
            ready: AtomicBool::new(false),
            hides_objects: AtomicBool::new(false),
        };
        telemetry.start_at_zero();
        telemetry
    }
}

impl Telemetry {
    fn start_at_zero(&self) {
        // Without leader election there is one process.
        self.leader.set(1);
        for write in Write::ALL {
            // A counter that first appears with its first error shows no increase.
            for result in ["ok", "error"] {
                let kind = write.as_str();
                drop(self.writes.get_or_create(&WriteLabels { kind, result }));
            }
        }
    }

    /// Sets whether the controller has received its first lists.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Returns whether the controller has received its first lists.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Sets whether this process decides and writes.
    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Publishes no series of single objects from now on: where there are thousands, each scrape would return tens of
    /// thousands of series.
    pub fn hide_objects(&self) {
        self.hides_objects.store(true, Ordering::Relaxed);
    }

    fn hides_objects(&self) -> bool {
        self.hides_objects.load(Ordering::Relaxed)
    }

    /// Publishes the counts of one decision.
    pub fn decided(&self, object: &ObjectLabels, counts: &Counts) {
        if self.hides_objects() {
            return;
        }
        for (stage, replicas) in counts.stages() {
            let labels = StageLabels::of(object, stage);
            match replicas {
                Some(replicas) => {
                    self.replicas.get_or_create(&labels).set(replicas.into());
                }
                None => {
                    self.replicas.remove(&labels);
                }
            }
        }
    }

    /// Removes the series of a deleted object, including those of the forecasts of `metrics`.
    pub fn forget<'a>(&self, object: &ObjectLabels, metrics: impl IntoIterator<Item = &'a String>) {
        for metric in metrics {
            self.set_forecast_quality(object, metric, &ForecastQuality::default());
        }
        self.undecided(object);
        self.set_unhealthy(object, []);
    }

    /// Removes the counts of an object for which nothing can be decided now.
    pub fn undecided(&self, object: &ObjectLabels) {
        for (stage, _) in Counts::default().stages() {
            self.replicas.remove(&StageLabels::of(object, stage));
        }
    }

    /// Counts one write.
    pub fn wrote(&self, write: Write, ok: bool) {
        let (kind, result) = (write.as_str(), if ok { "ok" } else { "error" });
        let labels = WriteLabels { kind, result };
        self.writes.get_or_create(&labels).inc();
    }

    /// Counts events that are not written, because there were too many of one object.
    pub fn dropped_events(&self, count: usize) {
        let (kind, result) = (Write::Event.as_str(), "dropped");
        let labels = WriteLabels { kind, result };
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.writes.get_or_create(&labels).inc_by(count);
    }

    /// Publishes the duration of one sync.
    pub fn synced(&self, seconds: f64) {
        self.sync_seconds.observe(seconds);
    }

    /// Publishes how many objects of a kind are known.
    pub fn set_objects(&self, kind: &'static str, objects: usize) {
        let count = i64::try_from(objects).unwrap_or(i64::MAX);
        self.objects.get_or_create(&KindLabels { kind }).set(count);
    }

    /// Everything in the `OpenMetrics` text format.
    pub fn encode(&self) -> String {
        let registry = self.registry.lock();
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            // Writing to a string does not fail; the fallback is an empty document of that format.
            Err(std::fmt::Error) => String::from("# EOF\n"),
        }
    }
}

impl Counts {
    fn stages(&self) -> impl Iterator<Item = (&'static str, Option<u32>)> {
        let proposed = Source::ALL
            .iter()
            .map(|source| (source.as_str(), self.proposed.get(source).copied()));
        [
            ("current", Some(self.current)),
            ("desired", Some(self.desired)),
            ("min", self.min),
            ("max", self.max),
        ]
        .into_iter()
        .chain(proposed)
    }
}

impl StageLabels {
    fn of(object: &ObjectLabels, stage: &'static str) -> Self {
        Self {
            kind: object.kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            stage,
        }
    }
}

// === impl Metrics ===

impl Metrics {
    fn add<M>(&mut self, name: &str, help: impl Into<String>) -> M
    where
        M: Metric + Clone + Default,
    {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    fn add_seconds<M>(&mut self, name: &str, help: &str) -> M
    where
        M: Metric + Clone + Default,
    {
        let metric = M::default();
        let unit = Unit::Seconds;
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }

    /// Registers a histogram of the duration of syncs, with buckets from 1 ms to 16 s.
    fn add_durations(&mut self, name: &str, help: &str) -> Histogram {
        let metric = Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let unit = Unit::Seconds;
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn object() -> ObjectLabels {
        ObjectLabels {
            kind: "federatedhpa",
            namespace: "shop".into(),
            name: "web".into(),
        }
    }

    #[test]
    fn a_deleted_object_leaves_no_series_behind() {
        let telemetry = Telemetry::default();
        let empty = telemetry.encode();
        let counts = Counts {
            current: 2,
            desired: 7,
            proposed: BTreeMap::from([(Source::Observed, 3), (Source::Forecast, 7)]),
            min: Some(1),
            max: Some(9),
        };
        let quality = ForecastQuality {
            skill: Some(0.35),
            coverage: Some(0.91),
            quantile: Some(0.95),
            minute_readings: Some(0.97),
            model_age_seconds: Some(60.0),
        };
        telemetry.decided(&object(), &counts);
        let text = telemetry.encode();
        for stage in [
            r#"stage="desired"} 7"#,
            r#"stage="min"} 1"#,
            r#"stage="max"} 9"#,
        ] {
            let line = format!(
                r#"foretide_replicas{{kind="federatedhpa",namespace="shop",name="web",{stage}"#
            );
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        // An object of another kind with the same name is another object.
        let same_name = ObjectLabels {
            kind: "effectivehorizontalpodautoscaler",
            ..object()
        };
        telemetry.forget(&same_name, []);
        assert_eq!(telemetry.encode(), text);
        telemetry.set_forecast_quality(&object(), "resource.cpu", &quality);
        let text = telemetry.encode();
        for line in [
            r#"foretide_forecast_skill{kind="federatedhpa",namespace="shop",name="web",metric="resource.cpu"} 0.35"#,
            r#"metric="resource.cpu"} 0.95"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        telemetry.forget(&object(), &["resource.cpu".to_owned()]);
        assert_eq!(telemetry.encode(), empty);
    }

    #[test]
    fn the_health_of_a_watch_counts_what_it_could_not_decode() {
        let telemetry = Telemetry::default();
        let health = WatchHealth {
            age_seconds: 1.5,
            errors: 4,
            unreadable: 3,
        };
        telemetry.watched("pods", health);
        let text = telemetry.encode();
        for line in [
            r#"foretide_objects_unreadable{kind="pods"} 3"#,
            r#"foretide_watch_errors_total{kind="pods"} 4"#,
            r#"foretide_watch_staleness_seconds{kind="pods"} 1.5"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn series_of_objects_can_be_switched_off() {
        let telemetry = Telemetry::default();
        telemetry.hide_objects();
        let empty = telemetry.encode();
        let counts = Counts {
            current: 2,
            desired: 7,
            ..Counts::default()
        };
        let quality = ForecastQuality {
            skill: Some(0.35),
            ..ForecastQuality::default()
        };
        telemetry.decided(&object(), &counts);
        telemetry.set_forecast_quality(&object(), "resource.cpu", &quality);
        let members = [("m1", [Some(1); 6])].into_iter();
        telemetry.set_shares(&object(), &mut std::collections::BTreeSet::new(), members);
        assert_eq!(telemetry.encode(), empty);
    }

    #[test]
    fn a_removed_member_leaves_no_series_behind() {
        let telemetry = Telemetry::default();
        let empty = telemetry.encode();
        let one = MemberGauges {
            name: "one",
            ready: true,
            silent: Some(1.5),
            usable: true,
            restarts: 3,
        };
        let two = MemberGauges {
            name: "two",
            ready: false,
            silent: None,
            usable: false,
            restarts: 0,
        };
        telemetry.members([one, two]);
        let text = telemetry.encode();
        for line in [
            r#"foretide_member_ready{member="one"} 1"#,
            r#"foretide_member_ready{member="two"} 0"#,
            r#"foretide_member_staleness_seconds{member="one"} 1.5"#,
            "foretide_members_unusable 1",
            r#"foretide_member_restarts_total{member="one"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        telemetry.members([]);
        assert_eq!(telemetry.encode(), empty);
    }

    #[test]
    fn counters_start_at_zero() {
        let text = Telemetry::default().encode();
        assert!(
            text.contains(r#"foretide_writes_total{kind="scale",result="ok"} 0"#),
            "{text}"
        );
    }

    #[test]
    fn an_absent_proposal_has_no_series() {
        let telemetry = Telemetry::default();
        let with = Counts {
            current: 2,
            desired: 7,
            proposed: BTreeMap::from([(Source::Forecast, 7)]),
            ..Counts::default()
        };
        telemetry.decided(&object(), &with);
        let without = Counts {
            proposed: BTreeMap::new(),
            ..with
        };
        telemetry.decided(&object(), &without);
        assert!(!telemetry.encode().contains("stage=\"forecast\""));
    }
}
