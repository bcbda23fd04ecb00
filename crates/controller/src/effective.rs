//! `EffectiveHorizontalPodAutoscaler`: one part, in the cluster of the object itself.

use std::{collections::HashSet, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus};
use foretide_domain::{
    Replicas,
    autoscale::action::{Action, HoldReason},
    workload::Workload,
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    apply::{Applied, Writer},
    decide::{DecideContext, Decided},
    findings::Findings,
    kind::{Changed, ItemOf, Kind, Observed, StateCellOf, StateOf, StatesOf},
    observe::{ClusterReads, TargetObservation},
    orphans::{self, Orphans},
    part::{Part, Permission},
    report::{self, Extras, Report, ReportState, Reporter},
    run::Controller,
    setup::{Setup, Shared},
};
use foretide_api::ports::{Cluster, ClusterError, ListedAutoscalers};
use foretide_api::{
    autoscaler::Autoscaler,
    ownership::{Owner, OwnerKind},
    validation::{self, Invalid},
};
use foretide_base::clock::{Clock, Monotonic};

/// The autoscalers of one cluster.
#[derive(Debug)]
pub struct Effective<C> {
    cluster: Arc<C>,
    setup: Setup,
    shared: Shared,
    orphans: Arc<Orphans<C>>,
}

/// The controller of `EffectiveHorizontalPodAutoscaler`s.
pub type EffectiveController<C> = Controller<C, Effective<C>>;

// === impl EffectiveController ===

impl<C: Cluster> EffectiveController<C> {
    /// A controller without state.
    pub fn new(cluster: Arc<C>, clock: Clock, setup: Setup, shared: Shared) -> Self {
        let kind = Effective::new(Arc::clone(&cluster), &setup, shared.clone());
        Self::of_kind(cluster, kind, clock, setup, shared)
    }
}

// === impl Effective ===

impl<C> Effective<C> {
    fn new(cluster: Arc<C>, setup: &Setup, shared: Shared) -> Self {
        let telemetry = Arc::clone(&shared.telemetry);
        Self {
            orphans: Arc::new(Orphans::new(Arc::clone(&cluster), telemetry)),
            cluster,
            setup: setup.clone(),
            shared,
        }
    }
}

impl<C: Cluster> Kind for Effective<C> {
    const KIND: OwnerKind = OwnerKind::Effective;
    type Object = EffectiveHorizontalPodAutoscaler;
    type Spec = Workload;
    type State = ();
    type Round = ClusterReads<C>;
    type Observation = TargetObservation;
    type Decided = Decided;
    type Applied = Applied;

    fn is_synced(&self) -> bool {
        self.cluster.is_synced()
    }

    fn may_clean_up(&self) -> bool {
        // An autoscaler that an old copy lacks may have been created since, and its HPA would look left behind.
        self.is_synced() && self.cluster.stale_autoscalers(Self::KIND, None).is_none()
    }

    fn publish_readiness(&self, synced: bool) {
        self.shared.telemetry.set_ready(synced);
    }

    async fn changed(&self) -> Changed {
        Changed::Objects(self.cluster.changed(Self::KIND).await)
    }

    fn objects(&self) -> Vec<Arc<Self::Object>> {
        existing(self.cluster.autoscalers().objects)
    }

    fn uids(&self) -> HashSet<String> {
        let ListedAutoscalers {
            objects,
            mut unreadable,
        } = self.cluster.autoscalers();
        unreadable.extend(existing(objects).iter().filter_map(|ehpa| ehpa.uid()));
        unreadable
    }

    fn autoscaler(object: Arc<Self::Object>) -> Autoscaler {
        Autoscaler::Effective(object)
    }

    fn validate(&self, object: &Self::Object) -> Result<Self::Spec, Invalid> {
        self.setup
            .targets
            .check(&object.metadata, &object.spec.scale_target_ref)?;
        validation::workload(object, &self.setup.local_zone)
    }

    fn owner(&self, object: &Self::Object, _: &Self::Spec) -> Owner {
        Owner::effective(object)
    }

    fn restore(&self, _: &Self::Object, _: &ReportState) -> Self::State {}

    fn cleanup(
        &self,
        _: &StatesOf<Self>,
        busy: &HashSet<String>,
        now: Monotonic,
    ) -> impl Future<Output = ()> + Send + 'static {
        // Before the autoscalers, so that the HPA of a new one is not taken for an orphan.
        let mut hpas = orphans::adopted(&*self.cluster);
        if !hpas.is_empty() {
            let uids = self.uids();
            hpas.retain(|hpa| !orphans::is_of_any(hpa, &[&uids, busy]));
        }
        let orphans = Arc::clone(&self.orphans);
        async move { orphans.restore(hpas, now).await }
    }

    fn round(&self, now: Timestamp) -> Self::Round {
        let cluster = Arc::clone(&self.cluster);
        ClusterReads::new(cluster, now, self.setup.read_deadline)
    }

    async fn observe(
        &self,
        item: &ItemOf<Self>,
        _: &StateCellOf<Self>,
        round: &Self::Round,
    ) -> Observed<Self> {
        let part = item.part(&item.spec);
        let read = round.observe(&self.shared.forecasts, &part).await;
        let observed = read.map_err(|error| unreadable(&error))?;
        // After the reads, which may take seconds.
        let target = &part.workload.target;
        let namespace = Some(item.autoscaler.namespace());
        let stale = (self.cluster.stale(target))
            .or_else(|| self.cluster.stale_autoscalers(Self::KIND, namespace));
        match stale {
            None => Ok(observed),
            Some(stale) => Err(report::unusable_copies(&stale, ["Ready", "AbleToScale"])),
        }
    }

    fn decide(
        &self,
        context: &DecideContext<'_>,
        state: &mut StateOf<Self>,
        item: ItemOf<Self>,
        observation: Self::Observation,
    ) -> (Self::Decided, Findings) {
        let part = Part {
            permission: Permission::AllUnlessContested,
            ..item.part(&item.spec)
        };
        if observation.target.scale.scale.spec == Replicas::ZERO {
            // Also if a server went on from a backup: what this process knows is then of another past.
            let is_own = (item.autoscaler.status())
                .is_some_and(EffectiveHorizontalPodAutoscalerStatus::has_own_zero);
            state.target.history.log.scaled_to_zero |= is_own;
        }
        let mut decided = context.decide(&mut state.target, part, observation);
        // A controller that ends after the write of the scale leaves a status that says whose zero it is.
        if decided.decision.action.scales_to_zero() && !state.report.written.has_zero() {
            let reason = HoldReason::ZeroNotStored;
            decided.decision.action = Action::Hold { reason };
        }
        let mut findings = Findings::default();
        findings.add(item.autoscaler.uid(), &mut state.lead_times, &decided);
        (decided, findings)
    }

    async fn apply(&self, decided: Decided) -> Applied {
        let writer = Writer {
            cluster: &*self.cluster,
            telemetry: &self.shared.telemetry,
        };
        let outcome = writer.carry_out(&decided).await;
        Applied { decided, outcome }
    }

    fn record(&self, state: &mut StateOf<Self>, applied: &Self::Applied, now: Timestamp) -> bool {
        match &applied.outcome {
            Ok(effect) => {
                state.target.child_left(effect.child.as_ref());
                if let Some(to) = effect.scaled {
                    // Changes of our own count as scale events.
                    let behavior = applied.decided.part.workload.behavior.as_ref();
                    let from = applied.decided.decision.current;
                    state.target.scaled(behavior, from, to, now);
                    state.target.foreign_writes.wrote(to, now);
                }
                false
            }
            Err(ClusterError::Conflict { .. }) => true,
            Err(error) => {
                // The request may have arrived all the same.
                if matches!(error, ClusterError::Unreachable { .. }) {
                    state.target.foreign_writes.may_have_written();
                }
                false
            }
        }
    }

    fn report(
        &self,
        state: &mut StateOf<Self>,
        applied: Applied,
        reporter: &Reporter<'_>,
    ) -> Report {
        let extras = Extras {
            change: report::change(&applied),
            ..Extras::default()
        };
        reporter.applied(state.report_input(), &applied, extras)
    }

    fn publish_sync(&self, seconds: f64) {
        self.shared.telemetry.synced(seconds);
    }
}

/// The autoscalers that are not being deleted.
fn existing(
    mut all: Vec<Arc<EffectiveHorizontalPodAutoscaler>>,
) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>> {
    all.retain(|ehpa| ehpa.metadata.deletion_timestamp.is_none());
    all
}

/// The trouble that the scale of the target could not be read, so that nothing is decided.
fn unreadable(error: &ClusterError) -> Vec<report::Trouble> {
    let conditions = ["Ready", "AbleToScale"];
    report::troubles(conditions, "FailedGetScale", &error.to_string())
}
