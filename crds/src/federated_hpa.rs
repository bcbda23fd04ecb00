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

use crate::{EffectiveHorizontalPodAutoscalerSpec, FederatedHPAStatus};

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
    doc = "Scales one workload over many clusters: every member cluster is given its part of the replicas, by policy."
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

    /// Seconds for which a cluster may be lost, or have a `NoExecute` taint, before it counts as failed. Default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i32>,

    /// Taints of clusters that are tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_tolerations: Option<Vec<Toleration>>,

    /// Who puts the workload into the members. `Members`: it is there already. `Hub`: the hub's own object,
    /// named by `scaleTargetRef`, is the template. Default `Members`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_source: Option<WorkloadSource>,

    /// Which metrics are measured in each member and which once for the fleet. Default: metrics of type
    /// `External` once, the others in each member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric_scope: Option<Vec<MetricScope>>,

    /// What becomes of the members' HorizontalPodAutoscalers when this object is deleted. Default `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// How fast replicas are moved between clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Rebalance>,
}

/// Which clusters are meant; everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// By the labels of the member's Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<ClusterLabelSelector>,

    /// By `provider`, `region` and `zone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,

    /// By name; empty means every cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_names: Option<Vec<String>>,

    /// Clusters that are never meant, whatever else matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Vec<String>>,
}

/// A label selector on clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,

    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A selector on what a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Requirements; keys are `provider`, `region` and `zone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// How replicas are divided over clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedHPAAssignment {
    /// The policy. `Duplicated`: every cluster gets the whole. `Aggregated`: as few clusters as possible.
    /// `StaticWeighted`: by the weights of the preferences. `DynamicWeighted`: by what each cluster can take.
    /// `Prioritized`: the clusters of highest priority first. Default `Duplicated`.
    #[serde(
        rename = "federatedHPAAssignmentType",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub federated_hpa_assignment_type: Option<AssignmentType>,

    /// Priority, weight and bounds by cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
pub struct TargetClusterAutoscalingPreference {
    /// Which clusters.
    #[serde(default)]
    pub target_cluster: ClusterAffinity,

    /// Weight under `StaticWeighted`; of several that match a cluster the largest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_weight: Option<i32>,

    /// Priority under `Prioritized`; larger comes earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// Fewest replicas of one cluster, under every policy that divides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling_min_threshold: Option<i32>,

    /// Most replicas of one cluster, under every policy that divides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    pub cooldown_seconds: Option<i32>,

    /// How many syncs in a row must see a reason before anything is taken away. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle_observations: Option<i32>,

    /// Lets `minReplicas` move to where it is needed, from clusters at their minimum whose utilization is below
    /// this percentage of the target. Left out, minimums stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_utilization_percent: Option<i32>,
}
