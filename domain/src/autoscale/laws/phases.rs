//! Laws that hold when decisions and the child's passes come at different times: ranges, missing data, rate
//! limits, stabilization, and the delay until cron and bounds are followed.

use std::cmp::Ordering;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, policy, scenario};
use super::world::{Edit, Metrics, Scenario, TICK, World, at, tick_at};
use crate::hpa::{Behavior, Direction, Log, ScalingPolicy, ScalingRules};
use crate::workload::{FloorSources, Mode};
use crate::{ReplicaBounds, Replicas};

/// Seconds from the beginning of a tick to the decision and to the child's pass.
type Phases = (i64, i64);

/// One change of the count, by Foretide in Direct and by the child in Delegated.
#[derive(Clone, Copy, Debug)]
struct Change {
    second: i64,
    from: Replicas,
    to: Replicas,
    /// The bounds in force for the writer.
    bounds: ReplicaBounds,
}

/// The events of a run.
#[derive(Debug, Default)]
struct Trace {
    changes: Vec<Change>,
    /// The recommendations of the writer, by second.
    readings: Vec<(i64, Replicas)>,
    /// The largest proposal of forecast and cron, by second.
    floors: Vec<(i64, Replicas)>,
    /// Count after every pass, by second.
    counts: Vec<(i64, Replicas)>,
    /// The target of the open cron windows, and the bounds, by second.
    wanted: Vec<(i64, Replicas, ReplicaBounds)>,
}

impl Trace {
    fn of(scenario: &Scenario, mode: Mode, (ours, child_phase): Phases) -> Self {
        let mut trace = Self::default();
        let mut world = World::new(scenario, mode);
        for tick in 0..TICKS {
            world.edit(tick);
            let start = i64::try_from(tick).unwrap() * TICK;
            let (us, child) = (start + ours, start + child_phase);
            if ours <= child_phase {
                trace.our_pass(&mut world, us);
                trace.child_pass(&mut world, child);
            } else {
                trace.child_pass(&mut world, child);
                trace.our_pass(&mut world, us);
            }
        }
        trace
    }

    fn our_pass(&mut self, world: &mut World, second: i64) {
        let from = world.count;
        let decision = world.decide(at(second));
        let raw = decision.floor_lane.raw.unwrap_or_default();
        self.floors.push((second, raw));
        let active = world
            .workload
            .floor
            .windows
            .iter()
            .filter(|window| window.state(at(second)).active);
        let cron = active
            .map(|window| Replicas::new(window.target_replicas()))
            .max();
        self.wanted
            .push((second, cron.unwrap_or_default(), world.workload.bounds));
        if world.child.is_none() {
            let reading = decision.observed.and_then(|pass| pass.recommended);
            self.readings
                .extend(reading.map(|reading| (second, reading)));
            self.change(world, second, from, world.workload.bounds);
        }
        self.counts.push((second, world.count));
    }

    fn child_pass(&mut self, world: &mut World, second: i64) {
        let from = world.count;
        let reading = world.child_pass(at(second));
        self.readings
            .extend(reading.map(|reading| (second, reading)));
        if let Some(bounds) = world.child.as_ref().map(|child| child.bounds) {
            self.change(world, second, from, bounds);
        }
        self.counts.push((second, world.count));
    }

    fn change(&mut self, world: &World, second: i64, from: Replicas, bounds: ReplicaBounds) {
        if world.count != from {
            self.changes.push(Change {
                second,
                from,
                to: world.count,
                bounds,
            });
        }
    }

    /// The count `period` before `second`, by the changes of the trace.
    fn count_before(&self, start: Replicas, second: i64, period: i64) -> Replicas {
        let mut past = self
            .changes
            .iter()
            .rev()
            .filter(|c| c.second <= second - period);
        past.next().map_or(start, |c| c.to)
    }
}

fn phases() -> impl Strategy<Value = Phases> {
    (0..TICK, 0..TICK).prop_filter("two phases", |(ours, child_phase)| ours != child_phase)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![2 => mode_with_floor(), 1 => Just(Mode::Metric)]
}

fn mode_with_floor() -> impl Strategy<Value = Mode> {
    prop_oneof![1 => Just(Mode::Direct), 2 => Just(Mode::Delegated)]
}

/// A behavior with exactly one written policy per direction.
fn one_policy_each() -> impl Strategy<Value = Behavior> {
    let rules = |window| {
        policy().prop_map(move |policy: ScalingPolicy| ScalingRules {
            window,
            select: None,
            policies: Some(vec![policy]),
            tolerance: None,
        })
    };
    (rules(None), rules(Some(SignedDuration::ZERO))).prop_map(|(scale_up, scale_down)| Behavior {
        scale_up,
        scale_down,
    })
}

/// The last count that one policy allows after a count of `start` at the beginning of its period.
fn reach(behavior: &Behavior, direction: Direction, start: Replicas) -> Replicas {
    match direction {
        Direction::Up => behavior.up_limit(start, &Log::default(), at(0)),
        Direction::Down => behavior.down_limit(start, &Log::default(), at(0)),
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_count_is_only_ever_set_within_the_bounds(
        scenario in scenario(Up::Anything), mode in mode(), phases in phases(),
    ) {
        for change in Trace::of(&scenario, mode, phases).changes {
            prop_assert!(change.bounds.contains(change.to), "{:?}", change);
        }
    }

    #[test]
    fn missing_data_never_lowers_a_count(
        scenario in scenario(Up::Anything), mode in mode(), phases in phases(),
    ) {
        for change in Trace::of(&scenario, mode, phases).changes {
            let tick = usize::try_from(change.second / TICK).unwrap();
            let lowered = scenario.is_out(tick) && change.to < change.from;
            prop_assert!(!lowered || change.from > change.bounds.max, "{:?}", change);
        }
    }

    #[test]
    fn one_policy_per_direction_bounds_the_net_change_of_its_period(
        scenario in scenario(Up::Silent), behavior in one_policy_each(),
        mode in mode(), phases in phases(),
    ) {
        let scenario = Scenario { behavior: Some(behavior.clone()), edits: vec![], ..scenario };
        let trace = Trace::of(&scenario, mode, phases);
        for (i, change) in trace.changes.iter().enumerate() {
            let before = Trace { changes: trace.changes[..i].to_vec(), ..Trace::default() };
            let direction = match change.to.cmp(&change.from) {
                Ordering::Less => Direction::Down,
                _ => Direction::Up,
            };
            let period = behavior.policies(direction)[0].period.as_secs();
            let start = before.count_before(Replicas::new(scenario.start), change.second, period);
            let limit = reach(&behavior, direction, start);
            let kept = match direction {
                Direction::Up => change.to <= limit.max(change.from),
                Direction::Down => change.to >= limit.min(change.from),
            };
            prop_assert!(kept, "{:?}: from {} the limit is {}\n{:?}", change, start, limit, trace.changes);
        }
    }

    #[test]
    fn a_scale_down_waits_for_every_value_in_its_window(
        scenario in scenario(Up::Silent), mode in mode(), phases in phases(),
    ) {
        let scenario = Scenario { edits: vec![], ..scenario };
        let trace = Trace::of(&scenario, mode, phases);
        let written = scenario.behavior.as_ref().and_then(|b| b.scale_down.window);
        let window = written.map_or(300, |w| w.as_secs());
        for change in trace.changes.iter().filter(|c| c.to < c.from) {
            let entries = trace.readings.iter().chain(&trace.floors);
            let recent = entries.filter(|(s, _)| *s <= change.second && change.second - s < window);
            let highest = recent.map(|(_, count)| *count).max().unwrap_or_default();
            let least = highest.min(change.bounds.max).min(change.from);
            prop_assert!(change.to >= least, "{:?} below {}\n{:?}", change, least, trace);
        }
    }

    #[test]
    fn a_delegated_pass_never_scales_down_below_the_count_without_forecast_and_cron(
        scenario in scenario(Up::Silent),
    ) {
        let mut world = World::new(&scenario, Mode::Delegated);
        for tick in 0..TICKS {
            world.edit(tick);
            let (now, before) = (tick_at(tick), world.count);
            let mut without = world.clone();
            without.workload.floor = FloorSources::default();
            let without = without.decide(now).desired;
            world.decide(now);
            world.child_pass(now);
            prop_assert!(world.count >= before.min(without), "{} < {}", world.count, without);
        }
    }

    #[test]
    fn cron_and_bounds_are_followed_within_31_seconds(
        scenario in scenario(Up::Silent), mode in mode_with_floor(), phases in phases(),
    ) {
        const SOON: i64 = 31;
        let trace = Trace::of(&scenario, mode, phases);
        let by_hand = scenario.edits.iter().filter(|(_, edit)| matches!(edit, Edit::Scale(_)));
        let by_hand: Vec<_> =
            by_hand.map(|(tick, _)| i64::try_from(*tick).unwrap() * TICK).collect();
        for (second, count) in &trace.counts {
            let recent = || trace.wanted.iter().filter(|(s, ..)| s <= second && second - s <= SOON);
            let settled = *second > SOON + TICK
                && !by_hand.iter().any(|s| s <= second && second - s <= SOON)
                && *count > Replicas::ZERO;
            let least = recent().map(|(_, cron, bounds)| bounds.clamp(*cron)).min();
            let most = recent().map(|(.., bounds)| bounds.max).max();
            if let (true, Some(least), Some(most)) = (settled, least, most) {
                prop_assert!(*count >= least && *count <= most, "{} at {}\n{:?}", count, second, trace);
            }
        }
    }

    #[test]
    fn settled_counts_do_not_depend_on_mode_or_phase(
        scenario in scenario(Up::Silent), phases in phases(), other in phases(),
    ) {
        // Within the tolerance the count depends on the earlier one, so the forecast decides it here.
        let level = scenario.demand.first().copied().unwrap_or(0.0);
        let scenario = Scenario {
            metrics: Metrics::External,
            forecast: vec![Some(level * 1.3)],
            demand: vec![level],
            floor: FloorSources::default(),
            edits: vec![],
            outage: vec![],
            behavior: None,
            ..scenario
        };
        let settle = |mode, phases| Trace::of(&scenario, mode, phases).counts.last().copied();
        let direct = settle(Mode::Direct, phases).map(|(_, count)| count);
        let delegated = settle(Mode::Delegated, other).map(|(_, count)| count);
        prop_assert_eq!(direct, delegated);
    }
}
