//! `FederatedHPA`: one part per member cluster.
//!
//! ```text
//! observe (all members at once) -> member_reader -> participants -> decide (the whole) -> divide (foretide-federate)
//!     -> member_plan -> apply (in order) -> report
//! ```
//!
//! The fleet is decided as one workload; the rules of `foretide-federate` divide the result; each member is then
//! decided as an autoscaler of one cluster, with its share of bounds and floor.

mod apply;
mod change;
mod decide;
mod decided;
mod division;
mod events;
mod finalizer;
mod item;
mod last_move;
mod member_plan;
mod member_reader;
mod merged_metrics;
mod observation;
mod observe;
mod participants;
mod placement;
mod report;
mod state;
mod template;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use foretide_crds::FederatedHPA;
use foretide_domain::Replicas;
use jiff::Timestamp;

use self::{
    apply::MemberWriter,
    decided::{FleetApplied, FleetDecided},
    division::Division,
    finalizer::{Finalizers, FleetCleanup},
    item::{FleetItem, FleetTerms},
    member_plan::MemberPlan,
    observation::FleetObservation,
    observe::{DueFleet, FleetRound, ReadTime},
    state::FleetState,
};
use super::{
    decide::DecideContext,
    findings::Findings,
    kind::{Changed, Kind, Observed, StateCellOf, StateOf, StatesOf},
    report::{Report, ReportState, Reporter, Trouble, troubles, unusable_copies},
    run::Controller,
    setup::{Setup, Shared},
};
use foretide_api::ports::{Cluster, ClusterError, Fleet};
use foretide_api::{
    autoscaler::Autoscaler,
    ownership::{Owner, OwnerKind},
    validation::{self, Invalid},
};
use foretide_base::{
    clock::{Clock, Monotonic},
    telemetry::Write,
};

/// The fleets whose objects are in one cluster, the hub.
#[derive(Debug)]
pub struct Federated<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    setup: Setup,
    shared: Shared,
    /// The state of deletions.
    finalizers: Arc<Finalizers>,
    /// True if the controller ends: members must not be kept from scaling down, because no controller would undo it.
    is_ending: AtomicBool,
}

/// The controller of `FederatedHPA`s.
pub type FleetController<C, F> = Controller<C, Federated<C, F>>;

// === impl FleetController ===

impl<C: Cluster, F: Fleet> FleetController<C, F> {
    /// A controller of the fleets whose objects are in the cluster `hub`, without state.
    pub fn new(hub: Arc<C>, fleet: Arc<F>, clock: Clock, setup: Setup, shared: Shared) -> Self {
        let kind = Federated::new(Arc::clone(&hub), fleet, &setup, shared.clone());
        Self::of_kind(hub, kind, clock, setup, shared)
    }
}

// === impl Federated ===

impl<C: Cluster, F: Fleet> Federated<C, F> {
    fn new(hub: Arc<C>, fleet: Arc<F>, setup: &Setup, shared: Shared) -> Self {
        Self {
            hub,
            fleet,
            setup: setup.clone(),
            shared,
            finalizers: Arc::default(),
            is_ending: AtomicBool::new(false),
        }
    }

    /// Writes to the hub what must be there before the first write to a member.
    async fn prepare(
        &self,
        fleet: &FleetDecided<F::Member>,
        plans: &[MemberPlan],
    ) -> Result<(), ClusterError> {
        // First: a fleet that is deleted in between would leave its HPAs behind.
        finalizer::update(&*self.hub, fleet, plans).await?;
        let Some(intent) = &fleet.intent else {
            return Ok(());
        };
        // A controller that takes over between two members would bring the first one back to an older budget.
        let stored = intent.store(&*self.hub, &fleet.item.object).await;
        self.shared.telemetry.wrote(Write::Status, stored.is_ok());
        stored
    }
}

impl<C: Cluster, F: Fleet> Kind for Federated<C, F> {
    const KIND: OwnerKind = OwnerKind::Federated;
    type Object = FederatedHPA;
    type Spec = FleetTerms;
    type State = FleetState;
    type Round = FleetRound<F::Member>;
    type Observation = FleetObservation<F::Member>;
    type Decided = FleetDecided<F::Member>;
    type Applied = FleetApplied<F::Member>;

    fn is_synced(&self) -> bool {
        // Before the fleets are listed none is known, and what they have in members would look left behind.
        self.hub.is_synced() && self.hub.knows_federated() && self.fleet.is_synced()
    }

    fn may_clean_up(&self) -> bool {
        // True without a list of the members as well: otherwise a finalizer would keep its object for ever. A fleet
        // that an old copy lacks may have been created since, and its HPAs would look left behind.
        self.hub.is_synced()
            && self.hub.knows_federated()
            && self.hub.stale_autoscalers(Self::KIND, None).is_none()
    }

    fn is_prepared(&self) -> bool {
        self.finalizers.has_asked()
    }

    async fn changed(&self) -> Changed {
        tokio::select! {
            biased;
            keys = self.hub.changed(Self::KIND) => Changed::Objects(keys),
            () = self.fleet.changed() => Changed::All,
        }
    }

    fn objects(&self) -> Vec<Arc<FederatedHPA>> {
        let mut all = self.hub.federated();
        all.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_none());
        all
    }

    fn autoscaler(object: Arc<FederatedHPA>) -> Autoscaler {
        Autoscaler::Federated(object)
    }

    fn lists_all(&self) -> bool {
        // An object that cannot be read at the moment is not gone.
        self.hub.every_federated().is_some()
    }

    fn validate(&self, object: &FederatedHPA) -> Result<FleetTerms, Invalid> {
        let Setup {
            local_zone,
            sync_period,
            settings,
            targets,
            ..
        } = &self.setup;
        targets.check(&object.metadata, &object.spec.autoscaling.scale_target_ref)?;
        let spec = validation::fleet(object, local_zone, *sync_period, settings)?;
        Ok(FleetTerms::new(spec))
    }

    fn owner(&self, object: &FederatedHPA, terms: &FleetTerms) -> Owner {
        let hub = self.finalizers.hub_identity();
        Owner::federated(object, hub.as_deref(), terms.spec.deletion)
    }

    fn restore(&self, object: &FederatedHPA, reported: &ReportState) -> FleetState {
        FleetState::restored(object, reported.written.ledger().as_deref())
    }

    fn forget(&self, gone: &mut StateOf<Self>) {
        let published = &mut gone.of_kind.published;
        let telemetry = &self.shared.telemetry;
        // Without shares the series of every member are removed.
        telemetry.set_shares(&gone.report.labels, published, std::iter::empty());
    }

    fn cleanup(
        &self,
        states: &StatesOf<Self>,
        busy: &HashSet<String>,
        now: Monotonic,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut idle = self.hub.federated();
        idle.retain(|fdhpa| !fdhpa.metadata.uid.iter().any(|uid| busy.contains(uid)));
        let deleting = self
            .finalizers
            .deleting(idle, now, |uid| match states.get(uid) {
                Some(state) => state.lock().of_kind.members.keys().cloned().collect(),
                None => Vec::new(),
            });
        let cleanup = FleetCleanup {
            hub: Arc::clone(&self.hub),
            fleet: Arc::clone(&self.fleet),
            telemetry: Arc::clone(&self.shared.telemetry),
            deadline: self.setup.member_deadline,
        };
        let finalizers = Arc::clone(&self.finalizers);
        async move {
            let collect_as = finalizers.collect_as(&*cleanup.hub, now).await;
            cleanup.run(&deleting, collect_as.as_deref()).await;
        }
    }

    fn round(&self, now: Timestamp) -> Self::Round {
        let time = ReadTime {
            now,
            limit: self.setup.member_deadline,
            lost_after: self.fleet.lost_after(),
        };
        FleetRound::new(self.fleet.members(), time)
    }

    async fn observe(
        &self,
        item: &FleetItem,
        state: &StateCellOf<Self>,
        round: &Self::Round,
    ) -> Observed<Self> {
        let due = {
            let fleet = &state.lock().of_kind;
            DueFleet {
                known: fleet.known(),
                remaining: fleet.ledger.remaining().map(str::to_owned).collect(),
                children: fleet.children(),
                item: item.clone(),
            }
        };
        if round.is_empty() && due.remaining.is_empty() {
            return Err(no_members());
        }
        let observed = round.observe(&*self.hub, due).await;
        // After the reads, which may take seconds.
        let namespace = Some(item.autoscaler.namespace());
        match self.hub.stale_autoscalers(Self::KIND, namespace) {
            None => Ok(observed),
            Some(copy) => Err(unusable_copies(&copy, ["Ready", "Assigned"])),
        }
    }

    fn decide(
        &self,
        context: &DecideContext<'_>,
        state: &mut StateOf<Self>,
        item: FleetItem,
        observed: FleetObservation<F::Member>,
    ) -> (FleetDecided<F::Member>, Findings) {
        Division {
            context,
            forecasts: &self.shared.forecasts,
            lost_after: self.fleet.lost_after(),
            is_ending: self.is_ending.load(Ordering::Acquire),
        }
        .decide(state, item, observed)
    }

    async fn apply(&self, mut fleet: FleetDecided<F::Member>) -> FleetApplied<F::Member> {
        let plans = std::mem::take(&mut fleet.plans);
        if let Err(error) = self.prepare(&fleet, &plans).await {
            let outcome = Err(error);
            return FleetApplied { fleet, outcome };
        }
        let members = &fleet.observed.members;
        let writable = plans.into_iter().filter_map(|plan| {
            let cluster = members.get(&plan.name)?.view.cluster.as_deref()?;
            Some((cluster, plan))
        });
        let writer = MemberWriter {
            telemetry: &self.shared.telemetry,
            deadline: self.setup.member_deadline,
        };
        let outcome = Ok(writer.apply(&fleet.decision, writable.collect()).await);
        FleetApplied { fleet, outcome }
    }

    fn record(
        &self,
        state: &mut StateOf<Self>,
        applied: &FleetApplied<F::Member>,
        now: Timestamp,
    ) -> bool {
        let behavior = applied.fleet.item.fleet_spec().workload.behavior.as_ref();
        let fleet = &mut state.of_kind;
        let (mut before, mut after) = (Replicas::ZERO, Replicas::ZERO);
        let mut again = false;
        for applied in applied.outcome.as_deref().unwrap_or_default() {
            let name = &applied.plan.name;
            let record = fleet.members.entry(name.clone()).or_default();
            again |= applied.record(record, behavior, now);
            // Pods that are not the fleet's do not change its count.
            let is_counted = fleet.counted.iter().any(|names| names.contains(name));
            if let Some((from, to)) = applied.scaled().filter(|_| is_counted) {
                (before, after) = (before.saturating_add(from), after.saturating_add(to));
            }
        }
        if before != after {
            let from = applied.fleet.whole_decision().current;
            // Members that were not written keep their part of the count.
            let to = Replicas::new((from.get() + after.get()).saturating_sub(before.get()));
            state.target.scaled(behavior, from, to, now);
            fleet.current = Some(to);
        }
        again
    }

    fn report(
        &self,
        state: &mut StateOf<Self>,
        applied: FleetApplied<F::Member>,
        reporter: &Reporter<'_>,
    ) -> Report {
        report::report(reporter, state, applied)
    }

    fn publish_sync(&self, seconds: f64) {
        self.shared.telemetry.fleets_synced(seconds);
    }

    fn publish_states(&self, states: &StatesOf<Self>) {
        let mut down = BTreeSet::new();
        for (_, state) in states.by_uid() {
            down.extend(state.lock().of_kind.down.iter().cloned());
        }
        self.shared.telemetry.members_down(down);
    }

    fn must_release(state: &StateOf<Self>) -> bool {
        let ledger = &state.of_kind.ledger;
        ledger.members.values().any(|entry| entry.held)
    }

    fn begin_release(&self) {
        self.is_ending.store(true, Ordering::Release);
    }
}

/// The trouble that nothing can be decided without a member.
fn no_members() -> Vec<Trouble> {
    let message = "there is no member cluster; put the kubeconfig of each into a labeled Secret of the members' \
                   namespace";
    troubles(["Ready", "Assigned"], "NoMembers", message)
}
