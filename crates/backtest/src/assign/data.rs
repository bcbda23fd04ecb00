//! An assignment as JSON: for programs, and for `--after`, which continues from it.

use foretide_federate::Member;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Assignment;
use foretide_api::status::ledger_status;

/// Writes what [`Previous`](super::Previous) reads back.
impl Serialize for Assignment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (fleet, decision, policy) = (&self.fleet, &self.decision, self.policy());
        let clusters = self.members.iter().map(|member| cluster_json(self, member));
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
            "at": decision.at,
            "policy": policy.kind.as_str(),
            "bounds": policy.bounds,
            "total": self.total,
            "unassigned": decision.unassigned,
            "unmetFloor": decision.unmet_floor,
            "message": decision.message(),
            "clusters": clusters.collect::<Vec<_>>(),
            "order": self.order(),
            "conditions": conditions.collect::<Vec<_>>(),
            "ledger": ledger_status(&self.ledger),
        })
        .serialize(serializer)
    }
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
        "min": decided.min,
        "max": decided.max,
        "floor": decided.floor,
        "replicas": decided.replicas,
        "hold": decided.hold,
        "capacity": decided.capacity,
        "budget": entry.map(|entry| json!({ "min": entry.min, "max": entry.max, "weight": entry.weight })),
        "reasons": decided.reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>(),
        "message": decided.sentence(),
    })
}
