//! A decision as status shows it: pure rendering.

use foretide_crds::{
    DecisionStatus, EffectiveHorizontalPodAutoscalerStatus, ProposalSource, ProposalStatus,
    WindowStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    controller::{
        apply::Applied,
        target::{self, TargetState},
    },
    domain::{
        Replicas,
        autoscale::Decision,
        proposal::{Proposal, Source},
    },
    forecaster,
};

/// The status after a decision was carried out, or not.
pub(super) fn status(
    state: &TargetState,
    applied: &Applied,
    conditions: Vec<Condition>,
) -> EffectiveHorizontalPodAutoscalerStatus {
    let decision = &applied.decided.decision;
    let effect = applied.outcome.as_ref().ok();
    let scaled = effect.and_then(|effect| effect.scaled);
    let child = effect.and_then(|effect| effect.child.as_ref());
    let by_child = child.and_then(|child| child.last_scale);
    EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(decision.desired.as_i32()),
        current_replicas: Some(scaled.unwrap_or(decision.current).as_i32()),
        last_scale_time: state.last_scale.max(by_child).map(Time),
        conditions: Some(conditions),
        observed_generation: applied.decided.part.autoscaler.generation(),
        decision: Some(decided(decision)),
        windows: (!decision.windows.is_empty()).then(|| windows(decision)),
        history: Some(target::kept(&state.history)),
    }
}

/// A decision as `status.decision` shows it.
pub(crate) fn decided(decision: &Decision) -> DecisionStatus {
    let count = |replicas: Replicas| Some(replicas.as_i32());
    DecisionStatus {
        time: Some(Time(decision.at)),
        current_replicas: count(decision.current),
        proposals: Some(decision.proposals.iter().map(proposed).collect()),
        winner: decision.winner.as_ref().map(|winner| source(winner.source)),
        maximum: decision.maximum.and_then(count),
        stabilized: count(decision.stabilized),
        limited: count(decision.limited),
        desired: count(decision.desired),
        floor: decision.floor.and_then(count),
        limit: decision.limit.map(|limit| limit.as_str().to_owned()),
        message: Some(decision.message()),
    }
}

fn proposed(proposal: &Proposal) -> ProposalStatus {
    let number = |value: f64| format!("{value}");
    ProposalStatus {
        source: source(proposal.source),
        name: proposal.name.clone(),
        replicas: proposal.replicas.map(Replicas::as_i32),
        value: proposal.value.map(number),
        target: proposal.target.map(number),
        reason: Some(proposal.reason.as_str().to_owned()),
        forecast: proposal.details.as_ref().map(forecaster::forecast_status),
    }
}

const fn source(source: Source) -> ProposalSource {
    match source {
        Source::Observed => ProposalSource::Observed,
        Source::Forecast => ProposalSource::Forecast,
        Source::Cron => ProposalSource::Cron,
    }
}

/// The windows of a decision as `status.windows` shows them.
pub(crate) fn windows(decision: &Decision) -> Vec<WindowStatus> {
    decision
        .windows
        .iter()
        .map(|(name, state)| WindowStatus {
            name: name.clone(),
            active: state.active,
            next_transition: state.next_transition.map(Time),
        })
        .collect()
}
