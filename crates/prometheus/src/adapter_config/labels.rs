//! `resources` of a rule: which label of a series holds the name of which Kubernetes object.
//!
//! A resource is named as the API names its kind, singular or plural. Other names are not looked up by discovery.

use std::collections::BTreeMap;

use super::fields::{FieldError, Fields};
use crate::promql::LabelName;

/// `resources` of a rule.
#[derive(Debug, Clone)]
pub struct ResourceLabels {
    /// Labels by resource and group; an entry without a group applies to every group without an entry of its own.
    overrides: BTreeMap<(String, String), LabelName>,
    template: String,
    namespaced: bool,
}

// === impl ResourceLabels ===

impl ResourceLabels {
    /// Reads `resources` of a rule.
    pub fn read(rule: &Fields<'_>) -> Result<Self, FieldError> {
        let resources = rule.mapping("resources")?;
        let template = resources.string("template")?.to_owned();
        if fill(&template, "", "").contains("<<") {
            let why = "expected <<.Group>> and <<.Resource>> as the only placeholders";
            return Err(resources.error("template", why));
        }
        let mut overrides = BTreeMap::new();
        for (label, resource) in resources.mappings("overrides")? {
            let name = LabelName::new(label)
                .map_err(|error| FieldError::new(resource.path(), error.to_string()))?;
            let group = resource.string("group")?.to_owned();
            let resource = resource.string("resource")?.to_ascii_lowercase();
            overrides.entry((resource, group)).or_insert(name);
        }
        Ok(Self {
            overrides,
            template,
            namespaced: resources.boolean("namespaced")?.unwrap_or(true),
        })
    }

    /// True if the rule binds its queries to a namespace.
    pub const fn namespaced(&self) -> bool {
        self.namespaced
    }

    /// The label that holds the name of an object of a kind (in lower case), if the rule has one.
    pub fn label_of(&self, group: &str, kind: &str) -> Option<LabelName> {
        // The API spells plurals as English does: pods, ingresses, policies.
        let names = [
            kind.to_owned(),
            format!("{kind}s"),
            format!("{kind}es"),
            kind.strip_suffix('y')
                .map_or_else(String::new, |stem| format!("{stem}ies")),
        ];
        for group in [group, ""] {
            for name in &names {
                if let Some(label) = self.overrides.get(&(name.clone(), group.to_owned())) {
                    return Some(label.clone());
                }
            }
        }
        if self.template.is_empty() {
            return None;
        }
        LabelName::new(&fill(&self.template, &group.replace(['.', '-'], "_"), kind)).ok()
    }
}

fn fill(template: &str, group: &str, resource: &str) -> String {
    let mut filled = template.to_owned();
    for (name, value) in [(".Group", group), (".Resource", resource)] {
        for spaced in [format!("<<{name}>>"), format!("<< {name} >>")] {
            filled = filled.replace(&spaced, value);
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn label(resources: &Value, group: &str, kind: &str) -> Option<String> {
        let rule = json!({"resources": resources});
        let labels = ResourceLabels::read(&Fields::root(&rule).unwrap()).unwrap();
        labels
            .label_of(group, kind)
            .map(|label| label.as_str().to_owned())
    }

    #[test]
    fn an_override_takes_precedence_over_the_template() {
        let resources = json!({
            "template": "kube_<<.Group>>_<< .Resource >>",
            "overrides": {
                "pod_name": {"resource": "pods"},
                "ns": {"resource": "namespace"},
                "entry": {"group": "networking.k8s.io", "resource": "ingresses"},
                "rule": {"resource": "policies"},
                "any": {"resource": "gateway"},
                "one": {"group": "one.example", "resource": "gateway"},
                "two": {"group": "two.example", "resource": "gateways"},
            },
        });
        for (group, kind, expected) in [
            ("", "pod", "pod_name"),
            ("", "namespace", "ns"),
            ("networking.k8s.io", "ingress", "entry"),
            ("example.com", "ingress", "kube_example_com_ingress"),
            ("x", "policy", "rule"),
            ("one.example", "gateway", "one"),
            ("two.example", "gateway", "two"),
            ("else.example", "gateway", "any"),
            ("", "service", "kube__service"),
        ] {
            assert_eq!(
                label(&resources, group, kind).as_deref(),
                Some(expected),
                "{kind}"
            );
        }
        assert_eq!(
            label(
                &json!({"overrides": {"pod": {"resource": "pod"}}}),
                "",
                "service"
            ),
            None
        );
    }

    #[test]
    fn an_invalid_label_or_template_is_reported_with_its_path() {
        for (resources, expected) in [
            (
                json!({"overrides": {"a-b": {"resource": "pod"}}}),
                "resources.overrides.a-b: label \"a-b\"",
            ),
            (
                json!({"overrides": {"pod": "pod"}}),
                "resources.overrides.pod: expected a mapping",
            ),
            (
                json!({"template": "<<.Kind>>"}),
                "resources.template: expected <<.Group>>",
            ),
            (
                json!({"namespaced": "no"}),
                "resources.namespaced: expected true or false",
            ),
        ] {
            let rule = json!({"resources": resources});
            let error = ResourceLabels::read(&Fields::root(&rule).unwrap())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
