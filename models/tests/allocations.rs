//! Learning one more minute allocates nothing.

use allocation_counter::measure;
use foretide_models::auto::{OnlineModel, OnlineSettings, ServiceLevel};
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
fn model(service_level: ServiceLevel) -> OnlineModel {
    let settings = OnlineSettings {
        path: true,
        ..OnlineSettings::new(2)
    };
    OnlineModel::new(settings, MINUTE, service_level)
}

#[test]
fn no_minute_of_a_learnt_model_allocates() {
    let objective = ServiceLevel::UnderProvisioned {
        percent: 1.0,
        per_replica: Some(0.2),
    };
    for service_level in [ServiceLevel::Quantile(0.9), objective] {
        let mut online = model(service_level);
        let learned = 10 * DAY;
        for minute in 0..learned {
            online.push(demand(minute));
        }
        assert!(
            measure(|| drop(online.clone())).count_total > 0,
            "it counts"
        );
        // A day holds every kind of minute: calibration, solution, comparison, and forgetting what is too old.
        for minute in learned..learned + DAY {
            let (demand, mut upper) = (demand(minute), None);
            let taken = measure(|| {
                online.push(demand);
                upper = online.upper(online.quantile());
            });
            assert!(upper.is_some_and(|upper| upper > 10.0), "{upper:?}");
            assert_eq!(taken.count_total, 0, "minute {minute} of {service_level:?}");
        }
    }
}
