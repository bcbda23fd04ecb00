//! Converts `spec.prediction`, with crane's strings, to the settings of a forecaster.
//!
//! An absent field takes the algorithm's default. A field that cannot be parsed, or would have no effect, is a
//! violation, never a silent default.

mod parameters;

use foretide_crds as wire;
use foretide_crds::{AlgorithmType, Prediction};
use foretide_domain::lead_time::LeadTime;
use foretide_models::{Algorithm, Forecaster, auto, calibrate};
use jiff::SignedDuration;

use super::Violation;

/// Path of the field.
const PREDICTION: &str = "spec.prediction";
/// Path of the field that names the algorithm.
const BLOCK: &str = "spec.prediction.predictionAlgorithm";
/// The names of the algorithms.
const KNOWN: &str = "auto, dsp, percentile or seasonalNaive";
/// The range of `leadTimeSeconds`.
const LEAD_TIME_SECONDS: std::ops::RangeInclusive<i32> = 30..=1200;
/// The range of `quantile`.
const QUANTILES: std::ops::RangeInclusive<f64> = 0.5..=0.999;

/// Facts that were measured of a workload, or follow from that, and are not in its spec.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkloadFacts {
    /// The time that new pods took to become ready; used if the spec has no `leadTimeSeconds`.
    pub lead_time: Option<SignedDuration>,
    /// The demand that one replica is meant to carry, in the unit of the history.
    pub per_replica: Option<f64>,
    /// True if the forecasts of its namespace share a budget, which then chooses the quantile that the spec does not.
    pub shares_budget: bool,
    /// True if the total of the metric grows with the pods, or is not known to divide among them.
    pub not_divided: bool,
}

/// Converts the settings of the forecaster.
///
/// # Errors
/// The first invalid field.
pub fn algorithm(prediction: &Prediction, facts: WorkloadFacts) -> Result<Algorithm, Violation> {
    let block = prediction.prediction_algorithm.clone().unwrap_or_default();
    let asked = block.algorithm_type.clone().unwrap_or(AlgorithmType::Auto);
    let lead_time = lead_time(prediction, facts)?.span;
    let service_level = service_level(prediction, facts)?;
    if asked == AlgorithmType::Auto {
        require_calibrated(block.calibrate)?;
        let parameters = block.auto.unwrap_or_default();
        return parameters::automatic(&parameters, lead_time, service_level).map(Algorithm::Auto);
    }
    // Those that crane has forecast as in crane unless asked otherwise.
    let bare = matches!(asked, AlgorithmType::Dsp | AlgorithmType::Percentile);
    let inner = named(&asked, block.clone())?;
    let quantile = match service_level {
        auto::ServiceLevel::Quantile(quantile) => quantile,
        // Only `auto` buys replicas at a price. Other algorithms of a namespace with a budget forecast as without one.
        auto::ServiceLevel::Priced { .. } => auto::DEFAULT_QUANTILE,
        auto::ServiceLevel::UnderProvisioned { percent, .. } => {
            let expected = "unset: only auto chooses its own quantile";
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
            "unset, or predictionAlgorithm.calibrate: true, because this algorithm has no quantile without it",
        )),
    }
}

/// True if a forecaster buys replicas at the price of a budget.
pub fn is_priced(algorithm: &Algorithm) -> bool {
    let Algorithm::Auto(auto::Config { service_level, .. }) = algorithm else {
        return false;
    };
    matches!(service_level, auto::ServiceLevel::Priced { .. })
}

/// Builds the forecaster of a spec whose workload has not been measured.
///
/// # Errors
/// The first invalid field.
pub fn forecaster(prediction: &Prediction) -> Result<Box<dyn Forecaster>, Violation> {
    build(algorithm(prediction, WorkloadFacts::default())?)
}

/// Builds a forecaster from settings that were converted from a spec.
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
        AlgorithmType::Dsp => parameters::dsp(&block.dsp.unwrap_or_default()).map(Algorithm::Dsp),
        AlgorithmType::Percentile => {
            parameters::percentile(&block.percentile.unwrap_or_default()).map(Algorithm::Percentile)
        }
        AlgorithmType::SeasonalNaive => {
            parameters::seasonal_naive(&block.seasonal_naive.unwrap_or_default())
                .map(Algorithm::SeasonalNaive)
        }
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

/// The lead time of the spec, else the measured one, else the default: see [`LeadTime::of`].
///
/// # Errors
/// `leadTimeSeconds` is out of range.
pub fn lead_time(prediction: &Prediction, facts: WorkloadFacts) -> Result<LeadTime, Violation> {
    let written = prediction.lead_time_seconds;
    if let Some(written) = written.filter(|written| !LEAD_TIME_SECONDS.contains(written)) {
        return Err(Violation::new(
            format!("{PREDICTION}.leadTimeSeconds"),
            written.to_string(),
            "30 to 1200; leave it out to have it measured",
        ));
    }
    let written = written.map(|seconds| SignedDuration::from_secs(seconds.into()));
    Ok(LeadTime::of(written, facts.lead_time))
}

/// The share of the demand that is to be provided for.
fn service_level(
    prediction: &Prediction,
    facts: WorkloadFacts,
) -> Result<auto::ServiceLevel, Violation> {
    let quantile = prediction.quantile.unwrap_or(auto::DEFAULT_QUANTILE);
    if !QUANTILES.contains(&quantile) {
        let field = format!("{PREDICTION}.quantile");
        return Err(Violation::new(field, quantile.to_string(), "0.5 to 0.999"));
    }
    let Some(percent) = prediction.max_under_provisioned_percent else {
        return Ok(match facts.per_replica {
            // A budget is in replicas: without the demand of one, those of this forecast cannot be added to it.
            Some(_) if facts.shares_budget && prediction.quantile.is_none() => {
                auto::ServiceLevel::Priced {
                    price: None,
                    per_replica: facts.per_replica,
                }
            }
            _ => auto::ServiceLevel::Quantile(quantile),
        });
    };
    let expected = if prediction.quantile.is_some() {
        "unset while spec.prediction.quantile is set, because each of them chooses the quantile"
    } else if percent > 0.0 && percent < 100.0 {
        let per_replica = facts.per_replica;
        return Ok(auto::ServiceLevel::UnderProvisioned {
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
    let expected = "true or unset, because auto is always calibrated";
    Err(Violation::new(
        format!("{BLOCK}.calibrate"),
        "false",
        expected,
    ))
}

#[cfg(test)]
mod tests {
    use foretide_models::{dsp, percentile, seasonal};

    use super::*;

    fn prediction(yaml: &str) -> Prediction {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn read(yaml: &str) -> Result<Algorithm, Violation> {
        algorithm(&prediction(yaml), WorkloadFacts::default())
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
        let read = algorithm(&asked, WorkloadFacts::default());
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
        let automatic = |seconds, service_level| {
            Algorithm::Auto(auto::Config {
                lead_time: SignedDuration::from_secs(seconds),
                service_level,
                ..auto::Config::default()
            })
        };
        let facts = |seconds| WorkloadFacts {
            lead_time: Some(SignedDuration::from_secs(seconds)),
            per_replica: Some(2.5),
            ..WorkloadFacts::default()
        };
        let shared = |per_replica| WorkloadFacts {
            per_replica,
            shares_budget: true,
            ..WorkloadFacts::default()
        };
        let priced = auto::ServiceLevel::Priced {
            price: None,
            per_replica: Some(2.5),
        };
        let objective = auto::ServiceLevel::UnderProvisioned {
            percent: 1.0,
            per_replica: Some(2.5),
        };
        let usual = auto::ServiceLevel::default();
        let (high, quantile) = ("{quantile: 0.95}", auto::ServiceLevel::Quantile(0.95));
        let one_percent = "{maxUnderProvisionedPercent: 1}";
        for (yaml, facts, expected) in [
            ("{}", facts(200), automatic(240, usual)),
            ("{}", facts(5), automatic(60, usual)),
            ("{}", facts(5000), automatic(1200, usual)),
            ("{leadTimeSeconds: 60}", facts(200), automatic(60, usual)),
            (high, WorkloadFacts::default(), automatic(120, quantile)),
            (one_percent, facts(120), automatic(120, objective)),
            ("{}", shared(Some(2.5)), automatic(120, priced)),
            ("{}", shared(None), automatic(120, usual)),
            (high, shared(Some(2.5)), automatic(120, quantile)),
            (one_percent, shared(Some(2.5)), automatic(120, objective)),
        ] {
            assert_eq!(algorithm(&prediction(yaml), facts), Ok(expected), "{yaml}");
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
        let naive = Algorithm::SeasonalNaive(seasonal::Config::default());
        let floor = Algorithm::Percentile(percentile::Config::default());
        let usual = calibrated(naive.clone(), 0.94);
        for (yaml, expected) in [
            ("{algorithmType: dsp}", dsp.clone()),
            ("{algorithmType: percentile}", floor),
            ("{algorithmType: seasonalNaive}", usual),
            ("{algorithmType: seasonalNaive, calibrate: false}", naive),
        ] {
            let yaml = format!("predictionAlgorithm: {yaml}");
            assert_eq!(read(&yaml), Ok(expected), "{yaml}");
        }
        let asked = "{quantile: 0.8, predictionAlgorithm: {algorithmType: dsp, calibrate: true}}";
        assert_eq!(read(asked), Ok(calibrated(dsp, 0.8)));
    }

    #[test]
    fn a_value_that_cannot_be_parsed_is_a_violation_and_never_a_default() {
        for (block, field) in [
            ("dsp: {historyLength: 1w}", "dsp.historyLength"),
            ("percentile: {percentile: most}", "percentile.percentile"),
            ("seasonalNaive: {period: 12h}", "seasonalNaive.period"),
            ("seasonalNaive: {cycles: -1}", "seasonalNaive.cycles"),
            (
                "dsp: {estimators: {fft: [{marginFraction: x}]}}",
                "dsp.estimators.fft[0].marginFraction",
            ),
            ("auto: {sampleInterval: often}", "auto.sampleInterval"),
        ] {
            let (kind, _) = block.split_once(':').unwrap();
            let yaml = format!("predictionAlgorithm: {{algorithmType: {kind}, {block}}}");
            refused(&yaml, &format!("predictionAlgorithm.{field}"));
        }
        let unknown = "predictionAlgorithm: {algorithmType: prophet}";
        refused(unknown, "predictionAlgorithm.algorithmType");
    }

    #[test]
    fn a_value_out_of_range_or_without_effect_is_refused() {
        let dsp = "predictionAlgorithm: {algorithmType: dsp}";
        let automatic = "predictionAlgorithm: {calibrate: false}";
        refused(automatic, "predictionAlgorithm.calibrate");
        for (yaml, field) in [
            ("quantile: 0.4", "quantile"),
            ("quantile: 1", "quantile"),
            (&format!("{{quantile: 0.9, {dsp}}}"), "quantile"),
            ("leadTimeSeconds: 29", "leadTimeSeconds"),
            ("leadTimeSeconds: 1201", "leadTimeSeconds"),
        ] {
            refused(yaml, field);
        }
        for yaml in [
            "maxUnderProvisionedPercent: 0",
            "{maxUnderProvisionedPercent: 1, quantile: 0.9}",
            &format!("{{maxUnderProvisionedPercent: 1, {dsp}}}"),
        ] {
            refused(yaml, "maxUnderProvisionedPercent");
        }
    }

    /// Asserts that a prediction is refused with the path of this field.
    fn refused(yaml: &str, field: &str) {
        let violation = read(yaml).unwrap_err();
        let path = format!("{PREDICTION}.{field}");
        assert_eq!(violation.field, path, "{violation}");
    }

    #[test]
    fn absurd_durations_are_refused_whether_or_not_they_can_be_represented() {
        for span in [
            "100000000000000000d",
            "106751991167300d",
            "2562047788015215h",
        ] {
            for field in ["sampleInterval", "historyLength"] {
                for kind in ["dsp", "percentile"] {
                    let yaml = format!(
                        "predictionAlgorithm: {{algorithmType: {kind}, {kind}: {{{field}: {span}}}}}"
                    );
                    let violation = forecaster(&prediction(&yaml)).unwrap_err();
                    assert!(violation.field.starts_with(BLOCK), "{yaml}: {violation}");
                }
            }
            let yaml = format!("predictionAlgorithm: {{auto: {{sampleInterval: {span}}}}}");
            assert!(forecaster(&prediction(&yaml)).is_err(), "{span}");
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
