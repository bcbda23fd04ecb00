//! The past of each query, kept: the first reading asks for the whole span, every later one only for what is new and
//! a little before it. Works over any [`HistoryReader`]. Never interpolates, sums or cleans: samples are what the
//! reader gave, on the step's grid, and a reading that failed half way keeps what it got and goes on from there.

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

/// The kept past of one request.
#[derive(Debug)]
struct History {
    request: Request,
    samples: BTreeMap<i64, Sample>,
    /// The earliest second that was asked for with success.
    asked_from: Option<i64>,
    /// When the whole window was last asked for.
    whole_at: i64,
}

impl History {
    const fn new(request: Request) -> Self {
        Self {
            request,
            samples: BTreeMap::new(),
            asked_from: None,
            whole_at: i64::MIN,
        }
    }

    /// Everything that the request covers at `now`, on the grid.
    fn window(&self, now: Timestamp) -> Range {
        let step = self.request.step;
        let to = now.as_second().div_euclid(step) * step;
        Range {
            from: to - self.request.span / step * step,
            to,
        }
    }

    /// What is to be read at `now`: all of the window, or from a little before the newest sample on.
    ///
    /// The newest sample counts, not the last reading: after a gap in the answers the whole gap is asked for again.
    /// A window that lacks a tenth of its points is read whole once an hour.
    fn missing(&self, now: Timestamp) -> Range {
        let window = self.window(now);
        let newest = self.samples.last_key_value().map(|(at, _)| *at);
        let (Some(newest), Some(asked_from)) = (newest, self.asked_from) else {
            return window;
        };
        let step = self.request.step;
        let points = (window.to - window.from) / step + 1;
        let full = self.samples.len() as i128 * 10 >= i128::from(points) * 9;
        let fresh = window.to.saturating_sub(self.whole_at) < HOLES_BELIEVED.as_secs();
        if asked_from > window.from || !(full || fresh) {
            return window;
        }
        let overlap = OVERLAP.as_secs().max(2 * step);
        let from = (newest - overlap).div_euclid(step) * step;
        Range {
            from: from.clamp(window.from, window.to),
            to: window.to,
        }
    }

    /// Takes the samples of a range, a later answer over an earlier one for the same time.
    fn absorb(&mut self, range: Range, samples: Vec<Sample>) {
        self.asked_from = Some(
            self.asked_from
                .map_or(range.from, |from| from.min(range.from)),
        );
        for sample in samples {
            let at = sample.at.as_second();
            if (range.from..=range.to).contains(&at) {
                self.samples.insert(at, sample);
            }
        }
    }

    fn forget_before(&mut self, from: i64) {
        self.samples = self.samples.split_off(&from);
        self.asked_from = self.asked_from.map(|asked| asked.max(from));
    }

    async fn refresh<R: HistoryReader>(
        &mut self,
        reader: &R,
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        let window = self.window(now);
        let step = SignedDuration::from_secs(self.request.step);
        self.forget_before(window.from);
        let missing = self.missing(now);
        if missing == window {
            self.whole_at = window.to;
        }
        for piece in missing.pieces(self.request.step) {
            let (from, to) = (second(piece.from)?, second(piece.to)?);
            let samples = match reader.range(&self.request.query, from, to, step).await {
                // No samples in a piece is an answer; none in all of them is told below.
                Err(HistoryError::Empty) => Vec::new(),
                other => other?,
            };
            self.absorb(piece, samples);
        }
        let kept: Vec<Sample> = self
            .samples
            .range(window.from..=window.to)
            .map(|(_, sample)| *sample)
            .collect();
        if kept.is_empty() {
            Err(HistoryError::Empty)
        } else {
            Ok(kept)
        }
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
    /// The samples of the request's span up to `now` (rounded down to the step), oldest first, times distinct.
    ///
    /// Asks the reader for what is not known yet, at most 11,000 points at a time. When it fails, what was read
    /// before is kept for the next call.
    ///
    /// # Errors
    /// The reader's; [`HistoryError::Empty`] when the whole span has no sample.
    pub async fn read<R: HistoryReader>(
        &self,
        reader: &R,
        request: &Request,
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        let history = self.entry(request);
        let mut history = history.lock().await;
        history.refresh(reader, now).await
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
