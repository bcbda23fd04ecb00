//! Progress of the controllers: lag, panics, and loops that stand still.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{KindLabels, Metrics, Telemetry};

/// Lag of an object from which the controller counts as not ready, in seconds.
const MAX_LAG_SECONDS: f64 = 60.0;
/// Age of the copies of a kind from which the controller counts as not ready, in seconds; it then writes nothing from
/// them. A watch that works delivers at least every 25 s.
const MAX_WATCH_AGE_SECONDS: f64 = 60.0;
/// A larger difference of the clocks is logged.
const MAX_SKEW_SECONDS: i64 = 30;
/// Number of checks in a row without a turn of a loop from which the controller counts as stuck: two minutes. It is a
/// count and not a time: after a pause of the process, in which nothing runs, no loop counts as stuck.
const MAX_IDLE_CHECKS: u32 = 24;

/// Metrics of the progress of controllers.
#[derive(Debug)]
pub(super) struct Progress {
    lag_seconds: Family<KindLabels, Gauge<f64, AtomicU64>>,
    panics: Family<KindLabels, Counter>,
    open_circuits: Family<DependencyLabels, Gauge>,
    clock_skew_seconds: Gauge,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DependencyLabels {
    api: &'static str,
    dependency: String,
}

#[derive(Debug, Default)]
struct Known {
    /// By kind of autoscaler.
    loops: BTreeMap<&'static str, LoopProgress>,
    /// Seconds since each watch delivered something, by kind.
    watches: BTreeMap<&'static str, f64>,
    /// The servers that hang, by API.
    circuits: BTreeMap<&'static str, Vec<String>>,
}

/// The progress of one controller's loop.
#[derive(Debug, Default)]
struct LoopProgress {
    lag_seconds: f64,
    /// The loop has turned since the last check.
    has_turned: bool,
    /// Checks in a row before which the loop had not turned.
    idle_checks: u32,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            lag_seconds: metrics.add_seconds(
                "sync_lag",
                "How long the autoscaler that has waited longest has been due without its sync \
                 being complete, by kind",
            ),
            panics: metrics.add(
                "sync_panics",
                "Syncs that panicked; their autoscalers wait before the next attempt",
            ),
            open_circuits: metrics.add(
                "circuit_open",
                "1 while a server has not responded to several requests in a row, so that \
                 requests to it fail at once",
            ),
            clock_skew_seconds: metrics.add_seconds(
                "clock_skew",
                "How far the clock of the API server is ahead of the controller's",
            ),
            known: Mutex::default(),
        }
    }

    pub(super) fn watched(&self, kind: &'static str, age_seconds: f64) {
        self.known.lock().watches.insert(kind, age_seconds);
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Publishes one turn of the loop over a kind of autoscaler, and by how much it is late.
    pub fn turned(&self, kind: &'static str, lag_seconds: f64) {
        self.progress
            .lag_seconds
            .get_or_create(&KindLabels { kind })
            .set(lag_seconds);
        // A counter that starts at zero: the first panic is an increase.
        drop(self.progress.panics.get_or_create(&KindLabels { kind }));
        let mut known = self.progress.known.lock();
        let progress = known.loops.entry(kind).or_default();
        progress.has_turned = true;
        progress.lag_seconds = lag_seconds;
    }

    /// Returns how long the most overdue autoscaler of any kind has been due, in seconds.
    pub fn lag_seconds(&self) -> f64 {
        let known = self.progress.known.lock();
        let lags = known.loops.values().map(|progress| progress.lag_seconds);
        lags.fold(0.0, f64::max)
    }

    /// Counts a sync that panicked.
    pub fn panicked(&self, kind: &'static str) {
        let labels = KindLabels { kind };
        self.progress.panics.get_or_create(&labels).inc();
    }

    /// Publishes the servers of an API that hang; servers that answer have no series.
    pub fn set_open_circuits(&self, api: &'static str, open: &[String]) {
        let labels = |dependency: &String| DependencyLabels {
            api,
            dependency: dependency.clone(),
        };
        let series = &self.progress.open_circuits;
        let mut known = self.progress.known.lock();
        let before = known.circuits.insert(api, open.to_vec());
        for closed in before.iter().flatten().filter(|one| !open.contains(one)) {
            series.remove(&labels(closed));
        }
        for one in open {
            series.get_or_create(&labels(one)).set(1);
        }
    }

    /// Publishes how far the clock of the API server is ahead of ours; a large difference is logged when it appears.
    pub fn set_clock_skew(&self, seconds: i64) {
        let before = self.progress.clock_skew_seconds.set(seconds);
        if seconds.abs() > MAX_SKEW_SECONDS && before.abs() <= MAX_SKEW_SECONDS {
            tracing::warn!(
                seconds,
                "the clock of the API server differs from ours; cron windows follow ours: check NTP on both machines"
            );
        }
    }

    /// Checks whether every loop has turned since the last check; called every few seconds.
    pub fn check_progress(&self) {
        for progress in self.progress.known.lock().loops.values_mut() {
            progress.idle_checks = if progress.has_turned {
                0
            } else {
                progress.idle_checks.saturating_add(1)
            };
            progress.has_turned = false;
        }
    }

    /// Returns the reason for which the process must be restarted, if there is one: a loop that stands still.
    pub fn stuck(&self) -> Option<String> {
        let known = self.progress.known.lock();
        let mut loops = known.loops.iter();
        let (kind, _) = loops.find(|(_, progress)| progress.idle_checks >= MAX_IDLE_CHECKS)?;
        Some(format!("the loop over {kind} stands still"))
    }

    /// Returns the reason for which the controller is not ready, if there is one: it waits for its first lists, or does
    /// not keep up.
    pub fn unready(&self) -> Option<String> {
        if !self.is_ready() {
            return Some("waiting for the first lists of the Kubernetes API".to_owned());
        }
        let known = self.progress.known.lock();
        for (kind, progress) in &known.loops {
            let lag = progress.lag_seconds;
            if lag > MAX_LAG_SECONDS {
                return Some(format!("{kind} have been due for {lag:.0} s"));
            }
        }
        let mut watches = known.watches.iter();
        let (kind, age) = watches.find(|(_, age)| **age > MAX_WATCH_AGE_SECONDS)?;
        Some(format!(
            "the watch of {kind} has received nothing for {age:.0} s"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::WatchHealth;

    fn silent_for(age_seconds: f64) -> WatchHealth {
        WatchHealth {
            age_seconds,
            errors: 0,
            unreadable: 0,
        }
    }

    #[test]
    fn readiness_falls_while_objects_or_watches_are_late() {
        let telemetry = Telemetry::default();
        assert!(telemetry.unready().unwrap().contains("first lists"));
        telemetry.set_ready(true);
        assert_eq!(telemetry.unready(), None);
        telemetry.turned("federatedhpa", 61.0);
        assert_eq!(
            telemetry.unready().unwrap(),
            "federatedhpa have been due for 61 s"
        );
        telemetry.turned("federatedhpa", 1.0);
        telemetry.watched("pods", silent_for(121.0));
        assert_eq!(
            telemetry.unready().unwrap(),
            "the watch of pods has received nothing for 121 s"
        );
        telemetry.watched("pods", silent_for(1.0));
        assert_eq!(telemetry.unready(), None);
    }

    #[test]
    fn a_server_has_a_series_while_it_hangs() {
        let telemetry = Telemetry::default();
        telemetry.set_open_circuits("kubernetes", &["apps".to_owned()]);
        telemetry.set_open_circuits("prometheus", &["east".to_owned()]);
        let east = r#"foretide_circuit_open{api="prometheus",dependency="east"} 1"#;
        assert!(telemetry.encode().contains(east));
        telemetry.set_open_circuits("prometheus", &[]);
        let text = telemetry.encode();
        assert!(!text.contains("east"), "{text}");
        assert!(text.contains(r#"dependency="apps"} 1"#), "{text}");
    }

    #[test]
    fn the_first_panic_is_an_increase() {
        let telemetry = Telemetry::default();
        let series = r#"foretide_sync_panics_total{kind="federatedhpa"} "#;
        telemetry.turned("federatedhpa", 0.0);
        assert!(telemetry.encode().contains(&format!("{series}0")));
        telemetry.panicked("federatedhpa");
        assert!(telemetry.encode().contains(&format!("{series}1")));
    }

    #[test]
    fn a_loop_that_stands_still_is_stuck_until_it_turns() {
        let telemetry = Telemetry::default();
        telemetry.turned("federatedhpa", 0.0);
        for _check in 0..MAX_IDLE_CHECKS {
            assert_eq!(telemetry.stuck(), None);
            telemetry.turned("effectivehorizontalpodautoscaler", 0.0);
            telemetry.check_progress();
        }
        telemetry.check_progress();
        let stuck = telemetry.stuck().unwrap();
        assert_eq!(stuck, "the loop over federatedhpa stands still");
        telemetry.turned("federatedhpa", 0.0);
        telemetry.check_progress();
        assert_eq!(telemetry.stuck(), None);
    }
}
