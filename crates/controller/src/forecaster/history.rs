//! A cache of query results, so that each refresh asks for new samples only.
//!
//! The first read of a query asks for the whole span. A later read asks from shortly before the newest sample, or asks
//! nothing at all while the live minutes of the series match the query:
//!
//! ```text
//! |<------------------ span ------------------>|
//! |  cached samples                  | overlap | live minutes
//! from                               ^ the next query starts here   now
//! ```
//!
//! Results are shared by all series that ask the same query; the live minutes of a series are its own. Samples are the
//! reader's, the sum of them over the members of a fleet (`sum`), or live minutes in their place (`cache`); nothing
//! is interpolated or cleaned here. A read that fails half way keeps what it got, and the next one goes on from there.

mod cache;
mod samples;
mod sum;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foretide_models::Sample;
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

pub use self::cache::LiveMatch;
use self::{cache::CachedSamples, sum::MemberSum};
use foretide_api::ports::{HistoryError, HistoryQuery, HistoryReader};

/// Maximum number of points that one range query may return: the limit of Prometheus.
const POINTS_PER_QUERY: i64 = 11_000;
/// Maximum number of points that are kept of one query: 70 days of minutes.
const POINTS_MAX: i64 = 100_800;
/// Delay after which live minutes are compared again when the query for the comparison failed.
const COMPARE_RETRY: SignedDuration = SignedDuration::from_mins(10);
/// Number of members of one sum that are queried at once.
const CONCURRENT_PARTS: usize = 4;

/// The history that one series reads: the samples of one query, or the sum of one query per member of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    grid: SampleGrid,
    pub parts: Vec<QueryPart>,
}

/// The servers that a range query is sent to, by name; absent for that of the hub.
pub type Servers = BTreeSet<Option<Arc<str>>>;

/// One query of a [`RangeQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryPart {
    /// The member whose samples it returns; absent for a query that covers all of them.
    pub member: Option<Arc<str>>,
    /// The query.
    pub query: HistoryQuery,
}

/// Key of cached results: a query and the grid that it is read on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    query: HistoryQuery,
    grid: SampleGrid,
}

/// The multiples of `step` within the last `span`, both in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleGrid {
    step: i64,
    span: i64,
}

/// Reasons why a range cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
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

impl RangeQuery {
    /// The sum of `parts` over the last `span` in steps of `step`.
    ///
    /// # Errors
    /// [`InvalidRange`] unless the step is a positive whole number of seconds and the span holds 1 to 100,800 steps.
    pub fn new(
        parts: Vec<QueryPart>,
        step: SignedDuration,
        span: SignedDuration,
    ) -> Result<Self, InvalidRange> {
        if step.as_secs() < 1 || step.subsec_nanos() != 0 {
            return Err(InvalidRange::Step(step));
        }
        if !(1..=POINTS_MAX).contains(&(span.as_secs() / step.as_secs())) {
            return Err(InvalidRange::Span { span, step });
        }
        let grid = SampleGrid {
            step: step.as_secs(),
            span: span.as_secs(),
        };
        Ok(Self { grid, parts })
    }

    /// The same range of other queries.
    pub fn with_parts(&self, parts: Vec<QueryPart>) -> Self {
        Self {
            parts,
            grid: self.grid,
        }
    }

    /// The distance between two samples.
    pub fn step(&self) -> SignedDuration {
        SignedDuration::from_secs(self.grid.step)
    }

    /// The servers that its parts are sent to, by name; absent for that of the hub.
    pub fn servers(&self) -> Servers {
        (self.parts.iter())
            .map(|part| part.query.endpoint.clone())
            .collect()
    }

    /// The namespace of the object that it is asked for.
    pub fn namespace(&self) -> Arc<str> {
        match self.parts.first() {
            Some(part) => Arc::clone(&part.query.namespace),
            None => Arc::default(),
        }
    }

    /// The cache entries that it reads.
    pub fn cache_keys(&self) -> impl Iterator<Item = CacheKey> {
        self.parts.iter().map(|part| self.cache_key(part))
    }

    fn cache_key(&self, part: &QueryPart) -> CacheKey {
        CacheKey {
            query: part.query.clone(),
            grid: self.grid,
        }
    }

    /// Adds the headers to the error of a query without samples: the series may be those of another tenant.
    fn name_headers<R: HistoryReader>(&self, error: HistoryError, reader: &R) -> HistoryError {
        match error {
            HistoryError::Empty => self.empty_for(None, reader),
            HistoryError::Member { member, source } if matches!(*source, HistoryError::Empty) => {
                let source = Box::new(self.empty_for(Some(&member), reader));
                HistoryError::Member { member, source }
            }
            other => other,
        }
    }

    /// The error of the query of a member, or of the only one, that returns no samples.
    fn empty_for<R: HistoryReader>(&self, member: Option<&Arc<str>>, reader: &R) -> HistoryError {
        let mut parts = self.parts.iter();
        match parts
            .find(|part| part.member.as_ref() == member)
            .and_then(|part| reader.headers_in_words(&part.query))
        {
            Some(headers) => HistoryError::EmptyTenant { headers },
            None => HistoryError::Empty,
        }
    }

    /// The only cache entry, if there is nothing to add up.
    fn single(&self) -> Option<CacheKey> {
        match &self.parts[..] {
            [part] if part.member.is_none() => Some(self.cache_key(part)),
            _ => None,
        }
    }
}

/// The text of a query; with several parts, each behind the name of its member.
pub fn query_text(parts: &[QueryPart]) -> String {
    let parts = parts.iter().map(|part| match &part.member {
        Some(member) => format!("{member}: {}", part.query.text),
        None => part.query.text.to_string(),
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// A range of time in seconds since 1970; both ends are on the grid and included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    from: i64,
    to: i64,
}

impl TimeRange {
    /// Splits it into pieces that one query may return, oldest first.
    fn pieces(self, step: i64) -> impl Iterator<Item = Self> {
        // A range of n steps has n + 1 points.
        let width = step * (POINTS_PER_QUERY - 1);
        std::iter::successors(Some(self.from), move |from| Some(from + width + step))
            .take_while(move |from| *from <= self.to)
            .map(move |from| Self {
                from,
                to: self.to.min(from + width),
            })
    }
}

/// One read of a query, and its circumstances.
#[derive(Debug, Clone, Copy)]
pub struct ReadContext<'a> {
    /// The query whose samples are read.
    pub query: &'a RangeQuery,
    /// The match of the live minutes with the query, which a read that queries compares anew.
    pub live_match: LiveMatch,
    /// The time of the read.
    pub now: Timestamp,
    /// Samples before this time are not needed; absent means the whole span.
    pub since: Option<Timestamp>,
    /// Live minutes, oldest first: each is the mean of the minute that ends there.
    pub live: &'a [Sample],
    /// The members in which the hub sees no pods: where they have no sample, their demand is zero.
    pub idle: &'a BTreeSet<Arc<str>>,
}

fn second(at: i64) -> Result<Timestamp, HistoryError> {
    Timestamp::from_second(at).map_err(|error| HistoryError::Malformed {
        message: error.to_string(),
    })
}

/// The cached samples of one query.
#[derive(Debug)]
struct CachedQuery {
    query: HistoryQuery,
    samples: Mutex<CachedSamples>,
    /// Held while the reader is queried or samples are dropped, so that two reads of one query follow each other.
    reading: tokio::sync::Mutex<()>,
}

// === impl CachedQuery ===

impl CachedQuery {
    fn new(key: CacheKey) -> Self {
        Self {
            samples: Mutex::new(CachedSamples::empty(key.grid)),
            query: key.query,
            reading: tokio::sync::Mutex::default(),
        }
    }

    async fn fetch<R: HistoryReader>(
        &self,
        reader: &R,
        missing: TimeRange,
        window: TimeRange,
    ) -> Result<(), HistoryError> {
        let SampleGrid { step, .. } = self.samples.lock().grid;
        // Before the queries, so that one that fails is not repeated in full with every refresh.
        if missing == window {
            self.samples.lock().full_read_at = window.to;
        }
        for piece in missing.pieces(step) {
            let (from, to) = (second(piece.from)?, second(piece.to)?);
            let step = SignedDuration::from_secs(step);
            let samples = match reader.range(&self.query, from, to, step).await {
                // One piece may be empty; the caller reports an empty window.
                Err(HistoryError::Empty) => Vec::new(),
                other => other?,
            };
            self.samples.lock().merge(piece, samples);
        }
        Ok(())
    }
}

/// The samples of all queries in use.
///
/// Reads of different queries run in parallel; two reads of one query follow each other, and the second finds what the
/// first one fetched.
#[derive(Debug, Default)]
pub struct HistoryCache {
    entries: Mutex<BTreeMap<CacheKey, Arc<CachedQuery>>>,
}

// === impl HistoryCache ===

impl HistoryCache {
    /// The samples up to the time of the read (rounded down to the step), oldest first and at distinct times, if no
    /// query is needed for them. Never waits.
    pub fn cached_samples(&self, context: &ReadContext<'_>) -> Option<Vec<Sample>> {
        self.with_samples(context, |cached| match cached.missing(context) {
            Some(_) => None,
            None => cached.samples(context).ok(),
        })
    }

    /// Reads the samples like [`cached_samples`](Self::cached_samples), but queries the reader for what is missing, at
    /// most 11,000 points at a time. After a failure the samples that were read before it stay cached.
    ///
    /// # Errors
    /// Those of the reader; [`HistoryError::Empty`] when the whole span has no sample; [`HistoryError::Member`] when
    /// the samples of a member cannot be read, or there are none, or they have ended.
    pub async fn read<R: HistoryReader>(
        &self,
        reader: &R,
        context: &mut ReadContext<'_>,
    ) -> Result<Vec<Sample>, HistoryError> {
        let queried = self.query(reader, context).await;
        let before = *context;
        self.with_samples(&before, |cached| {
            match queried {
                Ok(true) => context.live_match.compare(cached, &before),
                Ok(false) => {}
                // While live minutes cover the gap, a failed query is no error: compare again later.
                Err(_) if cached.live_reaches_end(context) => {
                    let retry_at = cached.window(context).to + COMPARE_RETRY.as_secs();
                    context.live_match.compare_at = retry_at;
                }
                Err(error) => return Err(error),
            }
            cached.samples(context)
        })
        .map_err(|error| before.query.name_headers(error, reader))
    }

    /// Queries what is missing of a query; returns true if anything was missing.
    ///
    /// # Errors
    /// As those of [`read`](Self::read); what was read before the error stays cached.
    pub async fn query<R: HistoryReader>(
        &self,
        reader: &R,
        context: &ReadContext<'_>,
    ) -> Result<bool, HistoryError> {
        match context.query.single() {
            Some(key) => self.fetch(reader, key, context).await,
            None => self.fetch_parts(reader, context).await,
        }
    }

    /// The cached samples of the span, without live minutes, oldest first. Never waits.
    pub fn queried(&self, context: &ReadContext<'_>) -> Vec<Sample> {
        self.with_samples(context, |cached| cached.queried(context))
    }

    /// Queries what is missing of every part, unless live minutes cover the sum; returns true if anything was missing.
    async fn fetch_parts<R: HistoryReader>(
        &self,
        reader: &R,
        context: &ReadContext<'_>,
    ) -> Result<bool, HistoryError> {
        if self.with_samples(context, |cached| cached.missing(context).is_none()) {
            return Ok(false);
        }
        // Live minutes measure the sum, so they say nothing about one part.
        let part_context = ReadContext {
            live: &[],
            live_match: LiveMatch::default(),
            ..*context
        };
        let mut fetches = Vec::new();
        for part in &context.query.parts {
            let (key, part_context) = (context.query.cache_key(part), &part_context);
            fetches.push(async move {
                (self.fetch(reader, key, part_context).await)
                    .map_err(|error| sum::name_member(part, error))
            });
        }
        // In the order of the members, so that the error of the same one is reported each time. All are awaited, also
        // after an error: what the others read stays cached.
        let results: Vec<_> = (stream::iter(fetches).buffered(CONCURRENT_PARTS))
            .collect()
            .await;
        results.into_iter().collect::<Result<Vec<bool>, _>>()?;
        self.member_sum(context).check_complete()?;
        Ok(true)
    }

    /// Queries what is missing of one cache entry; returns true if anything was missing.
    async fn fetch<R: HistoryReader>(
        &self,
        reader: &R,
        key: CacheKey,
        context: &ReadContext<'_>,
    ) -> Result<bool, HistoryError> {
        let entry = self.entry(key);
        let _reading = entry.reading.lock().await;
        let window = entry.samples.lock().window(context);
        // Only under the lock: another series may be reading a longer window of the same query.
        entry.samples.lock().drop_before(window.from);
        loop {
            // Before the samples are used: the credentials may have changed since the last read.
            let version = reader.version(&entry.query);
            entry.samples.lock().keep_version(version);
            let missing = entry.samples.lock().missing(context);
            match missing {
                Some(missing) => entry.fetch(reader, missing, window).await?,
                None => return Ok(false),
            }
            // Otherwise the tenant changed during the query, and the samples may be those of two.
            if reader.version(&entry.query) == version {
                return Ok(true);
            }
        }
    }

    /// Passes the samples of a query, or of its sum, to `use_samples`.
    fn with_samples<T>(
        &self,
        context: &ReadContext<'_>,
        use_samples: impl FnOnce(&CachedSamples) -> T,
    ) -> T {
        match context.query.single() {
            Some(key) => use_samples(&self.entry(key).samples.lock()),
            None => use_samples(&self.member_sum(context).cached()),
        }
    }

    fn member_sum(&self, context: &ReadContext<'_>) -> MemberSum {
        let mut sum = MemberSum::new(context);
        for part in &context.query.parts {
            let entry = self.entry(context.query.cache_key(part));
            sum.add(part, &entry.samples.lock(), context.idle);
        }
        sum
    }

    /// Drops the samples of a query before a time; while another series reads the query, they stay until a later read.
    pub fn drop_before(&self, query: &RangeQuery, at: Timestamp) {
        for key in query.cache_keys() {
            let entry = self.entry(key);
            if let Ok(_reading) = entry.reading.try_lock() {
                entry.samples.lock().drop_before(at.as_second());
            }
        }
    }

    /// Bytes that the samples of a query take.
    pub fn bytes(&self, query: &RangeQuery) -> usize {
        (query.cache_keys())
            .map(|key| self.entry(key).samples.lock().samples.bytes())
            .sum()
    }

    /// Drops every entry that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(&CacheKey) -> bool) {
        self.entries.lock().retain(|key, _| keep(key));
    }

    /// Number of queries that are cached.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    fn entry(&self, key: CacheKey) -> Arc<CachedQuery> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone());
        Arc::clone(entry.or_insert_with(|| Arc::new(CachedQuery::new(key))))
    }
}

#[cfg(test)]
pub mod tests;
