//! Affinity to clusters, their state, and quotas.

use std::collections::BTreeMap;

use foretide_domain::{Labels, Replicas, Requirement, observation::Requests, quantity::Quantity};
use foretide_federate::{Affinity, PodShape, Pods, Profile, Quota, Supply};
use serde::Deserialize;

use crate::{
    Counts, n,
    vectors::{Fallible, Outcome, RAN, same, shapes},
};

const SCOPES: &str = "several selectors of one scope: upstream joins them by or, Kubernetes by and";

shapes! {
    ToMatch { affinity: AffinityRow }
    #[serde(rename_all = "camelCase")]
    AffinityRow {
        cluster_names: Vec<String> = default, exclude_clusters: Vec<String> = default,
        label_selector: SelectorRow = default, field_selector: SelectorRow = default,
    }
    #[derive(Default)]
    #[serde(rename_all = "camelCase")]
    SelectorRow { match_labels: Labels = default, match_expressions: Vec<ExpressionRow> = default }
    ExpressionRow {
        key: String = alias = "scopeName", operator: String = default, values: Vec<String> = default,
    }

    #[serde(rename_all = "camelCase")]
    Clusters { clusters: BTreeMap<String, State>, unschedulable_threshold_seconds: u64 }
    #[serde(rename_all = "camelCase")]
    State { spec_replicas: u32, ready_replicas: u32, pods: Option<Vec<PodState>> }
    PodState { _phase: String = rename = "phase", conditions: Vec<Condition> }
    Waits {
        _kind: String = rename = "type", _status: String = rename = "status", reason: String,
        seconds: u64 = rename = "ageSeconds",
    }
    #[serde(rename_all = "camelCase")]
    Places { current: Counts, estimated_capacity: Counts }

    #[serde(rename_all = "camelCase")]
    Estimate {
        _enabled: bool = rename = "enabled", request: Needs, quotas: Vec<QuotaRow>,
        assumed_workloads: Vec<Assumed>,
    }
    #[serde(rename_all = "camelCase")]
    Needs {
        _namespace: Option<String> = rename = "namespace", priority_class_name: String,
        resource_request: Amounts,
    }
    #[serde(rename_all = "camelCase")]
    QuotaRow { object_meta: Meta, spec: QuotaSpec, status: QuotaStatus = default }
    Meta { _name: String = rename = "name", namespace: String }
    #[serde(rename_all = "camelCase")]
    QuotaSpec { _hard: Option<Amounts> = rename = "hard", scope_selector: SelectorRow = default }
    #[derive(Default)]
    QuotaStatus { hard: Amounts, used: Amounts }
    Assumed { namespace: String, components: Vec<Component> }
    #[serde(rename_all = "camelCase")]
    Component { _name: String = rename = "name", replicas: i64, replica_requirements: Needs }
}

type Amounts = BTreeMap<String, String>;

/// A condition that holds, or all of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Condition {
    #[expect(dead_code, reason = "no pod waits for one that holds")]
    Holds(String),
    Of(Waits),
}

impl SelectorRow {
    fn requirements(&self) -> Vec<Requirement> {
        let labels = self.match_labels.iter();
        let labels = labels.map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]));
        let expressions = self
            .match_expressions
            .iter()
            .map(ExpressionRow::requirement);
        labels.chain(expressions).collect()
    }
}

impl ExpressionRow {
    /// A missing operator is `In` without values.
    fn requirement(&self) -> Requirement {
        let key = self.key.clone();
        match self.operator.as_str() {
            "NotIn" => Requirement::NotIn(key, self.values.clone()),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::DoesNotExist(key),
            _ => Requirement::In(key, self.values.clone()),
        }
    }
}

pub(crate) fn cluster_affinity(input: ToMatch, expected: bool) -> Outcome {
    let row = input.affinity;
    let affinity = Affinity {
        names: row.cluster_names,
        exclude: row.exclude_clusters,
        labels: row.label_selector.requirements().into_iter().collect(),
        fields: row.field_selector.requirements(),
    };
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let cluster = Profile {
        name: "cluster1".to_owned(),
        labels: Labels::from([("foo".to_owned(), "bar".to_owned())]),
        provider: "provider1".to_owned(),
        region: "region1".to_owned(),
        zones: text(&["zone1", "zone2", "zone3"]),
    };
    same("matches", affinity.matches(&cluster), expected)?;
    RAN
}

/// What a cluster is known to have room for: the replicas that have a place, where some have none.
pub(crate) fn replica_state(input: Clusters, expected: Places) -> Outcome {
    let (mut current, mut capacity) = (Counts::new(), Counts::new());
    for (name, cluster) in input.clusters {
        let mut waiting = 0;
        for condition in cluster
            .pods
            .iter()
            .flatten()
            .flat_map(|pod| &pod.conditions)
        {
            if let Condition::Of(one) = condition {
                let is_long = one.seconds > input.unschedulable_threshold_seconds;
                waiting += u32::from(one.reason == "Unschedulable" && is_long);
            }
        }
        let pods = Pods {
            replicas: n(cluster.spec_replicas),
            ready: n(cluster.ready_replicas),
            unschedulable: n(waiting),
            unschedulable_since: None,
        };
        current.insert(name.clone(), pods.ready.get());
        if waiting > 0 {
            capacity.insert(name, pods.placed().get());
        }
    }
    same("current", current, expected.current)?;
    same("capacity", capacity, expected.estimated_capacity)?;
    RAN
}

fn amounts(row: &Amounts) -> Fallible<Requests> {
    let milli = row.iter().map(|(name, text)| -> Fallible<_> {
        Ok((name.as_str(), text.parse::<Quantity>()?.milli_value().value))
    });
    milli.collect()
}

impl Needs {
    fn shape(&self) -> Fallible<PodShape> {
        Ok(PodShape {
            requests: amounts(&self.resource_request)?,
            priority_class: self.priority_class_name.clone(),
            ..PodShape::default()
        })
    }
}

/// With what is assumed to come as used: replicas that are placed and not yet counted.
pub(crate) fn quota(input: Estimate, expected: u32) -> Outcome {
    let mut quotas = Vec::new();
    for row in input.quotas {
        let mut quota = Quota {
            hard: amounts(&row.status.hard)?,
            used: amounts(&row.status.used)?,
            scopes: row.spec.scope_selector.requirements(),
        };
        let of_class = quota
            .scopes
            .iter()
            .filter(|scope| scope.key() == "PriorityClass");
        if of_class.count() > 1 {
            return Ok(Err(SCOPES));
        }
        let assumed = input.assumed_workloads.iter();
        let assumed = assumed.filter(|assumed| assumed.namespace == row.object_meta.namespace);
        for component in assumed.flat_map(|assumed| &assumed.components) {
            let shape = component.replica_requirements.shape()?;
            if quota.counts(&shape.priority_class) {
                let used = quota.used.iter().map(|(name, used)| {
                    let more = shape.requests.get(name).unwrap_or_default() * component.replicas;
                    (name.to_owned(), used + more)
                });
                quota.used = used.collect();
            }
        }
        quotas.push(quota);
    }
    let shape = input.request.shape()?;
    let room = quotas.iter().filter_map(|quota| quota.room(&shape)).min();
    same("room", room.unwrap_or(Replicas::MAX).get(), expected)?;
    // A quota bounds a cluster that has nodes enough.
    let supply = Supply {
        quotas,
        ..Supply::default()
    };
    same("room without nodes", supply.capacity(&shape).replicas, n(0))?;
    RAN
}
