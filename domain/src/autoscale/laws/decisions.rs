//! Laws of a single decision, for states that a run leads to.

use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{Scenario, World, n, tick_at};
use crate::autoscale::action::{Action, HoldReason};
use crate::autoscale::history::History;
use crate::autoscale::{Decision, Inputs, decide};
use crate::forecast::Refused;
use crate::proposal::Reason;
use crate::workload::{FloorSources, Mode, Strategy as Acting, Workload};
use crate::{ReplicaBounds, Replicas};
use jiff::Timestamp;

/// A workload after some ticks of a scenario.
#[derive(Clone, Debug)]
struct State {
    workload: Workload,
    inputs: Inputs,
    history: History,
    now: Timestamp,
}

impl State {
    fn after(scenario: &Scenario, mode: Mode, ticks: usize) -> Self {
        let mut world = World::new(scenario, mode);
        world.run(ticks);
        world.edit(ticks);
        let now = tick_at(ticks);
        Self {
            inputs: world.inputs(now),
            workload: world.workload,
            history: world.history,
            now,
        }
    }

    fn decide(&self) -> (Decision, History) {
        let settings = crate::hpa::Settings::default();
        decide(
            &self.workload,
            &self.inputs,
            &self.history,
            &settings,
            self.now,
        )
    }

    fn desired(&self) -> Replicas {
        self.decide().0.desired
    }

    fn without_forecast(mut self) -> Self {
        for forecast in &mut self.inputs.forecasts {
            forecast.outcome = Err(Refused::new(Reason::Expired, "too old"));
        }
        self
    }

    fn without_windows(mut self) -> Self {
        self.workload.floor.windows.clear();
        self
    }
}

fn state(up: Up) -> impl Strategy<Value = State> {
    let mode = prop_oneof![Just(Mode::Direct), Just(Mode::Delegated)];
    (scenario(up), mode, 0..TICKS)
        .prop_map(|(scenario, mode, tick)| State::after(&scenario, mode, tick))
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn the_same_inputs_give_the_same_decision_bit_for_bit(state in state(Up::Anything)) {
        prop_assert_eq!(format!("{:?}", state.decide()), format!("{:?}", state.decide()));
    }

    #[test]
    fn raising_a_forecast_never_lowers_the_count(state in state(Up::Anything), more in 1.0..3.0_f64) {
        let mut raised = state.clone();
        for forecast in &mut raised.inputs.forecasts {
            if let Ok(predicted) = &mut forecast.outcome {
                predicted.value = predicted.value * more + 0.1;
            }
        }
        prop_assert!(raised.desired() >= state.desired());
    }

    #[test]
    fn removing_a_source_never_raises_the_count(state in state(Up::Anything)) {
        let desired = state.desired();
        prop_assert!(state.clone().without_forecast().desired() <= desired);
        prop_assert!(state.without_windows().desired() <= desired);
    }

    #[test]
    fn a_forecast_that_is_missing_and_no_longer_held_changes_nothing(state in state(Up::Anything)) {
        let mut without = state.clone().without_forecast();
        without.history.floors.clear();
        let mut never = state;
        never.workload.floor.prediction = None;
        never.history.floors.clear();
        prop_assert_eq!(without.desired(), never.desired());
    }

    #[test]
    fn the_desired_count_is_within_the_bounds_unless_paused(state in state(Up::Anything)) {
        let (decision, _) = state.decide();
        let paused = decision.current == Replicas::ZERO;
        prop_assert!(paused || state.workload.bounds.contains(decision.desired), "{:?}", decision);
        if paused {
            prop_assert_eq!(decision.desired, Replicas::ZERO);
        }
    }

    #[test]
    fn a_child_has_the_bounds_of_the_user_and_at_most_a_higher_minimum(state in state(Up::Anything)) {
        if let Action::Child { min, max } = state.decide().0.action {
            let bounds = state.workload.bounds;
            prop_assert_eq!(max, bounds.max);
            prop_assert!(bounds.contains(min), "{} of {:?}", min, bounds);
        }
    }

    #[test]
    fn crossed_bounds_write_nothing_and_keep_the_history(mut state in state(Up::Anything)) {
        state.workload.bounds = ReplicaBounds::new(n(5), n(4));
        let (decision, history) = state.decide();
        let reason = HoldReason::InvalidBounds;
        prop_assert_eq!(decision.action, Action::Hold { reason });
        prop_assert_eq!(history.floors, state.history.floors);
    }

    #[test]
    fn preview_writes_nothing_but_specific_replicas(
        mut state in state(Up::Anything), specific in prop::option::of(0_u32..40),
    ) {
        state.workload.strategy = Acting::Preview;
        state.workload.specific_replicas = specific.map(Replicas::new);
        let pinned = specific.map(|count| state.workload.bounds.clamp(n(count)));
        let current = state.inputs.observation.scale.spec;
        let want = match pinned {
            None => Action::Hold { reason: HoldReason::Preview },
            Some(to) if to == current => Action::Hold { reason: HoldReason::Pinned },
            Some(to) => Action::Pin { to },
        };
        prop_assert_eq!(state.decide().0.action, want);
    }

    #[test]
    fn the_order_of_windows_forecasts_and_metrics_does_not_matter(state in state(Up::Anything)) {
        let mut turned = state.clone();
        turned.workload.floor.windows.reverse();
        turned.workload.metrics.reverse();
        turned.inputs.observation.readings.reverse();
        turned.inputs.observation.pods.reverse();
        turned.inputs.forecasts.reverse();
        prop_assert_eq!(turned.desired(), state.desired());
    }

    #[test]
    fn every_decision_has_a_message_with_its_count_and_conditions(state in state(Up::Anything)) {
        let (decision, _) = state.decide();
        let message = decision.message();
        let start = match decision.desired.get() {
            1 => "1 replica: ".to_owned(),
            count => format!("{count} replicas: "),
        };
        prop_assert!(message.starts_with(&start), "{}", message);
        prop_assert!(!message.ends_with(['.', ' ', ';']), "{}", message);
        let kinds = decision.conditions.iter().map(|c| c.kind.as_str()).collect::<Vec<_>>();
        prop_assert!(kinds.contains(&"Ready") && kinds.contains(&"ScalingLimited"), "{:?}", kinds);
        for word in decision.conditions.iter().map(|c| c.reason) {
            prop_assert!(word.chars().all(|c| c.is_ascii_alphabetic()), "{}", word);
        }
    }

    #[test]
    fn constant_inputs_lead_to_a_constant_count(scenario in scenario(Up::Silent), mode in prop_oneof![
        Just(Mode::Direct), Just(Mode::Delegated)
    ]) {
        let scenario = Scenario {
            demand: scenario.demand.into_iter().take(1).collect(),
            forecast: scenario.forecast.into_iter().take(1).collect(),
            floor: FloorSources::default(),
            edits: vec![],
            outage: vec![],
            ..scenario
        };
        let counts = World::new(&scenario, mode).run(2 * TICKS);
        let rest = counts.last().copied();
        let moving = counts.iter().rev().take(20).any(|count| Some(*count) != rest);
        // Policies may take longer than the run: then the count may still fall, but not rise.
        let slow = scenario.behavior.is_some();
        let down = counts.windows(2).rev().take(20).all(|pair| pair[1] <= pair[0]);
        prop_assert!(!moving || (slow && down), "{:?}", counts);
    }
}
