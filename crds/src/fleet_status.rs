//! Status of a `FederatedHPA`: the decision for the fleet, and the share of each cluster with its reason.
//!
//! The fields of the fleet are those of an autoscaler of one cluster. The controller writes the reasons and messages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::EffectiveHorizontalPodAutoscalerStatus;

/// The last decision of the controller for a fleet, and its result.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedHPAStatus {
    /// The decision for the whole fleet; replicas are sums over its clusters.
    #[serde(flatten)]
    pub fleet: EffectiveHorizontalPodAutoscalerStatus,

    /// Part of `maxReplicas` that no cluster can run at present.
    pub unassigned: Option<i32>,

    /// Status of each cluster, by name.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clusters: Option<Vec<ClusterStatus>>,

    /// State of rebalancing that the controller restores after a restart; not for use by others.
    pub ledger: Option<String>,
}

/// Status of one cluster of a fleet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub name: String,

    /// Fewest replicas assigned to the cluster.
    pub min: Option<i32>,

    /// Most replicas assigned to the cluster.
    pub max: Option<i32>,

    /// The cluster's share of the replicas that forecast, cron windows and fleet-wide metrics require.
    pub floor: Option<i32>,

    /// Number of replicas that the workload requests in the cluster.
    pub current: Option<i32>,

    /// Number of ready pods.
    pub ready: Option<i32>,

    /// Number of pods that cannot be scheduled for lack of room.
    pub pending: Option<i32>,

    /// Number of replicas that the cluster can run; absent while unknown.
    pub capacity: Option<i32>,

    /// Demand in the cluster, in percent of the target of its replicas.
    pub utilization: Option<i32>,

    /// Last decision for the cluster, and its reason.
    pub reason: Option<String>,

    /// Time at which replicas were last moved to or from the cluster.
    pub last_transfer: Option<Time>,

    /// Time at which the cluster was last observed.
    pub observed: Option<Time>,
}
