//! `EffectiveHorizontalPodAutoscaler`: one part, in the cluster of the object itself.

use std::{collections::HashSet, sync::Arc};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::Timestamp;

use super::{
    Setup, Shared,
    apply::{self, Applied, Writer},
    child_hpa,
    decide::{DecideContext, Decided},
    demand_sample,
    kind::{Changed, Cleanup, ItemOf, Kind, Observed, StateOf, StatesOf},
    observe::{self, ReadTime, TargetObservation},
    report::{self, Extras, Reporter},
};
use crate::{
    api::{
        autoscaler::Autoscaler,
        ownership::{Owner, OwnerKind},
        validation::{self, Invalid},
    },
    domain::{cron::Zone, workload::Workload},
    ports::{Cluster, ClusterError, HpaView},
    telemetry::Telemetry,
};

/// The autoscalers of one cluster.
#[derive(Debug)]
pub(super) struct Effective<C> {
    cluster: Arc<C>,
    local_zone: Zone,
    shared: Shared,
}

/// HPAs that were adopted by an autoscaler that no longer exists.
#[derive(Debug)]
pub(super) struct Orphans<C> {
    cluster: Arc<C>,
    telemetry: Arc<Telemetry>,
    hpas: Vec<Arc<HpaView>>,
}

// === impl Effective ===

impl<C> Effective<C> {
    pub(super) fn new(cluster: Arc<C>, setup: &Setup, shared: Shared) -> Self {
        Self {
            cluster,
            local_zone: setup.local_zone.clone(),
            shared,
        }
    }
}

impl<C: Cluster> Kind for Effective<C> {
    const KIND: OwnerKind = OwnerKind::Effective;
    type Object = EffectiveHorizontalPodAutoscaler;
    type Spec = Workload;
    type State = ();
    type Observation = TargetObservation;
    type Decided = Decided;
    type Applied = Applied;
    type Cleanup = Orphans<C>;

    fn is_synced(&self) -> bool {
        self.cluster.is_synced()
    }

    fn publish_readiness(&self, synced: bool) {
        self.shared.telemetry.set_ready(synced);
    }

    async fn changed(&self) -> Changed {
        Changed::Objects(self.cluster.changed().await)
    }

    fn objects(&self) -> Vec<Arc<Self::Object>> {
        let mut all = self.cluster.autoscalers();
        all.retain(|ehpa| ehpa.metadata.deletion_timestamp.is_none());
        all
    }

    fn autoscaler(object: Arc<Self::Object>) -> Autoscaler {
        Autoscaler::Effective(object)
    }

    fn validate(&self, object: &Self::Object) -> Result<Self::Spec, Invalid> {
        validation::workload(object, &self.local_zone)
    }

    fn owner(&self, object: &Self::Object, _: &Self::Spec) -> Owner {
        Owner::effective(object)
    }

    fn restore(&self, _: &Self::Object) -> Self::State {}

    async fn cleanup(&mut self, _: &StatesOf<Self>, _: Timestamp) -> Self::Cleanup {
        let objects = self.objects();
        let uids = objects
            .iter()
            .filter_map(|ehpa| ehpa.metadata.uid.as_deref());
        let uids: HashSet<&str> = uids.collect();
        let mut hpas = self.cluster.every_hpa();
        // Its adopter is in another cluster and not among these objects.
        hpas.retain(|hpa| !child_hpa::is_adopted_by_a_fleet(hpa));
        // Adopted ones only: a child that we created is garbage-collected by its owner reference.
        hpas.retain(|hpa| child_hpa::adopted_by(hpa).is_some_and(|uid| !uids.contains(uid)));
        Orphans {
            cluster: Arc::clone(&self.cluster),
            telemetry: Arc::clone(&self.shared.telemetry),
            hpas,
        }
    }

    async fn observe(
        &self,
        due: Vec<ItemOf<Self>>,
        _: &StatesOf<Self>,
        now: Timestamp,
    ) -> Vec<Observed<Self>> {
        let parts: Vec<_> = due.iter().map(|item| item.part(&item.spec)).collect();
        let time = ReadTime { now, timeout: None };
        let (cluster, forecasts) = (&*self.cluster, &*self.shared.forecasts);
        let observed = observe::observe(cluster, forecasts, &parts, time).await;
        let observed = observed
            .into_iter()
            .map(|one| one.map_err(|error| unreadable(&error)));
        due.into_iter().zip(observed).collect()
    }

    fn decide(
        &self,
        context: &DecideContext<'_>,
        state: &mut StateOf<Self>,
        item: ItemOf<Self>,
        observation: Self::Observation,
    ) -> Self::Decided {
        let part = item.part(&item.spec);
        let decided = context.decide(&mut state.target, part, observation, None);
        let history = self.shared.forecasts.demand_history();
        let uid = item.autoscaler.uid();
        demand_sample::record(history, uid, &mut state.lead_times, &decided);
        decided
    }

    async fn apply(&self, decided: Vec<Self::Decided>) -> Vec<Self::Applied> {
        apply::apply(&*self.cluster, &self.shared.telemetry, decided).await
    }

    fn applied_to(applied: &Self::Applied) -> &Autoscaler {
        &applied.decided.part.autoscaler
    }

    fn record(&self, state: &mut StateOf<Self>, applied: &Self::Applied, now: Timestamp) -> bool {
        match &applied.outcome {
            Ok(effect) => {
                state
                    .target
                    .child_left(effect.child.as_ref(), !effect.changes.is_empty());
                if let Some(to) = effect.scaled {
                    // Changes of our own count as scale events.
                    let behavior = applied.decided.part.workload.behavior.as_ref();
                    let from = applied.decided.decision.current;
                    state.target.scaled(behavior, from, to, now);
                }
                false
            }
            Err(error) => matches!(error, ClusterError::Conflict { .. }),
        }
    }

    async fn report(&self, state: &mut StateOf<Self>, applied: Self::Applied, now: Timestamp) {
        let reporter = Reporter {
            cluster: &*self.cluster,
            telemetry: &self.shared.telemetry,
            now,
        };
        let extras = Extras {
            change: report::change(&applied),
            ..Extras::default()
        };
        reporter
            .applied(state.report_input(), &applied, extras)
            .await;
    }

    fn publish_sync(&self, seconds: f64) {
        self.shared.telemetry.synced(seconds);
    }
}

impl<C: Cluster> Cleanup for Orphans<C> {
    /// Restores each as it was before its adoption.
    async fn run(self) {
        let writer = Writer {
            cluster: &*self.cluster,
            telemetry: &self.telemetry,
        };
        for hpa in &self.hpas {
            if let Err(error) = writer.restore_adopted(hpa).await {
                let (namespace, name) = (&hpa.namespace, &hpa.name);
                tracing::warn!(%namespace, %name, %error, "could not restore the adopted HPA");
            }
        }
    }
}

/// The scale of the target could not be read, so nothing is decided.
fn unreadable(error: &ClusterError) -> Vec<report::Trouble> {
    let trouble = |kind| (kind, "FailedGetScale", error.to_string());
    vec![trouble("Ready"), trouble("AbleToScale")]
}
