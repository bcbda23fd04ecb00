//! One source's answer to "how many replicas?", with its number, its grounds, or its excuse.
//!
//! All three sources speak the same words here, so that status, log and page can show them side by
//! side. This module refuses to compare proposals: taking the maximum is the join's work.

use std::fmt;

use super::Replicas;
use super::cron::{self, ExpressionError, WindowError};
use super::forecast::Grounds;
use super::observation::Cause;

/// Where a proposal comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A metric as it is now.
    Observed,
    /// The forecast of a metric.
    Forecast,
    /// A cron window.
    Cron,
}

impl Source {
    /// The word used in status, labels, command line and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Forecast => "forecast",
            Self::Cron => "cron",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one source asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Where it comes from.
    pub source: Source,
    /// Identifier of the metric (`resource.cpu`) or name of the cron.
    pub name: String,
    /// The count asked for; `None` if the source asks for nothing, which is never zero.
    pub replicas: Option<Replicas>,
    /// The value measured or predicted: observed as its target is meant (mostly per pod), a forecast
    /// in total.
    pub value: Option<f64>,
    /// The value to hold, in the same unit.
    pub target: Option<f64>,
    /// The unit of value and target.
    pub unit: Unit,
    /// Why there is this proposal, or none.
    pub reason: Reason,
    /// The reason for people; empty where the numbers say it all.
    pub message: String,
    /// What a forecast that is there stands on.
    pub grounds: Option<Grounds>,
}

/// What a proposal's value and target are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// CPU cores.
    Cores,
    /// Bytes.
    Bytes,
    /// Percent of what the pods request.
    Percent,
    /// A number of the metric's own.
    #[default]
    Plain,
}

/// Declares the closed set of reasons once: the variant is the word.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Why a proposal is there or absent: a closed set, stable across versions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])+ $name,)+ }

        impl Reason {
            /// Every reason, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The `UpperCamelCase` word used in status, conditions and labels.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    // There is a proposal.
    /// The metric was read.
    ValidMetricFound,
    /// The forecast was computed.
    ForecastReady,
    /// The forecast is within the tolerance of its last proposal, which therefore stays.
    WithinTolerance,
    /// There is less than a day of history: no day to compare with yet.
    WarmingUp,
    /// The level moved by more than a factor of two, and was learnt anew.
    LevelShift,
    /// What was learnt is no better than "it stays as it is", which is used.
    NoSkill,
    /// The arithmetic failed; "it stays as it is" is used.
    NumericalFallback,
    /// The history is constant; so is the forecast.
    Constant,
    /// The workload was at its limits for much of the last day: the true demand may be higher.
    Censored,
    /// The cron window is open.
    WindowActive,

    // No observed proposal: the cause, as the observation gives it.
    /// The metrics API could not be asked, or its answer could not be read.
    MetricNotRead,
    /// The metrics API answered with nothing.
    NoSamples,
    /// The selector selects no pod.
    NoPods,
    /// No pod that counts has a sample.
    NoReadyPods,
    /// A container does not request the resource: a utilization has no base.
    MissingRequest,
    /// A pod lacks the container that the metric names.
    MissingContainer,
    /// The metric's target gives no value that its type can use.
    UnusableTarget,
    /// The metric has a type this version does not know.
    UnknownMetricType,
    /// The observed lane computed nothing in this pass: the count was outside the bounds, or zero.
    NotComputed,

    // No forecast.
    /// No forecast has been computed yet.
    Pending,
    /// The history has fewer samples than a forecast needs.
    InsufficientHistory,
    /// The last sample is too old.
    StaleHistory,
    /// Too many samples are missing.
    TooManyGaps,
    /// The history is zero throughout.
    ZeroSeries,
    /// The history has no period that the algorithm could use.
    NotPeriodic,
    /// The query answered with nothing.
    NoData,
    /// The query failed.
    QueryError,
    /// The query may not be asked: it reaches beyond the object's namespace, or is not one.
    QueryRefused,
    /// The history covers only a part of the members: its total would be too small.
    PartialHistory,
    /// The forecast outlived its history.
    Expired,
    /// The series changed its unit or its identity: older samples say nothing about newer ones.
    SeriesChanged,
    /// The algorithm gave no finite number.
    NumericalFailure,
    /// The metric cannot be forecast: its target is not an amount per pod.
    NotForecastable,

    // No cron proposal.
    /// The window is closed.
    NoActiveWindow,
    /// The window starts and ends at the same instant.
    ZeroLength,
    /// The schedule names no instant that exists.
    NeverFires,
    /// A start or an end is not an expression.
    InvalidExpression,
    /// The time zone is unknown.
    InvalidTimeZone,
    /// The cron cannot be used for another cause: its name, its replicas.
    InvalidCron,

    // A part of the spec.
    /// A field holds a value that cannot be used.
    InvalidSpec,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::NotRead => Self::MetricNotRead,
            Cause::NoSamples => Self::NoSamples,
            Cause::NoPods => Self::NoPods,
            Cause::NoReadyPods => Self::NoReadyPods,
            Cause::MissingRequest => Self::MissingRequest,
            Cause::MissingContainer => Self::MissingContainer,
            Cause::UnusableTarget => Self::UnusableTarget,
            Cause::UnknownType => Self::UnknownMetricType,
        }
    }
}

impl From<&WindowError> for Reason {
    fn from(error: &WindowError) -> Self {
        match error {
            WindowError::Expression {
                source: ExpressionError::Zone(_),
                ..
            }
            | WindowError::Zone { .. } => Self::InvalidTimeZone,
            WindowError::Expression { .. } => Self::InvalidExpression,
        }
    }
}

impl From<cron::Problem> for Reason {
    fn from(problem: cron::Problem) -> Self {
        match problem {
            cron::Problem::ZeroLength => Self::ZeroLength,
            cron::Problem::StartNeverFires | cron::Problem::EndNeverFires => Self::NeverFires,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_upper_camel_case_word() {
        let words: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for word in words {
            assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
            assert!(word.chars().all(|c| c.is_ascii_alphabetic()), "{word}");
        }
    }

    #[test]
    fn a_cause_keeps_its_word() {
        for cause in [
            Cause::NotRead,
            Cause::NoSamples,
            Cause::NoPods,
            Cause::NoReadyPods,
            Cause::MissingRequest,
            Cause::MissingContainer,
            Cause::UnusableTarget,
            Cause::UnknownType,
        ] {
            assert_eq!(Reason::from(cause).as_str(), cause.as_str());
        }
    }
}
