//! Where members are written down: Secrets, and `ClusterProfile`s with a Secret each.
//!
//! A `ClusterProfile` (multicluster.x-k8s.io/v1alpha1) says what a cluster is; how to reach it is in the one Secret of
//! the same namespace with the labels `x-k8s.io/cluster-profile: <profile>` and `x-k8s.io/cluster-inventory-consumer:
//! foretide`, under the key `Config` (the convention of multicluster-runtime). A cluster that does not serve the kind
//! has none, which is looked at again every minute. It refuses to run the access plugins of a profile.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    Settings,
    kubeconfig::Access,
    secret::{MemberSecret, Tags},
};
use crate::{
    adapters::{
        api_server::{CallError, Calls, Connection, Discovery, Resource, query},
        kube::{Changes, Entry, Store, Stored, WatchReport, WatchTimeouts, Watched, read},
    },
    ports::ClusterError,
};

/// How often a cluster without `ClusterProfile`s is asked whether it has them now.
const ASKED_AGAIN: Duration = Duration::from_mins(1);
/// Label of the Secret of a profile: the name of the profile.
const PROFILE_LABEL: &str = "x-k8s.io/cluster-profile";
const PROFILE_SECRETS: &str =
    "x-k8s.io/cluster-inventory-consumer=foretide,x-k8s.io/cluster-profile";
/// Key of the kubeconfig in the Secret of a profile.
const PROFILE_KEY: &str = "Config";

/// What the inventories say about one member.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// What it is.
    pub(super) tags: Tags,
    /// How to reach it, or why not.
    pub(super) access: Result<Access, String>,
    /// Name of the Secret with its kubeconfig, if there is one.
    pub(super) secret: Option<String>,
    /// Since when its manager says that its control plane is not healthy; wall clock.
    pub(super) unhealthy: Option<Timestamp>,
}

/// The inventories of a hub.
pub(super) struct Inventory {
    connection: Connection,
    secrets: Arc<Store<MemberSecret>>,
    profiles: Arc<Store<ClusterProfile>>,
    profile_secrets: Arc<Store<MemberSecret>>,
    /// Whether the hub has said that it serves no profiles.
    without_profiles: AtomicBool,
}

/// A `ClusterProfile`, as far as it tells about a member.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClusterProfile {
    name: String,
    /// Its labels, and its properties where no label has their name.
    labels: BTreeMap<String, String>,
    unhealthy: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ProfileObject {
    metadata: Meta,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
struct Status {
    conditions: Option<Vec<Condition>>,
    properties: Option<Vec<Property>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    value: String,
}

// === impl ClusterProfile ===

impl Stored for ClusterProfile {
    fn decode(object: Value) -> Result<Self, String> {
        let ProfileObject { metadata, status } = read(object)?;
        let status = status.unwrap_or_default();
        let mut labels = metadata.labels.unwrap_or_default();
        for property in status.properties.into_iter().flatten() {
            labels.entry(property.name).or_insert(property.value);
        }
        let sick = |c: &&Condition| c.kind == "ControlPlaneHealthy" && c.status == "False";
        let sick = status.conditions.iter().flatten().find(sick);
        Ok(Self {
            name: metadata.name,
            labels,
            unhealthy: sick.map(|c| c.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH)),
        })
    }

    fn spec_eq(&self, before: &Self) -> bool {
        self == before
    }
}

// === impl Inventory ===

impl Inventory {
    /// Empty inventories, which tell `events` of every change.
    pub(super) fn new(connection: Connection, settings: &Settings, events: &Arc<Changes>) -> Self {
        let scope = [Some(settings.namespace.clone())];
        let secrets = |selector: &str| {
            let store =
                Store::new(Resource::SECRET, &scope).with_label_selector(selector.to_owned());
            Arc::new(store.with_changes(events.clone()))
        };
        let profiles = Store::new(Resource::CLUSTER_PROFILE, &scope).with_changes(events.clone());
        Self {
            connection,
            secrets: secrets(&settings.label),
            profiles: Arc::new(profiles),
            profile_secrets: secrets(PROFILE_SECRETS),
            without_profiles: AtomicBool::new(false),
        }
    }

    /// Keeps the inventories true, until it is dropped; returns only when a watch has died.
    pub(super) async fn run(&self) {
        let mut tasks = JoinSet::new();
        self.watch(self.secrets.clone(), &mut tasks);
        let mut served = std::pin::pin!(self.profiles_served());
        let mut watching = false;
        loop {
            tokio::select! {
                () = &mut served, if !watching => {
                    watching = true;
                    self.watch(self.profiles.clone(), &mut tasks);
                    self.watch(self.profile_secrets.clone(), &mut tasks);
                }
                Some(ended) = tasks.join_next() => {
                    tracing::error!(?ended, "the watch of the members died");
                    return;
                }
            }
        }
    }

    fn watch(&self, store: Arc<dyn Watched>, tasks: &mut JoinSet<()>) {
        store.watch(&self.connection, WatchTimeouts::default(), tasks);
    }

    /// Waits until the hub serves profiles.
    async fn profiles_served(&self) {
        let calls = self.connection.calls();
        let discovery = Discovery::new(Arc::new(calls));
        let Resource {
            api_version, kind, ..
        } = Resource::CLUSTER_PROFILE;
        loop {
            let found = discovery.kind(api_version, kind).await;
            let absent = match &found {
                Ok(kind) => kind.is_none(),
                Err(error) => error.is_forbidden_or_not_found(),
            };
            self.without_profiles.store(absent, Ordering::Release);
            match found {
                Ok(Some(_)) => return,
                _ if absent => tokio::time::sleep(ASKED_AGAIN).await,
                _ => tokio::time::sleep(ASKED_AGAIN / 12).await,
            }
        }
    }

    /// Whether every inventory has been listed. Profiles that may not be read are none; those that cannot be read for
    /// the moment are waited for, because members that are not known yet look as if they were gone.
    pub(super) fn is_listed(&self) -> bool {
        let listed = |report: WatchReport| report.synced || report.forbidden_or_not_found;
        let profiles = || listed(self.profiles.report()) && listed(self.profile_secrets.report());
        self.secrets.is_synced() && (self.without_profiles.load(Ordering::Acquire) || profiles())
    }

    /// Every member that is written down, by name; of two with one name, that of the Secret.
    pub(super) fn wanted(&self, settings: &Settings) -> BTreeMap<String, Wanted> {
        let listed = self.profiles.all();
        let by_profile = listed
            .iter()
            .map(|profile| self.profiled(profile, settings));
        let mut wanted: BTreeMap<String, Wanted> = by_profile.collect();
        for secret in self.secrets.all() {
            let access = secret.access(&settings.key, settings.allow_loopback);
            let member = Wanted {
                tags: secret.tags(&secret.name, &secret.labels),
                access: access.map_err(|refusal| refusal.to_string()),
                secret: Some(secret.name.clone()),
                unhealthy: None,
            };
            wanted.insert(secret.name.clone(), member);
        }
        wanted
    }

    fn profiled(&self, profile: &ClusterProfile, settings: &Settings) -> (String, Wanted) {
        let name = &profile.name;
        let mut secrets = self.profile_secrets.all();
        secrets.retain(|secret| secret.labels.get(PROFILE_LABEL) == Some(name));
        let access = match &secrets[..] {
            [secret] => {
                let access = secret.access(PROFILE_KEY, settings.allow_loopback);
                access.map_err(|refusal| refusal.to_string())
            }
            found => Err(format!(
                "{} Secrets with the labels {PROFILE_SECRETS}={name}, expected one with the kubeconfig under {PROFILE_KEY}",
                found.len()
            )),
        };
        let mut labels = profile.labels.clone();
        for secret in &secrets {
            labels.extend(secret.labels.clone());
        }
        let tags = match secrets.first() {
            Some(secret) => secret.tags(name, &labels),
            None => MemberSecret::default().tags(name, &labels),
        };
        let wanted = Wanted {
            tags,
            access,
            secret: secrets.first().map(|secret| secret.name.clone()),
            unhealthy: profile.unhealthy,
        };
        (name.clone(), wanted)
    }
}

/// A list as it comes in one piece.
#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Value>,
}

impl Inventory {
    /// Fills the inventories once, without a watch. Profiles that are not served are none; why they cannot be read
    /// otherwise is what it gives.
    pub(super) async fn look(
        &self,
        calls: &Calls,
        settings: &Settings,
    ) -> Result<Option<ClusterError>, ClusterError> {
        let scope = settings.namespace.as_str();
        fetch(calls, &self.secrets, scope).await?;
        match fetch(calls, &self.profiles, scope).await {
            Ok(()) => fetch(calls, &self.profile_secrets, scope).await?,
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => return Ok(Some(error)),
        }
        Ok(None)
    }
}

async fn fetch<V: Stored>(
    calls: &Calls,
    store: &Store<V>,
    scope: &str,
) -> Result<(), ClusterError> {
    let what = |error: CallError| {
        let kind = store.resource.kind;
        error.about(format!("the list of kind {kind} in namespace {scope}"))
    };
    let path = store.resource.collection(Some(scope)).map_err(what)?;
    let narrowed: Vec<_> = store.selector_parameter().into_iter().collect();
    let read = calls
        .read::<List>(&format!("{path}{}", query(&narrowed)))
        .await;
    let items = read.map_err(what)?.items.into_iter();
    store.replace(Some(scope), items.filter_map(Entry::decode).collect());
    Ok(())
}

#[cfg(test)]
impl Inventory {
    /// Puts Secrets in place as a list would.
    pub(super) fn list(&self, settings: &Settings, secrets: Vec<Value>) {
        let seen = secrets.into_iter().filter_map(Entry::decode);
        self.secrets
            .replace(Some(&settings.namespace), seen.collect());
        self.without_profiles.store(true, Ordering::Release);
    }
}
