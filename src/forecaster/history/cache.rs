//! What readers told of one request, and how the live minutes of a series go on from there. The live minutes of one
//! series never reach another, which may be that of somebody else. It asks nobody.

use std::collections::BTreeMap;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::{Grid, Range, ReadContext};
use crate::ports::HistoryError;

/// How far behind the newest sample a reading starts, for samples that arrive late.
const OVERLAP: SignedDuration = SignedDuration::from_mins(5);
/// How long a history with many holes is believed before all of it is asked for again: the reader may have been
/// filled in behind our back.
const HOLES_BELIEVED: SignedDuration = SignedDuration::from_hours(1);
/// How long live minutes stand in for a query before the next one compares the two.
const COMPARED_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How long live minutes alone carry a history whose reader does not answer, or has no more samples.
const ALONE_AT_MOST: SignedDuration = SignedDuration::from_hours(2);
/// How many common samples live minutes and history are compared by.
const COMPARED_SAMPLES: usize = 30;
/// How far the middle one of their ratios may be from one.
const AGREEMENT: f64 = 0.10;

/// Whether the live minutes of one series measure what its query does, as far as that is known. Every series finds out
/// for itself, also where several share a query: the live minutes of one say nothing about another.
#[derive(Debug, Clone, Copy)]
pub struct LiveMatch {
    agrees: bool,
    /// When the two are compared next.
    pub(super) compare_at: i64,
}

/// What a reader told of one request.
#[derive(Debug)]
pub(super) struct CachedSamples {
    pub(super) grid: Grid,
    pub(super) samples: BTreeMap<i64, f64>,
    /// The newest second that there was a sample for.
    pub(super) answered: Option<i64>,
    /// The earliest second that was asked for with success.
    pub(super) asked_from: Option<i64>,
    /// When the whole window was last asked for.
    pub(super) whole_at: i64,
}

// === impl LiveMatch ===

impl Default for LiveMatch {
    fn default() -> Self {
        Self {
            agrees: false,
            compare_at: i64::MIN,
        }
    }
}

impl LiveMatch {
    /// Compares live minutes with what was told: another unit, another set of pods or another window would show. The
    /// middle one of the ratios of the newest 30 common samples must be within a tenth of one.
    pub(super) fn compare(&mut self, told: &CachedSamples, occasion: &ReadContext<'_>) {
        let common = occasion.live.iter().rev().filter_map(|sample| {
            let at = sample.at.as_second();
            let told = told.samples.get(&at).filter(|told| told.is_finite())?;
            Some(ratio(sample.value, *told))
        });
        let mut ratios: Vec<f64> = common.take(COMPARED_SAMPLES).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2).copied();
        self.agrees = ratios.len() == COMPARED_SAMPLES
            && middle.is_some_and(|middle| (middle - 1.0).abs() <= AGREEMENT);
        self.compare_at = occasion.now.as_second() + COMPARED_EVERY.as_secs();
    }
}

// === impl CachedSamples ===

impl CachedSamples {
    pub(super) const fn nothing(grid: Grid) -> Self {
        Self {
            grid,
            samples: BTreeMap::new(),
            answered: None,
            asked_from: None,
            whole_at: i64::MIN,
        }
    }

    /// Everything that is wanted, on the grid.
    pub(super) fn window(&self, occasion: &ReadContext<'_>) -> Range {
        let Grid { step, span } = self.grid;
        let to = occasion.now.as_second().div_euclid(step) * step;
        let whole = to - span / step * step;
        let since = occasion
            .since
            .map_or(whole, |since| -(-since.as_second()).div_euclid(step) * step);
        Range {
            from: since.clamp(whole, to),
            to,
        }
    }

    /// The newest second that the reader had a sample for.
    fn newest(&self) -> Option<i64> {
        self.answered.filter(|at| self.samples.contains_key(at))
    }

    /// What is to be read: all of the window, or from a little before the newest answer on; nothing while live
    /// minutes carry on from there.
    ///
    /// The newest answer counts, not the last reading: after a gap in the answers the whole gap is asked for again.
    /// A window that lacks a tenth of its points is read whole once an hour.
    pub(super) fn missing(
        &self,
        agreement: LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Option<Range> {
        let window = self.window(occasion);
        let (Some(newest), Some(asked_from)) = (self.newest(), self.asked_from) else {
            return Some(window);
        };
        let step = self.grid.step;
        let tail = self.tail(agreement, occasion);
        let points = (window.to - window.from) / step + 1;
        let there = self.samples.range(window.from..=window.to).count() + tail.len();
        let full = there as i128 * 10 >= i128::from(points) * 9;
        let fresh = window.to.saturating_sub(self.whole_at) < HOLES_BELIEVED.as_secs();
        if asked_from > window.from || !(full || fresh) {
            return Some(window);
        }
        if self.is_carried(agreement, occasion) && window.to < agreement.compare_at {
            return None;
        }
        let overlap = OVERLAP.as_secs().max(2 * step);
        let from = (newest - overlap).div_euclid(step) * step;
        Some(Range {
            from: from.clamp(window.from, window.to),
            to: window.to,
        })
    }

    /// Whether live minutes go on without a gap from the newest answer to the end of the window.
    pub(super) fn is_carried(&self, agreement: LiveMatch, occasion: &ReadContext<'_>) -> bool {
        let to = self.window(occasion).to;
        let answered = agreement.agrees && self.newest().is_some_and(|newest| newest >= to);
        answered || !self.tail(agreement, occasion).is_empty()
    }

    /// The live minutes that carry on from the newest answer to the end of the window: all of them, or none if one is
    /// missing, if they measure something else or if the answer is too old.
    fn tail(&self, agreement: LiveMatch, occasion: &ReadContext<'_>) -> Vec<Sample> {
        let (to, step) = (self.window(occasion).to, self.grid.step);
        let Some(newest) = self.newest().filter(|_| agreement.agrees) else {
            return Vec::new();
        };
        let later = |sample: &&Sample| {
            let at = sample.at.as_second();
            at > newest && at <= to && at % step == 0
        };
        let tail: Vec<Sample> = occasion.live.iter().filter(later).copied().collect();
        let whole = i64::try_from(tail.len()).is_ok_and(|there| there >= (to - newest) / step);
        if whole && to - newest <= ALONE_AT_MOST.as_secs() {
            tail
        } else {
            Vec::new()
        }
    }

    /// The samples of the window, with live minutes where they carry on.
    pub(super) fn samples(
        &self,
        agreement: LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Result<Vec<Sample>, HistoryError> {
        let window = self.window(occasion);
        let told = self.samples.range(window.from..=window.to);
        let told = told.filter_map(|(at, value)| {
            let (at, value) = (Timestamp::from_second(*at).ok()?, *value);
            Some(Sample { at, value })
        });
        let mut samples: Vec<Sample> = told.collect();
        samples.extend(self.tail(agreement, occasion));
        if samples.is_empty() {
            Err(HistoryError::Empty)
        } else {
            Ok(samples)
        }
    }

    /// Takes the samples of a range, a later answer over an earlier one for the same time.
    pub(super) fn absorb(&mut self, range: Range, samples: Vec<Sample>) {
        self.asked_from = Some(
            self.asked_from
                .map_or(range.from, |from| from.min(range.from)),
        );
        for sample in samples {
            let at = sample.at.as_second();
            if (range.from..=range.to).contains(&at) {
                self.samples.insert(at, sample.value);
                self.answered = self.answered.max(Some(at));
            }
        }
    }

    pub(super) fn forget_before(&mut self, from: i64) {
        self.samples = self.samples.split_off(&from);
        self.asked_from = self.asked_from.map(|asked| asked.max(from));
    }
}

/// How many times as large a live value is; two zeros are alike.
fn ratio(live: f64, told: f64) -> f64 {
    if live.to_bits() == told.to_bits() {
        1.0
    } else {
        live / told
    }
}
