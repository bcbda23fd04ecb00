//! `FederatedHPA`: one part per member cluster.
//!
//! ```text
//! observe (all members at once) -> participants -> decide (the whole) -> divide (domain::federate) -> member_plan
//!     -> apply (in order) -> report
//! ```
//!
//! The fleet is decided as one workload; the rules of `domain::federate` divide the result; each member is then decided as
//! an autoscaler of one cluster, with its share of bounds and floor.

mod apply;
mod change;
mod decide;
mod events;
mod finalizer;
pub(in crate::controller) mod last_move;
pub(crate) mod ledger;
mod member_plan;
mod merged_metrics;
mod observe;
mod participants;
mod placement;
mod report;
mod state;
mod template;

use std::{collections::HashMap, sync::Arc};

use foretide_crds::FederatedHPA;
use futures::future::join_all;
use jiff::Timestamp;

use self::{
    apply::{MemberApplied, MemberWriter},
    decide::{Whole, WholeDecided},
    finalizer::Cleanup,
    member_plan::{MemberPlan, MemberReader, Planner},
    observe::{Deadline, DueFleet, FleetObservation},
    participants::Participants,
    state::FleetState,
};
use super::{
    Setup, Shared,
    autoscaler::Autoscaler,
    decide::DecideContext,
    demand_sample,
    kind::{Changed, Due, Kind, Observed, WorkItem},
    report::Trouble,
    state::{ObjectState, StateStore},
};
use crate::{
    api::{
        ownership::{Owner, OwnerKind},
        spec::{self, FleetSpec, Invalid},
    },
    domain::{
        Replicas,
        federate::{self, FleetDecision, Reason},
        workload::Workload,
    },
    ports::{Cluster, ClusterError, Fleet},
};

/// The fleets whose objects are in one cluster, the hub.
#[derive(Debug)]
pub(super) struct Federated<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    setup: Setup,
    shared: Shared,
    /// This hub's identity, once it was read.
    identity: Option<String>,
    /// When members were last searched for what deleted fleets left behind.
    collected: Option<Timestamp>,
    /// Since when objects are being deleted, by UID.
    deleting_since: HashMap<String, Timestamp>,
    /// Whether the controller ends: members must not be kept from scaling down, because no controller would undo it.
    is_ending: bool,
}

/// What a valid spec of a fleet means.
#[derive(Debug)]
pub(in crate::controller) struct FleetTerms {
    /// For the whole, and how it is divided.
    spec: FleetSpec,
    /// The workload as members observe it.
    observed_workload: Arc<Workload>,
}

/// A fleet that is due.
type FleetItem = WorkItem<FederatedHPA, FleetTerms>;

/// What one sync decided about one fleet.
#[derive(Debug)]
pub(in crate::controller) struct FleetDecided<M> {
    /// The fleet.
    item: FleetItem,
    /// What was seen.
    observed: FleetObservation<M>,
    /// The decision for the whole.
    whole: WholeDecided,
    /// The members as the rules read them.
    members: Vec<federate::Member>,
    /// How the rules divide the whole.
    decision: FleetDecision,
    /// What is to be done in each member.
    plans: Vec<MemberPlan>,
}

/// What became of a decision about one fleet.
#[derive(Debug)]
pub(in crate::controller) struct FleetApplied<M> {
    /// The decision; its plans are with their outcomes.
    fleet: FleetDecided<M>,
    /// What became of each member's plan, or why none was carried out.
    outcome: Result<Vec<MemberApplied>, ClusterError>,
}

// === impl Federated ===

impl<C: Cluster, F: Fleet> Federated<C, F> {
    pub(super) fn new(hub: Arc<C>, fleet: Arc<F>, setup: &Setup, shared: Shared) -> Self {
        Self {
            hub,
            fleet,
            setup: setup.clone(),
            shared,
            identity: None,
            collected: None,
            deleting_since: HashMap::new(),
            is_ending: false,
        }
    }

    /// Carries out the plans of one fleet, once its object has the finalizer that they need.
    async fn carry_out(&self, mut fleet: FleetDecided<F::Member>) -> FleetApplied<F::Member> {
        let plans = std::mem::take(&mut fleet.plans);
        if let Err(error) = self.update_finalizer(&fleet, &plans).await {
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
    type Cleanup = Cleanup<C, F>;

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
        let spec = spec::fleet(object, local_zone, *sync_period, settings)?;
        Ok(FleetTerms {
            observed_workload: Arc::new(spec.observed_workload()),
            spec,
        })
    }

    fn owner(&self, object: &FederatedHPA, terms: &FleetTerms) -> Owner {
        Owner::federated(object, self.identity.as_deref(), terms.spec.deletion)
    }

    fn restore(&self, object: &FederatedHPA) -> FleetState {
        FleetState::restored(object)
    }

    fn forget(&self, mut gone: ObjectState<Self>) {
        let published = &mut gone.of_kind.published;
        let telemetry = &self.shared.telemetry;
        telemetry.divided(&gone.report.labels, published, std::iter::empty());
    }

    async fn cleanup(&mut self, states: &StateStore<Self>, now: Timestamp) -> Cleanup<C, F> {
        self.pending_cleanup(states, now).await
    }

    async fn observe(
        &self,
        due: Vec<Due<Self>>,
        states: &StateStore<Self>,
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
        state: &mut ObjectState<Self>,
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
        forecasts.fleets().report(uid, participants.histories());
        let whole = Whole {
            context,
            forecasts,
            item: &item,
            participants: &participants,
        };
        let whole = whole.decide(&mut state.target, fleet);
        if participants.are_all_seen() {
            let history = forecasts.feed();
            demand_sample::record(history, uid, &mut state.lead_times, &whole.decided);
        }
        let (mut decision, ledger) =
            federate::decide(&policy, &whole.total, &members, &fleet.ledger, context.now);
        fleet.ledger = ledger;
        if self.is_ending {
            let shares = decision.members.iter_mut();
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
        state: &mut ObjectState<Self>,
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
            // Pods that are not the fleet's are no change of its count.
            let counted = fleet.counted.as_ref();
            let is_counted = counted.is_some_and(|names| names.contains(name));
            if let Some((from, to)) = applied.scaled().filter(|_| is_counted) {
                (before, after) = (before.saturating_add(from), after.saturating_add(to));
            }
        }
        if before != after {
            let from = applied.fleet.whole.decided.decision.current;
            let to = Replicas::new((from.get() + after.get()).saturating_sub(before.get()));
            state.target.scaled(behavior, from, to, now);
            fleet.current = Some(to);
        }
        again
    }

    async fn report(
        &self,
        state: &mut ObjectState<Self>,
        applied: FleetApplied<F::Member>,
        now: Timestamp,
    ) {
        self.report_fleet(state, applied, now).await;
    }

    fn publish_sync(&self, seconds: f64) {
        self.shared.telemetry.fleets_synced(seconds);
    }

    fn publish_states(&self, states: &StateStore<Self>) {
        let down = states
            .all()
            .flat_map(|state| state.of_kind.down.iter().cloned());
        self.shared.telemetry.members_down(down.collect());
    }

    fn must_release(state: &ObjectState<Self>) -> bool {
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
    let message = "there is no member cluster; put the kubeconfig of each into a labelled Secret of the members' \
                   namespace";
    let trouble = |kind| (kind, "NoMembers", message.to_owned());
    vec![trouble("Ready"), trouble("Assigned")]
}
