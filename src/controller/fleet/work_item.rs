//! A fleet whose turn it is, and what its object asks for: of the hub, and of members. It decides nothing.

use std::{collections::BTreeMap, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};

use crate::{
    api::ownership::OwnerKind,
    api::spec::FleetSpec,
    controller::{conflicts::TargetConflicts, observe::Due as Question},
    domain::{
        Replicas,
        federate::{Kind, Policy},
        hpa::MetricSpec,
        workload::{Mode, Strategy, Workload},
    },
};

/// A federated autoscaler whose turn it is, with what its spec means.
#[derive(Debug, Clone)]
pub(super) struct Due {
    /// The object as the user wrote it.
    pub(super) fdhpa: Arc<FederatedHPA>,
    /// The fleet as one object.
    pub(super) whole: Arc<EffectiveHorizontalPodAutoscaler>,
    /// The same with the spec that counts.
    pub(super) valid: Arc<EffectiveHorizontalPodAutoscaler>,
    /// What that spec means.
    pub(super) spec: Arc<FleetSpec>,
    /// What members are asked.
    pub(super) question: Arc<Workload>,
    /// Who else acts on the same target.
    pub(super) rivals: TargetConflicts,
    /// The members that have a share already, and the replicas that are expected there.
    pub(super) known: BTreeMap<String, Option<Replicas>>,
    /// UIDs of the autoscalers as they were left, by member.
    pub(super) left: BTreeMap<String, String>,
}

// === impl Due ===

impl Due {
    /// The policy as it is carried out: a previewed count is divided as one that the hub writes.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = self.spec.policy.clone();
        if self.is_pinned() {
            policy.mode = Mode::Direct;
        }
        policy
    }

    pub(super) fn uid(&self) -> &str {
        self.fdhpa.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether each member is a fleet of its own, with all of the bounds, windows and forecasts.
    pub(super) fn is_duplicated(&self) -> bool {
        self.spec.policy.kind == Kind::Duplicated
    }

    /// Whether the hub decides one count for all and divides it; under `Duplicated` each member decides for itself.
    pub(super) fn hub_writes(&self) -> bool {
        self.spec.policy.mode == Mode::Direct && !self.is_duplicated()
    }

    /// Whether a count of the whole is divided: one that the hub writes, or one that is given in Preview.
    pub(super) fn hub_divides_counts(&self) -> bool {
        self.hub_writes() || self.is_pinned()
    }

    /// Whether Preview gives a count.
    fn is_pinned(&self) -> bool {
        self.is_previewed() && self.spec.workload.specific_replicas.is_some()
    }

    /// Whether nothing but a given count is written.
    pub(super) fn is_previewed(&self) -> bool {
        self.spec.workload.strategy == Strategy::Preview
    }

    /// The fleet as the pipeline of one cluster takes it.
    pub(super) fn as_one(&self, workload: Workload) -> Question {
        self.part(&Arc::new(workload))
    }

    /// One member's part, as the pipeline of one cluster takes it.
    pub(super) fn part(&self, workload: &Arc<Workload>) -> Question {
        Question {
            ehpa: Arc::clone(&self.whole),
            valid: Arc::clone(&self.valid),
            kin: OwnerKind::Fleet,
            workload: Arc::clone(workload),
            rivals: self.rivals.clone(),
            left: None,
        }
    }
}

/// Whether members are asked for a metric: all of those that pods have, and the rest unless it is the fleet's.
pub(super) fn is_asked_of_members(spec: &FleetSpec, metric: &MetricSpec) -> bool {
    let of_pods = matches!(
        metric,
        MetricSpec::Resource { .. }
            | MetricSpec::ContainerResource { .. }
            | MetricSpec::Pods { .. }
            | MetricSpec::Unknown(_)
    );
    of_pods || !spec.scopes.contains(&metric.identifier())
}

/// What members are asked: the metrics, without anything that is the hub's to compute.
pub(super) fn question(spec: &FleetSpec) -> Workload {
    let metrics = spec.workload.metrics.iter();
    let asked = metrics.filter(|metric| is_asked_of_members(spec, metric));
    Workload {
        metrics: asked.cloned().collect(),
        windows: Vec::new(),
        prediction: None,
        problems: Vec::new(),
        ..spec.workload.clone()
    }
}
