//! What a user asks of Foretide for one workload, already validated.
//!
//! This module holds data and answers the questions that follow from the data alone (which mode is
//! in force, which sources are configured). It refuses to validate: a [`Workload`] is made by the
//! one door from a spec to the domain, and what that door rejected arrives here as [`Problem`]s.

use jiff::SignedDuration;

use super::cron::Window;
use super::hpa::{Behavior, Hpa, MetricSpec};
use super::{ReplicaBounds, Replicas, ScaleTarget};

/// One workload's spec, as far as decisions read it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What is scaled.
    pub target: ScaleTarget,
    /// `minReplicas` and `maxReplicas`.
    pub bounds: ReplicaBounds,
    /// Whether to act or only to show.
    pub strategy: Strategy,
    /// The mode the user wrote; [`Workload::mode_in_force`] says which one applies.
    pub mode: Mode,
    /// The count to hold under [`Strategy::Preview`], before clamping to the bounds.
    pub specific_replicas: Option<Replicas>,
    /// The metrics of the observed lane, in the spec's order.
    pub metrics: Vec<MetricSpec>,
    /// `behavior`; `None` is not the same as an empty one.
    pub behavior: Option<Behavior>,
    /// The cron windows that could be read.
    pub windows: Vec<Window>,
    /// Forecasting, if it is switched on.
    pub prediction: Option<Prediction>,
    /// The parts of the spec that could not be used; the rest goes on without them.
    pub problems: Vec<Problem>,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Decide and act.
    #[default]
    Auto,
    /// Decide and show; scale to nothing but `specificReplicas`.
    Preview,
}

/// Who writes the scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A child `HorizontalPodAutoscaler`, whose bounds we shape.
    #[default]
    Delegated,
    /// We do, through the scale subresource.
    Direct,
}

/// How the future is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The span of the forecast whose peak makes the proposal (`predictionWindowSeconds`).
    pub window: SignedDuration,
    /// Name of the algorithm, as the user sees it.
    pub algorithm: String,
}

/// A part of the spec that is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which part.
    pub subject: Subject,
    /// Why it is left out, for machines.
    pub reason: super::proposal::Reason,
    /// The same for people: what was expected, what was found, what to do.
    pub message: String,
}

/// Which part of a spec a [`Problem`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The cron of this name.
    Cron(String),
    /// The field at this path.
    Field(String),
}

impl Workload {
    /// The mode that applies: Direct where a child autoscaler cannot express the spec.
    ///
    /// That is with `minReplicas: 0`, which the API server refuses, and without metrics, for which
    /// it would put cpu 80 %.
    #[must_use]
    pub fn mode_in_force(&self) -> Mode {
        if self.bounds.min == Replicas::ZERO || self.metrics.is_empty() {
            Mode::Direct
        } else {
            self.mode
        }
    }

    /// Whether forecasts or cron windows are configured at all, usable or not.
    #[must_use]
    pub fn has_floor_sources(&self) -> bool {
        self.prediction.is_some()
            || !self.windows.is_empty()
            || self.cron_problems().next().is_some()
    }

    /// The crons that are left out.
    pub fn cron_problems(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.problems
            .iter()
            .filter_map(|problem| match &problem.subject {
                Subject::Cron(name) => Some((name.as_str(), problem)),
                Subject::Field(_) => None,
            })
    }

    /// The autoscaler the user wrote, with other bounds.
    #[must_use]
    pub fn hpa(&self, bounds: ReplicaBounds) -> Hpa<'_> {
        Hpa {
            bounds,
            metrics: &self.metrics,
            behavior: self.behavior.as_ref(),
        }
    }
}
