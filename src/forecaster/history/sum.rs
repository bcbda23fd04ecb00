//! The sum of what was told of a fleet's members, on their common grid, as if one query had told it.
//!
//! A sum must never be smaller than the demand was, so a moment at which one member tells nothing has no sum. Only two
//! things pass for zero: what a query itself says with a value below zero, that a member was watched while nothing
//! ran there; and the silence of a member in which nothing runs now, as the hub sees it. The first is not
//! believed of the present where the hub sees pods: then the member's series have gone elsewhere. It asks nobody.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{Grid, Part, Range, ReadContext, cache::CachedSamples};
use crate::ports::HistoryError;

/// How far the newest sample of one member may be behind that of another.
const LAG: SignedDuration = SignedDuration::from_mins(10);

/// A sum under way.
#[derive(Debug)]
pub(super) struct Sum {
    grid: Grid,
    window: Range,
    /// For each point of the grid in the window.
    points: Vec<Point>,
    /// How many members must tell something for a sum.
    needed: u32,
    /// The newest value of each member that must tell something.
    newest: Vec<(Option<Arc<str>>, Option<i64>)>,
    asked_from: Option<i64>,
    whole_at: i64,
}

/// What was told for one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    total: f64,
    /// By how many of those who must.
    told: u32,
    /// Whether by anybody.
    any: bool,
}

// === impl Sum ===

impl Sum {
    pub(super) fn of(grid: Grid, occasion: &ReadContext<'_>) -> Self {
        let window = CachedSamples::nothing(grid).window(occasion);
        let count = usize::try_from((window.to - window.from) / grid.step + 1).unwrap_or(0);
        Self {
            grid,
            window,
            points: vec![Point::default(); count],
            needed: 0,
            newest: Vec::new(),
            asked_from: Some(i64::MIN),
            whole_at: i64::MAX,
        }
    }

    /// Adds what was told of one part.
    pub(super) fn add(&mut self, part: &Part, told: &CachedSamples, idle: &BTreeSet<Arc<str>>) {
        let idle = part.member.as_ref().is_some_and(|name| idle.contains(name));
        let within = || told.samples.range(self.window.from..=self.window.to);
        let newest = within().rev().find(|(_, value)| **value >= 0.0);
        let newest = newest.map(|(at, _)| *at);
        let believed = if idle { Some(i64::MAX) } else { newest };
        for (at, value) in within().take_while(|(at, _)| Some(**at) <= believed) {
            let index = usize::try_from((at - self.window.from) / self.grid.step);
            let point = index.ok().and_then(|index| self.points.get_mut(index));
            if let Some(point) = point {
                point.total += if *value < 0.0 { 0.0 } else { *value };
                point.told += u32::from(!idle);
                point.any = true;
            }
        }
        if !idle {
            self.needed += 1;
            self.newest.push((part.member.clone(), newest));
        }
        self.asked_from = self
            .asked_from
            .zip(told.asked_from)
            .map(|(one, other)| one.max(other));
        self.whole_at = self.whole_at.min(told.whole_at);
    }

    /// As if one query had told it.
    pub(super) fn told(&self) -> CachedSamples {
        let times = (self.window.from..).step_by(usize::try_from(self.grid.step).unwrap_or(1));
        let points = times.zip(&self.points);
        let whole = points.filter(|(_, point)| point.any && point.told == self.needed);
        let mut told = CachedSamples::nothing(self.grid);
        told.samples = whole.map(|(at, point)| (at, point.total)).collect();
        told.answered = told.samples.last_key_value().map(|(at, _)| *at);
        told.asked_from = self.asked_from;
        told.whole_at = self.whole_at;
        told
    }

    /// Whether every member that must tell something does, up to now.
    ///
    /// # Errors
    /// The first that does not: it has no value at all, or none for ten minutes in which another has.
    pub(super) fn complete(&self) -> Result<(), HistoryError> {
        let newest = self.newest.iter().filter_map(|(_, newest)| *newest).max();
        for (member, own) in &self.newest {
            let Some(member) = member else { continue };
            let source = match (own, newest) {
                (None, _) => HistoryError::Empty,
                (Some(own), Some(newest)) if newest - own > LAG.as_secs() => {
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

/// An error of reading one part, with the name of whose it is.
pub(super) fn of_member(part: &Part, error: HistoryError) -> HistoryError {
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
