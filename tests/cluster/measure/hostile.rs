//! What a tenant may write who wants to harm others: objects at the limits of every size that users control, in forms
//! that the API server accepts. The n-th object and its r-th version are always the same.

use serde_json::{Value, json};

/// The namespace of the tenant.
pub(super) const TENANT: &str = "mallory";
/// A metric of the tenant with many series.
pub(super) const FLOOD: &str = "flood";
/// Different autoscalers of the tenant.
pub(super) const AUTOSCALERS: usize = 300;
/// Deployments of the tenant; several autoscalers share one.
pub(super) const DEPLOYMENTS: usize = 100;

/// Makes the n-th of a form.
type Make = fn(usize) -> Form;

/// The ways in which an autoscaler is hostile.
const FORMS: [(&str, Make); 10] = [
    ("patterns that are large when compiled", large_patterns),
    ("as many patterns as fit", many_patterns),
    ("nested query", nested_query),
    ("query with many series", many_series),
    ("a new query, with the default forecaster", new_query),
    ("invented API group", invented_group),
    ("names of 1,024 characters", long_names),
    ("sixteen metrics with large selectors", large_selectors),
    ("32 crons", many_crons),
    ("invalid spec", invalid),
];

/// A hostile autoscaler.
#[derive(Default)]
struct Form {
    /// Fields of `spec` besides target and bounds.
    spec: Value,
    /// The query of its metric `external.m`.
    query: Option<String>,
    /// Another target than a Deployment of the tenant.
    target: Option<Value>,
}

/// The r-th version of the n-th autoscaler, with the name of its form.
pub(super) fn autoscaler(n: usize, revision: usize) -> (&'static str, Value) {
    let (name, form) = FORMS[(n + revision) % FORMS.len()];
    let form = form(n + revision * AUTOSCALERS);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{}", n % DEPLOYMENTS),
    });
    let mut spec = json!({
        "scaleTargetRef": form.target.unwrap_or(deployment),
        "minReplicas": 1,
        "maxReplicas": 1000,
        "mode": if n.is_multiple_of(2) { "Direct" } else { "Delegated" },
    });
    let fields = form.spec.as_object().cloned().unwrap_or_default();
    spec.as_object_mut().unwrap().extend(fields);
    let mut annotations = json!({ "note": "x".repeat(2048) });
    if let Some(query) = form.query {
        annotations["metric-query.autoscaling.crane.io/external.m"] = json!(query);
    }
    let object = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {
            // As long as a name may be.
            "name": format!("{}-{n}", "a".repeat(240)),
            "namespace": TENANT,
            "annotations": annotations,
        },
        "spec": spec,
    });
    (name, object)
}

/// An HPA that claims to be adopted by an autoscaler that does not exist.
pub(super) fn forged_hpa(n: usize, revision: usize) -> Value {
    let spec = |max: usize| {
        json!({
            "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{}", n % DEPLOYMENTS),
            },
            "minReplicas": 1,
            "maxReplicas": max,
        })
    };
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": format!("forged-{n}"),
            "namespace": TENANT,
            "annotations": {
                "autoscaling.foretide.io/adopted-by": format!("uid-{n}-{revision}"),
                "autoscaling.foretide.io/original-spec": spec(7 + revision % 2).to_string(),
            },
        },
        "spec": spec(10 + revision % 5),
    })
}

fn external(name: &str, selector: &Value) -> Value {
    json!({ "type": "External", "external": {
        "metric": { "name": name, "selector": selector },
        "target": { "type": "AverageValue", "averageValue": "10" },
    }})
}

/// A forecast by this query.
fn predicted(query: String, algorithm: &Value) -> Form {
    Form {
        spec: json!({
            "metrics": [external("m", &json!({}))],
            "prediction": { "predictionWindowSeconds": 3600, "predictionAlgorithm": algorithm },
        }),
        query: Some(query),
        target: None,
    }
}

fn dsp() -> Value {
    json!({ "algorithmType": "dsp", "dsp": { "sampleInterval": "60s", "historyLength": "14d" } })
}

fn filled(unit: &str) -> String {
    format!("{FLOOD}{{{}}}", unit.repeat(1900 / unit.len()))
}

fn large_patterns(_: usize) -> Form {
    predicted(filled(r#"a=~"\\w{99}","#), &dsp())
}

fn many_patterns(n: usize) -> Form {
    let patterns = (0..60).map(|at| format!(r#"l{at}!~"[a-f{}]{{9}}x?","#, n % 10));
    predicted(
        format!("sum({FLOOD}{{{}}})", patterns.collect::<String>()),
        &dsp(),
    )
}

fn nested_query(n: usize) -> Form {
    let depth = 20 + n % 40;
    let query = format!("{}sum({FLOOD}){}", "(".repeat(depth), " + 1)".repeat(depth));
    predicted(query, &dsp())
}

fn many_series(n: usize) -> Form {
    predicted(format!("{FLOOD} * {}", 1 + n), &dsp())
}

fn new_query(n: usize) -> Form {
    predicted(
        format!("sum({FLOOD}) * {}", 1 + n),
        &json!({ "algorithmType": "auto" }),
    )
}

fn invented_group(n: usize) -> Form {
    Form {
        target: Some(json!({
            "apiVersion": format!("{}{n}.example.com/v1", "g".repeat(40)),
            "kind": "Thing",
            "name": "t".repeat(253),
        })),
        ..Form::default()
    }
}

fn long_names(n: usize) -> Form {
    let name = format!("{}{n}", "m".repeat(1010));
    let label = json!({ "matchLabels": { "l".repeat(63): "v".repeat(63) } });
    Form {
        spec: json!({ "metrics": [external(&name, &label)] }),
        ..Form::default()
    }
}

fn large_selectors(n: usize) -> Form {
    let values: Vec<_> = (0..60)
        .map(|at| format!("{}{at}", "v".repeat(55)))
        .collect();
    let selector =
        json!({ "matchExpressions": [{ "key": "l", "operator": "In", "values": values }] });
    let metrics = (0..15).map(|at| external(&format!("m{n}-{at}"), &selector));
    Form {
        spec: json!({ "metrics": metrics.collect::<Vec<_>>() }),
        ..Form::default()
    }
}

fn many_crons(n: usize) -> Form {
    let crons = (0..32).map(|at| {
        json!({
            "name": format!("{}-{at}", "c".repeat(240)),
            "start": format!("{} {} 29 2 {}", (n + at) % 60, at % 24, at % 7),
            "end": format!("{} {} 31 1,3,5 *", (n * 7 + at) % 60, (at + 1) % 24),
            "timezone": "Australia/Lord_Howe",
            "targetReplicas": 1 + at,
        })
    });
    Form {
        spec: json!({ "crons": crons.collect::<Vec<_>>() }),
        ..Form::default()
    }
}

fn invalid(n: usize) -> Form {
    let selector = json!({ "matchExpressions": [{ "key": "é".repeat(500), "operator": "Near" }] });
    let mut metric = external("m", &selector);
    metric["external"]["target"]["averageValue"] = json!("10");
    metric["type"] = json!(format!("Type{n}"));
    Form {
        spec: json!({ "metrics": vec![metric; 16] }),
        ..Form::default()
    }
}
