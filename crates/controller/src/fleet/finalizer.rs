//! Cleanup of a fleet's objects in members, when the fleet is deleted or was deleted while a member could not be
//! reached.
//!
//! A finalizer holds the object only while there is something to clean up. An unreachable member delays the deletion by
//! five minutes at most; what is left there is collected when the member is back. Replicas stay as they are; an adopted
//! HPA is restored, and foreign ones are never written.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_crds::{DeletionPolicy, FederatedHPA, Passthrough, WorkloadSource};
use foretide_domain::autoscale::action::Action;
use futures::future::{join, join_all};
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{decided::FleetDecided, member_plan::MemberPlan, observation::in_reach};
use crate::{apply::Writer, child_hpa};
use foretide_api::ownership::{DELETION_POLICY, FLEET_UID, HUB, OwnerKind};
use foretide_api::ports::{
    Cluster, ClusterError, EventNote, Fleet, HpaView, Member, MemberView, Workloads,
};
use foretide_base::{
    clock::Monotonic,
    telemetry::{Telemetry, Write},
};

/// Our finalizer.
const FINALIZER: &str = "autoscaling.foretide.io/fleet";
/// Longest time for which an unreachable member delays the deletion.
const MAX_DELAY: Duration = Duration::from_mins(5);
/// Period of searching members for HPAs of deleted fleets.
const COLLECT_PERIOD: Duration = Duration::from_mins(1);

/// Treatment of an HPA of a fleet by the cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HpaCleanup<'a> {
    /// Deletes it, or restores it as it was before its adoption.
    Release,
    /// Keeps it without the labels of its fleet, with the user's behavior.
    Orphan(Option<&'a Value>),
}

impl<'a> HpaCleanup<'a> {
    /// The treatment that the deletion policy of a fleet asks for.
    fn of(fdhpa: &'a FederatedHPA) -> Self {
        match fdhpa.spec.deletion_policy.unwrap_or_default() {
            DeletionPolicy::Delete => Self::Release,
            DeletionPolicy::Retain => {
                let behavior = fdhpa.spec.autoscaling.behavior.as_ref();
                Self::Orphan(behavior.map(Passthrough::raw))
            }
        }
    }
}

/// A fleet that is being deleted.
#[derive(Debug)]
pub struct Deleting {
    fdhpa: Arc<FederatedHPA>,
    /// The members that had something of it, as far as is known.
    listed: BTreeSet<String>,
    /// True if unreachable members have delayed the deletion for long enough.
    is_overdue: bool,
}

/// Cleans up in the members of a hub, beside the syncs.
#[derive(Debug)]
pub struct FleetCleanup<C, F> {
    /// The cluster that the fleets' objects are in.
    pub hub: Arc<C>,
    pub fleet: Arc<F>,
    /// The counters of writes.
    pub telemetry: Arc<Telemetry>,
    /// Time limit for the cleanup of one member.
    pub deadline: Duration,
}

/// State of deletions between two cleanups.
#[derive(Debug, Default)]
pub struct Finalizers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The hub's identity, once it was read.
    identity: Option<String>,
    /// True if the identity was asked for: HPAs that are written before have no label of their hub.
    has_asked: bool,
    /// The time of the last search of members for HPAs of deleted fleets.
    collected: Option<Monotonic>,
    /// Times since when objects are being deleted, by UID.
    since: HashMap<String, Monotonic>,
}

// === impl Finalizers ===

impl Finalizers {
    /// The hub's identity, if it was read.
    pub fn hub_identity(&self) -> Option<String> {
        self.0.lock().identity.clone()
    }

    /// True if the hub's identity was asked for.
    pub fn has_asked(&self) -> bool {
        self.0.lock().has_asked
    }

    /// The fleets that are being deleted and have our finalizer; `members_of` returns the members in which one has
    /// something, as far as is known.
    pub fn deleting(
        &self,
        mut fleets: Vec<Arc<FederatedHPA>>,
        now: Monotonic,
        members_of: impl Fn(&str) -> Vec<String>,
    ) -> Vec<Deleting> {
        fleets.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_some());
        let uids: HashSet<String> = fleets.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        let mut known = self.0.lock();
        known.since.retain(|uid, _| uids.contains(uid));
        fleets.retain(|fdhpa| has_finalizer(fdhpa));
        let mut deleting = Vec::new();
        for fdhpa in fleets {
            let uid = fdhpa.uid().unwrap_or_default();
            let mut listed = BTreeSet::from_iter(members_of(&uid));
            if let Some(clusters) = fdhpa.status.as_ref().and_then(|it| it.clusters.as_ref()) {
                listed.extend(clusters.iter().map(|cluster| cluster.name.clone()));
            }
            let since = *known.since.entry(uid).or_insert(now);
            deleting.push(Deleting {
                fdhpa,
                listed,
                is_overdue: now.since(since) >= MAX_DELAY,
            });
        }
        deleting
    }

    /// The hub's identity, if it can be read and members were not searched within the last minute.
    pub async fn collect_as<C: Cluster>(&self, hub: &C, now: Monotonic) -> Option<String> {
        let is_known = {
            let mut known = self.0.lock();
            let collected = known.collected;
            if collected.is_some_and(|last| now.since(last) < COLLECT_PERIOD) {
                return None;
            }
            known.collected = Some(now);
            known.identity.is_some()
        };
        if !is_known {
            // Without it no HPA can be recognized as this hub's; it is read again in a minute.
            let identity = hub.identity().await.ok();
            let mut known = self.0.lock();
            (known.identity, known.has_asked) = (identity, true);
        }
        self.hub_identity()
    }
}

/// Sets the finalizer before the first write to a member, and removes it when nothing is left to clean up.
///
/// # Errors
/// When it cannot be set: nothing may be written then.
pub async fn update<C: Cluster, M: Member>(
    hub: &C,
    fleet: &FleetDecided<M>,
    plans: &[MemberPlan],
) -> Result<(), ClusterError> {
    let fdhpa = &fleet.item.object;
    match (has_finalizer(fdhpa), needs_finalizer(plans)) {
        (false, true) => set_finalizer(hub, fdhpa, true).await,
        (true, false) if is_clean(fleet) => set_finalizer(hub, fdhpa, false).await,
        _ => Ok(()),
    }
}

// === impl FleetCleanup ===

impl<C: Cluster, F: Fleet> FleetCleanup<C, F> {
    /// Cleans up deleted fleets and, where the hub's identity is given, collects what earlier ones left behind: in all
    /// members at once, and no longer than one member may take.
    pub async fn run(&self, deleting: &[Deleting], collect_as: Option<&str>) {
        let deleting = join_all(deleting.iter().map(|deleting| self.finalize(deleting)));
        let members = self.fleet.members();
        // Without an identity the cycle is empty, and no member is searched.
        let searched = members.iter().zip(collect_as.into_iter().cycle());
        let collected = join_all(searched.map(|(view, hub)| self.collect_garbage(view, hub)));
        join(deleting, collected).await;
    }

    /// Cleans up after a deleted fleet; its object goes when that is done, or overdue.
    async fn finalize(&self, deleting: &Deleting) {
        let fdhpa = &deleting.fdhpa;
        let left = self.clean_up(deleting).await;
        // The finalizer stays, and the next sync tries again.
        if !left.is_empty() && !deleting.is_overdue {
            return;
        }
        if let Err(error) = set_finalizer(&*self.hub, fdhpa, false).await {
            let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
            tracing::warn!(%namespace, %name, %error, "could not remove the finalizer");
            return;
        }
        // After the finalizer is gone: until then all of this is done again.
        for event in left_behind(&left).into_iter().chain(kept(fdhpa)) {
            let about = &fdhpa.metadata;
            let outcome = self.hub.emit(OwnerKind::Federated, about, &event).await;
            self.telemetry.wrote(Write::Event, outcome.is_ok());
        }
    }

    /// Removes what a fleet has in members; returns the members in which something may be left.
    async fn clean_up(&self, deleting: &Deleting) -> Vec<String> {
        // Before the members are listed, none of them can be reached.
        if !self.fleet.is_synced() {
            return deleting.listed.iter().cloned().collect();
        }
        let members = self.fleet.members();
        let cleanups = join_all(members.iter().map(|view| async move {
            let name = &view.profile.name;
            let is_clean = match in_reach(view) {
                // A member that never had anything of this fleet does not delay its deletion.
                Err(_unreachable) => !deleting.listed.contains(name),
                Ok(cluster) => self.clean_up_in(&**cluster, name, &deleting.fdhpa).await,
            };
            (!is_clean).then(|| name.clone())
        }));
        let mut left: Vec<_> = cleanups.await.into_iter().flatten().collect();
        // One whose Secret is missing is unreachable too.
        let mut missing = deleting.listed.clone();
        missing.retain(|name| !members.iter().any(|view| view.profile.name == *name));
        left.extend(missing);
        left
    }

    /// Removes what a fleet has in one member; returns true if all of it is gone.
    async fn clean_up_in(&self, member: &F::Member, name: &str, fdhpa: &FederatedHPA) -> bool {
        let namespace = fdhpa.namespace().unwrap_or_default();
        let uid = fdhpa.uid().unwrap_or_default();
        let cleanup = HpaCleanup::of(fdhpa);
        let mut hpas = member.hpas(&namespace);
        hpas.retain(|hpa| child_hpa::is_of_fleet(hpa, &uid));
        let mut is_clean = true;
        for (hpa, outcome) in self.clean_up_hpas(member, &hpas, cleanup).await {
            if let Err(error) = outcome {
                tracing::warn!(member = %name, %namespace, hpa = %hpa.name, %error, "could not clean up the HPA of a deleted fleet");
                is_clean = false;
            }
        }
        is_clean
    }

    /// Releases or orphans, as their labels say, the HPAs in a member that belong to fleets of this hub that no longer
    /// exist.
    async fn collect_garbage(&self, view: &MemberView<F::Member>, hub: &str) {
        let Ok(cluster) = in_reach(view) else {
            return;
        };
        // HPAs are listed before fleets, so that the HPA of a fleet that was just created is not taken for garbage.
        let mut hpas = cluster.every_hpa();
        let Some(existing) = self.hub.every_federated() else {
            return;
        };
        let existing = existing.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        hpas.retain(|hpa| is_left_behind(hpa, hub, &existing));
        let (retained, removed): (Vec<_>, Vec<_>) =
            hpas.into_iter().partition(|hpa| is_retained(hpa));
        for (hpas, cleanup) in [
            (removed, HpaCleanup::Release),
            (retained, HpaCleanup::Orphan(None)),
        ] {
            for (hpa, outcome) in self.clean_up_hpas(&**cluster, &hpas, cleanup).await {
                log_collected(&view.profile.name, hpa, outcome);
            }
        }
    }

    /// Cleans up HPAs of one member, all of them within its deadline.
    async fn clean_up_hpas<'h>(
        &self,
        member: &F::Member,
        hpas: &'h [Arc<HpaView>],
        cleanup: HpaCleanup<'_>,
    ) -> Vec<(&'h HpaView, Result<(), ClusterError>)> {
        let writer = &Writer {
            cluster: member,
            telemetry: &self.telemetry,
        };
        let cleaned = hpas.iter().map(|hpa| async move {
            let write = async {
                match cleanup {
                    HpaCleanup::Release => writer.release(hpa).await.map(drop),
                    HpaCleanup::Orphan(behavior) => writer.orphan(hpa, behavior).await,
                }
            };
            let outcome = tokio::time::timeout(self.deadline, write).await;
            let outcome = outcome.unwrap_or_else(|_elapsed| {
                Err(ClusterError::Unreachable {
                    what: format!("horizontalpodautoscaler {}/{}", hpa.namespace, hpa.name),
                    message: format!("not removed within {:?}", self.deadline),
                })
            });
            (&**hpa, outcome)
        });
        join_all(cleaned).await
    }
}

fn left_behind(members: &[String]) -> Option<EventNote> {
    (!members.is_empty()).then(|| EventNote {
        warning: true,
        reason: "LeftBehind",
        action: "Delete",
        note: format!(
            "could not clean up in {}; will retry when possible",
            members.join(", ")
        ),
    })
}

/// The event that names the counts that stay: the tool that propagates the workload applies its own count as soon as no
/// HPA acts. None for a workload that the hub places, which is not propagated, and for retained HPAs, which still act.
fn kept(fdhpa: &FederatedHPA) -> Option<EventNote> {
    let is_placed = fdhpa.spec.workload_source.unwrap_or_default() == WorkloadSource::Hub;
    let is_released = HpaCleanup::of(fdhpa) == HpaCleanup::Release;
    let status = fdhpa.status.as_ref().filter(|_| is_released && !is_placed);
    let counts = status?.clusters.iter().flatten().filter_map(|cluster| {
        let count = cluster.current.filter(|count| *count > 0)?;
        Some((count, format!("{count} in {}", cluster.name)))
    });
    let (counts, shown): (Vec<i32>, Vec<String>) = counts.unzip();
    let all: i64 = counts.iter().map(|count| i64::from(*count)).sum();
    (all > 0).then(|| EventNote {
        warning: false,
        reason: "ReplicasKept",
        action: "Delete",
        note: format!(
            "the replicas stay unchanged ({}; {all} in total) until the tool that propagates the workload \
             applies its own count; set spec.replicas there to the present count",
            shown.join(", ")
        ),
    })
}

/// Sets or removes the finalizer of an object.
async fn set_finalizer<C: Cluster>(
    hub: &C,
    fdhpa: &FederatedHPA,
    held: bool,
) -> Result<(), ClusterError> {
    let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
    let patch = finalizer_patch(fdhpa, held);
    hub.patch_federated(&namespace, &name, &patch).await
}

fn has_finalizer(fdhpa: &FederatedHPA) -> bool {
    fdhpa.finalizers().iter().any(|known| known == FINALIZER)
}

/// True if some member is to have an HPA.
fn needs_finalizer(plans: &[MemberPlan]) -> bool {
    let mut decided = plans.iter().filter_map(|plan| plan.decided.as_ref());
    decided.any(|it| matches!(it.decision.action, Action::Child { .. }))
}

/// True if every member was observed, and none has an object of ours.
fn is_clean<M: Member>(fleet: &FleetDecided<M>) -> bool {
    let members = &fleet.observed.members;
    members
        .values()
        .all(|it| !it.is_unknown() && !fleet.item.has_hpas_in(&it.view))
}

fn is_left_behind(hpa: &HpaView, hub: &str, existing: &HashSet<String>) -> bool {
    let of_this_hub = label_or_annotation(hpa, HUB) == Some(hub);
    of_this_hub && label_or_annotation(hpa, FLEET_UID).is_some_and(|uid| !existing.contains(uid))
}

/// True if the deletion policy of its fleet is Retain.
fn is_retained(hpa: &HpaView) -> bool {
    label_or_annotation(hpa, DELETION_POLICY) == Some("Retain")
}

/// A field that says which fleet an HPA belongs to: a label on a created HPA, an annotation on an adopted one.
fn label_or_annotation<'h>(hpa: &'h HpaView, key: &str) -> Option<&'h str> {
    let places = [&hpa.labels, &hpa.annotations];
    places
        .into_iter()
        .find_map(|fields| fields.get(key)?.as_str())
}

#[expect(
    clippy::cognitive_complexity,
    reason = "one match; the macros count for more"
)]
fn log_collected(member: &str, hpa: &HpaView, outcome: Result<(), ClusterError>) {
    let (namespace, name) = (&hpa.namespace, &hpa.name);
    match outcome {
        Ok(()) => {
            tracing::info!(%member, %namespace, %name, "cleaned up the HPA of a deleted fleet");
        }
        Err(error) => {
            tracing::warn!(%member, %namespace, %name, %error, "could not clean up the HPA of a deleted fleet");
        }
    }
}

/// The JSON patch that adds or removes our finalizer and leaves those of others.
fn finalizer_patch(fdhpa: &FederatedHPA, held: bool) -> Value {
    let before = fdhpa.finalizers();
    let mut after: Vec<&str> = before.iter().map(String::as_str).collect();
    after.retain(|known| *known != FINALIZER);
    if held {
        after.push(FINALIZER);
    }
    let mut patch = if before.is_empty() {
        // JSON patch cannot test that a list is absent; the version shows whether another writer added one.
        let version = fdhpa.resource_version();
        std::iter::once(test_of("uid", fdhpa.uid()))
            .chain(version.map(|version| test_of("resourceVersion", version)))
            .collect()
    } else {
        // Fails if another writer has changed the list meanwhile.
        vec![test_of("finalizers", before)]
    };
    // `add` also replaces a list that is there.
    patch.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": after }));
    Value::Array(patch)
}

/// The operation of a JSON patch that fails unless a field of the metadata has this value.
fn test_of(field: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "test", "path": format!("/metadata/{field}"), "value": value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(finalizers: &[&str]) -> FederatedHPA {
        let object = json!({
            "apiVersion": "autoscaling.foretide.io/v1alpha1",
            "kind": "FederatedHPA",
            "metadata": {
                "name": "web", "uid": "uid-fleet", "resourceVersion": "7", "finalizers": finalizers,
            },
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "maxReplicas": 3,
                "federatedHPAAssignment": { "federatedHPAAssignmentType": "StaticWeighted" },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_total_of_counts_that_stay_does_not_wrap() {
        let mut fdhpa = object(&[]);
        let clusters = json!([
            {"name": "east", "current": i32::MAX}, {"name": "west", "current": i32::MAX},
        ]);
        fdhpa.status = serde_json::from_value(json!({ "clusters": clusters })).unwrap();
        let note = kept(&fdhpa).unwrap().note;
        assert!(note.contains("; 4294967294 in total"), "{note}");
    }

    #[test]
    fn a_finalizer_is_written_only_over_the_list_that_was_seen() {
        let cases: [(&[&str], bool, Value); 3] = [
            (
                &[],
                true,
                json!([
                    { "op": "test", "path": "/metadata/uid", "value": "uid-fleet" },
                    { "op": "test", "path": "/metadata/resourceVersion", "value": "7" },
                    { "op": "add", "path": "/metadata/finalizers", "value": [FINALIZER] },
                ]),
            ),
            (
                &["theirs"],
                true,
                json!([
                    { "op": "test", "path": "/metadata/finalizers", "value": ["theirs"] },
                    { "op": "add", "path": "/metadata/finalizers", "value": ["theirs", FINALIZER] },
                ]),
            ),
            (
                &["theirs", FINALIZER],
                false,
                json!([
                    { "op": "test", "path": "/metadata/finalizers", "value": ["theirs", FINALIZER] },
                    { "op": "add", "path": "/metadata/finalizers", "value": ["theirs"] },
                ]),
            ),
        ];
        for (before, held, patch) in cases {
            assert_eq!(finalizer_patch(&object(before), held), patch, "{before:?}");
        }
    }
}
