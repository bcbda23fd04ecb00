//! The HPA vectors, one test per key: every row is run through the domain, without special cases.
//!
//! An absent key is skipped, an unknown one fails, and so does a run over no rows at all. Metrics and behavior are read as
//! those of a user's spec.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foretide_api::validation;
use foretide_domain::{
    Labels, Reading, ReplicaBounds, Replicas, Requirement, Scale, Selector,
    cron::Zone,
    hpa::{
        self, Behavior, ConditionReason, Direction, Hpa, Log, MetricKind, MetricSpec, Settings,
        Target,
    },
    observation::{
        Cause, Container, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness,
        Requests, Status, Unavailable,
    },
    quantity::{Format, Quantity},
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    hpa_controller::{
        ABLE_TO_SCALE, Applied, Condition, ControllerPass, ErrorKind, HpaStatus, INTERNAL, Reads,
        SCALE_UPDATE_ATTEMPTS, SCALED_TO_ZERO, SCALING_LIMITED, UNCHANGED, direction, origin,
    },
    vectors::{Fallible, Outcome, Row, files, same},
};

/// Runs one row; the error is the difference.
type Check = fn(&mut Row) -> Outcome;

/// Remarks in a row, without effect.
const ANNOTATIONS: [&str; 4] = ["name", "n", "source", "note"];

macro_rules! gates {
    ($($test:ident: $key:literal => $check:expr;)+) => {
        const CHECKS: &[(&str, Check)] = &[$(($key, $check)),+];

        $(
            #[test]
            fn $test() -> Outcome {
                run($key)
            }
        )+
    };
}

gates! {
    vectors_hpa_replica_calculator: "replica_calculator" => calculator;
    vectors_hpa_fuzz_replica_calculator: "fuzz_replica_calculator" => calculator;
    vectors_hpa_group_pods: "group_pods" => group_pods;
    vectors_hpa_calculate_requests: "calculate_requests" => calculate_requests;
    vectors_hpa_ratios: "ratios" => ratios;
    vectors_hpa_quantity: "quantity" => quantity;
    vectors_hpa_build_quantity: "build_quantity" => build_quantity;
    vectors_hpa_zero_replicas: "zero_replicas_decision_table" => zero_replicas;
    vectors_hpa_convert_desired_replicas: "convert_desired_replicas_with_rules" => |row| convert(row, None);
    vectors_hpa_convert_with_behavior_rate: "convert_with_behavior_rate" => convert_with_behavior;
    vectors_hpa_stabilize_recommendation: "stabilize_recommendation" => |row| stabilize(row, None);
    vectors_hpa_stabilize_with_behaviors: "stabilize_with_behaviors" => stabilize_with_behaviors;
    vectors_hpa_scale_up_limit: "scale_up_limit" => |row| limit(row, Behavior::up_limit);
    vectors_hpa_scale_down_limit: "scale_down_limit" => |row| limit(row, Behavior::down_limit);
    vectors_hpa_store_scale_event: "store_scale_event" => store_scale_event;
    vectors_hpa_fuzz_normalize: "fuzz_normalize" => fuzz_normalize;
    vectors_hpa_reconcile: "reconcile" => reconcile;
}

#[test]
fn vectors_hpa_hold_rows_and_no_unknown_key() -> Outcome {
    let all = vectors()?;
    // A key with a text is a remark on the file; every other key holds rows and must be known.
    let unknown = all
        .iter()
        .filter(|(key, group)| !group.is_string() && check_of(key).is_none());
    let unknown: Vec<_> = unknown.map(|(key, _)| key).collect();
    assert!(unknown.is_empty(), "unknown keys: {unknown:?}");
    let rows = all.iter().filter_map(|(_, group)| rows_of(group));
    assert!(rows.flatten().next().is_some(), "no rows at all");
    Ok(())
}

fn check_of(key: &str) -> Option<Check> {
    let known = CHECKS.iter().find(|(known, _)| *known == key);
    known.map(|(_, check)| *check)
}

/// Runs every row of one key; all failures are reported together.
fn run(key: &str) -> Outcome {
    let (mut ran, mut failures) = (0, Vec::new());
    for (_, group) in vectors()?.iter().filter(|(k, _)| k == key) {
        let rows = rows_of(group).ok_or_else(|| format!("{key} is not a list of rows"))?;
        let current = |row: &&Value| row.get("superseded").is_none();
        for (i, row) in rows.iter().enumerate().filter(|(_, row)| current(row)) {
            if let Err(e) = check(key, row) {
                let name = ["name", "text", "n"].iter().find_map(|k| row.get(*k));
                let name = name.unwrap_or(&Value::Null);
                failures.push(format!("{key} row {i} {name}: {e}"));
            }
            ran += 1;
        }
    }
    println!("{key}: {ran} rows");
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}

/// Runs one row of these files, or of another file in the words of this key.
pub(crate) fn check(key: &str, row: &Value) -> Outcome {
    let check = check_of(key).ok_or_else(|| format!("unknown key {key}"))?;
    Row::read(row.clone(), |row| {
        for annotation in ANNOTATIONS {
            row.get::<Value>(annotation)?;
        }
        check(row)
    })
}

fn rows_of(group: &Value) -> Option<&Vec<Value>> {
    group.as_array().or_else(|| group.get("rows")?.as_array())
}

/// All keys of all HPA vector files, with their contents.
fn vectors() -> Fallible<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for (name, file) in files()? {
        let keys = file.as_object().into_iter().flatten();
        // The folder may hold vectors of other parts, too.
        if name.starts_with("hpa") || keys.clone().any(|(key, _)| check_of(key).is_some()) {
            all.extend(keys.map(|(key, group)| (key.clone(), group.clone())));
        }
    }
    Ok(all)
}

// ---------------------------------------------------------------- what rows are made of

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn seconds(s: f64) -> SignedDuration {
    SignedDuration::from_secs_f64(s)
}

fn ago(age_s: f64) -> Timestamp {
    NOW - seconds(age_s)
}

fn count(row: &mut Row, field: &str) -> Fallible<Replicas> {
    Ok(Replicas::from_i32(row.must(field)?))
}

fn amounts(row: &mut Row, field: &str) -> Fallible<Option<Requests>> {
    let milli: Option<BTreeMap<String, i64>> = row.get(field)?;
    Ok(milli.map(|milli| milli.into_iter().collect()))
}

fn status(word: &str) -> Fallible<Status> {
    let all = [Status::True, Status::False, Status::Unknown];
    let known = all.into_iter().find(|status| status.as_str() == word);
    known.ok_or_else(|| format!("unknown status {word:?}").into())
}

fn container(row: &mut Row) -> Fallible<Container> {
    Ok(Container {
        name: row.must::<String>("name")?.into(),
        requests: amounts(row, "requests_milli")?.unwrap_or_default(),
    })
}

fn pod(row: &mut Row) -> Fallible<Pod> {
    let mut containers = row.all("containers", container)?;
    let initial = row.all("init_containers", |row| {
        let policy: Option<String> = row.get("restart_policy")?;
        Ok((
            policy.is_some_and(|policy| policy == "Always"),
            container(row)?,
        ))
    })?;
    let sidecars = initial.into_iter().filter(|(is_sidecar, _)| *is_sidecar);
    containers.extend(sidecars.map(|(_, container)| container));
    let ready = row.object("ready_condition", |ready| {
        let since = ready.get("transition_age_s")?;
        Ok(Readiness {
            status: status(&ready.must::<String>("status")?)?,
            since: ago(since.unwrap_or(1e10)),
        })
    });
    Ok(Pod {
        name: row.must::<String>("name")?.into(),
        phase: match &*row.or_default::<String>("phase")? {
            "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "" | "Unknown" => Phase::Unknown,
            other => return Err(format!("unknown phase {other:?}").into()),
        },
        deleting: row.or_default("deleting")?,
        created: None,
        ready: ready?,
        started: row.get("start_age_s")?.map(ago),
        containers: containers.into(),
        pod_level_requests: amounts(row, "pod_level_requests_milli")?,
    })
}

fn pods(row: &mut Row) -> Fallible<Vec<Arc<Pod>>> {
    row.all("pods", |row| Ok(Arc::new(pod(row)?)))
}

/// One item of a metrics answer: by container, or one value.
struct Item {
    sample: PodSample,
    containers: Vec<ContainerUsage>,
    is_value: bool,
}

impl Item {
    fn read(row: &mut Row) -> Fallible<Self> {
        let value: Option<i64> = row.get("value_milli")?;
        let sample = PodSample {
            pod: row.must::<String>("pod")?.into(),
            value: value.unwrap_or_default(),
            at: ago(row.or_default("age_s")?),
            window: seconds(row.get("window_s")?.unwrap_or(60.0)),
        };
        let container = |row: &mut Row| {
            Ok(ContainerUsage {
                name: row.must::<String>("name")?.into(),
                usage: amounts(row, "usage_milli")?.unwrap_or_default(),
            })
        };
        Ok(Self {
            sample,
            containers: row.all("containers", container)?,
            is_value: value.is_some(),
        })
    }

    /// The usage of the pod; a value that is already summed stands for the usage of one container.
    fn usage(self, resource: &str, container: &str) -> Arc<PodUsage> {
        let PodSample {
            pod,
            value,
            at,
            window,
        } = self.sample;
        let summed = self.is_value.then(|| ContainerUsage {
            name: container.into(),
            usage: [(resource, value)].into_iter().collect(),
        });
        Arc::new(PodUsage {
            pod,
            at,
            window,
            containers: self.containers.into_iter().chain(summed).collect(),
        })
    }
}

/// The workload of a user's spec with this field of metrics or behavior.
fn workload(field: &str, value: &Value) -> Fallible<Workload> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let ehpa = serde_json::from_value(json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 1, field: value},
    }))?;
    Ok(validation::workload(&ehpa, &Zone::utc())?)
}

/// A metric; one that a user may not write has an unusable target.
fn metric_spec(written: &Value) -> MetricSpec {
    let read = workload("metrics", &json!([written]));
    let read = read
        .ok()
        .and_then(|workload| workload.metrics.into_iter().next());
    read.unwrap_or(MetricSpec::Resource {
        name: "cpu".into(),
        target: Target::Unusable,
    })
}

fn behavior(written: &Value) -> Fallible<Behavior> {
    let behavior = workload("behavior", written)?.behavior;
    Ok(behavior.ok_or("no behavior")?)
}

/// The recommendations and events of a row.
fn log(row: &mut Row) -> Fallible<Log> {
    let recommendation = |row: &mut Row| {
        Ok(hpa::Recommendation {
            at: ago(row.must("age_s")?),
            replicas: count(row, "recommendation")?,
            mirrored: false,
        })
    };
    Ok(Log {
        recommendations: row.list("recommendations", recommendation)?,
        scale_up: events(row, "scale_up_events")?,
        scale_down: events(row, "scale_down_events")?,
        scaled_to_zero: false,
    })
}

fn events(row: &mut Row, field: &str) -> Fallible<Vec<hpa::ScaleEvent>> {
    row.all(field, |row| {
        Ok(hpa::ScaleEvent {
            at: ago(row.must("age_s")?),
            change: count(row, "replica_change")?,
            outdated: row.or_default("outdated")?,
        })
    })
}

fn readings_after(log: &Log) -> Vec<i32> {
    let all = log.recommendations().iter();
    all.map(|one| one.replicas.as_i32()).collect()
}

fn events_after(events: &[hpa::ScaleEvent]) -> Vec<Value> {
    let event =
        |e: &hpa::ScaleEvent| json!({"replica_change": e.change.as_i32(), "outdated": e.outdated});
    events.iter().map(event).collect()
}

fn same_log(want: &mut Row, log: &Log) -> Outcome {
    want.same("recommendations_after", readings_after(log))?;
    want.same("scale_up_events_after", events_after(&log.scale_up))?;
    want.same("scale_down_events_after", events_after(&log.scale_down))
}

fn condition(kind: &str, status: Status, reason: &str) -> Value {
    json!({"type": kind, "status": status.as_str(), "reason": reason})
}

// ---------------------------------------------------------------- the replica calculator

/// The settings of the row's flags.
fn flags(row: &mut Row) -> Fallible<Settings> {
    let mut settings = Settings::default();
    for (field, flag) in [
        (
            "cpu_initialization_period_s",
            &mut settings.cpu_initialization_period,
        ),
        (
            "initial_readiness_delay_s",
            &mut settings.initial_readiness_delay,
        ),
        (
            "downscale_stabilization_window_s",
            &mut settings.downscale_stabilization,
        ),
    ] {
        *flag = row.get(field)?.map_or(*flag, seconds);
    }
    for (field, flag) in [
        ("tolerance", &mut settings.tolerance),
        ("scale_up_limit_factor", &mut settings.scale_up_limit_factor),
        (
            "scale_up_limit_minimum",
            &mut settings.scale_up_limit_minimum,
        ),
    ] {
        *flag = row.get(field)?.unwrap_or(*flag);
    }
    Ok(settings)
}

/// The object of an Object metric.
fn thing() -> hpa::ObjectRef {
    let [api_version, kind, name] = ["v1", "Thing", "it"].map(str::to_owned);
    hpa::ObjectRef {
        api_version,
        kind,
        name,
    }
}

/// The metric that the function of a row calculates, with its measurements.
fn metric(row: &mut Row) -> Fallible<(MetricSpec, Measured)> {
    let function: String = row.must("function")?;
    let name: String = row.or_default("resource")?;
    let container: String = row.or_default("container")?;
    let percent: i32 = row.or_default("target_utilization")?;
    let milli = row.or_default("target_milli")?;
    let mut items = row.all("pod_metrics", Item::read)?;
    items.extend(row.all("pod_totals", Item::read)?);
    let values: Vec<i64> = row.or_default("values_milli")?;
    let (metric, selector) = (String::from("qps"), None);
    let target = match &*function {
        "GetResourceReplicas" => Target::Utilization(percent),
        "GetObjectMetricReplicas" | "GetExternalMetricReplicas" => Target::Value(milli),
        _ => Target::AverageValue(milli),
    };
    Ok(match &*function {
        "GetResourceReplicas" | "GetRawResourceReplicas" => {
            let usage = items.into_iter().map(|item| item.usage(&name, &container));
            let measured = Measured::Usage(usage.collect());
            let metric = if container.is_empty() {
                MetricSpec::Resource { name, target }
            } else {
                MetricSpec::ContainerResource {
                    name,
                    container,
                    target,
                }
            };
            (metric, measured)
        }
        "GetMetricReplicas" => {
            let samples = items.into_iter().map(|item| item.sample).collect();
            let metric = MetricSpec::Pods {
                metric,
                selector,
                target,
            };
            (metric, Measured::Samples(samples))
        }
        "GetObjectMetricReplicas" | "GetObjectPerPodMetricReplicas" => {
            let metric = MetricSpec::Object {
                described: thing(),
                metric,
                selector,
                target,
            };
            (metric, Measured::Total(values))
        }
        "GetExternalMetricReplicas" | "GetExternalPerPodMetricReplicas" => {
            let metric = MetricSpec::External {
                metric,
                selector,
                target,
            };
            (metric, Measured::Total(values))
        }
        other => return Err(format!("unknown function {other:?}").into()),
    })
}

fn calculator(row: &mut Row) -> Outcome {
    let settings = flags(row)?;
    let (metric, measured) = metric(row)?;
    let pods = pods(row)?;
    let current = count(row, "current_replicas")?;
    let context = hpa::MetricContext {
        scale: Scale {
            spec: current,
            status: current,
        },
        unseen: Replicas::ZERO,
        undelivered: Replicas::ZERO,
        pods: &pods,
        tolerance: hpa::Tolerance {
            down: row.get("tolerance_down")?.unwrap_or(settings.tolerance),
            up: row.get("tolerance_up")?.unwrap_or(settings.tolerance),
        },
        settings: &settings,
        now: NOW,
    };
    let got = hpa::propose(&metric, &Ok(measured), &context);
    row.expect(|want| {
        let Some(got) = succeeds(want, got)? else {
            return Ok(());
        };
        want.same("replicas", got.replicas.as_i32())?;
        want.same("utilization", got.value.average_utilization)?;
        want.same("raw_value_milli", got.value.average_value)?;
        want.same("usage_milli", got.value.value.or(got.value.average_value))
    })
}

/// The result, if no error is expected; otherwise it must be an error with that text.
fn succeeds<T: std::fmt::Debug>(
    want: &mut Row,
    got: Result<T, Unavailable>,
) -> Fallible<Option<T>> {
    match (got, want.get::<String>("error_contains")?) {
        (Ok(got), None) => Ok(Some(got)),
        (Err(e), Some(text)) if e.message.contains(&text) => Ok(None),
        (got, error) => Err(format!("got {got:?}, want {error:?}").into()),
    }
}

fn group_pods(row: &mut Row) -> Outcome {
    let settings = flags(row)?;
    let pods = pods(row)?;
    let items = row.all("metrics", Item::read)?;
    let samples = items.iter().map(|Item { sample, .. }| {
        let (value, at, window) = (sample.value, sample.at, sample.window);
        (&*sample.pod, hpa::Sample { value, at, window })
    });
    let samples: HashMap<_, _> = samples.collect();
    let is_cpu = row.must::<String>("resource")? == "cpu";
    let got = hpa::group_pods(&pods, samples, is_cpu, &settings, NOW);
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    row.expect(|want| {
        same("ready", got.ready.len(), want.must("ready_count")?)?;
        for (field, got) in [
            ("unready", &got.unready),
            ("missing", &got.missing),
            ("ignored", &got.ignored),
        ] {
            let names = got.iter().map(|pod| pod.name.to_string()).collect();
            same(field, sorted(names), sorted(want.or_default(field)?))?;
        }
        Ok(())
    })
}

fn calculate_requests(row: &mut Row) -> Outcome {
    let settings = Settings {
        pod_level_resources: row.or_default("pod_level_resources_enabled")?,
        ..Settings::default()
    };
    let (resource, container) = (
        row.must::<String>("resource")?,
        row.get::<String>("container")?,
    );
    let container = container.as_deref().filter(|name| !name.is_empty());
    let requests = pods(row)?.into_iter().map(|pod| {
        let milli = hpa::pod_requests(&pod, &resource, container, &settings)?;
        Ok((pod.name.to_string(), milli))
    });
    let got: Result<BTreeMap<_, _>, Unavailable> = requests.collect();
    row.expect(|want| match succeeds(want, got)? {
        Some(got) => want.same("requests_milli", got),
        None => Ok(()),
    })
}

fn ratios(row: &mut Row) -> Outcome {
    let metrics: BTreeMap<String, i64> = row.must("metrics")?;
    let requests: BTreeMap<String, i64> = row.or_default("requests")?;
    let target: i64 = row.must("target")?;
    let got = match &*row.must::<String>("function")? {
        "GetResourceUtilizationRatio" => {
            let known = metrics.iter();
            let known = known.filter_map(|(pod, usage)| Some((*usage, *requests.get(pod)?)));
            hpa::utilization_ratio(known, i32::try_from(target)?)
        }
        "GetMetricUsageRatio" => hpa::usage_ratio(metrics.values().copied(), target),
        other => return Err(format!("unknown function {other:?}").into()),
    };
    row.expect(|want| {
        let fails = want.get::<String>("error_contains")?.is_some();
        same("fails", got.is_none(), fails)?;
        let Some(got) = got else { return Ok(()) };
        want.same("ratio", got.ratio)?;
        want.same("utilization", got.usage)?;
        want.same("usage", got.usage)?;
        want.same("raw_average", got.raw_average)
    })
}

// ---------------------------------------------------------------- quantities

fn quantity(row: &mut Row) -> Outcome {
    let text: String = row.must("text")?;
    let overflows: bool = row.or_default("overflow")?;
    row.get::<i64>("upstream_milli_value")?;
    let parsed = text.parse::<Quantity>();
    row.expect(|want| {
        same("is refused", parsed.is_err(), want.or_default("error")?)?;
        let Ok(got) = parsed else { return Ok(()) };
        want.same("canonical", got.to_string())?;
        want.same("approx_f64", got.approx_f64())?;
        let milli = got.milli_value();
        same("saturated", milli.saturated, overflows)?;
        if milli.saturated {
            let is_low = text.starts_with('-');
            let end = if is_low { i64::MIN } else { i64::MAX };
            want.get::<Value>("milli_value")?;
            return same("milli value", milli.value, end);
        }
        want.same("milli_value", milli.value)
    })
}

fn build_quantity(row: &mut Row) -> Outcome {
    let format = Format::of_resource(&row.must::<String>("resource")?);
    let got = Quantity::from_milli(row.must("raw_milli")?, format);
    row.expect(|want| {
        // The rows give the amount, not the canonical text: 1000 bytes print as 1k.
        if let Some(text) = want.get::<String>("quantity")? {
            same("amount", &got, &text.parse()?)?;
        }
        want.same("format", got.format().as_str().to_owned())
    })
}

// ---------------------------------------------------------------- behavior and history

fn spec(bounds: ReplicaBounds, behavior: Option<&Behavior>) -> Hpa<'_> {
    Hpa {
        bounds,
        metrics: &[],
        behavior,
    }
}

fn bounds(row: &mut Row) -> Fallible<ReplicaBounds> {
    let min = count(row, "min_replicas")?;
    Ok(ReplicaBounds::new(min, count(row, "max_replicas")?))
}

/// An empty log of recommendations: stabilization changes nothing, limits and bounds remain.
fn convert(row: &mut Row, behavior: Option<&Behavior>) -> Outcome {
    let log = Log {
        recommendations: Some(Vec::new()),
        ..log(row)?
    };
    let step = hpa::Step {
        current: count(row, "current_replicas")?,
        recommended: count(row, "desired_replicas")?,
    };
    let (settings, bounds) = (flags(row)?, bounds(row)?);
    let got = hpa::normalize(&spec(bounds, behavior), step, log, &settings, NOW);
    row.expect(|want| {
        want.same("replicas", got.desired.as_i32())?;
        want.same("reason", got.limit.as_str().to_owned())
    })
}

fn convert_with_behavior(row: &mut Row) -> Outcome {
    let (up, down): (Value, Value) = (
        row.or_default("scale_up_rules")?,
        row.or_default("scale_down_rules")?,
    );
    let behavior = behavior(&json!({"scaleUp": up, "scaleDown": down}))?;
    convert(row, Some(&behavior))
}

fn stabilize(row: &mut Row, behavior: Option<&Behavior>) -> Outcome {
    let (settings, log) = (flags(row)?, log(row)?);
    let step = hpa::Step {
        current: Replicas::from_i32(row.or_default("current_replicas")?),
        recommended: count(row, "desired_replicas")?,
    };
    let all = ReplicaBounds::new(Replicas::ZERO, Replicas::from_i32(i32::MAX));
    let got = hpa::normalize(&spec(all, behavior), step, log, &settings, NOW);
    row.expect(|want| {
        want.same("replicas", got.stabilized.as_i32())?;
        want.same("log_length", got.log.recommendations().len())?;
        want.same("recommendations_after", readings_after(&got.log))
    })
}

fn stabilize_with_behaviors(row: &mut Row) -> Outcome {
    let mut rules = |field: &str| -> Fallible<hpa::ScalingRules> {
        Ok(hpa::ScalingRules {
            window: row.get(field)?.map(seconds),
            ..hpa::ScalingRules::default()
        })
    };
    let behavior = Behavior {
        scale_up: rules("scale_up_window_s")?,
        scale_down: rules("scale_down_window_s")?,
    };
    stabilize(row, Some(&behavior))
}

type Limit = fn(&Behavior, Replicas, &Log, Timestamp) -> Replicas;

/// Checks the same rules in either direction, of which a limit reads one.
fn limit(row: &mut Row, limit: Limit) -> Outcome {
    let rules: Value = row.or_default("rules")?;
    let behavior = behavior(&json!({"scaleUp": rules, "scaleDown": rules}))?;
    let got = limit(&behavior, count(row, "current_replicas")?, &log(row)?, NOW);
    row.expect(|want| same("limit", got.as_i32(), want.must("limit")?))
}

/// Stores the same rules and events in either direction.
fn store_scale_event(row: &mut Row) -> Outcome {
    let rules: Option<Value> = row.get("scaling_rules")?;
    let behavior = rules.map(|rules| behavior(&json!({"scaleUp": rules, "scaleDown": rules})));
    let behavior = behavior.transpose()?;
    let events = events(row, "previous_events")?;
    let log = Log {
        scale_up: events.clone(),
        scale_down: events,
        ..Log::default()
    };
    let low = Replicas::from_i32(10);
    let high = Replicas::from_i32(10 + row.must::<i32>("replica_change")?);
    row.expect(|want| {
        let before: Option<i64> = want.get("change_in_last_60s")?;
        let want: Vec<Value> = want.or_default("events_after")?;
        for (direction, from, to) in [(Direction::Up, low, high), (Direction::Down, high, low)] {
            let changed = log.changed(direction, seconds(60.0), NOW);
            same("change before", changed, before.unwrap_or(changed))?;
            let after = hpa::record_scale(log.clone(), behavior.as_ref(), from, to, NOW);
            let (after, other) = match direction {
                Direction::Up => (after.scale_up, after.scale_down == log.scale_down),
                Direction::Down => (after.scale_down, after.scale_up == log.scale_up),
            };
            same(
                &format!("events {direction:?}"),
                &events_after(&after),
                &want,
            )?;
            same("the other direction is untouched", other, true)?;
        }
        Ok(())
    })
}

fn fuzz_normalize(row: &mut Row) -> Outcome {
    let (settings, log, bounds) = (flags(row)?, log(row)?, bounds(row)?);
    let behavior = row.get("behavior")?.map(|written| behavior(&written));
    let behavior = behavior.transpose()?;
    let spec = spec(bounds, behavior.as_ref());
    let step = hpa::Step {
        current: count(row, "current_replicas")?,
        recommended: count(row, "desired_replicas")?,
    };
    let got = hpa::normalize(&spec, step, log, &settings, NOW);
    let limited = if got.limited() {
        Status::True
    } else {
        Status::False
    };
    let conditions = vec![
        condition(ABLE_TO_SCALE, Status::True, got.able.as_str()),
        condition(SCALING_LIMITED, limited, got.limit.as_str()),
    ];
    row.expect(|want| {
        want.same("replicas", got.desired.as_i32())?;
        want.same("conditions", conditions)?;
        let after = hpa::record_scale(got.log, spec.behavior, step.current, got.desired, NOW);
        same_log(want, &after)
    })
}

// ---------------------------------------------------------------- whole passes

/// Runs a whole pass at zero replicas, whose verdict tells whether metrics were computed.
fn zero_replicas(row: &mut Row) -> Outcome {
    let settings = Settings {
        zero: zero_rule(row.must("gate")?, None)?,
        ..Settings::default()
    };
    let (metric, selector, target) = ("qps".into(), None, Target::AverageValue(1000));
    let metrics = [if row.must("has_object_or_external_metric")? {
        MetricSpec::External {
            metric,
            selector,
            target,
        }
    } else {
        MetricSpec::Pods {
            metric,
            selector,
            target,
        }
    }];
    let spec = Hpa {
        bounds: ReplicaBounds::new(count(row, "min_replicas")?, Replicas::from_i32(10)),
        metrics: &metrics,
        behavior: None,
    };
    let word: Option<String> = row.get("scaled_to_zero_condition")?;
    let condition = word.map(|word| -> Fallible<_> {
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
        .is_some_and(|computed| computed.verdict != hpa::Verdict::Disabled);
    row.expect(|want| same("computes metrics", computed, want.must("compute_metrics")?))
}

fn zero_rule(gate: bool, semantics: Option<&str>) -> Fallible<hpa::ZeroRule> {
    match (semantics, gate) {
        (Some("pre_1_36"), _) => Ok(hpa::ZeroRule::WhenMinIsZero),
        (Some(other), _) => Err(format!("unknown zero semantics {other:?}").into()),
        (None, true) => Ok(hpa::ZeroRule::WhenScaledToZero),
        (None, false) => Ok(hpa::ZeroRule::Never),
    }
}

fn config(row: &mut Row) -> Fallible<Settings> {
    let gates: BTreeMap<String, bool> = row.or_default("feature_gates")?;
    let (flags, zero) = (flags(row)?, row.get::<String>("zero_semantics")?);
    let gate = |name: &str| gates.get(name).copied();
    Ok(Settings {
        zero: zero_rule(gate("HPAScaleToZero").unwrap_or_default(), zero.as_deref())?,
        pod_level_resources: gate("PodLevelResources").unwrap_or(flags.pod_level_resources),
        ..flags
    })
}

/// Autoscaler of a row.
struct Autoscaler {
    bounds: ReplicaBounds,
    metrics: Vec<MetricSpec>,
    behavior: Option<Behavior>,
    /// Status of the autoscaler before the pass.
    previous: HpaStatus,
}

fn autoscaler(row: &mut Row) -> Fallible<Autoscaler> {
    let min = Replicas::from_i32(row.get("min_replicas")?.unwrap_or(1));
    let bounds = ReplicaBounds::new(min, count(row, "max_replicas")?);
    let metrics: Vec<Value> = row.or_default("metrics")?;
    let behavior = row.get("behavior")?.map(|written| behavior(&written));
    let conditions = row.all("initial_conditions", |row| {
        let [kind, word, reason] =
            ["type", "status", "reason"].map(|field| row.must::<String>(field));
        let known = Condition::known(&kind?, status(&word?)?, &reason?);
        Ok(known.ok_or("unknown condition")?)
    });
    let previous = HpaStatus {
        current: Replicas::from_i32(row.or_default("status_current_replicas")?),
        desired: Replicas::from_i32(row.or_default("status_desired_replicas")?),
        conditions: conditions?.into_iter().collect(),
    };
    Ok(Autoscaler {
        bounds,
        metrics: metrics.iter().map(metric_spec).collect(),
        behavior: behavior.transpose()?,
        previous,
    })
}

/// The scale that is read, its selector, and the result of its write, as the row's API server would answer.
fn scale(row: &mut Row) -> Fallible<(Result<Scale, ErrorKind>, String, Applied)> {
    let spec = count(row, "spec_replicas")?;
    let status = row.get("status_replicas")?.map(Replicas::from_i32);
    let scale = Scale {
        spec,
        status: status.unwrap_or(spec),
    };
    let is_refused = row.get::<String>("update_error")?.is_some();
    let conflicts: u32 = row.or_default("update_conflicts_before_success")?;
    let read = match row.get::<String>("get_error")? {
        Some(_) => Err(INTERNAL),
        None => Ok(scale),
    };
    let write = if is_refused || conflicts >= SCALE_UPDATE_ATTEMPTS {
        Applied::Failed
    } else {
        Applied::Written
    };
    Ok((read, row.or_default("selector")?, write))
}

/// Result for a selector: it selects the pods of one workload, or a reason.
type Selection = Result<(), ConditionReason>;

/// Result for the scale's selector, and the pods it selects.
fn select(row: &mut Row, selector: &str) -> Fallible<(Selection, Vec<Arc<Pod>>)> {
    let pods = row.all("pods", |row| {
        Ok((row.or_default::<Labels>("labels")?, pod(row)?))
    })?;
    let others = row.all("other_hpas", |row| {
        row.get::<String>("name")?;
        let labels: Labels = row.or_default("match_labels")?;
        let equal = labels.into_iter().map(|(k, v)| Requirement::Equal(k, v));
        Ok(equal.collect::<Selector>())
    })?;
    let selector: Selector = match selector.parse() {
        Ok(selector) if selector == Selector::default() => {
            return Ok((Err(ConditionReason::InvalidSelector), Vec::new()));
        }
        Ok(selector) => selector,
        Err(_) => return Ok((Err(ConditionReason::InvalidSelector), Vec::new())),
    };
    let selected = pods
        .into_iter()
        .filter(|(labels, _)| selector.matches(labels));
    let (mut selection, mut pods) = (Ok(()), Vec::new());
    for (labels, pod) in selected {
        if others.iter().any(|other| other.matches(&labels)) {
            selection = Err(ConditionReason::AmbiguousSelector);
        }
        pods.push(Arc::new(pod));
    }
    Ok((selection, pods))
}

/// Answers of the metrics APIs for each of these metrics.
fn readings(row: &mut Row, metrics: &[MetricSpec]) -> Fallible<Vec<Reading>> {
    let [resource, custom, external] =
        ["resource_error", "custom_error", "external_error"].map(|field| row.get::<String>(field));
    let (resource, custom, external) = (resource?, custom?, external?);
    let usage = row.all("resource", |row| Ok(Item::read(row)?.usage("", "")))?;
    let samples = row.all("custom_pods", |row| Ok(Item::read(row)?.sample))?;
    let object: Option<i64> = row.get("custom_object_value_milli")?;
    let totals: Vec<i64> = row.or_default("external_values_milli")?;
    let reading = |metric: &MetricSpec| {
        let (error, measured) = match metric.kind() {
            MetricKind::Resource | MetricKind::ContainerResource => {
                (&resource, Measured::Usage(usage.clone()))
            }
            MetricKind::Pods => (&custom, Measured::Samples(samples.clone())),
            MetricKind::Object => (&custom, Measured::Total(object.into_iter().collect())),
            MetricKind::External => (&external, Measured::Total(totals.clone())),
            MetricKind::Unknown => (&None, Measured::Total(totals.clone())),
        };
        let error = error.as_ref();
        error.map_or(Ok(measured), |message| {
            Err(Unavailable::new(Cause::NotRead, message))
        })
    };
    Ok(metrics.iter().map(reading).collect())
}

fn reconcile(row: &mut Row) -> Outcome {
    let settings = row.object("config", config)?.unwrap_or_default();
    let hpa = row.object("hpa", autoscaler)?.ok_or("no hpa")?;
    let spec = Hpa {
        bounds: hpa.bounds,
        metrics: &hpa.metrics,
        behavior: hpa.behavior.as_ref(),
    };
    let (scale, selector, write) = row.object("scale", scale)?.ok_or("no scale")?;
    let (selector, pods) = select(row, &selector)?;
    let log = row.object("history", log)?.unwrap_or_default();
    let apis: Value = row.get("metrics_apis")?.unwrap_or(json!({}));
    let reads = Reads {
        scale,
        selector,
        pods: &pods,
        readings: &Row::read(apis, |row| readings(row, spec.metrics))?,
        conditions: &hpa.previous.conditions,
    };
    let pass = ControllerPass::run(&spec, &reads, &log, &settings, NOW);
    let pass = pass.applied(&spec, &settings, write, NOW);
    row.expect(|want| {
        let status = pass.status(&hpa.previous);
        want.same("desired_replicas", status.desired.as_i32())?;
        let conditions = status.conditions.0.iter();
        let conditions = conditions.map(|c| condition(c.kind, c.status, c.reason));
        want.same("conditions", conditions.collect::<Vec<_>>())?;
        want.same("scale_updated", pass.applied == Some(Applied::Written))?;
        want.same("status_written", status != hpa.previous)?;
        want.same("reconcile_action", pass.action().to_owned())?;
        want.same("reconcile_error", error_word(pass.error()))?;
        same_log(want, &pass.log)?;
        check_metrics(want, spec.metrics, &pass, &hpa.previous)
    })
}

fn error_word(kind: Option<ErrorKind>) -> String {
    kind.unwrap_or("none").to_owned()
}

fn check_metrics(
    want: &mut Row,
    metrics: &[MetricSpec],
    pass: &ControllerPass,
    previous: &HpaStatus,
) -> Outcome {
    let (mut actions, mut errors) = (BTreeMap::new(), BTreeMap::new());
    let mut cpu = None;
    for (metric, proposal) in metrics.iter().zip(pass.proposals()) {
        let kind = match metric {
            MetricSpec::Unknown(kind) => kind.clone(),
            known => known.kind().as_str().to_owned(),
        };
        let action = match proposal {
            Ok(proposal) => direction(previous.current, proposal.replicas),
            Err(_) => UNCHANGED,
        };
        actions.insert(kind.clone(), action.to_owned());
        let error = proposal.as_ref().err();
        errors.insert(kind, error_word(error.map(|e| origin(e.reason))));
        if matches!(metric, MetricSpec::Resource { name, .. } if name == "cpu") && cpu.is_none() {
            let value = proposal.as_ref().ok().map(|proposal| &proposal.value);
            cpu = Some(value.and_then(|value| value.average_utilization));
        }
    }
    want.same("metric_actions", actions)?;
    want.same("metric_errors", errors)?;
    want.same("cpu_utilization", cpu.flatten())
}
