//! The frames of a fleet of three clusters, one per quarter of a minute: demand, serving pods and share of each
//! cluster.

pub(super) mod simulation;

use std::fmt::Write as _;

use foretide_chart::Chart;
use foretide_domain::{
    ReplicaBounds,
    federate::{FleetDecision, Reason},
    words::counted,
};
use foretide_models::Sample;
use jiff::Timestamp;

use self::simulation::{BOUNDS, Cluster, FleetSimulation, STEPS};
use super::{Animation, heading, sentence_lines};
use crate::cli::{
    output::{Paint, Screen, Size, flowed, wrapped},
    plot::Plot,
};

/// What each picture leaves of the width for its scale.
const SCALE: usize = 5;
/// The lowest and the highest picture, in rows.
const LOWEST: usize = 2;
const HIGHEST: usize = 10;
/// The top of the scale, in replicas.
const TOP: f64 = 15.0;

/// The fleet and its history so far.
pub(super) struct FleetAnimation {
    simulation: FleetSimulation,
    /// The same clusters with fixed shares.
    fixed: FleetSimulation,
    histories: Vec<ClusterHistory>,
    /// What moved last, and when.
    moved: Option<(Timestamp, String)>,
    moves: u32,
}

/// The history of one cluster.
#[derive(Default)]
struct ClusterHistory {
    demand: Vec<Sample>,
    ready: Vec<Sample>,
    share: Vec<Sample>,
    full: Vec<Timestamp>,
    /// Since when it cannot be reached.
    unreachable_since: Option<Timestamp>,
}

// === impl FleetAnimation ===

impl FleetAnimation {
    pub(super) fn new() -> Self {
        let simulation = FleetSimulation::new(true);
        Self {
            histories: simulation
                .clusters
                .iter()
                .map(|_| ClusterHistory::default())
                .collect(),
            simulation,
            fixed: FleetSimulation::new(false),
            moved: None,
            moves: 0,
        }
    }

    fn note(&mut self, decision: &FleetDecision) {
        let words = moves(decision);
        if !words.is_empty() {
            self.moved = Some((decision.at, words));
            self.moves += 1;
        }
    }
}

impl Animation for FleetAnimation {
    fn advance(&mut self) {
        if self.is_over() {
            return;
        }
        let decision = self.simulation.advance();
        self.fixed.advance();
        let (now, minute) = (self.simulation.now(), self.simulation.minute());
        for (history, cluster) in self.histories.iter_mut().zip(&self.simulation.clusters) {
            history.record(cluster, now, cluster.is_unreachable(minute));
        }
        self.note(&decision);
    }

    fn is_over(&self) -> bool {
        self.simulation.step >= STEPS
    }

    fn frame(&self, size: Size, screen: Screen) -> String {
        let now = self.simulation.now();
        let (min, max) = BOUNDS;
        let clusters = self.histories.len();
        let about = format!("{clusters} clusters share {min} to {max} replicas");
        let heading = heading(now, &about, size.columns, screen);
        let legend = legend(size.columns, screen);
        let last_move = self.moved.as_ref();
        let moved = last_move.map(|(at, words)| format!("{}  {words}", at.strftime("%H:%M")));
        let moved = moved.unwrap_or_default();
        let sentence = sentence_lines(&moved, size.columns, "       ", self.is_over());
        // The heading, the totals and the axis of each picture, and their times.
        let text = 1 + 2 * clusters + 1 + legend.lines().count();
        // In a still picture on a low terminal the last move is the first thing to leave out.
        let least = text + LOWEST * clusters + sentence.lines().count();
        let sentence = if self.is_over() && least > size.rows {
            String::new()
        } else {
            sentence
        };
        let left = size.rows.saturating_sub(text + sentence.lines().count());
        let rows = left / clusters.max(1);
        let picture = Size {
            columns: size.columns.saturating_sub(SCALE),
            rows: rows.clamp(LOWEST, HIGHEST),
        };
        let pictures = self.pictures(picture, screen);
        format!("{heading}\n{pictures}{legend}\n{sentence}")
    }

    fn summary(&self, size: Size, screen: Screen) -> String {
        let words = format!(
            "{}; {:.0} replica-minutes not served, {:.0} with fixed shares.",
            counted(self.moves, "move"),
            self.simulation.missing,
            self.fixed.missing
        );
        let more = screen.paint(Paint::Dim, "docs/federation.md");
        let words = screen.paint(Paint::Strong, &wrapped(&words, size.columns, ""));
        format!("{}\n", flowed(&[words, more], size.columns))
    }

    fn chart(&self) -> Option<Chart> {
        None
    }
}

// === pictures of FleetAnimation ===

impl FleetAnimation {
    /// One picture below the other.
    fn pictures(&self, size: Size, screen: Screen) -> String {
        let now = (!self.is_over()).then(|| self.simulation.now());
        let mut text = String::new();
        let last = self.histories.len().saturating_sub(1);
        let clusters = self.histories.iter().zip(&self.simulation.clusters);
        for (index, (history, cluster)) in clusters.enumerate() {
            let _infallible = writeln!(text, "{}", totals(history, cluster, screen));
            let drawn = history.draw(now, size, screen);
            // The times are shown once, under the lowest picture.
            let times = drawn.trim_end().rfind('\n').filter(|_| index != last);
            text.push_str(times.and_then(|end| drawn.get(..=end)).unwrap_or(&drawn));
        }
        text
    }
}

// === impl ClusterHistory ===

impl ClusterHistory {
    fn record(&mut self, cluster: &Cluster, at: Timestamp, unreachable: bool) {
        self.unreachable_since = unreachable.then(|| self.unreachable_since.unwrap_or(at));
        if unreachable {
            return;
        }
        let share = cluster.bounds.map_or(0, |bounds| bounds.max.get());
        let sample = |value| Sample { at, value };
        self.demand.push(sample(cluster.demand));
        self.ready.push(sample(f64::from(cluster.ready)));
        self.share.push(sample(f64::from(share)));
        if cluster.is_full() {
            self.full.push(at);
        }
    }

    fn draw(&self, now: Option<Timestamp>, size: Size, screen: Screen) -> String {
        let label = |value: f64| format!("{value:>2.0}");
        let plot = Plot {
            history: &self.ready,
            capacity: &self.share,
            short: &self.full,
            span: Some(FleetSimulation::span()),
            top: Some(TOP),
            now,
            ..Plot::new(&label)
        };
        plot.render(size, screen)
    }
}

/// One line about a cluster.
fn totals(history: &ClusterHistory, cluster: &Cluster, screen: Screen) -> String {
    let name = screen.paint(Paint::Strong, &format!("{:<9}", cluster.name()));
    if let Some(since) = history.unreachable_since {
        let unreachable = format!("unreachable since {}", since.strftime("%H:%M"));
        return format!("{name}  {}", screen.paint(Paint::Error, &unreachable));
    }
    let ReplicaBounds { min, max } = cluster.bounds.unwrap_or_default();
    let pending = match cluster.pending() {
        0 => String::new(),
        count => screen.paint(Paint::Warning, &format!("   {count} unschedulable")),
    };
    format!(
        "{name}  ready {:>2}   needed {:>4.1}   share {min} to {max:>2}{pending}",
        cluster.ready, cluster.demand
    )
}

/// What the signs mean.
fn legend(width: usize, screen: Screen) -> String {
    let (area, steps, full) = if screen.unicode {
        ("⣿", "─", "╳")
    } else {
        ("::", "-", "x")
    };
    let signs = [
        format!("{area} serving"),
        format!(
            "{} share of the fleet's replicas",
            screen.paint(Paint::Strong, steps)
        ),
        format!("{} full", screen.paint(Paint::Error, full)),
    ];
    flowed(&signs, width)
}

/// The clusters whose maximum changes, and why.
fn moves(decision: &FleetDecision) -> String {
    let moved = decision.members.iter().filter(|member| {
        let before = member.before.map(|bounds| bounds.max);
        // These reasons only complete an earlier move.
        let landed = matches!(
            member.reasons.first(),
            Some(Reason::Steady | Reason::Floor | Reason::Landed)
        );
        member.action.writes() && before != Some(member.max) && !landed
    });
    let moved: Vec<_> = moved
        .map(|member| format!("{}: {}", member.name, member.sentence()))
        .collect();
    moved.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every move, in its order.
    fn all_moves() -> Vec<String> {
        let mut fleet = FleetAnimation::new();
        let mut moves = Vec::new();
        while !fleet.is_over() {
            let before = fleet.moves;
            fleet.advance();
            let (at, words) = fleet.moved.clone().unwrap_or_default();
            if fleet.moves > before {
                moves.push(format!("{} {words}", at.strftime("%H:%M")));
            }
        }
        moves
    }

    #[test]
    fn one_cluster_borrows_share_and_another_is_lost_and_returns() {
        let moves = all_moves();
        let expect_move = |from: &str, until: &str, words: [&str; 2]| {
            let then = moves.iter().find(|move_| {
                let at = move_.get(..5).unwrap_or_default();
                at >= from && at < until && words.iter().all(|word| move_.contains(word))
            });
            assert!(
                then.is_some(),
                "{words:?} between {from} and {until} in {moves:#?}"
            );
        };
        expect_move(
            "09:00",
            "09:01",
            ["frankfurt: min 0 -> ", "lisbon: min 0 -> "],
        );
        expect_move("09:10", "09:18", ["above its maximum", "oslo: max 10 -> 9"]);
        expect_move(
            "09:18",
            "09:25",
            ["frankfurt: max 12 -> 10", "pods unschedulable"],
        );
        expect_move("09:45", "09:50", ["oslo: ", "max 9 -> 14"]);
        expect_move("10:02", "10:06", ["lisbon: ", "oslo: "]);
        assert!(moves.len() < 12, "{moves:#?}");
    }
}
