use std::f64::consts::TAU;

use jiff::Timestamp;

use super::*;

const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: usize = 1440;

/// A day's wave with a step at eight, and noise that repeats only after weeks.
fn demand(minute: usize) -> f64 {
    let day = count(minute) / 1440.0;
    let busy = if (480..1080).contains(&(minute % DAY)) {
        6.0
    } else {
        0.0
    };
    let noise = (count(minute) * 12.9898).sin() * 43_758.545;
    20.0 + 8.0 * (TAU * (day - 0.25)).sin() + busy + noise.rem_euclid(1.0)
}

fn history(minutes: usize) -> Series {
    of((0..minutes).map(demand).collect())
}

fn of(values: Vec<f64>) -> Series {
    Series::from_values(Timestamp::UNIX_EPOCH, MINUTE, values)
}

fn auto() -> Auto {
    Auto::new(Config::default()).unwrap()
}

fn ask(auto: &mut Auto, history: &Series) -> Forecast {
    auto.forecast(history, HOUR).unwrap()
}

fn close(one: &Forecast, other: &Forecast, tolerance: f64) -> bool {
    let values = |forecast: &Forecast| {
        let mut values = forecast.point().to_vec();
        values.extend(forecast.upper().unwrap());
        values.push(forecast.direct().unwrap().value);
        values
    };
    let close = |(a, b): (f64, f64)| (a - b).abs() <= tolerance * a.abs().max(b.abs());
    let (one, other) = (values(one), values(other));
    one.len() == other.len() && one.into_iter().zip(other).all(close)
}

#[test]
fn on_a_coarse_grid_the_error_names_the_needed_history() {
    let mut hourly = Auto::new(Config {
        sample_interval: HOUR,
        ..Config::default()
    });
    let hourly = hourly.as_mut().unwrap();
    let history = |hours: usize| {
        let values = (0..hours).map(|hour| demand(hour * 60)).collect();
        Series::from_values(Timestamp::UNIX_EPOCH, HOUR, values)
    };
    let error = ForecastError::InsufficientHistory {
        have: HOUR * 30,
        need: HOUR * 42,
    };
    assert_eq!(hourly.forecast(&history(30), HOUR), Err(error));
    assert!(hourly.forecast(&history(42), HOUR).is_ok());
}

/// The beginning of the history is dropped after it was learned, as the controller does.
#[test]
fn a_sliding_window_is_learned_like_a_growing_history() {
    let (mut slid, mut grown) = (auto(), auto());
    ask(&mut slid, &history(3 * DAY));
    for end in (3 * DAY + 1..5 * DAY).step_by(71) {
        let (all, mut newest) = (history(end), history(end));
        newest.truncate_front(26 * 60);
        let (slid, grown) = (ask(&mut slid, &newest), ask(&mut grown, &all));
        assert!(close(&slid, &grown, 1e-6), "at {end}: {slid:?}\n{grown:?}");
    }
}

#[test]
fn coverage_is_close_to_the_quantile() {
    let mut auto = auto();
    let (mut within, mut asked) = (0, 0);
    for now in 7 * DAY..8 * DAY {
        let forecast = ask(&mut auto, &history(now));
        let peak = forecast.direct().unwrap();
        assert_eq!(peak.window, MINUTE * 3);
        let highest = (now..=now + 3).map(demand).fold(0.0, f64::max);
        within += u32::from(highest <= peak.value);
        asked += 1;
    }
    let share = f64::from(within) / f64::from(asked);
    assert!((0.85..0.95).contains(&share), "{share}");
    let quality = *ask(&mut auto, &history(8 * DAY)).quality().unwrap();
    assert!(
        (quality.coverage.unwrap() - 0.9).abs() < 0.05,
        "{quality:?}"
    );
    assert!(
        quality.skill.unwrap() > 0.0 && quality.known_until == history(8 * DAY).end(),
        "{quality:?}"
    );
}

#[test]
fn an_unusable_history_is_an_error_that_says_why() {
    let mut silent = history(2 * DAY);
    silent.advance_to(silent.end() + MINUTE * 4);
    let holes = (0..2 * DAY).map(|i| if i % 5 < 2 { f64::NAN } else { demand(i) });
    let cases = [
        ("InsufficientHistory", history(119)),
        ("InsufficientHistory", of(vec![])),
        ("StaleHistory", silent),
        ("TooManyGaps", of(holes.collect())),
        ("ZeroSeries", of(vec![0.0; 300])),
    ];
    for (variant, history) in cases {
        let error = auto().forecast(&history, HOUR).unwrap_err();
        assert!(format!("{error:?}").starts_with(variant), "{error}");
    }
}

#[test]
fn two_hours_of_history_give_a_forecast_with_a_note() {
    let forecast = ask(&mut auto(), &history(130));
    assert!(
        forecast.notes().contains(&Note::WarmingUp),
        "{:?}",
        forecast.notes()
    );
    let ready = ask(&mut auto(), &history(7 * DAY));
    assert_eq!(ready.notes(), []);
}

#[test]
fn a_constant_history_is_forecast_exactly() {
    let forecast = ask(&mut auto(), &of(vec![7.0; 2 * DAY]));
    assert!(forecast.notes().contains(&Note::Constant));
    let close = |value: &f64| (value - 7.0).abs() < 1e-6;
    assert!(close(&forecast.direct().unwrap().value) && forecast.point().iter().all(close));
}

#[test]
fn a_shift_of_the_level_is_followed_and_noted() {
    let shifted = |i: usize| {
        if i < 3 * DAY {
            demand(i)
        } else {
            5.0 * demand(i)
        }
    };
    let mut auto = auto();
    let mut noted = false;
    for now in (3 * DAY..4 * DAY - 90).step_by(10) {
        let forecast = ask(&mut auto, &of((0..now).map(shifted).collect()));
        noted |= forecast.notes().contains(&Note::LevelShift);
    }
    assert!(noted);
    // About a day after the shift, the margin for this time of day has the errors of the shift itself.
    for now in [4 * DAY - 90, 4 * DAY + 60] {
        let forecast = ask(&mut auto, &of((0..now).map(shifted).collect()));
        let level = shifted(now - 1);
        let peak = forecast.direct().unwrap();
        assert!(
            (0.8 * level..1.5 * level).contains(&peak.value),
            "{peak:?} {level}"
        );
    }
}

#[test]
fn outliers_are_rejected_unless_they_last() {
    let clean = ask(&mut auto(), &history(3 * DAY)).direct().unwrap().value;
    let poisoned = (0..3 * DAY).map(|i| {
        if i % 997 == 5 {
            1e6 * demand(i)
        } else {
            demand(i)
        }
    });
    let mut poisoned: Vec<f64> = poisoned.collect();
    poisoned[700] = 1e308;
    let forecast = ask(&mut auto(), &of(poisoned));
    let value = forecast.direct().unwrap().value;
    assert!((value / clean - 1.0).abs() < 0.1, "{value} for {clean}");
    let rejected = |note: &Note| matches!(note, Note::SpikesRejected { slots: 5.. });
    assert!(
        forecast.notes().iter().any(rejected),
        "{:?}",
        forecast.notes()
    );
    let other_unit = |i: usize| {
        if i < 2 * DAY {
            demand(i)
        } else {
            1000.0 * demand(i)
        }
    };
    let forecast = ask(&mut auto(), &of((0..3 * DAY).map(other_unit).collect()));
    assert!(
        forecast.direct().unwrap().value > 900.0 * clean,
        "{forecast:?}"
    );
}

#[test]
fn outliers_at_the_beginning_are_rejected() {
    let poisoned = |minutes: usize| {
        let mut values: Vec<f64> = (0..minutes).map(demand).collect();
        values[0] = 501_319_796_116.690_37;
        if let Some(later) = values.get_mut(1380) {
            *later = 6_073.668_142_829_266;
        }
        of(values)
    };
    let mut grown = auto();
    for minutes in [1, 2, 60, 119, 120, 121, 130, DAY, 3 * DAY] {
        let (grown, fresh) = [&mut grown, &mut auto()]
            .map(|auto| auto.forecast(&poisoned(minutes), HOUR))
            .into();
        assert_eq!(grown, fresh, "{minutes}");
        assert_eq!(fresh.is_ok(), minutes > 120, "{minutes}");
    }
    let (clean, forecast) = (
        ask(&mut auto(), &history(3 * DAY)),
        ask(&mut auto(), &poisoned(3 * DAY)),
    );
    assert!(close(&clean, &forecast, 0.05), "{clean:?}\n{forecast:?}");
    let rejected = Note::SpikesRejected { slots: 2 };
    assert!(
        forecast.notes().contains(&rejected),
        "{:?}",
        forecast.notes()
    );
}

#[test]
fn a_recurring_burst_is_demand_at_any_height() {
    let bursts = |i: usize| {
        if (60..63).contains(&(i % 120)) {
            2.0
        } else {
            0.01
        }
    };
    let mut auto = auto();
    let forecast = ask(&mut auto, &of((0..4 * DAY + 60).map(bursts).collect()));
    let rejected = |note: &Note| match note {
        Note::SpikesRejected { slots } => Some(*slots),
        _ => None,
    };
    // The first four runs of three: after that it is known.
    assert_eq!(forecast.notes().iter().find_map(rejected), Some(12));
    // The next burst begins with the coming minute.
    assert!(forecast.direct().unwrap().value > 1.0, "{forecast:?}");
}

#[test]
fn finer_samples_are_averaged_to_minutes() {
    let fine = |i: usize| demand(i / 4) + [-3.0, -1.0, 1.0, 3.0][i % 4];
    let quarter = SignedDuration::from_secs(15);
    let values = (0..4 * 2 * DAY).map(fine).collect();
    let history_of_quarters = Series::from_values(Timestamp::UNIX_EPOCH, quarter, values);
    let config = Config {
        sample_interval: quarter,
        ..Config::default()
    };
    let fine = ask(&mut Auto::new(config).unwrap(), &history_of_quarters);
    let minutes = ask(&mut auto(), &history(2 * DAY));
    assert!(close(&fine, &minutes, 1e-6), "{fine:?}\n{minutes:?}");
}

#[test]
fn an_under_provisioning_target_converges_to_its_quantile() {
    let asked = |percent| {
        let service_level = ServiceLevel::UnderProvisioned {
            percent,
            per_replica: Some(2.0),
        };
        let config = Config {
            service_level,
            ..Config::default()
        };
        let mut auto = Auto::new(config).unwrap();
        ask(&mut auto, &history(6 * DAY)).direct().unwrap().quantile
    };
    let (strict, lax) = (asked(0.01), asked(20.0));
    assert!(strict > lax, "{strict} for 0.01 %, {lax} for 20 %");
}

#[test]
fn memory_is_bounded_and_does_not_grow() {
    let mut auto = auto();
    ask(&mut auto, &history(14 * DAY));
    let bytes = auto.bytes();
    for now in 14 * DAY..14 * DAY + 800 {
        ask(&mut auto, &history(now));
    }
    assert_eq!(auto.bytes(), bytes);
    assert!(bytes <= 230_000, "{bytes}");
}

#[test]
fn settings_out_of_range_are_errors_that_name_the_field() {
    let promise = |percent| ServiceLevel::UnderProvisioned {
        percent,
        per_replica: None,
    };
    for (service_level, hours, field) in [
        (ServiceLevel::Quantile(1.0), 0, "quantile"),
        (ServiceLevel::Quantile(f64::NAN), 0, "quantile"),
        (promise(0.0), 0, "maxUnderProvisionedPercent"),
        (promise(f64::INFINITY), 0, "maxUnderProvisionedPercent"),
        (ServiceLevel::default(), 2, "leadTimeSeconds"),
    ] {
        let config = Config {
            service_level,
            lead_time: HOUR * hours,
            ..Config::default()
        };
        assert_eq!(Auto::new(config).unwrap_err().field, field);
    }
}

/// The demand of pods minute by minute: the wave, and every other minute half as much again.
fn rough(minute: usize) -> f64 {
    demand(minute) * if minute.is_multiple_of(2) { 1.5 } else { 1.0 }
}

fn smoothed(minute: usize) -> f64 {
    let last = minute.saturating_sub(2)..=minute;
    last.clone().map(rough).sum::<f64>() / count(last.count())
}

/// A history of smoothed minutes; those from `raw_from` on are raw.
fn partly_raw(minutes: usize, raw_from: usize) -> Series {
    let raw = (raw_from..minutes).map(|minute| crate::Sample {
        at: Timestamp::UNIX_EPOCH + MINUTE * i32::try_from(minute).unwrap(),
        value: rough(minute),
    });
    of((0..minutes).map(smoothed).collect()).with_raw(&raw.collect::<Vec<_>>())
}

/// The share of the minutes of the eighth day in which the peak of what pods have stays within the published bound, and
/// within what a count is held for, if such minutes are learned or their means over three minutes.
fn coverage_of_raw_minutes(raw: bool) -> [f64; 2] {
    let quantile = ServiceLevel::default().initial_quantile();
    let mut model = OnlineModel::new(OnlineSettings::new(2), MINUTE, ServiceLevel::default());
    let mut within = [0, 0];
    for now in 0..8 * DAY {
        if now >= 7 * DAY {
            model.calibrate();
            let peak = (now..=now + 3).map(rough).fold(0.0, f64::max);
            let published = model.upper(quantile).unwrap();
            let hold = model.bounds(quantile).unwrap().hold;
            within[0] += usize::from(peak <= published);
            within[1] += usize::from(peak <= hold);
        }
        let demand = if raw { rough(now) } else { smoothed(now) };
        model.take(demand, SampleOrigin::Measured { raw });
    }
    within.map(|within| count(within) / count(DAY))
}

#[test]
fn raw_minutes_calibrate_a_forecast_and_smoothed_ones_do_not() {
    let quantile = ServiceLevel::default().initial_quantile();
    let [published, held] = coverage_of_raw_minutes(true);
    assert!((published - quantile).abs() < 0.03, "{published}");
    assert!(held > quantile, "{held}");
    let smoothed = coverage_of_raw_minutes(false);
    assert!(smoothed[0] < 0.5 && smoothed[1] < 0.5, "{smoothed:?}");
}

#[test]
fn the_quality_says_how_much_of_the_last_day_is_raw() {
    let raw = |raw_from| {
        let history = partly_raw(4 * DAY, raw_from);
        ask(&mut auto(), &history).quality().unwrap().raw
    };
    assert!(raw(usize::MAX).abs() < 1e-12);
    assert!((raw(4 * DAY - DAY / 2) - 0.5).abs() < 1e-12);
    assert!((raw(0) - 1.0).abs() < 1e-12);
}

#[test]
fn a_replica_is_raised_for_less_than_it_is_held_for() {
    let mut auto = auto();
    let mut below = 0;
    for now in (7 * DAY..8 * DAY).step_by(7) {
        let bounds = ask(&mut auto, &history(now)).direct().unwrap().bounds;
        assert!(bounds.raise <= bounds.hold, "{bounds:?}");
        below += usize::from(bounds.raise < bounds.hold);
    }
    assert!(below > 100, "{below}");
}

/// Noise whose spread triples for days at a time, longer than the recent errors reach back.
#[test]
fn the_published_bound_keeps_its_coverage_while_the_noise_changes() {
    let spread = |minute: usize| {
        if (minute / (3 * DAY)).is_multiple_of(2) {
            1.0
        } else {
            3.0
        }
    };
    let noisy = |minute: usize| {
        let noise = (count(minute) * 12.9898).sin() * 43_758.545;
        100.0 + 10.0 * spread(minute) * noise.rem_euclid(1.0)
    };
    let settings = OnlineSettings::new(2);
    let mut model = OnlineModel::new(settings, MINUTE, ServiceLevel::Quantile(0.9));
    let (mut covered, mut asked) = (0, 0);
    for now in 0..15 * DAY {
        if let Some(bound) = model.upper(0.9).filter(|_| now > 3 * DAY) {
            covered += usize::from((now..=now + 3).map(noisy).fold(0.0, f64::max) <= bound);
            asked += 1;
        }
        model.push(noisy(now));
    }
    let share = count(covered) / count(asked);
    assert!((share - 0.9).abs() < 0.01, "{share}");
}
