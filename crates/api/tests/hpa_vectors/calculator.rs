//! The replica calculator: counts per metric, groups of pods, requests, ratios and quantities.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foretide_domain::{
    Labels, Replicas, Scale,
    hpa::{self, Sample, Settings},
    observation::{
        Container, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness,
    },
    quantity::{Format, Quantity},
};
use serde_json::{Value, json};

use crate::{
    Config, NOW, ago, seconds, status,
    vectors::{Fallible, same, shapes},
    workload,
};

type Amounts = BTreeMap<String, i64>;

shapes! {
    PodRow {
        name: String, labels: Labels = default, phase: String, deleting: bool = default,
        ready_condition: Option<Ready>, start_age_s: Option<f64>, containers: Vec<ContainerRow> = default,
        init_containers: Vec<InitContainer> = default, pod_level_requests_milli: Option<Amounts>,
    }
    Ready { status: String, transition_age_s: Option<f64> }
    ContainerRow { name: String, requests_milli: Amounts = default }
    InitContainer { name: String, requests_milli: Amounts = default, restart_policy: Option<String> }

    /// One item of a metrics answer: by container, or one value.
    Item {
        pod: String, age_s: f64 = default, window_s: Option<f64>, value_milli: Option<i64>,
        containers: Vec<Usage> = default,
    }
    Usage { name: String, usage_milli: Amounts = default }

    Calculation {
        function: String, current_replicas: i32, resource: String = default, container: String = default,
        target_utilization: i32 = default, target_milli: i64 = default, pod_metrics: Vec<Item> = default,
        pod_totals: Vec<Item> = default, values_milli: Vec<i64> = default, tolerance_up: Option<f64>,
        tolerance_down: Option<f64>, config: Config = default, pods: Vec<PodRow> = default,
    }
    Grouping {
        resource: String, config: Config = default, pods: Vec<PodRow> = default, metrics: Vec<Item> = default,
    }
    RequestsOf {
        resource: String, container: Option<String>, pod_level_resources_enabled: bool = default,
        pods: Vec<PodRow> = default,
    }
    Ratio { function: String, metrics: Amounts, requests: Amounts = default, target: i64 }

    /// Where the thousandths overflow, ours end at the bounds of the type, and upstream's wrap.
    Parsed { text: String, overflow: bool = default, _upstream: Option<i64> = rename = "upstream_milli_value" }
    Built { resource: String, raw_milli: i64 }
}

// ---------------------------------------------------------------- pods and what is measured of them

fn phase(word: &str) -> Fallible<Phase> {
    Ok(match word {
        "Pending" => Phase::Pending,
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        "" | "Unknown" => Phase::Unknown,
        other => return Err(format!("unknown phase {other:?}").into()),
    })
}

impl PodRow {
    pub(crate) fn read(self) -> Fallible<(Labels, Arc<Pod>)> {
        let own = self.containers.into_iter();
        let sidecars = self.init_containers.into_iter();
        let sidecars = sidecars.filter(|row| row.restart_policy.as_deref() == Some("Always"));
        let containers = own.map(|row| (row.name, row.requests_milli));
        let containers = containers.chain(sidecars.map(|row| (row.name, row.requests_milli)));
        let containers = containers.map(|(name, milli)| Container {
            name: name.into(),
            requests: milli.into_iter().collect(),
        });
        let ready = self.ready_condition.map(|row| -> Fallible<_> {
            Ok(Readiness {
                status: status(&row.status)?,
                since: ago(row.transition_age_s.unwrap_or(1e10)),
            })
        });
        let requests = self.pod_level_requests_milli;
        let pod = Pod {
            name: self.name.into(),
            phase: phase(&self.phase)?,
            deleting: self.deleting,
            created: None,
            ready: ready.transpose()?,
            started: self.start_age_s.map(ago),
            containers: containers.collect(),
            pod_level_requests: requests.map(|milli| milli.into_iter().collect()),
        };
        Ok((self.labels, Arc::new(pod)))
    }
}

/// Pods of which nothing is selected.
fn unlabelled(rows: Vec<PodRow>) -> Fallible<Vec<Arc<Pod>>> {
    let pods = rows.into_iter().map(|row| match row.read()? {
        (labels, pod) if labels.is_empty() => Ok(pod),
        (labels, _) => Err(format!("no check reads {labels:?}").into()),
    });
    pods.collect()
}

impl Item {
    pub(crate) fn sample(self) -> PodSample {
        PodSample {
            pod: self.pod.into(),
            value: self.value_milli.unwrap_or_default(),
            at: ago(self.age_s),
            window: seconds(self.window_s.unwrap_or(60.0)),
        }
    }

    /// The usage of the pod; a value that is already summed stands for the usage of one container.
    pub(crate) fn usage(mut self, resource: &str, container: &str) -> Arc<PodUsage> {
        let summed = self.value_milli.map(|milli| Usage {
            name: container.to_owned(),
            usage_milli: Amounts::from([(resource.to_owned(), milli)]),
        });
        let containers = std::mem::take(&mut self.containers).into_iter();
        let containers = containers.chain(summed).map(|row| ContainerUsage {
            name: row.name.into(),
            usage: row.usage_milli.into_iter().collect(),
        });
        let containers = containers.collect();
        let sample = self.sample();
        Arc::new(PodUsage {
            pod: sample.pod,
            at: sample.at,
            window: sample.window,
            containers,
        })
    }
}

// ---------------------------------------------------------------- counts

/// The metric that the function of a row calculates, as a user writes it.
fn metric(row: &Calculation) -> Fallible<Value> {
    let milli = format!("{}m", row.target_milli);
    let average = json!({"type": "AverageValue", "averageValue": milli});
    let total = json!({"type": "Value", "value": milli});
    let percent = json!({"type": "Utilization", "averageUtilization": row.target_utilization});
    let object = json!({"apiVersion": "v1", "kind": "Thing", "name": "it"});
    let (kind, field, target) = match &*row.function {
        "GetResourceReplicas" => ("Resource", "resource", percent),
        "GetRawResourceReplicas" => ("Resource", "resource", average),
        "GetMetricReplicas" => ("Pods", "pods", average),
        "GetObjectMetricReplicas" => ("Object", "object", total),
        "GetObjectPerPodMetricReplicas" => ("Object", "object", average),
        "GetExternalMetricReplicas" => ("External", "external", total),
        "GetExternalPerPodMetricReplicas" => ("External", "external", average),
        other => return Err(format!("unknown function {other:?}").into()),
    };
    let (name, container) = (&row.resource, &row.container);
    Ok(match kind {
        "Resource" if container.is_empty() => {
            json!({"type": kind, field: {"name": name, "target": target}})
        }
        "Resource" => json!({
            "type": "ContainerResource",
            "containerResource": {"name": name, "container": container, "target": target},
        }),
        "Object" => json!({
            "type": kind,
            field: {"describedObject": object, "metric": {"name": "qps"}, "target": target},
        }),
        _ => json!({"type": kind, field: {"metric": {"name": "qps"}, "target": target}}),
    })
}

pub(crate) fn calculator(row: Calculation) -> Fallible<Value> {
    let settings = row.config.settings()?;
    let metrics = workload("metrics", &json!([metric(&row)?]))?.metrics;
    let items = row.pod_metrics.into_iter().chain(row.pod_totals);
    let measured = match &*row.function {
        "GetResourceReplicas" | "GetRawResourceReplicas" => {
            let usage = items.map(|item| item.usage(&row.resource, &row.container));
            Measured::Usage(usage.collect())
        }
        "GetMetricReplicas" => Measured::Samples(items.map(Item::sample).collect()),
        _ => Measured::Total(row.values_milli),
    };
    let pods = unlabelled(row.pods)?;
    let current = Replicas::from_i32(row.current_replicas);
    let context = hpa::MetricContext {
        scale: Scale {
            spec: current,
            status: current,
        },
        unseen: Replicas::ZERO,
        undelivered: Replicas::ZERO,
        pods: &pods,
        tolerance: hpa::Tolerance {
            down: row.tolerance_down.unwrap_or(settings.tolerance),
            up: row.tolerance_up.unwrap_or(settings.tolerance),
        },
        settings: &settings,
        now: NOW,
    };
    Ok(match hpa::propose(&metrics[0], &Ok(measured), &context) {
        Ok(got) => json!({
            "replicas": got.replicas.as_i32(),
            "utilization": got.value.average_utilization,
            "raw_value_milli": got.value.average_value,
            "usage_milli": got.value.value.or(got.value.average_value),
        }),
        Err(e) => json!({"error": e.message}),
    })
}

// ---------------------------------------------------------------- its parts

pub(crate) fn group_pods(row: Grouping) -> Fallible<Value> {
    let (settings, pods) = (row.config.settings()?, unlabelled(row.pods)?);
    let samples: Vec<_> = row.metrics.into_iter().map(Item::sample).collect();
    let samples = samples.iter().map(|sample| {
        let (value, at, window) = (sample.value, sample.at, sample.window);
        (&*sample.pod, Sample { value, at, window })
    });
    let samples: HashMap<_, _> = samples.collect();
    let got = hpa::group_pods(&pods, samples, row.resource == "cpu", &settings, NOW);
    let [unready, missing, ignored] = [got.unready, got.missing, got.ignored].map(|pods| {
        let mut names: Vec<_> = pods.iter().map(|pod| pod.name.to_string()).collect();
        names.sort();
        names
    });
    let ready = got.ready.len();
    Ok(json!({"ready_count": ready, "unready": unready, "missing": missing, "ignored": ignored}))
}

pub(crate) fn calculate_requests(row: RequestsOf) -> Fallible<Value> {
    let settings = Settings {
        pod_level_resources: row.pod_level_resources_enabled,
        ..Settings::default()
    };
    let container = row.container.as_deref().filter(|name| !name.is_empty());
    let mut requests = Amounts::new();
    for pod in unlabelled(row.pods)? {
        match hpa::pod_requests(&pod, &row.resource, container, &settings) {
            Ok(milli) => requests.insert(pod.name.to_string(), milli),
            Err(e) => return Ok(json!({"error": e.message})),
        };
    }
    Ok(json!({"requests_milli": requests}))
}

pub(crate) fn ratios(row: &Ratio) -> Fallible<Value> {
    let got = match &*row.function {
        "GetResourceUtilizationRatio" => {
            let known = row.metrics.iter();
            let known = known.filter_map(|(pod, usage)| Some((*usage, *row.requests.get(pod)?)));
            hpa::utilization_ratio(known, i32::try_from(row.target)?)
        }
        "GetMetricUsageRatio" => hpa::usage_ratio(row.metrics.values().copied(), row.target),
        other => return Err(format!("unknown function {other:?}").into()),
    };
    Ok(match got {
        Some(got) => json!({
            "ratio": got.ratio,
            "utilization": got.usage,
            "usage": got.usage,
            "raw_average": got.raw_average,
        }),
        None => json!({"error": "no metrics returned matched known pods"}),
    })
}

// ---------------------------------------------------------------- quantities

pub(crate) fn quantity(row: &Parsed) -> Fallible<Value> {
    let Ok(got) = row.text.parse::<Quantity>() else {
        return Ok(json!({"error": true}));
    };
    let milli = got.milli_value();
    same("saturated", milli.saturated, row.overflow)?;
    if milli.saturated {
        let is_low = row.text.starts_with('-');
        same(
            "milli value",
            milli.value,
            if is_low { i64::MIN } else { i64::MAX },
        )?;
    }
    Ok(json!({
        "canonical": got.to_string(),
        "approx_f64": got.approx_f64(),
        "milli_value": milli.value,
    }))
}

pub(crate) fn build_quantity(row: &Built) -> Value {
    let got = Quantity::from_milli(row.raw_milli, Format::of_resource(&row.resource));
    // The rows give the amount, not the canonical text: 1000 bytes print as 1k.
    let amount = match got.milli_value().value {
        milli if milli % 1000 == 0 => (milli / 1000).to_string(),
        milli => format!("{milli}m"),
    };
    json!({"quantity": amount, "format": got.format().as_str()})
}
