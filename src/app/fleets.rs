//! The member clusters of a controller, which may have none: the namespace of their Secrets may be unknown.

use std::{collections::BTreeMap, sync::Arc};

use jiff::SignedDuration;

use foretide_api::ports::{Cluster as _, Fleet, MemberView};
use foretide_base::clock::Clock;
use foretide_kube::{
    cluster::KubeCluster,
    members::{MemberRegistry, MemberReport},
};

/// Interval at which a controller that may not read the Secrets of members looks for fleets.
const FLEET_CHECK_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// The member clusters; none where the namespace of their Secrets is not configured.
#[derive(Debug)]
pub struct Fleets {
    pub members: Option<MemberRegistry>,
    pub hub: Arc<KubeCluster>,
    pub clock: Clock,
}

// === impl Fleets ===

impl Fleets {
    /// Keeps the registry in step with the Secrets. They are not read where the process has no right to, until there is
    /// a fleet.
    pub async fn run(&self) {
        let Some(members) = &self.members else {
            return std::future::pending().await;
        };
        if members.is_refused().await {
            while self.hub.federated().is_empty() {
                self.clock.sleep(FLEET_CHECK_PERIOD).await;
            }
            tracing::warn!(
                "there are fleets, and the Secrets of their members may not be read: set fleets.enabled in the chart, or apply \
                 deploy/fleets"
            );
        }
        members.run().await;
    }

    /// The state of each member.
    pub fn reports(&self) -> Vec<MemberReport> {
        let members = self.members.as_ref();
        members.map(MemberRegistry::reports).unwrap_or_default()
    }

    /// Number of objects of each kind that could not be read in the members.
    pub fn unreadable(&self) -> BTreeMap<&'static str, usize> {
        let members = self.members.as_ref();
        members.map(MemberRegistry::unreadable).unwrap_or_default()
    }
}

impl Fleet for Fleets {
    type Member = <MemberRegistry as Fleet>::Member;

    fn is_synced(&self) -> bool {
        self.members.as_ref().is_none_or(Fleet::is_synced)
    }

    fn members(&self) -> Vec<Arc<MemberView<Self::Member>>> {
        let members = self.members.as_ref().map(Fleet::members);
        members.unwrap_or_default()
    }

    fn lost_after(&self) -> SignedDuration {
        self.members
            .as_ref()
            .map_or(SignedDuration::MAX, Fleet::lost_after)
    }

    async fn changed(&self) {
        match &self.members {
            Some(members) => members.changed().await,
            None => std::future::pending().await,
        }
    }
}
