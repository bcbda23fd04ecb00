//! Metric specs and their targets, decided once when the spec is read.
//!
//! A target keeps only the field that its metric type uses; a spec without that field has the target
//! `Unusable`. An unknown metric type is kept by name, not dropped.

/// One entry of `spec.metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSpec {
    /// A resource, over all containers of the pods.
    Resource {
        /// `cpu`, `memory`, ...
        name: String,
        /// Target of the metric.
        target: Target,
    },
    /// A resource of one container per pod.
    ContainerResource {
        /// `cpu`, `memory`, ...
        name: String,
        /// The container's name.
        container: String,
        /// Target of the metric.
        target: Target,
    },
    /// A custom metric of the pods, averaged over them.
    Pods {
        /// The metric's name.
        metric: String,
        /// Label selector of the metric.
        selector: Option<String>,
        /// Target of the metric.
        target: Target,
    },
    /// A metric of one object.
    Object {
        /// The object that has the metric.
        described: ObjectRef,
        /// The metric's name.
        metric: String,
        /// Label selector of the metric.
        selector: Option<String>,
        /// Target of the metric.
        target: Target,
    },
    /// A metric from outside the cluster; its series are summed.
    External {
        /// The metric's name.
        metric: String,
        /// Label selector of the metric.
        selector: Option<String>,
        /// Target of the metric.
        target: Target,
    },
    /// A type this version does not know, by its name.
    Unknown(String),
}

words! {
    /// The type of a metric.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MetricKind {
        /// See [`MetricSpec::Resource`].
        Resource,
        /// See [`MetricSpec::ContainerResource`].
        ContainerResource,
        /// See [`MetricSpec::Pods`].
        Pods,
        /// See [`MetricSpec::Object`].
        Object,
        /// See [`MetricSpec::External`].
        External,
        /// See [`MetricSpec::Unknown`].
        Unknown,
    }
}

/// An object in the workload's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Target of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `averageUtilization`: percent of the requests.
    Utilization(i32),
    /// `averageValue`: milli-units per pod.
    AverageValue(i64),
    /// `value`: milli-units in total.
    Value(i64),
    /// No written field that this type of metric uses: the metric is unavailable.
    Unusable,
}

/// A target as written: every field a user may have set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenTarget<'a> {
    /// `type`.
    pub kind: &'a str,
    /// `averageUtilization`, percent.
    pub average_utilization: Option<i32>,
    /// `averageValue`, milli-units.
    pub average_value: Option<i64>,
    /// `value`, milli-units.
    pub value: Option<i64>,
}

impl Target {
    /// The target of a metric of type `kind`, by the rules of upstream's `computeReplicasForMetric`.
    ///
    /// Resource and `ContainerResource`: `averageValue` before `averageUtilization`. Pods:
    /// `averageValue`. Object: the field `type` names. External: `averageValue` before `value`.
    ///
    /// ```
    /// use foretide_domain::hpa::{MetricKind, Target, WrittenTarget};
    ///
    /// let written = WrittenTarget {
    ///     kind: "Utilization",
    ///     average_utilization: Some(80),
    ///     ..WrittenTarget::default()
    /// };
    /// assert_eq!(Target::read(MetricKind::Resource, written), Target::Utilization(80));
    /// // A custom metric of pods has no request to take a percentage of.
    /// assert_eq!(Target::read(MetricKind::Pods, written), Target::Unusable);
    /// ```
    pub fn read(kind: MetricKind, written: WrittenTarget<'_>) -> Self {
        let average = written.average_value.map(Self::AverageValue);
        let value = written.value.map(Self::Value);
        match (kind, written.kind) {
            (MetricKind::Resource | MetricKind::ContainerResource, _) => {
                average.or(written.average_utilization.map(Self::Utilization))
            }
            (MetricKind::Pods, _) | (MetricKind::Object, "AverageValue") => average,
            (MetricKind::Object, "Value") => value,
            (MetricKind::External, _) => average.or(value),
            (MetricKind::Object | MetricKind::Unknown, _) => None,
        }
        .unwrap_or(Self::Unusable)
    }
}

impl MetricSpec {
    /// The type of the metric.
    pub const fn kind(&self) -> MetricKind {
        match self {
            Self::Resource { .. } => MetricKind::Resource,
            Self::ContainerResource { .. } => MetricKind::ContainerResource,
            Self::Pods { .. } => MetricKind::Pods,
            Self::Object { .. } => MetricKind::Object,
            Self::External { .. } => MetricKind::External,
            Self::Unknown(_) => MetricKind::Unknown,
        }
    }

    /// Returns true if the total of the metric is a sum over the pods of the workload.
    pub const fn is_of_pods(&self) -> bool {
        !matches!(self.kind(), MetricKind::Object | MetricKind::External)
    }

    /// The resource of the pods that the metric measures, and the container if it is of a single one.
    pub fn resource(&self) -> Option<(&str, Option<&str>)> {
        match self {
            Self::Resource { name, .. } => Some((name, None)),
            Self::ContainerResource {
                name, container, ..
            } => Some((name, Some(container))),
            _ => None,
        }
    }

    /// Target of the metric; an unknown type has no usable one.
    pub const fn target(&self) -> Target {
        match self {
            Self::Resource { target, .. }
            | Self::ContainerResource { target, .. }
            | Self::Pods { target, .. }
            | Self::Object { target, .. }
            | Self::External { target, .. } => *target,
            Self::Unknown(_) => Target::Unusable,
        }
    }

    /// The name under which status, forecasts and annotations know the metric: `resource.cpu`,
    /// `container-resource.cpu.<container>`, `pods.<metric>`, `object.<metric>`,
    /// `external.<metric>`, and the bare type when it is unknown.
    ///
    /// ```
    /// use foretide_domain::hpa::{MetricSpec, Target};
    ///
    /// let memory = MetricSpec::ContainerResource {
    ///     name: "memory".into(),
    ///     container: "app".into(),
    ///     target: Target::Utilization(80),
    /// };
    /// assert_eq!(memory.identifier(), "container-resource.memory.app");
    /// ```
    pub fn identifier(&self) -> String {
        match self {
            Self::Resource { name, .. } => format!("resource.{name}"),
            Self::ContainerResource {
                name, container, ..
            } => {
                format!("container-resource.{name}.{container}")
            }
            Self::Pods { metric, .. } => format!("pods.{metric}"),
            Self::Object { metric, .. } => format!("object.{metric}"),
            Self::External { metric, .. } => format!("external.{metric}"),
            Self::Unknown(kind) => kind.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_type_decides_which_target_field_counts() {
        use MetricKind::{ContainerResource, External, Object, Pods, Resource};
        let all = |kind| WrittenTarget {
            kind,
            average_utilization: Some(50),
            average_value: Some(7),
            value: Some(9),
        };
        let only_value = WrittenTarget {
            value: Some(9),
            ..WrittenTarget::default()
        };
        let only_percent = WrittenTarget {
            average_utilization: Some(50),
            ..all("")
        };
        for (kind, written, want) in [
            (Resource, all("Utilization"), Target::AverageValue(7)),
            (
                ContainerResource,
                WrittenTarget {
                    average_value: None,
                    ..only_percent
                },
                Target::Utilization(50),
            ),
            (Resource, only_value, Target::Unusable),
            (Pods, all("Value"), Target::AverageValue(7)),
            (Pods, only_value, Target::Unusable),
            (Object, all("Value"), Target::Value(9)),
            (Object, all("AverageValue"), Target::AverageValue(7)),
            (Object, all("Utilization"), Target::Unusable),
            (
                Object,
                WrittenTarget {
                    value: None,
                    ..all("Value")
                },
                Target::Unusable,
            ),
            (External, all("Value"), Target::AverageValue(7)),
            (External, only_value, Target::Value(9)),
            (MetricKind::Unknown, all("Value"), Target::Unusable),
        ] {
            assert_eq!(Target::read(kind, written), want, "{kind:?} {written:?}");
        }
    }
}
