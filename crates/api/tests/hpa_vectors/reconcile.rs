//! Whole passes, with what the API server answers.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::{
    Labels, Reading, ReplicaBounds, Replicas, Requirement, Scale, Selector,
    hpa::{ConditionReason, Hpa, Log, MetricKind, MetricSpec, Settings, Target, Verdict},
    observation::{Cause, Measured, Pod, Unavailable},
};
use serde_json::{Value, json};

use crate::{
    Config, History, NOW, behavior,
    calculator::{Item, PodRow},
    condition,
    controller::{
        Applied, Condition, ControllerPass, ErrorKind, HpaStatus, INTERNAL, Reads,
        SCALE_UPDATE_ATTEMPTS, SCALED_TO_ZERO, UNCHANGED, direction, origin,
    },
    status,
    vectors::{Fallible, shapes},
    with_log, workload, zero_rule,
};

shapes! {
    ZeroReplicas {
        gate: bool, scaled_to_zero_condition: Option<String>, min_replicas: i32,
        has_object_or_external_metric: bool,
    }
    Pass {
        config: Option<Config>, hpa: Autoscaler, scale: ScaleRow, pods: Vec<PodRow> = default,
        other_hpas: Vec<OtherHpa> = default, history: History = default, metrics_apis: MetricsApis = default,
    }
    Autoscaler {
        min_replicas: Option<i32>, max_replicas: i32, metrics: Vec<Value> = default, behavior: Option<Value>,
        initial_conditions: Option<Vec<ConditionRow>>, status_current_replicas: i32 = default,
        status_desired_replicas: i32 = default,
    }
    ConditionRow { kind: String = rename = "type", status: String, reason: String }
    ScaleRow {
        spec_replicas: i32, status_replicas: Option<i32>, selector: String = default, get_error: Option<String>,
        update_error: Option<String>, update_conflicts_before_success: u32 = default,
    }
    OtherHpa { _name: String = rename = "name", match_labels: Labels = default }
    #[derive(Default)]
    MetricsApis {
        resource: Vec<Item> = default, resource_error: Option<String>, custom_pods: Vec<Item> = default,
        custom_object_value_milli: Option<i64>, custom_error: Option<String>,
        external_values_milli: Vec<i64> = default, external_error: Option<String>,
    }
}

/// Through a whole pass at zero replicas, whose verdict tells whether metrics were computed.
pub(crate) fn zero_replicas(row: ZeroReplicas) -> Fallible<Value> {
    let settings = Settings {
        zero: zero_rule(row.gate, None)?,
        ..Settings::default()
    };
    let target = json!({"type": "AverageValue", "averageValue": "1"});
    let (kind, field) = if row.has_object_or_external_metric {
        ("External", "external")
    } else {
        ("Pods", "pods")
    };
    let metric = json!({"type": kind, field: {"metric": {"name": "qps"}, "target": target}});
    let spec = Hpa {
        bounds: ReplicaBounds::new(Replicas::from_i32(row.min_replicas), Replicas::new(10)),
        metrics: &[metric_spec(&metric)],
        behavior: None,
    };
    let condition = row.scaled_to_zero_condition.map(|word| -> Fallible<_> {
        Ok(Condition {
            kind: SCALED_TO_ZERO,
            status: status(&word)?,
            reason: "ScaledToZero",
        })
    });
    let reads = Reads {
        scale: Ok(Scale::default()),
        selector: Ok(()),
        pods: &[],
        readings: &[],
        conditions: &condition.transpose()?.into_iter().collect(),
    };
    let pass = ControllerPass::run(&spec, &reads, &Log::default(), &settings, NOW);
    let computed = pass
        .computed
        .is_some_and(|computed| computed.verdict != Verdict::Disabled);
    Ok(json!({"compute_metrics": computed}))
}

/// A metric; what a user may not write is of no use.
fn metric_spec(written: &Value) -> MetricSpec {
    let read = workload("metrics", &json!([written])).ok();
    let read = read.and_then(|workload| workload.metrics.into_iter().next());
    read.unwrap_or(MetricSpec::Resource {
        name: "cpu".into(),
        target: Target::Unusable,
    })
}

impl Autoscaler {
    /// The status before the pass.
    fn previous(&self) -> Fallible<HpaStatus> {
        let conditions = self.initial_conditions.iter().flatten();
        let conditions = conditions.map(|row| -> Fallible<_> {
            let known = Condition::known(&row.kind, status(&row.status)?, &row.reason);
            Ok(known.ok_or("unknown condition")?)
        });
        Ok(HpaStatus {
            current: Replicas::from_i32(self.status_current_replicas),
            desired: Replicas::from_i32(self.status_desired_replicas),
            conditions: conditions.collect::<Fallible<_>>()?,
        })
    }
}

impl ScaleRow {
    fn read(&self) -> Result<Scale, ErrorKind> {
        let status = self.status_replicas.unwrap_or(self.spec_replicas);
        match self.get_error {
            Some(_) => Err(INTERNAL),
            None => Ok(Scale {
                spec: Replicas::from_i32(self.spec_replicas),
                status: Replicas::from_i32(status),
            }),
        }
    }

    fn write(&self) -> Applied {
        let conflicts = self.update_conflicts_before_success;
        if self.update_error.is_some() || conflicts >= SCALE_UPDATE_ATTEMPTS {
            Applied::Failed
        } else {
            Applied::Written
        }
    }
}

/// Whether a selector selects the pods of one workload, and these pods.
type Selection = (Result<(), ConditionReason>, Vec<Arc<Pod>>);

fn select(selector: &str, pods: Vec<PodRow>, others: Vec<OtherHpa>) -> Fallible<Selection> {
    let others = others.into_iter().map(|row| {
        let equal = row
            .match_labels
            .into_iter()
            .map(|(k, v)| Requirement::Equal(k, v));
        equal.collect::<Selector>()
    });
    let others: Vec<_> = others.collect();
    let all = pods.into_iter().map(PodRow::read);
    let all: Vec<_> = all.collect::<Fallible<_>>()?;
    let selector = match selector.parse::<Selector>() {
        Ok(selector) if selector != Selector::default() => selector,
        _ => return Ok((Err(ConditionReason::InvalidSelector), Vec::new())),
    };
    let (mut selection, mut selected) = (Ok(()), Vec::new());
    for (labels, pod) in all
        .into_iter()
        .filter(|(labels, _)| selector.matches(labels))
    {
        if others.iter().any(|other| other.matches(&labels)) {
            selection = Err(ConditionReason::AmbiguousSelector);
        }
        selected.push(pod);
    }
    Ok((selection, selected))
}

impl MetricsApis {
    /// What they answer for each of these metrics.
    fn readings(self, metrics: &[MetricSpec]) -> Vec<Reading> {
        let usage: Vec<_> = self
            .resource
            .into_iter()
            .map(|item| item.usage("", ""))
            .collect();
        let samples: Vec<_> = self.custom_pods.into_iter().map(Item::sample).collect();
        let object: Vec<_> = self.custom_object_value_milli.into_iter().collect();
        let totals = self.external_values_milli;
        let (resource, custom) = (self.resource_error, self.custom_error);
        let reading = metrics.iter().map(|metric| {
            let (error, measured) = match metric.kind() {
                MetricKind::Resource | MetricKind::ContainerResource => {
                    (&resource, Measured::Usage(usage.clone()))
                }
                MetricKind::Pods => (&custom, Measured::Samples(samples.clone())),
                MetricKind::Object => (&custom, Measured::Total(object.clone())),
                MetricKind::External => (&self.external_error, Measured::Total(totals.clone())),
                MetricKind::Unknown => (&None, Measured::Total(totals.clone())),
            };
            match error {
                Some(message) => Err(Unavailable::new(Cause::NotRead, message)),
                None => Ok(measured),
            }
        });
        reading.collect()
    }
}

pub(crate) fn reconcile(row: Pass) -> Fallible<Value> {
    let settings = row
        .config
        .map(|config| config.settings())
        .transpose()?
        .unwrap_or_default();
    let min = Replicas::from_i32(row.hpa.min_replicas.unwrap_or(1));
    let metrics: Vec<_> = row.hpa.metrics.iter().map(metric_spec).collect();
    let behavior = row.hpa.behavior.as_ref().map(behavior).transpose()?;
    let spec = Hpa {
        bounds: ReplicaBounds::new(min, Replicas::from_i32(row.hpa.max_replicas)),
        metrics: &metrics,
        behavior: behavior.as_ref(),
    };
    let previous = row.hpa.previous()?;
    let (selector, pods) = select(&row.scale.selector, row.pods, row.other_hpas)?;
    let reads = Reads {
        scale: row.scale.read(),
        selector,
        pods: &pods,
        readings: &row.metrics_apis.readings(&metrics),
        conditions: &previous.conditions,
    };
    let pass = ControllerPass::run(&spec, &reads, &row.history.into(), &settings, NOW);
    let pass = pass.applied(&spec, &settings, row.scale.write(), NOW);
    let after = pass.status(&previous);
    let conditions = after.conditions.0.iter();
    let conditions = conditions.map(|c| condition(c.kind, c.status, c.reason));
    let result = json!({
        "desired_replicas": after.desired.as_i32(),
        "conditions": conditions.collect::<Vec<_>>(),
        "scale_updated": pass.applied == Some(Applied::Written),
        "status_written": after != previous,
        "reconcile_action": pass.action(),
        "reconcile_error": pass.error().unwrap_or(UNCHANGED),
    });
    Ok(with_metrics(
        with_log(result, &pass.log),
        &metrics,
        &pass,
        &previous,
    ))
}

/// Adds what came of each metric to a result.
fn with_metrics(
    mut result: Value,
    metrics: &[MetricSpec],
    pass: &ControllerPass,
    previous: &HpaStatus,
) -> Value {
    let (mut actions, mut errors) = (BTreeMap::new(), BTreeMap::new());
    let mut cpu = None;
    for (metric, proposal) in metrics.iter().zip(pass.proposals()) {
        let kind = match metric {
            MetricSpec::Unknown(kind) => kind.as_str(),
            known => known.kind().as_str(),
        };
        let action = match proposal {
            Ok(proposal) => direction(previous.current, proposal.replicas),
            Err(_) => UNCHANGED,
        };
        actions.insert(kind, action);
        let error = proposal.as_ref().err();
        errors.insert(kind, error.map_or(UNCHANGED, |e| origin(e.reason)));
        if matches!(metric, MetricSpec::Resource { name, .. } if name == "cpu") && cpu.is_none() {
            let value = proposal.as_ref().ok().map(|proposal| &proposal.value);
            cpu = Some(value.and_then(|value| value.average_utilization));
        }
    }
    result["metric_actions"] = json!(actions);
    result["metric_errors"] = json!(errors);
    result["cpu_utilization"] = json!(cpu.flatten());
    result
}
