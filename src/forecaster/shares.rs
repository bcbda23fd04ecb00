//! Which members a fleet's demand comes from: one table that the syncs fill and the forecaster reads, so that forecasts
//! of a fleet know whose series to add up. It refuses to know how a member is reached.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// A member of a fleet, as far as its history is concerned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetMember {
    /// Its name, which is the value of the cluster label of its series.
    pub name: Arc<str>,
    /// Name of the Prometheus endpoint that has its series, if its Secret names one.
    pub prometheus: Option<Arc<str>>,
    /// Whether the hub sees that nothing of the workload runs there: it does not exist, or sleeps at zero replicas.
    /// False when the member is not reached: what is not known is not nothing.
    pub idle: bool,
}

/// The members of each fleet, by UID of its object.
#[derive(Debug, Default)]
pub struct Fleets {
    members: RwLock<HashMap<String, Arc<[FleetMember]>>>,
}

// === impl Fleets ===

impl Fleets {
    /// Takes in, with each sync of a fleet, the members whose demand is its own: those whose pods are the fleet's, reachable
    /// or not, and those that may get a share and run nothing. A member left out is left out of the total.
    pub fn report(&self, uid: &str, mut members: Vec<FleetMember>) {
        members.sort_unstable();
        members.dedup_by(|one, other| one.name == other.name);
        self.write(|fleets| {
            // Who compares finds the same one, while nothing changes.
            if fleets.get(uid).is_none_or(|known| **known != *members) {
                fleets.insert(uid.to_owned(), members.into());
            }
        });
    }

    /// The members of one fleet, by name; absent before the first sync that saw it.
    #[must_use]
    pub fn members(&self, uid: &str) -> Option<Arc<[FleetMember]>> {
        let fleets = self.members.read().unwrap_or_else(PoisonError::into_inner);
        fleets.get(uid).cloned()
    }

    /// Forgets the fleets that `keep` does not want.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.write(|fleets| fleets.retain(|uid, _| keep(uid)));
    }

    fn write(&self, change: impl FnOnce(&mut HashMap<String, Arc<[FleetMember]>>)) {
        change(&mut self.members.write().unwrap_or_else(PoisonError::into_inner));
    }
}
