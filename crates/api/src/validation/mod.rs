//! Validates the specs of API objects and converts them to domain values.
//!
//! Pure: an API object in, a [`Workload`] or a [`FleetSpec`] out, or every reason why not. The controller and the
//! command line use the same functions, so both accept the same specs. A cron or a prediction that is invalid is left
//! out with a [`SpecProblem`], and the rest of the spec applies; a spec that cannot be acted on is refused as a whole.

mod algorithm;
mod cost_limits;
mod duration;
mod fleet;
mod limits;
mod metric;
mod targets;

use foretide_crds::{
    CronSpec, EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec,
    Mode as WireMode, ScaleStrategy,
};
use foretide_domain::{
    ReplicaBounds, Replicas, ScaleTarget,
    cron::{Window, WindowError, WindowText, Zone},
    hpa::{MetricSpec, Target},
    proposal::Reason,
    words::excerpt,
    workload::{FloorSources, Mode, Prediction, SpecPart, SpecProblem, Strategy, Workload},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use algorithm::{WorkloadFacts, algorithm, build, forecaster, is_priced, lead_time};
pub use cost_limits::{CostLimits, InvalidCostLimit};
pub use duration::duration;
pub use fleet::{FleetCourse, FleetSpec, fleet};
pub use metric::selector_text;
pub use targets::{InvalidTargetKind, TargetKind, TargetRules};

use foretide_domain::words::chain;

/// The most replicas that a spec may ask for, as in the rules of the definitions.
pub const MAX_REPLICAS: i32 = 10_000;
/// The longest quotation of a spec in a violation, in characters.
const QUOTED_MAX: usize = 200;
/// The most violations that a message lists.
const LISTED_MAX: usize = 8;
/// The default of `predictionWindowSeconds`, as in crane.
const PREDICTION_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// The range of `predictionWindowSeconds`.
const PREDICTION_WINDOW_SECONDS: std::ops::RangeInclusive<i32> = 60..=604_800;

/// An invalid field of a spec.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{field} is {found}, expected {expected}")]
pub struct Violation {
    /// Path of the field, such as `spec.metrics[0].resource.target`.
    pub field: String,
    /// The value.
    pub found: String,
    /// The values that would be accepted.
    pub expected: String,
}

/// A spec that cannot be acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", sentence(.0))]
pub struct Invalid(pub Vec<Violation>);

// === impl Violation ===

impl Violation {
    fn new(
        field: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            field: excerpt(&field.into(), QUOTED_MAX),
            found: excerpt(&found.into(), QUOTED_MAX),
            expected: excerpt(&expected.into(), QUOTED_MAX),
        }
    }
}

fn sentence(violations: &[Violation]) -> String {
    let mut listed: Vec<_> = violations
        .iter()
        .take(LISTED_MAX)
        .map(ToString::to_string)
        .collect();
    if violations.len() > LISTED_MAX {
        listed.push(format!("and {} more", violations.len() - LISTED_MAX));
    }
    listed.join("; ")
}

/// Converts the spec of an autoscaler.
///
/// `local` is the zone that `timezone: Local` names.
///
/// # Errors
/// Every violation at once, when the spec cannot be acted on.
pub fn workload(
    ehpa: &EffectiveHorizontalPodAutoscaler,
    local: &Zone,
) -> Result<Workload, Invalid> {
    let mut violations = Vec::new();
    let workload = read(&ehpa.metadata, &ehpa.spec, local, &mut violations);
    refuse_sleep_for_ever(&workload, &mut violations);
    refuse_if_any(violations)?;
    Ok(workload)
}

/// Refuses a minimum of zero from which nothing raises the count again, as the API server does in an HPA. A forecast of
/// what pods use does not: its history ends with the pods. In a fleet 0 counts as 1.
fn refuse_sleep_for_ever(workload: &Workload, violations: &mut Vec<Violation>) {
    let is_woken = workload.hpa(workload.bounds).reads_beyond_pods()
        || workload.floor.peak().is_some_and(|replicas| replicas > 0);
    if workload.bounds.min == Replicas::ZERO && !is_woken {
        let expected = "1 or more, because nothing brings the workload back from zero: its metrics have no value without \
                        pods; or add a metric of type Object or External, or a cron";
        violations.push(Violation::new("spec.minReplicas", "0", expected));
    }
}

fn refuse_if_any(violations: Vec<Violation>) -> Result<(), Invalid> {
    if violations.is_empty() {
        Ok(())
    } else {
        Err(Invalid(violations))
    }
}

/// Converts a spec as far as it is valid; the result may only be used if there are no violations.
fn read(
    metadata: &ObjectMeta,
    spec: &EffectiveHorizontalPodAutoscalerSpec,
    local: &Zone,
    violations: &mut Vec<Violation>,
) -> Workload {
    let mut problems = Vec::new();
    limits::check(spec, violations);
    let sources = Workload {
        floor: FloorSources {
            windows: windows(spec, local, &mut problems),
            prediction: prediction(spec, &mut problems),
        },
        problems,
        ..Workload::default()
    };
    Workload {
        target: target(metadata, spec),
        bounds: bounds(spec, violations),
        strategy: match spec.scale_strategy.unwrap_or_default() {
            ScaleStrategy::Auto => Strategy::Auto,
            ScaleStrategy::Preview => Strategy::Preview,
        },
        mode: match spec.mode.unwrap_or_default() {
            WireMode::Delegated => Mode::Delegated,
            WireMode::Direct => Mode::Direct,
            WireMode::Metric => Mode::Metric,
        },
        specific_replicas: spec
            .specific_replicas
            .map(|n| count("spec.specificReplicas", n, violations)),
        metrics: metrics(spec, sources.asks_without_metrics(), violations),
        behavior: spec
            .behavior
            .as_ref()
            .map(|raw| metric::behavior(raw, violations)),
        ..sources
    }
}

fn target(metadata: &ObjectMeta, spec: &EffectiveHorizontalPodAutoscalerSpec) -> ScaleTarget {
    let target = &spec.scale_target_ref;
    ScaleTarget {
        api_version: target.api_version.clone().unwrap_or_default(),
        kind: target.kind.clone(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: target.name.clone(),
    }
}

fn bounds(
    spec: &EffectiveHorizontalPodAutoscalerSpec,
    violations: &mut Vec<Violation>,
) -> ReplicaBounds {
    let min = count(
        "spec.minReplicas",
        spec.min_replicas.unwrap_or(1),
        violations,
    );
    let max = count("spec.maxReplicas", spec.max_replicas, violations);
    if max == Replicas::ZERO {
        violations.push(Violation::new("spec.maxReplicas", "0", "at least 1"));
    }
    if min > max {
        violations.push(Violation::new(
            "spec.minReplicas",
            min.to_string(),
            format!("at most spec.maxReplicas, which is {max}"),
        ));
    }
    ReplicaBounds::new(min, max)
}

fn count(field: &str, n: i32, violations: &mut Vec<Violation>) -> Replicas {
    if !(0..=MAX_REPLICAS).contains(&n) {
        violations.push(Violation::new(
            field,
            n.to_string(),
            format!("0 to {MAX_REPLICAS}"),
        ));
    }
    Replicas::from_i32(n)
}

/// The metrics of the spec; cpu at 80 %, as in autoscaling/v2, if it has none and nothing else asks for replicas, or, in
/// mode Metric, a prediction, which needs a metric to forecast.
fn metrics(
    spec: &EffectiveHorizontalPodAutoscalerSpec,
    asks_without_metrics: bool,
    violations: &mut Vec<Violation>,
) -> Vec<MetricSpec> {
    let raw = spec.metrics.as_deref().unwrap_or_default();
    let is_forecast = spec.mode == Some(WireMode::Metric) && spec.prediction.is_some();
    if raw.is_empty() && (!asks_without_metrics || is_forecast) {
        return vec![MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::Utilization(80),
        }];
    }
    metric::metrics(raw, violations)
}

fn windows(
    spec: &EffectiveHorizontalPodAutoscalerSpec,
    local: &Zone,
    problems: &mut Vec<SpecProblem>,
) -> Vec<Window> {
    let mut windows = Vec::new();
    // `limits::check` refuses a longer list.
    for cron in spec.crons.iter().flatten().take(limits::CRONS_MAX) {
        match window(cron, local) {
            Ok(window) => windows.push(window),
            Err(problem) => problems.push(problem),
        }
    }
    windows
}

/// Converts one cron of a spec.
///
/// # Errors
/// Why it is left out.
pub fn window(cron: &CronSpec, local: &Zone) -> Result<Window, SpecProblem> {
    let name = cron.name.clone().unwrap_or_default();
    let target = cron.target_replicas.and_then(|n| u32::try_from(n).ok());
    let Some(target_replicas) = target else {
        let message = format!("cron `{name}`: targetReplicas must be a number of at least 0");
        return Err(cron_problem(name, Reason::InvalidCron, message));
    };
    let text = WindowText {
        name: &name,
        start: cron.start.as_deref().unwrap_or_default(),
        end: cron.end.as_deref().unwrap_or_default(),
        timezone: cron.timezone.as_deref().unwrap_or_default(),
        target_replicas,
    };
    Window::parse(&text, local).map_err(|error: WindowError| {
        cron_problem(name.clone(), Reason::from(&error), chain(&error))
    })
}

fn cron_problem(cron: String, reason: Reason, message: String) -> SpecProblem {
    SpecProblem {
        part: SpecPart::Cron(cron),
        reason,
        message,
    }
}

fn prediction(
    spec: &EffectiveHorizontalPodAutoscalerSpec,
    problems: &mut Vec<SpecProblem>,
) -> Option<Prediction> {
    let prediction = spec.prediction.as_ref()?;
    let window = match prediction.prediction_window_seconds {
        None => PREDICTION_WINDOW,
        Some(seconds) if PREDICTION_WINDOW_SECONDS.contains(&seconds) => {
            SignedDuration::from_secs(seconds.into())
        }
        Some(seconds) => {
            let field = "spec.prediction.predictionWindowSeconds";
            let message = format!("{field} is {seconds}, expected 60 to 604800; 3600 is used");
            problems.push(field_problem(field, message));
            PREDICTION_WINDOW
        }
    };
    let name = match forecaster(prediction) {
        Ok(forecaster) => forecaster.name().to_owned(),
        Err(violation) => {
            problems.push(field_problem(&violation.field, violation.to_string()));
            String::new()
        }
    };
    Some(Prediction {
        window,
        algorithm: name,
    })
}

fn field_problem(field: &str, message: String) -> SpecProblem {
    SpecProblem {
        part: SpecPart::Field(field.to_owned()),
        reason: Reason::InvalidSpec,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_of_zero_is_refused_where_nothing_raises_the_count_again() {
        let average = "target: {type: AverageValue, averageValue: 1}";
        let cpu = format!("{{type: Resource, resource: {{name: cpu, {average}}}}}");
        let pods = format!("{{type: Pods, pods: {{metric: {{name: qps}}, {average}}}}}");
        let external = format!("{{type: External, external: {{metric: {{name: q}}, {average}}}}}");
        let object = "{type: Object, object: {describedObject: {kind: Service, name: web}, metric: {name: q}, \
                      target: {type: Value, value: 1}}}";
        let cron = |zone: &str, target: u32| {
            format!(
                "crons: [{{name: day, start: 0 8 * * *, end: 0 18 * * *, timezone: {zone}, targetReplicas: {target}}}]"
            )
        };
        for (wakes, spec) in [
            (false, "metrics: []".to_owned()),
            (false, format!("metrics: [{cpu}]")),
            (false, format!("metrics: [{cpu}, {pods}], mode: Direct")),
            // Its history ends with the pods.
            (false, format!("metrics: [{cpu}], prediction: {{}}")),
            (false, format!("metrics: [{cpu}], scaleStrategy: Preview")),
            (false, cron("UTC", 0)),
            (false, cron("Atlantis", 3)),
            (true, cron("UTC", 3)),
            (true, format!("metrics: [{cpu}], {}", cron("UTC", 3))),
            (true, format!("metrics: [{cpu}, {external}]")),
            (true, format!("metrics: [{object}]")),
        ] {
            for min in [0, 1] {
                let ehpa = serde_saphyr::from_str(&format!(
                    "{{metadata: {{name: web, namespace: shop}}, spec: {{scaleTargetRef: {{kind: Deployment, name: web}}, \
                     minReplicas: {min}, maxReplicas: 9, {spec}}}}}"
                ))
                .unwrap();
                let refused = workload(&ehpa, &Zone::utc())
                    .err()
                    .map(|invalid| invalid.to_string());
                let expected = (min == 0 && !wakes).then(|| {
                    "spec.minReplicas is 0, expected 1 or more, because nothing brings the workload back from zero: its \
                     metrics have no value without pods; or add a metric of type Object or External, or a cron"
                        .to_owned()
                });
                assert_eq!(refused, expected, "{spec}");
            }
        }
    }
}
