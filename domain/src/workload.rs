//! The validated spec of one workload, and the facts that follow from it alone: the mode in force, the sources
//! configured.
//!
//! `api::validation` validates a spec and makes a [`Workload`] from it. Rejected parts arrive here as [`SpecProblem`]s.

use jiff::SignedDuration;

use super::cron::Window;
use super::hpa::{Behavior, Hpa, MetricSpec};
use super::{ReplicaBounds, Replicas, ScaleTarget};

/// One workload's spec, as far as decisions read it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The object that is scaled.
    pub target: ScaleTarget,
    /// `minReplicas` and `maxReplicas`.
    pub bounds: ReplicaBounds,
    /// Choice between acting on decisions and only reporting them.
    pub strategy: Strategy,
    /// The mode that the user wrote; the mode that applies is [`Workload::mode_in_force`].
    pub mode: Mode,
    /// The count to hold under [`Strategy::Preview`], before clamping to the bounds.
    pub specific_replicas: Option<Replicas>,
    /// The metrics of the observed lane, in the spec's order.
    pub metrics: Vec<MetricSpec>,
    /// `behavior`; `None` is not the same as an empty one.
    pub behavior: Option<Behavior>,
    /// The valid cron windows.
    pub windows: Vec<Window>,
    /// Forecasting, if it is switched on.
    pub prediction: Option<Prediction>,
    /// The parts of the spec that could not be used; the rest applies without them.
    pub problems: Vec<SpecProblem>,
}

/// Choice between acting on decisions and only reporting them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Decide and act.
    #[default]
    Auto,
    /// Decide and report; scale to `specificReplicas` only.
    Preview,
}

/// Writer of the scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A child `HorizontalPodAutoscaler`, whose bounds Foretide sets.
    #[default]
    Delegated,
    /// Foretide, through the scale subresource.
    Direct,
    /// A child `HorizontalPodAutoscaler` that reads forecasts and cron windows as External metrics.
    Metric,
}

/// The forecasting that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The span of the forecast whose peak makes the proposal (`predictionWindowSeconds`).
    pub window: SignedDuration,
    /// Name of the algorithm, as in the spec.
    pub algorithm: String,
}

/// A part of the spec that is left out, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    /// The part that is left out.
    pub part: SpecPart,
    /// Reason for leaving the part out, as one word.
    pub reason: super::proposal::Reason,
    /// Explanation for people: expected value, actual value, and remedy.
    pub message: String,
}

/// Part of a spec that a [`SpecProblem`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecPart {
    /// The cron of this name.
    Cron(String),
    /// The field at this path.
    Field(String),
}

impl Workload {
    /// The mode that applies: Direct where a child autoscaler cannot express the spec.
    ///
    /// A child cannot express `minReplicas: 0`, which an HPA has only since Kubernetes 1.37 and with an Object or
    /// External metric, and a spec without metrics, where it would default to cpu at 80 %. In Metric mode crons are a
    /// metric too.
    ///
    /// ```
    /// use foretide_domain::workload::{Mode, Strategy, Workload};
    /// use foretide_domain::{ReplicaBounds, Replicas, ScaleTarget};
    ///
    /// let workload = Workload {
    ///     target: ScaleTarget {
    ///         api_version: "apps/v1".into(),
    ///         kind: "Deployment".into(),
    ///         namespace: "shop".into(),
    ///         name: "web".into(),
    ///     },
    ///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(10)),
    ///     strategy: Strategy::Auto,
    ///     mode: Mode::Delegated,
    ///     specific_replicas: None,
    ///     metrics: vec![],
    ///     behavior: None,
    ///     windows: vec![],
    ///     prediction: None,
    ///     problems: vec![],
    /// };
    /// assert_eq!(workload.mode_in_force(), Mode::Direct);
    /// assert!(!workload.has_child());
    /// ```
    #[must_use]
    pub fn mode_in_force(&self) -> Mode {
        let has_metrics = match self.mode {
            Mode::Metric => !self.metrics.is_empty() || self.has_crons(),
            Mode::Delegated | Mode::Direct => !self.metrics.is_empty(),
        };
        if self.bounds.min == Replicas::ZERO || !has_metrics {
            Mode::Direct
        } else {
            self.mode
        }
    }

    /// Returns true if a child autoscaler writes the scale; false under [`Strategy::Preview`], which writes no
    /// autoscaler.
    #[must_use]
    pub fn has_child(&self) -> bool {
        let by_child = matches!(self.mode_in_force(), Mode::Delegated | Mode::Metric);
        self.strategy == Strategy::Auto && by_child
    }

    /// Returns true if crons are configured, usable or not.
    #[must_use]
    pub fn has_crons(&self) -> bool {
        !self.windows.is_empty() || self.cron_problems().next().is_some()
    }

    /// Returns true if forecasts or cron windows are configured, usable or not.
    #[must_use]
    pub(crate) fn has_floor_sources(&self) -> bool {
        self.prediction.is_some() || self.has_crons()
    }

    /// The crons that are left out.
    pub(crate) fn cron_problems(&self) -> impl Iterator<Item = (&str, &SpecProblem)> {
        self.problems
            .iter()
            .filter_map(|problem| match &problem.part {
                SpecPart::Cron(name) => Some((name.as_str(), problem)),
                SpecPart::Field(_) => None,
            })
    }

    /// The HPA that the spec describes, with other bounds.
    ///
    /// `bounds` belong to the part that decides: the spec, or one member of a fleet.
    #[must_use]
    pub fn hpa(&self, bounds: ReplicaBounds) -> Hpa<'_> {
        Hpa {
            bounds,
            metrics: &self.metrics,
            behavior: self.behavior.as_ref(),
        }
    }
}
