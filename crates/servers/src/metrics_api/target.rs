//! The autoscaler that a request is about: the one whose target the labels of its selector name, as in crane.
//!
//! ```text
//! targetKind=Deployment,targetName=web,targetNamespace=shop,resourceIdentifier=resource.cpu
//! ```

use std::{collections::BTreeMap, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, Mode};
use foretide_domain::{Requirement, Selector};

use crate::failure::Failure;
use foretide_api::published::label_value;

pub const TARGET_KIND: &str = "targetKind";
pub const TARGET_NAME: &str = "targetName";
pub const TARGET_NAMESPACE: &str = "targetNamespace";
pub const RESOURCE_IDENTIFIER: &str = "resourceIdentifier";

/// The labels of a selector that names a metric of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSelector {
    pub kind: String,
    pub name: String,
    /// The metric, such as `resource.cpu`, or `cron`.
    pub identifier: String,
}

// === impl TargetSelector ===

impl TargetSelector {
    /// The labels of a selector in its text form.
    pub fn parse(namespace: &str, selector: &str) -> Result<Self, Failure> {
        let mut labels = labels("labelSelector", selector)?;
        if let Some(named) = labels.remove(TARGET_NAMESPACE)
            && named != namespace
        {
            return Err(Failure::bad_request(format!(
                "labelSelector names {TARGET_NAMESPACE} {named:?} in a request for namespace {namespace:?}; metrics are \
                 served to autoscalers of the target's own namespace"
            )));
        }
        let mut take = |key: &str| {
            labels.remove(key).ok_or_else(|| {
                Failure::bad_request(format!(
                    "labelSelector has no {key}; expected {TARGET_KIND}, {TARGET_NAME} and {RESOURCE_IDENTIFIER}, such as \
                     {TARGET_KIND}=Deployment,{TARGET_NAME}=web,{RESOURCE_IDENTIFIER}=resource.cpu"
                ))
            })
        };
        let target = Self {
            kind: take(TARGET_KIND)?,
            name: take(TARGET_NAME)?,
            identifier: take(RESOURCE_IDENTIFIER)?,
        };
        match labels.keys().next() {
            None => Ok(target),
            Some(other) => Err(Failure::bad_request(format!(
                "labelSelector has the label {other:?}; expected only {TARGET_KIND}, {TARGET_NAME}, {TARGET_NAMESPACE} and \
                 {RESOURCE_IDENTIFIER}"
            ))),
        }
    }

    fn is_of(&self, object: &EffectiveHorizontalPodAutoscaler) -> bool {
        let target = &object.spec.scale_target_ref;
        // A name that is no valid label value is requested by the label value that replaces it.
        let is_named = target.name == self.name || label_value(&target.name) == self.name;
        target.kind == self.kind && is_named
    }

    /// The autoscaler of the target among those of its namespace: the only one in mode `Metric`.
    pub fn select(
        &self,
        namespace: &str,
        objects: &[Arc<EffectiveHorizontalPodAutoscaler>],
    ) -> Result<Arc<EffectiveHorizontalPodAutoscaler>, Failure> {
        let all: Vec<_> = objects.iter().filter(|object| self.is_of(object)).collect();
        let publishing = all.iter().filter(|object| publishes(object));
        let target = format!("{} {namespace}/{}", self.kind, self.name);
        match (publishing.collect::<Vec<_>>().as_slice(), all.as_slice()) {
            ([one], _) => Ok(Arc::clone(one)),
            ([first, second, ..], _) => Err(Failure::new(
                axum::http::StatusCode::CONFLICT,
                format!(
                    "{} and {} both have the target {target} and spec.mode: Metric; expected one of them",
                    name(first),
                    name(second)
                ),
            )),
            ([], [other, ..]) => Err(not_publishing(other)),
            ([], []) => Err(Failure::not_found(format!(
                "no EffectiveHorizontalPodAutoscaler has the target {target}"
            ))),
        }
    }
}

/// The autoscaler with this UID among those of its namespace, if it is in mode `Metric`.
pub fn by_uid(
    uid: &str,
    namespace: &str,
    objects: &[Arc<EffectiveHorizontalPodAutoscaler>],
) -> Result<Arc<EffectiveHorizontalPodAutoscaler>, Failure> {
    let found = objects
        .iter()
        .find(|object| object.metadata.uid.as_deref() == Some(uid))
        .ok_or_else(|| {
            Failure::not_found(format!(
                "no EffectiveHorizontalPodAutoscaler of namespace {namespace} has the UID {uid:?}"
            ))
        })?;
    if publishes(found) {
        Ok(Arc::clone(found))
    } else {
        Err(not_publishing(found))
    }
}

/// The labels that a selector requires to have one value each.
pub fn labels(parameter: &str, selector: &str) -> Result<BTreeMap<String, String>, Failure> {
    let parsed: Selector = selector
        .parse()
        .map_err(|error| Failure::bad_request(format!("{parameter}: {error}")))?;
    let mut labels = BTreeMap::new();
    for requirement in parsed.requirements() {
        let (key, value) = match requirement {
            Requirement::Equal(key, value) => (key, value),
            Requirement::In(key, values) if values.len() == 1 => match values.first() {
                Some(value) => (key, value),
                None => continue,
            },
            _ => {
                return Err(Failure::bad_request(format!(
                    "{parameter} {selector:?} has other requirements than labels with one value; expected key=value"
                )));
            }
        };
        let before = labels.insert(key.clone(), value.clone());
        if before.is_some_and(|before| before != *value) {
            return Err(Failure::bad_request(format!(
                "{parameter} {selector:?} requires two values of {key:?}; expected one"
            )));
        }
    }
    Ok(labels)
}

fn publishes(object: &EffectiveHorizontalPodAutoscaler) -> bool {
    object.spec.mode == Some(Mode::Metric)
}

fn not_publishing(object: &EffectiveHorizontalPodAutoscaler) -> Failure {
    Failure::not_found(format!(
        "{} publishes no metrics; set its spec.mode to Metric",
        name(object)
    ))
}

fn name(object: &EffectiveHorizontalPodAutoscaler) -> String {
    let meta = &object.metadata;
    let [namespace, name] =
        [&meta.namespace, &meta.name].map(|part| part.as_deref().unwrap_or_default());
    format!("EffectiveHorizontalPodAutoscaler {namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(result: Result<T, Failure>) -> String {
        result
            .err()
            .map(|failure| failure.message)
            .unwrap_or_default()
    }

    #[test]
    fn a_selector_names_target_and_metric() {
        let wanted = TargetSelector {
            kind: "Deployment".to_owned(),
            name: "web".to_owned(),
            identifier: "resource.cpu".to_owned(),
        };
        for selector in [
            "targetKind=Deployment,targetName=web,resourceIdentifier=resource.cpu",
            "resourceIdentifier=resource.cpu,targetKind=Deployment,targetName=web,targetNamespace=shop",
            "targetKind in (Deployment),targetName==web,resourceIdentifier=resource.cpu",
            "targetName=web,targetName=web,targetKind=Deployment,resourceIdentifier=resource.cpu",
        ] {
            let parsed = TargetSelector::parse("shop", selector);
            assert_eq!(parsed, Ok(wanted.clone()), "{selector}");
        }
    }

    #[test]
    fn a_target_is_named_as_it_is_and_as_the_value_of_a_label() {
        let long = "a".repeat(80);
        let object = serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": long}, "maxReplicas": 9, "mode": "Metric"},
        });
        let objects = [Arc::new(serde_json::from_value(object).unwrap())];
        for (name, is_found) in [
            (label_value(&long), true),
            (long, true),
            ("a".into(), false),
        ] {
            let selector = TargetSelector {
                kind: "Deployment".to_owned(),
                name,
                identifier: "cron".to_owned(),
            };
            let found = selector.select("shop", &objects);
            assert_eq!(found.is_ok(), is_found, "{selector:?}");
        }
    }

    #[test]
    fn a_selector_without_these_labels_is_refused_with_a_reason() {
        let full = "targetKind=Deployment,targetName=web,resourceIdentifier=resource.cpu";
        for (selector, reason) in [
            (String::new(), "has no targetKind"),
            (
                "targetKind=Deployment,targetName=web".to_owned(),
                "has no resourceIdentifier",
            ),
            (
                format!("{full},targetNamespace=other"),
                "names targetNamespace \"other\"",
            ),
            (format!("{full},app=web"), "has the label \"app\""),
            (
                format!("{full},targetName=api"),
                "requires two values of \"targetName\"",
            ),
            (format!("{full},targetName!=api"), "expected key=value"),
            ("targetName in (a,b)".to_owned(), "expected key=value"),
            ("=".to_owned(), "invalid requirement"),
        ] {
            let parsed = TargetSelector::parse("shop", &selector);
            let text = message(parsed);
            assert!(text.contains(reason), "{selector}: {text}");
        }
    }

    #[test]
    fn label_selectors_of_requests() {
        bolero::check!()
            .with_iterations(4_000)
            .with_type::<String>()
            .for_each(|selector| {
                let parsed = |text: &str| labels("labelSelector", text);
                let Ok(found) = parsed(selector) else { return };
                // Written again, the labels are parsed to the same.
                let pairs = found.iter().map(|(key, value)| format!("{key}={value}"));
                let written = pairs.collect::<Vec<_>>().join(",");
                assert_eq!(parsed(&written), Ok(found), "{selector:?}");
                if let Ok(target) = TargetSelector::parse("shop", selector) {
                    assert!(!target.identifier.contains(','), "{selector:?}");
                }
            });
    }
}
