//! The manifests of the kinds, generated from the types and committed beside them.
//!
//! Unlike in the derived definitions, no field is nullable. The API server then drops a `null` before it applies
//! defaults and rules, as it does for kinds written in Go, so that rules never see a null.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction, sources};

const HEADER: &str =
    "# Made from the types in crds/src by `UPDATE=1 cargo test -p foretide-crds`; do not edit.\n";

/// The CustomResourceDefinition of a kind.
///
/// ```
/// use foretide_crds::{FederatedHPA, definition};
///
/// let definition = definition::<FederatedHPA>();
/// assert_eq!(definition.metadata.name.as_deref(), Some("federatedhpas.autoscaling.foretide.io"));
/// ```
pub fn definition<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut definition = K::crd();
    for version in &mut definition.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            forbid_null(schema);
        }
        if let Some(columns) = &mut version.additional_printer_columns
            && let Some(desired) = columns.iter().position(|it| it.name == "DESIRED")
        {
            let others = columns.split_off(desired + 1);
            columns.extend(sources::columns().into_iter().chain(others));
        }
    }
    definition
}

/// The definitions of all kinds, in the order of [`manifests`].
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [
        definition::<EffectiveHorizontalPodAutoscaler>(),
        definition::<FederatedHPA>(),
        definition::<TimeSeriesPrediction>(),
    ]
}

/// The file name and YAML of every definition, as committed under `crds/`.
///
/// ```
/// let (name, yaml) = foretide_crds::manifests()[0];
/// assert_eq!(name, "autoscaling.crane.io_effectivehorizontalpodautoscalers.yaml");
/// assert!(yaml.contains("kind: CustomResourceDefinition"));
/// ```
///
/// # Guarantees
/// - Equal to [`render`] of [`definitions`].
pub fn manifests() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "autoscaling.crane.io_effectivehorizontalpodautoscalers.yaml",
            include_str!("../autoscaling.crane.io_effectivehorizontalpodautoscalers.yaml"),
        ),
        (
            "autoscaling.foretide.io_federatedhpas.yaml",
            include_str!("../autoscaling.foretide.io_federatedhpas.yaml"),
        ),
        (
            "prediction.crane.io_timeseriespredictions.yaml",
            include_str!("../prediction.crane.io_timeseriespredictions.yaml"),
        ),
    ]
}

/// The YAML of a definition, with a comment on how it is generated.
///
/// ```
/// use foretide_crds::{TimeSeriesPrediction, definition, render};
///
/// let yaml = render(&definition::<TimeSeriesPrediction>()).expect("definitions of this crate are valid YAML");
/// assert!(yaml.starts_with("# Made from the types"));
/// ```
///
/// # Errors
/// The definition cannot be written as YAML; those of this crate always can.
pub fn render(definition: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(definition).map(|yaml| format!("{HEADER}{yaml}"))
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema
        .properties
        .iter_mut()
        .flat_map(|p| p.values_mut())
        .for_each(forbid_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forbid_null(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        forbid_null(values);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "UPDATE is a switch of this test alone"
    )]
    fn the_committed_manifests_match_the_types() {
        let update = std::env::var("UPDATE").is_ok_and(|v| v == "1");
        for (definition, (file, committed)) in definitions().iter().zip(manifests()) {
            let made = render(definition).unwrap();
            if update {
                std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), made).unwrap();
            } else {
                assert!(
                    made == committed,
                    "{file} is stale; run UPDATE=1 cargo test -p foretide-crds"
                );
            }
        }
    }

    #[test]
    fn a_manifest_parses_to_its_definition() {
        for definition in definitions() {
            let yaml = render(&definition).unwrap();
            let read: CustomResourceDefinition = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(read, definition);
        }
    }

    #[test]
    fn each_file_is_named_after_its_group_and_plural() {
        for (definition, (file, _)) in definitions().iter().zip(manifests()) {
            let spec = &definition.spec;
            assert_eq!(file, format!("{}_{}.yaml", spec.group, spec.names.plural));
        }
    }

    #[test]
    fn no_field_is_nullable_and_every_field_is_described() {
        fn visit(path: &str, schema: &JSONSchemaProps, faults: &mut Vec<String>) {
            if schema.nullable.is_some() || schema.any_of.is_some() || schema.one_of.is_some() {
                faults.push(format!("{path} is nullable or a union"));
            }
            for (name, property) in schema.properties.iter().flatten() {
                let path = format!("{path}.{name}");
                let known_to_all = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
                if property
                    .description
                    .as_deref()
                    .unwrap_or_default()
                    .is_empty()
                    && !known_to_all
                {
                    faults.push(format!("{path} has no description"));
                }
                visit(&path, property, faults);
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                visit(&format!("{path}[]"), items, faults);
            }
        }
        for definition in definitions() {
            let mut faults = Vec::new();
            let schema = definition.spec.versions[0].schema.as_ref().unwrap();
            visit(
                &definition.spec.names.kind,
                schema.open_api_v3_schema.as_ref().unwrap(),
                &mut faults,
            );
            assert_eq!(faults, Vec::<String>::new());
        }
    }
}
