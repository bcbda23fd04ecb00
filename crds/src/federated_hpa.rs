//! `FederatedHPA`: what a user asks for one workload that runs in many clusters.
//!
//! Everything that an [`crate::EffectiveHorizontalPodAutoscaler`] says, and how it is divided over the member
//! clusters. The fields of its own are those of Karmada's proposal by their JSON names (seed 001), and
//! optional additions. Nothing here gives a field a meaning: defaults that depend on other fields belong
//! to the validation of the service. What the controller answers is in [`FederatedHPAStatus`].

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec, FederatedHPAStatus,
};

/// CEL: every requirement of a selector has an operator that there is.
const OPERATORS: &str = "self.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])";
const OPERATORS_SAY: &str = "operator must be In, NotIn, Exists or DoesNotExist";

/// CEL: every requirement of a selector has the values that its operator needs.
const VALUES: &str = "self.all(e, !(e.operator in ['In', 'NotIn']) || (has(e.values) && size(e.values) > 0)) && self.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || size(e.values) == 0)";
const VALUES_SAY: &str =
    "In and NotIn need at least one of values; Exists and DoesNotExist take none";

/// CEL: every toleration has an operator that there is.
const TOLERATION_OPERATORS: &str =
    "self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])";
/// CEL: a toleration with `Exists` has no value, and one that compares has a key.
const TOLERATION_VALUES: &str = "self.all(t, !(has(t.operator) && t.operator == 'Exists') || !has(t.value) || t.value == '') && self.all(t, (has(t.operator) && !(t.operator in ['', 'Equal'])) || (has(t.key) && t.key != ''))";
/// CEL: every toleration has an effect that there is, or none.
const TOLERATION_EFFECTS: &str = "self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])";
/// CEL: only a toleration of `NoExecute` ends.
const TOLERATION_SECONDS: &str =
    "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))";

/// What a `FederatedHPA` should do.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "autoscaling.foretide.io",
    version = "v1alpha1",
    kind = "FederatedHPA",
    plural = "federatedhpas",
    namespaced,
    status = "FederatedHPAStatus",
    shortname = "fdhpa",
    derive = "PartialEq",
    doc = "Scales one workload over many clusters: every member cluster is given its part of the replicas, by policy.",
    printcolumn(
        name = "REFERENCE",
        type_ = "string",
        json_path = ".spec.scaleTargetRef.name",
        description = "Name of the workload.",
        priority = 1
    ),
    printcolumn(
        name = "STRATEGY",
        type_ = "string",
        json_path = ".spec.scaleStrategy",
        description = "Auto scales; Preview only shows what it would do.",
        priority = 1
    ),
    printcolumn(
        name = "POLICY",
        type_ = "string",
        json_path = ".spec.federatedHPAAssignment.federatedHPAAssignmentType",
        description = "How the replicas are divided over clusters."
    ),
    printcolumn(
        name = "MINPODS",
        type_ = "integer",
        json_path = ".spec.minReplicas",
        description = "Fewest replicas of all clusters together (of each one under Duplicated)."
    ),
    printcolumn(
        name = "MAXPODS",
        type_ = "integer",
        json_path = ".spec.maxReplicas",
        description = "Most replicas of all clusters together (of each one under Duplicated)."
    ),
    printcolumn(
        name = "REPLICAS",
        type_ = "integer",
        json_path = ".status.expectReplicas",
        description = "Replicas decided for all clusters together."
    ),
    printcolumn(
        name = "READY",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the spec could be acted on, and was."
    ),
    printcolumn(
        name = "UNASSIGNED",
        type_ = "integer",
        json_path = ".status.unassigned",
        description = "Replicas of MAXPODS that no cluster can take now.",
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FederatedHPASpec {
    /// What is asked of the fleet as a whole.
    #[serde(flatten)]
    pub autoscaling: EffectiveHorizontalPodAutoscalerSpec,

    /// Which clusters may run the workload. Left out, every member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,

    /// Seconds for which pods of a cluster must stay unschedulable before other clusters are given its
    /// replicas: time for a cluster autoscaler to add nodes. Default 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 3600")
        .message("autoscaleMultiClusterDelay must be between 0 and 3600 seconds; 60 is usual, 300 where nodes are added on demand"))]
    pub autoscale_multi_cluster_delay: Option<i32>,

    /// Whether a member may have no replicas at all while others serve. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_to_zero: Option<bool>,

    /// How `minReplicas`, `maxReplicas` and what is forecast are divided.
    #[serde(rename = "federatedHPAAssignment", default)]
    pub federated_hpa_assignment: FederatedHPAAssignment,

    /// What happens to the replicas of a cluster that is lost. `Retain`: they stay its own. `Reassign`: the
    /// others get them after `tolerationSeconds`. Default `Retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,

    /// Seconds for which a cluster may be lost before it counts as failed. Default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 86400")
        .message("tolerationSeconds must be between 0 and 86400 (a day); 300 is usual"))]
    pub toleration_seconds: Option<i32>,

    /// Taints of clusters that are tolerated, as pods tolerate those of nodes. A cluster has the taints that the
    /// annotation `foretide.io/taints` of its Secret names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(TOLERATION_OPERATORS).message("operator of a toleration must be Equal or Exists"),
        validation = Rule::new(TOLERATION_VALUES).message("a toleration compares a key and a value, or has the operator Exists and no value"),
        validation = Rule::new(TOLERATION_EFFECTS).message("effect of a toleration must be NoSchedule, PreferNoSchedule or NoExecute; leave it out to tolerate all"),
        validation = Rule::new(TOLERATION_SECONDS).message("tolerationSeconds of a toleration needs the effect NoExecute, the only one that ends")
    )]
    pub cluster_tolerations: Option<Vec<Toleration>>,

    /// Who puts the workload into the members. `Members`: it is there already. `Hub`: the hub's own object,
    /// named by `scaleTargetRef`, is the template. Default `Members`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_source: Option<WorkloadSource>,

    /// Which metrics are measured in each member and which once for the fleet. Default: metrics of type
    /// `External` once, the others in each member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["metric".into()]),
        validation = Rule::new("self.all(a, self.exists_one(b, a.metric == b.metric))")
            .message("each metric has one scope; remove the repeated one")
    )]
    pub metric_scope: Option<Vec<MetricScope>>,

    /// What becomes of the members' HorizontalPodAutoscalers when this object is deleted. Default `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// How fast replicas are moved between clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Rebalance>,
}

impl FederatedHPA {
    /// The fleet as one workload: the object of one cluster that asks for the same and tells the same.
    #[must_use]
    pub fn as_one(&self) -> EffectiveHorizontalPodAutoscaler {
        EffectiveHorizontalPodAutoscaler {
            metadata: self.metadata.clone(),
            spec: self.spec.autoscaling.clone(),
            status: self.status.as_ref().map(|status| status.fleet.clone()),
        }
    }
}

/// Which clusters are meant; everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// By the labels of the member's Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub label_selector: Option<ClusterLabelSelector>,

    /// By `provider`, `region` and `zone`, as the labels `foretide.io/provider`, `foretide.io/region` and
    /// `foretide.io/zone` of the member's Secret say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub field_selector: Option<FieldSelector>,

    /// By name; empty means every cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub cluster_names: Option<Vec<String>>,

    /// Clusters that are never meant, whatever else matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub exclude: Option<Vec<String>>,
}

/// A label selector on clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub match_labels: Option<BTreeMap<String, String>>,

    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(OPERATORS).message(OPERATORS_SAY),
        validation = Rule::new(VALUES).message(VALUES_SAY)
    )]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A selector on what a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Requirements; keys are `provider`, `region` and `zone`. A cluster may have several zones: `In` asks for one of
    /// them, `NotIn` for none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(e, e.key in ['provider', 'region', 'zone'])")
            .message("key of a fieldSelector must be provider, region or zone; for anything else use labelSelector"),
        validation = Rule::new(OPERATORS).message(OPERATORS_SAY),
        validation = Rule::new(VALUES).message(VALUES_SAY)
    )]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// How replicas are divided over clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.federatedHPAAssignmentType) || self.federatedHPAAssignmentType != 'Prioritized' || (has(self.clusterAutoscalingPreference) && self.clusterAutoscalingPreference.exists(p, has(p.priority)))")
        .message("Prioritized needs the priority of at least one cluster; add it to clusterAutoscalingPreference")
        .field_path(".clusterAutoscalingPreference")
)]
pub struct FederatedHPAAssignment {
    /// The policy. `Duplicated`: every cluster gets the whole. `Aggregated`: as few clusters as possible.
    /// `StaticWeighted`: by the weights of the preferences. `DynamicWeighted`: by what each cluster can take.
    /// `Prioritized`: the clusters of highest priority first. Default `Duplicated`.
    #[serde(
        rename = "federatedHPAAssignmentType",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("default" = "Duplicated"))]
    pub federated_hpa_assignment_type: Option<AssignmentType>,

    /// Priority, weight and bounds by cluster. `StaticWeighted` leaves out clusters without a weight, unless none has
    /// one: then all weigh the same. `Prioritized` leaves out clusters without a priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub cluster_autoscaling_preference: Option<Vec<TargetClusterAutoscalingPreference>>,

    /// What weighs under `DynamicWeighted`. Default `Capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_by: Option<WeightBy>,
}

/// The assignment policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum AssignmentType {
    /// Every cluster gets the whole.
    #[default]
    Duplicated,
    /// As few clusters as possible.
    Aggregated,
    /// By given weights.
    StaticWeighted,
    /// By capacity or demand.
    DynamicWeighted,
    /// Highest priority first.
    Prioritized,
}

/// What is preferred for some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.autoscalingMinThreshold) || !has(self.autoscalingMaxThreshold) || self.autoscalingMinThreshold <= self.autoscalingMaxThreshold")
        .message("autoscalingMinThreshold must not exceed autoscalingMaxThreshold; lower the first or raise the second")
        .field_path(".autoscalingMinThreshold")
)]
pub struct TargetClusterAutoscalingPreference {
    /// Which clusters; `{}` means every one.
    pub target_cluster: ClusterAffinity,

    /// Weight under `StaticWeighted`; of several that match a cluster the largest counts. A cluster of weight 0 gets
    /// only what the others cannot take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0")
        .message("staticWeight must be 0 or more; 0 is for clusters that get only what the others cannot take"))]
    pub static_weight: Option<i32>,

    /// Priority under `Prioritized`; larger comes earlier, and of several that match a cluster the largest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// Fewest replicas of one cluster, under every policy that divides (not `Duplicated`); of several that match a
    /// cluster the largest counts. Where thresholds and `minReplicas` or `maxReplicas` cannot all hold, the thresholds do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("autoscalingMinThreshold must be between 0 and 10000"))]
    pub autoscaling_min_threshold: Option<i32>,

    /// Most replicas of one cluster, under every policy that divides (not `Duplicated`); of several that match a
    /// cluster the smallest counts, but never less than its fewest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("autoscalingMaxThreshold must be between 0 and 10000"))]
    pub autoscaling_max_threshold: Option<i32>,

    /// Whether the clusters add nodes by themselves, so that their capacity counts as `maxReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<bool>,
}

/// What weighs under `DynamicWeighted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum WeightBy {
    /// How many replicas a cluster can run.
    #[default]
    Capacity,
    /// How much of the demand a cluster has.
    Demand,
}

/// What happens to the replicas of a lost cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum FailurePolicy {
    /// They stay its own.
    #[default]
    Retain,
    /// The others get them.
    Reassign,
}

/// Who puts the workload into the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum WorkloadSource {
    /// Somebody else: GitOps, Karmada, OCM.
    #[default]
    Members,
    /// We do, from the hub's object.
    Hub,
}

/// Where one metric is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricScope {
    /// Identifier of the metric, as status shows it, such as `external.queue_length`.
    #[schemars(length(max = 512))]
    pub metric: String,
    /// `Member` or `Fleet`.
    pub scope: Scope,
}

/// Where a metric is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// In each member, for its own pods.
    #[default]
    Member,
    /// Once, for all pods.
    Fleet,
}

/// What becomes of the members' autoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum DeletionPolicy {
    /// They are removed; adopted ones become what they were.
    #[default]
    Delete,
    /// They stay as they are.
    Retain,
}

/// How fast replicas are moved between clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rebalance {
    /// Seconds between two moves that touch the same cluster. Default 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 3600")
        .message("cooldownSeconds must be between 0 and 3600; 120 is usual"))]
    pub cooldown_seconds: Option<i32>,

    /// How many syncs in a row must see a reason before anything is taken away. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 100")
        .message("settleObservations must be between 1 and 100; 3 is usual"))]
    pub settle_observations: Option<i32>,

    /// Lets `minReplicas` move to where it is needed, from clusters at their minimum whose utilization is below
    /// this percentage of the target. Left out, minimums stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 100")
        .message("minUtilizationPercent must be between 1 and 100; 50 is usual, leave it out to keep minimums where they are"))]
    pub min_utilization_percent: Option<i32>,
}

#[cfg(test)]
mod tests;
