//! What can change a count between the largest proposal and the result.

words! {
    /// What can change the count between the largest proposal and the result.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Limit {
        /// Raised to `minReplicas`.
        TooFewReplicas,
        /// Lowered to `maxReplicas`.
        TooManyReplicas,
        /// Lowered to the most that scaling up may reach now.
        ScaleUpLimit,
        /// Raised to the least that scaling down may reach now.
        ScaleDownLimit,
        /// A lower value in the scale-up window holds it down.
        ScaleUpStabilized,
        /// A higher value in the scale-down window holds it up.
        ScaleDownStabilized,
        /// Mode Metric: what forecasts and cron windows ask for is within the HPA's tolerance of the current count.
        WithinTolerance,
        /// A metric is unavailable: the count is not lowered.
        MetricUnavailable,
        /// The history was lost: the count is not lowered.
        HistoryLost,
        /// A user scaled the workload to zero: autoscaling is paused.
        Paused,
        /// Only cron windows are configured, and none is open: the current count stays.
        NoActiveWindow,
        /// `maxReplicas` is below `minReplicas`: nothing is decided.
        InvalidBounds,
    }
}
