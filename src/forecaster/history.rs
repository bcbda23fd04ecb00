//! The past of each query, kept: the first reading asks for the whole span, every later one only for what is new and
//! a little before it, and nothing at all while live readings tell the same. What readers told is shared by all series
//! that ask the same; the live minutes of a series are its own. Works over any [`HistoryReader`]. Never interpolates or
//! cleans: samples are what the reader gave, the sum of it over the members of a fleet, or a live minute that stands in
//! for one, on the step's grid, and a reading that failed half way keeps what it got and goes on from there.

mod cache;
mod sum;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretide_models::Sample;
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};

pub use self::cache::LiveMatch;
use self::{cache::CachedSamples, sum::Sum};
use crate::ports::{HistoryError, HistoryQuery, HistoryReader};

/// The most points that one range query may return (Prometheus' own limit).
const POINTS_PER_QUERY: i64 = 11_000;
/// The most points that are kept of one query: 70 days of minutes.
const POINTS_MAX: i64 = 100_800;
/// How soon a comparison is tried again that the reader did not answer.
const COMPARED_AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// How many parts of one sum are asked for at once.
const PARTS_AT_ONCE: usize = 4;

/// A past that can be read: that of one query, or the sum of those of the members of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    grid: Grid,
    parts: Vec<Part>,
}

/// One term of a sum, or the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The member whose part it is; absent where it is the whole.
    pub member: Option<Arc<str>>,
    /// What is asked for.
    pub query: HistoryQuery,
}

/// What is kept: a query, read on a grid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    query: HistoryQuery,
    grid: Grid,
}

/// Every multiple of `step`, `span` back, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Grid {
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

impl Past {
    /// The sum of `parts`, `span` back in steps of `step`.
    ///
    /// # Errors
    /// [`InvalidRequest`]: steps are positive whole seconds, and between 1 and 100,800 of them make the span.
    pub fn new(
        parts: Vec<Part>,
        step: SignedDuration,
        span: SignedDuration,
    ) -> Result<Self, InvalidRequest> {
        if step.as_secs() < 1 || step.subsec_nanos() != 0 {
            return Err(InvalidRequest::Step(step));
        }
        if !(1..=POINTS_MAX).contains(&(span.as_secs() / step.as_secs())) {
            return Err(InvalidRequest::Span { span, step });
        }
        let (step, span) = (step.as_secs(), span.as_secs());
        let grid = Grid { step, span };
        Ok(Self { grid, parts })
    }

    /// Everything that is kept for it.
    pub fn requests(&self) -> impl Iterator<Item = Request> {
        self.parts.iter().map(|part| self.request(part))
    }

    fn request(&self, part: &Part) -> Request {
        let (query, grid) = (part.query.clone(), self.grid);
        Request { query, grid }
    }

    /// What is read, if nothing is to be added up.
    fn whole(&self) -> Option<Request> {
        match &self.parts[..] {
            [part] if part.member.is_none() => Some(self.request(part)),
            _ => None,
        }
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
pub struct ReadContext<'a> {
    /// When it is.
    pub now: Timestamp,
    /// Before when nothing is wanted, if not the whole span.
    pub since: Option<Timestamp>,
    /// Live minutes, oldest first: each the mean of the minute that ends there.
    pub live: &'a [Sample],
    /// The members in which nothing runs now, as the hub sees it: where they tell nothing, there was nothing.
    pub idle: &'a BTreeSet<Arc<str>>,
}

fn second(at: i64) -> Result<Timestamp, HistoryError> {
    Timestamp::from_second(at).map_err(|error| HistoryError::Malformed {
        message: error.to_string(),
    })
}

/// The kept past of one request.
#[derive(Debug)]
struct History {
    query: HistoryQuery,
    told: Mutex<CachedSamples>,
    /// Held by whoever asks the reader, or forgets.
    asking: tokio::sync::Mutex<()>,
}

// === impl History ===

impl History {
    fn new(request: Request) -> Self {
        Self {
            told: Mutex::new(CachedSamples::nothing(request.grid)),
            query: request.query,
            asking: tokio::sync::Mutex::default(),
        }
    }

    async fn ask<R: HistoryReader>(
        &self,
        reader: &R,
        missing: Range,
        window: Range,
    ) -> Result<(), HistoryError> {
        let Grid { step, .. } = self.told().grid;
        if missing == window {
            self.told().whole_at = window.to;
        }
        for piece in missing.pieces(step) {
            let (from, to) = (second(piece.from)?, second(piece.to)?);
            let step = SignedDuration::from_secs(step);
            let samples = match reader.range(&self.query, from, to, step).await {
                // No samples in a piece is an answer; none in all of them is told by the caller.
                Err(HistoryError::Empty) => Vec::new(),
                other => other?,
            };
            self.told().absorb(piece, samples);
        }
        Ok(())
    }

    /// No code that holds this lock can leave what was told half-changed, so a poisoned one is as good.
    fn told(&self) -> MutexGuard<'_, CachedSamples> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The histories of all queries in use. Readings of different requests run side by side; two of the same one follow
/// each other, and the second finds what the first brought.
#[derive(Debug, Default)]
pub struct HistoryCache {
    histories: Mutex<BTreeMap<Request, Arc<History>>>,
}

// === impl HistoryCache ===

impl HistoryCache {
    /// The samples of a past up to the occasion (rounded down to the step), oldest first, times distinct, if they are
    /// known without asking anybody. Never waits. What a sum is where a member tells nothing: `sum`.
    #[must_use]
    pub fn known(
        &self,
        past: &Past,
        agreement: LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Option<Vec<Sample>> {
        self.over(past, occasion, |told| {
            let missing = told.missing(agreement, occasion);
            let samples = || told.samples(agreement, occasion).ok();
            missing.is_none().then(samples).flatten()
        })
    }

    /// As [`known`](Self::known), but asks the reader for what is not known yet, at most 11,000 points at a time. When
    /// it fails, what was read before is kept for the next call.
    ///
    /// # Errors
    /// The reader's; [`HistoryError::Empty`] when the whole span has no sample; [`HistoryError::Member`] when the part of
    /// a member cannot be read, has no sample, or has none any more.
    pub async fn read<R: HistoryReader>(
        &self,
        reader: &R,
        past: &Past,
        agreement: &mut LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Result<Vec<Sample>, HistoryError> {
        let asked = match past.whole() {
            Some(request) => self.ask(reader, request, *agreement, occasion).await,
            None => self.ask_all(reader, past, *agreement, occasion).await,
        };
        self.over(past, occasion, |told| {
            match asked {
                Ok(true) => agreement.compare(told, occasion),
                Ok(false) => {}
                // A comparison that was not answered is made later, while live minutes carry the history.
                Err(_) if told.is_carried(*agreement, occasion) => {
                    let again = told.window(occasion).to + COMPARED_AGAIN.as_secs();
                    agreement.compare_at = again;
                }
                Err(error) => return Err(error),
            }
            told.samples(*agreement, occasion)
        })
    }

    /// Asks for what is missing of every part, unless live minutes carry the sum; whether anything was.
    async fn ask_all<R: HistoryReader>(
        &self,
        reader: &R,
        past: &Past,
        agreement: LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Result<bool, HistoryError> {
        if self.over(past, occasion, |told| {
            told.missing(agreement, occasion).is_none()
        }) {
            return Ok(false);
        }
        // Live minutes are those of the sum: each part is read as if there were none.
        let apart = ReadContext {
            live: &[],
            ..*occasion
        };
        let mut asking = Vec::new();
        for part in &past.parts {
            let apart = &apart;
            asking.push(async move {
                let asked = self.ask(reader, past.request(part), LiveMatch::default(), apart);
                asked.await.map_err(|error| sum::of_member(part, error))
            });
        }
        let asked: Vec<_> = stream::iter(asking).buffered(PARTS_AT_ONCE).collect().await;
        asked.into_iter().collect::<Result<Vec<bool>, _>>()?;
        self.sum(past, occasion).complete()?;
        Ok(true)
    }

    /// Asks for what is missing of one request; whether anything was.
    async fn ask<R: HistoryReader>(
        &self,
        reader: &R,
        request: Request,
        agreement: LiveMatch,
        occasion: &ReadContext<'_>,
    ) -> Result<bool, HistoryError> {
        let history = self.entry(request);
        let _asking = history.asking.lock().await;
        let window = history.told().window(occasion);
        // Only here: what is known without asking must not take away what somebody else is asking for.
        history.told().forget_before(window.from);
        let missing = history.told().missing(agreement, occasion);
        match missing {
            Some(missing) => history.ask(reader, missing, window).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Looks at what was told of a past, as of one query.
    fn over<T>(
        &self,
        past: &Past,
        occasion: &ReadContext<'_>,
        look: impl FnOnce(&CachedSamples) -> T,
    ) -> T {
        match past.whole() {
            Some(request) => look(&self.entry(request).told()),
            None => look(&self.sum(past, occasion).told()),
        }
    }

    fn sum(&self, past: &Past, occasion: &ReadContext<'_>) -> Sum {
        let mut sum = Sum::of(past.grid, occasion);
        for part in &past.parts {
            let history = self.entry(past.request(part));
            sum.add(part, &history.told(), occasion.idle);
        }
        sum
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

    fn entry(&self, request: Request) -> Arc<History> {
        let mut histories = self.locked();
        if let Some(history) = histories.get(&request) {
            return Arc::clone(history);
        }
        let history = Arc::new(History::new(request.clone()));
        histories.insert(request, Arc::clone(&history));
        history
    }

    /// No code that holds this lock can leave the map half-changed, so a poisoned one is as good.
    fn locked(&self) -> MutexGuard<'_, BTreeMap<Request, Arc<History>>> {
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
