//! The state of fleets and their members between two syncs that other autoscalers do not have.
//!
//! All of it may be lost: the ledger and the last counts come back from status, and what is missing holds scale-down
//! for a while.

use std::collections::{BTreeMap, BTreeSet};

use foretide_crds::{ClusterStatus, FederatedHPA};
use foretide_domain::{
    Replicas, autoscale::history::History, lead_time::LeadTimes, remembered::Remembered,
};
use foretide_federate::{Health, Ledger, Member, Pods, Profile};
use jiff::{SignedDuration, Timestamp};

use super::last_move::{LastMove, bounds_of};
use crate::{
    foreign_writes::RecentWrites,
    state::KindState,
    target::{StoredHistory, TargetState},
};
use foretide_api::status::stored_ledger;

/// The state of one fleet.
#[derive(Debug, Default)]
pub struct FleetState {
    /// Stabilization and rate limits of what the fleet's own metrics ask for.
    pub fleet_metrics: History,
    /// The count that the fleet's own metrics asked for last.
    pub fleet_metrics_desired: Option<Replicas>,
    /// The fleet's count as it was decided last.
    pub desired: Option<Replicas>,
    /// The members that the fleet's readings were about.
    pub counted: Option<BTreeSet<String>>,
    /// True if these members are not those of the sync before.
    pub is_recounted: bool,
    /// The count that these members ran together, with what was written to them since.
    pub current: Option<Replicas>,
    /// The memory of the rules.
    pub ledger: Ledger,
    /// The members that were not ready in the last sync, for any fleet alike.
    pub down: BTreeSet<String>,
    /// The members that have metric series.
    pub published: BTreeSet<String>,
    /// The records of the members, by name.
    pub members: BTreeMap<String, MemberRecord>,
}

/// The state of one member.
#[derive(Debug, Default)]
pub struct MemberRecord {
    /// State of the member's workload.
    pub target: TargetState,
    /// The member as it was seen last.
    pub last: Option<Member>,
    /// True if all that is known of the member comes from status.
    pub restored: bool,
    /// True if the member was observed since the controller started; until then its status may be old.
    pub seen: bool,
    /// Times that its pods took to start.
    pub lead_times: LeadTimes,
    /// The `minReplicas` that was written to its child last, and the one that was decided then: in between, the child
    /// is led to the decided count by its minimum.
    pub shaped: Option<ShapedMin>,
    /// True if the member was lost at the last report.
    pub lost: bool,
    /// The field managers of others that changed the replicas.
    pub foreign_writes: RecentWrites<String>,
    /// The version of the workload that was applied last.
    pub placed: Option<u64>,
    /// The count that a workload that was just created starts with.
    pub start: Option<Replicas>,
    /// The last move of its share.
    pub last_move: LastMove,
}

/// A child's `minReplicas` as it was written, and as it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapedMin {
    /// The minimum as it was written.
    pub written: Replicas,
    /// The minimum as it was decided.
    pub decided: Replicas,
}

// === impl FleetState ===

impl FleetState {
    /// The state of a fleet that is new to us: what its status kept, and the ledger that was stored last, which the
    /// watch may not show yet.
    pub fn restored(fdhpa: &FederatedHPA, ledger: Option<&str>) -> Self {
        let mut fleet = Self {
            ledger: ledger.and_then(stored_ledger).unwrap_or_default(),
            ..Self::default()
        };
        let status = fdhpa.status.iter();
        for cluster in status.flat_map(|it| it.clusters.iter().flatten()) {
            let entry = fleet.ledger.members.get(&cluster.name);
            let record = MemberRecord {
                last: Some(as_stored(cluster)),
                restored: true,
                last_move: LastMove::restored(cluster),
                target: TargetState {
                    // The status of a fleet has no histories of its members, but who is asleep.
                    stored: StoredHistory::Lost {
                        scaled_to_zero: entry.is_some_and(|entry| entry.slept.is_some()),
                    },
                    ..TargetState::default()
                },
                ..MemberRecord::default()
            };
            fleet.members.insert(cluster.name.clone(), record);
        }
        fleet
    }

    /// The members that have a share, or had one, with the replicas that are expected in each.
    pub fn known(&self) -> BTreeMap<String, Option<Replicas>> {
        let mut known = BTreeMap::new();
        known.extend(self.ledger.members.keys().map(|name| (name.clone(), None)));
        for (name, record) in &self.members {
            let pods = record.last.as_ref().and_then(|last| last.pods);
            known.insert(name.clone(), pods.map(|pods| pods.replicas));
        }
        known
    }

    /// UIDs of the members' children as they were left, as far as that is known.
    pub fn children(&self) -> BTreeMap<String, String> {
        let mut children = BTreeMap::new();
        for (name, record) in &self.members {
            if let Some(child) = &record.target.child {
                children.insert(name.clone(), child.uid.clone());
            }
        }
        children
    }
}

impl KindState for FleetState {
    fn shift(&mut self, step: SignedDuration) {
        self.fleet_metrics = std::mem::take(&mut self.fleet_metrics).shifted(step);
        self.ledger = std::mem::take(&mut self.ledger).shifted(step);
        for record in self.members.values_mut() {
            record.target.shift(step);
            record.for_each_contact(|time| time.shift(step));
            record.foreign_writes.shift(step);
        }
    }

    fn resume(&mut self, pause: SignedDuration) {
        self.ledger = std::mem::take(&mut self.ledger).resumed(pause);
        for record in self.members.values_mut() {
            // A member that was not asked is not silent.
            record.for_each_contact(|time| time.shift(pause));
        }
    }

    fn put_back(&mut self, now: Timestamp) {
        self.ledger = std::mem::take(&mut self.ledger).put_back(now);
    }
}

// === impl MemberRecord ===

impl MemberRecord {
    /// Changes the times at which the member was heard, and since which it is not well.
    fn for_each_contact(&mut self, change: impl Fn(Remembered<'_>)) {
        let Some(last) = &mut self.last else {
            return;
        };
        if let Some(at) = &mut last.observed {
            change(Remembered::Since(at));
        }
        if let Health::NotReady { since } | Health::Unknown { since } = &mut last.health {
            change(Remembered::Since(since));
        }
    }

    /// True if the member is to be reported as lost. A member that was never seen and is not in status is still
    /// joining.
    pub fn is_lost(&self, health: Health, now: Timestamp) -> bool {
        let Health::Unknown { since } = health else {
            return false;
        };
        (self.seen || self.restored) && since <= now
    }
}

/// A member as status describes it, until it is seen.
fn as_stored(cluster: &ClusterStatus) -> Member {
    let [ready, unschedulable] =
        [cluster.ready, cluster.pending].map(|count| Replicas::from_i32(count.unwrap_or_default()));
    Member {
        profile: Profile {
            name: cluster.name.clone(),
            ..Profile::default()
        },
        pods: cluster.current.map(|replicas| Pods {
            replicas: Replicas::from_i32(replicas),
            ready,
            unschedulable,
            unschedulable_since: None,
        }),
        hpa: bounds_of(cluster),
        observed: cluster.observed.as_ref().map(|at| at.0),
        ..Member::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_was_put_to_sleep_is_asleep_after_a_restart_and_others_are_not() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
                "federatedHPAAssignment": {"federatedHPAAssignmentType": "Aggregated"},
            },
            "status": {"clusters": [{"name": "asleep"}, {"name": "paused"}]},
        });
        let fdhpa = serde_json::from_value(object).unwrap();
        let ledger =
            r#"{"generation":1,"members":{"asleep":{"max":4,"slept":6},"paused":{"max":5}}}"#;
        let fleet = FleetState::restored(&fdhpa, Some(ledger));
        for (name, is_asleep) in [("asleep", true), ("paused", false)] {
            let stored = &fleet.members[name].target.stored;
            let found = matches!(stored, StoredHistory::Lost { scaled_to_zero } if *scaled_to_zero == is_asleep);
            assert!(found, "{name}: {stored:?}");
        }
    }

    #[test]
    fn a_step_of_the_clock_or_a_pause_of_the_hub_makes_no_member_silent() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
                "federatedHPAAssignment": {"federatedHPAAssignmentType": "Aggregated"},
            },
            "status": {"clusters": [{"name": "a", "observed": "1970-01-01T00:00:10Z"}]},
        });
        let mut fleet = FleetState::restored(&serde_json::from_value(object).unwrap(), None);
        let heard = |fleet: &FleetState| {
            let last = fleet.members["a"].last.as_ref().unwrap();
            last.observed.unwrap().as_second()
        };
        assert_eq!(heard(&fleet), 10);
        fleet.shift(SignedDuration::from_hours(1));
        assert_eq!(heard(&fleet), 3_610);
        fleet.resume(SignedDuration::from_mins(10));
        assert_eq!(heard(&fleet), 4_210);
    }
}
