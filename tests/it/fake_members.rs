//! The registry of fake member clusters, with the state of their connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use foretide_api::ports::{Fleet, MemberView};
use foretide_federate::{Health, Membership, Profile};
use jiff::SignedDuration;
use tokio::sync::Notify;

use crate::fake_cluster::FakeCluster;

/// A member that does not answer for this long counts as lost.
pub(crate) const LOST_AFTER: SignedDuration = SignedDuration::from_secs(40);

/// The members, with the state of their connections.
#[derive(Clone, Default)]
pub(crate) struct Members {
    pub(crate) clusters: Arc<Mutex<BTreeMap<String, (FakeCluster, Health)>>>,
    /// Members whose Secrets were deleted: they run on, and the hub does not know of them.
    pub(crate) unregistered: Arc<Mutex<BTreeSet<String>>>,
    /// Members that leave on purpose.
    pub(crate) leaving: Arc<Mutex<BTreeSet<String>>>,
    /// The members have not been listed.
    pub(crate) is_unlisted: Arc<AtomicBool>,
    /// Wakes the controller, as a change of a member does.
    pub(crate) changes: Arc<Notify>,
}

impl Fleet for Members {
    type Member = FakeCluster;

    fn is_synced(&self) -> bool {
        !self.is_unlisted.load(Ordering::Acquire)
    }

    fn members(&self) -> Vec<Arc<MemberView<FakeCluster>>> {
        if !self.is_synced() {
            return Vec::new();
        }
        let members = self.clusters.lock().unwrap();
        let leaving = self.leaving.lock().unwrap();
        let view = |(name, (fake, health)): (&String, &(FakeCluster, Health))| {
            let (refused, unusable, problem) = {
                let state = fake.state();
                (
                    state.rejects_credentials,
                    state.unusable,
                    state.problem.clone(),
                )
            };
            Arc::new(MemberView {
                profile: Profile {
                    name: name.clone(),
                    ..Profile::default()
                },
                membership: if leaving.contains(name) {
                    Membership::Leaving
                } else {
                    Membership::Listed
                },
                taints: Vec::new(),
                prometheus: None,
                health: *health,
                cluster: (!unusable).then(|| Arc::new(fake.clone())),
                refused,
                problem,
                secret_problem: None,
            })
        };
        let unregistered = self.unregistered.lock().unwrap();
        let registered = members
            .iter()
            .filter(|(name, _)| !unregistered.contains(*name));
        registered.map(view).collect()
    }

    fn lost_after(&self) -> SignedDuration {
        LOST_AFTER
    }

    async fn changed(&self) {
        self.changes.notified().await;
    }
}
