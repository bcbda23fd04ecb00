//! Values of the domain in the form that reports have as JSON.

use foretide_domain::{
    forecast::Refused,
    sim::{Environment, MINUTE, Score},
    workload::Workload,
};
use foretide_models::{Forecast, Prediction};
use serde::{Serialize, Serializer};

use foretide_api::autoscaler::Autoscaler;

/// Name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace, if one is written.
    pub namespace: Option<String>,
}

/// Totals of a score.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    minutes: u32,
    unknown_minutes: u32,
    under_provisioned_minutes: u32,
    under_provisioned_percent: f64,
    missing_percent: f64,
    replica_hours: f64,
    needed_replica_hours: f64,
    scale_actions: u32,
}

/// A forecast, or the reason for its absence.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ForecastData {
    Made {
        method: &'static str,
        notes: Vec<String>,
        samples: Vec<Point>,
    },
    Absent {
        reason: &'static str,
        message: String,
    },
}

/// A prediction of a forecast.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    timestamp: i64,
    value: f64,
    upper: Option<f64>,
}

// === impl Metadata ===

impl From<&Autoscaler> for Metadata {
    fn from(autoscaler: &Autoscaler) -> Self {
        Self {
            name: autoscaler.name().to_owned(),
            namespace: autoscaler.metadata().namespace.clone(),
        }
    }
}

impl ForecastData {
    /// A forecast with some of its samples.
    pub(crate) fn new(
        forecast: &Result<Forecast, Refused>,
        samples: impl IntoIterator<Item = Prediction>,
    ) -> Self {
        match forecast {
            Ok(forecast) => Self::Made {
                method: forecast.method(),
                notes: forecast.notes().iter().map(ToString::to_string).collect(),
                samples: samples.into_iter().map(Point::from).collect(),
            },
            Err(refused) => Self::Absent {
                reason: refused.reason.as_str(),
                message: refused.message.clone(),
            },
        }
    }
}

impl From<Prediction> for Point {
    fn from(Prediction { at, value, upper }: Prediction) -> Self {
        Self {
            timestamp: at.as_second(),
            value,
            upper,
        }
    }
}

/// Writes an autoscaler as its name.
pub(crate) fn metadata<S: Serializer>(of: &Autoscaler, to: S) -> Result<S::Ok, S::Error> {
    Metadata::from(of).serialize(to)
}

/// Writes a workload as its bounds.
pub(crate) fn bounds<S: Serializer>(of: &Workload, to: S) -> Result<S::Ok, S::Error> {
    of.bounds.serialize(to)
}

/// Writes an environment as the seconds that a pod takes to start.
pub(crate) fn start_up<S: Serializer>(of: &Environment, to: S) -> Result<S::Ok, S::Error> {
    of.start_up.as_secs().serialize(to)
}

/// Writes a score as its totals.
pub(crate) fn score<S: Serializer>(of: &Score, to: S) -> Result<S::Ok, S::Error> {
    Figures {
        minutes: of.minutes,
        unknown_minutes: of.unknown,
        under_provisioned_minutes: of.under,
        under_provisioned_percent: of.under_percent(),
        missing_percent: of.missing_percent(),
        replica_hours: of.replica_hours(),
        needed_replica_hours: of.needed * MINUTE.as_secs_f64() / 3600.0,
        scale_actions: of.actions,
    }
    .serialize(to)
}
