//! The assignment of slots and lanes to tenants. Pure: it reads no clock and wakes no task.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::clock::Monotonic;

/// Time for which a tenant counts as slow after slow work.
const SLOW_FOR: Duration = Duration::from_mins(1);
/// Number of tenants from which idle ones are removed.
const MAX_IDLE: usize = 1_024;

/// The slots of both lanes, and the work that waits for them.
#[derive(Debug)]
pub(super) struct Lanes<W> {
    /// The slots of each lane.
    slots: usize,
    shares: BTreeMap<Arc<str>, Share<W>>,
    holds: BTreeMap<HoldId, Hold>,
    last_id: HoldId,
    /// The virtual time of fair queueing: the time that the tenant started last had used before. An idle tenant starts
    /// again from here, so that idle time gives no credit.
    virtual_time: Duration,
}

/// A slot that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct HoldId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Prompt,
    Slow,
}

#[derive(Debug)]
struct Hold {
    tenant: Arc<str>,
    lane: Lane,
    since: Monotonic,
    /// The work is slow, and moves to the slow lane when that has room.
    is_slow: bool,
}

/// One tenant.
#[derive(Debug)]
struct Share<W> {
    waiting: VecDeque<W>,
    /// Time for which the work of the tenant has used slots.
    used: Duration,
    latency: LatencyClass,
}

/// Latency of the work of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LatencyClass {
    Unknown,
    Prompt,
    /// Slow until this reading, and then unknown.
    Slow(Monotonic),
}

// === impl Lanes ===

impl<W> Lanes<W> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(2),
            shares: BTreeMap::new(),
            holds: BTreeMap::new(),
            last_id: HoldId::default(),
            virtual_time: Duration::ZERO,
        }
    }

    /// Adds work to the queue of its tenant.
    pub(super) fn enqueue(&mut self, tenant: &Arc<str>, work: W) {
        self.forget_idle();
        let is_idle = self.holds_of(tenant, None) == 0;
        let share = self
            .shares
            .entry(Arc::clone(tenant))
            .or_insert_with(|| Share {
                waiting: VecDeque::new(),
                used: Duration::ZERO,
                latency: LatencyClass::Unknown,
            });
        if is_idle && share.waiting.is_empty() {
            share.used = share.used.max(self.virtual_time);
        }
        share.waiting.push_back(work);
    }

    /// The work that gets a slot now, if there is any. Canceled work is dropped.
    pub(super) fn start_next(
        &mut self,
        now: Monotonic,
        is_canceled: impl Fn(&W) -> bool,
    ) -> Option<(HoldId, W)> {
        if self.holds.len() >= 2 * self.slots {
            return None;
        }
        self.move_slow();
        // Before slow periods end: a tenant stays slow while its slow work runs.
        self.renew_slow(now);
        for share in self.shares.values_mut() {
            share.end_slow(now);
            while share.waiting.front().is_some_and(&is_canceled) {
                share.waiting.pop_front();
            }
        }
        let startable = self.shares.iter().filter(|(tenant, share)| {
            !share.waiting.is_empty() && self.may_start(tenant, share.latency)
        });
        let (tenant, _) = startable.min_by_key(|(tenant, share)| {
            let held = self.holds_of(tenant, Some(share.latency.lane()));
            (held, share.used)
        })?;
        let tenant = Arc::clone(tenant);
        let share = self.shares.get_mut(&tenant)?;
        let (lane, work) = (share.latency.lane(), share.waiting.pop_front()?);
        self.virtual_time = self.virtual_time.max(share.used);
        self.last_id = HoldId(self.last_id.0 + 1);
        let hold = Hold {
            tenant,
            lane,
            since: now,
            is_slow: false,
        };
        self.holds.insert(self.last_id, hold);
        Some((self.last_id, work))
    }

    /// Records that the work in a slot was prompt.
    pub(super) fn was_prompt(&mut self, hold: HoldId, now: Monotonic) {
        if let Some(share) = self.share_of(hold) {
            share.end_slow(now);
            // A slow tenant stays slow for its minute, even if some of its work is prompt.
            if share.latency == LatencyClass::Unknown {
                share.latency = LatencyClass::Prompt;
            }
        }
    }

    /// Records that the work in a slot is slow: it moves to the slow lane when that has room.
    pub(super) fn is_slow(&mut self, hold: HoldId, now: Monotonic) {
        if let Some(hold) = self.holds.get_mut(&hold) {
            hold.is_slow = true;
        }
        if let Some(share) = self.share_of(hold) {
            share.latency = LatencyClass::Slow(now + SLOW_FOR);
        }
        self.move_slow();
    }

    /// Releases a slot.
    pub(super) fn release(&mut self, hold: HoldId, now: Monotonic) {
        let Some(hold) = self.holds.remove(&hold) else {
            return;
        };
        if let Some(share) = self.shares.get_mut(&hold.tenant) {
            share.used += now.since(hold.since);
        }
    }

    /// The tenants whose work is slow.
    pub(super) fn slow_tenants(&self, now: Monotonic) -> Vec<Arc<str>> {
        self.shares
            .iter()
            .filter(|(_, share)| matches!(share.latency, LatencyClass::Slow(until) if now < until))
            .map(|(tenant, _)| Arc::clone(tenant))
            .collect()
    }

    /// Moves slow work to the slow lane while that has room.
    fn move_slow(&mut self) {
        let slow: Vec<HoldId> = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.is_slow && hold.lane == Lane::Prompt)
            .map(|(id, _)| *id)
            .collect();
        for id in slow {
            let tenant = self.holds.get(&id).map(|hold| Arc::clone(&hold.tenant));
            if tenant.is_some_and(|tenant| self.has_room(&tenant, Lane::Slow))
                && let Some(hold) = self.holds.get_mut(&id)
            {
                hold.lane = Lane::Slow;
            }
        }
    }

    /// Restarts the slow minute of tenants with running slow work: a tenant whose only work runs for longer would
    /// otherwise have no slot for more.
    fn renew_slow(&mut self, now: Monotonic) {
        for hold in self.holds.values().filter(|hold| hold.is_slow) {
            if let Some(share) = self.shares.get_mut(&hold.tenant) {
                share.latency = LatencyClass::Slow(now + SLOW_FOR);
            }
        }
    }

    fn may_start(&self, tenant: &Arc<str>, latency: LatencyClass) -> bool {
        let held = self.holds_of(tenant, None);
        let limit = match latency {
            LatencyClass::Unknown => 1,
            // The slow lane has room for all of the work if all of it turns out to be slow.
            LatencyClass::Prompt | LatencyClass::Slow(_) => self.slots - 1,
        };
        held < limit && self.has_room(tenant, latency.lane())
    }

    /// Returns whether a lane has a slot for a tenant: the last free slot is reserved for tenants that hold none in
    /// this lane.
    fn has_room(&self, tenant: &Arc<str>, lane: Lane) -> bool {
        let in_use = self.holds.values().filter(|hold| hold.lane == lane).count();
        let reserved = usize::from(self.holds_of(tenant, Some(lane)) > 0);
        in_use + reserved < self.slots
    }

    /// Returns the number of slots that a tenant holds, in one lane or in both.
    fn holds_of(&self, tenant: &Arc<str>, lane: Option<Lane>) -> usize {
        let held = self.holds.values().filter(|hold| hold.tenant == *tenant);
        held.filter(|hold| lane.is_none_or(|lane| hold.lane == lane))
            .count()
    }

    fn share_of(&mut self, hold: HoldId) -> Option<&mut Share<W>> {
        let tenant = &self.holds.get(&hold)?.tenant;
        self.shares.get_mut(tenant)
    }

    /// Removes tenants without work when there are many.
    fn forget_idle(&mut self) {
        if self.shares.len() < MAX_IDLE {
            return;
        }
        let holds = &self.holds;
        self.shares.retain(|tenant, share| {
            // A slow tenant that is forgotten would start in the prompt lane again.
            let is_slow = matches!(share.latency, LatencyClass::Slow(_));
            let is_working = holds.values().any(|hold| hold.tenant == *tenant);
            is_slow || is_working || !share.waiting.is_empty()
        });
    }
}

// === impl Share ===

impl<W> Share<W> {
    /// Ends the slow period if it is over.
    fn end_slow(&mut self, now: Monotonic) {
        if matches!(self.latency, LatencyClass::Slow(until) if until <= now) {
            self.latency = LatencyClass::Unknown;
        }
    }
}

// === impl LatencyClass ===

impl LatencyClass {
    const fn lane(self) -> Lane {
        match self {
            Self::Unknown | Self::Prompt => Lane::Prompt,
            Self::Slow(_) => Lane::Slow,
        }
    }
}

#[cfg(test)]
mod laws;
