//! Restarts: a restored history gives the same decisions, and a lost one never scales down sooner.

use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{World, tick_at};
use crate::autoscale::history::{History, RawFloor};
use crate::hpa::{Log, Recommendation, ScaleEvent};
use crate::proposal::{Proposal, Source};
use crate::workload::Mode;

/// A history saved to what a status can hold, oldest first, and restored; `shown` are the last proposals.
fn through_status(history: &History, shown: &[Proposal]) -> History {
    let forecasts = shown.iter().filter(|it| it.source == Source::Forecast);
    let held = forecasts.filter_map(|it| Some((it.name.clone(), it.replicas?)));
    let mut readings: Vec<Recommendation> = history.log.recommendations().to_vec();
    readings.sort_by_key(|reading| reading.at);
    let events = |events: &[ScaleEvent]| {
        let mut events: Vec<_> = events
            .iter()
            .map(|e| ScaleEvent {
                outdated: false,
                ..*e
            })
            .collect();
        events.sort_by_key(|event| event.at);
        events
    };
    let floors = history
        .floors
        .iter()
        .map(|f| RawFloor {
            at: f.at,
            raw: f.raw,
        })
        .collect();
    History {
        log: Log {
            recommendations: history.log.recommendations.is_some().then_some(readings),
            scale_up: events(&history.log.scale_up),
            scale_down: events(&history.log.scale_down),
            scaled_to_zero: history.log.scaled_to_zero,
        },
        floors,
        forecast_held: held.collect(),
        division: history.division.clone(),
        surplus: None,
        winner: history.winner,
        hold_until: history.hold_until,
        child: history.child,
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Direct),
        Just(Mode::Delegated),
        Just(Mode::Metric)
    ]
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_history_restored_at_any_tick_decides_as_without_a_restart(
        scenario in scenario(Up::Anything), mode in mode(), every in 1_usize..20,
    ) {
        let kept = World::new(&scenario, mode).run(TICKS);
        let mut world = World::new(&scenario, mode);
        let (mut counts, mut shown) = (vec![], vec![]);
        for tick in 0..TICKS {
            if tick % every == 0 {
                world.history = through_status(&world.history, &shown);
            }
            shown = world.tick(tick).proposals;
            counts.push(world.count.get());
        }
        prop_assert_eq!(kept, counts);
    }

    #[test]
    fn lost_history_never_scales_down_before_the_hold_is_over(
        scenario in scenario(Up::Silent), mode in mode(), lost_at in 1..TICKS,
    ) {
        let mut kept = World::new(&scenario, mode);
        kept.run(lost_at);
        let mut lost = kept.clone();
        let now = tick_at(lost_at);
        lost.history = History::lost(now, lost.workload.behavior.as_ref(), &lost.settings);
        let until = lost.history.hold_until.unwrap();
        for tick in lost_at..TICKS {
            let now = tick_at(tick);
            kept.tick(tick);
            lost.edit(tick);
            let before = lost.count;
            lost.decide(now);
            lost.child_pass(now);
            if now < until {
                let held = lost.count >= before.min(lost.workload.bounds.max);
                let not_below = lost.count >= kept.count;
                prop_assert!(held || not_below, "{} -> {}, kept {}", before, lost.count, kept.count);
            }
        }
    }
}
