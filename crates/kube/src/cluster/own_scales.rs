//! Scales that we wrote, until the copies show them: a watch may deliver a write after the next sync has begun.
//!
//! Without them, a sync would see the count from before its predecessor's write, and then the written one: two changes
//! that nobody else made.

use std::collections::HashMap;

use foretide_domain::ScaleTarget;
use parking_lot::Mutex;

use super::{MAX_STALENESS, watch::is_older};
use foretide_api::ports::ScaleView;
use foretide_base::clock::{Clock, Contact};

/// The scale of each target as it was stored by our last write.
#[derive(Debug)]
pub struct OwnScales {
    written: Mutex<HashMap<ScaleTarget, Written>>,
    clock: Clock,
}

#[derive(Debug)]
struct Written {
    scale: ScaleView,
    at: Contact,
}

// === impl OwnScales ===

impl OwnScales {
    /// No scales yet; their age is measured by this clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            written: Mutex::default(),
            clock,
        }
    }

    /// Remembers a scale that was written.
    pub fn wrote(&self, target: &ScaleTarget, scale: &ScaleView) {
        let written = Written {
            scale: scale.clone(),
            at: self.clock.contact(),
        };
        let mut all = self.written.lock();
        all.retain(|_, written| written.at.age() <= MAX_STALENESS);
        all.insert(target.clone(), written);
    }

    /// A copy of a target's scale, with the count, the pods and the version of our last write if the copy is older than
    /// that.
    ///
    /// For at most [`MAX_STALENESS`]: a server that was restored from a backup continues at older versions.
    pub fn shown_in(&self, target: &ScaleTarget, mut copy: ScaleView) -> ScaleView {
        let mut all = self.written.lock();
        let Some(Written { scale, at }) = all.get(target) else {
            return copy;
        };
        let is_behind = scale.uid == copy.uid
            && is_older(&copy.resource_version, &scale.resource_version)
            && at.age() <= MAX_STALENESS;
        if is_behind {
            copy.scale.spec = scale.scale.spec;
            copy.resource_version.clone_from(&scale.resource_version);
            copy.expected_pods = scale.scale.spec;
        } else {
            // The copy shows our write or a later one, or another object of this name, or the write is too long ago.
            all.remove(target);
        }
        copy
    }

    /// Forgets a target that does not exist.
    pub fn forget(&self, target: &ScaleTarget) {
        self.written.lock().remove(target);
    }
}
