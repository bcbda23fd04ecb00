//! The past of each query, kept: the first reading asks for the whole span, every later one only for what is new and
//! a little before it, and nothing at all while live readings tell the same. Works over any [`HistoryReader`]. Never
//! interpolates, sums or cleans: samples are what the reader gave, or a live minute that stands in for one, on the
//! step's grid, and a reading that failed half way keeps what it got and goes on from there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use crate::ports::{HistoryError, HistoryReader};

/// The most points that one range query may return (Prometheus' own limit).
const POINTS_PER_QUERY: i64 = 11_000;
/// The most points that are kept of one query: 70 days of minutes.
const POINTS_MAX: i64 = 100_800;
/// How far behind the newest sample a reading starts, for samples that arrive late.
const OVERLAP: SignedDuration = SignedDuration::from_mins(5);
/// How long a history with many holes is believed before all of it is asked for again: the reader may have been
/// filled in behind our back.
const HOLES_BELIEVED: SignedDuration = SignedDuration::from_hours(1);
/// How long live minutes stand in for a query before the next one compares the two.
const COMPARED_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How soon a comparison is tried again that the reader did not answer.
const COMPARED_AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// How long live minutes alone carry a history whose reader does not answer, or has no more samples.
const ALONE_AT_MOST: SignedDuration = SignedDuration::from_hours(2);
/// How many common samples live minutes and history are compared by.
const COMPARED_SAMPLES: usize = 30;
/// How far the middle one of their ratios may be from one.
const AGREEMENT: f64 = 0.10;

/// What is kept: a query, read at every multiple of `step`, `span` back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    query: Arc<str>,
    step: i64,
    span: i64,
}

/// Why a request makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The step is not a whole number of seconds above zero.
    #[error("history step {0:#} is not a positive whole number of seconds")]
    Step(SignedDuration),
    /// The span is shorter than a step, or holds too many of them.
    #[error("history of {span:#} in steps of {step:#}: expected between 1 and {POINTS_MAX} steps")]
    Span {
        /// The span asked for.
        span: SignedDuration,
        /// The step asked for.
        step: SignedDuration,
    },
}

impl Request {
    /// A request for `span` of history in steps of `step`.
    ///
    /// # Errors
    /// [`InvalidRequest`]: steps are positive whole seconds, and between 1 and 100,800 of them make the span.
    pub fn new(
        query: &str,
        step: SignedDuration,
        span: SignedDuration,
    ) -> Result<Self, InvalidRequest> {
        if step.as_secs() < 1 || step.subsec_nanos() != 0 {
            return Err(InvalidRequest::Step(step));
        }
        if !(1..=POINTS_MAX).contains(&(span.as_secs() / step.as_secs())) {
            return Err(InvalidRequest::Span { span, step });
        }
        Ok(Self {
            query: query.into(),
            step: step.as_secs(),
            span: span.as_secs(),
        })
    }
}

/// One range to read, in seconds since 1970, both ends on the grid and included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    from: i64,
    to: i64,
}

impl Range {
    /// In pieces that one query may return, oldest first.
    fn pieces(self, step: i64) -> impl Iterator<Item = Self> {
        let width = step * (POINTS_PER_QUERY - 1);
        let starts = std::iter::successors(Some(self.from), move |from| Some(from + width + step));
        starts
            .take_while(move |from| *from <= self.to)
            .map(move |from| Self {
                from,
                to: self.to.min(from + width),
            })
    }
}

/// What one reading is about.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// When it is.
    pub now: Timestamp,
    /// Before when nothing is wanted, if not the whole span.
    pub since: Option<Timestamp>,
    /// Live minutes, oldest first: each the mean of the minute that ends there.
    pub live: &'a [Sample],
}

/// The kept past of one request.
#[derive(Debug)]
struct History {
    request: Request,
    /// Values by second: what the reader said up to `answered`, live minutes beyond.
    samples: BTreeMap<i64, f64>,
    answered: Option<i64>,
    /// The earliest second that was asked for with success.
    asked_from: Option<i64>,
    /// When the whole window was last asked for.
    whole_at: i64,
    /// Whether live minutes measure what the query does, as far as that is known.
    agrees: bool,
    /// When the two are compared next.
    compare_at: i64,
}

impl History {
    const fn new(request: Request) -> Self {
        Self {
            request,
            samples: BTreeMap::new(),
            answered: None,
            asked_from: None,
            whole_at: i64::MIN,
            agrees: false,
            compare_at: i64::MIN,
        }
    }

    /// Everything that is wanted, on the grid.
    fn window(&self, occasion: &Occasion<'_>) -> Range {
        let step = self.request.step;
        let to = occasion.now.as_second().div_euclid(step) * step;
        let whole = to - self.request.span / step * step;
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
    fn missing(&self, window: Range) -> Option<Range> {
        let (Some(newest), Some(asked_from)) = (self.newest(), self.asked_from) else {
            return Some(window);
        };
        let step = self.request.step;
        let points = (window.to - window.from) / step + 1;
        let full = self.samples.len() as i128 * 10 >= i128::from(points) * 9;
        let fresh = window.to.saturating_sub(self.whole_at) < HOLES_BELIEVED.as_secs();
        if asked_from > window.from || !(full || fresh) {
            return Some(window);
        }
        if self.is_carried(newest, window) && window.to < self.compare_at {
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
    fn is_carried(&self, newest: i64, window: Range) -> bool {
        let step = self.request.step;
        let wanted = (window.to - newest) / step;
        let there = self
            .samples
            .range(newest + 1..)
            .take_while(|(at, _)| **at <= window.to);
        self.agrees
            && window.to - newest <= ALONE_AT_MOST.as_secs()
            && i64::try_from(there.count()).is_ok_and(|there| there >= wanted)
    }

    /// Takes the samples of a range, a later answer over an earlier one for the same time, and over every live minute.
    fn absorb(&mut self, range: Range, samples: Vec<Sample>) {
        self.asked_from = Some(
            self.asked_from
                .map_or(range.from, |from| from.min(range.from)),
        );
        let answered = self.answered.unwrap_or(i64::MIN);
        self.samples
            .retain(|at, _| *at <= answered || !(range.from..=range.to).contains(at));
        for sample in samples {
            let at = sample.at.as_second();
            if (range.from..=range.to).contains(&at) {
                self.samples.insert(at, sample.value);
                self.answered = self.answered.max(Some(at));
            }
        }
    }

    /// Takes live minutes where the reader was not asked yet, if they measure the same.
    fn absorb_live(&mut self, live: &[Sample], window: Range) {
        let Some(newest) = self.newest().filter(|_| self.agrees) else {
            return;
        };
        for sample in live {
            let at = sample.at.as_second();
            let wanted = at > newest && at <= window.to && at % self.request.step == 0;
            if wanted {
                self.samples.insert(at, sample.value);
            }
        }
    }

    /// Says whether live minutes measure what the reader does: another unit, another set of pods or another window
    /// would show. The middle one of the ratios of the newest 30 common samples must be within a tenth of one.
    fn compare(&mut self, live: &[Sample], now: Timestamp) {
        let common = live.iter().rev().filter_map(|sample| {
            let at = sample.at.as_second();
            let told = self.samples.get(&at).filter(|told| told.is_finite())?;
            (Some(at) <= self.answered).then(|| ratio(sample.value, *told))
        });
        let mut ratios: Vec<f64> = common.take(COMPARED_SAMPLES).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2).copied();
        self.agrees = ratios.len() == COMPARED_SAMPLES
            && middle.is_some_and(|middle| (middle - 1.0).abs() <= AGREEMENT);
        self.compare_at = now.as_second() + COMPARED_EVERY.as_secs();
    }

    fn forget_before(&mut self, from: i64) {
        self.samples = self.samples.split_off(&from);
        self.asked_from = self.asked_from.map(|asked| asked.max(from));
    }

    async fn refresh<R: HistoryReader>(
        &mut self,
        reader: &R,
        occasion: &Occasion<'_>,
    ) -> Result<Vec<Sample>, HistoryError> {
        let window = self.window(occasion);
        self.forget_before(window.from);
        self.absorb_live(occasion.live, window);
        if let Some(missing) = self.missing(window) {
            match self.ask(reader, missing, window).await {
                Ok(()) => self.compare(occasion.live, occasion.now),
                Err(error) => self.put_off(error, window)?,
            }
        }
        let kept: Vec<Sample> = self
            .samples
            .range(window.from..=window.to)
            .filter_map(|(at, value)| {
                let (at, value) = (Timestamp::from_second(*at).ok()?, *value);
                Some(Sample { at, value })
            })
            .collect();
        if kept.is_empty() {
            Err(HistoryError::Empty)
        } else {
            Ok(kept)
        }
    }

    async fn ask<R: HistoryReader>(
        &mut self,
        reader: &R,
        missing: Range,
        window: Range,
    ) -> Result<(), HistoryError> {
        let step = SignedDuration::from_secs(self.request.step);
        if missing == window {
            self.whole_at = window.to;
        }
        for piece in missing.pieces(self.request.step) {
            let (from, to) = (second(piece.from)?, second(piece.to)?);
            let samples = match reader.range(&self.request.query, from, to, step).await {
                // No samples in a piece is an answer; none in all of them is told by the caller.
                Err(HistoryError::Empty) => Vec::new(),
                other => other?,
            };
            self.absorb(piece, samples);
        }
        Ok(())
    }

    /// A comparison that was not answered is made later, while live minutes carry the history.
    fn put_off(&mut self, error: HistoryError, window: Range) -> Result<(), HistoryError> {
        let carried = self
            .newest()
            .is_some_and(|newest| self.is_carried(newest, window));
        if !carried {
            return Err(error);
        }
        self.compare_at = window.to + COMPARED_AGAIN.as_secs();
        Ok(())
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

fn second(at: i64) -> Result<Timestamp, HistoryError> {
    Timestamp::from_second(at).map_err(|error| HistoryError::Malformed {
        message: error.to_string(),
    })
}

/// The histories of all queries in use. Readings of different requests run side by side; two of the same one follow
/// each other, and the second finds what the first brought.
#[derive(Debug, Default)]
pub struct HistoryCache {
    histories: Mutex<BTreeMap<Request, Arc<tokio::sync::Mutex<History>>>>,
}

impl HistoryCache {
    /// The samples of the request's span up to the occasion (rounded down to the step), oldest first, times distinct.
    ///
    /// Asks the reader for what is not known yet, at most 11,000 points at a time, unless live minutes tell it. When it
    /// fails, what was read before is kept for the next call.
    ///
    /// # Errors
    /// The reader's; [`HistoryError::Empty`] when the whole span has no sample.
    pub async fn read<R: HistoryReader>(
        &self,
        reader: &R,
        request: &Request,
        occasion: &Occasion<'_>,
    ) -> Result<Vec<Sample>, HistoryError> {
        let history = self.entry(request);
        let mut history = history.lock().await;
        history.refresh(reader, occasion).await
    }

    /// Drops every history that is not among these: objects go, and queries change.
    pub fn retain(&self, wanted: impl Fn(&Request) -> bool) {
        self.locked().retain(|request, _| wanted(request));
    }

    /// How many histories are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locked().len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locked().is_empty()
    }

    fn entry(&self, request: &Request) -> Arc<tokio::sync::Mutex<History>> {
        let new = || Arc::new(tokio::sync::Mutex::new(History::new(request.clone())));
        Arc::clone(self.locked().entry(request.clone()).or_insert_with(new))
    }

    /// No code that holds this lock can leave the map half-changed, so a poisoned one is as good.
    fn locked(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<Request, Arc<tokio::sync::Mutex<History>>>> {
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
