//! Which targets the controller scales, as its flags say: not in some namespaces, and only some kinds.

use std::{collections::BTreeSet, fmt, str::FromStr};

use foretide_domain::api_group;
use k8s_openapi::{
    api::autoscaling::v2::CrossVersionObjectReference,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Invalid, Violation};

/// A kind of an API group; displayed and parsed as `KIND.GROUP`, and as `KIND` in the core group.
///
/// ```
/// use foretide_api::validation::TargetKind;
///
/// let rollouts: TargetKind = "Rollout.argoproj.io".parse()?;
/// assert_eq!(rollouts.to_string(), "Rollout.argoproj.io");
/// assert!("rollouts.argoproj.io".parse::<TargetKind>().is_err());
/// # Ok::<(), foretide_api::validation::InvalidTargetKind>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetKind {
    kind: String,
    /// Empty for the core group.
    group: String,
}

/// A text that is no [`TargetKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected KIND.GROUP such as Deployment.apps, or KIND in the core group, got {0:?}")]
pub struct InvalidTargetKind(pub String);

/// The targets that the controller scales.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetRules {
    /// Namespaces in which nothing is scaled. A target is always in the namespace of its object.
    pub denied_namespaces: BTreeSet<String>,
    /// Kinds that are scaled; empty for every kind that the controller's permissions allow.
    pub allowed_kinds: BTreeSet<TargetKind>,
}

// === impl TargetKind ===

impl TargetKind {
    fn of(target: &CrossVersionObjectReference) -> Self {
        let api_version = target.api_version.as_deref().unwrap_or_default();
        Self {
            kind: target.kind.clone(),
            group: api_group(api_version).to_owned(),
        }
    }
}

impl FromStr for TargetKind {
    type Err = InvalidTargetKind;

    fn from_str(text: &str) -> Result<Self, InvalidTargetKind> {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        let has_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.chars().all(|c| c.is_ascii_alphanumeric());
        let is_group = group
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c));
        // Only a text without a dot means the core group: `Deployment.` lacks its group.
        let has_group = is_group && !(group.is_empty() && text.contains('.'));
        if has_kind && has_group {
            Ok(Self {
                kind: kind.to_owned(),
                group: group.to_owned(),
            })
        } else {
            Err(InvalidTargetKind(text.to_owned()))
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => write!(f, "{}", self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

// === impl TargetRules ===

impl TargetRules {
    /// Checks that the target of an object may be scaled.
    ///
    /// # Errors
    /// The object's namespace is denied, or the kind of the target is not allowed.
    pub fn check(
        &self,
        metadata: &ObjectMeta,
        target: &CrossVersionObjectReference,
    ) -> Result<(), Invalid> {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        if self.denied_namespaces.contains(namespace) {
            let expected = "a namespace in which the controller scales: it does not in its own and in those of \
                            --deny-target-namespaces";
            let violation = Violation::new("metadata.namespace", namespace, expected);
            return Err(Invalid(vec![violation]));
        }
        let kind = TargetKind::of(target);
        if self.allowed_kinds.is_empty() || self.allowed_kinds.contains(&kind) {
            return Ok(());
        }
        let allowed: Vec<_> = self.allowed_kinds.iter().map(ToString::to_string).collect();
        let expected = format!("a kind of --allow-target-kinds: {}", allowed.join(", "));
        let violation = Violation::new("spec.scaleTargetRef", kind.to_string(), expected);
        Err(Invalid(vec![violation]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(namespaces: &[&str], kinds: &[&str]) -> TargetRules {
        let kinds = kinds.iter().map(|kind| kind.parse().unwrap());
        TargetRules {
            denied_namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            allowed_kinds: kinds.collect(),
        }
    }

    /// Why an object of `shop` with this target is refused.
    fn refusal(rules: &TargetRules, api_version: Option<&str>, kind: &str) -> Option<String> {
        let metadata = ObjectMeta {
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        let target = CrossVersionObjectReference {
            api_version: api_version.map(str::to_owned),
            kind: kind.to_owned(),
            name: "web".to_owned(),
        };
        let checked = rules.check(&metadata, &target);
        checked.err().map(|invalid| invalid.to_string())
    }

    #[test]
    fn without_a_list_every_kind_is_scaled() {
        let none = rules(&["kube-system"], &[]);
        assert_eq!(refusal(&none, Some("argoproj.io/v1"), "Rollout"), None);
        assert_eq!(refusal(&none, None, "Deployment"), None);
    }

    #[test]
    fn with_a_list_only_its_kinds_are_scaled_in_any_version_of_their_group() {
        let listed = rules(&[], &["ReplicationController", "Deployment.apps"]);
        for (api_version, kind, refused) in [
            (Some("apps/v1"), "Deployment", None),
            (Some("apps/v1beta2"), "Deployment", None),
            (Some("v1"), "ReplicationController", None),
            (Some("apps/v1"), "StatefulSet", Some("StatefulSet.apps")),
            (
                Some("argoproj.io/v1"),
                "Rollout",
                Some("Rollout.argoproj.io"),
            ),
            (
                Some("example.com/v1"),
                "Deployment",
                Some("Deployment.example.com"),
            ),
            (
                Some("apps/v1"),
                "Deployment.apps",
                Some("Deployment.apps.apps"),
            ),
            (None, "Deployment", Some("Deployment")),
        ] {
            let expected = refused.map(|kind| {
                format!(
                    "spec.scaleTargetRef is {kind}, expected a kind of --allow-target-kinds: Deployment.apps, \
                     ReplicationController"
                )
            });
            assert_eq!(refusal(&listed, api_version, kind), expected);
        }
    }

    #[test]
    fn a_kind_of_the_list_is_not_scaled_in_a_denied_namespace() {
        let both = rules(&["shop"], &["Deployment.apps"]);
        let refused = refusal(&both, Some("apps/v1"), "Deployment").unwrap();
        assert!(
            refused.starts_with("metadata.namespace is shop"),
            "{refused}"
        );
    }

    #[test]
    fn a_kind_is_written_with_its_group_and_without_its_version() {
        for text in [
            "Deployment.apps",
            "Rollout.argoproj.io",
            "ReplicationController",
        ] {
            assert_eq!(text.parse::<TargetKind>().unwrap().to_string(), text);
        }
        for text in [
            "",
            ".",
            ".apps",
            "Deployment.",
            "deployments.apps",
            "Deployment.apps/v1",
            "A B",
        ] {
            let invalid = InvalidTargetKind(text.to_owned());
            assert_eq!(text.parse::<TargetKind>(), Err(invalid));
        }
    }
}
