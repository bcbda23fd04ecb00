//! Status of a `FederatedHPA`: the decision for the fleet, and what it means for each cluster.
//!
//! The fleet's part has the fields of an autoscaler of one cluster; each cluster is named and says why it has
//! what it has. Only facts are here: sentences and reasons are made by whoever decides.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::EffectiveHorizontalPodAutoscalerStatus;

/// What the controller decided and did for a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedHPAStatus {
    /// The fleet as one workload; replicas are sums over its clusters.
    #[serde(flatten)]
    pub fleet: EffectiveHorizontalPodAutoscalerStatus,

    /// Replicas of `maxReplicas` that no cluster can take now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unassigned: Option<i32>,

    /// The clusters, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clusters: Option<Vec<ClusterStatus>>,

    /// What rebalancing must remember over a restart, as the controller wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
}

/// One cluster of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub name: String,

    /// Fewest replicas that are assigned to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,

    /// Most replicas that are assigned to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,

    /// Its share of what forecast, cron windows and metrics of the fleet ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<i32>,

    /// Replicas asked for there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<i32>,

    /// Pods that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,

    /// Pods that no node has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<i32>,

    /// Replicas that it can run; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i32>,

    /// Its demand in percent of what its replicas are meant to carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<i32>,

    /// What was decided for it last, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// When replicas were last moved to or from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transfer: Option<Time>,

    /// When it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Time>,
}
