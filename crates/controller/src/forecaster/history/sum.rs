//! The sum of the samples of a fleet's members, on their common grid, in the form of a single query's samples.
//!
//! A sum must never be smaller than the demand was, so a time at which one member has no sample has no sum. Two cases
//! count as zero instead:
//!
//! - a value below zero, with which a query says that the member was monitored and ran no pods;
//! - no sample of a member in which the hub sees no pods now.
//!
//! A value below zero that is newer than the member's newest other sample is ignored if the hub sees pods there: then
//! the member's series have moved elsewhere.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{QueryPart, ReadContext, SampleGrid, TimeRange, cache::CachedSamples};
use foretide_api::ports::HistoryError;

/// Longest time by which the newest sample of one member may be behind that of another.
const MAX_LAG: SignedDuration = SignedDuration::from_mins(10);

/// A sum to which members are added one by one.
#[derive(Debug)]
pub struct MemberSum {
    grid: SampleGrid,
    window: TimeRange,
    /// One point for each time of the grid in the window.
    points: Vec<Point>,
    /// Number of members that must have a sample for a sum.
    required: u32,
    /// The newest sample of each member that must have one.
    newest: Vec<(Option<Arc<str>>, Option<i64>)>,
    read_from: Option<i64>,
    full_read_at: i64,
}

/// The sum at one time.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    total: f64,
    /// Number of the required members that have a sample.
    answered: u32,
    /// True if any member has a sample.
    any: bool,
}

// === impl MemberSum ===

impl MemberSum {
    pub fn new(context: &ReadContext<'_>) -> Self {
        let grid = context.query.grid;
        let window = CachedSamples::empty(grid).window(context);
        let count = usize::try_from((window.to - window.from) / grid.step + 1).unwrap_or(0);
        Self {
            grid,
            window,
            points: vec![Point::default(); count],
            required: 0,
            newest: Vec::new(),
            // The neutral elements of the maximum and the minimum that `add` forms.
            read_from: Some(i64::MIN),
            full_read_at: i64::MAX,
        }
    }

    /// Adds the samples of one member.
    pub fn add(&mut self, part: &QueryPart, cached: &CachedSamples, idle: &BTreeSet<Arc<str>>) {
        let idle = part.member.as_ref().is_some_and(|name| idle.contains(name));
        // Below zero means that the member ran no pods; see the module's documentation.
        let newest = (cached.samples.range(self.window).rev())
            .find_map(|(at, value)| (value >= 0.0).then_some(at));
        let until = if idle { Some(i64::MAX) } else { newest };
        for (at, value) in cached.samples.range(self.window) {
            // `None` is less than any `Some`: a member with pods that has no value of its own adds nothing.
            if Some(at) > until {
                break;
            }
            let index = usize::try_from((at - self.window.from) / self.grid.step);
            if let Some(point) = index.ok().and_then(|index| self.points.get_mut(index)) {
                point.total += if value < 0.0 { 0.0 } else { value };
                // An idle member may have no sample, so none is required of it.
                point.answered += u32::from(!idle);
                point.any = true;
            }
        }
        if !idle {
            self.required += 1;
            self.newest.push((part.member.clone(), newest));
        }
        // The sum has been read only from where every member has been.
        self.read_from = self
            .read_from
            .zip(cached.read_from)
            .map(|(one, other)| one.max(other));
        self.full_read_at = self.full_read_at.min(cached.full_read_at);
    }

    /// The sums, as if they were the samples of one query.
    pub fn cached(&self) -> CachedSamples {
        let times = (self.window.from..).step_by(usize::try_from(self.grid.step).unwrap_or(1));
        let mut cached = CachedSamples::empty(self.grid);
        for (at, point) in times.zip(&self.points) {
            // If all members are idle, none is required, and without `any` every time of the grid would have a sum of
            // zero.
            if point.any && point.answered == self.required {
                cached.samples.insert(at, point.total);
            }
        }
        cached.newest = cached.samples.newest();
        cached.read_from = self.read_from;
        cached.full_read_at = self.full_read_at;
        cached
    }

    /// Checks that every required member has samples up to now.
    ///
    /// # Errors
    /// The first member that has no sample at all, or whose newest is ten minutes behind that of another.
    pub fn check_complete(&self) -> Result<(), HistoryError> {
        let newest = self.newest.iter().filter_map(|(_, newest)| *newest).max();
        for (member, own) in &self.newest {
            let Some(member) = member else { continue };
            let source = match (own, newest) {
                (None, _) => HistoryError::Empty,
                (Some(own), Some(newest)) if newest - own > MAX_LAG.as_secs() => {
                    let (newest, others) = (instant(*own), instant(newest));
                    HistoryError::Stopped { newest, others }
                }
                _ => continue,
            };
            return Err(missing(member, source));
        }
        Ok(())
    }
}

/// Adds the name of the member to an error of reading its samples.
pub fn name_member(part: &QueryPart, error: HistoryError) -> HistoryError {
    match &part.member {
        Some(member) => missing(member, error),
        None => error,
    }
}

fn missing(member: &Arc<str>, source: HistoryError) -> HistoryError {
    HistoryError::Member {
        member: Arc::clone(member),
        source: Box::new(source),
    }
}

fn instant(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

#[cfg(test)]
mod tests;
