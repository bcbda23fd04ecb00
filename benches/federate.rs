//! What dividing costs: a thousand fleets of a hundred members each, decided once; in the steady state and after a
//! change of the spec. The bar is 200 us of CPU for one fleet of a hundred members.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench may stop on input of its own that is wrong, and reports to people"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foretide::domain::federate::{
    Affinity, Health, Kind, Ledger, Member, Pods, Policy, Preference, Profile, Total, decide,
};
use foretide::domain::{ReplicaBounds, Replicas};
use jiff::{SignedDuration, Timestamp};

const KINDS: [(&str, Kind); 4] = [
    ("Aggregated", Kind::Aggregated),
    ("StaticWeighted", Kind::StaticWeighted),
    ("DynamicWeighted", Kind::DynamicWeighted),
    ("Prioritized", Kind::Prioritized),
];

fn now() -> Timestamp {
    Timestamp::from_second(1_772_712_000).expect("a time")
}

fn policy(kind: Kind, members: u32) -> Policy {
    let preference = |at: u32| Preference {
        targets: Affinity {
            names: vec![format!("member-{at:03}")],
            ..Affinity::default()
        },
        weight: Some(u64::from(1 + at % 7)),
        priority: Some(i64::from(at % 5)),
        ..Preference::default()
    };
    let bounds = ReplicaBounds::new(Replicas::new(2 * members), Replicas::new(20 * members));
    Policy {
        preferences: (0..members).map(preference).collect(),
        ..Policy::new(kind, bounds)
    }
}

fn member(at: u32) -> Member {
    let replicas = Replicas::new(3 + at % 9);
    Member {
        profile: Profile {
            name: format!("member-{at:03}"),
            ..Profile::default()
        },
        health: Health::Ready,
        taints: Vec::new(),
        pods: Some(Pods {
            replicas,
            ready: replicas,
            ..Pods::default()
        }),
        hpa: None,
        desired: Some(replicas),
        demand: Some(replicas.as_f64()),
        capacity: Some(Replicas::new(replicas.get() + 10 + at % 13)),
        observed: Some(now()),
        fought_by: None,
        foreign: false,
    }
}

/// A fleet that was assigned an hour ago.
struct Case {
    policy: Policy,
    members: Vec<Member>,
    total: Total,
    ledger: Ledger,
}

fn case(kind: Kind, count: u32) -> Case {
    let policy = policy(kind, count);
    let mut members: Vec<_> = (0..count).map(member).collect();
    let total = Total {
        demand: Some(members.iter().filter_map(|m| m.demand).sum()),
        floor: Some(Replicas::new(5 * count)),
        desired: None,
    };
    let mut ledger = Ledger::default();
    for minutes in [60, 45, 30, 15] {
        let when = now() - SignedDuration::from_mins(minutes);
        for member in &mut members {
            member.observed = Some(when);
        }
        let (decision, next) = decide(&policy, &total, &members, &ledger, when);
        for (member, decided) in members.iter_mut().zip(&decision.members) {
            member.hpa = (decided.max > Replicas::ZERO).then_some((decided.min, decided.max));
        }
        ledger = next;
    }
    for member in &mut members {
        member.observed = Some(now());
    }
    Case {
        policy,
        members,
        total,
        ledger,
    }
}

fn run(case: &Case) {
    let Case {
        policy,
        members,
        total,
        ledger,
    } = case;
    black_box(decide(policy, total, black_box(members), ledger, now()));
}

fn changed(case: &mut Case) {
    case.policy.generation = 2;
}

fn decisions(c: &mut Criterion) {
    for (name, kind) in KINDS {
        let mut group = c.benchmark_group(format!("federate/{name}"));
        for members in [10, 30, 100, 300] {
            let mut case = case(kind, members);
            group.throughput(Throughput::Elements(u64::from(members)));
            group.bench_function(format!("{members} members, steady"), |b| {
                b.iter(|| run(&case));
            });
            changed(&mut case);
            group.bench_function(format!("{members} members, reassigned"), |b| {
                b.iter(|| run(&case));
            });
        }
        group.finish();
    }
    thousand(c);
}

/// The bar: a thousand objects.
fn thousand(c: &mut Criterion) {
    let mut group = c.benchmark_group("federate");
    group.sample_size(10);
    group.throughput(Throughput::Elements(1_000));
    let mut cases: Vec<_> = (0..1_000)
        .zip(KINDS.into_iter().cycle())
        .map(|(_, (_, kind))| case(kind, 100))
        .collect();
    group.bench_function("1,000 fleets of 100 members, steady", |b| {
        b.iter(|| cases.iter().for_each(run));
    });
    cases.iter_mut().for_each(changed);
    group.bench_function("1,000 fleets of 100 members, reassigned", |b| {
        b.iter(|| cases.iter().for_each(run));
    });
    group.finish();
    println!("the bar is 200 ms of CPU for 1,000 fleets of 100 members");
}

criterion_group!(benches, decisions);
criterion_main!(benches);
