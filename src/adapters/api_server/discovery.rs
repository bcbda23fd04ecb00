//! Which kinds the API server serves, under which path, and which of them can be scaled.
//!
//! One document per group and version, fetched when first needed and kept for ten minutes. What a
//! document lacks is asked for again at most twice a minute, so that a mistyped kind costs little and a
//! freshly installed one is found soon. It refuses to read whole-cluster discovery.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::{client::Calls, error::CallError, url};
use crate::{clock::Clock, domain::ScaleTarget, ports::ClusterError};

const KEPT: SignedDuration = SignedDuration::from_mins(10);
const ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// One kind of one group and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::adapters) struct ApiKind {
    /// The kind, as `Deployment`.
    pub(in crate::adapters) kind: String,
    /// Path segment of its collection.
    pub(in crate::adapters) plural: String,
    /// Whether its objects live in namespaces.
    pub(in crate::adapters) namespaced: bool,
    /// Whether it has a scale subresource.
    pub(in crate::adapters) scales: bool,
}

/// The kinds of the API server, as far as somebody asked.
pub(in crate::adapters) struct Discovery {
    calls: Arc<Calls>,
    known: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    asked: Timestamp,
    kinds: Result<Vec<ApiKind>, CallError>,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ResourceEntry>,
}

#[derive(Deserialize)]
struct ResourceEntry {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

// === impl Discovery ===

impl Discovery {
    pub(in crate::adapters) fn new(calls: Arc<Calls>) -> Self {
        Self {
            calls,
            known: Mutex::new(BTreeMap::new()),
        }
    }

    /// The path of a target's scale subresource.
    pub(in crate::adapters) async fn scale_path(
        &self,
        target: &ScaleTarget,
    ) -> Result<String, ClusterError> {
        Ok(format!("{}/scale", self.path(target).await?))
    }

    /// The path of a target, which must be of a kind that scales.
    pub(in crate::adapters) async fn path(
        &self,
        target: &ScaleTarget,
    ) -> Result<String, ClusterError> {
        let ScaleTarget {
            api_version,
            kind,
            namespace,
            name,
        } = target;
        let refuse = |message| ClusterError::NotScalable {
            what: target.to_string(),
            message,
        };
        let found = self
            .kind(api_version, kind)
            .await
            .map_err(|e| e.about(target.to_string()))?;
        let Some(found) = found else {
            return Err(refuse(format!(
                "the cluster knows no kind {kind} in {api_version}; correct scaleTargetRef or install its CRD"
            )));
        };
        if !found.scales || !found.namespaced {
            return Err(refuse(format!(
                "expected a namespaced kind with a scale subresource, and {kind} of {api_version} is none"
            )));
        }
        let path = || {
            let (root, namespace) = (url::root(api_version)?, url::segment(namespace)?);
            let (plural, name) = (url::segment(&found.plural)?, url::segment(name)?);
            Ok(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
        };
        path().map_err(|error: CallError| error.about(target.to_string()))
    }

    /// A kind of a group and version; `None` when the server does not serve it.
    pub(in crate::adapters) async fn kind(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ApiKind>, CallError> {
        // Held while asking: whoever else needs a document waits for this answer instead of asking too.
        let mut known = self.known.lock().await;
        let now = Clock::system().now();
        if let Some(entry) = known
            .get(api_version)
            .filter(|entry| entry.serves(kind, now))
        {
            return entry.find(kind);
        }
        let kinds = match self.fetch(api_version).await {
            Err(error) if error.is_status(404) => Ok(Vec::new()),
            // An older document is better than none: kinds rarely go away.
            Err(error) => known
                .remove(api_version)
                .map_or(Err(error), |entry| entry.kinds),
            fetched => fetched,
        };
        let entry = Known { asked: now, kinds };
        let found = entry.find(kind);
        known.insert(api_version.to_owned(), entry);
        found
    }

    async fn fetch(&self, api_version: &str) -> Result<Vec<ApiKind>, CallError> {
        let list: ResourceList = self.calls.read(&url::root(api_version)?).await?;
        let scaled: Vec<&str> = list
            .resources
            .iter()
            .filter_map(|r| r.name.strip_suffix("/scale"))
            .collect();
        let kinds = list
            .resources
            .iter()
            .filter(|r| !r.name.contains('/'))
            .map(|r| ApiKind {
                kind: r.kind.clone(),
                plural: r.name.clone(),
                namespaced: r.namespaced,
                scales: scaled.contains(&r.name.as_str()),
            });
        Ok(kinds.collect())
    }
}

// === impl Known ===

impl Known {
    /// Whether this document still answers for `kind`.
    fn serves(&self, kind: &str, now: Timestamp) -> bool {
        let age = now.duration_since(self.asked);
        let has = self
            .kinds
            .as_ref()
            .is_ok_and(|kinds| kinds.iter().any(|k| k.kind == kind));
        age < if has { KEPT } else { ASKED_AGAIN }
    }

    fn find(&self, kind: &str) -> Result<Option<ApiKind>, CallError> {
        match &self.kinds {
            Ok(kinds) => Ok(kinds.iter().find(|found| found.kind == kind).cloned()),
            Err(error) => Err(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_kept_for_what_it_has_and_asked_again_for_what_it_lacks() {
        let asked: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let kind = ApiKind {
            kind: "Queue".into(),
            plural: "queues".into(),
            namespaced: true,
            scales: true,
        };
        let good = Known {
            asked,
            kinds: Ok(vec![kind]),
        };
        let bad = Known {
            asked,
            kinds: Err(CallError::Transport("refused".into())),
        };
        for (known, kind, seconds, want) in [
            (&good, "Queue", 599, true),
            (&good, "Queue", 600, false),
            (&good, "Topic", 29, true),
            (&good, "Topic", 30, false),
            (&bad, "Queue", 29, true),
            (&bad, "Queue", 30, false),
        ] {
            let now = asked + SignedDuration::from_secs(seconds);
            assert_eq!(known.serves(kind, now), want, "{kind} after {seconds} s");
        }
    }
}
