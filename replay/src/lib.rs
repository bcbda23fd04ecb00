#![doc = include_str!("../README.md")]

mod accuracy;
mod auto;
mod autoscaler;
mod average;
mod candidate;
mod contender;
mod csv;
mod history;
mod naive;
mod persistence;
mod refitted;
mod score;
mod summary;
mod synthetic;
mod traces;
mod workload;

pub use accuracy::Accuracy;
pub use auto::AutoCandidate;
pub use autoscaler::{Count, Reference, ReplayConfig, Rule, Run, TOLERANCE, UnknownRule, run};
pub use average::{geometric_mean, mean, median};
pub use candidate::{
    Answer, BEYOND, Candidate, CandidateForecast, MARGINS, Tuning, ceilings, forecasts,
};
pub use contender::{Contender, write_forecasts, write_heading};
pub use csv::{FileError, fields, read};
pub use history::{History, Known};
pub use naive::NaiveCandidate;
pub use persistence::CalibratedPersistence;
pub use refitted::RefittedCandidate;
pub use score::Score;
pub use summary::{Curve, Means};
pub use synthetic::synthetic_traces;
pub use traces::Trace;
pub use workload::{Workload, WorkloadError};

/// The demand that a forecast wants replicas for, in one minute. A forecast of one number has it in both.
pub use foretide_models::DemandBounds as Bounds;

/// Minutes that a replica takes to start, for each of which everything is replayed.
pub const START_UPS: [usize; 3] = [2, 5, 10];

/// Minutes in a day.
pub const DAY: usize = 1440;
