//! The reasons for which a question has no answer, as one type.

use crate::{
    assign::{AssignError, ClustersError, PreviousError},
    budget::BudgetError,
    conversion::ConversionError,
    inputs::{HistoriesError, SelectError},
    manifest::YamlError,
    plan::PlanError,
    recording::RecordingError,
    runs::{Stopped, SweepError},
    setup::SetupError,
    template::TemplateError,
    threshold::BoundError,
};

/// Reason for which a question has no answer: what was found where, what is expected, and what to do.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Error {
    /// A text is not YAML.
    Yaml(#[from] YamlError),
    /// An object cannot be written as YAML.
    Written(#[from] serde_saphyr::ser::Error),
    /// The documents do not give one autoscaler.
    Select(#[from] SelectError),
    /// An autoscaler cannot be converted.
    Conversion(#[from] ConversionError),
    /// A history cannot be read.
    Recording(#[from] RecordingError),
    /// The histories do not belong to the metrics.
    Histories(#[from] HistoriesError),
    /// The pods of the workload are unknown.
    Template(#[from] TemplateError),
    /// The clusters of a fleet cannot be read.
    Clusters(#[from] ClustersError),
    /// A previous division cannot be read.
    Previous(#[from] PreviousError),
    /// A fleet cannot be divided at this time.
    Assign(#[from] AssignError),
    /// There is nothing to plan.
    Plan(#[from] PlanError),
    /// There is nothing to back-test.
    Setup(#[from] SetupError),
    /// The forecast has no quantile to vary.
    Sweep(#[from] SweepError),
    /// No autoscaler takes part in a budget.
    Budget(#[from] BudgetError),
    /// A bound cannot be checked.
    Bound(#[from] BoundError),
    /// The runs were stopped.
    Stopped(#[from] Stopped),
}

// === impl Error ===

impl Error {
    /// Returns whether other options give an answer, and not other files.
    #[must_use]
    pub const fn is_about_options(&self) -> bool {
        match self {
            Self::Histories(_)
            | Self::Assign(_)
            | Self::Plan(_)
            | Self::Sweep(_)
            | Self::Budget(_)
            | Self::Bound(_) => true,
            Self::Select(error) => matches!(error, SelectError::Several(_)),
            Self::Template(error) => matches!(error, TemplateError::UnknownRequest(_)),
            Self::Setup(error) => !matches!(error, SetupError::NoMetrics | SetupError::TooShort(_)),
            _ => false,
        }
    }
}
