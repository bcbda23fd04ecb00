//! `spec.prediction.predictionAlgorithm`: from crane's strings to a forecaster's settings.
//!
//! What is not written takes the algorithm's default; what is written and cannot be read is a
//! violation, never a silent default. `auto`, also where no algorithm is named, runs `dsp`.

use foretide_crds as wire;
use foretide_crds::{AlgorithmType, Prediction};
use foretide_models::{Algorithm, Forecaster, dsp, percentile, seasonal};
use jiff::SignedDuration;

use super::Violation;

/// Path of the block that is read here.
const BLOCK: &str = "spec.prediction.predictionAlgorithm";
/// The algorithms that can be asked for.
const KNOWN: &str = "auto, dsp, percentile or seasonalNaive";

/// The settings of the forecaster that a spec asks for.
///
/// # Errors
/// The first field that cannot be used.
pub fn algorithm(prediction: &Prediction) -> Result<Algorithm, Violation> {
    let block = prediction.prediction_algorithm.clone().unwrap_or_default();
    if block.calibrate == Some(true) {
        let expected = "false: calibration is not available for this algorithm yet";
        return Err(Violation::new(
            format!("{BLOCK}.calibrate"),
            "true",
            expected,
        ));
    }
    match block.algorithm_type.unwrap_or(AlgorithmType::Auto) {
        AlgorithmType::Auto | AlgorithmType::Dsp => {
            dsp(&block.dsp.unwrap_or_default()).map(Algorithm::Dsp)
        }
        AlgorithmType::Percentile => {
            percentile(&block.percentile.unwrap_or_default()).map(Algorithm::Percentile)
        }
        AlgorithmType::SeasonalNaive => {
            seasonal_naive(&block.seasonal_naive.unwrap_or_default()).map(Algorithm::SeasonalNaive)
        }
        other => Err(Violation::new(
            format!("{BLOCK}.algorithmType"),
            format!("{other:?}"),
            KNOWN,
        )),
    }
}

/// The forecaster that a spec asks for, settings checked.
///
/// # Errors
/// The first field that cannot be used.
pub fn forecaster(prediction: &Prediction) -> Result<Box<dyn Forecaster>, Violation> {
    build(algorithm(prediction)?)
}

/// The forecaster of settings that were read from a spec, checked.
///
/// # Errors
/// The first setting that is out of range, by its path in the spec.
pub fn build(algorithm: Algorithm) -> Result<Box<dyn Forecaster>, Violation> {
    algorithm.build().map_err(|error| {
        Violation::new(
            format!("{BLOCK}.{}", error.field),
            error.value,
            error.expected,
        )
    })
}

fn dsp(block: &wire::Dsp) -> Result<dsp::Config, Violation> {
    let at = |name: &str| format!("{BLOCK}.dsp.{name}");
    let default = dsp::Config::default();
    let estimators = match &block.estimators {
        None => default.estimators,
        Some(written) => estimators(written)?,
    };
    Ok(dsp::Config {
        sample_interval: duration(&at("sampleInterval"), block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        history_length: duration(&at("historyLength"), block.history_length.as_deref())?
            .unwrap_or(default.history_length),
        estimators,
    })
}

fn estimators(block: &wire::Estimators) -> Result<dsp::Estimators, Violation> {
    let at =
        |kind: &str, i: usize, name: &str| format!("{BLOCK}.dsp.estimators.{kind}[{i}].{name}");
    let maxima = block
        .max_value
        .iter()
        .flatten()
        .enumerate()
        .map(|(i, estimator)| {
            let margin = number(
                &at("maxValue", i, "marginFraction"),
                estimator.margin_fraction.as_deref(),
            )?;
            Ok(dsp::MaxValue {
                margin_fraction: margin.unwrap_or_default(),
            })
        });
    let filters = block
        .fft
        .iter()
        .flatten()
        .enumerate()
        .map(|(i, estimator)| {
            let of = |name: &str, text: Option<&str>| number(&at("fft", i, name), text);
            let items = |name: &str, count: Option<i32>| whole(&at("fft", i, name), count);
            let default = dsp::Fft::default();
            Ok(dsp::Fft {
                margin_fraction: of("marginFraction", estimator.margin_fraction.as_deref())?
                    .unwrap_or(default.margin_fraction),
                low_amplitude_threshold: of(
                    "lowAmplitudeThreshold",
                    estimator.low_amplitude_threshold.as_deref(),
                )?
                .unwrap_or(default.low_amplitude_threshold),
                high_frequency_threshold: of(
                    "highFrequencyThreshold",
                    estimator.high_frequency_threshold.as_deref(),
                )?
                .unwrap_or(default.high_frequency_threshold),
                min_num_of_spectrum_items: items(
                    "minNumOfSpectrumItems",
                    estimator.min_num_of_spectrum_items,
                )?
                .unwrap_or(default.min_num_of_spectrum_items),
                max_num_of_spectrum_items: items(
                    "maxNumOfSpectrumItems",
                    estimator.max_num_of_spectrum_items,
                )?
                .unwrap_or(default.max_num_of_spectrum_items),
            })
        });
    Ok(dsp::Estimators {
        max_value: maxima.collect::<Result<_, Violation>>()?,
        fft: filters.collect::<Result<_, Violation>>()?,
    })
}

fn percentile(block: &wire::Percentile) -> Result<percentile::Config, Violation> {
    let at = |name: &str| format!("{BLOCK}.percentile.{name}");
    let default = percentile::Config::default();
    let of = |name: &str, text: &Option<String>| number(&at(name), text.as_deref());
    Ok(percentile::Config {
        sample_interval: duration(&at("sampleInterval"), block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        history_length: duration(&at("historyLength"), block.history_length.as_deref())?
            .unwrap_or(default.history_length),
        percentile: of("percentile", &block.percentile)?.unwrap_or(default.percentile),
        margin_fraction: of("marginFraction", &block.margin_fraction)?
            .unwrap_or(default.margin_fraction),
        target_utilization: of("targetUtilization", &block.target_utilization)?
            .unwrap_or(default.target_utilization),
        min_sample_weight: of("minSampleWeight", &block.min_sample_weight)?
            .unwrap_or(default.min_sample_weight),
        histogram: histogram(&block.histogram.clone().unwrap_or_default())?,
    })
}

fn histogram(block: &wire::Histogram) -> Result<percentile::Histogram, Violation> {
    let at = |name: &str| format!("{BLOCK}.percentile.histogram.{name}");
    let of = |name: &str, text: &Option<String>| number(&at(name), text.as_deref());
    let default = percentile::Histogram::default();
    let buckets = match (
        of("maxValue", &block.max_value)?,
        of("bucketSize", &block.bucket_size)?,
        of("firstBucketSize", &block.first_bucket_size)?,
        of("bucketSizeGrowthRatio", &block.bucket_size_growth_ratio)?,
    ) {
        (Some(max_value), _, Some(first_bucket_size), Some(growth_ratio)) => {
            Some(percentile::Buckets::Exponential {
                max_value,
                first_bucket_size,
                growth_ratio,
            })
        }
        (Some(max_value), Some(bucket_size), _, _) => Some(percentile::Buckets::Linear {
            max_value,
            bucket_size,
        }),
        _ => None,
    };
    Ok(percentile::Histogram {
        half_life: duration(&at("halfLife"), block.half_life.as_deref())?
            .unwrap_or(default.half_life),
        epsilon: of("epsilon", &block.epsilon)?.unwrap_or(default.epsilon),
        buckets,
    })
}

fn seasonal_naive(block: &wire::SeasonalNaive) -> Result<seasonal::Config, Violation> {
    let at = |name: &str| format!("{BLOCK}.seasonalNaive.{name}");
    let default = seasonal::Config::default();
    let statistic = match block.statistic {
        None | Some(wire::Statistic::Last) => seasonal::Statistic::Last,
        Some(wire::Statistic::Median) => seasonal::Statistic::Median,
        Some(wire::Statistic::Max) => seasonal::Statistic::Max,
    };
    let cycles = if statistic == seasonal::Statistic::Last {
        1
    } else {
        7
    };
    Ok(seasonal::Config {
        sample_interval: duration(&at("sampleInterval"), block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        season: season(&at("period"), block.period.as_deref())?,
        cycles: whole(&at("cycles"), block.cycles)?.unwrap_or(cycles),
        statistic,
        level_ratio: block.level_ratio.unwrap_or(default.level_ratio),
        ..default
    })
}

fn season(field: &str, text: Option<&str>) -> Result<seasonal::Season, Violation> {
    match duration(field, text)? {
        None => Ok(seasonal::Season::Day),
        Some(span) if span == seasonal::Season::Day.length() => Ok(seasonal::Season::Day),
        Some(span) if span == seasonal::Season::Week.length() => Ok(seasonal::Season::Week),
        Some(_) => Err(Violation::new(field, text.unwrap_or_default(), "1d or 7d")),
    }
}

/// crane's durations: whole days as `3d`, or a Go duration such as `60s` or `1h30m`.
fn duration(field: &str, text: Option<&str>) -> Result<Option<SignedDuration>, Violation> {
    let Some(text) = text else { return Ok(None) };
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok());
    let span = match days {
        Some(days) => SignedDuration::from_hours(i64::from(days) * 24),
        None => text.parse().map_err(|_| {
            Violation::new(
                field,
                format!("{text:?}"),
                "a duration such as 60s, 1h30m or 3d",
            )
        })?,
    };
    Ok(Some(span))
}

fn number(field: &str, text: Option<&str>) -> Result<Option<f64>, Violation> {
    let Some(text) = text else { return Ok(None) };
    let number = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    let number = number.ok_or_else(|| {
        Violation::new(
            field,
            format!("{text:?}"),
            "a number as text, such as \"0.15\"",
        )
    })?;
    Ok(Some(number))
}

fn whole(field: &str, count: Option<i32>) -> Result<Option<usize>, Violation> {
    let Some(count) = count else { return Ok(None) };
    let whole = usize::try_from(count)
        .map_err(|_| Violation::new(field, count.to_string(), "a number of at least 0"))?;
    Ok(Some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(yaml: &str) -> Prediction {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn the_seed_manifest_asks_for_three_days_of_dsp() {
        let asked = prediction(
            "predictionAlgorithm: {algorithmType: dsp, dsp: {sampleInterval: 60s, historyLength: 3d}}",
        );
        let expected = dsp::Config {
            history_length: SignedDuration::from_hours(72),
            ..dsp::Config::default()
        };
        assert_eq!(algorithm(&asked), Ok(Algorithm::Dsp(expected)));
    }

    #[test]
    fn no_algorithm_at_all_runs_dsp_with_its_defaults() {
        let default = Algorithm::Dsp(dsp::Config::default());
        assert_eq!(algorithm(&Prediction::default()), Ok(default));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_and_never_replaced() {
        for (yaml, field) in [
            (
                "{algorithmType: dsp, dsp: {historyLength: 1w}}",
                "dsp.historyLength",
            ),
            (
                "{algorithmType: percentile, percentile: {percentile: most}}",
                "percentile.percentile",
            ),
            (
                "{algorithmType: seasonalNaive, seasonalNaive: {period: 12h}}",
                "seasonalNaive.period",
            ),
            ("{algorithmType: linear}", "algorithmType"),
            ("{algorithmType: dsp, calibrate: true}", "calibrate"),
            (
                "{algorithmType: dsp, dsp: {estimators: {fft: [{marginFraction: x}]}}}",
                "dsp.estimators.fft[0].marginFraction",
            ),
        ] {
            let asked = prediction(&format!("predictionAlgorithm: {yaml}"));
            let violation = algorithm(&asked).unwrap_err();
            assert_eq!(violation.field, format!("{BLOCK}.{field}"), "{violation}");
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_by_their_path() {
        let asked =
            prediction("predictionAlgorithm: {algorithmType: dsp, dsp: {sampleInterval: 7s}}");
        let violation = forecaster(&asked).unwrap_err();
        assert_eq!(
            violation.field,
            format!("{BLOCK}.dsp.sampleInterval"),
            "{violation}"
        );
    }
}
