//! Second step of a fleet's sync: the whole is decided, the rules divide it, and each member is planned.

use foretide_federate::{ClassifiedFleet, FleetDecision, Reason};
use jiff::SignedDuration;

use super::{
    decide::FleetWorkload,
    decided::FleetDecided,
    item::{FleetItem, FleetTerms},
    member_plan::{self, MemberPlan, Planner},
    member_reader::MemberReader,
    observation::FleetObservation,
    participants::Participants,
    state::FleetState,
};
use crate::{
    decide::{DecideContext, Decided},
    findings::Findings,
    forecaster::{SeriesKey, forecasts::Forecasts},
    report::LedgerIntent,
    state::ObjectState,
};
use foretide_api::status::stored_ledger;

/// Conditions under which a fleet is decided and divided.
#[derive(Debug)]
pub struct Division<'a> {
    pub context: &'a DecideContext<'a>,
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    /// Time without an answer after which a member is lost.
    pub lost_after: SignedDuration,
    /// True if the controller ends: members must not be kept from scaling down, because no controller would undo it.
    pub is_ending: bool,
}

// === impl Division ===

impl Division<'_> {
    /// Decides the whole, divides it, and plans each member.
    pub fn decide<M>(
        &self,
        state: &mut ObjectState<FleetTerms, FleetState>,
        item: FleetItem,
        observed: FleetObservation<M>,
    ) -> (FleetDecided<M>, Findings) {
        let (context, forecasts) = (self.context, self.forecasts);
        let fleet = &mut state.of_kind;
        let spec = item.fleet_spec();
        let members = MemberReader {
            item: &item,
            now: context.now,
            lost_after: self.lost_after,
        }
        .read_all(&observed, fleet);
        fleet.down = observed.down();
        let mut policy = spec.policy_in_force();
        policy.previewed |= item.conflicts.older.is_some();
        let ledger = fleet.ledger.clone();
        let classified = ClassifiedFleet::new(&policy, &members, &ledger, context.now);
        let participants = Participants {
            observed: &observed,
            by_name: &classified.participation(),
            previewed: spec.course.previewed,
        };
        let whole = FleetWorkload {
            context,
            forecasts,
            item: &item,
            participants: &participants,
        }
        .decide(&mut state.target, fleet);
        let (divided, next) = classified.decide(&whole.total);
        fleet.ledger = next;
        let decision = self.without_ineffective(divided, spec.course.previewed);
        let plans = Planner {
            context,
            forecasts,
            item: &item,
            template: observed.placed_template(),
        }
        .plan_all(&decision, &observed, fleet);
        let findings = findings(&participants, &whole.decided, &plans, state);
        let decided = FleetDecided {
            intent: intent(state, &decision, &plans),
            item,
            observed,
            whole,
            members,
            decision,
            plans,
        };
        (decided, findings)
    }

    /// A decision without what has no effect now: holds while the controller ends, and what a preview would restore.
    fn without_ineffective(
        &self,
        mut decision: FleetDecision,
        is_previewed: bool,
    ) -> FleetDecision {
        for share in &mut decision.members {
            // While no controller runs, a hold would keep an HPA from scaling down.
            share.hold &= !self.is_ending;
            for reason in &mut share.reasons {
                if is_previewed && *reason == Reason::Restored {
                    *reason = Reason::Steady;
                }
            }
        }
        decision
    }
}

/// Findings for others: the demand of the whole and of each member, and the members whose demand the former is.
fn findings<M>(
    participants: &Participants<'_, M>,
    whole: &Decided,
    plans: &[MemberPlan],
    state: &mut ObjectState<FleetTerms, FleetState>,
) -> Findings {
    let uid = whole.part.autoscaler.uid();
    let mut findings = Findings::of_fleet(participants.histories());
    // A total without some members would be learned as a drop in demand.
    if participants.are_all_seen() {
        findings.add(uid, &mut state.lead_times, whole);
    }
    for plan in plans {
        if let Some(decided) = &plan.decided {
            let record = state.of_kind.members.entry(plan.name.clone()).or_default();
            let series_uid = SeriesKey::of_member(uid, &plan.name);
            findings.add(&series_uid, &mut record.lead_times, decided);
        }
    }
    findings
}

/// The ledger that is to be stored before members are written, if any is written by what changed in it.
fn intent(
    state: &ObjectState<FleetTerms, FleetState>,
    decision: &FleetDecision,
    plans: &[MemberPlan],
) -> Option<LedgerIntent> {
    let ledger = &state.of_kind.ledger;
    member_plan::any_writes_by_ledger(plans, decision, ledger, || {
        state
            .report
            .written
            .ledger()
            .as_deref()
            .and_then(stored_ledger)
    })
    .then(|| state.report.written.intent(ledger))
    .flatten()
}
