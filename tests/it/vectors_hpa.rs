//! The HPA vectors, one test per key: every row is run through the domain, without special cases.
//!
//! The rows come from the folder named by `FORETIDE_VECTORS`, else from the committed copy. An absent
//! key is skipped, an unknown one fails, and so does a run over no rows at all.

#![expect(clippy::ref_option, reason = "a field of a row may be null")]

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf, sync::Arc};

use foretide_domain::{
    Labels, Reading, ReplicaBounds, Replicas, Requirement, Scale, Selector,
    hpa::{self, Behavior, Direction, Hpa, MetricKind, MetricSpec, Settings, Target},
    observation::{
        Cause, Container, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness,
        Requests, Status, Unavailable,
    },
    quantity::{Format, Quantity},
};
use jiff::{SignedDuration, Timestamp};

use crate::hpa_controller::{
    ABLE_TO_SCALE, Applied, Condition, ControllerPass, ErrorKind, HpaStatus, Reads,
    SCALE_UPDATE_ATTEMPTS, SCALED_TO_ZERO, SCALING_LIMITED, ScaleAction, SelectorProblem,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

type Fallible<T> = Result<T, Box<dyn Error>>;
type Outcome = Fallible<()>;
/// Runs one row; the error says what differs.
type Check<R> = fn(&R) -> Outcome;

/// What a row may say about itself, without effect.
const ANNOTATIONS: [&str; 4] = ["name", "n", "source", "note"];

macro_rules! gates {
    ($($test:ident: $key:literal => $check:expr;)+) => {
        const KEYS: &[&str] = &[$($key),+];

        $(
            #[test]
            fn $test() -> Outcome {
                let rows = run($key, $check)?;
                println!("{}: {rows} rows", $key);
                Ok(())
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
    vectors_hpa_convert_desired_replicas: "convert_desired_replicas_with_rules" => convert_plain;
    vectors_hpa_convert_with_behavior_rate: "convert_with_behavior_rate" => convert_with_behavior;
    vectors_hpa_stabilize_recommendation: "stabilize_recommendation" => stabilize_plain;
    vectors_hpa_stabilize_with_behaviors: "stabilize_with_behaviors" => stabilize_with_behaviors;
    vectors_hpa_scale_up_limit: "scale_up_limit" => scale_up_limit;
    vectors_hpa_scale_down_limit: "scale_down_limit" => scale_down_limit;
    vectors_hpa_store_scale_event: "store_scale_event" => store_scale_event;
    vectors_hpa_fuzz_normalize: "fuzz_normalize" => fuzz_normalize;
    vectors_hpa_reconcile: "reconcile" => reconcile;
}

#[test]
fn vectors_hpa_hold_rows_and_no_unknown_key() -> Outcome {
    let all = vectors()?;
    // A key with a text is a remark on the file; every other key holds rows and must be known.
    let is_known = |(key, group): &&(String, Value)| group.is_string() || is_key(key);
    let unknown: Vec<_> = all
        .iter()
        .filter(|entry| !is_known(entry))
        .map(|(key, _)| key)
        .collect();
    assert!(unknown.is_empty(), "unknown keys: {unknown:?}");
    let rows: usize = all
        .iter()
        .map(|(_, group)| rows_of(group).map_or(0, Vec::len))
        .sum();
    println!("{rows} rows in all");
    assert!(rows > 0, "no rows at all");
    Ok(())
}

fn is_key(key: &str) -> bool {
    KEYS.contains(&key)
}

/// Runs every row of one key and gives their number; all failures are reported together.
fn run<R: DeserializeOwned>(key: &str, check: Check<R>) -> Fallible<usize> {
    let mut ran = 0;
    let mut failures = Vec::new();
    for (_, group) in vectors()?.iter().filter(|(k, _)| k == key) {
        let rows = rows_of(group).ok_or_else(|| format!("{key} is not a list of rows"))?;
        let current = |row: &&Value| row.get("superseded").is_none();
        for (i, row) in rows.iter().enumerate().filter(|(_, row)| current(row)) {
            if let Err(e) = read(row).and_then(|row| check(&row)) {
                let name = ["name", "text", "n"].iter().find_map(|k| row.get(*k));
                failures.push(format!(
                    "{key} row {i} {}: {e}",
                    name.unwrap_or(&Value::Null)
                ));
            }
            ran += 1;
        }
    }
    if failures.is_empty() {
        Ok(ran)
    } else {
        Err(failures.join("\n").into())
    }
}

/// Runs one row of another file, which was put in the words of a key of this one.
pub(crate) fn check(key: &str, row: &Value) -> Outcome {
    match key {
        "replica_calculator" => calculator(&read(row)?),
        "group_pods" => group_pods(&read(row)?),
        "convert_desired_replicas_with_rules" => convert_plain(&read(row)?),
        "scale_up_limit" => scale_up_limit(&read(row)?),
        "scale_down_limit" => scale_down_limit(&read(row)?),
        _ => Err(format!("no row of {key} can be run alone").into()),
    }
}

/// One row without its annotations.
fn read<R: DeserializeOwned>(row: &Value) -> Fallible<R> {
    let mut fields = row.as_object().ok_or("a row is not an object")?.clone();
    fields.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
    Ok(serde_json::from_value(Value::Object(fields))?)
}

fn rows_of(group: &Value) -> Option<&Vec<Value>> {
    group.as_array().or_else(|| group.get("rows")?.as_array())
}

/// All keys of all HPA vector files, with what they hold.
fn vectors() -> Fallible<Vec<(String, Value)>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "which vectors to run is a matter of the test run"
    )]
    let folder = std::env::var("FORETIDE_VECTORS");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors");
    let folder = PathBuf::from(folder.unwrap_or_else(|_| committed.into()));
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let keys = file.as_object().into_iter().flatten();
        // The folder may hold vectors of other parts too.
        if name.starts_with("hpa") || keys.clone().any(|(key, _)| is_key(key)) {
            all.extend(keys.map(|(key, group)| (key.clone(), group.clone())));
        }
    }
    Ok(all)
}

/// Fails with both values unless they are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "values read better where it is called"
)]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, want {want:?}").into())
    }
}

/// The same where the row may be silent.
fn same_if<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: Option<T>) -> Outcome {
    want.map_or(Ok(()), |want| same(what, got, want))
}

// ---------------------------------------------------------------- shapes of the rows

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn seconds(s: f64) -> SignedDuration {
    SignedDuration::from_secs_f64(s)
}

fn ago(age_s: f64) -> Timestamp {
    NOW - seconds(age_s)
}

fn count(n: i32) -> Replicas {
    Replicas::from_i32(n)
}

/// A list that may be `null`.
type List<T> = Option<Vec<T>>;

fn list<T>(items: &List<T>) -> &[T] {
    items.as_deref().unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodRow {
    name: String,
    phase: Option<String>,
    deleting: Option<bool>,
    ready_condition: Option<ReadyRow>,
    start_age_s: Option<f64>,
    containers: List<ContainerRow>,
    init_containers: List<ContainerRow>,
    pod_level_requests_milli: Option<BTreeMap<String, i64>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyRow {
    status: String,
    transition_age_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerRow {
    name: String,
    requests_milli: Option<BTreeMap<String, i64>>,
    usage_milli: Option<BTreeMap<String, i64>>,
    restart_policy: Option<String>,
}

fn amounts(milli: Option<&BTreeMap<String, i64>>) -> Requests {
    milli
        .into_iter()
        .flatten()
        .map(|(name, milli)| (name.as_str(), *milli))
        .collect()
}

fn status(word: &str) -> Fallible<Status> {
    match word {
        "True" => Ok(Status::True),
        "False" => Ok(Status::False),
        "Unknown" => Ok(Status::Unknown),
        _ => Err(format!("unknown status {word:?}").into()),
    }
}

fn pod(row: &PodRow) -> Fallible<Arc<Pod>> {
    let sidecars = list(&row.init_containers).iter();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let containers = list(&row.containers)
        .iter()
        .chain(sidecars)
        .map(|c| Container {
            name: c.name.as_str().into(),
            requests: amounts(c.requests_milli.as_ref()),
        });
    let ready = |r: &ReadyRow| -> Fallible<_> {
        let since = ago(r.transition_age_s.unwrap_or(1e10));
        Ok(Readiness {
            status: status(&r.status)?,
            since,
        })
    };
    Ok(Arc::new(Pod {
        name: row.name.as_str().into(),
        phase: match row.phase.as_deref() {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            None | Some("" | "Unknown") => Phase::Unknown,
            Some(other) => return Err(format!("unknown phase {other:?}").into()),
        },
        deleting: row.deleting.unwrap_or_default(),
        created: None,
        ready: row.ready_condition.as_ref().map(ready).transpose()?,
        started: row.start_age_s.map(ago),
        containers: containers.collect(),
        pod_level_requests: row
            .pod_level_requests_milli
            .as_ref()
            .map(|r| amounts(Some(r))),
    }))
}

fn pods(rows: &List<PodRow>) -> Fallible<Vec<Arc<Pod>>> {
    list(rows).iter().map(pod).collect()
}

/// One item of a metrics answer: by container, or one value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleRow {
    pod: String,
    age_s: Option<f64>,
    window_s: Option<f64>,
    containers: List<ContainerRow>,
    value_milli: Option<i64>,
}

impl SampleRow {
    fn at(&self) -> Timestamp {
        ago(self.age_s.unwrap_or_default())
    }

    fn window(&self) -> SignedDuration {
        seconds(self.window_s.unwrap_or(60.0))
    }

    fn sample(&self) -> PodSample {
        PodSample {
            pod: self.pod.as_str().into(),
            value: self.value_milli.unwrap_or_default(),
            at: self.at(),
            window: self.window(),
        }
    }

    /// The usage of the pod; a value that is already summed stands for the usage of one container.
    fn usage(&self, resource: &str, container: &str) -> Arc<PodUsage> {
        let summed = self.value_milli.map(|milli| ContainerUsage {
            name: container.into(),
            usage: [(resource, milli)].into_iter().collect(),
        });
        let containers = list(&self.containers).iter().map(|c| ContainerUsage {
            name: c.name.as_str().into(),
            usage: amounts(c.usage_milli.as_ref()),
        });
        Arc::new(PodUsage {
            pod: self.pod.as_str().into(),
            at: self.at(),
            window: self.window(),
            containers: containers.chain(summed).collect(),
        })
    }
}

// ---------------------------------------------------------------- the replica calculator

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalculatorRow {
    function: String,
    current_replicas: i32,
    resource: Option<String>,
    container: Option<String>,
    target_utilization: Option<i32>,
    target_milli: Option<i64>,
    pod_metrics: List<SampleRow>,
    pod_totals: List<SampleRow>,
    values_milli: List<i64>,
    tolerance_up: Option<f64>,
    tolerance_down: Option<f64>,
    cpu_initialization_period_s: Option<f64>,
    initial_readiness_delay_s: Option<f64>,
    pods: List<PodRow>,
    expect: CalculatorExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalculatorExpect {
    replicas: Option<i32>,
    utilization: Option<i64>,
    raw_value_milli: Option<i64>,
    usage_milli: Option<i64>,
    error_contains: Option<String>,
}

impl CalculatorRow {
    fn metric(&self) -> Fallible<MetricSpec> {
        let average = Target::AverageValue(self.target_milli.unwrap_or_default());
        let value = Target::Value(self.target_milli.unwrap_or_default());
        let name = self.resource.clone().unwrap_or_default();
        let container = self.container.clone().filter(|c| !c.is_empty());
        let resource = |target| match container.clone() {
            Some(container) => MetricSpec::ContainerResource {
                name,
                container,
                target,
            },
            None => MetricSpec::Resource { name, target },
        };
        let (metric, selector) = (String::from("qps"), None);
        let described = hpa::ObjectRef {
            api_version: "v1".into(),
            kind: "Thing".into(),
            name: "it".into(),
        };
        Ok(match self.function.as_str() {
            "GetResourceReplicas" => resource(Target::Utilization(
                self.target_utilization.unwrap_or_default(),
            )),
            "GetRawResourceReplicas" => resource(average),
            "GetMetricReplicas" => MetricSpec::Pods {
                metric,
                selector,
                target: average,
            },
            "GetObjectMetricReplicas" => MetricSpec::Object {
                described,
                metric,
                selector,
                target: value,
            },
            "GetObjectPerPodMetricReplicas" => MetricSpec::Object {
                described,
                metric,
                selector,
                target: average,
            },
            "GetExternalMetricReplicas" => MetricSpec::External {
                metric,
                selector,
                target: value,
            },
            "GetExternalPerPodMetricReplicas" => MetricSpec::External {
                metric,
                selector,
                target: average,
            },
            other => return Err(format!("unknown function {other:?}").into()),
        })
    }

    fn reading(&self, kind: MetricKind) -> Measured {
        let samples = list(&self.pod_metrics).iter().chain(list(&self.pod_totals));
        let resource = self.resource.as_deref().unwrap_or_default();
        let container = self.container.as_deref().unwrap_or_default();
        match kind {
            MetricKind::Resource | MetricKind::ContainerResource => {
                Measured::Usage(samples.map(|s| s.usage(resource, container)).collect())
            }
            MetricKind::Pods => Measured::Samples(samples.map(SampleRow::sample).collect()),
            _ => Measured::Total(list(&self.values_milli).to_vec()),
        }
    }
}

fn flags(initialization_s: Option<f64>, readiness_s: Option<f64>) -> Settings {
    let production = Settings::default();
    Settings {
        cpu_initialization_period: initialization_s
            .map_or(production.cpu_initialization_period, seconds),
        initial_readiness_delay: readiness_s.map_or(production.initial_readiness_delay, seconds),
        ..production
    }
}

fn calculator(row: &CalculatorRow) -> Outcome {
    let settings = flags(
        row.cpu_initialization_period_s,
        row.initial_readiness_delay_s,
    );
    let metric = row.metric()?;
    let pods = pods(&row.pods)?;
    let current = count(row.current_replicas);
    let context = hpa::MetricContext {
        scale: Scale {
            spec: current,
            status: current,
        },
        unseen: Replicas::ZERO,
        pods: &pods,
        tolerance: hpa::Tolerance {
            down: row.tolerance_down.unwrap_or(settings.tolerance),
            up: row.tolerance_up.unwrap_or(settings.tolerance),
        },
        settings: &settings,
        now: NOW,
    };
    let want = &row.expect;
    match (
        hpa::propose(&metric, &Ok(row.reading(metric.kind())), &context),
        &want.error_contains,
    ) {
        (Err(e), Some(text)) if e.message.contains(text) => Ok(()),
        (Err(e), _) => Err(format!("got error {e}, want {:?}", want.error_contains).into()),
        (Ok(got), Some(text)) => Err(format!("got {got:?}, want an error with {text:?}").into()),
        (Ok(got), None) => {
            same_if("replicas", got.replicas, want.replicas.map(count))?;
            let utilization = got.value.average_utilization.map(i64::from);
            same_if("utilization", utilization, want.utilization.map(Some))?;
            same_if(
                "raw value",
                got.value.average_value,
                want.raw_value_milli.map(Some),
            )?;
            let usage = got.value.value.or(got.value.average_value);
            same_if("usage", usage, want.usage_milli.map(Some))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRow {
    resource: String,
    cpu_initialization_period_s: Option<f64>,
    initial_readiness_delay_s: Option<f64>,
    pods: List<PodRow>,
    metrics: List<SampleRow>,
    expect: GroupExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupExpect {
    ready_count: usize,
    unready: List<String>,
    missing: List<String>,
    ignored: List<String>,
}

fn group_pods(row: &GroupRow) -> Outcome {
    let settings = flags(
        row.cpu_initialization_period_s,
        row.initial_readiness_delay_s,
    );
    let pods = pods(&row.pods)?;
    let samples = list(&row.metrics).iter().map(|s| {
        let PodSample {
            value, at, window, ..
        } = s.sample();
        (s.pod.as_str(), hpa::Sample { value, at, window })
    });
    let samples = samples.collect::<std::collections::HashMap<_, _>>();
    let got = hpa::group_pods(&pods, samples, row.resource == "cpu", &settings, NOW);
    let names = |pods: &[&Pod]| {
        let mut names: Vec<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
        names.sort();
        names
    };
    let sorted = |names: &List<String>| {
        let mut names = list(names).to_vec();
        names.sort();
        names
    };
    same("ready", got.ready.len(), row.expect.ready_count)?;
    same("unready", names(&got.unready), sorted(&row.expect.unready))?;
    same("missing", names(&got.missing), sorted(&row.expect.missing))?;
    same("ignored", names(&got.ignored), sorted(&row.expect.ignored))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsRow {
    resource: String,
    container: Option<String>,
    pod_level_resources_enabled: Option<bool>,
    pods: List<PodRow>,
    expect: RequestsExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsExpect {
    requests_milli: Option<BTreeMap<String, i64>>,
    error_contains: Option<String>,
}

fn calculate_requests(row: &RequestsRow) -> Outcome {
    let pod_level_resources = row.pod_level_resources_enabled.unwrap_or_default();
    let settings = Settings {
        pod_level_resources,
        ..Settings::default()
    };
    let container = row.container.as_deref().filter(|c| !c.is_empty());
    let requests = pods(&row.pods)?.into_iter().map(|pod| {
        let milli = hpa::pod_requests(&pod, &row.resource, container, &settings)?;
        Ok((pod.name.to_string(), milli))
    });
    match (
        requests.collect::<Result<BTreeMap<_, _>, Unavailable>>(),
        &row.expect.error_contains,
    ) {
        (Ok(got), None) => same_if("requests", got, row.expect.requests_milli.clone()),
        (Err(e), Some(text)) if e.message.contains(text) => Ok(()),
        (got, _) => Err(format!("got {got:?}, want {:?}", row.expect.error_contains).into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioRow {
    function: String,
    metrics: BTreeMap<String, i64>,
    requests: Option<BTreeMap<String, i64>>,
    target: i64,
    expect: RatioExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioExpect {
    ratio: Option<f64>,
    utilization: Option<i64>,
    raw_average: Option<i64>,
    usage: Option<i64>,
    error_contains: Option<String>,
}

fn ratios(row: &RatioRow) -> Outcome {
    let requests = row.requests.clone().unwrap_or_default();
    let got = match row.function.as_str() {
        "GetResourceUtilizationRatio" => {
            let known = row.metrics.iter();
            let known = known.filter_map(|(pod, usage)| Some((*usage, *requests.get(pod)?)));
            hpa::utilization_ratio(known, i32::try_from(row.target)?)
        }
        "GetMetricUsageRatio" => hpa::usage_ratio(row.metrics.values().copied(), row.target),
        other => return Err(format!("unknown function {other:?}").into()),
    };
    same("fails", got.is_none(), row.expect.error_contains.is_some())?;
    let Some(got) = got else { return Ok(()) };
    same_if("ratio", got.ratio, row.expect.ratio)?;
    same_if("utilization", got.usage, row.expect.utilization)?;
    same_if("usage", got.usage, row.expect.usage)?;
    same_if("raw average", got.raw_average, row.expect.raw_average)
}

// ---------------------------------------------------------------- quantities

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantityRow {
    text: String,
    overflow: Option<bool>,
    #[serde(rename = "upstream_milli_value")]
    _upstream_milli_value: Option<i64>,
    expect: QuantityExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantityExpect {
    canonical: Option<String>,
    approx_f64: Option<f64>,
    milli_value: Option<i64>,
    error: Option<bool>,
}

fn quantity(row: &QuantityRow) -> Outcome {
    let want = &row.expect;
    let parsed = row.text.parse::<Quantity>();
    same(
        "is refused",
        parsed.is_err(),
        want.error.unwrap_or_default(),
    )?;
    let Ok(got) = parsed else { return Ok(()) };
    same_if("canonical text", got.to_string(), want.canonical.clone())?;
    same_if("f64", got.approx_f64(), want.approx_f64)?;
    let milli = got.milli_value();
    same(
        "saturated",
        milli.saturated,
        row.overflow.unwrap_or_default(),
    )?;
    if milli.saturated {
        let end = if row.text.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        };
        return same("milli value", milli.value, end);
    }
    same_if("milli value", milli.value, want.milli_value)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildRow {
    resource: String,
    raw_milli: i64,
    expect: BuildExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildExpect {
    quantity: Option<String>,
    format: Option<String>,
}

fn build_quantity(row: &BuildRow) -> Outcome {
    let got = Quantity::from_milli(row.raw_milli, Format::of_resource(&row.resource));
    // The rows give the amount, not the canonical text: 1000 bytes print as 1k.
    let want = row
        .expect
        .quantity
        .as_ref()
        .map(|text| text.parse())
        .transpose()?;
    same_if("amount", &got, want.as_ref())?;
    same_if(
        "format",
        got.format().as_str(),
        row.expect.format.as_deref(),
    )
}

// ---------------------------------------------------------------- behaviour and history

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RulesRow {
    stabilization_window_seconds: Option<f64>,
    select_policy: Option<String>,
    policies: List<PolicyRow>,
    tolerance: Option<Value>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PolicyRow {
    r#type: String,
    value: i32,
    period_seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct BehaviorRow {
    scale_up: Option<RulesRow>,
    scale_down: Option<RulesRow>,
}

fn rules(row: Option<&RulesRow>) -> Fallible<hpa::ScalingRules> {
    let Some(row) = row else {
        return Ok(hpa::ScalingRules::default());
    };
    let policy = |p: &PolicyRow| -> Fallible<_> {
        let kind = match p.r#type.as_str() {
            "Pods" => hpa::PolicyKind::Pods,
            "Percent" => hpa::PolicyKind::Percent,
            other => return Err(format!("unknown policy type {other:?}").into()),
        };
        Ok(hpa::ScalingPolicy {
            kind,
            value: p.value,
            period: seconds(p.period_seconds),
        })
    };
    let policies = row
        .policies
        .as_ref()
        .map(|all| all.iter().map(policy).collect());
    Ok(hpa::ScalingRules {
        window: row.stabilization_window_seconds.map(seconds),
        select: match row.select_policy.as_deref() {
            None => None,
            Some("Max") => Some(hpa::PolicySelect::Max),
            Some("Min") => Some(hpa::PolicySelect::Min),
            Some("Disabled") => Some(hpa::PolicySelect::Disabled),
            Some(other) => return Err(format!("unknown selectPolicy {other:?}").into()),
        },
        policies: policies.transpose()?,
        tolerance: row.tolerance.as_ref().map(tolerance).transpose()?,
    })
}

/// A tolerance is a quantity, written as text or as a number.
fn tolerance(value: &Value) -> Fallible<f64> {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    Ok(text.parse::<Quantity>()?.approx_f64())
}

fn behavior(row: &BehaviorRow) -> Fallible<Behavior> {
    let scale_up = rules(row.scale_up.as_ref())?;
    Ok(Behavior {
        scale_up,
        scale_down: rules(row.scale_down.as_ref())?,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecommendationRow {
    recommendation: i32,
    age_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventRow {
    replica_change: i32,
    age_s: f64,
    outdated: Option<bool>,
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct EventAfter {
    replica_change: i32,
    outdated: bool,
}

fn log(
    recommendations: &List<RecommendationRow>,
    scale_up: &List<EventRow>,
    scale_down: &List<EventRow>,
) -> hpa::Log {
    let recommendation = |r: &RecommendationRow| hpa::Recommendation {
        at: ago(r.age_s),
        replicas: count(r.recommendation),
        mirrored: false,
    };
    let events = |rows: &List<EventRow>| {
        let event = |e: &EventRow| hpa::ScaleEvent {
            at: ago(e.age_s),
            change: count(e.replica_change),
            outdated: e.outdated.unwrap_or_default(),
        };
        list(rows).iter().map(event).collect()
    };
    hpa::Log {
        recommendations: recommendations
            .as_ref()
            .map(|rows| rows.iter().map(recommendation).collect()),
        scale_up: events(scale_up),
        scale_down: events(scale_down),
        scaled_to_zero: false,
    }
}

fn readings_after(log: &hpa::Log) -> Vec<i32> {
    log.recommendations()
        .iter()
        .map(|r| r.replicas.as_i32())
        .collect()
}

fn events_after(events: &[hpa::ScaleEvent]) -> Vec<EventAfter> {
    let row = |e: &hpa::ScaleEvent| EventAfter {
        replica_change: e.change.as_i32(),
        outdated: e.outdated,
    };
    events.iter().map(row).collect()
}

fn bounds(min: i32, max: i32) -> ReplicaBounds {
    ReplicaBounds::new(count(min), count(max))
}

fn spec(bounds: ReplicaBounds, behavior: Option<&Behavior>) -> Hpa<'_> {
    Hpa {
        bounds,
        metrics: &[],
        behavior,
    }
}

fn step(current: i32, recommended: i32) -> hpa::Step {
    hpa::Step {
        current: count(current),
        recommended: count(recommended),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitExpect {
    replicas: Option<i32>,
    reason: Option<String>,
}

impl LimitExpect {
    fn check(&self, got: &hpa::Normalized) -> Outcome {
        same_if("replicas", got.desired, self.replicas.map(count))?;
        same_if("reason", got.limit.as_str(), self.reason.as_deref())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConvertRow {
    current_replicas: i32,
    desired_replicas: i32,
    min_replicas: i32,
    max_replicas: i32,
    scale_up_limit_factor: Option<f64>,
    scale_up_limit_minimum: Option<f64>,
    scale_up_rules: Option<RulesRow>,
    scale_down_rules: Option<RulesRow>,
    scale_up_events: List<EventRow>,
    scale_down_events: List<EventRow>,
    expect: LimitExpect,
}

impl ConvertRow {
    /// An empty log of recommendations: stabilization changes nothing, limits and bounds remain.
    fn normalize(&self, behavior: Option<&Behavior>) -> hpa::Normalized {
        let production = Settings::default();
        let factor = self
            .scale_up_limit_factor
            .unwrap_or(production.scale_up_limit_factor);
        let minimum = self
            .scale_up_limit_minimum
            .unwrap_or(production.scale_up_limit_minimum);
        let settings = Settings {
            scale_up_limit_factor: factor,
            scale_up_limit_minimum: minimum,
            ..production
        };
        let spec = spec(bounds(self.min_replicas, self.max_replicas), behavior);
        let log = log(
            &Some(Vec::new()),
            &self.scale_up_events,
            &self.scale_down_events,
        );
        let step = step(self.current_replicas, self.desired_replicas);
        hpa::normalize(&spec, step, log, &settings, NOW)
    }
}

fn convert_plain(row: &ConvertRow) -> Outcome {
    row.expect.check(&row.normalize(None))
}

fn convert_with_behavior(row: &ConvertRow) -> Outcome {
    let scale_down = rules(row.scale_down_rules.as_ref())?;
    let behavior = Behavior {
        scale_up: rules(row.scale_up_rules.as_ref())?,
        scale_down,
    };
    row.expect.check(&row.normalize(Some(&behavior)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StabilizeRow {
    downscale_stabilization_window_s: Option<f64>,
    scale_up_window_s: Option<f64>,
    scale_down_window_s: Option<f64>,
    recommendations: List<RecommendationRow>,
    current_replicas: Option<i32>,
    desired_replicas: i32,
    expect: StabilizeExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StabilizeExpect {
    replicas: Option<i32>,
    log_length: Option<usize>,
    recommendations_after: List<i32>,
}

impl StabilizeRow {
    fn check(&self, behavior: Option<&Behavior>) -> Outcome {
        let mut settings = Settings::default();
        if let Some(window) = self.downscale_stabilization_window_s {
            settings.downscale_stabilization = seconds(window);
        }
        let log = log(&self.recommendations, &None, &None);
        let spec = spec(bounds(0, i32::MAX), behavior);
        let step = step(
            self.current_replicas.unwrap_or_default(),
            self.desired_replicas,
        );
        let got = hpa::normalize(&spec, step, log, &settings, NOW);
        same_if("replicas", got.stabilized, self.expect.replicas.map(count))?;
        same_if(
            "length",
            got.log.recommendations().len(),
            self.expect.log_length,
        )?;
        same_if(
            "log",
            readings_after(&got.log),
            self.expect.recommendations_after.clone(),
        )
    }
}

fn stabilize_plain(row: &StabilizeRow) -> Outcome {
    row.check(None)
}

fn stabilize_with_behaviors(row: &StabilizeRow) -> Outcome {
    let rules = |window_s: Option<f64>| hpa::ScalingRules {
        window: window_s.map(seconds),
        ..hpa::ScalingRules::default()
    };
    row.check(Some(&Behavior {
        scale_up: rules(row.scale_up_window_s),
        scale_down: rules(row.scale_down_window_s),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateRow {
    current_replicas: i32,
    scale_up_events: List<EventRow>,
    scale_down_events: List<EventRow>,
    rules: Option<RulesRow>,
    expect: RateExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateExpect {
    limit: i32,
}

fn scale_up_limit(row: &RateRow) -> Outcome {
    let scale_up = rules(row.rules.as_ref())?;
    let behavior = Behavior {
        scale_up,
        ..Behavior::default()
    };
    let log = log(&None, &row.scale_up_events, &row.scale_down_events);
    let got = behavior.up_limit(count(row.current_replicas), &log, NOW);
    same("limit", got, count(row.expect.limit))
}

fn scale_down_limit(row: &RateRow) -> Outcome {
    let scale_down = rules(row.rules.as_ref())?;
    let behavior = Behavior {
        scale_down,
        ..Behavior::default()
    };
    let log = log(&None, &row.scale_up_events, &row.scale_down_events);
    let got = behavior.down_limit(count(row.current_replicas), &log, NOW);
    same("limit", got, count(row.expect.limit))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreRow {
    replica_change: i32,
    scaling_rules: Option<RulesRow>,
    previous_events: List<EventRow>,
    expect: StoreExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreExpect {
    change_in_last_60s: Option<i64>,
    events_after: List<EventAfter>,
}

/// The same rules and events in either direction.
fn store_scale_event(row: &StoreRow) -> Outcome {
    let rules = row
        .scaling_rules
        .as_ref()
        .map(|written| rules(Some(written)))
        .transpose()?;
    let behavior = rules.map(|r| Behavior {
        scale_up: r.clone(),
        scale_down: r,
    });
    let log = log(&None, &row.previous_events, &row.previous_events);
    let (low, high) = (count(10), count(10 + row.replica_change));
    for (direction, from, to) in [(Direction::Up, low, high), (Direction::Down, high, low)] {
        let changed = log.changed(direction, seconds(60.0), NOW);
        same_if("change before", changed, row.expect.change_in_last_60s)?;
        let after = hpa::record_scale(log.clone(), behavior.as_ref(), from, to, NOW);
        let (after, other) = match direction {
            Direction::Up => (after.scale_up, after.scale_down == log.scale_down),
            Direction::Down => (after.scale_down, after.scale_up == log.scale_up),
        };
        let want = row.expect.events_after.as_deref().unwrap_or_default();
        same(
            &format!("events {direction:?}"),
            events_after(&after).as_slice(),
            want,
        )?;
        same("the other direction is untouched", other, true)?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NormalizeRow {
    min_replicas: i32,
    max_replicas: i32,
    current_replicas: i32,
    desired_replicas: i32,
    behavior: Option<BehaviorRow>,
    recommendations: List<RecommendationRow>,
    scale_up_events: List<EventRow>,
    scale_down_events: List<EventRow>,
    downscale_stabilization_window_s: Option<f64>,
    expect: NormalizeExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NormalizeExpect {
    replicas: Option<i32>,
    conditions: List<ConditionRow>,
    recommendations_after: List<i32>,
    scale_up_events_after: List<EventAfter>,
    scale_down_events_after: List<EventAfter>,
}

#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct ConditionRow {
    r#type: String,
    status: String,
    reason: String,
}

impl ConditionRow {
    fn of(kind: &str, status: Status, reason: &str) -> Self {
        let status = status.as_str().into();
        Self {
            r#type: kind.into(),
            status,
            reason: reason.into(),
        }
    }

    fn read(&self) -> Fallible<Condition> {
        let known = Condition::known(&self.r#type, status(&self.status)?, &self.reason);
        known.ok_or_else(|| format!("unknown condition {self:?}").into())
    }
}

fn fuzz_normalize(row: &NormalizeRow) -> Outcome {
    let want = &row.expect;
    let mut settings = Settings::default();
    if let Some(window) = row.downscale_stabilization_window_s {
        settings.downscale_stabilization = seconds(window);
    }
    let behavior = row.behavior.as_ref().map(behavior).transpose()?;
    let spec = spec(
        bounds(row.min_replicas, row.max_replicas),
        behavior.as_ref(),
    );
    let before = log(
        &row.recommendations,
        &row.scale_up_events,
        &row.scale_down_events,
    );
    let step = step(row.current_replicas, row.desired_replicas);
    let got = hpa::normalize(&spec, step, before, &settings, NOW);
    let limited = if got.limited() {
        Status::True
    } else {
        Status::False
    };
    let conditions = vec![
        ConditionRow::of(ABLE_TO_SCALE, Status::True, got.able.as_str()),
        ConditionRow::of(SCALING_LIMITED, limited, got.limit.as_str()),
    ];
    same_if("replicas", got.desired, want.replicas.map(count))?;
    same_if("conditions", &conditions, want.conditions.as_ref())?;
    let after = hpa::record_scale(got.log, spec.behavior, step.current, got.desired, NOW);
    same_if(
        "log",
        readings_after(&after),
        want.recommendations_after.clone(),
    )?;
    let (up, down) = (
        events_after(&after.scale_up),
        events_after(&after.scale_down),
    );
    same_if("scale-up events", &up, want.scale_up_events_after.as_ref())?;
    same_if(
        "scale-down events",
        &down,
        want.scale_down_events_after.as_ref(),
    )
}

// ---------------------------------------------------------------- whole passes

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZeroRow {
    gate: bool,
    scaled_to_zero_condition: Option<String>,
    min_replicas: i32,
    has_object_or_external_metric: bool,
    expect: ZeroExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZeroExpect {
    compute_metrics: bool,
}

/// Through a whole pass at zero replicas, whose verdict tells whether metrics were computed.
fn zero_replicas(row: &ZeroRow) -> Outcome {
    let zero = zero_rule(row.gate, None)?;
    let settings = Settings {
        zero,
        ..Settings::default()
    };
    let (metric, selector, target) = ("qps".into(), None, Target::AverageValue(1000));
    let metrics = [if row.has_object_or_external_metric {
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
        bounds: bounds(row.min_replicas, 10),
        metrics: &metrics,
        behavior: None,
    };
    let condition = |word: &String| -> Fallible<_> {
        Ok(Condition {
            kind: SCALED_TO_ZERO,
            status: status(word)?,
            reason: "ScaledToZero",
        })
    };
    let conditions = row
        .scaled_to_zero_condition
        .as_ref()
        .map(condition)
        .transpose()?;
    let reads = Reads {
        scale: Ok(Scale::default()),
        selector: Ok(()),
        pods: &[],
        readings: &[],
        conditions: &conditions.into_iter().collect(),
    };
    let pass = ControllerPass::run(&spec, &reads, &hpa::Log::default(), &settings, NOW);
    let computed = pass
        .computed
        .is_some_and(|computed| computed.verdict != hpa::Verdict::Disabled);
    same("computes metrics", computed, row.expect.compute_metrics)
}

fn zero_rule(gate: bool, semantics: Option<&str>) -> Fallible<hpa::ZeroRule> {
    match (semantics, gate) {
        (Some("pre_1_36"), _) => Ok(hpa::ZeroRule::WhenMinIsZero),
        (Some(other), _) => Err(format!("unknown zero semantics {other:?}").into()),
        (None, true) => Ok(hpa::ZeroRule::WhenScaledToZero),
        (None, false) => Ok(hpa::ZeroRule::Never),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReconcileRow {
    hpa: HpaRow,
    scale: ScaleRow,
    pods: List<PodRow>,
    metrics_apis: Option<MetricsApis>,
    other_hpas: List<OtherHpa>,
    history: Option<HistoryRow>,
    config: Option<ConfigRow>,
    expect: ReconcileExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HpaRow {
    min_replicas: Option<i32>,
    max_replicas: i32,
    metrics: List<MetricRow>,
    behavior: Option<BehaviorRow>,
    status_current_replicas: Option<i32>,
    status_desired_replicas: Option<i32>,
    initial_conditions: List<ConditionRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MetricRow {
    r#type: String,
    resource: Option<ResourceSource>,
    container_resource: Option<ResourceSource>,
    pods: Option<MetricSource>,
    object: Option<MetricSource>,
    external: Option<MetricSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceSource {
    name: String,
    container: Option<String>,
    target: TargetRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MetricSource {
    metric: MetricName,
    described_object: Option<Value>,
    target: TargetRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricName {
    name: String,
    #[serde(rename = "selector")]
    _selector: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TargetRow {
    r#type: Option<String>,
    average_utilization: Option<i32>,
    average_value: Option<String>,
    value: Option<String>,
}

impl TargetRow {
    fn read(&self, kind: MetricKind) -> Fallible<Target> {
        let milli = |text: &Option<String>| -> Fallible<Option<i64>> {
            let quantity = text
                .as_ref()
                .map(|text| text.parse::<Quantity>())
                .transpose()?;
            Ok(quantity.map(|q| q.milli_value().value))
        };
        Ok(Target::read(
            kind,
            hpa::WrittenTarget {
                kind: self.r#type.as_deref().unwrap_or_default(),
                average_utilization: self.average_utilization,
                average_value: milli(&self.average_value)?,
                value: milli(&self.value)?,
            },
        ))
    }
}

fn described(source: Option<&MetricSource>) -> hpa::ObjectRef {
    let object = source.and_then(|source| source.described_object.as_ref());
    let text = |key| {
        object
            .and_then(|o| o.get(key)?.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    hpa::ObjectRef {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
    }
}

fn metric_spec(row: &MetricRow) -> Fallible<MetricSpec> {
    let absent = || format!("{} has no source", row.r#type);
    let source = |source: &Option<MetricSource>, kind| -> Fallible<_> {
        let source = source.as_ref().ok_or_else(absent)?;
        Ok((source.metric.name.clone(), source.target.read(kind)?))
    };
    let selector = None;
    Ok(match row.r#type.as_str() {
        "Resource" => {
            let source = row.resource.as_ref().ok_or_else(absent)?;
            let target = source.target.read(MetricKind::Resource)?;
            MetricSpec::Resource {
                name: source.name.clone(),
                target,
            }
        }
        "ContainerResource" => {
            let source = row.container_resource.as_ref().ok_or_else(absent)?;
            let target = source.target.read(MetricKind::ContainerResource)?;
            let container = source.container.clone().unwrap_or_default();
            MetricSpec::ContainerResource {
                name: source.name.clone(),
                container,
                target,
            }
        }
        "Pods" => {
            let (metric, target) = source(&row.pods, MetricKind::Pods)?;
            MetricSpec::Pods {
                metric,
                selector,
                target,
            }
        }
        "Object" => {
            let (metric, target) = source(&row.object, MetricKind::Object)?;
            let described = described(row.object.as_ref());
            MetricSpec::Object {
                described,
                metric,
                selector,
                target,
            }
        }
        "External" => {
            let (metric, target) = source(&row.external, MetricKind::External)?;
            MetricSpec::External {
                metric,
                selector,
                target,
            }
        }
        other => MetricSpec::Unknown(other.to_owned()),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleRow {
    spec_replicas: i32,
    status_replicas: Option<i32>,
    selector: Option<String>,
    get_error: Option<String>,
    update_error: Option<String>,
    update_conflicts_before_success: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct MetricsApis {
    resource: List<SampleRow>,
    resource_error: Option<String>,
    custom_pods: List<SampleRow>,
    custom_object_value_milli: Option<i64>,
    custom_error: Option<String>,
    external_values_milli: List<i64>,
    external_error: Option<String>,
}

impl MetricsApis {
    fn read(&self, kind: MetricKind) -> Reading {
        let error = match kind {
            MetricKind::Resource | MetricKind::ContainerResource => &self.resource_error,
            MetricKind::Pods | MetricKind::Object => &self.custom_error,
            MetricKind::External => &self.external_error,
            MetricKind::Unknown => &None,
        };
        if let Some(message) = error {
            return Err(Unavailable::new(Cause::NotRead, message));
        }
        Ok(match kind {
            MetricKind::Resource | MetricKind::ContainerResource => Measured::Usage(
                list(&self.resource)
                    .iter()
                    .map(|s| s.usage("", ""))
                    .collect(),
            ),
            MetricKind::Pods => Measured::Samples(
                list(&self.custom_pods)
                    .iter()
                    .map(SampleRow::sample)
                    .collect(),
            ),
            MetricKind::Object => {
                Measured::Total(self.custom_object_value_milli.into_iter().collect())
            }
            _ => Measured::Total(list(&self.external_values_milli).to_vec()),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherHpa {
    #[serde(rename = "name")]
    _name: Option<String>,
    match_labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct HistoryRow {
    recommendations: List<RecommendationRow>,
    scale_up_events: List<EventRow>,
    scale_down_events: List<EventRow>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ConfigRow {
    tolerance: Option<f64>,
    cpu_initialization_period_s: Option<f64>,
    initial_readiness_delay_s: Option<f64>,
    downscale_stabilization_window_s: Option<f64>,
    scale_up_limit_factor: Option<f64>,
    scale_up_limit_minimum: Option<f64>,
    feature_gates: Option<BTreeMap<String, bool>>,
    zero_semantics: Option<String>,
}

impl ConfigRow {
    fn settings(&self) -> Fallible<Settings> {
        let gate = |name: &str| {
            self.feature_gates
                .as_ref()
                .and_then(|g| g.get(name))
                .copied()
        };
        let flags = flags(
            self.cpu_initialization_period_s,
            self.initial_readiness_delay_s,
        );
        let window = self.downscale_stabilization_window_s;
        Ok(Settings {
            tolerance: self.tolerance.unwrap_or(flags.tolerance),
            downscale_stabilization: window.map_or(flags.downscale_stabilization, seconds),
            scale_up_limit_factor: self
                .scale_up_limit_factor
                .unwrap_or(flags.scale_up_limit_factor),
            scale_up_limit_minimum: self
                .scale_up_limit_minimum
                .unwrap_or(flags.scale_up_limit_minimum),
            zero: zero_rule(
                gate("HPAScaleToZero").unwrap_or_default(),
                self.zero_semantics.as_deref(),
            )?,
            pod_level_resources: gate("PodLevelResources").unwrap_or(flags.pod_level_resources),
            ..flags
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReconcileExpect {
    desired_replicas: Option<i32>,
    conditions: List<ConditionRow>,
    scale_updated: Option<bool>,
    cpu_utilization: Option<i32>,
    reconcile_action: Option<String>,
    reconcile_error: Option<String>,
    metric_actions: Option<BTreeMap<String, String>>,
    metric_errors: Option<BTreeMap<String, String>>,
    status_written: Option<bool>,
    recommendations_after: List<i32>,
    scale_up_events_after: List<EventAfter>,
    scale_down_events_after: List<EventAfter>,
}

/// Whether a selector selects the pods of one workload.
type Selection = Result<(), SelectorProblem>;

impl ReconcileRow {
    /// Whether the scale's selector is usable, and the pods it selects.
    fn select(&self) -> Fallible<(Selection, Vec<Arc<Pod>>)> {
        let selector: Selector = match self.scale.selector.as_deref().unwrap_or_default().parse() {
            Ok(selector) if selector == Selector::default() => {
                return Ok((Err(SelectorProblem::Missing), Vec::new()));
            }
            Ok(selector) => selector,
            Err(_) => return Ok((Err(SelectorProblem::Unparsable), Vec::new())),
        };
        let others = list(&self.other_hpas).iter().map(|other| {
            let labels = other.match_labels.iter().flatten();
            let equal = labels.map(|(k, v)| Requirement::Equal(k.clone(), v.clone()));
            equal.collect::<Selector>()
        });
        let others: Vec<_> = others.collect();
        let labels = |p: &PodRow| p.labels.clone().unwrap_or_default();
        let all: Vec<_> = list(&self.pods).iter().map(labels).collect();
        let selected = list(&self.pods)
            .iter()
            .filter(|p| selector.matches(&labels(p)));
        let pods = selected.map(pod).collect::<Result<_, _>>()?;
        let is_ambiguous = |labels: &&Labels| {
            selector.matches(labels) && others.iter().any(|other| other.matches(labels))
        };
        let ambiguous = all.iter().find(is_ambiguous);
        let selection = ambiguous.map_or(Ok(()), |_| Err(SelectorProblem::Ambiguous));
        Ok((selection, pods))
    }

    /// What writing the scale does, as the row's API server would answer.
    fn write(&self) -> Applied {
        let conflicts = self
            .scale
            .update_conflicts_before_success
            .unwrap_or_default();
        if self.scale.update_error.is_some() || conflicts >= SCALE_UPDATE_ATTEMPTS {
            Applied::Failed
        } else {
            Applied::Written
        }
    }

    fn scale(&self) -> Result<Scale, ErrorKind> {
        if self.scale.get_error.is_some() {
            return Err(ErrorKind::Internal);
        }
        let spec = self.scale.spec_replicas;
        let status = self.scale.status_replicas.unwrap_or(spec);
        Ok(Scale {
            spec: count(spec),
            status: count(status),
        })
    }
}

fn reconcile(row: &ReconcileRow) -> Outcome {
    let settings = row
        .config
        .as_ref()
        .unwrap_or(&ConfigRow::default())
        .settings()?;
    let metrics = list(&row.hpa.metrics)
        .iter()
        .map(metric_spec)
        .collect::<Result<Vec<_>, _>>()?;
    let behavior = row.hpa.behavior.as_ref().map(behavior).transpose()?;
    let bounds = bounds(row.hpa.min_replicas.unwrap_or(1), row.hpa.max_replicas);
    let spec = Hpa {
        bounds,
        metrics: &metrics,
        behavior: behavior.as_ref(),
    };
    let conditions = list(&row.hpa.initial_conditions)
        .iter()
        .map(ConditionRow::read);
    let previous = HpaStatus {
        current: count(row.hpa.status_current_replicas.unwrap_or_default()),
        desired: count(row.hpa.status_desired_replicas.unwrap_or_default()),
        conditions: conditions.collect::<Result<_, _>>()?,
    };
    let (selector, pods) = row.select()?;
    let none = MetricsApis::default();
    let apis = row.metrics_apis.as_ref().unwrap_or(&none);
    let reads = Reads {
        scale: row.scale(),
        selector,
        pods: &pods,
        readings: &metrics
            .iter()
            .map(|m| apis.read(m.kind()))
            .collect::<Vec<_>>(),
        conditions: &previous.conditions,
    };
    let no_history = HistoryRow::default();
    let history = row.history.as_ref().unwrap_or(&no_history);
    let log = log(
        &history.recommendations,
        &history.scale_up_events,
        &history.scale_down_events,
    );
    let pass = ControllerPass::run(&spec, &reads, &log, &settings, NOW);
    let pass = pass.applied(&spec, &settings, row.write(), NOW);
    check_pass(row, &metrics, &pass, &previous)
}

fn check_pass(
    row: &ReconcileRow,
    metrics: &[MetricSpec],
    pass: &ControllerPass,
    previous: &HpaStatus,
) -> Outcome {
    let want = &row.expect;
    let status = pass.status(previous);
    same_if("desired", status.desired, want.desired_replicas.map(count))?;
    let conditions = status.conditions.0.iter();
    let conditions: Vec<_> = conditions
        .map(|c| ConditionRow::of(c.kind, c.status, c.reason))
        .collect();
    same_if("conditions", &conditions, want.conditions.as_ref())?;
    let updated = pass.applied == Some(Applied::Written);
    same_if("scale updated", updated, want.scale_updated)?;
    same_if("status written", status != *previous, want.status_written)?;
    same_if(
        "action",
        pass.action().as_str(),
        want.reconcile_action.as_deref(),
    )?;
    same_if(
        "error",
        error_word(pass.error()),
        want.reconcile_error.as_deref(),
    )?;
    same_if(
        "log",
        readings_after(&pass.log),
        want.recommendations_after.clone(),
    )?;
    let (up, down) = (
        events_after(&pass.log.scale_up),
        events_after(&pass.log.scale_down),
    );
    same_if("scale-up events", &up, want.scale_up_events_after.as_ref())?;
    same_if(
        "scale-down events",
        &down,
        want.scale_down_events_after.as_ref(),
    )?;
    check_metrics(want, metrics, pass, previous)
}

fn error_word(kind: Option<ErrorKind>) -> &'static str {
    kind.map_or("none", ErrorKind::as_str)
}

fn check_metrics(
    want: &ReconcileExpect,
    metrics: &[MetricSpec],
    pass: &ControllerPass,
    previous: &HpaStatus,
) -> Outcome {
    let name = |metric: &MetricSpec| match metric {
        MetricSpec::Unknown(kind) => kind.clone(),
        known => known.kind().as_str().to_owned(),
    };
    let asked = || metrics.iter().map(name).zip(pass.proposals());
    let action = |p: &Result<hpa::MetricProposal, Unavailable>| match p {
        Ok(p) => ScaleAction::between(previous.current, p.replicas),
        Err(_) => ScaleAction::None,
    };
    let actions = asked()
        .map(|(kind, p)| (kind, action(p).as_str().to_owned()))
        .collect();
    same_if("metric actions", &actions, want.metric_actions.as_ref())?;
    let fault = |p: &Result<_, Unavailable>| {
        error_word(p.as_ref().err().map(|e| ErrorKind::of_metric(e.reason))).to_owned()
    };
    let errors = asked().map(|(kind, p)| (kind, fault(p))).collect();
    same_if("metric errors", &errors, want.metric_errors.as_ref())?;

    let is_cpu = |m: &&MetricSpec| matches!(m, MetricSpec::Resource { name, .. } if name == "cpu");
    let at = metrics.iter().position(|m| is_cpu(&m));
    let cpu = at.and_then(|at| {
        pass.proposals()
            .get(at)?
            .as_ref()
            .ok()?
            .value
            .average_utilization
    });
    same_if("cpu utilization", cpu, want.cpu_utilization.map(Some))
}
