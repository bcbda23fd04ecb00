//! Limits that can change a count between the largest proposal and the result.

words! {
    /// Limit that can change the count between the largest proposal and the result.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Limit {
        /// The count is raised to `minReplicas`.
        TooFewReplicas,
        /// The count is lowered to `maxReplicas`.
        TooManyReplicas,
        /// The count is lowered to the most that scaling up may reach now.
        ScaleUpLimit,
        /// The count is raised to the least that scaling down may reach now.
        ScaleDownLimit,
        /// A lower value in the scale-up window holds the count down.
        ScaleUpStabilized,
        /// A higher value in the scale-down window holds the count up.
        ScaleDownStabilized,
        /// Mode Metric: the count that forecasts and cron windows ask for is within the HPA's tolerance of the current
        /// one.
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
