//! Discovery of the kinds that the API server serves, of their paths, and of their scale subresources.
//!
//! The resource list of a group and version is fetched when a kind of it is first looked up. It is cached for ten
//! minutes for the kinds it has, and for 30 s for those it lacks: a mistyped kind costs few requests, and a CRD that
//! was just installed is found soon. `kube::discovery` would fetch the lists of all groups.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use foretide_domain::ScaleTarget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use tokio::sync::Mutex;

use super::{
    client::Calls,
    error::{About as _, CallError},
    resource,
};
use foretide_api::ports::ClusterError;
use foretide_base::clock::Monotonic;

/// Time for which a list is used for a kind that it has.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Maximum number of lists; the one used longest ago is dropped before another is added. Users write apiVersions.
const MAX_LISTS: usize = 128;
/// Time for which a list, or a failure to fetch it, is used for a kind that it lacks.
const MAX_AGE_MISSING: Duration = Duration::from_secs(30);

/// One kind of one group and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKind {
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// Path segment of its collection.
    pub plural: String,
    /// True if its objects live in namespaces.
    pub namespaced: bool,
    /// True if it has a scale subresource.
    pub has_scale: bool,
}

/// The kinds of the API server, as far as they were looked up.
#[derive(Debug)]
pub struct Discovery {
    calls: Arc<Calls>,
    lists: parking_lot::Mutex<Lists>,
}

/// The lists that were used last.
#[derive(Debug, Default)]
struct Lists {
    /// Lists with their turns of use, by `apiVersion`.
    by_version: BTreeMap<String, (Arc<List>, u64)>,
    turn: u64,
}

/// The list of one group and version. Locked while it is fetched, so that concurrent lookups send one request and those
/// of other groups do not wait.
type List = Mutex<Option<CachedList>>;

#[derive(Debug, Clone)]
struct CachedList {
    fetched: Monotonic,
    kinds: Result<Vec<ApiKind>, CallError>,
}

// === impl Discovery ===

impl Discovery {
    pub fn new(calls: Arc<Calls>) -> Self {
        Self {
            calls,
            lists: parking_lot::Mutex::default(),
        }
    }

    /// The path of a target's scale subresource.
    pub async fn scale_path(&self, target: &ScaleTarget) -> Result<String, ClusterError> {
        Ok(format!("{}/scale", self.path(target).await?))
    }

    /// The path of a target, which must be of a kind with a scale subresource.
    pub async fn path(&self, target: &ScaleTarget) -> Result<String, ClusterError> {
        let ScaleTarget {
            api_version,
            kind,
            namespace,
            name,
        } = target;
        let message = match self.kind(api_version, kind).await.about(target)? {
            None => format!(
                "the cluster has no kind {kind} in {api_version}; correct scaleTargetRef or install its CRD"
            ),
            Some(found) if !found.has_scale || !found.namespaced => {
                format!("{kind} of {api_version} is not a namespaced kind with a scale subresource")
            }
            Some(found) => {
                return object_path(api_version, namespace, &found.plural, name).about(target);
            }
        };
        Err(ClusterError::NotScalable {
            what: target.to_string(),
            message,
        })
    }

    /// A kind of a group and version; `None` when the server does not serve it.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<ApiKind>, CallError> {
        let mut list = self.list(api_version).lock_owned().await;
        let now = self.calls.clock().monotonic();
        if let Some(cached) = list.as_ref().filter(|cached| cached.is_current(kind, now)) {
            return cached.find(kind);
        }
        let kinds = match self.fetch(api_version).await {
            // The server does not serve this group and version.
            Err(error) if error.is_status(404) => Ok(Vec::new()),
            // Kinds are rarely removed, so an old list is better than an error. It counts as fetched now, so that the
            // server is not asked again with each lookup.
            Err(error) => list.take().map_or(Err(error), |cached| cached.kinds),
            fetched => fetched,
        };
        let fetched = now;
        list.insert(CachedList { fetched, kinds }).find(kind)
    }

    fn list(&self, api_version: &str) -> Arc<List> {
        self.lists.lock().of(api_version)
    }

    async fn fetch(&self, api_version: &str) -> Result<Vec<ApiKind>, CallError> {
        let path = resource::root(api_version)?;
        let list: APIResourceList = self.calls.read(&path).await?;
        let scaled: Vec<&str> = list
            .resources
            .iter()
            // A resource list names subresources beside their resources: `deployments/scale`.
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
                has_scale: scaled.contains(&r.name.as_str()),
            });
        Ok(kinds.collect())
    }
}

/// The path of an object of any kind.
fn object_path(
    api_version: &str,
    namespace: &str,
    plural: &str,
    name: &str,
) -> Result<String, CallError> {
    let (root, namespace) = (resource::root(api_version)?, resource::segment(namespace)?);
    let (plural, name) = (resource::segment(plural)?, resource::segment(name)?);
    Ok(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
}

// === impl Lists ===

impl Lists {
    fn of(&mut self, api_version: &str) -> Arc<List> {
        self.turn += 1;
        if self.by_version.len() >= MAX_LISTS && !self.by_version.contains_key(api_version) {
            let used = self.by_version.iter().min_by_key(|(_, (_, turn))| *turn);
            if let Some(oldest) = used.map(|(version, _)| version.clone()) {
                self.by_version.remove(&oldest);
            }
        }
        let (list, turn) = self.by_version.entry(api_version.to_owned()).or_default();
        *turn = self.turn;
        Arc::clone(list)
    }
}

// === impl CachedList ===

impl CachedList {
    /// True if the list is new enough to look up `kind`.
    fn is_current(&self, kind: &str, now: Monotonic) -> bool {
        let age = now.since(self.fetched);
        let has = self
            .kinds
            .as_ref()
            .is_ok_and(|kinds| kinds.iter().any(|k| k.kind == kind));
        age < if has { MAX_AGE } else { MAX_AGE_MISSING }
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
    use futures::poll;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::api_server::Limits;
    use simkube::client::{FakeServer, Reply};

    #[test]
    fn groups_that_users_make_up_are_forgotten_before_those_in_use() {
        let mut lists = Lists::default();
        let apps = lists.of("apps/v1");
        for n in 0..3 * MAX_LISTS {
            lists.of(&format!("made-up-{n}/v1"));
            assert!(Arc::ptr_eq(&apps, &lists.of("apps/v1")), "{n}");
        }
        assert_eq!(lists.by_version.len(), MAX_LISTS);
    }

    #[tokio::test]
    async fn a_group_that_hangs_delays_no_lookup_in_another() {
        let none =
            || json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []});
        let (_server, client) = FakeServer::new(move |sent, _| {
            if sent.line.contains("/apis/stuck") {
                Reply::Hang
            } else {
                Reply::Ok(none())
            }
        });
        let discovery = Discovery::new(Arc::new(Calls::new(client, Limits::default())));
        let mut stuck = Box::pin(discovery.kind("stuck/v1", "Queue"));
        assert!(poll!(&mut stuck).is_pending());
        let other = timeout(Duration::from_secs(10), discovery.kind("apps/v1", "Queue"));
        assert!(matches!(other.await, Ok(Ok(_))));
    }

    #[test]
    fn a_list_is_current_longer_for_a_kind_it_has_than_for_one_it_lacks() {
        let fetched = Monotonic::after_origin(Duration::from_hours(1));
        let kind = ApiKind {
            kind: "Queue".into(),
            plural: "queues".into(),
            namespaced: true,
            has_scale: true,
        };
        let good = CachedList {
            fetched,
            kinds: Ok(vec![kind]),
        };
        let bad = CachedList {
            fetched,
            kinds: Err(CallError::Transport("refused".into())),
        };
        for (list, kind, seconds, want) in [
            (&good, "Queue", 599, true),
            (&good, "Queue", 600, false),
            (&good, "Topic", 29, true),
            (&good, "Topic", 30, false),
            (&bad, "Queue", 29, true),
            (&bad, "Queue", 30, false),
        ] {
            let now = fetched + Duration::from_secs(seconds);
            assert_eq!(list.is_current(kind, now), want, "{kind} after {seconds} s");
        }
    }
}
