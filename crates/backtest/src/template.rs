//! The resource requests of the workload's pods: from its manifest, or from `--request`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foretide_domain::{
    ScaleTarget, api_group,
    demand::TargetError,
    hpa::MetricSpec,
    observation::{Container, Requests},
    quantity::Quantity,
    sim,
    workload::Workload,
};
use k8s_openapi::{
    api::core::v1::{Container as WireContainer, PodSpec},
    apimachinery::pkg::api::resource::Quantity as WireQuantity,
};
use serde_json::Value;

use crate::{
    Error,
    manifest::{Document, Location},
};

/// Name of a container that no manifest names.
const CONTAINER: &str = "app";

/// One pod of the workload, with its origin.
#[derive(Debug)]
pub struct WorkloadTemplate {
    /// The pod.
    pub pod: sim::PodTemplate,
    /// The place in a manifest; absent if there is none.
    pub place: Option<Location>,
    /// Origin of the requests, as half a sentence.
    pub origin: String,
}

/// Possible sources of a pod's requests: `--request`, or a manifest of the workload.
#[derive(Clone, Copy, Debug)]
pub struct TemplateSource<'a> {
    /// Manifests, among which that of the workload may be.
    pub documents: &'a [Document],
    /// Resources with their requests in thousandths, which come first.
    pub requests: &'a [(String, i64)],
}

/// Reason for which the pods of a workload are unknown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TemplateError {
    /// The manifest of a workload of this name has no pod template that can be read, for a reason.
    #[error("{0}: {1} has no usable spec.template.spec: {2}")]
    Unusable(Location, String, String),
    /// The manifest of the workload sets no request that a metric needs.
    #[error("{0}: {1}")]
    NoRequest(Location, TargetError),
    /// No manifest and no option gives a request that a metric needs.
    #[error(
        "the {0} request of a pod is unknown: add the workload's manifest with -f, or set --request {0}=200m"
    )]
    UnknownRequest(String),
    /// A metric has no target per replica.
    #[error(transparent)]
    NoTarget(TargetError),
}

// === impl WorkloadTemplate ===

impl WorkloadTemplate {
    /// The error for a metric that has no target per replica with this pod.
    pub fn refused(&self, error: TargetError) -> TemplateError {
        match (error, self.place.clone()) {
            (error @ TargetError::MissingRequest { .. }, Some(place)) => {
                TemplateError::NoRequest(place, error)
            }
            (TargetError::MissingRequest { resource, .. }, None) => {
                TemplateError::UnknownRequest(resource)
            }
            (error, _) => TemplateError::NoTarget(error),
        }
    }
}

// === impl TemplateSource ===

impl TemplateSource<'_> {
    /// The template by the flags, else by the manifest of the scale target, else without requests.
    ///
    /// # Errors
    /// The manifest of the scale target has no usable pod template.
    pub fn template(self, workload: &Workload) -> Result<WorkloadTemplate, Error> {
        let mut documents = self.documents.iter();
        if self.requests.is_empty()
            && let Some(document) = documents.find(|it| is_target(it, &workload.target))
        {
            return Ok(written(document)?);
        }
        let requests = self.requests.iter();
        let per_pod = requests
            .clone()
            .map(|(name, milli)| (name.as_str(), *milli));
        let listed: Vec<_> = requests
            .map(|(name, milli)| format!("{name} {}", thousandths(*milli)))
            .collect();
        Ok(WorkloadTemplate {
            pod: unnamed(workload, &per_pod.collect()),
            place: None,
            origin: match listed.join(" and ") {
                none if none.is_empty() => "requests unknown".to_owned(),
                listed => format!("each requests {listed} (from --request)"),
            },
        })
    }
}

/// Reads a request such as `cpu=200m`, in thousandths.
///
/// # Errors
/// The expected form.
pub fn parse_request(text: &str) -> Result<(String, i64), String> {
    let expected = || format!("expected RESOURCE=QUANTITY such as cpu=200m, got {text:?}");
    let (resource, quantity) = text.split_once('=').ok_or_else(expected)?;
    let quantity: Quantity = quantity.parse().map_err(|error| format!("{error}"))?;
    let milli = quantity.milli_value().value;
    if resource.is_empty() || milli <= 0 {
        return Err(expected());
    }
    Ok((resource.to_owned(), milli))
}

/// A milli amount as it is written: `200m`, `2`.
fn thousandths(milli: i64) -> String {
    if milli % 1000 == 0 {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Returns whether a document is the workload that an autoscaler scales.
pub fn is_target(document: &Document, target: &ScaleTarget) -> bool {
    // Manifests often leave the namespace to `kubectl -n`.
    let same_namespace = document.namespace() == target.namespace
        || document.namespace().is_empty()
        || target.namespace.is_empty();
    document.text("kind") == target.kind
        && document.group() == api_group(&target.api_version)
        && document.name() == target.name
        && same_namespace
}

/// The pod template of a manifest.
fn written(document: &Document) -> Result<WorkloadTemplate, TemplateError> {
    let unusable = |problem: String| {
        let place = document.find("spec.template.spec");
        TemplateError::Unusable(place, document.name().to_owned(), problem)
    };
    let spec = document
        .value()
        .pointer("/spec/template/spec")
        .cloned()
        .unwrap_or(Value::Null);
    let spec: PodSpec =
        serde_json::from_value(spec).map_err(|error| unusable(error.to_string()))?;
    // Init containers that are restarted run beside the others, and the HPA counts their requests.
    let init_containers = spec.init_containers.iter().flatten();
    let sidecars = init_containers.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars).map(|container| {
        container_of(container)
            .map_err(|error| unusable(format!("container {}: {error}", container.name)))
    });
    let pod_level = spec.resources.and_then(|resources| resources.requests);
    let pod_level = pod_level.map(|requests| in_thousandths(&requests));
    Ok(WorkloadTemplate {
        pod: sim::PodTemplate {
            containers: containers.collect::<Result<_, _>>()?,
            pod_level: pod_level.transpose().map_err(unusable)?,
        },
        place: Some(document.place()),
        origin: format!("requests as in {}", document.place()),
    })
}

fn container_of(container: &WireContainer) -> Result<Container, String> {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    Ok(Container {
        name: container.name.as_str().into(),
        requests: requests
            .map(in_thousandths)
            .transpose()?
            .unwrap_or_default(),
    })
}

fn in_thousandths(requests: &BTreeMap<String, WireQuantity>) -> Result<Requests, String> {
    let each = requests.iter().map(|(name, amount)| {
        let amount: Quantity = amount.0.parse().map_err(|error| format!("{error}"))?;
        Ok((name.clone(), amount.milli_value().value))
    });
    each.collect()
}

/// A pod with the containers that the metrics name, or one without a name of its own.
fn unnamed(workload: &Workload, requests: &Requests) -> sim::PodTemplate {
    let named = workload.metrics.iter().filter_map(|metric| match metric {
        MetricSpec::ContainerResource { container, .. } => Some(container.clone()),
        _ => None,
    });
    let mut containers: BTreeSet<String> = named.collect();
    if containers.is_empty() {
        containers.insert(CONTAINER.to_owned());
    }
    sim::PodTemplate {
        containers: containers
            .into_iter()
            .map(|name| Container {
                name: name.into(),
                requests: requests.clone(),
            })
            .collect::<Arc<[_]>>(),
        pod_level: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_resource_and_an_amount_above_zero() {
        assert_eq!(parse_request("cpu=200m"), Ok(("cpu".to_owned(), 200)));
        assert_eq!(
            parse_request("memory=1Gi"),
            Ok(("memory".to_owned(), 1_073_741_824_000))
        );
        for bad in ["cpu", "cpu=", "=1", "cpu=0", "cpu=-1", "cpu=lots"] {
            assert!(parse_request(bad).is_err(), "{bad}");
        }
    }
}
