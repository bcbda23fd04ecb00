//! What is remembered of fleets and their members between two syncs.
//!
//! All of it may be lost: the ledger and the last counts come back from status, and what is missing holds scale-down
//! for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use foretide_crds::{ClusterStatus, EffectiveHorizontalPodAutoscaler, FederatedHPA};
use jiff::Timestamp;

use super::{last_move::Why, ledger};
use crate::{
    api::ownership::OwnerKind,
    api::spec::FleetSpec,
    controller::state::{ObjectState, TargetState},
    domain::{
        Replicas,
        autoscale::history::History,
        federate::{Health, Ledger, Member, Pods, Profile},
        lead_time::LeadTimes,
        workload::Workload,
    },
};

/// What is remembered of one fleet.
#[derive(Debug)]
pub(super) struct FleetState {
    /// The fleet as one object.
    pub(super) told: ObjectState,
    /// The last spec that could be acted on.
    pub(super) spec: Option<(Arc<FleetSpec>, Arc<Workload>)>,
    /// What the fleet's own metrics asked for.
    pub(super) asking: History,
    /// The last answer of them.
    pub(super) asked: Option<Replicas>,
    /// The fleet's count as it was decided last.
    pub(super) desired: Option<Replicas>,
    /// The members that the fleet's readings were about.
    pub(super) counted: Option<BTreeSet<String>>,
    /// What they ran together, and were told to run since.
    pub(super) current: Option<Replicas>,
    /// What rebalancing remembers.
    pub(super) ledger: Ledger,
    /// The members that were not ready then, for any fleet alike.
    pub(super) down: BTreeSet<String>,
    /// The members that have metric series.
    pub(super) shown: BTreeSet<String>,
    /// By member.
    pub(super) members: BTreeMap<String, MemberRecord>,
}

/// What is remembered of one member.
#[derive(Debug, Default)]
pub(super) struct MemberRecord {
    /// The workload there.
    pub(super) track: TargetState,
    /// As it was seen last.
    pub(super) last: Option<Member>,
    /// Whether all that is known of it comes from status: what its track held is lost.
    pub(super) restored: bool,
    /// Whether it was seen since: else what status says of it may be as old as the controller's absence was long.
    pub(super) seen: bool,
    /// How long its pods took to start.
    pub(super) lead_times: LeadTimes,
    /// The `minReplicas` that its child was left with, and the one that was decided then: in between, the child is
    /// shaped so that it gets there by itself.
    pub(super) shaped: Option<(Replicas, Replicas)>,
    /// Whether it was lost then, as far as anybody was told.
    pub(super) lost: bool,
    /// Changes of the replicas by others: when, and by whom.
    pub(super) hands: Vec<(Timestamp, String)>,
    /// The version of the workload that was applied last.
    pub(super) placed: Option<u64>,
    /// The count that a workload starts with which was just created.
    pub(super) start: Option<Replicas>,
    /// Why it was moved last.
    pub(super) why: Why,
}

// === impl FleetState ===

impl FleetState {
    /// The memory of a fleet that is seen for the first time: what its status kept.
    pub(super) fn new(fdhpa: &FederatedHPA, whole: &EffectiveHorizontalPodAutoscaler) -> Self {
        let status = fdhpa.status.as_ref();
        let ledger = status.and_then(|status| ledger::read(status.ledger.as_deref()?));
        let clusters = status.and_then(|status| status.clusters.as_deref());
        let members = clusters.into_iter().flatten().map(|cluster| {
            let last = remembered(cluster);
            let memory = MemberRecord {
                last: Some(last),
                restored: true,
                why: Why::remembered(cluster),
                ..MemberRecord::default()
            };
            (cluster.name.clone(), memory)
        });
        Self {
            told: ObjectState::new(whole, OwnerKind::Fleet),
            spec: None,
            asking: History::default(),
            asked: None,
            desired: None,
            counted: None,
            current: None,
            ledger: ledger.unwrap_or_default(),
            down: BTreeSet::new(),
            shown: BTreeSet::new(),
            members: members.collect(),
        }
    }

    /// The members that have a share, or had one, with the replicas that are expected there.
    pub(super) fn known(&self) -> BTreeMap<String, Option<Replicas>> {
        let shared = self.ledger.members.keys().map(|name| (name.clone(), None));
        let mut known: BTreeMap<_, _> = shared.collect();
        for (name, memory) in &self.members {
            let pods = memory.last.as_ref().and_then(|last| last.pods);
            known.insert(name.clone(), pods.map(|pods| pods.replicas));
        }
        known
    }

    /// UIDs of the members' autoscalers as they were left, as far as that is known.
    pub(super) fn left(&self) -> BTreeMap<String, String> {
        let members = self.members.iter();
        let left = members.filter_map(|(name, memory)| {
            let left = memory.track.left.as_ref()?;
            Some((name.clone(), left.uid.clone()))
        });
        left.collect()
    }
}

// === impl MemberRecord ===

impl MemberRecord {
    /// Whether to say that it is lost. What was never seen, and of what status knows nothing, is only joining.
    pub(super) fn is_lost(&self, health: Health, now: Timestamp) -> bool {
        let Health::Unknown { since } = health else {
            return false;
        };
        (self.seen || self.restored) && since <= now
    }
}

/// A member as status remembers it, for the time until it is seen again.
fn remembered(cluster: &ClusterStatus) -> Member {
    let count = |n: Option<i32>| n.map(Replicas::from_i32);
    Member {
        profile: Profile {
            name: cluster.name.clone(),
            ..Profile::default()
        },
        pods: count(cluster.current).map(|replicas| Pods {
            replicas,
            ready: count(cluster.ready).unwrap_or_default(),
            unschedulable: count(cluster.pending).unwrap_or_default(),
            unschedulable_since: None,
        }),
        hpa: count(cluster.min).zip(count(cluster.max)),
        observed: cluster.observed.as_ref().map(|at| at.0),
        ..Member::default()
    }
}
