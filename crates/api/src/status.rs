//! Decisions, forecasts, conditions and the ledger of a fleet as the fields of a status, for the controller, the
//! forecaster and the command line.

use foretide_crds::{ClusterStatus, DecisionStatus, ForecastStatus, ProposalStatus, WindowStatus};
use foretide_domain::{
    Replicas,
    autoscale::Decision,
    condition,
    forecast::without_noise,
    observation::Status,
    proposal::{ForecastDetails, Proposal},
    words::excerpt,
};
use foretide_federate::{Entry, Ledger, Member, MemberDecision};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message in a status, in characters. The API server refuses a condition of more than 32 KiB.
const MESSAGE_MAX: usize = 4096;

/// The conditions that are healthy with status `False`; all others with `True`.
const HEALTHY_IF_FALSE: [&str; 2] = ["ScalingLimited", "ReplicaConflict"];

/// `status.decision` of a decision.
pub fn decision_status(decision: &Decision) -> DecisionStatus {
    DecisionStatus {
        time: Some(Time(decision.at)),
        // Of the process that writes it, not of the decision.
        leader_epoch: None,
        current_replicas: Some(decision.current.as_i32()),
        proposals: Some(decision.proposals.iter().map(proposal_status).collect()),
        sources: Some(
            decision
                .proposed()
                .into_iter()
                .map(|(source, count)| (source, count.as_i32()))
                .collect(),
        ),
        winner: decision.winner.as_ref().map(|winner| winner.source),
        maximum: decision.maximum.map(Replicas::as_i32),
        stabilized: Some(decision.stabilized.as_i32()),
        limited: Some(decision.limited.as_i32()),
        desired: Some(decision.desired.as_i32()),
        floor: decision.floor.map(Replicas::as_i32),
        limit: decision.limit.map(|limit| limit.as_str().to_owned()),
        message: Some(excerpt(&decision.message(), MESSAGE_MAX)),
    }
}

fn proposal_status(proposal: &Proposal) -> ProposalStatus {
    ProposalStatus {
        source: proposal.source,
        name: proposal.name.clone(),
        replicas: proposal.replicas.map(Replicas::as_i32),
        value: proposal.value.map(|value| value.to_string()),
        target: proposal.target.map(|target| target.to_string()),
        reason: Some(proposal.reason.as_str().to_owned()),
        forecast: proposal.details.as_ref().map(forecast_status),
        query: proposal.query.as_deref().map(str::to_owned),
    }
}

/// `status.windows` of a decision.
pub fn window_status(decision: &Decision) -> Vec<WindowStatus> {
    decision
        .windows
        .iter()
        .map(|window| WindowStatus {
            name: window.name.clone(),
            active: window.state.active,
            next_transition: window.state.next_transition.map(Time),
        })
        .collect()
}

/// A share, to three decimal places.
fn share(share: f64) -> String {
    ((share * 1000.0).round() / 1000.0).to_string()
}

fn number(value: f64) -> String {
    without_noise(value).to_string()
}

/// `forecast` of a proposal or a prediction: what the forecast is based on.
pub fn forecast_status(details: &ForecastDetails) -> ForecastStatus {
    // A forecast without a window is a path alone, which does not depend on the lead time.
    let lead_time = details.window.map(|_| details.lead_time);
    ForecastStatus {
        algorithm: Some(details.method.to_owned()),
        quantile: details.quantile.map(share),
        peak: details.peak.map(number),
        raise: details.bounds.map(|bounds| number(bounds.raise)),
        hold: details.bounds.map(|bounds| number(bounds.hold)),
        coverage: details.coverage.map(share),
        minute_readings: details.raw.map(share),
        skill: details.skill.map(share),
        window_seconds: details.window.map(|window| window.as_secs()),
        lead_time_seconds: lead_time.map(|lead| lead.span.as_secs()),
        lead_time_source: lead_time.map(|lead| lead.origin.as_str().to_owned()),
        learnt_from: details.learnt_from.map(Time),
        known_until: Some(Time(details.known_until)),
        remark: details.remark.map(|remark| remark.as_str().to_owned()),
        message: Some(details.notes.clone()).filter(|notes| !notes.is_empty()),
    }
}

/// `status.ledger` of a fleet: one line of JSON, in the format of [`Ledger`].
pub fn ledger_status(ledger: &Ledger) -> String {
    // Serializing numbers and strings cannot fail.
    serde_json::to_string(ledger).unwrap_or_default()
}

/// `status.clusters` of a fleet: a member's share, and what was seen there.
pub fn cluster_status(
    decided: &MemberDecision,
    observed: Option<&Member>,
    entry: Option<&Entry>,
    reason: String,
) -> ClusterStatus {
    let pods = observed.and_then(|member| member.pods);
    let moved = entry.and_then(|entry| entry.moved.max(entry.shrunk));
    ClusterStatus {
        name: decided.name.clone(),
        min: Some(decided.min.as_i32()),
        max: Some(decided.max.as_i32()),
        floor: (decided.floor > Replicas::ZERO).then(|| decided.floor.as_i32()),
        current: pods.map(|pods| pods.replicas.as_i32()),
        ready: pods.map(|pods| pods.ready.as_i32()),
        pending: pods.map(|pods| pods.unschedulable.as_i32()),
        capacity: decided.capacity.map(Replicas::as_i32),
        utilization: utilization(observed),
        reason: Some(reason),
        last_transfer: moved.map(Time),
        observed: observed.and_then(|member| member.observed).map(Time),
    }
}

/// Demand in percent of what the replicas are meant to carry.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn utilization(observed: Option<&Member>) -> Option<i32> {
    let member = observed?;
    let replicas = member.pods?.replicas.as_f64();
    // At zero replicas it would be infinite.
    (replicas > 0.0).then_some((100.0 * member.demand? / replicas).round() as i32)
}

/// The ledger of a status; `None` if the text cannot be read. Then the next decision assigns budgets again.
pub fn stored_ledger(text: &str) -> Option<Ledger> {
    serde_json::from_str(text).ok()
}

/// A condition of a decision, rendered as one of type `kind`.
pub fn decided_condition<K>(kind: &str, own: &condition::Condition<K>) -> Condition {
    condition(kind, own.status.as_str(), own.reason, &own.message)
}

/// A condition without a transition time, which [`with_transition_times`] sets.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: excerpt(message, MESSAGE_MAX),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// True if a condition of this type is healthy with this status.
pub fn is_healthy(kind: &str, status: &str) -> bool {
    let healthy = if HEALTHY_IF_FALSE.contains(&kind) {
        Status::False
    } else {
        Status::True
    };
    status == healthy.as_str()
}

/// Returns true if something is wrong by a condition. To limit the count is what bounds and policies are for.
pub fn is_unhealthy(known: &Condition) -> bool {
    known.type_ != "ScalingLimited" && !is_healthy(&known.type_, &known.status)
}

/// The conditions with their transition times: that of the condition `before` while its status is the same, else `now`.
pub fn with_transition_times(
    mut conditions: Vec<Condition>,
    before: Option<&[Condition]>,
    now: Timestamp,
) -> Vec<Condition> {
    for condition in &mut conditions {
        let same_type = before
            .into_iter()
            .flatten()
            .find(|before| before.type_ == condition.type_);
        // As in Kubernetes, another reason or message is no transition.
        condition.last_transition_time = same_type
            .filter(|before| before.status == condition.status)
            .map_or(Time(now), |before| before.last_transition_time.clone());
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_to_what_a_status_may_hold() {
        let message = "é".repeat(100_000);
        let shown = condition("Ready", "False", "InvalidSpec", &message).message;
        assert_eq!(shown, format!("{}...", "é".repeat(4096)));
        assert_eq!(condition("Ready", "True", "Valid", "fits").message, "fits");
    }

    #[test]
    fn a_ledger_is_written_and_read_back_and_text_that_is_none_is_ignored() {
        let text = r#"{"generation":3,"members":{"m1":{"tenure":1,"min":1,"max":7}}}"#;
        let ledger = stored_ledger(text).unwrap();
        assert_eq!(ledger_status(&ledger), text);
        assert_eq!(stored_ledger("nonsense"), None);
    }
}
