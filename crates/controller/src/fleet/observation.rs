//! Observation of a fleet: its members, the workload in each, and the readings from the hub. A member that does not
//! answer, or whose answer is incomplete, is unknown; it is never taken for empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use foretide_domain::{Replicas, observation::Reading};
use foretide_federate::{Estimate, Health, Membership, PodShape};
use jiff::Timestamp;

use super::template::Template;
use crate::{observe::TargetObservation, related_hpas::RelatedHpas};
use foretide_api::ports::{ClusterError, Member, MemberView};

/// Observation of one fleet.
#[derive(Debug)]
pub struct FleetObservation<M> {
    /// Every member that is a candidate or has something of ours, by name.
    pub members: BTreeMap<String, ObservedMember<M>>,
    /// The readings from the hub, by position in the spec's metrics.
    pub hub: BTreeMap<usize, Reading>,
    /// The workload that the hub places, where it does, or the reason why it cannot be read.
    pub template: Placed,
}

/// A workload that the hub places and the needs of one replica of it, or the reason why it cannot be read; absent where
/// others place it.
pub type Placed = Option<Result<(Template, PodShape), ClusterError>>;

/// One member, and its observation.
#[derive(Debug)]
pub struct ObservedMember<M> {
    pub view: Arc<MemberView<M>>,
    pub observed: MemberObservation,
}

/// Observation of one member.
#[derive(Debug)]
pub enum MemberObservation {
    /// The workload is in the member.
    Present(Box<Present>),
    /// The member answers, and lacks the workload.
    Absent {
        /// Number of replicas that the member holds.
        capacity: Option<Estimate>,
        /// The HPAs that it has for the workload nevertheless.
        hpas: RelatedHpas,
    },
    /// The member, or the workload in it, cannot be observed.
    Unknown {
        /// The reason.
        problem: String,
        /// True if the member answers, and only this workload cannot be read.
        answers: bool,
    },
}

/// Everything about a workload in one member.
#[derive(Debug, Clone)]
pub struct Present {
    /// The observation, as for an autoscaler of one cluster; readings in the order of the observed workload.
    pub observed: TargetObservation,
    /// Pods without a node.
    pub unschedulable: Replicas,
    /// Time since when the oldest of the pods without a node has been unschedulable.
    pub unschedulable_since: Option<Timestamp>,
    /// Number of replicas that the member holds in total.
    pub capacity: Option<Estimate>,
    /// True if the hub places the workload and this one is not from it.
    pub foreign: bool,
    /// Field manager that changed the replicas since they were seen last, if neither an HPA nor we did.
    pub replica_writer: Option<String>,
}

// === impl FleetObservation ===

impl<M> FleetObservation<M> {
    /// The workload that the hub places, if it does and it could be read.
    pub fn placed_template(&self) -> Option<&Template> {
        let (template, _) = self.template.as_ref()?.as_ref().ok()?;
        Some(template)
    }

    /// The members that are not ready, for any fleet.
    pub fn down(&self) -> BTreeSet<String> {
        self.members
            .iter()
            .filter(|(_, member)| member.is_down())
            .map(|(name, _)| name.clone())
            .collect()
    }
}

// === impl ObservedMember ===

impl<M> ObservedMember<M> {
    /// True if the member cannot be observed.
    pub fn is_unknown(&self) -> bool {
        self.problem().is_some()
    }

    /// The problem that keeps the member from being scaled, if any: it cannot be observed, it is not ready, or it does
    /// not accept our credentials.
    pub fn trouble(&self) -> Option<String> {
        let view = &self.view;
        let is_refused = view.refused || matches!(view.health, Health::NotReady { .. });
        let of_view = is_refused.then(|| view.problem.as_deref().unwrap_or("not ready"));
        self.problem().or(of_view).map(shortened)
    }

    /// True if the member itself is not ready, rather than only the workload of one fleet.
    fn is_down(&self) -> bool {
        let is_unknown = matches!(
            self.observed,
            MemberObservation::Unknown { answers: false, .. }
        );
        is_unknown || self.view.refused || self.view.health != Health::Ready
    }

    /// The reason why the member cannot be observed, if any.
    pub fn problem(&self) -> Option<&str> {
        match &self.observed {
            MemberObservation::Unknown { problem, .. } => Some(problem),
            MemberObservation::Present(_) | MemberObservation::Absent { .. } => None,
        }
    }

    /// True if no pods run in the member, and none are asked for.
    pub fn is_idle(&self) -> bool {
        match &self.observed {
            MemberObservation::Absent { .. } => true,
            MemberObservation::Unknown { .. } => false,
            MemberObservation::Present(present) => present.is_idle(),
        }
    }

    /// The workload in the member, if it was seen.
    pub fn present(&self) -> Option<&Present> {
        match &self.observed {
            MemberObservation::Present(present) => Some(present),
            MemberObservation::Absent { .. } | MemberObservation::Unknown { .. } => None,
        }
    }
}

// === impl MemberObservation ===

impl MemberObservation {
    /// The observation of a member that does not answer.
    pub fn without_answer(problem: String) -> Self {
        Self::Unknown {
            problem,
            answers: false,
        }
    }

    /// The observation of a member in which the workload cannot be read.
    pub fn failed(error: &ClusterError) -> Self {
        Self::Unknown {
            problem: error.to_string(),
            answers: !matches!(error, ClusterError::Unreachable { .. }),
        }
    }
}

// === impl Present ===

impl Present {
    /// True if no pods run, and none are asked for.
    pub fn is_idle(&self) -> bool {
        let observation = &self.observed.workload.observation;
        observation.scale.spec == Replicas::ZERO && observation.pods.is_empty()
    }
}

/// A member's workloads, or the reason why they cannot be read now.
pub fn in_reach<M: Member>(view: &MemberView<M>) -> Result<&Arc<M>, String> {
    let problem = view.problem.as_deref();
    let Some(cluster) = &view.cluster else {
        if let (Membership::Missing, Some(problem)) = (view.membership, problem) {
            return Err(problem.to_owned());
        }
        let problem = problem.unwrap_or("no connection has been opened");
        return Err(shortened(&format!(
            "the Secret of the member cannot be used: {problem}"
        )));
    };
    match view.health {
        Health::Unknown { .. } => Err(shortened(problem.unwrap_or("no answer"))),
        Health::Ready | Health::NotReady { .. } if cluster.is_synced() => Ok(cluster),
        Health::Ready | Health::NotReady { .. } => {
            let incomplete = "the first list of its objects is not complete";
            Err(problem.map_or_else(
                || incomplete.to_owned(),
                |problem| shortened(&format!("{incomplete}: {problem}")),
            ))
        }
    }
}

/// A member's problem, cut to the length that a status has room for.
fn shortened(problem: &str) -> String {
    const MOST: usize = 240;
    match problem.char_indices().nth(MOST) {
        None => problem.to_owned(),
        Some((end, _)) => format!("{}...", problem.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_problem_is_cut_to_240_characters() {
        let long = "é".repeat(241);
        let cut = format!("{}...", "é".repeat(240));
        for (problem, expected) in [
            ("renew its Secret", "renew its Secret"),
            (&long[2..], &long[2..]),
            (&long, &cut),
        ] {
            assert_eq!(shortened(problem), expected);
        }
    }
}
