//! Answers without a cluster: back-tests, plans and divisions from manifests and recorded histories.
//!
//! ```text
//! manifests -> manifest -> validate -> inputs --+         +-> setup -> runs -> report, budget, sweep
//! histories -> recording -----------------------+-------> +-> plan
//! pods of the workload -> template -------------+         +-> assign (a fleet and its clusters)
//! ```
//!
//! The crate owns the reading of manifests with the lines of their fields ([`manifest`]), the findings about them
//! ([`validate`]), the [`conversion`] of autoscalers of other kinds, recorded histories ([`recording`]), and the three
//! answers: a back-test ([`report`], [`budget`]), a [`plan`], and the division of a fleet ([`assign`]). Decisions and
//! forecasts are the controller's own; the state of a cluster is assumed, and each assumption is a sentence.
//!
//! Everything is a function from texts and values to values. It uses the domain, the models, the rules of fleets, the
//! meaning of specs (`foretide-api`), and of `foretide-base` only the words of errors. It must not read a file, a clock,
//! the network or the environment, and knows neither a terminal nor HTML: commands and pages draw what it returns.
//!
//! ```
//! use foretide_backtest::{
//!     inputs, manifest, recording,
//!     report::{BacktestReport, Comparison},
//!     setup::{EvaluationOptions, Setup},
//!     template::TemplateSource,
//!     validate::Validator,
//! };
//! use foretide_domain::cron::Zone;
//! use jiff::Timestamp;
//! use std::ops::ControlFlow;
//!
//! let documents = manifest::parse("web.yaml", r#"
//! apiVersion: autoscaling.crane.io/v1alpha1
//! kind: EffectiveHorizontalPodAutoscaler
//! metadata: {name: web, namespace: shop}
//! spec:
//!   scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
//!   maxReplicas: 9
//!   crons: [{name: morning, start: "0 1 * * *", end: "0 2 * * *", targetReplicas: 5}]
//!   metrics: [{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 10}}}]
//! "#)?;
//! let local = Zone::utc();
//! let validator = Validator::new(&local, Timestamp::UNIX_EPOCH);
//! let chosen = inputs::chosen_one(&documents, None, &validator)?;
//! let lines: String = (0..=180).map(|minute| format!("{},40\n", minute * 60)).collect();
//! let history = recording::parse("external.queue", "queue.csv", &lines, None)?;
//!
//! let template = TemplateSource { documents: &documents, requests: &[] };
//! let setup = Setup::of(chosen, &[history], template, EvaluationOptions::default())?;
//! let comparison = Comparison { with_plain: true, ..Comparison::default() };
//! let report = BacktestReport::new(setup, &comparison, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!(report.candidates.ours.score.minutes, 180);
//! assert!(report.difference.is_some_and(|difference| difference.replica_hours_percent > 0.0));
//! # Ok::<(), foretide_backtest::Error>(())
//! ```

pub mod assign;
pub mod budget;
pub mod conversion;
mod data;
pub mod forecast;
pub mod inputs;
pub mod manifest;
pub mod plan;
pub mod recording;
pub mod report;
pub mod runs;
pub mod setup;
pub mod sweep;
pub mod template;
pub mod threshold;
pub mod validate;
pub mod worst;

use jiff::Timestamp;

pub use self::data::Metadata;
use self::{
    assign::AssignError, conversion::ConversionError, inputs::InputError, manifest::YamlError,
    plan::PlanError, recording::RecordingError, runs::RunError, setup::SetupError,
    template::TemplateError,
};

/// Version of Foretide's own kinds of files.
pub const API_VERSION: &str = "foretide.io/v1alpha1";
/// Kind of the configuration file of the controller.
pub const CONFIG_KIND: &str = "ControllerConfig";

/// Reason for which a question has no answer: what was found where, what is expected, and what to do.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Error {
    /// A text is not YAML.
    Yaml(#[from] YamlError),
    /// An object cannot be written as YAML.
    Written(#[from] serde_saphyr::ser::Error),
    /// An autoscaler cannot be converted.
    Conversion(#[from] ConversionError),
    /// A history cannot be read.
    Recording(#[from] RecordingError),
    /// The documents and histories are not those of one autoscaler.
    Input(#[from] InputError),
    /// The pods of the workload are unknown.
    Template(#[from] TemplateError),
    /// A fleet cannot be divided.
    Assign(#[from] AssignError),
    /// There is nothing to plan.
    Plan(#[from] PlanError),
    /// There is nothing to back-test.
    Setup(#[from] SetupError),
    /// Runs cannot be made or compared.
    Run(#[from] RunError),
}

// === impl Error ===

impl Error {
    /// Returns whether other options give an answer, and not other files.
    pub const fn is_about_options(&self) -> bool {
        use InputError::{NoHistory, NoMetrics, Several, Unassigned};
        match self {
            Self::Yaml(_) | Self::Written(_) | Self::Conversion(_) | Self::Recording(_) => false,
            Self::Input(error) => matches!(
                error,
                Several(_) | NoHistory(_) | NoMetrics | Unassigned(..)
            ),
            Self::Template(error) => matches!(error, TemplateError::UnknownRequest(_)),
            Self::Assign(error) => matches!(error, AssignError::BeforePrevious(..)),
            Self::Setup(error) => !matches!(error, SetupError::NoMetrics | SetupError::TooShort(_)),
            Self::Plan(_) | Self::Run(_) => true,
        }
    }
}

/// An instant to the minute, in UTC.
pub fn clock(at: Timestamp) -> String {
    at.strftime("%a %F %H:%M UTC").to_string()
}
