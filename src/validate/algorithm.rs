//! `spec.prediction`: from crane's strings to a forecaster's settings.
//!
//! What is not written takes the algorithm's default; what is written and cannot be read, or would
//! have no effect, is a violation, never a silent default.

use foretide_crds as wire;
use foretide_crds::{AlgorithmType, Prediction};
#[cfg(feature = "augurs")]
use foretide_models::mstl;
use foretide_models::{
    Algorithm, Forecaster, auto, calibrate, dsp, holt_winters, linear, percentile, seasonal,
};
use jiff::SignedDuration;

use super::Violation;

/// Path of the block that is read here.
const PREDICTION: &str = "spec.prediction";
/// Path of the block that names the algorithm.
const BLOCK: &str = "spec.prediction.predictionAlgorithm";
/// The algorithms that can be asked for.
const KNOWN: &str = "auto, dsp, percentile, seasonalNaive, holtWinters, linear or mstl";
/// How long a new replica takes until it serves, where nobody said or measured it.
const LEAD_TIME: SignedDuration = SignedDuration::from_secs(120);
/// Shortest and longest lead time, in seconds; a measured one is brought within.
const LEAD_TIME_SECONDS: std::ops::RangeInclusive<i32> = 30..=1200;
/// The quantile where none is written, and the least and the greatest.
const QUANTILE: f64 = 0.90;
const QUANTILES: std::ops::RangeInclusive<f64> = 0.5..=0.999;

/// What is known of a workload besides its spec.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Known {
    /// How long its new pods took until they were ready; used where the spec says nothing.
    pub lead_time: Option<SignedDuration>,
    /// What one replica is to carry, in the unit of the history.
    pub per_replica: Option<f64>,
}

/// The settings of the forecaster that a spec asks for.
///
/// # Errors
/// The first field that cannot be used.
pub fn algorithm(prediction: &Prediction, known: Known) -> Result<Algorithm, Violation> {
    let block = prediction.prediction_algorithm.clone().unwrap_or_default();
    let asked = block.algorithm_type.clone().unwrap_or(AlgorithmType::Auto);
    let lead_time = lead_time(prediction.lead_time_seconds, known)?;
    let aim = aim(prediction, known)?;
    if asked == AlgorithmType::Auto {
        require_calibrated(block.calibrate)?;
        return automatic(&block.auto.unwrap_or_default(), lead_time, aim).map(Algorithm::Auto);
    }
    let bare = matches!(asked, AlgorithmType::Dsp | AlgorithmType::Percentile);
    let inner = named(&asked, block.clone())?;
    let quantile = match aim {
        auto::Aim::Quantile(quantile) => quantile,
        auto::Aim::UnderProvisioned { percent, .. } => {
            let expected = "left out: only auto chooses its own quantile";
            let field = format!("{PREDICTION}.maxUnderProvisionedPercent");
            return Err(Violation::new(field, percent.to_string(), expected));
        }
    };
    if block.calibrate.unwrap_or(!bare) {
        let config = calibrate::Config {
            quantile,
            lead_time,
        };
        return Ok(Algorithm::Calibrated(Box::new(inner), config));
    }
    match prediction.quantile {
        None => Ok(inner),
        Some(written) => Err(Violation::new(
            format!("{PREDICTION}.quantile"),
            written.to_string(),
            "left out, or predictionAlgorithm.calibrate: true, without which this algorithm has no quantile",
        )),
    }
}

/// The forecaster that a spec asks for, settings checked, with nothing known of the workload.
///
/// # Errors
/// The first field that cannot be used.
pub fn forecaster(prediction: &Prediction) -> Result<Box<dyn Forecaster>, Violation> {
    build(algorithm(prediction, Known::default())?)
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

/// The settings of any algorithm but `auto`, by name.
fn named(asked: &AlgorithmType, block: wire::Algorithm) -> Result<Algorithm, Violation> {
    match asked {
        AlgorithmType::Dsp => dsp(&block.dsp.unwrap_or_default()).map(Algorithm::Dsp),
        AlgorithmType::Percentile => {
            percentile(&block.percentile.unwrap_or_default()).map(Algorithm::Percentile)
        }
        AlgorithmType::SeasonalNaive => {
            seasonal_naive(&block.seasonal_naive.unwrap_or_default()).map(Algorithm::SeasonalNaive)
        }
        AlgorithmType::HoltWinters => {
            holt_winters(&block.holt_winters.unwrap_or_default()).map(Algorithm::HoltWinters)
        }
        AlgorithmType::Linear => linear(&block.linear.unwrap_or_default()).map(Algorithm::Linear),
        AlgorithmType::Mstl => mstl(&block.mstl.unwrap_or_default()),
        other => {
            let name = match other {
                AlgorithmType::Unknown(name) => format!("{name:?}"),
                other => format!("{other:?}"),
            };
            Err(Violation::new(
                format!("{BLOCK}.algorithmType"),
                name,
                KNOWN,
            ))
        }
    }
}

/// The lead time of the spec, else the measured one within bounds, else the usual one.
fn lead_time(written: Option<i32>, known: Known) -> Result<SignedDuration, Violation> {
    let (least, most) = (*LEAD_TIME_SECONDS.start(), *LEAD_TIME_SECONDS.end());
    let seconds = |n: i32| SignedDuration::from_secs(n.into());
    match written {
        Some(written) if LEAD_TIME_SECONDS.contains(&written) => Ok(seconds(written)),
        Some(written) => Err(Violation::new(
            format!("{PREDICTION}.leadTimeSeconds"),
            written.to_string(),
            "30 to 1200; leave it out to have it measured",
        )),
        None => Ok(known.lead_time.map_or(LEAD_TIME, |measured| {
            measured.clamp(seconds(least), seconds(most))
        })),
    }
}

/// How much of the demand the spec wants provided for.
fn aim(prediction: &Prediction, known: Known) -> Result<auto::Aim, Violation> {
    let quantile = prediction.quantile.unwrap_or(QUANTILE);
    if !QUANTILES.contains(&quantile) {
        let field = format!("{PREDICTION}.quantile");
        return Err(Violation::new(field, quantile.to_string(), "0.5 to 0.999"));
    }
    let Some(percent) = prediction.max_under_provisioned_percent else {
        return Ok(auto::Aim::Quantile(quantile));
    };
    let expected = if prediction.quantile.is_some() {
        "left out, or quantile: each chooses the quantile"
    } else if percent > 0.0 && percent < 100.0 {
        let per_replica = known.per_replica;
        return Ok(auto::Aim::UnderProvisioned {
            percent,
            per_replica,
        });
    } else {
        "above 0 and below 100"
    };
    let field = format!("{PREDICTION}.maxUnderProvisionedPercent");
    Err(Violation::new(field, percent.to_string(), expected))
}

fn require_calibrated(calibrate: Option<bool>) -> Result<(), Violation> {
    if calibrate != Some(false) {
        return Ok(());
    }
    let expected = "true or left out: auto is calibrated by nature";
    Err(Violation::new(
        format!("{BLOCK}.calibrate"),
        "false",
        expected,
    ))
}

fn automatic(
    block: &wire::Auto,
    lead_time: SignedDuration,
    aim: auto::Aim,
) -> Result<auto::Config, Violation> {
    let field = format!("{BLOCK}.auto.sampleInterval");
    let default = auto::Config::default();
    Ok(auto::Config {
        sample_interval: duration(&field, block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        lead_time,
        aim,
    })
}

fn holt_winters(block: &wire::HoltWinters) -> Result<holt_winters::Config, Violation> {
    let of = |name: &str, text: &Option<String>| {
        duration(&format!("{BLOCK}.holtWinters.{name}"), text.as_deref())
    };
    let default = holt_winters::Config::default();
    Ok(holt_winters::Config {
        sample_interval: of("sampleInterval", &block.sample_interval)?
            .unwrap_or(default.sample_interval),
        history_length: of("historyLength", &block.history_length)?
            .unwrap_or(default.history_length),
        season: of("season", &block.season)?.unwrap_or(default.season),
        ..default
    })
}

fn linear(block: &wire::Linear) -> Result<linear::Config, Violation> {
    let at = |name: &str| format!("{BLOCK}.linear.{name}");
    let default = linear::Config::default();
    Ok(linear::Config {
        sample_interval: duration(&at("sampleInterval"), block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        samples: whole(&at("samples"), block.samples)?.unwrap_or(default.samples),
    })
}

#[cfg(feature = "augurs")]
fn mstl(block: &wire::Mstl) -> Result<Algorithm, Violation> {
    let of = |name: &str, text: &Option<String>| {
        duration(&format!("{BLOCK}.mstl.{name}"), text.as_deref())
    };
    let default = mstl::Config::default();
    Ok(Algorithm::Mstl(mstl::Config {
        sample_interval: of("sampleInterval", &block.sample_interval)?
            .unwrap_or(default.sample_interval),
        history_length: of("historyLength", &block.history_length)?
            .unwrap_or(default.history_length),
    }))
}

#[cfg(not(feature = "augurs"))]
fn mstl(_: &wire::Mstl) -> Result<Algorithm, Violation> {
    let expected = "another algorithm: this program was built without mstl; \
        a build with the cargo feature `augurs` has it";
    Err(Violation::new(
        format!("{BLOCK}.algorithmType"),
        "mstl",
        expected,
    ))
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

    fn read(yaml: &str) -> Result<Algorithm, Violation> {
        algorithm(&prediction(yaml), Known::default())
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
        let read = algorithm(&asked, Known::default());
        assert_eq!(read, Ok(Algorithm::Dsp(expected)));
    }

    #[test]
    fn no_algorithm_at_all_runs_auto_with_its_defaults() {
        let default = Algorithm::Auto(auto::Config::default());
        assert_eq!(read("{}"), Ok(default.clone()));
        assert_eq!(read("predictionAlgorithm: {calibrate: true}"), Ok(default));
    }

    #[test]
    fn the_aim_and_the_lead_time_reach_the_forecaster() {
        let automatic = |seconds, aim| {
            Algorithm::Auto(auto::Config {
                lead_time: SignedDuration::from_secs(seconds),
                aim,
                ..auto::Config::default()
            })
        };
        let known = |seconds| Known {
            lead_time: Some(SignedDuration::from_secs(seconds)),
            per_replica: Some(2.5),
        };
        let objective = auto::Aim::UnderProvisioned {
            percent: 1.0,
            per_replica: Some(2.5),
        };
        let usual = auto::Aim::Quantile(0.90);
        for (yaml, known, expected) in [
            ("{}", known(200), automatic(200, usual)),
            ("{}", known(5), automatic(30, usual)),
            ("{}", known(5000), automatic(1200, usual)),
            ("{leadTimeSeconds: 60}", known(200), automatic(60, usual)),
            (
                "{quantile: 0.95}",
                Known::default(),
                automatic(120, auto::Aim::Quantile(0.95)),
            ),
            (
                "{maxUnderProvisionedPercent: 1}",
                known(120),
                automatic(120, objective),
            ),
        ] {
            assert_eq!(algorithm(&prediction(yaml), known), Ok(expected), "{yaml}");
        }
    }

    #[test]
    fn all_but_dsp_and_percentile_are_calibrated_unless_asked_otherwise() {
        let calibrated = |inner, quantile| {
            let lead_time = SignedDuration::from_secs(120);
            let config = calibrate::Config {
                quantile,
                lead_time,
            };
            Algorithm::Calibrated(Box::new(inner), config)
        };
        let dsp = Algorithm::Dsp(dsp::Config::default());
        let line = Algorithm::Linear(linear::Config::default());
        let naive = Algorithm::SeasonalNaive(seasonal::Config::default());
        let half_day = Algorithm::HoltWinters(holt_winters::Config {
            season: SignedDuration::from_hours(12),
            ..holt_winters::Config::default()
        });
        let floor = Algorithm::Percentile(percentile::Config::default());
        for (yaml, expected) in [
            ("predictionAlgorithm: {algorithmType: dsp}", dsp.clone()),
            (
                "{quantile: 0.8, predictionAlgorithm: {algorithmType: dsp, calibrate: true}}",
                calibrated(dsp, 0.8),
            ),
            ("predictionAlgorithm: {algorithmType: percentile}", floor),
            (
                "predictionAlgorithm: {algorithmType: seasonalNaive}",
                calibrated(naive, 0.9),
            ),
            (
                "predictionAlgorithm: {algorithmType: holtWinters, holtWinters: {season: 12h}}",
                calibrated(half_day, 0.9),
            ),
            (
                "predictionAlgorithm: {algorithmType: linear, calibrate: false}",
                line,
            ),
        ] {
            assert_eq!(read(yaml), Ok(expected), "{yaml}");
        }
    }

    #[test]
    fn mstl_needs_the_build_that_has_it() {
        let asked = read("predictionAlgorithm: {algorithmType: mstl, mstl: {historyLength: 20d}}");
        if cfg!(feature = "augurs") {
            assert_eq!(build(asked.unwrap()).unwrap().name(), "mstl");
        } else {
            let violation = asked.unwrap_err();
            assert_eq!(violation.field, format!("{BLOCK}.algorithmType"));
            assert!(violation.expected.contains("`augurs`"), "{violation}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_or_has_no_effect_is_named_and_never_replaced() {
        for (yaml, field) in [
            (
                "predictionAlgorithm: {algorithmType: dsp, dsp: {historyLength: 1w}}",
                "predictionAlgorithm.dsp.historyLength",
            ),
            (
                "predictionAlgorithm: {algorithmType: percentile, percentile: {percentile: most}}",
                "predictionAlgorithm.percentile.percentile",
            ),
            (
                "predictionAlgorithm: {algorithmType: seasonalNaive, seasonalNaive: {period: 12h}}",
                "predictionAlgorithm.seasonalNaive.period",
            ),
            (
                "predictionAlgorithm: {algorithmType: prophet}",
                "predictionAlgorithm.algorithmType",
            ),
            (
                "predictionAlgorithm: {algorithmType: linear, linear: {samples: -1}}",
                "predictionAlgorithm.linear.samples",
            ),
            (
                "predictionAlgorithm: {algorithmType: dsp, dsp: {estimators: {fft: [{marginFraction: x}]}}}",
                "predictionAlgorithm.dsp.estimators.fft[0].marginFraction",
            ),
            (
                "predictionAlgorithm: {auto: {sampleInterval: often}}",
                "predictionAlgorithm.auto.sampleInterval",
            ),
            (
                "predictionAlgorithm: {calibrate: false}",
                "predictionAlgorithm.calibrate",
            ),
            ("quantile: 0.4", "quantile"),
            ("quantile: 1", "quantile"),
            (
                "{quantile: 0.9, predictionAlgorithm: {algorithmType: dsp}}",
                "quantile",
            ),
            ("leadTimeSeconds: 29", "leadTimeSeconds"),
            ("leadTimeSeconds: 1201", "leadTimeSeconds"),
            (
                "maxUnderProvisionedPercent: 0",
                "maxUnderProvisionedPercent",
            ),
            (
                "{maxUnderProvisionedPercent: 1, quantile: 0.9}",
                "maxUnderProvisionedPercent",
            ),
            (
                "{maxUnderProvisionedPercent: 1, predictionAlgorithm: {algorithmType: linear}}",
                "maxUnderProvisionedPercent",
            ),
        ] {
            let violation = read(yaml).unwrap_err();
            assert_eq!(
                violation.field,
                format!("{PREDICTION}.{field}"),
                "{violation}"
            );
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
