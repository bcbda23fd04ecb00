//! Skeleton.

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When.
    pub at: jiff::Timestamp,
    /// How much.
    pub value: f64,
}
