//! The values that stores keep of objects: one type for each kind.

use std::fmt::Debug;

use serde_json::Value;

use super::{labels::PackedLabels, size};

/// The value that a store keeps of an object of one kind.
pub trait Stored: Sized + Debug + Send + Sync + 'static {
    /// True if the value is the object as it is, with all that its author wrote. Labels and annotations of others are
    /// removed from such an object, because they may be as large as the API allows.
    const IS_WHOLE: bool = false;

    /// Decodes an object; the error names the field and what was expected.
    fn decode(object: Value) -> Result<Self, String>;

    /// The memory that the value takes, in bytes.
    fn size(&self) -> usize {
        size::estimate(self)
    }

    /// The memory that the value takes in a controller, with what syncs and forecasts hold of it, in bytes.
    fn managed_size(&self) -> usize {
        self.size()
    }

    /// True if the value equals one that is kept, which then stays: others may hold it.
    fn equals(&self, _kept: &Self) -> bool {
        false
    }

    /// The labels, if objects of this kind are selected by label.
    fn labels(&self) -> Option<&PackedLabels> {
        None
    }

    /// Takes the same labels in another text.
    fn share_labels(&mut self, _labels: PackedLabels) {}

    /// True if spec and annotations equal those of `before`; such a change is not reported.
    fn spec_eq(&self, _before: &Self) -> bool {
        true
    }
}
