//! Converts the parameters of each algorithm of `predictionAlgorithm`: text to numbers and durations.
//!
//! The forecasters check their ranges.

use std::fmt;

use foretide_crds as wire;
use foretide_models::{auto, dsp, percentile, seasonal};
use jiff::SignedDuration;

use super::BLOCK;
use crate::validation::{self, Violation};

/// The path of a block of parameters in the spec.
struct Block(String);

impl Block {
    /// The block of an algorithm.
    fn of(algorithm: &str) -> Self {
        Self(format!("{BLOCK}.{algorithm}"))
    }

    /// A block in this one.
    fn part(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    fn duration(
        &self,
        name: &str,
        text: Option<&str>,
    ) -> Result<Option<SignedDuration>, Violation> {
        let expected = "a duration such as 60s, 1h30m or 3d";
        text.map(|text| validation::duration(text).ok_or_else(|| self.refuse(name, text, expected)))
            .transpose()
    }

    fn number(&self, name: &str, text: Option<&str>) -> Result<Option<f64>, Violation> {
        let expected = "a number as text, such as \"0.15\"";
        text.map(|text| {
            let number = text.trim().parse().ok();
            (number.filter(|number: &f64| number.is_finite()))
                .ok_or_else(|| self.refuse(name, text, expected))
        })
        .transpose()
    }

    fn whole(&self, name: &str, count: Option<i32>) -> Result<Option<usize>, Violation> {
        count
            .map(|count| {
                usize::try_from(count)
                    .map_err(|_| self.refuse(name, count, "a number of at least 0"))
            })
            .transpose()
    }

    fn season(&self, name: &str, text: Option<&str>) -> Result<seasonal::Season, Violation> {
        match self.duration(name, text)? {
            None => Ok(seasonal::Season::Day),
            Some(span) if span == seasonal::Season::Day.length() => Ok(seasonal::Season::Day),
            Some(span) if span == seasonal::Season::Week.length() => Ok(seasonal::Season::Week),
            Some(_) => Err(Violation::new(
                self.part(name).0,
                text.unwrap_or_default(),
                "1d or 7d",
            )),
        }
    }

    fn refuse(&self, name: &str, found: impl fmt::Debug, expected: &str) -> Violation {
        Violation::new(self.part(name).0, format!("{found:?}"), expected)
    }
}

pub(super) fn automatic(
    block: &wire::Auto,
    lead_time: SignedDuration,
    service_level: auto::ServiceLevel,
) -> Result<auto::Config, Violation> {
    let default = auto::Config::default();
    Ok(auto::Config {
        sample_interval: Block::of("auto")
            .duration("sampleInterval", block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        lead_time,
        service_level,
    })
}

pub(super) fn dsp(block: &wire::Dsp) -> Result<dsp::Config, Violation> {
    let at = Block::of("dsp");
    let default = dsp::Config::default();
    let estimators = match &block.estimators {
        None => default.estimators,
        Some(written) => estimators(written)?,
    };
    Ok(dsp::Config {
        sample_interval: at
            .duration("sampleInterval", block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        history_length: at
            .duration("historyLength", block.history_length.as_deref())?
            .unwrap_or(default.history_length),
        estimators,
    })
}

fn estimators(block: &wire::Estimators) -> Result<dsp::Estimators, Violation> {
    let at = Block::of("dsp.estimators");
    let mut converted = dsp::Estimators {
        max_value: Vec::new(),
        fft: Vec::new(),
    };
    // The first entry that cannot be parsed ends the conversion, and is the one that is reported.
    for (i, estimator) in block.max_value.iter().flatten().enumerate() {
        let at = at.part(&format!("maxValue[{i}]"));
        let margin = at.number("marginFraction", estimator.margin_fraction.as_deref())?;
        converted.max_value.push(dsp::MaxValue {
            margin_fraction: margin.unwrap_or_default(),
        });
    }
    for (i, estimator) in block.fft.iter().flatten().enumerate() {
        let filter = fft(&at.part(&format!("fft[{i}]")), estimator)?;
        converted.fft.push(filter);
    }
    Ok(converted)
}

fn fft(at: &Block, estimator: &wire::FftEstimator) -> Result<dsp::Fft, Violation> {
    let default = dsp::Fft::default();
    Ok(dsp::Fft {
        margin_fraction: at
            .number("marginFraction", estimator.margin_fraction.as_deref())?
            .unwrap_or(default.margin_fraction),
        low_amplitude_threshold: at
            .number(
                "lowAmplitudeThreshold",
                estimator.low_amplitude_threshold.as_deref(),
            )?
            .unwrap_or(default.low_amplitude_threshold),
        high_frequency_threshold: at
            .number(
                "highFrequencyThreshold",
                estimator.high_frequency_threshold.as_deref(),
            )?
            .unwrap_or(default.high_frequency_threshold),
        min_num_of_spectrum_items: at
            .whole("minNumOfSpectrumItems", estimator.min_num_of_spectrum_items)?
            .unwrap_or(default.min_num_of_spectrum_items),
        max_num_of_spectrum_items: at
            .whole("maxNumOfSpectrumItems", estimator.max_num_of_spectrum_items)?
            .unwrap_or(default.max_num_of_spectrum_items),
    })
}

pub(super) fn percentile(block: &wire::Percentile) -> Result<percentile::Config, Violation> {
    let at = Block::of("percentile");
    let default = percentile::Config::default();
    Ok(percentile::Config {
        sample_interval: at
            .duration("sampleInterval", block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        history_length: at
            .duration("historyLength", block.history_length.as_deref())?
            .unwrap_or(default.history_length),
        percentile: at
            .number("percentile", block.percentile.as_deref())?
            .unwrap_or(default.percentile),
        margin_fraction: at
            .number("marginFraction", block.margin_fraction.as_deref())?
            .unwrap_or(default.margin_fraction),
        target_utilization: at
            .number("targetUtilization", block.target_utilization.as_deref())?
            .unwrap_or(default.target_utilization),
        min_sample_weight: at
            .number("minSampleWeight", block.min_sample_weight.as_deref())?
            .unwrap_or(default.min_sample_weight),
        histogram: histogram(&block.histogram.clone().unwrap_or_default())?,
    })
}

fn histogram(block: &wire::Histogram) -> Result<percentile::Histogram, Violation> {
    let at = Block::of("percentile.histogram");
    let default = percentile::Histogram::default();
    // As in crane's `makeInternalConfig`: growing buckets take precedence, and an incomplete set gives the default.
    let buckets = match (
        at.number("maxValue", block.max_value.as_deref())?,
        at.number("bucketSize", block.bucket_size.as_deref())?,
        at.number("firstBucketSize", block.first_bucket_size.as_deref())?,
        at.number(
            "bucketSizeGrowthRatio",
            block.bucket_size_growth_ratio.as_deref(),
        )?,
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
        half_life: at
            .duration("halfLife", block.half_life.as_deref())?
            .unwrap_or(default.half_life),
        epsilon: at
            .number("epsilon", block.epsilon.as_deref())?
            .unwrap_or(default.epsilon),
        buckets,
    })
}

pub(super) fn seasonal_naive(block: &wire::SeasonalNaive) -> Result<seasonal::Config, Violation> {
    let at = Block::of("seasonalNaive");
    let default = seasonal::Config::default();
    let statistic = match block.statistic {
        None | Some(wire::Statistic::Last) => seasonal::Statistic::Last,
        Some(wire::Statistic::Median) => seasonal::Statistic::Median,
        Some(wire::Statistic::Max) => seasonal::Statistic::Max,
    };
    // Of a single period the median and the maximum are the last value.
    let cycles = if statistic == seasonal::Statistic::Last {
        1
    } else {
        7
    };
    Ok(seasonal::Config {
        sample_interval: at
            .duration("sampleInterval", block.sample_interval.as_deref())?
            .unwrap_or(default.sample_interval),
        season: at.season("period", block.period.as_deref())?,
        cycles: at.whole("cycles", block.cycles)?.unwrap_or(cycles),
        statistic,
        level_ratio: block.level_ratio.unwrap_or(default.level_ratio),
        ..default
    })
}
