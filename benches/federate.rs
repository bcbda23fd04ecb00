//! The cost of dividing: one decision for each of a thousand fleets of a hundred members, in the steady state and after
//! a change of the spec. The limit is 200 us of CPU for one fleet of a hundred members.
//!
//! criterion reports wall-clock times, which other load on the machine lengthens. The table after them is CPU time, as
//! Linux accounts it to the thread, and how it grows with the number of members.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench may panic on its own wrong input, and prints its report"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{
    Affinity, AssignmentKind, Health, Ledger, Member, Pods, Policy, Preference, Profile, Total,
    decide,
};
use jiff::{SignedDuration, Timestamp};

const KINDS: [(&str, AssignmentKind); 4] = [
    ("Aggregated", AssignmentKind::Aggregated),
    ("StaticWeighted", AssignmentKind::StaticWeighted),
    ("DynamicWeighted", AssignmentKind::DynamicWeighted),
    ("Prioritized", AssignmentKind::Prioritized),
];

const MEMBERS: [u32; 4] = [10, 30, 100, 300];

fn now() -> Timestamp {
    Timestamp::from_second(1_772_712_000).expect("a time")
}

fn policy(kind: AssignmentKind, members: u32) -> Policy {
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
        ..Member::default()
    }
}

/// A fleet that was assigned an hour ago.
struct Case {
    policy: Policy,
    members: Vec<Member>,
    total: Total,
    ledger: Ledger,
}

fn case(kind: AssignmentKind, count: u32) -> Case {
    let policy = policy(kind, count);
    let mut members: Vec<_> = (0..count).map(member).collect();
    let total = Total {
        demand: Some(members.iter().filter_map(|m| m.demand).sum()),
        floor: Some(Replicas::new(5 * count)),
        desired: Some(Replicas::new(5 * count)),
    };
    let mut ledger = Ledger::default();
    for minutes in [60, 45, 30, 15] {
        let when = now() - SignedDuration::from_mins(minutes);
        for member in &mut members {
            member.observed = Some(when);
        }
        let (decision, next) = decide(&policy, &total, &members, &ledger, when);
        for (member, decided) in members.iter_mut().zip(&decision.members) {
            member.hpa = (decided.max > Replicas::ZERO)
                .then_some(ReplicaBounds::new(decided.min, decided.max));
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
        for members in MEMBERS {
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

/// The limit: a thousand objects.
fn thousand(c: &mut Criterion) {
    let mut group = c.benchmark_group("federate");
    group.sample_size(10);
    group.throughput(Throughput::Elements(1_000));
    let mut cases = thousand_cases();
    group.bench_function("1,000 fleets of 100 members, steady", |b| {
        b.iter(|| cases.iter().for_each(run));
    });
    cases.iter_mut().for_each(changed);
    group.bench_function("1,000 fleets of 100 members, reassigned", |b| {
        b.iter(|| cases.iter().for_each(run));
    });
    group.finish();
}

fn thousand_cases() -> Vec<Case> {
    let kinds = KINDS.into_iter().cycle().take(1_000);
    kinds.map(|(_, kind)| case(kind, 100)).collect()
}

/// CPU time of this thread so far, in seconds; `None` where the system does not report it.
fn cpu_seconds() -> Option<f64> {
    let accounted = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = accounted.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// CPU seconds of one run: the least of five rounds, of a fifth of a second or more each.
fn cost(run: impl Fn()) -> Option<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let (from, mut runs) = (cpu_seconds()?, 0.0);
        let spent = loop {
            for _ in 0..16 {
                run();
            }
            runs += 16.0;
            match cpu_seconds()? - from {
                spent if spent < 0.2 => {}
                spent => break spent,
            }
        };
        least = least.min(spent / runs);
    }
    Some(least)
}

/// The exponent `b` of the law `cost = a members^b` that fits best: the slope of the line through the logarithms.
fn growth(costs: &[f64]) -> f64 {
    let points = MEMBERS.iter().zip(costs);
    let points: Vec<_> = points.map(|(n, c)| (f64::from(*n).ln(), c.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / 4.0;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    covariance / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>()
}

/// Prints the cost of one fleet by the number of its members, and of a thousand fleets.
fn report() -> Option<()> {
    println!("CPU time of one decision, in us, by members");
    println!("{:30}      10      30     100     300  growth", "");
    for (name, kind) in KINDS {
        for (state, reassigned) in [("steady", false), ("reassigned", true)] {
            let mut costs = Vec::new();
            for members in MEMBERS {
                let mut case = case(kind, members);
                case.policy.generation += i64::from(reassigned);
                costs.push(cost(|| run(&case))?);
            }
            let columns = costs.iter().map(|cost| format!("{:8.1}", cost * 1e6));
            let columns = columns.collect::<Vec<_>>().concat();
            let named = format!("{name}, {state}");
            println!("{named:30}{columns}   n^{:.2}", growth(&costs));
        }
    }
    let mut cases = thousand_cases();
    let steady = cost(|| cases.iter().for_each(run))?;
    cases.iter_mut().for_each(changed);
    let reassigned = cost(|| cases.iter().for_each(run))?;
    println!(
        "1,000 fleets of 100 members: {:.0} ms of CPU steady, {:.0} ms reassigned; the limit is 200 ms",
        steady * 1e3,
        reassigned * 1e3
    );
    Some(())
}

criterion_group!(benches, decisions);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    // `cargo test --benches` runs this too, and must not take minutes.
    if std::env::args().any(|argument| argument == "--bench") && report().is_none() {
        println!("no CPU times: /proc/thread-self/schedstat is not there");
    }
}
