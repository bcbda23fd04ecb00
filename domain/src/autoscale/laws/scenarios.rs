//! Random scenarios: small, and with outages, edits and odd behaviors.

use jiff::SignedDuration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::world::{self, Edit, Metrics, Scenario};
use crate::hpa::{Behavior, PolicyKind, PolicySelect, ScalingPolicy, ScalingRules};

/// Ticks in a scenario: 18 minutes, more than three scale-down windows.
pub(super) const TICKS: usize = 72;

/// The same cases on every machine; a failure prints its scenario.
pub(super) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_260_301),
        ..ProptestConfig::default()
    }
}

/// Fields that a random behavior may set for scaling up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Up {
    /// No field about scaling up.
    Silent,
    /// Policies, but no window.
    Policies,
    /// Policies and windows.
    Anything,
}

pub(super) fn scenario(up: Up) -> impl Strategy<Value = Scenario> {
    let metrics = prop_oneof![
        3 => Just(Metrics::Pods),
        3 => Just(Metrics::External),
        1 => Just(Metrics::Both),
    ];
    let shape = (metrics, (1_u32..5, 0_u32..28), 0_u32..30, behavior(up));
    let crons = vec((0_u8..18, 1_u8..12, 1_u32..34), 0..3);
    let inputs = (segments(demand()), forecasts(), crons, outages());
    let others = (
        vec((4..TICKS, edit()), 0..3),
        prop_oneof![Just(0_i64), Just(20), Just(70)],
        prop_oneof![Just(0.0), 0.0..0.5_f64],
    );
    (shape, inputs, others).prop_map(|(shape, inputs, others)| {
        let (metrics, (min, more), start, behavior) = shape;
        let (demand, forecast, crons, outage) = inputs;
        let bounds = (min, min + more);
        let windows: Vec<_> = crons
            .into_iter()
            .map(|(s, len, target)| (s, s + len, target))
            .collect();
        let start = start.clamp(bounds.0, bounds.1);
        let (edits, startup, slack) = others;
        Scenario {
            metrics,
            bounds,
            start,
            behavior,
            demand,
            forecast,
            slack,
            floor: world::crons(&windows),
            outage,
            edits,
            startup,
        }
    })
}

fn demand() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..30.0_f64, 1 => Just(0.0), 1 => (1_u32..20).prop_map(f64::from)]
}

/// Values that each last for some ticks, as one value per tick.
fn segments<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    vec((1_usize..16, value), 1..10).prop_map(|segments| {
        segments
            .into_iter()
            .flat_map(|(length, value)| std::iter::repeat_n(value, length))
            .collect()
    })
}

fn forecasts() -> impl Strategy<Value = Vec<Option<f64>>> {
    let some = segments(prop_oneof![3 => demand().prop_map(Some), 1 => Just(None)]);
    prop_oneof![
        1 => Just(vec![]),
        3 => (some, vec(0.9..1.1_f64, TICKS)).prop_map(|(values, noise)| {
            let noisy = values.iter().zip(&noise);
            noisy.map(|(value, noise)| value.map(|value| value * noise)).collect()
        }),
    ]
}

fn outages() -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![2 => Just(vec![]), 1 => segments(any::<bool>())]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        2 => (1_u32..8, 0_u32..25).prop_map(|(min, more)| Edit::Bounds(min, min + more)),
        1 => (0_u32..30).prop_map(Edit::Scale),
    ]
}

pub(super) fn behavior(up: Up) -> impl Strategy<Value = Option<Behavior>> {
    let scale_up = match up {
        Up::Silent => Just(ScalingRules::default()).boxed(),
        Up::Policies => rules(false).boxed(),
        Up::Anything => rules(true).boxed(),
    };
    let some = (scale_up, rules(true)).prop_map(|(scale_up, scale_down)| {
        Some(Behavior {
            scale_up,
            scale_down,
        })
    });
    prop_oneof![1 => Just(None), 1 => some]
}

fn rules(window: bool) -> impl Strategy<Value = ScalingRules> {
    let seconds = prop_oneof![Just(0_i64), Just(40), Just(60), Just(120), Just(300)];
    let window = prop::option::of(seconds.prop_map(SignedDuration::from_secs))
        .prop_map(move |w| w.filter(|_| window));
    let select = prop::option::weighted(
        0.4,
        prop_oneof![4 => Just(PolicySelect::Max), 4 => Just(PolicySelect::Min), 1 => Just(PolicySelect::Disabled)],
    );
    let policies = prop::option::weighted(0.6, vec(policy(), 1..3));
    (window, select, policies).prop_map(|(window, select, policies)| ScalingRules {
        window,
        select,
        policies,
        tolerance: None,
    })
}

pub(super) fn policy() -> impl Strategy<Value = ScalingPolicy> {
    let period = prop_oneof![Just(15_i64), Just(30), Just(60), Just(180)];
    let kind = prop_oneof![
        (1_i32..6).prop_map(|value| (PolicyKind::Pods, value)),
        (10_i32..150).prop_map(|value| (PolicyKind::Percent, value)),
    ];
    (kind, period).prop_map(|((kind, value), period)| ScalingPolicy {
        kind,
        value,
        period: SignedDuration::from_secs(period),
    })
}
