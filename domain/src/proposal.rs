//! One source's proposal: a count with the numbers behind it, or the reason why there is none.
//!
//! All sources use this type, so that status, log and command line show them side by side. Comparing
//! proposals is left to [`autoscale`](super::autoscale).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use foretide_models::DemandBounds;

use super::Replicas;
use super::cron::{ExpressionError, WindowError, WindowProblem};
use super::lead_time::LeadTime;
use super::observation::Cause;

/// Declares the sources: variant, word, and the phrases about each.
macro_rules! sources {
    ($($(#[$doc:meta])+ $source:ident $word:literal $phrases:expr,)+) => {
        words! {
            /// Origin of a proposal. A new one is a row here, which status, metrics, page and command line read.
            ///
            /// ```
            /// use foretide_domain::proposal::Source;
            ///
            /// assert_eq!(Source::Forecast.as_str(), "forecast");
            /// ```
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            #[derive(derive_more::Display)]
            #[serde(rename_all = "camelCase")]
            #[display("{}", self.as_str())]
            pub enum Source { $($(#[$doc])+ $source = $word,)+ }
        }

        impl Source {
            /// The phrases about the source.
            pub const fn phrases(self) -> Phrases {
                match self { $(Self::$source => $phrases,)+ }
            }
        }
    };
}

sources! {
    /// A metric as it is now.
    Observed "observed" Phrases {
        description: "The current value of a metric.",
        subject: "",
        proposers: "observed metrics",
        askers: "the metrics",
        legend: "metrics",
    },
    /// The forecast of a metric.
    Forecast "forecast" Phrases {
        description: "The forecast of a metric.",
        subject: "the forecast for ",
        proposers: "forecasts",
        askers: "the forecasts",
        legend: "the forecast",
    },
    /// A cron window.
    Cron "cron" Phrases {
        description: "A cron window.",
        subject: "the cron window ",
        proposers: "open cron windows",
        askers: "the open cron windows",
        legend: "cron windows",
    },
}

/// Phrases about a source, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phrases {
    /// Description of the source, as a sentence.
    pub description: &'static str,
    /// Beginning of a message about one of its proposals, before the name.
    pub subject: &'static str,
    /// End of `replicas proposed by`.
    pub proposers: &'static str,
    /// Subject of `ask for replicas`, in the plural.
    pub askers: &'static str,
    /// End of `asked by`, in legends.
    pub legend: &'static str,
}

impl Source {
    /// The words of all sources.
    pub fn words() -> Vec<&'static str> {
        Self::ALL.iter().map(|source| source.as_str()).collect()
    }

    /// The words of the sources of the floor, as in `forecast and cron`.
    pub fn of_floor() -> String {
        let mut words = Self::words();
        words.retain(|word| *word != Self::Observed.as_str());
        words.join(" and ")
    }

    /// True if its proposals are of single metrics. What the other sources ask for is one metric in mode Metric.
    pub const fn is_of_metrics(self) -> bool {
        matches!(self, Self::Observed | Self::Forecast)
    }
}

/// Proposal of one source.
///
/// # Guarantees
/// - A source that fails has no count and a reason; it never proposes zero.
/// - `details` are those of a forecast that gave a count.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Origin of the proposal.
    pub source: Source,
    /// Identifier of the metric (`resource.cpu`) or name of the cron.
    pub name: String,
    /// The count; `None` if the source proposes nothing, which is not the same as zero.
    pub replicas: Option<Replicas>,
    /// Count that the value alone asks for, if the tolerance or pods without metrics made `replicas` another one.
    pub asked: Option<Replicas>,
    /// The value measured or predicted: an observed one in the form of its target (mostly per pod), a forecast one in
    /// total, as the demand that the count is for.
    pub value: Option<f64>,
    /// The value to hold, in the same unit.
    pub target: Option<f64>,
    /// The unit of value and target.
    pub unit: Unit,
    /// Reason for the count, or for its absence.
    pub reason: Reason,
    /// Explanation of the reason for people; empty where the numbers are enough.
    pub message: String,
    /// Origin and accuracy of a forecast; only with a count.
    pub details: Option<ForecastDetails>,
    /// The query of a forecast's history, if one is asked.
    pub query: Option<Arc<str>>,
}

impl Proposal {
    /// A proposal of no count.
    pub const fn none(source: Source, name: String, reason: Reason, message: String) -> Self {
        Self {
            source,
            name,
            replicas: None,
            asked: None,
            value: None,
            target: None,
            unit: Unit::Plain,
            reason,
            message,
            details: None,
            query: None,
        }
    }
}

/// The proposals of one source.
pub fn of_source(proposals: &[Proposal], source: Source) -> impl Iterator<Item = &Proposal> {
    proposals
        .iter()
        .filter(move |proposal| proposal.source == source)
}

/// The unit of a proposal's value and target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// CPU cores.
    Cores,
    /// Bytes.
    Bytes,
    /// Percent of what the pods request.
    Percent,
    /// The metric's own unit.
    #[default]
    Plain,
}

impl Unit {
    /// The unit of a metric by the name of the resource in its identifier.
    ///
    /// Any other metric is [`Unit::Plain`]: the unit of a custom metric is known to its users only.
    pub fn of_metric(identifier: &str) -> Self {
        let mut parts = identifier.split('.');
        match (parts.next(), parts.next()) {
            (Some("resource" | "container-resource"), Some("cpu")) => Self::Cores,
            (Some("resource" | "container-resource"), Some("memory" | "ephemeral-storage")) => {
                Self::Bytes
            }
            _ => Self::Plain,
        }
    }

    /// A value with its unit, for people.
    ///
    /// ```
    /// use foretide_domain::proposal::Unit;
    ///
    /// assert_eq!(Unit::of_metric("resource.cpu").amount(0.54), "0.54 cores");
    /// assert_eq!(Unit::Percent.amount(47.0), "47 %");
    /// assert_eq!(Unit::Bytes.amount(1_610_612_736.0), "1.5 GiB");
    /// ```
    pub fn amount(self, value: f64) -> String {
        match self {
            Self::Cores => format!("{} cores", number(value)),
            Self::Percent => format!("{} %", number(value)),
            Self::Bytes | Self::Plain => self.plain(value),
        }
    }

    /// A value without its unit, for use after a value that names the unit; bytes keep theirs.
    pub(super) fn plain(self, value: f64) -> String {
        const STEPS: [(f64, &str); 4] = [
            (1_099_511_627_776.0, "TiB"),
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1024.0, "KiB"),
        ];
        if self != Self::Bytes {
            return number(value);
        }
        match STEPS.iter().find(|(size, _)| value >= *size) {
            Some((size, name)) => format!("{} {name}", number(value / size)),
            None => format!("{} B", number(value)),
        }
    }
}

/// At most three decimals, none of them a trailing zero.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Origin of a forecast, and its accuracy so far.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastDetails {
    /// Name of the algorithm.
    pub method: &'static str,
    /// The quantile in use, if the algorithm forecasts one.
    pub quantile: Option<f64>,
    /// The span from the end of the history that the forecast covers, if it is not the prediction window.
    pub window: Option<SignedDuration>,
    /// The predicted peak of the total demand in that window, in the unit of the metric.
    pub peak: Option<f64>,
    /// The bounds of the total demand that a count is held against, in the unit of the metric.
    pub bounds: Option<DemandBounds>,
    /// The fraction of the last three days' forecasts that were not below the demand, if it is measured.
    pub coverage: Option<f64>,
    /// The fraction of the last day's outcomes that were learned from readings of a minute, if it is measured; the
    /// others are values of the history, which may be smoothed.
    pub raw: Option<f64>,
    /// Advantage of the last three days' forecasts over the last value repeated: 0 is no better, 1 is perfect.
    pub skill: Option<f64>,
    /// The first sample that the algorithm learned from, if it reports that.
    pub learnt_from: Option<Timestamp>,
    /// End of the history.
    pub known_until: Timestamp,
    /// The lead time in use: how long added capacity needs before it serves.
    pub lead_time: LeadTime,
    /// The percentage of the last day's readings at the workload's limits.
    pub censored_percent: f64,
    /// The most important remark, if there is one.
    pub remark: Option<Reason>,
    /// All remarks, for people; empty if there are none.
    pub notes: String,
}

words! {
    /// Reason for a proposal or for its absence: a closed set, stable across versions, in the order of the
    /// documentation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
    #[display("{}", self.as_str())]
    pub enum Reason {
        // There is a proposal.
        /// The metric was read.
        ValidMetricFound,
        /// The forecast was computed.
        ForecastReady,
        /// The value is within the HPA's tolerance of the current count, or the last proposal of the forecast stays.
        WithinTolerance,
        /// Values are assumed for pods without metrics, so that they cause no change.
        PodsWithoutMetrics,
        /// There is less than a day of history: no day to compare with yet.
        WarmingUp,
        /// The level moved by more than a factor of two, and was learned again.
        LevelShift,
        /// The forecast is no better than the last value repeated, which is used instead.
        NoSkill,
        /// The arithmetic failed; the last value repeated is used instead.
        NumericalFallback,
        /// The history is constant; so is the forecast.
        Constant,
        /// The workload was at its limits for much of the last day: the true demand may be higher.
        Censored,
        /// The cron window is open.
        WindowActive,

        // No observed proposal: the cause, as the observation gives it.
        /// The request to the metrics API failed, or its response could not be read.
        MetricNotRead,
        /// The metrics API returned no samples.
        NoSamples,
        /// The metrics API returned only samples that are too old to count.
        StaleSamples,
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
        /// The observed lane computed nothing: the count was outside the bounds, or zero.
        NotComputed,

        // No forecast.
        /// No forecast has been computed yet.
        Pending,
        /// The memory limit of the controller does not hold the forecasts of all series.
        MemoryLimit,
        /// The history has fewer samples than a forecast needs.
        InsufficientHistory,
        /// The last sample is too old.
        StaleHistory,
        /// The newest samples are the first ones after an outage: they may cover only some of the pods.
        HistoryWarmingUp,
        /// Too many samples are missing.
        TooManyGaps,
        /// The history is zero throughout.
        ZeroSeries,
        /// The history has no period that the algorithm could use.
        NotPeriodic,
        /// The query returned no samples.
        NoData,
        /// The query failed.
        QueryError,
        /// The files with the credentials for Prometheus cannot be used.
        CredentialsUnreadable,
        /// Prometheus, or a proxy before it, refused the credentials (401).
        Unauthorized,
        /// Prometheus, or a proxy before it, accepted the credentials and does not permit the query (403).
        Forbidden,
        /// The certificate of Prometheus is not trusted, or it does not trust ours.
        TlsFailed,
        /// The query was refused: it selects series outside the object's namespace, or is not valid.
        QueryRefused,
        /// The history covers only a part of the members: its total would be too small.
        PartialHistory,
        /// The forecast has expired: its history ended too long ago.
        Expired,
        /// The series changed its unit or its identity: older samples are not comparable.
        SeriesChanged,
        /// The algorithm gave no finite number.
        NumericalFailure,
        /// The metric cannot be forecast: its target is not an amount per pod.
        NotForecastable,
        /// The total grows with the pods, or is not known to divide among them.
        NotDivided,
        /// More pods run than the spec asks for, or it is not known yet what the last change of their number did to the
        /// total: the forecast raises nothing.
        PodsChanging,
        /// The history is another amount than the live total of the pods that the selector selects.
        HistoryMismatch,
        /// The target is below a thousandth, which the target of an HPA's metric cannot be (mode Metric).
        SmallTarget,

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
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::NotRead => Self::MetricNotRead,
            Cause::NoSamples => Self::NoSamples,
            Cause::StaleSamples => Self::StaleSamples,
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

impl From<WindowProblem> for Reason {
    fn from(problem: WindowProblem) -> Self {
        match problem {
            WindowProblem::ZeroLength => Self::ZeroLength,
            WindowProblem::StartNeverFires | WindowProblem::EndNeverFires => Self::NeverFires,
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
    fn the_reason_of_a_cause_is_the_same_word() {
        for cause in [
            Cause::NotRead,
            Cause::NoSamples,
            Cause::StaleSamples,
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
