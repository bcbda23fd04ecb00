//! The state of an autoscaler as one word and one sentence. Pure.

use foretide_crds::DecisionStatus;
use foretide_domain::{
    Replicas,
    autoscale::{ConditionKind, Limit},
    proposal::{Reason, Source, of_source},
    sim::TOLERATED,
    workload::Strategy,
};
use foretide_federate::ConditionKind::MembersReachable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    api::Word,
    record::{Decided, LastDecision, needed},
};
use foretide_api::autoscaler::Status;

/// The reasons for which `Ready` is False although the autoscaler itself could act.
const CONFLICTS: [&str; 2] = ["TargetConflict", "ExternalWriter"];

/// Reasons of a forecast of which only the current level is used.
const UNUSED: [Reason; 2] = [Reason::NoSkill, Reason::NumericalFallback];

/// The word for a status as it is reported, and the decision that it is about.
pub fn of(status: &Status, decided: Option<&Decided<'_>>) -> Word {
    if let Some(decided) = decided
        // A paused workload, which was scaled to 0 on purpose, lacks no replicas.
        && decided.decision.limit != Some(Limit::Paused)
        && let Some(needed) = needed(&decided.metrics)
        && needed > TOLERATED * decided.ready.as_f64()
    {
        return Word::Short;
    }
    match failed(status, ConditionKind::Ready.as_str()) {
        Some(ready) if !CONFLICTS.contains(&&*ready.reason) => return Word::Unready,
        Some(_) => return Word::Conflict,
        None if is(status, "ReplicaConflict", "True") => return Word::Conflict,
        None => {}
    }
    if decided.is_some_and(|decided| is_capped(status, decided)) {
        return Word::Capped;
    }
    if untrusted(status).is_some() || decided.is_some_and(is_unread) {
        return Word::Untrusted;
    }
    Word::Fine
}

/// Returns whether the decision scales the workload: not in Preview, not while it is paused, not where another writer
/// sets the same replicas, and not while the autoscaler cannot act.
pub fn acts(status: &Status, decided: &Decided<'_>) -> bool {
    decided.workload.strategy == Strategy::Auto
        && decided.decision.limit != Some(Limit::Paused)
        && !is(status, ConditionKind::Ready.as_str(), "False")
        && !is(status, "ReplicaConflict", "True")
}

/// The reason for the word: the message of a problem, else that of the decision, without a full stop.
pub fn sentence(word: Word, status: &Status, max: i32, decided: Option<&LastDecision>) -> String {
    let decision = status.common.decision.as_ref();
    let message = decision
        .and_then(|decision| decision.message.clone())
        .unwrap_or_default();
    match word {
        Word::Short => {
            let needed = decided.and_then(|decided| needed(&decided.metrics));
            let ready = decided.map_or(Replicas::ZERO, |decided| decided.ready);
            needed.map(|needed| {
                let needed = (needed * 10.0).ceil() / 10.0;
                let capped = above_max(decision, max)
                    .map(|asked| format!(", maxReplicas is {max}, and {asked} are asked for"));
                format!(
                    "{ready} serve, and the demand needs {needed}{}; {message}",
                    capped.unwrap_or_default()
                )
            })
        }
        Word::Unready => about(find(status, ConditionKind::Ready.as_str())),
        Word::Conflict => about(
            failed(status, ConditionKind::Ready.as_str())
                .or_else(|| find(status, "ReplicaConflict")),
        ),
        Word::Capped => {
            let clusters = beyond_clusters(status)
                .map(|room| format!("the clusters can run {room} replicas; {message}"));
            clusters.or_else(|| {
                let asked = above_max(decision, max)?;
                Some(format!(
                    "{asked} replicas are asked for, and maxReplicas is {max}; {message}"
                ))
            })
        }
        Word::Untrusted => about(untrusted(status)),
        Word::Fine => None,
    }
    .unwrap_or(message)
}

/// The message of a condition, if it has one.
fn about(condition: Option<&Condition>) -> Option<String> {
    Some(condition?.message.clone()).filter(|text| !text.is_empty())
}

/// The highest proposal, if it is above `maxReplicas`.
fn above_max(decision: Option<&DecisionStatus>, max: i32) -> Option<i32> {
    decision?.maximum.filter(|asked| *asked > max)
}

fn is_capped(status: &Status, decided: &Decided<'_>) -> bool {
    let decision = decided.decision;
    let Some(highest) = decision.maximum else {
        return false;
    };
    highest > decision.bounds.max || beyond_clusters(status).is_some()
}

/// The replicas that the clusters of a fleet can run, if they are fewer than the highest proposal.
fn beyond_clusters(status: &Status) -> Option<i32> {
    let most = status
        .fleet
        .clusters
        .iter()
        .flatten()
        .filter_map(|cluster| cluster.max);
    let asked = status.common.decision.as_ref()?.maximum?;
    let unassigned = status.fleet.unassigned?;
    let room = most.fold(0, i32::saturating_add);
    (unassigned > 0 && asked > room).then_some(room)
}

/// The first condition that says that a forecast, a cron, a member or a metric that is configured is not used.
fn untrusted(status: &Status) -> Option<&Condition> {
    find(status, ConditionKind::PredictionReady.as_str())
        .filter(|it| it.status == "False" || UNUSED.iter().any(|one| one.as_str() == it.reason))
        .or_else(|| failed(status, ConditionKind::CronReady.as_str()))
        .or_else(|| failed(status, MembersReachable.as_str()))
        .or_else(|| {
            // A workload that somebody scaled to zero is paused on purpose.
            failed(status, ConditionKind::ScalingActive.as_str())
                .filter(|it| it.reason != "ScalingDisabled")
        })
}

/// Returns whether a metric cannot be read.
fn is_unread(decided: &Decided<'_>) -> bool {
    of_source(&decided.decision.proposals, Source::Observed)
        .any(|it| it.replicas.is_none() && it.reason != Reason::NotComputed)
}

fn failed<'a>(status: &'a Status, kind: &str) -> Option<&'a Condition> {
    find(status, kind).filter(|condition| condition.status == "False")
}

fn is(status: &Status, kind: &str, value: &str) -> bool {
    find(status, kind).is_some_and(|condition| condition.status == value)
}

fn find<'a>(status: &'a Status, kind: &str) -> Option<&'a Condition> {
    let mut conditions = status.common.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind)
}
