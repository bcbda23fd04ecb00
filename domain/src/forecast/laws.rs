//! The laws of the count of a forecast, over random demand.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// Relative difference above any error of the arithmetic.
const NOISE: f64 = 1e-7;

/// The same cases on every machine; a failure prints its values.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_261_126),
        ..ProptestConfig::default()
    }
}

/// Demand that one replica carries, from a hundredth of a core to gigabytes.
fn targets() -> impl Strategy<Value = f64> {
    (-2.0..10.0_f64).prop_map(|exponent| 10.0_f64.powf(exponent))
}

/// A demand in replicas, mostly less than 40.
fn pods() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..40.0_f64, 1 => 0.0..5_000.0_f64, 1 => (0_u32..100).prop_map(f64::from), 1 => Just(0.0)]
}

/// The proposal for bounds in replicas.
fn between(raise: f64, hold: f64, target: f64, last: Option<Replicas>) -> Proposal {
    let bounds = DemandBounds {
        raise: raise * target,
        hold: hold * target,
    };
    propose(
        &ForecastReading::new(
            "pods.load".into(),
            Ok(Predicted {
                bounds,
                ..Predicted::of(hold * target, target)
            }),
        ),
        last,
    )
}

/// The count after a need that both bounds agree on.
fn count(need: f64, target: f64, last: Option<Replicas>) -> Replicas {
    between(need, need, target, last).replicas.unwrap()
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn constant_demand_has_the_count_for_95_percent_of_it_for_ever(need in pods(), target in targets()) {
        let first = count(need, target, None);
        prop_assert_eq!(first, Replicas::for_demand(0.95 * (need * target) / target));
        let mut last = first;
        for _ in 0..5 {
            last = count(need, target, Some(last));
            prop_assert_eq!(last, first);
        }
    }

    #[test]
    fn a_rising_demand_is_followed_at_every_threshold_and_never_lowers_the_count(
        start in 0.0..30.0_f64, step in 0.0005..0.02_f64, target in targets(),
    ) {
        let mut last = count(start, target, None);
        let mut need = start;
        for _ in 0..3_000 {
            need += step;
            let next = count(need, target, Some(last));
            let carried = last.as_f64();
            prop_assert!(next >= last, "{} after {} at {}", next, last, need);
            // The count changes only where the need leaves the range that the count may carry.
            if need < 1.1 * carried * (1.0 - NOISE) {
                prop_assert_eq!(next, last, "{}", need);
            }
            if need > 1.1 * carried * (1.0 + NOISE) {
                prop_assert_eq!(next, Replicas::for_demand(0.95 * need), "{}", need);
            }
            prop_assert!(next.as_f64() >= need / 1.1 * (1.0 - NOISE));
            prop_assert!(next <= Replicas::for_demand(need + NOISE));
            last = next;
        }
    }

    #[test]
    fn a_rising_demand_of_few_replicas_has_every_count_between(start in 0.0..3.0_f64, target in targets()) {
        let mut last = count(start, target, None);
        for thousandths in 0..19_000_u32 {
            let next = count(start + f64::from(thousandths) / 1000.0, target, Some(last));
            prop_assert!(next.distance(last) <= Replicas::new(1));
            last = next;
        }
    }

    #[test]
    fn bounds_that_move_around_what_a_count_carries_change_nothing(
        last in 1_u32..400, target in targets(), around in vec((0.0..1.0_f64, 1.0..3.0_f64), 1..20),
    ) {
        let carried = f64::from(last);
        let mut now = Replicas::new(last);
        for (below, above) in around {
            let proposal = between(carried * below, carried * above, target, Some(now));
            now = proposal.replicas.unwrap();
            prop_assert_eq!(now.get(), last);
            prop_assert_eq!(proposal.asked, None);
        }
    }

    #[test]
    fn a_kept_count_is_within_5_percent_below_and_10_above_of_its_need_and_a_new_one_stays(
        ends in (pods(), pods()), last in 0_u32..60, target in targets(),
    ) {
        let (raise, hold) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let proposal = between(raise, hold, target, Some(Replicas::new(last)));
        let need = proposal.value.unwrap() / target;
        prop_assert!(need >= raise * (1.0 - NOISE) && need <= hold * (1.0 + NOISE));
        if proposal.reason == Reason::WithinTolerance {
            let off = need / f64::from(last) - 1.0;
            prop_assert!((-0.05 - NOISE..=0.10 + NOISE).contains(&off), "{}", off);
        }
        let next = between(raise, hold, target, proposal.replicas);
        prop_assert_eq!(next.replicas, proposal.replicas);
    }

    #[test]
    fn more_demand_never_gives_fewer_replicas(
        ends in (pods(), pods()), more in (1.0..2.0_f64, 1.0..2.0_f64), last in prop::option::of(0_u32..60), target in targets(),
    ) {
        let (raise, hold) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let last = last.map(Replicas::new);
        let less = between(raise, hold, target, last).replicas;
        let more = between(raise * more.0, hold * more.1, target, last).replicas;
        prop_assert!(less <= more, "{:?} {:?}", less, more);
    }

    #[test]
    fn no_number_makes_a_count_of_nonsense(
        raise in any::<f64>(), hold in any::<f64>(), value in any::<f64>(), target in any::<f64>(), last in prop::option::of(any::<u32>()),
    ) {
        let bounds = DemandBounds { raise, hold };
        let reading = ForecastReading::new("pods.load".into(), Ok(Predicted { value, bounds, target }));
        let proposal = propose(&reading, last.map(Replicas::new));
        let are_pods = |demand: f64| demand / target >= 0.0 && (demand / target).is_finite();
        let is_sound = [value, raise, hold].into_iter().all(are_pods) && target > 0.0 && target.is_finite();
        prop_assert_eq!(proposal.replicas.is_some(), is_sound);
    }
}
