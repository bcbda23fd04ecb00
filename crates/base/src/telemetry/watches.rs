//! Metrics of watches, in the same registry.

use std::{collections::BTreeMap, sync::Arc};

use super::{KindLabels, Telemetry, TenantLabels};

/// The health of the watches of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WatchHealth {
    /// Seconds since the longest silent watch of the kind delivered something.
    pub age_seconds: f64,
    /// Failures so far.
    pub errors: u64,
    /// Objects that cannot be decoded or kept.
    pub unreadable: usize,
}

impl Telemetry {
    /// Publishes the health of one watch.
    pub fn watched(&self, kind: &'static str, health: WatchHealth) {
        self.progress.watched(kind, health.age_seconds);
        let labels = KindLabels { kind };
        self.watch_age_seconds
            .get_or_create(&labels)
            .set(health.age_seconds);
        // A counter cannot be set, only increased.
        let counter = self.watch_errors.get_or_create(&labels);
        counter.inc_by(health.errors.saturating_sub(counter.get()));
        let unreadable = i64::try_from(health.unreadable).unwrap_or(i64::MAX);
        self.unreadable.get_or_create(&labels).set(unreadable);
    }

    /// Publishes how many objects of each cluster and namespace the memory limit has no room for.
    pub fn set_left_out(&self, objects: BTreeMap<(Arc<str>, Arc<str>), usize>) {
        self.objects_left_out.clear();
        for ((cluster, namespace), objects) in objects {
            let labels = TenantLabels {
                cluster: cluster.to_string(),
                namespace: namespace.to_string(),
            };
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            self.objects_left_out.get_or_create(&labels).set(objects);
        }
    }
}
