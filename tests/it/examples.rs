//! The examples in `examples/`: the HPAs of metrics read the metrics that the autoscaler beside them publishes, and the
//! annotated one has every field.

use std::collections::BTreeSet;

use foretide_api::published::{
    CRON_IDENTIFIER, CRON_METRIC, EHPA_UID_LABEL, POD_CPU_METRIC, PREDICTION_METRIC,
};
use foretide_crds::{EffectiveHorizontalPodAutoscaler, Mode, ScaleStrategy};
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, MetricIdentifier, MetricSpec, MetricTarget,
};
use serde_json::Value;

const AUTOSCALER: &str = include_str!("../../examples/adapter-autoscaler.yaml");
const EXTERNAL: &str = include_str!("../../examples/adapter-hpa.yaml");
const PODS: &str = include_str!("../../examples/adapter-hpa-pods.yaml");

/// Name, labels and target of a metric.
type Described = (String, Vec<(String, String)>, String);

/// A metric of the types External and Pods; nothing for other types.
fn described(spec: &MetricSpec) -> Option<Described> {
    let describe = |metric: &MetricIdentifier, target: &MetricTarget| {
        let selector = metric.selector.clone().unwrap_or_default();
        let labels = selector.match_labels.unwrap_or_default();
        let value = target.average_value.clone().unwrap().0;
        (metric.name.clone(), labels.into_iter().collect(), value)
    };
    let external = spec.external.as_ref();
    let external = external.map(|source| describe(&source.metric, &source.target));
    let pods = spec.pods.as_ref();
    external.or_else(|| pods.map(|source| describe(&source.metric, &source.target)))
}

#[test]
fn the_examples_of_the_adapter_read_what_their_autoscaler_publishes() {
    let autoscaler: EffectiveHorizontalPodAutoscaler = serde_saphyr::from_str(AUTOSCALER).unwrap();
    let spec = &autoscaler.spec;
    assert_eq!(spec.mode, Some(Mode::Metric));
    assert_eq!(spec.scale_strategy, Some(ScaleStrategy::Preview));
    assert_eq!(spec.crons.as_ref().map(Vec::len), Some(1));
    assert!(spec.prediction.is_some());
    let target = &spec.scale_target_ref;

    let labels = |identifier: &str| {
        let pairs = [
            ("resourceIdentifier", identifier),
            ("targetKind", &target.kind),
            ("targetName", &target.name),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        pairs.to_vec()
    };
    // Half of the fifth of a core that each pod requests.
    let per_pod = "100m".to_owned();
    let of_external: [Described; 2] = [
        (
            PREDICTION_METRIC.to_owned(),
            labels("resource.cpu"),
            per_pod.clone(),
        ),
        (
            CRON_METRIC.to_owned(),
            labels(CRON_IDENTIFIER),
            "1".to_owned(),
        ),
    ];
    let uid = "f9b92249-eab9-4671-afe0-17925e5987b8".to_owned();
    let of_pods: [Described; 1] = [(
        POD_CPU_METRIC.to_owned(),
        vec![(EHPA_UID_LABEL.to_owned(), uid)],
        per_pod,
    )];
    for (manifest, expected) in [(EXTERNAL, of_external.as_slice()), (PODS, &of_pods)] {
        let hpa: HorizontalPodAutoscaler = serde_saphyr::from_str(manifest).unwrap();
        let hpa = hpa.spec.unwrap();
        assert_eq!(hpa.scale_target_ref.name, target.name);
        assert_eq!(hpa.scale_target_ref.kind, target.kind);
        let metrics = hpa.metrics.unwrap();
        let found: Vec<_> = metrics.iter().filter_map(described).collect();
        assert_eq!(found, expected);
    }
}

const ANNOTATED: &str = include_str!("../../examples/annotated.yaml");

/// Names of the fields of a schema. Below lists of metrics, behavior and targets the fields are those of Kubernetes.
fn fields(schema: &Value, names: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        names.insert(name.clone());
        fields(field, names);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], names);
    }
}

#[test]
fn the_annotated_example_has_every_field() {
    let definitions = foretide_crds::manifests().into_iter();
    let definition = definitions.map(|(_, yaml)| serde_saphyr::from_str::<Value>(yaml).unwrap());
    let schemas = definition
        .filter(|one| one["spec"]["names"]["kind"] == "EffectiveHorizontalPodAutoscaler")
        .map(|mut one| one["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take());
    let mut names = BTreeSet::new();
    schemas.for_each(|schema| fields(&schema["properties"]["spec"], &mut names));
    assert!(names.contains("crons") && names.contains("lowAmplitudeThreshold"));
    let is_missing = |name: &String| !ANNOTATED.contains(&format!("{name}:"));
    let missing: Vec<_> = names.into_iter().filter(is_missing).collect();
    assert_eq!(missing, [] as [String; 0]);
}
