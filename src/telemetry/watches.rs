//! Metrics of watches, in the same registry.

use super::{Telemetry, WatchLabels};

/// The health of the watches of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WatchHealth {
    /// For how long the one that has been silent longest has delivered nothing.
    pub age_seconds: f64,
    /// Failures so far.
    pub errors: u64,
    /// Objects that cannot be decoded.
    pub unreadable: usize,
}

impl Telemetry {
    /// Publishes the health of one watch.
    pub fn watched(&self, kind: &'static str, health: WatchHealth) {
        self.progress.watched(kind, health.age_seconds);
        let labels = WatchLabels { kind };
        self.watch_age_seconds
            .get_or_create(&labels)
            .set(health.age_seconds);
        // A counter cannot be set, only increased.
        let counter = self.watch_errors.get_or_create(&labels);
        counter.inc_by(health.errors.saturating_sub(counter.get()));
        let unreadable = i64::try_from(health.unreadable).unwrap_or(i64::MAX);
        self.unreadable.get_or_create(&labels).set(unreadable);
    }
}
