//! An assignment as JSON: for programs, and for `--after`, which continues from it.

use foretide_domain::Replicas;
use foretide_federate::Member;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Assignment;
use foretide_api::status::ledger_status;

/// Writes what [`Previous`](super::Previous) reads back.
impl Serialize for Assignment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json(self).serialize(serializer)
    }
}

fn json(assignment: &Assignment) -> Value {
    let Assignment {
        fleet,
        total,
        decision,
        ledger,
        ..
    } = assignment;
    let policy = &fleet.spec.policy;
    let conditions = decision.conditions.iter().map(|condition| {
        json!({
            "type": condition.kind.as_str(),
            "status": condition.status.as_str(),
            "reason": condition.reason,
            "message": condition.message,
        })
    });
    json!({
        "metadata": { "name": fleet.name, "namespace": fleet.spec.workload.target.namespace },
        "at": decision.at.to_string(),
        "policy": policy.kind.as_str(),
        "bounds": { "min": policy.bounds.min.get(), "max": policy.bounds.max.get() },
        "total": {
            "demand": total.demand,
            "floor": total.floor.map(Replicas::get),
            "desired": total.desired.map(Replicas::get),
        },
        "unassigned": decision.unassigned.get(),
        "unmetFloor": decision.unmet_floor.get(),
        "message": decision.message(),
        "clusters": assignment.members.iter().map(|member| cluster_json(assignment, member)).collect::<Vec<_>>(),
        "order": assignment.order(),
        "conditions": conditions.collect::<Vec<_>>(),
        "ledger": ledger_status(ledger),
    })
}

fn cluster_json(assignment: &Assignment, member: &Member) -> Value {
    let name = &member.profile.name;
    let Some(decided) = assignment.decision.member(name) else {
        return json!({ "name": name, "candidate": false, "reasons": ["NotSelected"] });
    };
    let entry = assignment.ledger.members.get(name);
    json!({
        "name": name,
        "candidate": entry.is_some(),
        "action": decided.action.as_str(),
        "min": decided.min.get(),
        "max": decided.max.get(),
        "floor": decided.floor.get(),
        "replicas": decided.replicas.map(Replicas::get),
        "hold": decided.hold,
        "capacity": decided.capacity.map(Replicas::get),
        "budget": entry.map(|entry| json!({ "min": entry.min.get(), "max": entry.max.get(), "weight": entry.weight })),
        "reasons": decided.reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>(),
        "message": decided.sentence(),
    })
}
