//! The reasons that the algorithm gives for an autoscaler's conditions, in upstream's words.

words! {
    /// Reason for the status of a condition: the closed set of words that upstream uses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ConditionReason {
        /// No stabilization window holds the count.
        ReadyForNewScale,
        /// A lower recommendation of the scale-up window holds the count down.
        ScaleUpStabilized,
        /// A higher recommendation of the scale-down window holds the count up.
        ScaleDownStabilized,
        /// At least one metric gave a count.
        ValidMetricFound,
        /// The workload is at zero replicas and stays there.
        ScalingDisabled,
        /// The scale has no selector, or one that cannot be parsed.
        InvalidSelector,
        /// Another autoscaler's target selects the same pods.
        AmbiguousSelector,
        /// A metric has an unknown type.
        InvalidMetricSourceType,
        /// A Resource metric gave no count.
        FailedGetResourceMetric,
        /// A `ContainerResource` metric gave no count.
        FailedGetContainerResourceMetric,
        /// A Pods metric gave no count.
        FailedGetPodsMetric,
        /// An Object metric gave no count.
        FailedGetObjectMetric,
        /// An External metric gave no count.
        FailedGetExternalMetric,
        /// The count is within all bounds.
        DesiredWithinRange,
        /// The count is raised to `minReplicas`.
        TooFewReplicas,
        /// The count is lowered to `maxReplicas`.
        TooManyReplicas,
        /// The count is lowered to the most that scaling up may reach now.
        ScaleUpLimit,
        /// The count is raised to the least that scaling down may reach now.
        ScaleDownLimit,
    }
}
