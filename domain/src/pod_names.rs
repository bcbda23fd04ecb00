//! The names of a workload's pods, past ones too: a history has no owners and no labels of pods that are gone.
//!
//! The controllers of the kinds in [`suffix`] name pods in a known way. For any other kind the shape is learned from
//! the pods that its selector selects now ([`PodNames`]), so that pods of others whose names begin alike do not count.

use std::collections::BTreeSet;

/// Number of shapes from which names no longer tell a workload's pods from those of others.
const MOST_SHAPES: usize = 8;
/// The characters of generated names: no vowels, and no digits that look like letters.
///
/// # Source
/// `k8s.io/apimachinery/pkg/util/rand`.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The regular expression of what follows the workload's name in the names of its pods, by its kind.
///
/// # Source
/// Kubernetes: `n-<hash>-<5>`, `n-<5>`, `n-<ordinal>`. Argo Rollouts 1.10 names as a Deployment, a `CloneSet` of
/// `OpenKruise` 1.9 as a `ReplicaSet`. The leader of a group of `LeaderWorkerSet` 0.9 is `n-<ordinal>`, its workers are
/// `n-<ordinal>-<ordinal>` and belong to the leader's replica.
///
/// ```
/// use foretide_domain::pod_names::suffix;
///
/// assert_eq!(suffix("LeaderWorkerSet"), Some("-[0-9]+"));
/// assert_eq!(suffix("FlinkDeployment"), None);
/// ```
pub fn suffix(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" | "Rollout" => Some("-[a-z0-9]+-[a-z0-9]{5}"),
        "ReplicaSet" | "DaemonSet" | "CloneSet" => Some("-[a-z0-9]{5}"),
        "StatefulSet" | "LeaderWorkerSet" => Some("-[0-9]+"),
        _ => None,
    }
}

/// The shapes of the names of some pods; none before a pod was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNames(BTreeSet<Vec<Segment>>);

/// A part of a name between two hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// A fixed text.
    Literal(String),
    /// Digits.
    Number,
    /// Five generated characters, as at the end of a name.
    Suffix,
    /// Six to ten generated characters, as those of a pod template.
    Hash,
}

// === impl PodNames ===

impl PodNames {
    /// Adds the shape of a pod's name, unless it has one of the known shapes. A shape stays known, so that the query of
    /// a history stays the same.
    ///
    /// ```
    /// use foretide_domain::pod_names::{PodNames, Segment};
    ///
    /// let mut names = PodNames::default();
    /// for pod in ["jobs-taskmanager-1-1", "jobs-taskmanager-1-24"] {
    ///     names.learn(pod);
    /// }
    /// let literal = |text: &str| Segment::Literal(text.to_owned());
    /// let shape = [literal("jobs"), literal("taskmanager"), Segment::Number, Segment::Number];
    /// assert!(names.shapes().eq([&shape[..]]));
    /// ```
    pub fn learn(&mut self, pod: &str) {
        if self.0.len() < MOST_SHAPES && !self.0.iter().any(|shape| has_shape(pod, shape)) {
            self.0.insert(pod.split('-').map(Segment::of).collect());
        }
    }

    /// The shapes; none also where there are too many to tell the pods from those of others.
    pub fn shapes(&self) -> impl Iterator<Item = &[Segment]> {
        self.0
            .iter()
            .filter(|_| self.0.len() < MOST_SHAPES)
            .map(Vec::as_slice)
    }
}

/// Returns true if the name of a pod matches a shape, segment by segment.
fn has_shape(pod: &str, shape: &[Segment]) -> bool {
    let segments = pod.split('-');
    segments.clone().count() == shape.len()
        && segments
            .zip(shape)
            .all(|(text, segment)| segment.matches(text))
}

// === impl Segment ===

impl Segment {
    fn of(text: &str) -> Self {
        let generated = !text.is_empty() && text.chars().all(|c| GENERATED.contains(c));
        match text.len() {
            _ if !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()) => Self::Number,
            5 if generated => Self::Suffix,
            6..=10 if generated => Self::Hash,
            _ => Self::Literal(text.to_owned()),
        }
    }

    fn matches(&self, text: &str) -> bool {
        let is_alphanumeric = text
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        match self {
            Self::Literal(literal) => literal == text,
            Self::Number => !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()),
            Self::Suffix => is_alphanumeric && text.len() == 5,
            Self::Hash => is_alphanumeric && (6..=10).contains(&text.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(pods: &[&str]) -> PodNames {
        let mut names = PodNames::default();
        for pod in pods {
            names.learn(pod);
        }
        names
    }

    #[test]
    fn pods_of_one_controller_have_one_shape_and_those_of_others_another() {
        let literal = |text: &str| Segment::Literal(text.to_owned());
        for (pods, other, shape) in [
            (
                &["web-0", "web-17"][..],
                "web-db-0",
                vec![literal("web"), Segment::Number],
            ),
            (
                &["web-5d8f9c7b6-x2x4z", "web-6f7d8b9c4-55555"],
                "web-admin-0",
                vec![literal("web"), Segment::Hash, Segment::Suffix],
            ),
            (
                &["db-1", "db-2"],
                "db-1-join-k8wqz",
                vec![literal("db"), Segment::Number],
            ),
        ] {
            let names = learned(pods);
            assert!(names.shapes().eq([&shape[..]]), "{names:?}");
            assert_ne!(learned(&[other]), names, "{other}");
        }
    }

    #[test]
    fn too_many_shapes_tell_nothing_apart() {
        let pods: Vec<String> = (0..20_u8)
            .map(|i| format!("pod{}-x", char::from(b'a' + i)))
            .collect();
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        assert_eq!(learned(&pods).shapes().count(), 0);
        assert_eq!(learned(&["", "-", "a--b"]).shapes().count(), 3);
    }
}
