//! Reasons for which the API server would refuse the `HorizontalPodAutoscaler` that is made from a spec.
//!
//! The definitions have the shape of metrics and behavior; these are the rules of autoscaling/v2 about their contents
//! that neither the definitions nor the validation of a spec have.

use foretide_crds::{EffectiveHorizontalPodAutoscalerSpec, Violation};
use k8s_openapi::api::autoscaling::v2::{MetricSpec, MetricTarget};

use crate::manifest::violation;

/// The types of targets.
const TARGET_TYPES: [&str; 3] = ["Utilization", "AverageValue", "Value"];
/// The types of metrics.
const METRIC_TYPES: [&str; 5] = [
    "Resource",
    "ContainerResource",
    "Pods",
    "Object",
    "External",
];

/// One field of a metric, such as `resource`: the source of its values, and their target.
struct Source<'a> {
    /// The metric type of the field.
    metric_type: &'static str,
    field: &'static str,
    target: &'a MetricTarget,
    /// The values of the target that exclude each other.
    exclusive: Option<&'static str>,
    /// Fields that become parts of a request.
    names: Vec<(&'static str, &'a str)>,
}

/// All violations, with their fields.
pub fn violations(spec: &EffectiveHorizontalPodAutoscalerSpec) -> Vec<Violation> {
    let mut found = Vec::new();
    let target = &spec.scale_target_ref;
    for (field, name) in [("kind", &target.kind), ("name", &target.name)] {
        found.extend(unusable_name(&format!("spec.scaleTargetRef.{field}"), name));
    }
    for (position, metric) in spec.metrics.iter().flatten().enumerate() {
        // A metric that cannot be read was refused before.
        if let Ok(metric) = metric.typed() {
            found.extend(of_metric(&format!("spec.metrics[{position}]"), &metric));
        }
    }
    let written = spec.behavior.as_ref().and_then(|raw| raw.typed().ok());
    let behavior = written.unwrap_or_default();
    for (field, rules) in [
        ("scaleUp", behavior.scale_up),
        ("scaleDown", behavior.scale_down),
    ] {
        if rules
            .and_then(|rules| rules.policies)
            .is_some_and(|policies| policies.is_empty())
        {
            let message = "must have at least one policy; leave it out for the default ones";
            found.push(violation(
                format!("spec.behavior.{field}.policies"),
                message,
            ));
        }
    }
    found
}

fn of_metric(path: &str, metric: &MetricSpec) -> Vec<Violation> {
    let own = metric.type_.as_str();
    if !METRIC_TYPES.contains(&own) {
        return vec![not_one_of(format!("{path}.type"), &METRIC_TYPES, own)];
    }
    let mut found = Vec::new();
    for source in sources(metric) {
        let path = format!("{path}.{}", source.field);
        if source.metric_type != own {
            let message = format!("must not be set in a metric of the type {own}");
            found.push(violation(path, message));
            continue;
        }
        let names = source.names.iter();
        found.extend(
            names.filter_map(|(field, name)| unusable_name(&format!("{path}.{field}"), name)),
        );
        let target = source.target.type_.as_str();
        if !TARGET_TYPES.contains(&target) {
            found.push(not_one_of(
                format!("{path}.target.type"),
                &TARGET_TYPES,
                target,
            ));
        }
        if let Some(both) = source.exclusive {
            let message = format!("must not have both {both}; keep one");
            found.push(violation(format!("{path}.target"), message));
        }
    }
    found
}

fn not_one_of(field: String, allowed: &[&str], found: &str) -> Violation {
    let allowed: Vec<_> = allowed.iter().map(|name| format!("{name:?}")).collect();
    violation(
        field,
        format!("must be one of {}, not {found:?}", allowed.join(", ")),
    )
}

/// Reason for which a name cannot be a segment of the path of a request.
fn unusable_name(field: &str, name: &str) -> Option<Violation> {
    // As `ValidatePathSegmentName` of the API server.
    let fits = !matches!(name, "" | "." | "..") && !name.contains(['/', '%']);
    let message = match name {
        "" => "must not be empty".to_owned(),
        name => format!("must be a name without `/` and `%`, not {name:?}"),
    };
    (!fits).then(|| violation(field.to_owned(), message))
}

fn sources(metric: &MetricSpec) -> Vec<Source<'_>> {
    let resource = metric.resource.as_ref().map(|source| Source {
        metric_type: "Resource",
        field: "resource",
        target: &source.target,
        exclusive: of_resource(&source.target),
        names: vec![("name", &source.name)],
    });
    let container = metric.container_resource.as_ref().map(|source| Source {
        metric_type: "ContainerResource",
        field: "containerResource",
        target: &source.target,
        exclusive: of_resource(&source.target),
        names: vec![("name", &source.name), ("container", &source.container)],
    });
    let pods = metric.pods.as_ref().map(|source| Source {
        metric_type: "Pods",
        field: "pods",
        target: &source.target,
        exclusive: None,
        names: vec![("metric.name", &source.metric.name)],
    });
    let object = metric.object.as_ref().map(|source| Source {
        metric_type: "Object",
        field: "object",
        target: &source.target,
        exclusive: None,
        names: vec![
            ("metric.name", &source.metric.name),
            ("describedObject.kind", &source.described_object.kind),
            ("describedObject.name", &source.described_object.name),
        ],
    });
    let external = metric.external.as_ref().map(|source| Source {
        metric_type: "External",
        field: "external",
        target: &source.target,
        exclusive: (source.target.value.is_some() && source.target.average_value.is_some())
            .then_some("value and averageValue"),
        names: vec![("metric.name", &source.metric.name)],
    });
    let all = [resource, container, pods, object, external];
    all.into_iter().flatten().collect()
}

fn of_resource(target: &MetricTarget) -> Option<&'static str> {
    (target.average_utilization.is_some() && target.average_value.is_some())
        .then_some("averageUtilization and averageValue")
}
