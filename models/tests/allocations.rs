//! A minute of a model that has learnt costs time only: it asks the allocator for nothing.

use allocation_counter::measure;
use foretide_models::auto::{Aim, Online, Settings};
use jiff::SignedDuration;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const DAY: u32 = 1440;

/// A day's wave with noise; its level never shifts.
fn demand(minute: u32) -> f64 {
    let minute = f64::from(minute);
    let noise = (minute * 12.9898).sin() * 43_758.545;
    20.0 + 8.0 * (minute / 1440.0 * std::f64::consts::TAU).sin() + noise.rem_euclid(1.0)
}

/// The model as `auto` runs it.
fn model(aim: Aim) -> Online {
    let settings = Settings {
        path: true,
        ..Settings::new(2)
    };
    Online::new(settings, MINUTE, aim)
}

#[test]
fn no_minute_of_a_learnt_model_allocates() {
    let objective = Aim::UnderProvisioned {
        percent: 1.0,
        per_replica: Some(0.2),
    };
    for aim in [Aim::Quantile(0.9), objective] {
        let mut online = model(aim);
        let learnt = 10 * DAY;
        for minute in 0..learnt {
            online.push(demand(minute));
        }
        assert!(
            measure(|| drop(online.clone())).count_total > 0,
            "it counts"
        );
        // A day holds every kind of minute: calibration, solution, comparison, and forgetting what is too old.
        for minute in learnt..learnt + DAY {
            let (demand, mut upper) = (demand(minute), None);
            let taken = measure(|| {
                online.push(demand);
                upper = online.upper(online.quantile());
            });
            assert!(upper.is_some_and(|upper| upper > 10.0), "{upper:?}");
            assert_eq!(taken.count_total, 0, "minute {minute} of {aim:?}");
        }
    }
}
