//! When a fleet's object goes: what it has in members is removed first, and what could not be is removed later.
//!
//! A finalizer holds the object only while there is something to clean. A member that is away delays the end by five
//! minutes at most; what is left there is swept when it is back. Replicas stay as they are, and autoscalers of others
//! are none of ours: an adopted one becomes what it was.

use std::{collections::HashSet, sync::Arc, time::Duration};

use foretide_crds::{DeletionPolicy, FederatedHPA, Passthrough, WorkloadSource};
use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    FleetAutoscaler, Planned,
    observe::{has_ours, in_reach},
};
use crate::{
    api::ownership::{DELETION_POLICY, FLEET_UID, HUB},
    controller::{
        apply::{part_with, release},
        child_hpa,
    },
    domain::{autoscale::action::Action, workload::Strategy},
    ports::{Cluster, ClusterError, EventNote, Fleet, HpaView, Member, MemberView, Workloads},
    telemetry::{Telemetry, Write},
};

/// Our finalizer.
const FINALIZER: &str = "autoscaling.foretide.io/fleet";
/// How long a member that is away delays the end.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// How often members are searched for what was left behind.
const SWEEP_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// What becomes of one autoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End<'a> {
    /// Removed, or given back to whom it was adopted from.
    Removed,
    /// Left as it is, as nobody's, with the user's behavior.
    Released(Option<&'a Value>),
}

/// An object on its way out.
#[derive(Debug)]
struct Deleting {
    fdhpa: Arc<FederatedHPA>,
    /// The members that had something of it, as far as is known.
    listed: HashSet<String>,
    /// Whether members that are away have delayed it for long enough.
    is_overdue: bool,
}

/// What is to be cleaned up in one sync. It has all that it needs, so that fleets that live need not wait for it.
#[derive(Debug)]
pub(super) struct Cleanups<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    telemetry: Arc<Telemetry>,
    /// Time for what is removed from one member.
    deadline: Duration,
    leaving: Vec<Deleting>,
    /// This hub's identity, when members are to be searched for what was left behind.
    searched_as: Option<String>,
}

// === impl FleetAutoscaler ===

impl<C: Cluster, F: Fleet> FleetAutoscaler<C, F> {
    /// What is to be let go now, and searched for once in a while.
    pub(super) async fn farewell(&mut self) -> Cleanups<C, F> {
        let now = self.clock.now();
        let mut leaving = self.hub.federated();
        leaving.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_some());
        let uids: HashSet<String> = leaving.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        self.leaving.retain(|uid, _| uids.contains(uid));
        leaving.retain(|fdhpa| is_held(fdhpa));
        let leaving = leaving.into_iter().map(|fdhpa| {
            let uid = fdhpa.uid().unwrap_or_default();
            let memory = self.memories.get(&uid);
            let clusters = fdhpa.status.as_ref().and_then(|s| s.clusters.as_deref());
            let in_status = clusters.into_iter().flatten().map(|c| c.name.clone());
            let in_memory = memory.into_iter().flat_map(|m| m.members.keys().cloned());
            let listed = in_status.chain(in_memory).collect();
            let since = *self.leaving.entry(uid).or_insert(now);
            let is_overdue = now.duration_since(since) >= PATIENCE;
            Deleting {
                fdhpa,
                listed,
                is_overdue,
            }
        });
        Cleanups {
            hub: Arc::clone(&self.hub),
            fleet: Arc::clone(&self.fleet),
            telemetry: Arc::clone(&self.told.telemetry),
            deadline: self.setup.member_deadline,
            leaving: leaving.collect(),
            searched_as: self.searched_as(now).await,
        }
    }

    /// This hub's identity, if it is known and members were not searched for a while.
    async fn searched_as(&mut self, now: Timestamp) -> Option<String> {
        let waits = |last: Timestamp| now.duration_since(last).abs() < SWEEP_PERIOD;
        if self.swept.is_some_and(waits) {
            return None;
        }
        self.swept = Some(now);
        if self.identity.is_none() {
            self.identity = self.hub.identity().await.ok();
        }
        self.identity.clone()
    }

    /// Holds an object before the first write to a member, and lets it loose when nothing is left to clean.
    ///
    /// # Errors
    /// When it cannot be held: nothing may be written then.
    pub(super) async fn keep_hold(&self, planned: &Planned<F::Member>) -> Result<(), ClusterError> {
        let fdhpa = &planned.due.fdhpa;
        match (is_held(fdhpa), needs_hold(planned)) {
            (false, true) => hold(&*self.hub, fdhpa, true).await,
            (true, false) if is_clean(planned) => hold(&*self.hub, fdhpa, false).await,
            _ => Ok(()),
        }
    }
}

// === impl Cleanups ===

impl<C: Cluster, F: Fleet> Cleanups<C, F> {
    /// Lets go what is to be deleted, and removes what was left behind: everywhere at once, and no longer than one
    /// member may take.
    pub(super) async fn take(&self) {
        let leaving = join_all(self.leaving.iter().map(|leaving| self.see_off(leaving)));
        let members = self.fleet.members();
        let hub = self.searched_as.as_deref();
        let searched = members.iter().zip(hub.into_iter().cycle());
        let sweeps = join_all(searched.map(|(view, hub)| self.sweep(view, hub)));
        join(leaving, sweeps).await;
    }

    /// Lets an object go, as far as it is cleaned up.
    async fn see_off(&self, leaving: &Deleting) {
        let fdhpa = &leaving.fdhpa;
        let left = self.clean_up(leaving).await;
        if !left.is_empty() && !leaving.is_overdue {
            return;
        }
        if let Err(error) = hold(&*self.hub, fdhpa, false).await {
            let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
            tracing::warn!(%namespace, %name, %error, "finalizer not removed");
            return;
        }
        // Told when it is done: until the finalizer is gone, all of this comes again.
        for event in left_behind(&left).into_iter().chain(kept(fdhpa)) {
            let outcome = self.hub.emit_federated(fdhpa, &event).await;
            self.telemetry.wrote(Write::Event, outcome.is_ok());
        }
    }

    /// Removes what a fleet has in members; returns the members where something may be left.
    async fn clean_up(&self, leaving: &Deleting) -> Vec<String> {
        let members = self.fleet.members();
        let cleaned = members.iter().map(|view| async move {
            let name = &view.profile.name;
            let is_clean = match in_reach(view) {
                Err(_away) => !leaving.listed.contains(name),
                Ok(cluster) => self.clean_up_in(&**cluster, name, &leaving.fdhpa).await,
            };
            (!is_clean).then(|| name.clone())
        });
        join_all(cleaned).await.into_iter().flatten().collect()
    }

    /// Removes what a fleet has in one member; whether all of it is gone.
    async fn clean_up_in(&self, member: &F::Member, name: &str, fdhpa: &FederatedHPA) -> bool {
        let namespace = fdhpa.namespace().unwrap_or_default();
        let uid = fdhpa.uid().unwrap_or_default();
        let end = match fdhpa.spec.deletion_policy.unwrap_or_default() {
            DeletionPolicy::Delete => End::Removed,
            DeletionPolicy::Retain => {
                let behavior = fdhpa.spec.autoscaling.behavior.as_ref();
                End::Released(behavior.map(Passthrough::raw))
            }
        };
        let mut hpas = member.hpas(&namespace);
        hpas.retain(|hpa| child_hpa::is_of_fleet(hpa, &uid));
        let mut is_clean = true;
        for (hpa, outcome) in self.end_all(member, &hpas, end).await {
            if let Err(error) = outcome {
                tracing::warn!(member = %name, %namespace, hpa = %hpa.name, %error, "not cleaned up");
                is_clean = false;
            }
        }
        is_clean
    }

    /// Removes from a member what belongs to fleets of this hub that do not exist any more, or lets it go as they said.
    async fn sweep(&self, view: &MemberView<F::Member>, hub: &str) {
        let Ok(cluster) = in_reach(view) else {
            return;
        };
        // What is there is looked up before for whom it may be: whatever is created meanwhile is not left behind.
        let mut hpas = cluster.every_hpa();
        let Some(existing) = self.hub.every_federated() else {
            return;
        };
        let existing = existing.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        hpas.retain(|hpa| is_left_behind(hpa, hub, &existing));
        let (retained, removed): (Vec<_>, Vec<_>) =
            hpas.into_iter().partition(|hpa| is_retained(hpa));
        for (hpas, end) in [(removed, End::Removed), (retained, End::Released(None))] {
            for (hpa, outcome) in self.end_all(&**cluster, &hpas, end).await {
                say_swept(&view.profile.name, hpa, outcome);
            }
        }
    }

    /// Removes autoscalers from one member, all of them within its deadline.
    async fn end_all<'h>(
        &self,
        member: &F::Member,
        hpas: &'h [Arc<HpaView>],
        as_what: End<'_>,
    ) -> Vec<(&'h HpaView, Result<(), ClusterError>)> {
        let parted = hpas.iter().map(|hpa| async move {
            let parting = end(member, &self.telemetry, hpa, as_what);
            let outcome = tokio::time::timeout(self.deadline, parting).await;
            let outcome = outcome.unwrap_or_else(|_elapsed| {
                Err(ClusterError::Unreachable {
                    what: format!("horizontalpodautoscaler {}/{}", hpa.namespace, hpa.name),
                    message: format!("not removed within {:?}", self.deadline),
                })
            });
            (&**hpa, outcome)
        });
        join_all(parted).await
    }
}

fn left_behind(members: &[String]) -> Option<EventNote> {
    (!members.is_empty()).then(|| EventNote {
        warning: true,
        reason: "LeftBehind",
        action: "Delete",
        note: format!(
            "deleted without cleaning up in {}, which cannot be changed; what is left there is removed when that is \
             possible again",
            members.join(", ")
        ),
    })
}

/// The counts that stay, for whoever propagates the workload: a count of its own is applied as soon as nothing holds it
/// back. Nobody propagates what the hub places, and retained autoscalers go on.
fn kept(fdhpa: &FederatedHPA) -> Option<EventNote> {
    let spec = &fdhpa.spec;
    let is_placed = spec.workload_source.unwrap_or_default() == WorkloadSource::Hub;
    let is_retained = spec.deletion_policy.unwrap_or_default() == DeletionPolicy::Retain;
    let status = fdhpa.status.as_ref().filter(|_| !is_placed && !is_retained);
    let clusters = status?.clusters.iter();
    let counts = clusters.flatten().filter_map(|cluster| {
        let count = cluster.current.filter(|count| *count > 0)?;
        Some((count, format!("{count} in {}", cluster.name)))
    });
    let (counts, told): (Vec<i32>, Vec<String>) = counts.unzip();
    let all: i32 = counts.iter().sum();
    (all > 0).then(|| EventNote {
        warning: false,
        reason: "ReplicasKept",
        action: "Delete",
        note: format!(
            "the replicas are left as they are: {}, {all} in all; whatever propagates the workload applies its own count now, \
             so write the present one there first",
            told.join(", ")
        ),
    })
}

/// Puts the finalizer on an object, or takes it away.
async fn hold<C: Cluster>(hub: &C, fdhpa: &FederatedHPA, held: bool) -> Result<(), ClusterError> {
    let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
    let patch = finalizer_patch(fdhpa, held);
    hub.patch_federated(&namespace, &name, &patch).await
}

fn is_held(fdhpa: &FederatedHPA) -> bool {
    fdhpa.finalizers().iter().any(|known| known == FINALIZER)
}

/// Whether an autoscaler of ours is to be in some member.
fn needs_hold<M>(planned: &Planned<M>) -> bool {
    let auto = planned.due.spec.workload.strategy == Strategy::Auto;
    let child = |action: &Action| matches!(action, Action::Child { .. });
    let mut planned = planned
        .parts
        .iter()
        .filter_map(|part| part.planned.as_ref());
    auto && planned.any(|planned| child(&planned.decision.action))
}

/// Whether every member was seen, and none has anything of ours.
fn is_clean<M: Member>(planned: &Planned<M>) -> bool {
    let mut members = planned.seen.members.values();
    members.all(|member| !member.is_unknown() && !has_ours(&member.view, &planned.due))
}

fn is_left_behind(hpa: &HpaView, hub: &str, existing: &HashSet<String>) -> bool {
    let of_this_hub = mark(hpa, HUB) == Some(hub);
    of_this_hub && mark(hpa, FLEET_UID).is_some_and(|uid| !existing.contains(uid))
}

/// Whether its fleet was to leave it where it is.
fn is_retained(hpa: &HpaView) -> bool {
    mark(hpa, DELETION_POLICY) == Some("Retain")
}

/// A mark of ours: a label on what we created, an annotation on what we adopted.
fn mark<'h>(hpa: &'h HpaView, key: &str) -> Option<&'h str> {
    let places = [&hpa.labels, &hpa.annotations].into_iter();
    let mut found = places.filter_map(|fields| fields.get(key).and_then(Value::as_str));
    found.next()
}

#[expect(
    clippy::cognitive_complexity,
    reason = "one match; the macros count for more"
)]
fn say_swept(member: &str, hpa: &HpaView, outcome: Result<(), ClusterError>) {
    let (namespace, name) = (&hpa.namespace, &hpa.name);
    match outcome {
        Ok(()) => tracing::info!(%member, %namespace, %name, "left behind; parted with"),
        Err(error) => {
            tracing::warn!(%member, %namespace, %name, %error, "left behind; not parted with");
        }
    }
}

/// Ends what one autoscaler is to us.
async fn end<M: Member>(
    member: &M,
    telemetry: &Telemetry,
    hpa: &HpaView,
    as_what: End<'_>,
) -> Result<(), ClusterError> {
    match as_what {
        End::Removed => part_with(member, telemetry, hpa).await.map(drop),
        End::Released(behavior) => release(member, telemetry, hpa, behavior).await,
    }
}

/// The JSON patch that adds or removes our finalizer, whoever else has one there.
fn finalizer_patch(fdhpa: &FederatedHPA, held: bool) -> Value {
    let before = fdhpa.finalizers();
    let mut after: Vec<&str> = before.iter().map(String::as_str).collect();
    after.retain(|known| *known != FINALIZER);
    if held {
        after.push(FINALIZER);
    }
    let same = |field: &str, value: Value| json!({ "op": "test", "path": format!("/metadata/{field}"), "value": value });
    let mut patch = if before.is_empty() {
        // An absent list cannot be tested for: the version tells whether somebody else has begun one.
        let version = fdhpa.resource_version().map(Value::from);
        let version = version.map(|version| same("resourceVersion", version));
        let uid = same("uid", fdhpa.uid().into());
        std::iter::once(uid).chain(version).collect()
    } else {
        vec![same("finalizers", before.into())]
    };
    patch.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": after }));
    Value::Array(patch)
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
