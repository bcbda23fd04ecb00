//! The conditions of an object: the decision's own, a child's in the place of three of them, and what went wrong.

use std::collections::BTreeMap;

use foretide_domain::{
    autoscale::{ConditionKind, Limit, action::Action},
    workload::Writes,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::{
    apply::{Applied, HpaChange},
    child_hpa::is_of_present_spec,
    decide::Decided,
    foreign_hpa::{reads_published_metrics, scaled_object, trigger_to_add},
    part::Part,
};
use foretide_api::ports::{ClusterError, HpaView, KedaPause};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    ownership::ADOPT,
    published::{CRON_METRIC, PREDICTION_METRIC},
    status::{condition, decided_condition, is_unhealthy, with_transition_times},
    validation::Invalid,
};

/// The reason of a spec that cannot be acted on.
pub const INVALID_SPEC: &str = "InvalidSpec";

/// The reason of an object that does not act, because another one scales its target.
pub const TARGET_CONFLICT: &str = "TargetConflict";

/// The reason of a target whose replicas another writer keeps changing.
const EXTERNAL_WRITER: &str = "ExternalWriter";

/// The reason of a target that KEDA scales by what the object publishes.
const SCALED_BY_KEDA: &str = "ScaledByKEDA";

/// The reason of a target whose scaling KEDA has paused.
const PAUSED_BY_KEDA: &str = "PausedByKEDA";

/// Text that is added to the message of an object whose target KEDA scales, where a pause of it cannot be seen.
const PAUSE_UNSEEN: &str = "; a pause by KEDA cannot be seen: grant the controller get, list and watch of \
                            scaledobjects.keda.sh";

/// The reason of a previewed target that a user's HPA scales by what the object publishes.
const READ_BY_HPA: &str = "ReadByHPA";

/// The reason of a child that cannot read what the metric adapter serves.
const METRIC_ADAPTER_UNAVAILABLE: &str = "MetricAdapterUnavailable";

/// The conditions that a child's own replace.
const OF_THE_CHILD: [&str; 3] = ["AbleToScale", "ScalingActive", "ScalingLimited"];

/// The conditions of an object after a sync.
#[derive(Debug)]
pub struct Conditions {
    /// All conditions, in their order.
    pub all: Vec<Condition>,
    /// The reason why the object is not ready, if it is not, and what to do.
    pub trouble: Option<(&'static str, String)>,
}

/// The conditions after a sync; `more` are those that only this kind of object has, in the place of the decision's own
/// of the same type.
pub fn of(
    applied: &Applied,
    invalid: Option<&Invalid>,
    more: Vec<Condition>,
    now: Timestamp,
) -> Conditions {
    let trouble = trouble(applied, invalid);
    let contested = more.iter().find(|known| known.reason == TARGET_CONFLICT);
    let contested = contested.map(|known| (TARGET_CONFLICT, known.message.clone()));
    let mut all = of_decision(applied, trouble.as_ref());
    all.retain(|own| more.iter().all(|more| more.type_ != own.type_));
    all.extend(more);
    Conditions {
        all: since(all, &applied.decided.part.autoscaler, now),
        trouble: trouble.or(contested),
    }
}

/// The conditions of a decision. A child's own replace three of them; `trouble` makes Ready False; an HPA of another
/// owner that reads the object has a reason of its own.
fn of_decision(applied: &Applied, trouble: Option<&(&'static str, String)>) -> Vec<Condition> {
    let decided = &applied.decided.decision.conditions;
    let mut conditions: Vec<_> = decided
        .iter()
        .map(|own| decided_condition(own.kind.as_str(), own))
        .collect();
    let child = applied.child();
    let reads_published = applied.decided.part.workload.course().publishes;
    for own in child.map(of_child).unwrap_or_default() {
        let is_active = own.type_ == ConditionKind::ScalingActive.as_str() && own.status == "True";
        let shown = match child {
            Some(child) if is_active && reads_published => unread_by(child).unwrap_or(own),
            _ => own,
        };
        conditions.retain(|condition| condition.type_ != shown.type_);
        conditions.push(shown);
    }
    let kind = ConditionKind::Ready.as_str();
    let ready = match trouble {
        Some((reason, message)) => Some(condition(kind, "False", reason, message)),
        None => read_by_others(applied).filter(|_| {
            let mut own = conditions.iter();
            own.any(|own| own.type_ == kind && own.status == "True")
        }),
    };
    if let Some(ready) = ready {
        conditions.retain(|condition| condition.type_ != kind);
        conditions.insert(0, ready);
    }
    if may_miss_a_pause(&applied.decided)
        && let Some(ready) = conditions.iter_mut().find(|own| own.type_ == kind)
    {
        ready.message.push_str(PAUSE_UNSEEN);
    }
    conditions
}

/// True if KEDA scales the target of an object or has scaled it, and a pause cannot be seen.
fn may_miss_a_pause(decided: &Decided) -> bool {
    let hpa = decided.foreign_hpa();
    // A pause removes KEDA's HPA, and a restart forgets that it was there.
    (decided.target.as_ref()).is_some_and(|target| target.keda_pause == KedaPause::Unseen)
        && (hpa.and_then(|hpa| scaled_object(hpa)).is_some()
            || stored(&decided.part.autoscaler).any(|it| it.message.ends_with(PAUSE_UNSEEN)))
}

/// The conditions of a status that are not healthy.
pub fn unhealthy(status: &Status) -> impl Iterator<Item = &Condition> {
    let conditions = status.common.conditions.iter().flatten();
    conditions.filter(|known| is_unhealthy(known))
}

/// The conditions of an object's status as it is stored.
fn stored(autoscaler: &Autoscaler) -> impl Iterator<Item = &Condition> {
    autoscaler
        .status()
        .into_iter()
        .flat_map(|it| it.conditions.iter().flatten())
}

/// The reason why the object is not ready, if it is not, and what to do.
fn trouble(applied: &Applied, invalid: Option<&Invalid>) -> Option<(&'static str, String)> {
    match &applied.outcome {
        // Decided again within a second.
        Err(ClusterError::Conflict { .. }) | Ok(_) => {}
        Err(error) => return Some((failure(applied), error.to_string())),
    }
    if let Some(invalid) = invalid {
        let message = format!("{invalid}; the last valid spec stays in force");
        return Some((INVALID_SPEC, message));
    }
    let part = &applied.decided.part;
    if let Some(older) = &part.conflicts.older {
        let message = format!(
            "not acting: {} {older} scales the same target and is older; delete one of the two",
            part.owner.kind.resource()
        );
        return Some((TARGET_CONFLICT, message));
    }
    if let Some(message) = &applied.decided.replica_conflict {
        return Some((EXTERNAL_WRITER, message.clone()));
    }
    let hpas = &applied.decided.target.as_ref()?.hpas;
    let foreign = hpas.foreign.as_ref()?;
    let adopted = applied
        .effect()
        .is_some_and(|effect| effect.changes.contains(&HpaChange::Adopted));
    // An autoscaler that only previews conflicts with none.
    let is_conflict = part.workload.course().writes != Writes::Pinned(None) && !adopted;
    let is_served = part.keda_trigger(hpas).is_some();
    (is_conflict && !is_served).then(|| {
        let message = foreign_message(part, foreign);
        (TARGET_CONFLICT, message)
    })
}

/// The message about an HPA of another owner on the same target, with what to do.
fn foreign_message(part: &Part, foreign: &HpaView) -> String {
    let name = &foreign.name;
    match scaled_object(foreign) {
        Some(scaled_object) => format!(
            "not acting: ScaledObject {scaled_object} (horizontalpodautoscaler {name}) scales the same target and is not changed; \
             add the trigger {} to it, with an authenticationRef for the scaler's caCert, so that it keeps the floor of \
             this object, or delete one of the two",
            trigger_to_add(part.autoscaler.name())
        ),
        None if part.workload.course().writes != Writes::Bounds => format!(
            "not acting: horizontalpodautoscaler {name} scales the same target and is not changed; delete it, because mode \
             Direct takes none over"
        ),
        None => format!(
            "not acting: horizontalpodautoscaler {name} scales the same target and is not changed; delete it, or annotate \
             this object with {ADOPT}: \"true\" to take it over (mode Delegated or Metric)"
        ),
    }
}

/// The condition that an HPA of another owner scales the target by what this object publishes, or that KEDA has paused
/// it, if either holds.
fn read_by_others(applied: &Applied) -> Option<Condition> {
    let Decided {
        part,
        target,
        publishes,
        ..
    } = &applied.decided;
    let target = target.as_ref()?;
    let is_preview = part.workload.course().writes == Writes::Pinned(None);
    if let KedaPause::On {
        scaled_object: name,
        annotation,
    } = &target.keda_pause
        && !is_preview
    {
        let namespace = part.autoscaler.namespace();
        let message = format!(
            "not acting: KEDA has paused the target: ScaledObject {name} has the annotation {annotation}; to resume, run \
             kubectl annotate scaledobject {name} -n {namespace} {annotation}-"
        );
        return Some(ready_as(PAUSED_BY_KEDA, &message));
    }
    let decision = &applied.decided.decision;
    let decided = decision.message();
    if let Some(trigger) = part.keda_trigger(&target.hpas) {
        let decided = match decision.limit {
            // KEDA itself scales from zero.
            Some(Limit::Paused) => "it is scaled to zero until a trigger is active".to_owned(),
            _ => decided,
        };
        let message = format!(
            "ScaledObject {} scales the target, and reads this object as {}; {decided}",
            trigger.scaled_object, trigger.metric
        );
        return Some(ready_as(SCALED_BY_KEDA, &message));
    }
    let foreign = target.hpas.foreign.as_ref()?;
    (is_preview && *publishes && reads_published_metrics(foreign)).then(|| {
        let message = format!(
            "horizontalpodautoscaler {} scales the target, and reads forecasts or crons as metrics; {decided}",
            foreign.name
        );
        ready_as(READ_BY_HPA, &message)
    })
}

/// The condition that the object is ready, with a reason of its own.
fn ready_as(reason: &str, message: &str) -> Condition {
    condition(ConditionKind::Ready.as_str(), "True", reason, message)
}

/// The reasons of the conditions of an object's status that are False, by their types.
pub fn warned_of(autoscaler: &Autoscaler) -> BTreeMap<&'static str, String> {
    let mut warned = BTreeMap::new();
    for failed in stored(autoscaler).filter(|known| known.status == "False") {
        if let Some(kind) = ConditionKind::ALL.get(position(&failed.type_)) {
            warned.insert(kind.as_str(), failed.reason.clone());
        }
    }
    warned
}

/// True if an object's status says that KEDA scales its target by what it publishes.
pub fn is_scaled_by_keda(autoscaler: &Autoscaler) -> bool {
    stored(autoscaler).any(|known| known.reason == SCALED_BY_KEDA)
}

fn failure(applied: &Applied) -> &'static str {
    match applied.decided.decision.action {
        Action::Scale { .. } | Action::Pin { .. } => "FailedUpdateScale",
        Action::Child { .. } | Action::Hold { .. } => "FailedReconcileHPA",
    }
}

fn of_child(child: &HpaView) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for value in child.status["conditions"].as_array().into_iter().flatten() {
        let [kind, status, reason, message] = ["type", "status", "reason", "message"]
            .map(|name| value[name].as_str().unwrap_or_default());
        if OF_THE_CHILD.contains(&kind) {
            conditions.push(condition(kind, status, reason, message));
        }
    }
    conditions
}

/// The condition that a child cannot read a metric of the adapter: an empty entry of its status, at the position of the
/// metric. Its own condition is True as long as it can read another metric.
fn unread_by(child: &HpaView) -> Option<Condition> {
    let asked = child.spec.get("metrics")?.as_array()?;
    let read = child.status.get("currentMetrics")?.as_array()?;
    // Otherwise the positions of the two lists may not be those of the same metrics.
    if !is_of_present_spec(child) || asked.len() != read.len() {
        return None;
    }
    let mut names = Vec::new();
    for (asked, read) in asked.iter().zip(read) {
        if read["type"].as_str().is_none_or(str::is_empty) {
            names.extend(name_of_ours(asked));
        }
    }
    (!names.is_empty()).then(|| {
        let message = format!(
            "horizontalpodautoscaler {} cannot read {}, so it does not scale down; foretide-adapter serves these: check its \
             pods, and kubectl get apiservice v1beta1.external.metrics.k8s.io",
            child.name,
            names.join(", ")
        );
        let kind = ConditionKind::ScalingActive.as_str();
        condition(kind, "False", METRIC_ADAPTER_UNAVAILABLE, &message)
    })
}

/// The name of a metric of a child, if the adapter serves it.
fn name_of_ours(metric: &Value) -> Option<String> {
    let external = metric.pointer("/external/metric")?;
    let name = external.get("name")?.as_str()?;
    let of = external.pointer("/selector/matchLabels/resourceIdentifier")?;
    let is_ours = [PREDICTION_METRIC, CRON_METRIC].contains(&name);
    is_ours.then(|| format!("{name} ({})", of.as_str().unwrap_or_default()))
}

/// The conditions in their order, with their transition times and the generation that they are about.
pub fn since(
    conditions: Vec<Condition>,
    autoscaler: &Autoscaler,
    now: Timestamp,
) -> Vec<Condition> {
    let before = autoscaler
        .status()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = with_transition_times(conditions, before, now);
    for condition in &mut conditions {
        condition.observed_generation = autoscaler.generation();
    }
    conditions.sort_by_key(|condition| position(&condition.type_));
    conditions
}

fn position(kind: &str) -> usize {
    ConditionKind::ALL
        .iter()
        .position(|known| known.as_str() == kind)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::child_hpa::tests::{child, stored};

    #[test]
    fn a_child_that_cannot_read_our_metrics_is_not_active() {
        let ours = |name: &str, of: &str| {
            let selector = json!({"matchLabels": {"resourceIdentifier": of}});
            json!({"type": "External", "external": {"metric": {"name": name, "selector": selector}}})
        };
        let (forecast, cron) = ("crane_autoscaling_prediction", "crane_autoscaling_cron");
        let asked = json!([
            {"type": "Resource"}, ours(forecast, "resource.cpu"), ours(cron, "cron"),
        ]);
        let read = json!({"type": "External"});
        let unread = json!({"type": ""});
        for (current, observed, missing) in [
            (json!([read, read, read]), None, &[][..]),
            (
                json!([read, unread, read]),
                None,
                &["crane_autoscaling_prediction (resource.cpu)"],
            ),
            (
                json!([read, unread, {}]),
                None,
                &[
                    "crane_autoscaling_prediction (resource.cpu)",
                    "crane_autoscaling_cron (cron)",
                ],
            ),
            (
                json!([read, read, unread]),
                Some(1),
                &["crane_autoscaling_cron (cron)"],
            ),
            // A child of an earlier spec.
            (json!([read, read, unread]), Some(0), &[]),
            (json!([read, unread]), None, &[]),
            (Value::Null, None, &[]),
            // A metric that is not ours.
            (json!([unread, read, read]), None, &[]),
        ] {
            let mut hpa = stored(&child(None));
            hpa.spec["metrics"] = asked.clone();
            hpa.status = json!({"currentMetrics": current, "observedGeneration": observed});
            let found = unread_by(&hpa).map(|one| (one.status, one.reason, one.message));
            let expected = (!missing.is_empty()).then(|| {
                let message = format!(
                    "horizontalpodautoscaler ehpa-web cannot read {}, so it does not scale down; foretide-adapter serves these: \
                     check its pods, and kubectl get apiservice v1beta1.external.metrics.k8s.io",
                    missing.join(", ")
                );
                ("False".to_owned(), "MetricAdapterUnavailable".to_owned(), message)
            });
            assert_eq!(found, expected, "{current} {observed:?}");
        }
    }
}
