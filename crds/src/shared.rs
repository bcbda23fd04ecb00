//! The forecasting fields of all kinds: the algorithm, its parameters, and their validation rules.
//!
//! The field names are crane's. Every field is optional and numbers that crane writes as text stay
//! text, so that objects stored by crane can be read. The service validates and interprets the values.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::twins;

/// Removes the description of an enumeration, for `#[schemars(transform = ...)]`.
///
/// kube folds an optional enumeration into its field, and the description of the type would
/// replace that of the field.
pub(crate) fn leave_description_to_field(schema: &mut Schema) {
    schema.remove("description");
}

/// Algorithm of a forecast, and its parameters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Algorithm {
    /// Name of the algorithm: `auto`, `dsp`, `percentile` or `seasonalNaive`. Default `auto`.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self in ['auto', 'dsp', 'percentile', 'seasonalNaive']")
        .message("algorithmType must be one of auto, dsp, percentile, seasonalNaive; leave it out to use auto"))]
    pub algorithm_type: Option<AlgorithmType>,

    /// Adds a margin measured on the recent past, so that the forecast reaches the quantile. By default,
    /// `dsp` and `percentile` are not calibrated and all others are.
    pub calibrate: Option<bool>,

    /// Parameters of `auto`: learns online to predict the next minutes, from the last minutes and the same time on past
    /// days.
    pub auto: Option<Auto>,

    /// Parameters of `dsp`: finds a daily or weekly period in the history by Fourier transform and
    /// repeats it.
    pub dsp: Option<Dsp>,

    /// Parameters of `percentile`: a constant, the percentile of a histogram of the history. For services with steady
    /// load; not for daily load.
    pub percentile: Option<Percentile>,

    /// Parameters of `seasonalNaive`: the values at the same time one or more periods ago.
    pub seasonal_naive: Option<SeasonalNaive>,
}

/// Name of a forecasting algorithm.
///
/// An unknown name is kept, so that one object cannot make a whole list unreadable; validation rejects it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AlgorithmType {
    /// Foretide's own forecaster; the default.
    Auto,
    /// crane's Fourier transform forecaster.
    Dsp,
    /// crane's histogram percentile.
    Percentile,
    /// The same time one or more periods ago.
    SeasonalNaive,
    /// Any other name, as written.
    #[serde(untagged)]
    Unknown(String),
}

/// Parameters of the algorithm `auto`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auto {
    /// Time between two samples of the history, such as `60s`; at least 15 s. Default `60s`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(SAMPLE_INTERVAL_FORM))]
    #[x_kube(validation = Rule::new(twins::is_sample_interval()).message(SAMPLE_INTERVAL_RANGE))]
    pub sample_interval: Option<String>,
}

/// Parameters of the algorithm `dsp`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dsp {
    /// Time between two samples of the history, such as `60s`; at least 15 s. Default `60s`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(SAMPLE_INTERVAL_FORM))]
    #[x_kube(validation = Rule::new(twins::is_sample_interval()).message(SAMPLE_INTERVAL_RANGE))]
    pub sample_interval: Option<String>,

    /// Length of the history to learn from, such as `14d` or `72h`; 1 h to 30 d. Two whole periods are
    /// needed: two days for a daily pattern, two weeks for a weekly one. Default `15d`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(HISTORY_LENGTH_FORM))]
    #[x_kube(validation = Rule::new(twins::seconds_between(twins::HISTORY_LENGTH)).message(HISTORY_LENGTH_RANGE))]
    pub history_length: Option<String>,

    /// Candidates, of which the one with the least error on the last period is used. Default: eight `fft` candidates.
    pub estimators: Option<Estimators>,
}

const SAMPLE_INTERVAL_FORM: &str =
    "sampleInterval must be a duration such as '60s' or '5m' (number and unit, no spaces)";
const SAMPLE_INTERVAL_RANGE: &str = "sampleInterval must be between 15s and 1h and an exact part of a day; use '60s' unless the metric is scraped less often";
const HISTORY_LENGTH_FORM: &str = "historyLength must be whole days such as '14d' or a duration such as '72h'; weeks and mixed forms such as '1w' or '1d12h' are not understood";
const HISTORY_LENGTH_RANGE: &str =
    "historyLength must be between 1h and 30d; use '14d' to learn weekly patterns";

/// Candidates of the algorithm `dsp`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Estimators {
    /// Candidates that take, at each phase of the period, the maximum over all past periods.
    #[schemars(length(max = 32))]
    pub max_value: Option<Vec<MaxValueEstimator>>,

    /// Candidates that take the last period with its weak frequencies removed.
    #[schemars(length(max = 32))]
    pub fft: Option<Vec<FftEstimator>>,
}

/// One `maxValue` candidate of the algorithm `dsp`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaxValueEstimator {
    /// Margin added to the forecast, as a fraction written as text: `"0.1"` is 10 %. Default `"0"`.
    pub margin_fraction: Option<String>,
}

/// One `fft` candidate of the algorithm `dsp`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FftEstimator {
    /// Margin added to the forecast, as a fraction written as text: `"0.1"` is 10 %. Default `"0"`.
    pub margin_fraction: Option<String>,

    /// Amplitude below which a frequency counts as weak, in percent of the mean, written as
    /// text. Default `"1.0"`.
    pub low_amplitude_threshold: Option<String>,

    /// Frequency in hertz above which weak components are removed, written as text. Default one
    /// per hour.
    pub high_frequency_threshold: Option<String>,

    /// Fewest components to keep, however weak. Default 3.
    pub min_num_of_spectrum_items: Option<i32>,

    /// Most components to keep, however strong. Default 100.
    pub max_num_of_spectrum_items: Option<i32>,
}

/// Parameters of the algorithm `percentile`. Fractions are written as text.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Percentile {
    /// Uses one histogram over all series of the query instead of one per series. Default true.
    pub aggregated: Option<bool>,

    /// Length of the history to learn from, such as `7d`; 1 h to 30 d. Default `7d`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(HISTORY_LENGTH_FORM))]
    #[x_kube(validation = Rule::new(twins::seconds_between(twins::HISTORY_LENGTH)).message(HISTORY_LENGTH_RANGE))]
    pub history_length: Option<String>,

    /// Time between two samples of the history, such as `60s`; at least 15 s. Default `60s`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(SAMPLE_INTERVAL_FORM))]
    #[x_kube(validation = Rule::new(twins::is_sample_interval()).message(SAMPLE_INTERVAL_RANGE))]
    pub sample_interval: Option<String>,

    /// Least weight of one sample in the histogram. Default `"0.00001"`.
    pub min_sample_weight: Option<String>,

    /// Margin added to the forecast: `"0.1"` is 10 %. Default `"0"`.
    pub margin_fraction: Option<String>,

    /// The percentile, as a fraction: `"0.99"` is the 99th. Default `"0.99"`.
    pub percentile: Option<String>,

    /// Target utilization; the percentile is divided by it. Default `"1.0"`.
    pub target_utilization: Option<String>,

    /// Shape of the histogram.
    pub histogram: Option<Histogram>,
}

/// Shape of the histogram of the algorithm `percentile`. Numbers are written as text.
///
/// With `bucketSizeGrowthRatio`, `firstBucketSize` and `maxValue` the buckets grow; with
/// `bucketSize` and `maxValue` they are equal.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Largest value of the buckets, in the metric's unit; larger samples are in the last bucket. Default `"100"`.
    pub max_value: Option<String>,

    /// Weight below which a bucket counts as empty. Default `"1E-10"`.
    pub epsilon: Option<String>,

    /// Half-life of the weight of a sample, such as `24h`.
    pub half_life: Option<String>,

    /// Width of each bucket, in the metric's unit. Default `"0.1"`.
    pub bucket_size: Option<String>,

    /// Width of the first of growing buckets, in the metric's unit.
    pub first_bucket_size: Option<String>,

    /// Width of each growing bucket, as a multiple of that of the one before: `"1.05"` is 5 % wider.
    pub bucket_size_growth_ratio: Option<String>,
}

/// Parameters of the algorithm `seasonalNaive`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeasonalNaive {
    /// Time between two samples of the history, such as `60s`; at least 15 s. Default `60s`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(twins::IS_DURATION).message(SAMPLE_INTERVAL_FORM))]
    #[x_kube(validation = Rule::new(twins::is_sample_interval()).message(SAMPLE_INTERVAL_RANGE))]
    pub sample_interval: Option<String>,

    /// Period of the load: `1d` or `7d`. Default `1d`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['1d', '24h', '7d', '168h']")
        .message("period must be 1d or 7d; use 7d when weekends differ from weekdays"))]
    pub period: Option<String>,

    /// Statistic over the past periods: the `last` one, their `median` or their `max`. Default `last`.
    pub statistic: Option<Statistic>,

    /// Number of past periods to use; 1 to 30. Default 1 for `last`, else 7.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 30")
        .message("cycles must be between 1 and 30; more history than 30 days is not kept"))]
    pub cycles: Option<i32>,

    /// Scales the past by the ratio of the last 15 minutes to the same minutes then, by at most a factor of five up or
    /// down. Default false.
    pub level_ratio: Option<bool>,
}

/// Statistic of `seasonalNaive` over the past periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum Statistic {
    /// The most recent period.
    Last,
    /// The median of the periods.
    Median,
    /// The largest of the periods.
    Max,
}

// === impl AlgorithmType ===

impl JsonSchema for AlgorithmType {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AlgorithmType".into()
    }

    /// Text without an enumeration, because the rule on the field lists the names with a better message.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithm_names_round_trip_and_unknown_ones_are_kept() {
        for (text, name) in [
            ("auto", AlgorithmType::Auto),
            ("dsp", AlgorithmType::Dsp),
            ("seasonalNaive", AlgorithmType::SeasonalNaive),
            ("prophet", AlgorithmType::Unknown("prophet".to_owned())),
        ] {
            let json = serde_json::Value::from(text);
            assert_eq!(
                serde_json::from_value::<AlgorithmType>(json.clone()).unwrap(),
                name
            );
            assert_eq!(serde_json::to_value(&name).unwrap(), json);
        }
    }
}
