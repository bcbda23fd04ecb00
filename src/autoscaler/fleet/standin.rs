//! A division that is made once per generation and candidate set, until the rules are there.

use jiff::Timestamp;

use crate::domain::{
    Replicas,
    federate::{
        Action, Candidate, Entry, FleetDecision, Health, Ledger, Member, MemberDecision, Policy,
        Reason, Standing, Surplus, Total, WorkloadSource, assign, share,
    },
    workload::Mode,
};

pub(super) fn decide(
    policy: &Policy,
    total: &Total,
    members: &[Member],
    ledger: &Ledger,
    now: Timestamp,
) -> (FleetDecision, Ledger) {
    let is_candidate = |m: &&Member| {
        policy.affinity.matches(&m.profile)
            && (m.pods.is_some() || policy.source == WorkloadSource::Hub)
    };
    let candidates: Vec<Candidate> = members
        .iter()
        .filter(is_candidate)
        .map(|m| {
            let preference = policy.preferences.iter().find(|p| p.targets.matches(&m.profile));
            Candidate {
                name: m.profile.name.clone(),
                standing: Standing {
                    weight: preference.and_then(|p| p.weight),
                    priority: preference.and_then(|p| p.priority),
                    lo: Replicas::ZERO,
                    hi: policy.bounds.max,
                    elastic: false,
                },
                capacity: m.room.map(|room| room.get() + m.pods.map_or(0, |p| p.replicas.get())),
                demand: m.demand,
                hosts: m.pods.is_some_and(|p| p.replicas > Replicas::ZERO),
            }
        })
        .collect();
    let same = ledger.members.keys().eq(candidates.iter().map(|c| &c.name));
    let mut ledger = ledger.clone();
    if !same || ledger.generation != Some(policy.generation) {
        let budgets = assign(policy, policy.bounds, &candidates);
        ledger.generation = Some(policy.generation);
        ledger.unassigned = budgets.unassigned;
        ledger.members = budgets
            .members
            .iter()
            .map(|(name, b)| {
                let entry = Entry {
                    min: b.min,
                    max: b.max,
                    ..Entry::default()
                };
                (name.clone(), entry)
            })
            .collect();
    }
    let capped: Vec<Candidate> = candidates
        .into_iter()
        .map(|mut c| {
            let entry = ledger.members.get(&c.name).copied().unwrap_or_default();
            c.standing.hi = entry.max;
            c
        })
        .collect();
    let divide = |n: Option<Replicas>| n.map(|n| share(policy, n, &capped, Surplus::Keep));
    let (floors, counts) = (divide(total.floor), divide(total.desired));
    let of = |split: &Option<crate::domain::federate::Split>, i: usize| {
        let share = split.as_ref().and_then(|s| s.shares.get(i).copied());
        share.map(Replicas::new)
    };
    let decided: Vec<MemberDecision> = capped
        .iter()
        .enumerate()
        .filter_map(|(i, c)| {
            let m = members.iter().find(|m| m.profile.name == c.name)?;
            let entry = ledger.members.get(&c.name).copied().unwrap_or_default();
            let floor = of(&floors, i).unwrap_or_default().min(entry.max);
            let unknown = matches!(m.health, Health::Unknown { .. }) || m.fought_by.is_some();
            let (action, reason) = match (unknown, m.hpa) {
                (true, _) => (Action::Skip, Reason::Unknown),
                (_, None) => (Action::Create, Reason::Assigned),
                (_, Some(bounds)) if bounds != (entry.min, entry.max) => {
                    (Action::Update, Reason::Assigned)
                }
                _ => (Action::Keep, Reason::Steady),
            };
            Some(MemberDecision {
                name: c.name.clone(),
                action,
                min: entry.min.max(floor),
                max: entry.max,
                before: m.hpa,
                floor,
                replicas: of(&counts, i).filter(|_| policy.mode == Mode::Direct),
                hold: false,
                capacity: c.capacity.map(Replicas::new),
                reasons: vec![reason],
                because: String::new(),
            })
        })
        .collect();
    let decision = FleetDecision {
        at: now,
        order: (0..decided.len()).collect(),
        members: decided,
        unassigned: ledger.unassigned,
        unmet_floor: Replicas::ZERO,
        conditions: Vec::new(),
    };
    (decision, ledger)
}
