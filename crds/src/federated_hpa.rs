//! `FederatedHPA`: autoscaling of one workload that runs in many clusters.
//!
//! The fields of an [`crate::EffectiveHorizontalPodAutoscaler`], and how its replicas are divided over the member
//! clusters. The other fields have the JSON names of Karmada's proposal; additional ones are optional. Defaults that
//! depend on other fields are left to the validation of the service. The status is [`FederatedHPAStatus`].

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{EffectiveHorizontalPodAutoscalerSpec, FederatedHPAStatus, twins};

const OPERATORS_MESSAGE: &str = "operator must be In, NotIn, Exists or DoesNotExist";
const VALUES_MESSAGE: &str =
    "In and NotIn need at least one of values; Exists and DoesNotExist take none";

/// Spec of a `FederatedHPA`.
#[skip_serializing_none]
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
    doc = "Scales one workload in many clusters, and divides its replicas over the member clusters by a policy.",
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
        description = "Auto scales the workload; Preview only shows the decision.",
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
        name = "CURRENT",
        type_ = "integer",
        json_path = ".status.currentReplicas",
        description = "Replicas that run in all clusters together."
    ),
    printcolumn(
        name = "DESIRED",
        type_ = "integer",
        json_path = ".status.expectReplicas",
        description = "Replicas decided in all clusters together; Preview does not scale to them."
    ),
    printcolumn(
        name = "UNASSIGNED",
        type_ = "integer",
        json_path = ".status.unassigned",
        description = "Part of MAXPODS that no cluster can run at present.",
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
#[x_kube(
    validation = Rule::new(twins::NOT_METRIC)
        .message("a FederatedHPA has no mode Metric: the metrics of forecasts and crons are those of one cluster; use Delegated or Direct")
        .field_path(".mode")
)]
pub struct FederatedHPASpec {
    /// Autoscaling of the fleet as a whole.
    #[serde(flatten)]
    pub autoscaling: EffectiveHorizontalPodAutoscalerSpec,

    /// Clusters that may run the workload. Default: all members.
    pub cluster_affinity: Option<ClusterAffinity>,

    /// Seconds for which pods of a cluster must be unschedulable before their replicas move to other clusters: time
    /// for a cluster autoscaler to add nodes. Default 60.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 3600")
        .message("autoscaleMultiClusterDelay must be between 0 and 3600 seconds; 60 is usual, 300 where nodes are added on demand"))]
    pub autoscale_multi_cluster_delay: Option<i32>,

    /// Allows a cluster to have no replicas while other clusters serve. Default false.
    pub scaling_to_zero: Option<bool>,

    /// Division of `minReplicas`, `maxReplicas` and the replicas of forecasts over clusters.
    #[serde(rename = "federatedHPAAssignment", default)]
    pub federated_hpa_assignment: FederatedHPAAssignment,

    /// Treatment of the replicas of an unreachable cluster. `Retain`: they stay assigned to it. `Reassign`: they are
    /// assigned to other clusters after `tolerationSeconds`. Default `Retain`.
    pub failure_policy: Option<FailurePolicy>,

    /// Seconds for which a cluster may be unreachable before it counts as failed. Default 300.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 86400")
        .message("tolerationSeconds must be between 0 and 86400 (a day); 300 is usual"))]
    pub toleration_seconds: Option<i32>,

    /// Taints of clusters that are tolerated, as pods tolerate taints of nodes. The taints of a cluster are in the
    /// annotation `foretide.io/taints` of its Secret.
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(twins::TOLERATION_OPERATORS).message("operator of a toleration must be Equal or Exists"),
        validation = Rule::new(twins::TOLERATION_VALUES).message("a toleration compares a key and a value, or has the operator Exists and no value"),
        validation = Rule::new(twins::TOLERATION_EFFECTS).message("effect of a toleration must be NoSchedule, PreferNoSchedule or NoExecute; leave it out to tolerate all"),
        validation = Rule::new(twins::TOLERATION_SECONDS).message("tolerationSeconds of a toleration needs the effect NoExecute, the only one that ends")
    )]
    pub cluster_tolerations: Option<Vec<Toleration>>,

    /// Creator of the workload in the clusters. `Members`: it exists there already. `Hub`: the controller creates it
    /// from the object in the hub cluster that `scaleTargetRef` names. Default `Members`.
    pub workload_source: Option<WorkloadSource>,

    /// Scope of each metric: measured in each cluster, or once for the fleet. Default: metrics of type `External` once,
    /// the others in each cluster.
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["metric".into()]),
        validation = Rule::new(twins::SCOPED_METRICS)
            .message("each metric has one scope; remove the repeated one")
    )]
    pub metric_scope: Option<Vec<MetricScope>>,

    /// Treatment of the HorizontalPodAutoscalers in the clusters when this object is deleted. `Delete`: they are deleted,
    /// and adopted ones are restored to their original spec. `Retain`: they are kept unchanged. Default `Delete`.
    pub deletion_policy: Option<DeletionPolicy>,

    /// Limits on moves of replicas between clusters.
    pub rebalance: Option<Rebalance>,
}

/// Selects clusters; all fields that are set must match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Selects by the labels of the cluster's Secret.
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub label_selector: Option<ClusterLabelSelector>,

    /// Selects by `provider`, `region` and `zone`, which are the labels `foretide.io/provider`, `foretide.io/region`
    /// and `foretide.io/zone` of the cluster's Secret.
    #[x_kube(merge_strategy = StructMerge::Atomic)]
    pub field_selector: Option<FieldSelector>,

    /// Names of the selected clusters; empty selects every cluster.
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub cluster_names: Option<Vec<String>>,

    /// Names of clusters that are never selected, even if the other fields match.
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub exclude: Option<Vec<String>>,
}

/// A label selector on clusters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLabelSelector {
    /// Labels that must have these values.
    #[schemars(extend("maxProperties" = 16))]
    pub match_labels: Option<BTreeMap<String, String>>,

    /// Requirements on labels.
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(twins::OPERATORS).message(OPERATORS_MESSAGE),
        validation = Rule::new(twins::VALUES).message(VALUES_MESSAGE)
    )]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A selector on the provider, region and zone of a cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Requirements; keys are `provider`, `region` and `zone`. If a cluster has several zones, `In` matches if one of
    /// them is listed, and `NotIn` if none is.
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(twins::KEYS)
            .message("key of a fieldSelector must be provider, region or zone; for anything else use labelSelector"),
        validation = Rule::new(twins::OPERATORS).message(OPERATORS_MESSAGE),
        validation = Rule::new(twins::VALUES).message(VALUES_MESSAGE)
    )]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// Division of replicas over clusters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(twins::PRIORITIZED)
        .message("Prioritized needs the priority of at least one cluster; add it to clusterAutoscalingPreference")
        .field_path(".clusterAutoscalingPreference")
)]
pub struct FederatedHPAAssignment {
    /// Assignment policy. `Duplicated`: every cluster has the full `minReplicas` and `maxReplicas`. `Aggregated`: as
    /// few clusters as possible. `StaticWeighted`: by `staticWeight`. `DynamicWeighted`: by capacity or demand, see
    /// `weightBy`. `Prioritized`: clusters with the highest `priority` first. Default `Duplicated`.
    #[serde(rename = "federatedHPAAssignmentType")]
    #[schemars(extend("default" = "Duplicated"))]
    pub federated_hpa_assignment_type: Option<AssignmentType>,

    /// Priority, weight and limits by cluster. `StaticWeighted` assigns nothing to clusters without a weight; if no
    /// cluster has a weight, all weigh the same. `Prioritized` assigns nothing to clusters without a priority.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub cluster_autoscaling_preference: Option<Vec<TargetClusterAutoscalingPreference>>,

    /// Weight of a cluster under `DynamicWeighted`: `Capacity`, the replicas that it can run, or `Demand`, its part of
    /// the demand. Default `Capacity`.
    pub weight_by: Option<WeightBy>,
}

/// The assignment policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum AssignmentType {
    /// Every cluster has the full bounds.
    #[default]
    Duplicated,
    /// Replicas in as few clusters as possible.
    Aggregated,
    /// Replicas by configured weights.
    StaticWeighted,
    /// Replicas by capacity or demand.
    DynamicWeighted,
    /// Replicas in the clusters of the highest priority first.
    Prioritized,
}

/// Priority, weight and limits of the selected clusters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(twins::THRESHOLDS)
        .message("autoscalingMinThreshold must not exceed autoscalingMaxThreshold; lower the first or raise the second")
        .field_path(".autoscalingMinThreshold")
)]
pub struct TargetClusterAutoscalingPreference {
    /// Clusters that this entry applies to; `{}` selects every one.
    pub target_cluster: ClusterAffinity,

    /// Weight under `StaticWeighted`. If several entries match a cluster, the largest weight applies. A cluster of
    /// weight 0 gets only replicas that the others cannot run.
    #[x_kube(validation = Rule::new("self >= 0")
        .message("staticWeight must be 0 or more; 0 is for clusters that get only what the others cannot take"))]
    pub static_weight: Option<i32>,

    /// Priority under `Prioritized`; clusters with a larger one are used first. If several entries match a cluster, the
    /// largest priority applies.
    pub priority: Option<i32>,

    /// Fewest replicas of one cluster, under every policy except `Duplicated`. If several entries match a cluster, the
    /// largest value applies. If thresholds conflict with `minReplicas` or `maxReplicas`, the thresholds take
    /// precedence.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("autoscalingMinThreshold must be between 0 and 10000"))]
    pub autoscaling_min_threshold: Option<i32>,

    /// Most replicas of one cluster, under every policy except `Duplicated`. If several entries match a cluster, the
    /// smallest value applies, but at least its `autoscalingMinThreshold`.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("autoscalingMaxThreshold must be between 0 and 10000"))]
    pub autoscaling_max_threshold: Option<i32>,

    /// True if the clusters add nodes automatically; their capacity then counts as `maxReplicas`.
    pub elastic: Option<bool>,
}

/// Weight of a cluster under `DynamicWeighted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum WeightBy {
    /// The number of replicas that a cluster can run.
    #[default]
    Capacity,
    /// The part of the demand that a cluster has.
    Demand,
}

/// Treatment of the replicas of an unreachable cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum FailurePolicy {
    /// The replicas stay assigned to the cluster.
    #[default]
    Retain,
    /// The replicas are assigned to other clusters.
    Reassign,
}

/// Creator of the workload in the clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum WorkloadSource {
    /// Another system, such as GitOps, Karmada or OCM.
    #[default]
    Members,
    /// The controller, from the object in the hub cluster.
    Hub,
}

/// Scope in which one metric is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricScope {
    /// Identifier of the metric as in the status, such as `external.queue_length`.
    #[schemars(length(max = 512))]
    pub metric: String,
    /// `Member`: measured in each cluster. `Fleet`: measured once.
    pub scope: Scope,
}

/// Scope in which a metric is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Measurement in each cluster, for its own pods.
    #[default]
    Member,
    /// One measurement for all pods.
    Fleet,
}

/// Treatment of the HorizontalPodAutoscalers in the clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum DeletionPolicy {
    /// The HorizontalPodAutoscalers are deleted; adopted ones are restored to their original spec.
    #[default]
    Delete,
    /// The HorizontalPodAutoscalers are kept unchanged.
    Retain,
}

/// Limits on moves of replicas between clusters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rebalance {
    /// Least seconds between two moves of replicas to or from the same cluster. Default 120.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 3600")
        .message("cooldownSeconds must be between 0 and 3600; 120 is usual"))]
    pub cooldown_seconds: Option<i32>,

    /// Number of consecutive syncs with a reason to move replicas before they are taken from a cluster. Default 3.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 100")
        .message("settleObservations must be between 1 and 100; 3 is usual"))]
    pub settle_observations: Option<i32>,

    /// Utilization, in percent of the target, below which a cluster at its minimum gives part of `minReplicas` to
    /// clusters that need it. If not set, minimums are not moved.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 100")
        .message("minUtilizationPercent must be between 1 and 100; 50 is usual, leave it out to keep minimums where they are"))]
    pub min_utilization_percent: Option<i32>,
}

#[cfg(test)]
mod tests;
