//! When a fleet's object goes: what it has in members is removed first, and what could not be is removed later.
//!
//! A finalizer holds the object only while there is something to clean. A member that is away delays the end by five
//! minutes at most; what is left there is swept when it is back. Replicas stay as they are, and autoscalers of others
//! are none of ours: an adopted one becomes what it was.

use std::{collections::HashSet, sync::Arc};

use foretide_crds::{DeletionPolicy, FederatedHPA};
use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{FleetAutoscaler, Planned, gather::in_reach};
use crate::{
    autoscaler::{apply::give_back, child},
    domain::{strategy::Action, workload::Strategy},
    owned::{FLEET_UID, HUB},
    ports::{Cluster, ClusterError, EventNote, Fleet, HpaView, Member, Workloads},
    telemetry::{Telemetry, Write},
};

/// Our finalizer.
const FINALIZER: &str = "autoscaling.foretide.io/fleet";
/// How long a member that is away delays the end.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// What becomes of one autoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Removed, or given back to whom it was adopted from.
    Removed,
    /// Left as it is, as nobody's.
    Released,
}

// === impl FleetAutoscaler ===

impl<C: Cluster, F: Fleet> FleetAutoscaler<C, F> {
    /// Lets the objects go that are to be deleted, as far as they are cleaned up.
    pub(super) async fn see_off(&mut self, leaving: &[Arc<FederatedHPA>]) {
        let now = self.clock.now();
        let uids: HashSet<String> = leaving.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        self.leaving.retain(|uid, _| uids.contains(uid));
        for fdhpa in leaving.iter().filter(|fdhpa| is_held(fdhpa)) {
            let left = self.clean_up(fdhpa).await;
            let since = *self
                .leaving
                .entry(fdhpa.uid().unwrap_or_default())
                .or_insert(now);
            if !left.is_empty() && now.duration_since(since) < PATIENCE {
                continue;
            }
            if !left.is_empty() {
                let note = format!(
                    "deleted without cleaning up in {}, which cannot be changed; what is left there is removed \
                     when that is possible again",
                    left.join(", ")
                );
                self.tell(fdhpa, note).await;
            }
            if let Err(error) = self.hold(fdhpa, false).await {
                let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
                tracing::warn!(%namespace, %name, %error, "finalizer not removed");
            }
        }
    }

    async fn tell(&self, fdhpa: &FederatedHPA, note: String) {
        let event = EventNote {
            warning: true,
            reason: "LeftBehind",
            action: "Delete",
            note,
        };
        let outcome = self.hub.emit_federated(fdhpa, &event).await;
        self.told.telemetry.wrote(Write::Event, outcome.is_ok());
    }

    /// Removes what a fleet has in members; returns the members where something may be left.
    async fn clean_up(&self, fdhpa: &FederatedHPA) -> Vec<String> {
        let namespace = fdhpa.namespace().unwrap_or_default();
        let uid = fdhpa.uid().unwrap_or_default();
        let end = match fdhpa.spec.deletion_policy.unwrap_or_default() {
            DeletionPolicy::Delete => End::Removed,
            DeletionPolicy::Retain => End::Released,
        };
        let memory = self.memories.get(&uid);
        let status = fdhpa.status.as_ref().and_then(|s| s.clusters.as_deref());
        let listed = |name: &str| {
            let in_status = status.unwrap_or_default().iter().any(|c| c.name == name);
            in_status || memory.is_some_and(|memory| memory.members.contains_key(name))
        };
        let mut left = Vec::new();
        for view in self.fleet.members() {
            let name = &view.profile.name;
            let Ok(cluster) = in_reach(&view) else {
                left.extend(listed(name).then(|| name.clone()));
                continue;
            };
            let ours = |hpa: &Arc<HpaView>| {
                child::created_for(hpa) == Some(&uid) || child::adopted_by(hpa) == Some(&uid)
            };
            for hpa in cluster.hpas(&namespace).iter().filter(|hpa| ours(hpa)) {
                if let Err(error) = part_with(&**cluster, &self.told.telemetry, hpa, end).await {
                    tracing::warn!(member = %name, %namespace, hpa = %hpa.name, %error, "not cleaned up");
                    left.push(name.clone());
                }
            }
        }
        left
    }

    /// Removes from members what belongs to fleets of this hub that do not exist any more.
    pub(super) async fn sweep(&self, existing: &HashSet<String>) {
        let Some(hub) = &self.identity else {
            return;
        };
        for view in self.fleet.members() {
            let Ok(cluster) = in_reach(&view) else {
                continue;
            };
            for hpa in cluster
                .every_hpa()
                .iter()
                .filter(|hpa| is_left_behind(hpa, hub, existing))
            {
                let outcome = part_with(&**cluster, &self.told.telemetry, hpa, End::Removed).await;
                let (member, name) = (&view.profile.name, &hpa.name);
                let error = outcome.err().map(|error| error.to_string());
                tracing::info!(%member, namespace = %hpa.namespace, %name, error, "left behind; removed");
            }
        }
    }

    /// Puts the finalizer on an object, or takes it away.
    async fn hold(&self, fdhpa: &FederatedHPA, held: bool) -> Result<(), ClusterError> {
        let (namespace, name) = (fdhpa.namespace().unwrap_or_default(), fdhpa.name_any());
        let patch = finalizer_patch(fdhpa, held);
        self.hub.patch_federated(&namespace, &name, &patch).await
    }

    /// Holds an object before the first write to a member, and lets it loose when nothing is left to clean.
    ///
    /// # Errors
    /// When it cannot be held: nothing may be written then.
    pub(super) async fn keep_hold(&self, planned: &Planned<F::Member>) -> Result<(), ClusterError> {
        let fdhpa = &planned.due.fdhpa;
        match (is_held(fdhpa), needs_hold(planned)) {
            (false, true) => self.hold(fdhpa, true).await,
            (true, false) if is_clean(planned) => self.hold(fdhpa, false).await,
            _ => Ok(()),
        }
    }
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
fn is_clean<M>(planned: &Planned<M>) -> bool {
    planned.seen.members.values().all(|member| {
        let acting = member
            .whole()
            .and_then(|whole| whole.sighting.siblings.acting());
        !member.is_unknown() && acting.is_none()
    })
}

fn is_left_behind(hpa: &HpaView, hub: &str, existing: &HashSet<String>) -> bool {
    let value =
        |fields: &Value, key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    let marked = |key| value(&hpa.labels, key).or_else(|| value(&hpa.annotations, key));
    let of_this_hub = marked(HUB).as_deref() == Some(hub);
    of_this_hub && marked(FLEET_UID).is_some_and(|uid| !existing.contains(&uid))
}

async fn part_with<M: Member>(
    member: &M,
    telemetry: &Telemetry,
    hpa: &HpaView,
    end: End,
) -> Result<(), ClusterError> {
    let adopted = child::adopted_by(hpa).is_some();
    match end {
        End::Removed if adopted => give_back(member, telemetry, hpa).await,
        End::Removed => {
            let outcome = member.delete_hpa(&hpa.namespace, &hpa.name, &hpa.uid).await;
            telemetry.wrote(Write::Hpa, outcome.is_ok());
            outcome
        }
        End::Released => {
            let patch = child::release_patch(hpa);
            let outcome = member.patch_hpa(&hpa.namespace, &hpa.name, &patch).await;
            telemetry.wrote(Write::Hpa, outcome.is_ok());
            outcome.map(drop)
        }
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
    let unchanged = if before.is_empty() {
        json!({ "op": "test", "path": "/metadata/uid", "value": fdhpa.uid() })
    } else {
        json!({ "op": "test", "path": "/metadata/finalizers", "value": before })
    };
    json!([
        unchanged,
        { "op": "add", "path": "/metadata/finalizers", "value": after },
    ])
}
