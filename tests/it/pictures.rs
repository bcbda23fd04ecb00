//! Checks that pictures and words of the docs agree with the code: the README's picture is what the demo draws; the
//! pictures of fleets show each policy's worked example in the `FederatedHPA` proposal, divided by the
//! code itself.

use std::{fmt::Write as _, path::Path};

use crate::cli::run;
use foretide_domain::{
    ReplicaBounds, Replicas,
    federate::{
        AssignmentKind, Candidate, ConditionKind, EffectivePreference, Policy, Reason, assign,
    },
};

/// One cluster: its name, its capacity if known, its weight, its priority.
type Cluster = (&'static str, Option<u32>, Option<u64>, Option<i64>);

/// One example: its name, policy, MIN and MAX, what it shows, and the clusters.
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
            (_, Some(priority), Some(room)) => format!("priority {priority}, capacity {room}"),
            (_, _, Some(room)) => format!("capacity {room}"),
            _ => String::new(),
        }
    }

    fn draw(&self) -> String {
        let (min, max) = self.bounds;
        let divided = self.divided();
        let highest = divided.iter().map(|(_, max)| *max).max().unwrap_or(1);
        let step = if highest > 12 { 5 } else { 2 };
        let top = (highest + step / 2 + 1).div_ceil(step) * step;
        let width = LEFT + SLOT * self.clusters.len() + 24;
        let y = |count: u32| BOTTOM - f64::from(count) / f64::from(top) * HEIGHT;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} 300\" width=\"{width}\" height=\"300\" \
             font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"12\" fill=\"#7d8590\" \
             role=\"img\"><title>{:?}: minReplicas {min} and maxReplicas {max} over {} clusters</title>\n",
            self.kind,
            self.clusters.len()
        );
        legend(
            &mut svg,
            self.clusters.iter().any(|cluster| cluster.1.is_some()),
        );
        for count in (0..=top).step_by(usize::try_from(step).unwrap()) {
            let y = y(count);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#7d8590\" stroke-opacity=\".3\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{count}</text>",
                width - 12,
                LEFT - 8,
                y + 4.0
            )
            .unwrap();
        }
        let middle = BOTTOM - HEIGHT / 2.0;
        writeln!(
            svg,
            "<text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">replicas</text>"
        )
        .unwrap();
        for (index, (cluster, (least, most))) in self.clusters.iter().zip(divided).enumerate() {
            let x = LEFT + SLOT * index + (SLOT - BAR) / 2;
            bar(
                &mut svg,
                x,
                (y(0), y(least), y(most)),
                cluster.1.filter(|room| *room <= top).map(y),
            );
            let centre = x + BAR / 2;
            let about = Self::about(cluster);
            writeln!(
                svg,
                "<text x=\"{centre}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"600\">{least} to {most}</text>\
                 <text x=\"{centre}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
                 <text x=\"{centre}\" y=\"{:.1}\" text-anchor=\"middle\">{about}</text>",
                y(most) - 7.0,
                BOTTOM + 18.0,
                cluster.0,
                BOTTOM + 34.0
            )
            .unwrap();
        }
        svg.push_str("</svg>\n");
        svg
    }
}

const LEFT: usize = 56;
const SLOT: usize = 150;
const BAR: usize = 56;
const BOTTOM: f64 = 250.0;
const HEIGHT: f64 = 190.0;

fn bar(svg: &mut String, x: usize, (zero, least, most): (f64, f64, f64), room: Option<f64>) {
    for (high, opacity) in [(most, ".35"), (least, "1")] {
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{high:.1}\" width=\"{BAR}\" height=\"{:.1}\" fill=\"#4c8dff\" fill-opacity=\"{opacity}\"/>",
            zero - high
        )
        .unwrap();
    }
    if let Some(room) = room {
        writeln!(
            svg,
            "<path d=\"M{} {room:.1}h{}\" stroke=\"#d9822b\" stroke-width=\"2\" stroke-dasharray=\"5 3\"/>",
            x - 10,
            BAR + 20
        )
        .unwrap();
    }
}

fn legend(svg: &mut String, rooms: bool) {
    writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"14\" width=\"12\" height=\"12\" fill=\"#4c8dff\"/><text x=\"{}\" y=\"24\">minReplicas</text>\
         <rect x=\"{}\" y=\"14\" width=\"12\" height=\"12\" fill=\"#4c8dff\" fill-opacity=\".35\"/><text x=\"{}\" y=\"24\">up to maxReplicas</text>",
        LEFT + 18,
        LEFT + 110,
        LEFT + 128
    )
    .unwrap();
    if rooms {
        writeln!(
            svg,
            "<path d=\"M{} 20h20\" stroke=\"#d9822b\" stroke-width=\"2\" stroke-dasharray=\"5 3\"/><text x=\"{}\" y=\"24\">room</text>",
            LEFT + 235,
            LEFT + 261
        )
        .unwrap();
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
    ];
    let text = pages.concat();
    let words = Reason::ALL.iter().map(|reason| reason.as_str());
    let words = words.chain(ConditionKind::ALL.iter().map(|kind| kind.as_str()));
    let missing: Vec<_> = words
        .filter(|word| !text.contains(&format!("`{word}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
