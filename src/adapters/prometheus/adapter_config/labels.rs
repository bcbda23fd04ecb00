//! Which label of a series names which Kubernetes object: `resources` of a rule. Resources are compared by the words
//! that the API itself uses for a kind, singular or plural; the cluster is not asked for others.

use std::collections::BTreeMap;

use super::file::{Fault, Fields};
use crate::adapters::prometheus::promql::LabelName;

/// `resources` of a rule.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    /// By resource and group; without a group it is that of every group that has none of its own.
    overrides: BTreeMap<(String, String), LabelName>,
    template: String,
    namespaced: bool,
}

// === impl Labels ===

impl Labels {
    /// Reads `resources` of a rule.
    pub(super) fn read(rule: &Fields<'_>) -> Result<Self, Fault> {
        let resources = rule.fields("resources")?;
        let template = resources.text("template")?.to_owned();
        if fill(&template, "", "").contains("<<") {
            let why = "expected <<.Group>> and <<.Resource>> as the only placeholders";
            return Err(resources.fault("template", why));
        }
        let mut overrides = BTreeMap::new();
        for (label, resource) in resources.named("overrides")? {
            let name = LabelName::new(label)
                .map_err(|error| Fault::new(resource.at(), error.to_string()))?;
            let group = resource.text("group")?.to_owned();
            let resource = resource.text("resource")?.to_ascii_lowercase();
            overrides.entry((resource, group)).or_insert(name);
        }
        Ok(Self {
            overrides,
            template,
            namespaced: resources.flag("namespaced")?.unwrap_or(true),
        })
    }

    /// Whether queries are bound to a namespace.
    pub(super) const fn namespaced(&self) -> bool {
        self.namespaced
    }

    /// The label that holds the name of an object of a kind (in lower case), if the rule has one.
    pub(super) fn of(&self, group: &str, kind: &str) -> Option<LabelName> {
        let plurals = [
            kind.to_owned(),
            format!("{kind}s"),
            format!("{kind}es"),
            kind.strip_suffix('y')
                .map_or_else(String::new, |stem| format!("{stem}ies")),
        ];
        let of_group = |group: &str| {
            let mut words = plurals.iter();
            words.find_map(|word| self.overrides.get(&(word.clone(), group.to_owned())))
        };
        match of_group(group).or_else(|| of_group("")) {
            Some(label) => Some(label.clone()),
            None if self.template.is_empty() => None,
            None => {
                LabelName::new(&fill(&self.template, &group.replace(['.', '-'], "_"), kind)).ok()
            }
        }
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
        let labels = Labels::read(&Fields::root(&rule).unwrap()).unwrap();
        labels
            .of(group, kind)
            .map(|label| label.as_str().to_owned())
    }

    #[test]
    fn an_override_goes_before_the_template() {
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
    fn a_label_or_template_that_cannot_be_used_is_named() {
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
            let fault = Labels::read(&Fields::root(&rule).unwrap())
                .unwrap_err()
                .to_string();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }
}
