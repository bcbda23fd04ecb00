//! The inputs of one decision, and the facts that follow from them alone.

use jiff::Timestamp;

use super::history::History;
use crate::forecast::ForecastReading;
use crate::hpa::{Behavior, Settings};
use crate::workload::{Course, Workload};
use crate::{Observation, ReplicaBounds, Replicas};

/// Inputs of a decision apart from the spec, the settings and the history.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Scale, pods, and one reading per metric of the workload, in the same order.
    pub observation: Observation,
    /// One entry per metric that the forecaster knows of.
    pub forecasts: Vec<ForecastReading>,
    /// The child HPA in the cluster, if there is one.
    pub child: Option<Child>,
    /// Part of a fleet's floor that falls to this workload, if it belongs to a fleet. The floor has passed the windows
    /// and policies of the fleet, so none is applied to it here.
    pub share: Option<Replicas>,
}

/// The child HPA as read from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// `minReplicas` of the child.
    pub min: Replicas,
    /// `maxReplicas` of the child.
    pub max: Replicas,
    /// `desiredReplicas` of the child, if it has a status: the count that it scaled to. A user may have changed the
    /// scale since.
    pub desired: Option<Replicas>,
    /// `lastScaleTime` of the child. The API truncates it to seconds; the caller adds the most that can be missing, so
    /// that a change never looks older than it is.
    pub last_scale: Option<Timestamp>,
}

/// The arguments of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) workload: &'a Workload,
    /// The course of the workload.
    pub(super) course: Course,
    pub(super) inputs: &'a Inputs,
    pub(super) settings: &'a Settings,
    pub(super) now: Timestamp,
}

impl<'a> Context<'a> {
    pub(super) fn current(&self) -> Replicas {
        self.inputs.observation.scale.spec
    }

    pub(super) fn bounds(&self) -> ReplicaBounds {
        self.workload.bounds
    }

    pub(super) fn behavior(&self) -> Option<&'a Behavior> {
        self.workload.behavior.as_ref()
    }

    /// Returns true if `maxReplicas` is below `minReplicas`.
    pub(super) fn crossed(&self) -> bool {
        self.bounds().max < self.bounds().min
    }

    /// Returns true if a user scaled the workload to zero, which pauses autoscaling.
    pub(super) fn paused(&self, history: &History) -> bool {
        let hpa = self.workload.hpa(self.bounds());
        self.current() == Replicas::ZERO
            && self.bounds().min > Replicas::ZERO
            && !hpa.computes_at_zero(self.settings.zero, history.log.scaled_to_zero)
    }
}
