//! The validated spec of one workload, and the facts that follow from it alone: the [`Course`] that strategy and mode
//! lead to, the sources configured.
//!
//! `api::validation` validates a spec and makes a [`Workload`] from it. Rejected parts arrive here as [`SpecProblem`]s.

use jiff::SignedDuration;

use super::cron::Window;
use super::hpa::{Behavior, Hpa, MetricSpec};
use super::{ReplicaBounds, Replicas, ScaleTarget};

/// One workload's spec, as far as decisions read it.
#[derive(Clone, Debug, Default)]
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
    /// The sources of proposals besides the metrics.
    pub floor: FloorSources,
    /// The parts of the spec that could not be used; the rest applies without them.
    pub problems: Vec<SpecProblem>,
}

/// The sources of the floor lane that are configured. In mode Metric their proposals are metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloorSources {
    /// The valid cron windows.
    pub windows: Vec<Window>,
    /// Forecasting, if it is switched on.
    pub prediction: Option<Prediction>,
}

impl FloorSources {
    /// The most replicas that a source asks for at some time; none if all proposals are of metrics.
    pub fn peak(&self) -> Option<u32> {
        let Self {
            windows,
            prediction: _,
        } = self;
        windows.iter().map(Window::target_replicas).max()
    }
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

/// The consequences of strategy and mode for one spec. Everything else reads these values instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// The object that carries out a decision.
    pub writes: Writes,
    /// True if forecasts and cron windows are metrics that the child reads, instead of a floor.
    pub publishes: bool,
    /// The reason of the condition `Ready` while nothing is wrong.
    pub ready: &'static str,
}

/// The object that carries out a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// A child `HorizontalPodAutoscaler`, by its bounds.
    Bounds,
    /// The scale subresource.
    Count,
    /// None: the decision is only shown. The scale is set to this count, if there is one.
    Pinned(Option<Replicas>),
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
    /// The course that strategy and mode lead to.
    ///
    /// ```
    /// use foretide_domain::workload::{Mode, Strategy, Workload, Writes};
    /// use foretide_domain::{ReplicaBounds, Replicas};
    ///
    /// let workload = Workload {
    ///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(10)),
    ///     strategy: Strategy::Auto,
    ///     mode: Mode::Delegated,
    ///     ..Workload::default()
    /// };
    /// assert_eq!(workload.mode_in_force(), Mode::Direct);
    /// assert_eq!(workload.course().writes, Writes::Count);
    /// ```
    pub fn course(&self) -> Course {
        let pinned = self.specific_replicas.map(|n| self.bounds.clamp(n));
        let (by_mode, publishes) = match self.mode_in_force() {
            Mode::Delegated => (Writes::Bounds, false),
            Mode::Direct => (Writes::Count, false),
            Mode::Metric => (Writes::Bounds, true),
        };
        let (writes, ready) = match self.strategy {
            Strategy::Auto => (by_mode, "Decided"),
            Strategy::Preview => (Writes::Pinned(pinned), "Preview"),
        };
        Course {
            writes,
            publishes,
            ready,
        }
    }

    /// The mode that applies: Direct where a child autoscaler cannot express the spec.
    ///
    /// A child cannot express `minReplicas: 0`, which an HPA has only since Kubernetes 1.37 and with an Object or
    /// External metric, and a spec without metrics, where it would default to cpu at 80 %. In Metric mode crons are a
    /// metric too.
    pub fn mode_in_force(&self) -> Mode {
        let has_metrics =
            !self.metrics.is_empty() || self.mode == Mode::Metric && self.asks_without_metrics();
        if self.bounds.min == Replicas::ZERO || !has_metrics {
            Mode::Direct
        } else {
            self.mode
        }
    }

    /// Returns true if a source is configured, usable or not, whose proposals are not of metrics.
    pub fn asks_without_metrics(&self) -> bool {
        self.floor.peak().is_some() || self.cron_problems().next().is_some()
    }

    /// Returns true if a source of the floor lane is configured, usable or not.
    pub(crate) fn has_floor_sources(&self) -> bool {
        self.floor != FloorSources::default() || self.asks_without_metrics()
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
    pub fn hpa(&self, bounds: ReplicaBounds) -> Hpa<'_> {
        Hpa {
            bounds,
            metrics: &self.metrics,
            behavior: self.behavior.as_ref(),
        }
    }
}
