//! Metrics of fleets and of their member clusters, in the same registry. A fleet also has the metrics of every
//! autoscaler.

use std::{collections::BTreeSet, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use super::{Metrics, ObjectLabels, Telemetry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabels {
    namespace: String,
    name: String,
    member: String,
    count: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabels {
    member: String,
}

/// The state of one member cluster.
#[derive(Debug, Clone, Copy)]
pub struct MemberGauges<'a> {
    /// Name of the member.
    pub name: &'a str,
    /// Ready as a member cluster.
    pub ready: bool,
    /// Seconds since the member was last heard, if there is a connection.
    pub silent: Option<f64>,
    /// The Secret of the member can be used.
    pub usable: bool,
    /// Number of times that a part of the connection was started again.
    pub restarts: u64,
}

/// The counts that are published for every member of a fleet.
const COUNTS_OF_A_MEMBER: [&str; 6] = ["min", "max", "floor", "current", "ready", "pending"];

/// Metrics of fleets and of member clusters.
#[derive(Debug)]
pub(super) struct Fleets {
    shares: Family<ShareLabels, Gauge>,
    sync_seconds: Histogram,
    ready: Family<MemberLabels, Gauge>,
    age_seconds: Family<MemberLabels, Gauge<f64, AtomicU64>>,
    unusable: Gauge,
    restarts: Family<MemberLabels, Counter>,
    /// The members that the last sync over one of their fleets did not find ready.
    down: Mutex<BTreeSet<String>>,
}

// === impl Fleets ===

impl Fleets {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            shares: metrics.add(
                "member_replicas",
                "Counts of a fleet's member: min, max, floor, current, ready, pending",
            ),
            sync_seconds: metrics
                .add_durations("fleet_sync_duration", "Duration of the sync of one fleet"),
            ready: metrics.add(
                "member_ready",
                "1 while a member cluster answers, accepts the credentials and is ready, else 0",
            ),
            age_seconds: metrics.add_seconds(
                "member_staleness",
                "Time since a member cluster last answered, or since its least active watch \
                 last received anything, whichever is longer",
            ),
            unusable: metrics.add(
                "members_unusable",
                "Member clusters whose Secret cannot be used or is missing; see foretide \
                 members list",
            ),
            restarts: metrics.add(
                "member_restarts",
                "Times that the watches or the health probe of a member cluster exited \
                 unexpectedly and were started again",
            ),
            down: Mutex::default(),
        }
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Publishes the counts of each member of a fleet; `shown` are the members that have series, and those that are not
    /// among `members` any more lose them.
    pub fn set_shares<'a>(
        &self,
        object: &ObjectLabels,
        shown: &mut BTreeSet<String>,
        members: impl Iterator<Item = (&'a str, [Option<i64>; 6])>,
    ) {
        let labels = |member: &str, count| ShareLabels {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            member: member.to_owned(),
            count,
        };
        if self.hides_objects() {
            return;
        }
        let mut gone = std::mem::take(shown);
        for (member, counts) in members {
            for (count, replicas) in COUNTS_OF_A_MEMBER.into_iter().zip(counts) {
                let series = labels(member, count);
                match replicas {
                    Some(replicas) => {
                        self.fleets.shares.get_or_create(&series).set(replicas);
                    }
                    None => {
                        self.fleets.shares.remove(&series);
                    }
                }
            }
            gone.remove(member);
            shown.insert(member.to_owned());
        }
        for member in &gone {
            for count in COUNTS_OF_A_MEMBER {
                self.fleets.shares.remove(&labels(member, count));
            }
        }
    }

    /// Publishes the duration of one sync over fleets.
    pub fn fleets_synced(&self, seconds: f64) {
        self.fleets.sync_seconds.observe(seconds);
    }

    /// Publishes at once which members are not ready; they count as not ready until a sync finds them ready.
    pub fn members_down(&self, down: BTreeSet<String>) {
        let mut known = self.fleets.down.lock();
        for member in &down {
            let labels = MemberLabels {
                member: member.clone(),
            };
            if let Some(ready) = self.fleets.ready.get(&labels) {
                ready.set(0);
            }
        }
        *known = down;
    }

    /// Publishes the state of the members. Members that are gone lose their series.
    pub fn members<'a>(&self, members: impl IntoIterator<Item = MemberGauges<'a>>) {
        // A scrape locks the registry, so it sees all members or none.
        let _reader = self.registry.lock();
        self.fleets.ready.clear();
        self.fleets.age_seconds.clear();
        self.fleets.restarts.clear();
        let down = self.fleets.down.lock();
        let mut unusable = 0;
        for member in members {
            let labels = MemberLabels {
                member: member.name.to_owned(),
            };
            let ready = member.ready && !down.contains(member.name);
            let fleets = &self.fleets;
            fleets.ready.get_or_create(&labels).set(i64::from(ready));
            if let Some(seconds) = member.silent {
                fleets.age_seconds.get_or_create(&labels).set(seconds);
            }
            // The counter was cleared above, so this sets it to the total.
            let restarts = fleets.restarts.get_or_create(&labels);
            restarts.inc_by(member.restarts);
            unusable += i64::from(!member.usable);
        }
        self.fleets.unusable.set(unusable);
    }
}
