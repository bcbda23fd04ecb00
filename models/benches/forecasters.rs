//! Times forecasts: one answer of each forecaster, `auto` minute by minute, and ten thousand series.

#[path = "subjects/mod.rs"]
mod subjects;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use foretide_models::auto::OnlineModel;
use jiff::SignedDuration;

use self::subjects::{
    DAY, demand, five_minutes, five_minutes_uncalibrated, forecasters, history, model,
};

/// The number of series of a large cluster.
const MANY: usize = 10_000;

/// An answer from nothing but a history.
fn answer(c: &mut Criterion) {
    let horizon = SignedDuration::from_hours(2);
    for (what, history) in [
        ("3 days, daily", history(3, false)),
        ("14 days, daily", history(14, false)),
        ("14 days, weekly", history(14, true)),
    ] {
        let mut group = c.benchmark_group(format!("first answer from {what}"));
        for (name, _) in forecasters() {
            let fresh = || forecasters().into_iter().find(|(other, _)| *other == name);
            group.bench_function(name, |b| {
                b.iter_batched(
                    fresh,
                    |forecaster| {
                        let (_, mut forecaster) = forecaster?;
                        forecaster.forecast(black_box(&history), horizon).ok()
                    },
                    BatchSize::LargeInput,
                );
            });
        }
        group.finish();
    }
}

/// `auto` at work: learning two weeks, five minutes of one series, and one minute of ten thousand.
fn auto(c: &mut Criterion) {
    let mut group = c.benchmark_group("auto");
    group.sample_size(10);
    for (what, path) in [("decision only", false), ("with the path", true)] {
        group.bench_function(format!("learn 14 days, {what}"), |b| {
            b.iter(|| model(14, path));
        });
        let learned = model(14, path);
        group.bench_function(format!("5 minutes, {what}"), |b| {
            b.iter_batched_ref(
                || learned.clone(),
                |model| five_minutes(model, 14 * DAY),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(format!("5 minutes, margins as they are, {what}"), |b| {
            b.iter_batched_ref(
                || learned.clone(),
                |model| five_minutes_uncalibrated(model, 14 * DAY),
                BatchSize::LargeInput,
            );
        });
    }
    let mut all: Vec<OnlineModel> = vec![model(14, true); MANY];
    let mut minute = 14 * DAY;
    group.bench_function("a minute of 10,000 series, with the path", |b| {
        b.iter(|| {
            for model in &mut all {
                model.push(demand(minute, false));
                black_box(model.upper(0.9));
            }
            minute += 1;
        });
    });
    group.finish();
}

criterion_group!(benches, answer, auto);
criterion_main!(benches);
