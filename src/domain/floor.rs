//! The floor lane: what forecast and cron ask for, held, limited and clamped to one count.
//!
//! ```text
//! raw = max(forecast, open cron window) -> held over the scale-down window
//!     -> not above the lowest of an explicit scale-up window -> explicit scale-up policies -> bounds
//! ```
//!
//! Only what the user wrote about scale-up delays a floor; the API's defaults never do. There is no
//! limit downwards here: the observed lane has it, or the join for a workload without metrics.

use jiff::{SignedDuration, Timestamp};

use super::hpa::{Behavior, Direction, Log, Select};
use super::history::{History, Windows};
use super::{ReplicaBounds, Replicas};

/// The floor lane's numbers, from the sources to the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The largest proposal of forecast and cron now; `None` if there is none.
    pub raw: Option<Replicas>,
    /// After the stabilization windows; `None` if nothing asked within them.
    pub held: Option<Replicas>,
    /// After explicit scale-up policies.
    pub limited: Option<Replicas>,
    /// After the bounds; without any proposal, the minimum.
    pub floor: Replicas,
}

/// What the lane reads besides its sources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    /// The user's bounds.
    pub(super) bounds: ReplicaBounds,
    /// The user's behavior.
    pub(super) behavior: Option<&'a Behavior>,
    /// The windows in force.
    pub(super) windows: Windows,
    /// The count now.
    pub(super) current: Replicas,
    /// How much earlier than they do here, past scale-downs may stop counting for whoever acts on
    /// the floor.
    pub(super) slack: SignedDuration,
}

impl Lane<'_> {
    /// The floor at `now`, given what is asked for and what was.
    pub(super) fn floor(&self, raw: Option<Replicas>, history: &History, now: Timestamp) -> Floor {
        let held = self.held(raw, history, now);
        let limited = held.map(|held| self.limited(held, &history.log, now));
        let floor = limited.map_or(self.bounds.min, |limited| self.bounds.clamp(limited));
        Floor { raw, held, limited, floor }
    }

    fn held(&self, raw: Option<Replicas>, history: &History, now: Timestamp) -> Option<Replicas> {
        let within = |window| {
            let past = history.floors.iter();
            past.filter(move |f| self.windows.reaches(window, f.at, now)).map(|f| f.raw)
        };
        let asked = raw.unwrap_or_default();
        let down = within(self.windows.down).fold(asked, Replicas::max);
        if raw.is_none() && down == Replicas::ZERO {
            return None;
        }
        if self.behavior.is_none() {
            return Some(down);
        }
        let up = within(self.windows.up).fold(asked, Replicas::min);
        Some(down.min(up.max(self.current)))
    }

    fn limited(&self, held: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let explicit = self.behavior.filter(|behavior| limits_scale_up(behavior));
        match explicit.filter(|_| held > self.current) {
            Some(behavior) => {
                let limit = behavior.up_limit(self.current, &self.aged(log), now);
                held.min(limit.max(self.current))
            }
            None => held,
        }
    }

    /// The log with its scale-downs older by the slack: fewer of them count, so that a limit
    /// reckoned now still holds when it is acted on.
    fn aged(&self, log: &Log) -> Log {
        let mut log = log.clone();
        for event in &mut log.scale_down {
            event.at = event.at.checked_sub(self.slack).unwrap_or(event.at);
        }
        log
    }
}

/// Whether the user wrote how fast to scale up.
fn limits_scale_up(behavior: &Behavior) -> bool {
    let rules = behavior.rules(Direction::Up);
    rules.policies.is_some() || rules.select == Some(Select::Disabled)
}
