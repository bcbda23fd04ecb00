//! The division of a fleet over clusters.
//!
//! ```text
//! spec -> policy -------------------+
//! clusters file -> members, total --+--> foretide_federate::decide --> Assignment, as JSON too
//! previous output -> ledger --------+
//! ```
//!
//! The decision is the controller's own. The demand of the fleet comes from the clusters file, or from a
//! [plan](crate::plan), which computes it from a history.

pub mod clusters;
mod data;
mod previous;

use foretide_domain::hpa::{MetricSpec, Target};
use foretide_federate::{
    EffectivePreference, FleetDecision, Ledger, Member, Policy, Profile, Total,
};
use jiff::Timestamp;

use self::clusters::Clusters;
pub use self::previous::Previous;
use crate::Error;
use foretide_api::validation::FleetSpec;

/// A `FederatedHPA` with its validated spec.
#[derive(Debug)]
pub struct NamedFleet {
    /// Name of the object.
    pub name: String,
    /// The meaning of its spec.
    pub spec: FleetSpec,
}

/// A divided fleet and its inputs.
#[derive(Debug)]
pub struct Assignment {
    /// The fleet.
    pub fleet: NamedFleet,
    /// Observed members.
    pub members: Vec<Member>,
    /// Totals of the fleet.
    pub total: Total,
    /// The decision for each member.
    pub decision: FleetDecision,
    /// Memory of the next decision.
    pub ledger: Ledger,
}

/// Reason for which a fleet cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// A clusters file has another number of documents than one.
    #[error("{0}: expected one document of clusters, found {1}")]
    Documents(String, usize),
    /// Fields of the clusters file have invalid values, one on each line.
    #[error("{0}")]
    Fields(String),
    /// A cluster has a utilization, but no metric has a utilization target.
    #[error(
        "cluster {0}: utilization is set, but no metric has a utilization target; set demand in replicas instead"
    )]
    NoTarget(String),
    /// A file is not the output of a division, for this reason.
    #[error("{0}: expected output of `foretide assign -o json` ({1})")]
    NotPrevious(String, String),
    /// The time of the decision is before that of the previous one.
    #[error("--at {0} is before the time of --after, {1}")]
    BeforePrevious(Timestamp, Timestamp),
}

// === impl NamedFleet ===

impl NamedFleet {
    /// The members that a clusters file describes, as observed at `at`.
    ///
    /// # Errors
    /// A cluster has a utilization, but no metric has a utilization target.
    pub fn members(&self, clusters: &Clusters, at: Timestamp) -> Result<Vec<Member>, AssignError> {
        clusters.members(self.utilization(), at)
    }

    /// The utilization target in percent, if a metric has one.
    fn utilization(&self) -> Option<i64> {
        let mut targets = self.spec.workload.metrics.iter().map(MetricSpec::target);
        targets.find_map(|target| match target {
            Target::Utilization(percent) => Some(i64::from(percent)),
            _ => None,
        })
    }

    /// The time of the decision: `at`, or else one sync after the previous decision, or else `now`.
    fn moment(
        &self,
        at: Option<Timestamp>,
        previous: Option<&Previous>,
        now: Timestamp,
    ) -> Result<Timestamp, AssignError> {
        let Some(previous) = previous.map(|previous| previous.at) else {
            return Ok(at.unwrap_or(now));
        };
        match at {
            Some(at) if at < previous => Err(AssignError::BeforePrevious(at, previous)),
            Some(at) => Ok(at),
            None => Ok(previous
                .checked_add(self.spec.policy.period)
                .unwrap_or(Timestamp::MAX)),
        }
    }
}

// === impl Assignment ===

impl Assignment {
    /// Divides a fleet over the clusters of a file at `at`, continuing from the previous division.
    ///
    /// # Errors
    /// `at` is before the previous division, or a cluster has a utilization without a target.
    pub fn new(
        fleet: NamedFleet,
        clusters: &Clusters,
        previous: Option<&Previous>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let at = fleet.moment(at, previous, now)?;
        let mut members = fleet.members(clusters, at)?;
        let ledger = previous
            .map(|previous| previous.applied(&mut members))
            .unwrap_or_default();
        let total = clusters.total(&members, &fleet.spec.policy, &ledger, at);
        Ok(Self::make(fleet, members, total, &ledger, at))
    }

    /// Divides a fleet with these totals over its members, continuing from a ledger.
    pub(crate) fn make(
        fleet: NamedFleet,
        members: Vec<Member>,
        total: Total,
        ledger: &Ledger,
        at: Timestamp,
    ) -> Self {
        let (decision, ledger) =
            foretide_federate::decide(&fleet.spec.policy, &total, &members, ledger, at);
        Self {
            fleet,
            members,
            total,
            decision,
            ledger,
        }
    }

    /// Assignment policy of the fleet.
    pub fn policy(&self) -> &Policy {
        &self.fleet.spec.policy
    }

    /// Preference of the policy for a cluster; `None` if it gets no share.
    pub fn preference_of(&self, cluster: &Profile) -> Option<EffectivePreference> {
        self.policy().effective_preference(cluster)
    }

    /// Names of the members that are written, in order.
    pub fn order(&self) -> Vec<&str> {
        let decision = &self.decision;
        decision
            .order
            .iter()
            .filter_map(|at| decision.members.get(*at))
            .map(|member| member.name.as_str())
            .collect()
    }
}
