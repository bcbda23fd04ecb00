//! Arbitrary bytes as a history: every forecaster returns a bounded forecast or an error, and never panics.

use foretide_models::{Algorithm, Series, auto, calibrate, dsp, percentile, seasonal};
use jiff::{SignedDuration, Timestamp};

const STEP: SignedDuration = SignedDuration::from_hours(1);

fn algorithms() -> [Algorithm; 5] {
    let dsp = dsp::Config {
        sample_interval: STEP,
        ..dsp::Config::default()
    };
    let naive = Algorithm::SeasonalNaive(seasonal::Config {
        sample_interval: STEP,
        ..seasonal::Config::default()
    });
    let floor = percentile::Config {
        sample_interval: STEP,
        ..percentile::Config::default()
    };
    let automatic = auto::Config {
        sample_interval: STEP,
        ..auto::Config::default()
    };
    [
        Algorithm::Auto(automatic),
        Algorithm::Dsp(dsp),
        naive.clone(),
        Algorithm::Percentile(floor),
        Algorithm::Calibrated(Box::new(naive), calibrate::Config::default()),
    ]
}

/// The first byte says how often the rest is repeated, so that short inputs make long, periodic histories.
fn history(bytes: &[u8]) -> Series {
    let (repeats, rest) = bytes
        .split_first()
        .map_or((0, bytes), |(n, rest)| (*n, rest));
    let numbers = rest
        .chunks_exact(8)
        .filter_map(|chunk| chunk.try_into().ok());
    let values: Vec<f64> = numbers.map(f64::from_le_bytes).collect();
    Series::from_values(
        Timestamp::UNIX_EPOCH,
        STEP,
        values.repeat(usize::from(repeats)),
    )
}

#[test]
fn forecast_series() {
    bolero::check!()
        .with_iterations(1000)
        .with_max_len(600)
        .for_each(|bytes: &[u8]| {
            let history = history(bytes);
            let highest = history.values().iter().copied().fold(0.0, f64::max);
            for mut forecaster in algorithms().map(|algorithm| algorithm.build().unwrap()) {
                match forecaster.forecast(&history, SignedDuration::from_hours(48)) {
                    Ok(forecast) => {
                        let ceiling = (1.5 * highest).min(f64::MAX);
                        let fine = |v: &f64| v.is_finite() && *v >= 0.0 && *v <= ceiling;
                        let peak = forecast.direct().map(|peak| peak.value);
                        let mut all = forecast.point().iter().chain(&peak);
                        assert!(all.all(fine), "{forecast:?}");
                    }
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        });
}
