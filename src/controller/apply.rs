//! Third step of a sync: carry actions out, writing only what differs.
//!
//! Every write is conditional or of things we own. A child that has no place any more goes before
//! anything else is written, so that two writers never meet. A failure stops its own object only
//! and comes back as data; the next sync decides afresh.

use std::sync::Arc;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{StreamExt, stream};
use serde_json::Value;

use super::{child_hpa, observe::TargetObservation};
use crate::{
    api::ownership::OwnerKind,
    domain::{Replicas, ScaleTarget, autoscale::Decision, autoscale::action::Action},
    ports::{ClusterError, HpaView, Workloads},
    telemetry::{Telemetry, Write},
};

/// How many objects are written at once.
const CONCURRENT_WRITES: usize = 8;

/// A decision that is to be carried out.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// The object.
    pub(super) ehpa: Arc<EffectiveHorizontalPodAutoscaler>,
    /// The object with the spec that the decision was made from, where its own cannot be acted on.
    pub(super) valid: Arc<EffectiveHorizontalPodAutoscaler>,
    /// What a child is to it.
    pub(super) kin: OwnerKind,
    /// Its scale target.
    pub(super) target: ScaleTarget,
    /// What was seen.
    pub(super) sighting: TargetObservation,
    /// What was decided.
    pub(super) decision: Decision,
    /// Whether a child autoscaler writes the scale, by strategy and mode.
    pub(super) delegates: bool,
    /// Name of the older object that acts on the same target in the place of this one.
    pub(super) older: Option<String>,
    /// The child as it was left, if that is known.
    pub(super) left: Option<Arc<HpaView>>,
}

/// What became of a decision.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    /// The decision.
    pub(super) planned: Planned,
    /// What the API server accepted, or why it did not.
    pub(super) outcome: Result<Effect, ClusterError>,
}

/// What the API server accepted.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    /// The scale was changed to this count.
    pub(super) scaled: Option<Replicas>,
    /// The autoscaler that acts for us, after any write.
    pub(super) child: Option<Arc<HpaView>>,
    /// What was done to autoscalers, for events.
    pub(super) deeds: Vec<HpaChange>,
}

/// Something done to an autoscaler that its owner may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HpaChange {
    /// A child was created.
    Created,
    /// A child that was not as we left it was put right.
    Restored,
    /// A child was brought up to what is asked for now.
    Updated,
    /// A foreign autoscaler was taken over.
    Adopted,
    /// An adopted one was given back.
    GivenBack,
    /// A child was removed.
    Removed,
    /// The hub's workload was created or brought up to date.
    Placed,
    /// The hub's workload was deleted.
    Displaced,
}

/// Carries out every decision; the order of `planned` is kept.
pub(super) async fn apply<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    planned: Vec<Planned>,
) -> Vec<Applied> {
    stream::iter(planned)
        .map(|planned| async move {
            let outcome = carry_out(cluster, telemetry, &planned).await;
            Applied { planned, outcome }
        })
        .buffered(CONCURRENT_WRITES)
        .collect()
        .await
}

/// Carries out one decision.
pub(super) async fn carry_out<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    planned: &Planned,
) -> Result<Effect, ClusterError> {
    Writer {
        cluster,
        telemetry,
        planned,
    }
    .carry_out()
    .await
}

/// Sets the count of a decision's target beside what the decision says; nothing where it stands already.
pub(super) async fn scale<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    planned: &Planned,
    to: Replicas,
) -> Result<Option<Replicas>, ClusterError> {
    Writer {
        cluster,
        telemetry,
        planned,
    }
    .scale(to)
    .await
}

/// Parts with an autoscaler that acts for us: an adopted one is given back, one that we created is removed.
pub(super) async fn part_with<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    ours: &HpaView,
) -> Result<HpaChange, ClusterError> {
    if child_hpa::adopted_by(ours).is_some() {
        give_back(cluster, telemetry, ours).await
    } else {
        remove(cluster, telemetry, ours).await
    }
}

/// Removes an autoscaler that we created.
async fn remove<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    owned: &HpaView,
) -> Result<HpaChange, ClusterError> {
    let outcome = cluster
        .delete_hpa(&owned.namespace, &owned.name, &owned.uid)
        .await;
    telemetry.wrote(Write::Hpa, outcome.is_ok());
    outcome.map(|()| HpaChange::Removed)
}

/// Leaves an autoscaler that acted for us where it is, as nobody's, with the user's behavior.
pub(super) async fn release<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    ours: &HpaView,
    behavior: Option<&Value>,
) -> Result<(), ClusterError> {
    let patch = child_hpa::release_patch(ours, behavior);
    let outcome = cluster.patch_hpa(&ours.namespace, &ours.name, &patch).await;
    telemetry.wrote(Write::Hpa, outcome.is_ok());
    outcome.map(drop)
}

/// Gives back an adopted autoscaler whose adopter is gone.
pub(super) async fn give_back<C: Workloads>(
    cluster: &C,
    telemetry: &Telemetry,
    adopted: &HpaView,
) -> Result<HpaChange, ClusterError> {
    let Some(patch) = child_hpa::return_patch(adopted) else {
        return Err(ClusterError::Invalid {
            what: format!(
                "horizontalpodautoscaler {}/{}",
                adopted.namespace, adopted.name
            ),
            message: format!(
                "expected its former spec in annotation {}",
                child_hpa::ORIGINAL_SPEC
            ),
        });
    };
    let outcome = cluster
        .patch_hpa(&adopted.namespace, &adopted.name, &patch)
        .await;
    telemetry.wrote(Write::Hpa, outcome.is_ok());
    outcome.map(|_| HpaChange::GivenBack)
}

struct Writer<'a, C> {
    cluster: &'a C,
    telemetry: &'a Telemetry,
    planned: &'a Planned,
}

// === impl Writer ===

impl<C: Workloads> Writer<'_, C> {
    async fn carry_out(&self) -> Result<Effect, ClusterError> {
        match self.planned.decision.action {
            Action::Child { min, max } => self.keep_child(min, max).await,
            Action::Scale { to, .. } | Action::Pin { to } => {
                let mut effect = self.without_child().await?;
                effect.scaled = self.scale(to).await?;
                Ok(effect)
            }
            Action::Hold { .. } => self.without_child().await,
        }
    }

    async fn scale(&self, to: Replicas) -> Result<Option<Replicas>, ClusterError> {
        let seen = &self.planned.sighting.scale;
        if seen.scale.spec == to {
            return Ok(None);
        }
        let outcome = self
            .cluster
            .write_scale(&self.planned.target, seen, to)
            .await;
        self.telemetry.wrote(Write::Scale, outcome.is_ok());
        outcome.map(Some)
    }

    /// Makes the child, adopted or our own, be what the decision asks for; never both.
    async fn keep_child(&self, min: Replicas, max: Replicas) -> Result<Effect, ClusterError> {
        let siblings = &self.planned.sighting.siblings;
        let ehpa = &self.planned.ehpa;
        let adopted = siblings.adopted.as_ref();
        let taken = adopted.or(siblings.foreign.as_ref());
        if let Some(taken) = taken.filter(|_| child_hpa::wants_adoption(ehpa)) {
            if let Some(owned) = &siblings.owned {
                remove(self.cluster, self.telemetry, owned).await?;
            }
            let manifest =
                child_hpa::adoption((&self.planned.valid, self.planned.kin), taken, min, max);
            let deed = if adopted.is_some() {
                HpaChange::Restored
            } else {
                HpaChange::Adopted
            };
            return self.keep(&manifest, Some(taken), deed).await;
        }
        if let Some(namesake) = siblings
            .namesake
            .as_ref()
            .filter(|_| siblings.owned.is_none())
        {
            return Err(ClusterError::Refused {
                what: format!(
                    "horizontalpodautoscaler {}/{}",
                    namesake.namespace, namesake.name
                ),
                message:
                    "one of this name is there and not ours, so it is left alone; delete it, or \
                          give this object another name"
                        .to_owned(),
            });
        }
        let manifest = child_hpa::manifest((&self.planned.valid, self.planned.kin), min, max);
        let deed = if siblings.owned.is_some() {
            HpaChange::Restored
        } else {
            HpaChange::Created
        };
        self.keep(&manifest, siblings.owned.as_ref(), deed).await
    }

    async fn keep(
        &self,
        manifest: &Value,
        live: Option<&Arc<HpaView>>,
        deed: HpaChange,
    ) -> Result<Effect, ClusterError> {
        if let Some(live) = live.filter(|live| child_hpa::is_as_written(manifest, live)) {
            return Ok(Effect {
                child: Some(Arc::clone(live)),
                ..Effect::default()
            });
        }
        let bounds_only =
            live.is_some_and(|live| child_hpa::differs_in_bounds_only(manifest, live));
        let outcome = self.write(manifest, live).await;
        self.telemetry.wrote(Write::Hpa, outcome.is_ok());
        let deed = match (deed, &self.planned.left, live) {
            // Not to know is not to accuse.
            (HpaChange::Restored, None, _) => HpaChange::Updated,
            (HpaChange::Restored, Some(left), Some(live)) if child_hpa::is_as_left(left, live) => {
                HpaChange::Updated
            }
            (deed, _, _) => deed,
        };
        // Bounds are what we change all the time; that another hand did is worth saying all the same.
        let is_told = !bounds_only || deed == HpaChange::Restored;
        let deeds = is_told.then_some(deed).into_iter().collect();
        Ok(Effect {
            child: Some(outcome?),
            deeds,
            ..Effect::default()
        })
    }

    async fn write(
        &self,
        manifest: &Value,
        live: Option<&Arc<HpaView>>,
    ) -> Result<Arc<HpaView>, ClusterError> {
        let written = self.cluster.apply_hpa(manifest).await?;
        match live.and_then(|live| child_hpa::surplus_patch(manifest, live)) {
            None => Ok(written),
            Some(patch) => {
                self.cluster
                    .patch_hpa(&written.namespace, &written.name, &patch)
                    .await
            }
        }
    }

    /// In Preview and Direct no autoscaler of ours may act.
    ///
    /// A delegated workload keeps its child, also where we scale once ourselves.
    async fn without_child(&self) -> Result<Effect, ClusterError> {
        let siblings = &self.planned.sighting.siblings;
        let mut effect = Effect::default();
        if self.planned.delegates {
            return Ok(effect);
        }
        if let Some(adopted) = &siblings.adopted {
            let deed = give_back(self.cluster, self.telemetry, adopted).await?;
            effect.deeds.push(deed);
        }
        if let Some(owned) = &siblings.owned {
            effect
                .deeds
                .push(remove(self.cluster, self.telemetry, owned).await?);
        }
        Ok(effect)
    }
}
