//! A fleet of three clusters, a quarter of a minute per frame: what each needs, what serves, and how much of the
//! fleet's replicas it may have.

mod world;

use std::fmt::Write as _;

use foretide_models::Sample;
use jiff::Timestamp;

use self::world::{BOUNDS, Place, STEPS, World};
use super::Reel;
use crate::{
    cli::{
        decision::{WIDTH, clock},
        output::{Paint, Screen, wrapped},
        plot::{Plot, Size},
    },
    domain::federate::{FleetDecision, Reason},
};

/// Each cluster's picture.
const SIZE: Size = Size {
    columns: 74,
    rows: 5,
};
/// The top of the scale, in replicas.
const TOP: f64 = 15.0;
/// How many lines the last move may take.
const SENTENCE: usize = 2;

/// The fleet as it was so far.
pub(super) struct Fleet {
    world: World,
    /// The same clusters with shares that stay as they were divided.
    fixed: World,
    tracks: Vec<Track>,
    /// What moved last, and when.
    moved: Option<(Timestamp, String)>,
    moves: u32,
}

/// What one cluster was like over time.
#[derive(Default)]
struct Track {
    demand: Vec<Sample>,
    ready: Vec<Sample>,
    share: Vec<Sample>,
    full: Vec<Timestamp>,
    /// Since when it cannot be reached.
    away: Option<Timestamp>,
}

// === impl Fleet ===

impl Fleet {
    pub(super) fn new() -> Self {
        let world = World::new(true);
        Self {
            tracks: world.places.iter().map(|_| Track::default()).collect(),
            world,
            fixed: World::new(false),
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

impl Reel for Fleet {
    fn advance(&mut self) {
        if self.is_over() {
            return;
        }
        let decision = self.world.advance();
        self.fixed.advance();
        let (now, minute) = (self.world.now(), self.world.minute());
        for (track, place) in self.tracks.iter_mut().zip(&self.world.places) {
            track.take(place, now, place.is_away(minute));
        }
        self.note(&decision);
    }

    fn is_over(&self) -> bool {
        self.world.step >= STEPS
    }

    fn frame(&self, screen: Screen) -> String {
        let now = self.world.now();
        let (min, max) = BOUNDS;
        let about = format!(
            "{}; {} clusters share {min} to {max} replicas",
            clock(now),
            self.tracks.len()
        );
        let mut text = format!(
            "{}  {}\n",
            screen.paint(Paint::Strong, "foretide demo"),
            screen.paint(Paint::Dim, &about)
        );
        let last = self.tracks.len().saturating_sub(1);
        for (index, (track, place)) in self.tracks.iter().zip(&self.world.places).enumerate() {
            let _infallible = writeln!(text, "{}", totals(track, place, screen));
            let drawn = track.draw((!self.is_over()).then_some(now), screen);
            // The times stand once, under the lowest picture.
            let times = drawn.trim_end().rfind('\n').filter(|_| index != last);
            text.push_str(times.and_then(|end| drawn.get(..=end)).unwrap_or(&drawn));
        }
        let _infallible = writeln!(text, "{}", legend(screen));
        let sentence = self.moved.as_ref().map(|(at, words)| {
            let text = format!("{}  {words}", at.strftime("%H:%M"));
            wrapped(&text, WIDTH, "       ")
        });
        let sentence = sentence.unwrap_or_default();
        let lines = sentence.lines().map(Some).chain(std::iter::repeat(None));
        for line in lines.take(SENTENCE) {
            let _infallible = writeln!(text, "{}", line.unwrap_or_default());
        }
        text
    }

    fn credits(&self, screen: Screen) -> String {
        let words = format!(
            "{} moves; {:.0} replica-minutes not served, {:.0} with fixed shares.",
            self.moves, self.world.missing, self.fixed.missing
        );
        let more = "docs/federation.md";
        format!(
            "{}  {}\n",
            screen.paint(Paint::Strong, &words),
            screen.paint(Paint::Dim, more)
        )
    }
}

// === impl Track ===

impl Track {
    fn take(&mut self, place: &Place, at: Timestamp, away: bool) {
        self.away = away.then(|| self.away.unwrap_or(at));
        if away {
            return;
        }
        let share = place.bounds.map_or(0, |(_, max)| max);
        let sample = |value| Sample { at, value };
        self.demand.push(sample(place.demand));
        self.ready.push(sample(f64::from(place.ready)));
        self.share.push(sample(f64::from(share)));
        if place.is_full() {
            self.full.push(at);
        }
    }

    fn draw(&self, now: Option<Timestamp>, screen: Screen) -> String {
        let label = |value: f64| format!("{value:>2.0}");
        let plot = Plot {
            history: &self.ready,
            capacity: &self.share,
            short: &self.full,
            span: Some(World::span()),
            top: Some(TOP),
            now,
            ..Plot::new(&label)
        };
        plot.render(SIZE, screen)
    }
}

/// One line about a cluster.
fn totals(track: &Track, place: &Place, screen: Screen) -> String {
    let name = screen.paint(Paint::Strong, &format!("{:<9}", place.name()));
    if let Some(since) = track.away {
        let away = format!("cannot be reached since {}", since.strftime("%H:%M"));
        return format!("{name}  {}", screen.paint(Paint::Error, &away));
    }
    let (min, max) = place.bounds.unwrap_or_default();
    let pending = match place.pending() {
        0 => String::new(),
        count => screen.paint(Paint::Warning, &format!("   {count} find no node")),
    };
    format!(
        "{name}  ready {:>2}   needed {:>4.1}   share {min} to {max:>2}{pending}",
        place.ready, place.demand
    )
}

/// What the signs mean.
fn legend(screen: Screen) -> String {
    let (area, steps, full) = if screen.unicode {
        ("⣿", "─", "╳")
    } else {
        ("::", "-", "x")
    };
    format!(
        "{area} serving   {} share of the fleet's replicas   {} full",
        screen.paint(Paint::Strong, steps),
        screen.paint(Paint::Error, full)
    )
}

/// Who may have more or fewer replicas than before, and why.
fn moves(decision: &FleetDecision) -> String {
    let moved = decision.members.iter().filter(|member| {
        let before = member.before.map(|(_, max)| max);
        // Pods have landed where they were moved to before.
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
    fn story() -> Vec<String> {
        let mut fleet = Fleet::new();
        let mut story = Vec::new();
        while !fleet.is_over() {
            let before = fleet.moves;
            fleet.advance();
            let (at, words) = fleet.moved.clone().unwrap_or_default();
            if fleet.moves > before {
                story.push(format!("{} {words}", at.strftime("%H:%M")));
            }
        }
        story
    }

    #[test]
    fn one_cluster_borrows_and_fills_up_and_another_is_lost_and_comes_back() {
        let story = story();
        let told = |from: &str, until: &str, words: [&str; 2]| {
            let then = story.iter().find(|move_| {
                let at = move_.get(..5).unwrap_or_default();
                at >= from && at < until && words.iter().all(|word| move_.contains(word))
            });
            assert!(
                then.is_some(),
                "{words:?} between {from} and {until} in {story:#?}"
            );
        };
        told(
            "09:00",
            "09:01",
            ["frankfurt: min 0 -> ", "lisbon: min 0 -> "],
        );
        told("09:10", "09:18", ["above its maximum", "oslo: max 10 -> 9"]);
        told(
            "09:18",
            "09:25",
            ["frankfurt: max 12 -> 10", "pods unschedulable"],
        );
        told("09:45", "09:50", ["oslo: ", "max 9 -> 14"]);
        told("10:02", "10:06", ["lisbon: ", "oslo: "]);
        assert!(story.len() < 12, "{story:#?}");
    }

    #[test]
    fn every_frame_is_as_high_as_the_others_and_fits_80_columns() {
        let mut fleet = Fleet::new();
        let screen = Screen {
            colour: false,
            unicode: true,
        };
        while !fleet.is_over() {
            fleet.advance();
            let frame = fleet.frame(screen);
            let narrow = frame.lines().all(|line| line.chars().count() <= 80);
            assert!(narrow && frame.lines().count() == 26, "{frame}");
        }
        assert!(fleet.credits(screen).trim_end().chars().count() <= 80);
    }
}
