//! Third step of a sync: carry actions out, writing only what differs.
//!
//! Every write is conditional on what was seen: on the version, the UID, or that there was nothing. A child that is no
//! longer wanted is removed before anything else is written, so that two writers never meet. A failure stops its own
//! object only and comes back as data; the next sync decides again.

use std::sync::Arc;

use foretide_domain::{ReplicaBounds, Replicas, autoscale::action::Action};
use serde_json::Value;

use super::{
    child_hpa::{self, ChildWrite},
    decide::Decided,
    observe::TargetView,
    related_hpas::RelatedHpas,
};
use foretide_api::ports::{ClusterError, HpaView, Workloads};
use foretide_base::telemetry::{Telemetry, Write};

/// Outcome of a decision.
#[derive(Debug, Clone)]
pub struct Applied {
    pub decided: Decided,
    /// The effect that the API server accepted, or the reason why it did not.
    pub outcome: Result<Effect, ClusterError>,
}

/// Effect of a decision that the API server accepted.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// The count that the scale was changed to.
    pub scaled: Option<Replicas>,
    /// The autoscaler that acts for us, after any write.
    pub child: Option<Arc<HpaView>>,
    /// The changes of HPAs and workloads, for events.
    pub changes: Vec<HpaChange>,
}

/// Something done to an HPA or a workload that the autoscaler's user may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HpaChange {
    /// A child was created.
    Created,
    /// A child that another writer had changed was restored.
    Restored,
    /// A foreign HPA was taken over.
    Adopted,
    /// An adopted HPA was restored as it was.
    GivenBack,
    /// A child was removed.
    Removed,
    /// The hub's workload was created or updated.
    Placed,
    /// The hub's workload was deleted.
    Displaced,
}

// === impl Applied ===

impl Applied {
    /// The effect, if the API server accepted it.
    pub fn effect(&self) -> Option<&Effect> {
        self.outcome.as_ref().ok()
    }

    /// The count that the scale was changed to.
    pub fn scaled(&self) -> Option<Replicas> {
        self.effect()?.scaled
    }

    /// The count after any write.
    pub fn count(&self) -> Replicas {
        self.scaled().unwrap_or(self.decided.decision.current)
    }

    /// The autoscaler that acts for us, after any write.
    pub fn child(&self) -> Option<&HpaView> {
        self.effect()?.child.as_deref()
    }
}

/// Writes to one cluster, and counts what it wrote.
#[derive(Debug)]
pub struct Writer<'a, C> {
    pub cluster: &'a C,
    /// The counters of writes.
    pub telemetry: &'a Telemetry,
}

// === impl Writer ===

impl<C: Workloads> Writer<'_, C> {
    /// Releases an HPA that acts for us: an adopted one is restored, one that we created is removed.
    pub async fn release(&self, ours: &HpaView) -> Result<HpaChange, ClusterError> {
        if child_hpa::adopted_by(ours).is_some() {
            self.restore_adopted(ours).await
        } else {
            self.remove(ours).await
        }
    }

    /// Orphans an HPA that acted for us: it stays as it is, with the user's behavior.
    pub async fn orphan(
        &self,
        ours: &HpaView,
        behavior: Option<&Value>,
    ) -> Result<(), ClusterError> {
        let patch = child_hpa::orphan_patch(ours, behavior);
        self.patch(ours, &patch).await.map(drop)
    }

    /// Restores an adopted HPA as it was before its adoption.
    pub async fn restore_adopted(&self, adopted: &HpaView) -> Result<HpaChange, ClusterError> {
        // An HPA that a user wrote is never deleted, even if its former spec is lost.
        let Some(patch) = child_hpa::restore_patch(adopted) else {
            return Err(ClusterError::Invalid {
                what: shown(adopted),
                message: format!(
                    "expected its former spec in annotation {}",
                    child_hpa::ORIGINAL_SPEC
                ),
            });
        };
        self.patch(adopted, &patch).await?;
        Ok(HpaChange::GivenBack)
    }

    /// Carries out one decision about a target.
    pub async fn carry_out(&self, decided: &Decided) -> Result<Effect, ClusterError> {
        let Some(TargetView { hpas, .. }) = &decided.target else {
            return Ok(Effect::default());
        };
        match decided.decision.action {
            Action::Child { min, max } => {
                let bounds = ReplicaBounds::new(min, max);
                self.keep_child(decided, hpas, bounds).await
            }
            Action::Scale { to, .. } | Action::Pin { to } => {
                let mut effect = self.without_child(decided, hpas).await?;
                effect.scaled = self.scale(decided, to).await?;
                Ok(effect)
            }
            Action::Hold { .. } => self.without_child(decided, hpas).await,
        }
    }

    /// Sets the count of a decision's target, whatever its action is; writes nothing if the target already has it.
    pub async fn scale(
        &self,
        decided: &Decided,
        to: Replicas,
    ) -> Result<Option<Replicas>, ClusterError> {
        let Some(TargetView { scale, .. }) = &decided.target else {
            return Ok(None);
        };
        if scale.scale.spec == to {
            return Ok(None);
        }
        let target = &decided.part.workload.target;
        let outcome = self.cluster.write_scale(target, scale, to).await;
        self.telemetry.wrote(Write::Scale, outcome.is_ok());
        outcome.map(Some)
    }

    /// Makes the child, either an adopted one or our own, match the decision; there are never both.
    async fn keep_child(
        &self,
        decided: &Decided,
        hpas: &RelatedHpas,
        bounds: ReplicaBounds,
    ) -> Result<Effect, ClusterError> {
        let part = &decided.part;
        let adopted = hpas.adopted.as_ref();
        let taken = adopted.or(hpas.foreign.as_ref());
        if let Some(taken) = taken.filter(|_| part.autoscaler.wants_adoption()) {
            if let Some(created) = &hpas.created {
                // First: with two HPAs on one target the HPA controller scales by neither.
                self.remove(created).await?;
            }
            let manifest = child_hpa::adoption(&part.owner, &part.child, bounds, taken);
            let first = adopted.is_none().then_some(HpaChange::Adopted);
            return self.keep(decided, &manifest, Some(taken), first).await;
        }
        let collision = hpas.name_collision.as_ref();
        if let Some(other) = collision.filter(|_| hpas.created.is_none()) {
            // Server-side apply would take over the HPA without notice.
            return Err(ClusterError::Refused {
                what: shown(other),
                message:
                    "an HPA of this name exists and is not managed by Foretide; delete it, or give \
                          this object another name"
                        .to_owned(),
            });
        }
        let manifest = child_hpa::manifest(&part.owner, &part.child, bounds);
        let created = hpas.created.as_ref();
        let first = created.is_none().then_some(HpaChange::Created);
        self.keep(decided, &manifest, created, first).await
    }

    /// Writes the HPA that acts for us, if it is not as it should be; `first` is the change by the first write of all.
    async fn keep(
        &self,
        decided: &Decided,
        manifest: &Value,
        live: Option<&Arc<HpaView>>,
        first: Option<HpaChange>,
    ) -> Result<Effect, ClusterError> {
        let Some(write) = ChildWrite::of(manifest, live.map(|live| &**live)) else {
            return Ok(Effect {
                child: live.cloned(),
                ..Effect::default()
            });
        };
        let outcome = self.write(write).await;
        self.telemetry.wrote(Write::Hpa, outcome.is_ok());
        // We change children often; only a change by another writer is worth an event. After a restart it is not known
        // how the child was left, so the difference does not count as a repair.
        let is_repair = (decided.child_left.as_ref().zip(live))
            .is_some_and(|(left, live)| !child_hpa::is_as_left(left, live));
        let change = first.or_else(|| is_repair.then_some(HpaChange::Restored));
        Ok(Effect {
            child: Some(outcome?),
            changes: change.into_iter().collect(),
            ..Effect::default()
        })
    }

    async fn write(&self, write: ChildWrite) -> Result<Arc<HpaView>, ClusterError> {
        let written = self.cluster.apply_hpa(&write.manifest).await?;
        match write.patch(&written) {
            None => Ok(written),
            Some(patch) => {
                let (namespace, name) = (&written.namespace, &written.name);
                self.cluster.patch_hpa(namespace, name, &patch).await
            }
        }
    }

    /// Releases every HPA of ours: in Preview and Direct none may act.
    ///
    /// A delegated workload keeps its child, also where we scale once ourselves.
    async fn without_child(
        &self,
        decided: &Decided,
        hpas: &RelatedHpas,
    ) -> Result<Effect, ClusterError> {
        let mut effect = Effect::default();
        if decided.delegates {
            return Ok(effect);
        }
        if let Some(adopted) = &hpas.adopted {
            effect.changes.push(self.restore_adopted(adopted).await?);
        }
        if let Some(created) = &hpas.created {
            effect.changes.push(self.remove(created).await?);
        }
        Ok(effect)
    }

    /// Removes an HPA that we created.
    async fn remove(&self, created: &HpaView) -> Result<HpaChange, ClusterError> {
        let outcome = self
            .cluster
            // With the UID, so that an HPA that was created again meanwhile stays.
            .delete_hpa(&created.namespace, &created.name, &created.uid)
            .await;
        self.telemetry.wrote(Write::Hpa, outcome.is_ok());
        outcome.map(|()| HpaChange::Removed)
    }

    async fn patch(&self, hpa: &HpaView, patch: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let outcome = self
            .cluster
            .patch_hpa(&hpa.namespace, &hpa.name, patch)
            .await;
        self.telemetry.wrote(Write::Hpa, outcome.is_ok());
        outcome
    }
}

fn shown(hpa: &HpaView) -> String {
    format!("horizontalpodautoscaler {}/{}", hpa.namespace, hpa.name)
}
