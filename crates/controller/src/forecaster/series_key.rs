//! The key of a series: the object that it belongs to and the metric.

/// Identifies a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// UID of the autoscaler, or what [`SeriesKey::of_member`] makes of it.
    pub uid: String,
    /// Identifier of the metric, such as `resource.cpu`.
    pub metric: String,
}

// === impl SeriesKey ===

impl SeriesKey {
    /// The `uid` of one member's own series in a `Duplicated` fleet: `<uid>/<member>`.
    ///
    /// A member has series of its own from the first sync that reports demand for it. A fleet none of whose members has
    /// them uses the series of their total.
    pub fn of_member(uid: &str, member: &str) -> String {
        format!("{uid}/{member}")
    }
}
