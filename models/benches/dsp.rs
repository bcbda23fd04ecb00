//! What one dsp forecast costs: three days and two weeks at a minute, by day and by week.

use std::f64::consts::TAU;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use foretide_models::{Algorithm, Series, dsp};
use jiff::{SignedDuration, Timestamp};

fn history(days: u32, weekly: bool) -> Series {
    let value = |i: u32| {
        let day = f64::from(i) / 1440.0;
        let level = if weekly && day.rem_euclid(7.0) >= 5.0 {
            0.3
        } else {
            1.0
        };
        let noise = (f64::from(i) * 12.9898).sin() * 43_758.545;
        level * (10.0 + 4.0 * (TAU * day).sin() + (3.0 * TAU * day).cos()) + noise.rem_euclid(1.0)
    };
    let values = (0..days * 1440).map(value).collect();
    Series::from_values(Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1), values)
}

fn forecast(c: &mut Criterion) {
    let Ok(mut forecaster) = Algorithm::Dsp(dsp::Config::default()).build() else {
        return;
    };
    let horizon = SignedDuration::from_hours(2);
    for (name, history) in [
        ("3 days, daily", history(3, false)),
        ("14 days, daily", history(14, false)),
        ("14 days, weekly", history(14, true)),
    ] {
        c.bench_function(name, |b| {
            b.iter(|| forecaster.forecast(black_box(&history), horizon));
        });
    }
}

criterion_group!(benches, forecast);
criterion_main!(benches);
