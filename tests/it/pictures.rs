//! Checks that pictures and words of the docs agree with the code: the README's picture is the one of the demo; the
//! pictures of fleets show each policy's worked example in the `FederatedHPA` proposal, divided by the code itself.

use std::path::Path;

use crate::cli::run;
use foretide_chart::{Bar, Bars};
use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{
    AssignmentKind, Candidate, ConditionKind, EffectivePreference, Policy, Reason, assign,
};

/// One cluster: its name, its capacity if known, its weight, its priority.
type Cluster = (&'static str, Option<u32>, Option<u64>, Option<i64>);

/// One example: its name, policy, MIN and MAX, its subject, and the clusters.
struct Example {
    name: &'static str,
    kind: AssignmentKind,
    bounds: (u32, u32),
    clusters: &'static [Cluster],
    /// The result that the proposal states (for Aggregated, by its own total).
    printed: &'static [(u32, u32)],
}

const EXAMPLES: [Example; 5] = [
    Example {
        name: "duplicated",
        kind: AssignmentKind::Duplicated,
        bounds: (3, 10),
        clusters: &[
            ("member1", None, None, None),
            ("member2", None, None, None),
            ("member3", None, None, None),
            ("member5", None, None, None),
        ],
        printed: &[(3, 10), (3, 10), (3, 10), (3, 10)],
    },
    Example {
        name: "static-weighted",
        kind: AssignmentKind::StaticWeighted,
        bounds: (2, 10),
        clusters: &[
            ("member1", None, Some(1), None),
            ("member2", None, Some(2), None),
            ("member3", None, Some(3), None),
        ],
        printed: &[(1, 1), (1, 4), (1, 5)],
    },
    Example {
        name: "dynamic-weighted",
        kind: AssignmentKind::DynamicWeighted,
        bounds: (8, 24),
        clusters: &[
            ("member1", Some(1), None, None),
            ("member2", Some(5), None, None),
            ("member3", Some(2), None, None),
        ],
        printed: &[(1, 3), (5, 15), (2, 6)],
    },
    Example {
        name: "aggregated",
        kind: AssignmentKind::Aggregated,
        bounds: (8, 24),
        clusters: &[
            ("member1", Some(8), None, None),
            ("member2", Some(2), None, None),
            ("member3", Some(2), None, None),
        ],
        printed: &[(8, 20), (1, 2), (1, 2)],
    },
    Example {
        name: "prioritized",
        kind: AssignmentKind::Prioritized,
        bounds: (8, 24),
        clusters: &[
            ("member1", Some(20), None, Some(2)),
            ("member2", Some(1), None, Some(1)),
        ],
        printed: &[(8, 23), (1, 1)],
    },
];

impl Example {
    fn divided(&self) -> Vec<(u32, u32)> {
        let (min, max) = (Replicas::new(self.bounds.0), Replicas::new(self.bounds.1));
        let bounds = ReplicaBounds::new(min, max);
        let candidate = |(name, capacity, weight, priority): &Cluster| Candidate {
            name,
            preference: EffectivePreference {
                weight: *weight,
                priority: *priority,
                max,
                ..EffectivePreference::default()
            },
            capacity: *capacity,
            ..Candidate::default()
        };
        let candidates: Vec<_> = self.clusters.iter().map(candidate).collect();
        let budgets = assign(&Policy::new(self.kind, bounds), bounds, &candidates);
        let of = |(name, ..): &Cluster| budgets.members[*name];
        let of = |cluster| {
            let budget = of(cluster);
            (budget.min.get(), budget.max.get())
        };
        self.clusters.iter().map(of).collect()
    }

    fn about((_, capacity, weight, priority): &Cluster) -> String {
        match (weight, priority, capacity) {
            (Some(weight), ..) => format!("weight {weight}"),
            (_, Some(priority), Some(capacity)) => {
                format!("priority {priority}, capacity {capacity}")
            }
            (_, _, Some(capacity)) => format!("capacity {capacity}"),
            _ => String::new(),
        }
    }

    fn draw(&self) -> String {
        let (min, max) = self.bounds;
        let bar = |(cluster, budget): (&Cluster, (u32, u32))| Bar {
            name: cluster.0.to_owned(),
            note: Self::about(cluster),
            budget,
            capacity: cluster.1,
            ..Bar::default()
        };
        let bars = self.clusters.iter().zip(self.divided()).map(bar);
        let clusters = self.clusters.len();
        let fleet = Bars {
            title: format!(
                "{:?}: {min} to {max} replicas over {clusters} clusters",
                self.kind
            ),
            width: 640,
            bars: bars.collect(),
            ..Bars::default()
        };
        fleet.draw().svg()
    }
}

#[test]
fn every_policy_divides_as_the_proposal_states() {
    for example in EXAMPLES {
        assert_eq!(example.divided(), example.printed, "{}", example.name);
    }
}

#[test]
fn the_policy_pictures_match_the_computed_divisions() {
    for example in EXAMPLES {
        matches_picture(&format!("federation-{}.svg", example.name), &example.draw());
    }
}

#[test]
fn the_picture_of_the_readme_is_what_the_demo_draws() {
    let drawn = run("demo -o svg").unwrap().text;
    matches_picture("demo.svg", &drawn);
    assert!(drawn.contains(">0 min short<") && drawn.contains(">19 min short<"));
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains("](docs/pictures/demo.svg)"));
}

fn matches_picture(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/pictures")
        .join(name);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, drawn).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(drawn, stored, "{name} differs; UPDATE=1 draws it again");
}

#[test]
fn every_reason_and_condition_of_a_fleet_is_explained() {
    let pages = [
        include_str!("../../docs/federation.md"),
        include_str!("../../docs/federation-reference.md"),
        include_str!("../../docs/conditions.md"),
    ];
    let text = pages.concat();
    let words = Reason::ALL.iter().map(|reason| reason.as_str());
    let words = words.chain(ConditionKind::ALL.iter().map(|kind| kind.as_str()));
    let missing: Vec<_> = words
        .filter(|word| !text.contains(&format!("`{word}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
