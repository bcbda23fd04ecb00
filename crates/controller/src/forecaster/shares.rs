//! The table of the members that each fleet's demand comes from: syncs fill it, and the forecaster adds up the series
//! of these members.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;

/// A member whose demand is part of a fleet's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetMember {
    /// The name, which is the value of the cluster label of its series.
    pub name: Arc<str>,
    /// Name of the Prometheus endpoint that has its series, if its Secret names one.
    pub prometheus: Option<Arc<str>>,
    /// True if the hub sees no pods of the workload in the member: it does not exist or is scaled to zero. False while
    /// the member is unreachable, because then its pods are unknown.
    pub idle: bool,
}

/// The members that each fleet's demand comes from, by UID of its object.
#[derive(Debug, Default)]
pub struct DemandShares {
    members: RwLock<HashMap<String, Arc<[FleetMember]>>>,
}

// === impl DemandShares ===

impl DemandShares {
    /// Records, at each sync of a fleet, the members whose demand counts: those with pods of the fleet, reachable or
    /// not, and those without pods that may get a share. The demand of any other member is not part of the total.
    pub fn report(&self, uid: &str, mut members: Vec<FleetMember>) {
        members.sort_unstable();
        members.dedup_by(|one, other| one.name == other.name);
        self.write(|fleets| {
            // An unchanged list keeps its `Arc`, so that comparing it stays cheap.
            if fleets.get(uid).is_none_or(|known| **known != *members) {
                fleets.insert(uid.to_owned(), members.into());
            }
        });
    }

    /// The members of one fleet, by name; absent before its first sync.
    pub fn members(&self, uid: &str) -> Option<Arc<[FleetMember]>> {
        let fleets = self.members.read();
        fleets.get(uid).cloned()
    }

    /// Drops the fleets that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.write(|fleets| fleets.retain(|uid, _| keep(uid)));
    }

    fn write(&self, change: impl FnOnce(&mut HashMap<String, Arc<[FleetMember]>>)) {
        change(&mut self.members.write());
    }
}
