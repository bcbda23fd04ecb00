//! The inventory of member clusters in the hub: Secrets with a kubeconfig, and `ClusterProfile`s with a Secret each.
//!
//! A `ClusterProfile` (multicluster.x-k8s.io/v1alpha1) describes a cluster. Its kubeconfig is in the one Secret of the
//! same namespace with the labels `x-k8s.io/cluster-profile: <profile>` and `x-k8s.io/cluster-inventory-consumer:
//! foretide`, under the key `Config` (the convention of multicluster-runtime). A hub that does not serve the kind has
//! none; discovery is repeated every minute. The access plugins of a profile are never run.

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
use serde_json::{Value, value::RawValue};
use tokio::task::JoinSet;

use super::{
    kubeconfig::Access,
    secret::{MemberInfo, MemberSecret},
    settings::MemberSettings,
};
use crate::{
    api_server::{About as _, Calls, Connection, Discovery, Resource, query},
    cluster::{Changes, Conditions, Entry, Meta, Store, Stored, WatchTimeouts, Watched, read},
};
use foretide_api::ports::ClusterError;

/// Period of discovery on a hub without `ClusterProfile`s.
const DISCOVERY_PERIOD: Duration = Duration::from_mins(1);
/// Label of the Secret of a profile: the name of the profile.
const PROFILE_LABEL: &str = "x-k8s.io/cluster-profile";
/// Selector of the Secrets of all profiles.
const PROFILE_SECRETS: &str =
    "x-k8s.io/cluster-inventory-consumer=foretide,x-k8s.io/cluster-profile";
/// Key of the kubeconfig in the Secret of a profile.
const PROFILE_KEY: &str = "Config";

/// One member of the inventory.
#[derive(Debug, Clone, PartialEq)]
pub struct InventoryEntry {
    pub info: MemberInfo,
    /// The address and credentials, or the reason why they cannot be used.
    pub access: Result<Access, String>,
    /// Name of the Secret with its kubeconfig, if there is one.
    pub secret: Option<String>,
    /// True if a `ClusterProfile` describes it.
    pub has_profile: bool,
    /// Time since when its `ClusterProfile` reports that its control plane is not healthy; wall clock.
    pub unhealthy: Option<Timestamp>,
}

/// The inventory of a hub.
#[derive(Debug)]
pub struct Inventory {
    connection: Connection,
    secrets: Arc<Store<MemberSecret>>,
    profiles: Arc<Store<ClusterProfile>>,
    profile_secrets: Arc<Store<MemberSecret>>,
    /// True if discovery found that the hub serves no profiles.
    without_profiles: AtomicBool,
}

/// The fields of a `ClusterProfile` that describe a member.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterProfile {
    name: String,
    /// Labels and properties; a label takes precedence over a property of the same name.
    labels: BTreeMap<String, String>,
    unhealthy: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ProfileObject {
    metadata: Meta,
    status: Option<ProfileStatus>,
}

#[derive(Deserialize, Default)]
struct ProfileStatus {
    conditions: Option<Conditions>,
    properties: Option<Vec<ProfileProperty>>,
}

#[derive(Deserialize)]
struct ProfileProperty {
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
            // A label takes precedence over a property of the same name.
            labels.entry(property.name).or_insert(property.value);
        }
        let conditions = status.conditions;
        let unhealthy = conditions.and_then(|it| it.with_status("ControlPlaneHealthy", "False"));
        Ok(Self {
            name: metadata.name,
            labels,
            unhealthy: unhealthy.map(|condition| condition.since()),
        })
    }

    fn spec_eq(&self, before: &Self) -> bool {
        self == before
    }
}

// === impl Inventory ===

impl Inventory {
    /// An empty inventory, which adds every change to `changes`.
    pub fn new(connection: Connection, settings: &MemberSettings, changes: &Arc<Changes>) -> Self {
        let scope = [Some(settings.namespace.clone())];
        let [secrets, profile_secrets] = [&settings.label, PROFILE_SECRETS].map(|label| {
            let store = Store::new(Resource::SECRET, &scope).with_label_selector(label.to_owned());
            Arc::new(store.with_changes(changes.clone()))
        });
        let profiles = Store::new(Resource::CLUSTER_PROFILE, &scope).with_changes(changes.clone());
        Self {
            connection,
            secrets,
            profiles: Arc::new(profiles),
            profile_secrets,
            without_profiles: AtomicBool::new(false),
        }
    }

    /// True if the API server forbids to list the Secrets.
    pub async fn is_refused(&self, settings: &MemberSettings) -> bool {
        let Ok(path) = Resource::SECRET.collection(Some(&settings.namespace)) else {
            return false;
        };
        let one = query(&[("limit", "1"), ("labelSelector", &settings.label)]);
        let listed = self.connection.calls().read_text(&(path + &one)).await;
        listed.is_err_and(|error| error.is_status(403))
    }

    /// A connection to a member, whose pages of lists wait for those of other members.
    pub fn of_member(&self, name: &str, member: Connection) -> Connection {
        member.of_member(name, &self.connection)
    }

    /// Watches Secrets and profiles until it is dropped; returns only when a watch exits.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        self.watch(self.secrets.clone(), &mut tasks);
        let mut served = std::pin::pin!(self.wait_for_profiles());
        let mut watching = false;
        loop {
            tokio::select! {
                biased;
                // A future that has finished must not be polled again.
                () = &mut served, if !watching => {
                    watching = true;
                    self.watch(self.profiles.clone(), &mut tasks);
                    self.watch(self.profile_secrets.clone(), &mut tasks);
                }
                Some(ended) = tasks.join_next() => {
                    tracing::error!(?ended, "watch of the members exited unexpectedly");
                    return;
                }
            }
        }
    }

    fn watch(&self, store: Arc<dyn Watched>, tasks: &mut JoinSet<()>) {
        store.watch(&self.connection, WatchTimeouts::default(), tasks);
    }

    /// Waits until the hub serves profiles.
    async fn wait_for_profiles(&self) {
        let calls = self.connection.calls();
        let discovery = Discovery::new(Arc::new(calls));
        let Resource {
            api_version, kind, ..
        } = Resource::CLUSTER_PROFILE;
        loop {
            let found = discovery.kind(api_version, kind).await;
            let absent = match &found {
                Ok(kind) => kind.is_none(),
                // A hub that does not grant access to the kind has no profiles for us.
                Err(error) => error.is_forbidden_or_not_found(),
            };
            self.without_profiles.store(absent, Ordering::Release);
            match found {
                Ok(Some(_)) => return,
                _ if absent => tokio::time::sleep(DISCOVERY_PERIOD).await,
                // Repeated sooner: until this is known, the inventory is not complete.
                _ => tokio::time::sleep(DISCOVERY_PERIOD / 12).await,
            }
        }
    }

    /// True if Secrets and profiles have been listed. Profiles that may not be read count as none. Those that cannot be
    /// read at the moment are waited for, because members that are not known yet look as if they were deleted.
    pub fn is_listed(&self) -> bool {
        let of_profiles = [self.profiles.report(), self.profile_secrets.report()];
        self.secrets.is_synced()
            && (self.without_profiles.load(Ordering::Acquire)
                || of_profiles
                    .iter()
                    .all(|it| it.synced || it.forbidden_or_not_found))
    }

    /// Every member, by name; a Secret takes precedence over a profile of the same name.
    pub fn members(&self, settings: &MemberSettings) -> BTreeMap<String, InventoryEntry> {
        let mut members = BTreeMap::new();
        for profile in self.profiles.all() {
            let member = self.member_of_profile(&profile, settings);
            members.insert(profile.name.clone(), member);
        }
        for secret in self.secrets.all() {
            let access = secret.access(&settings.key, settings.allow_loopback);
            let member = InventoryEntry {
                info: secret.info(&secret.name, &secret.labels),
                access: access.map_err(|error| error.to_string()),
                secret: Some(secret.name.clone()),
                has_profile: false,
                unhealthy: None,
            };
            // After the profiles: a labelled Secret takes precedence over a profile of the same name.
            members.insert(secret.name.clone(), member);
        }
        members
    }

    fn member_of_profile(
        &self,
        profile: &ClusterProfile,
        settings: &MemberSettings,
    ) -> InventoryEntry {
        let name = &profile.name;
        let mut secrets = self.profile_secrets.all();
        secrets.retain(|secret| secret.labels.get(PROFILE_LABEL) == Some(name));
        let access = match &secrets[..] {
            [secret] => secret
                .access(PROFILE_KEY, settings.allow_loopback)
                .map_err(|error| error.to_string()),
            found => Err(format!(
                "{} Secrets with the labels {PROFILE_SECRETS}={name}, expected one with the kubeconfig under {PROFILE_KEY}",
                found.len()
            )),
        };
        let mut labels = profile.labels.clone();
        for secret in &secrets {
            labels.extend(secret.labels.clone());
        }
        let info = match secrets.first() {
            Some(secret) => secret.info(name, &labels),
            None => MemberSecret::default().info(name, &labels),
        };
        InventoryEntry {
            info,
            access,
            secret: secrets.first().map(|secret| secret.name.clone()),
            has_profile: true,
            unhealthy: profile.unhealthy,
        }
    }
}

impl Inventory {
    /// Lists Secrets and profiles once, without a watch. Returns the reason why profiles cannot be read, if the hub
    /// serves them.
    pub async fn list_once(
        &self,
        calls: &Calls,
        settings: &MemberSettings,
    ) -> Result<Option<ClusterError>, ClusterError> {
        let scope = settings.namespace.as_str();
        list(calls, &self.secrets, scope).await?;
        match list(calls, &self.profiles, scope).await {
            Ok(()) => list(calls, &self.profile_secrets, scope).await?,
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => return Ok(Some(error)),
        }
        Ok(None)
    }
}

async fn list<V: Stored>(calls: &Calls, store: &Store<V>, scope: &str) -> Result<(), ClusterError> {
    let Resource { kind, .. } = store.resource;
    let what = format!("the list of kind {kind} in namespace {scope}");
    let path = store.resource.collection(Some(scope)).about(&what)?;
    let objects: Vec<Box<RawValue>> = calls
        .list(&path, store.selector_parameter().as_slice())
        .await
        .about(what)?;
    let entries: Vec<_> = objects
        .iter()
        .filter_map(|it| Entry::read(it.get()))
        .collect();
    store.replace(Some(scope), entries);
    Ok(())
}

#[cfg(test)]
impl Inventory {
    /// Replaces the Secrets, as a list would.
    pub fn set_secrets(&self, settings: &MemberSettings, secrets: Vec<Value>) {
        let seen = secrets.into_iter().filter_map(Entry::decode);
        self.secrets
            .replace(Some(&settings.namespace), seen.collect());
        self.without_profiles.store(true, Ordering::Release);
    }
}
