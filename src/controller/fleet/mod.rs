//! `FederatedHPA`: one part per member cluster.
//!
//! ```text
//! observe (all members at once) -> participants -> decide (the whole) -> divide (domain::federate) -> member_plan
//!     -> apply (in order) -> report
//! ```
//!
//! The fleet is decided as one workload; the rules of `domain::federate` divide the result; each member is then decided
//! as an autoscaler of one cluster, with its share of bounds and floor.

mod apply;
mod change;
mod decide;
mod decided;
mod events;
mod finalizer;
mod item;
pub(in crate::controller) mod last_move;
mod member_plan;
mod merged_metrics;
mod observe;
mod participants;
mod placement;
mod report;
mod state;
mod template;

use std::sync::Arc;

use foretide_crds::FederatedHPA;
use futures::future::join_all;
use jiff::Timestamp;

use self::{
    apply::MemberWriter,
    decide::FleetWorkload,
    decided::{FleetApplied, FleetDecided},
    finalizer::{Finalizers, FleetCleanup},
    item::{FleetItem, FleetTerms},
    member_plan::{MemberReader, Planner},
    observe::{Deadline, DueFleet, FleetObservation},
    participants::Participants,
    report::FleetReporter,
    state::FleetState,
};
use super::{
    Setup, Shared,
    decide::DecideContext,
    demand_sample,
    kind::{Changed, ItemOf, Kind, Observed, StateOf, StatesOf},
    report::Trouble,
};
use crate::{
    api::{
        autoscaler::Autoscaler,
        ownership::{Owner, OwnerKind},
        validation::{self, Invalid},
    },
    domain::{
        Replicas,
        federate::{self, FleetDecision, Reason},
    },
    ports::{Cluster, Fleet},
};

/// The fleets whose objects are in one cluster, the hub.
#[derive(Debug)]
pub(super) struct Federated<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    setup: Setup,
    shared: Shared,
    /// The fleets that are being deleted.
    finalizers: Finalizers,
    /// Whether the controller is shutting down: members must not be kept from scaling down, because no controller would
    /// undo it.
    is_ending: bool,
}

// === impl Federated ===

impl<C: Cluster, F: Fleet> Federated<C, F> {
    pub(super) fn new(hub: Arc<C>, fleet: Arc<F>, setup: &Setup, shared: Shared) -> Self {
        Self {
            hub,
            fleet,
            setup: setup.clone(),
            shared,
            finalizers: Finalizers::default(),
            is_ending: false,
        }
    }

    /// Carries out the plans of one fleet, once its object has the finalizer that they need.
    async fn carry_out(&self, mut fleet: FleetDecided<F::Member>) -> FleetApplied<F::Member> {
        let plans = std::mem::take(&mut fleet.plans);
        // First: a fleet that is deleted in between would leave its HPAs behind.
        if let Err(error) = finalizer::update(&*self.hub, &fleet, &plans).await {
            let outcome = Err(error);
            return FleetApplied { fleet, outcome };
        }
        let members = &fleet.observed.members;
        let plans = plans.into_iter().filter_map(|plan| {
            let cluster = members.get(&plan.name)?.view.cluster.as_deref()?;
            Some((cluster, plan))
        });
        let writer = MemberWriter {
            telemetry: &self.shared.telemetry,
            deadline: self.setup.member_deadline,
        };
        let outcome = Ok(writer.apply(&fleet.decision, plans.collect()).await);
        FleetApplied { fleet, outcome }
    }
}

impl<C: Cluster, F: Fleet> Kind for Federated<C, F> {
    const KIND: OwnerKind = OwnerKind::Federated;
    type Object = FederatedHPA;
    type Spec = FleetTerms;
    type State = FleetState;
    type Observation = FleetObservation<F::Member>;
    type Decided = FleetDecided<F::Member>;
    type Applied = FleetApplied<F::Member>;
    type Cleanup = FleetCleanup<C, F>;

    fn is_synced(&self) -> bool {
        // Before the fleets are listed none is known, and what they have in members would look left behind.
        self.hub.is_synced() && self.hub.knows_federated() && self.fleet.is_synced()
    }

    async fn changed(&self) -> Changed {
        tokio::select! {
            keys = self.hub.federated_changed() => Changed::Objects(keys),
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
            ..
        } = &self.setup;
        let spec = validation::fleet(object, local_zone, *sync_period, settings)?;
        Ok(FleetTerms {
            observed_workload: Arc::new(spec.observed_workload()),
            spec,
        })
    }

    fn owner(&self, object: &FederatedHPA, terms: &FleetTerms) -> Owner {
        Owner::federated(object, self.finalizers.hub_identity(), terms.spec.deletion)
    }

    fn restore(&self, object: &FederatedHPA) -> FleetState {
        FleetState::restored(object)
    }

    fn forget(&self, mut gone: StateOf<Self>) {
        let published = &mut gone.of_kind.published;
        let telemetry = &self.shared.telemetry;
        telemetry.set_shares(&gone.report.labels, published, std::iter::empty());
    }

    async fn cleanup(&mut self, states: &StatesOf<Self>, now: Timestamp) -> FleetCleanup<C, F> {
        let deleting = self.hub.federated();
        let members_of = |uid: &str| {
            let state = states.get(uid);
            let members = state.into_iter().flat_map(|s| s.of_kind.members.keys());
            members.cloned().collect()
        };
        let deleting = self.finalizers.deleting(deleting, members_of, now);
        FleetCleanup {
            deleting,
            collect_as: self.finalizers.collect_as(&*self.hub, now).await,
            hub: Arc::clone(&self.hub),
            fleet: Arc::clone(&self.fleet),
            telemetry: Arc::clone(&self.shared.telemetry),
            deadline: self.setup.member_deadline,
        }
    }

    async fn observe(
        &self,
        due: Vec<ItemOf<Self>>,
        states: &StatesOf<Self>,
        now: Timestamp,
    ) -> Vec<Observed<Self>> {
        let members = self.fleet.members();
        if members.is_empty() {
            return due
                .into_iter()
                .map(|item| (item, Err(no_members())))
                .collect();
        }
        let due = due.into_iter().map(|item| {
            let state = states.get(item.autoscaler.uid());
            let fleet = state.map(|state| &state.of_kind);
            DueFleet {
                known: fleet.map(FleetState::known).unwrap_or_default(),
                children: fleet.map(FleetState::children).unwrap_or_default(),
                item,
            }
        });
        let due: Vec<_> = due.collect();
        let deadline = Deadline {
            now,
            limit: self.setup.member_deadline,
        };
        let observed = observe::observe(&*self.hub, &members, &due, deadline).await;
        let items = due.into_iter().map(|fleet| fleet.item);
        items.zip(observed.into_iter().map(Ok)).collect()
    }

    fn decide(
        &self,
        context: &DecideContext<'_>,
        state: &mut StateOf<Self>,
        item: FleetItem,
        observed: FleetObservation<F::Member>,
    ) -> FleetDecided<F::Member> {
        let forecasts = &*self.shared.forecasts;
        let fleet = &mut state.of_kind;
        let spec = &item.spec.spec;
        let uid = item.autoscaler.uid();
        let reader = MemberReader {
            item: &item,
            now: context.now,
            lost_after: self.fleet.lost_after(),
        };
        let members = reader.read_all(&observed, fleet);
        fleet.down = observed.down();
        let policy = spec.policy_in_force();
        let by_name = federate::participation(&policy, &members, &fleet.ledger, context.now);
        let participants = Participants::of(&observed, &by_name, spec.is_previewed());
        forecasts.shares().report(uid, participants.histories());
        let whole = FleetWorkload {
            context,
            forecasts,
            item: &item,
            participants: &participants,
        };
        let whole = whole.decide(&mut state.target, fleet);
        // A total without some members would be learned as a drop in demand.
        if participants.are_all_seen() {
            let history = forecasts.demand_history();
            demand_sample::record(history, uid, &mut state.lead_times, &whole.decided);
        }
        let (mut decision, ledger) =
            federate::decide(&policy, &whole.total, &members, &fleet.ledger, context.now);
        fleet.ledger = ledger;
        if self.is_ending {
            let shares = decision.members.iter_mut();
            // While no controller runs, a hold would keep an HPA from scaling down.
            shares.for_each(|share| share.hold = false);
        }
        if spec.is_previewed() {
            restore_nothing(&mut decision);
        }
        let template = observed.template.as_ref();
        let template = template.and_then(|template| template.as_ref().ok());
        let planner = Planner {
            context,
            forecasts,
            item: &item,
            template: template.map(|(template, _)| template),
        };
        let plans = planner.plan_all(&decision, &observed, fleet);
        FleetDecided {
            item,
            observed,
            whole,
            members,
            decision,
            plans,
        }
    }

    async fn apply(&self, decided: Vec<FleetDecided<F::Member>>) -> Vec<FleetApplied<F::Member>> {
        join_all(decided.into_iter().map(|fleet| self.carry_out(fleet))).await
    }

    fn applied_to(applied: &FleetApplied<F::Member>) -> &Autoscaler {
        &applied.fleet.item.autoscaler
    }

    fn record(
        &self,
        state: &mut StateOf<Self>,
        applied: &FleetApplied<F::Member>,
        now: Timestamp,
    ) -> bool {
        let behavior = applied.fleet.item.spec.spec.workload.behavior.as_ref();
        let fleet = &mut state.of_kind;
        let (mut before, mut after) = (Replicas::ZERO, Replicas::ZERO);
        let mut again = false;
        for applied in applied.outcome.as_deref().unwrap_or_default() {
            let name = &applied.plan.name;
            let record = fleet.members.entry(name.clone()).or_default();
            again |= applied.record(record, behavior, now);
            // Pods that are not the fleet's do not change its count.
            let counted = fleet.counted.as_ref();
            let is_counted = counted.is_some_and(|names| names.contains(name));
            if let Some((from, to)) = applied.scaled().filter(|_| is_counted) {
                (before, after) = (before.saturating_add(from), after.saturating_add(to));
            }
        }
        if before != after {
            let from = applied.fleet.whole.decided.decision.current;
            // Members that were not written keep their part of the count.
            let to = Replicas::new((from.get() + after.get()).saturating_sub(before.get()));
            state.target.scaled(behavior, from, to, now);
            fleet.current = Some(to);
        }
        again
    }

    async fn report(
        &self,
        state: &mut StateOf<Self>,
        applied: FleetApplied<F::Member>,
        now: Timestamp,
    ) {
        let reporter = FleetReporter {
            hub: &*self.hub,
            telemetry: &self.shared.telemetry,
            now,
        };
        reporter.report(state, applied).await;
    }

    fn publish_sync(&self, seconds: f64) {
        self.shared.telemetry.fleets_synced(seconds);
    }

    fn publish_states(&self, states: &StatesOf<Self>) {
        let down = states
            .all()
            .flat_map(|state| state.of_kind.down.iter().cloned());
        self.shared.telemetry.members_down(down.collect());
    }

    fn must_release(state: &StateOf<Self>) -> bool {
        let mut entries = state.of_kind.ledger.members.values();
        entries.any(|entry| entry.held)
    }

    fn begin_release(&mut self) {
        self.is_ending = true;
    }
}

/// A preview writes nothing, so it never restores anything either.
fn restore_nothing(decision: &mut FleetDecision) {
    let shares = decision.members.iter_mut();
    for reason in shares.flat_map(|share| &mut share.reasons) {
        if *reason == Reason::Restored {
            *reason = Reason::Steady;
        }
    }
}

/// Nothing can be decided without a member.
fn no_members() -> Vec<Trouble> {
    let message = "there is no member cluster; put the kubeconfig of each into a labeled Secret of the members' \
                   namespace";
    let trouble = |kind| (kind, "NoMembers", message.to_owned());
    vec![trouble("Ready"), trouble("Assigned")]
}
