//! All candidates of the comparison. To add one, add it to [`all`].

use foretide_models::{Algorithm, dsp};
use foretide_replay::{
    AutoCandidate, CalibratedPersistence, Candidate, NaiveCandidate, RefittedCandidate, Trace,
    Workload,
};

use crate::Failure;
use crate::arguments::Options;
use crate::product::Product;

/// The quantiles of calibrated candidates.
pub(crate) const QUANTILES: &[f64] = &[
    0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.94, 0.95, 0.97, 0.98, 0.99,
];

/// The percentages of under-provisioned minutes that `auto` is configured for.
const PERCENTS: &[f64] = &[0.5, 1.0, 2.0, 5.0];

/// `auto`, configured for a percentage of under-provisioned minutes.
pub(crate) const AUTO_OBJECTIVE: &str = "auto, objective";

/// `auto` with the settings of the golden file of the study.
pub(crate) const AUTO_GOLDEN: &str = "auto (golden)";

/// The start-up for which the selectable forecasters are replayed; asking them every minute is expensive.
const MORE_AT: usize = 2;

/// The candidates for one trace at one start-up, each of which is used once.
pub(crate) fn all(
    trace: &Trace,
    workload: &Workload<'_>,
    start_up: usize,
    options: Options,
) -> Result<Vec<Box<dyn Candidate>>, Failure> {
    let mut all: Vec<Box<dyn Candidate>> = Vec::new();
    for plain in NaiveCandidate::all(start_up) {
        all.push(Box::new(plain));
    }
    all.push(Box::new(CalibratedPersistence::new(QUANTILES, start_up)));
    all.push(Box::new(crane_like()?));
    if options.more && start_up == MORE_AT {
        for product in Product::selectable(start_up)? {
            all.push(Box::new(product));
        }
    }
    all.push(Box::new(AutoCandidate::quantiles(QUANTILES, start_up)));
    all.push(Box::new(AutoCandidate::objectives(
        PERCENTS, start_up, workload,
    )));
    if options.history == 1 {
        let offset = AutoCandidate::offset(&trace.demand);
        all.push(Box::new(AutoCandidate::first_version(
            QUANTILES, start_up, offset,
        )));
    }
    Ok(all)
}

/// `dsp` as crane uses it: refitted every twelve hours, for the peak of the next hour.
fn crane_like() -> Result<RefittedCandidate, Failure> {
    let forecaster = Algorithm::Dsp(dsp::Config::default()).build()?;
    Ok(RefittedCandidate::new("dsp-W60", forecaster, 720, 60))
}
