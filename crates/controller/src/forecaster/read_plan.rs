//! The reading of one series: the reads that its next forecast needs, and the samples that follow from what they return.
//!
//! A plan reads nothing itself. `workers` does the reads that it asks for, and the samples go to the `fit`, whose
//! [`Learned`] decides how much of the history the next plan needs.

use std::{collections::BTreeSet, sync::Arc};

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::{Algorithm, Forecaster, Sample};
use jiff::{SignedDuration, Timestamp};

use super::demand_history::LiveMinutes;
use super::history::{LiveMatch, QueryPart, RangeQuery, ReadContext, Servers};
use super::minutes::{MINUTE, SeriesSamples, minutes_are_usable};
use super::request::RefreshRequest;
use super::unit_change::UnitChange;
use foretide_api::ports::{HistoryQuery, Resolution};
use foretide_base::error::chain;

/// Length of the history that an incremental forecaster gets once it has learned from all of it: a day to compare with,
/// and two hours that are compared.
const INCREMENTAL_HISTORY: SignedDuration = SignedDuration::from_hours(26);
/// Time for which a query of minutes is not repeated that failed or was of no use.
const RETRY: SignedDuration = SignedDuration::from_hours(1);

/// The queries of one series, and the facts about their samples that earlier reads found.
#[derive(Debug)]
pub struct ReadPlan {
    /// The query of the values.
    pub query: RangeQuery,
    /// The namespace of the object that the series belongs to.
    pub namespace: Arc<str>,
    /// The servers that the history is read from.
    pub servers: Servers,
    pub live_match: LiveMatch,
    /// True if the history is another tenant's than the one that was learned.
    pub is_other_tenant: bool,
    /// The time of the reads.
    pub now: Timestamp,
    /// The live minutes at that time, until the samples are made with them.
    live: LiveMinutes,
    idle: BTreeSet<Arc<str>>,
    raw: RawValues,
    /// The versions of the readers of the queries, when they were last read.
    versions: Vec<u64>,
    learned: Learned,
}

/// The part of a history that a forecaster has learned and does not need again.
#[derive(Debug, Clone, Copy)]
pub struct Learned {
    /// True if the forecaster keeps what it has learned from one refresh to the next.
    pub is_incremental: bool,
    /// The time at which the forecaster had last learned the whole history, if it is incremental.
    pub fitted_at: Option<Timestamp>,
    /// True if the forecaster could learn from queried raw values when it began.
    pub from_raw: bool,
    /// The change of unit; samples before it are not used.
    pub unit_change: Option<UnitChange>,
}

/// Origin of the raw values of one series.
///
/// Where the values are means, they are used for the minutes without a raw value. The query of minutes runs whenever
/// that of the values does. Where it has too few values, as with scrapes that are more than half a minute apart, or
/// fails, it is tried again after an hour.
#[derive(Debug)]
struct RawValues {
    resolution: Resolution<RangeQuery>,
    /// True if the queried minutes are as many, and as high, as they have to be.
    usable: bool,
    /// True if the newest query has returned; absent once its minutes have been judged.
    returned: Option<bool>,
    /// The time before which minutes are not queried.
    query_at: Timestamp,
}

// === impl ReadPlan ===

impl ReadPlan {
    /// The plan of a series of which nothing is known.
    ///
    /// # Errors
    /// The settings ask for a range that cannot be read.
    pub fn new(request: &RefreshRequest, forecaster: &dyn Forecaster) -> Result<Self, Refused> {
        let (step, span) = (forecaster.sample_interval(), forecaster.history_length());
        let query = RangeQuery::new(request.parts.clone(), step, span)
            .map_err(|error| Refused::new(Reason::InvalidSpec, chain(&error)))?;
        Ok(Self {
            namespace: query.namespace(),
            servers: query.servers(),
            raw: RawValues::new(request.resolution.clone(), &query),
            query,
            live_match: LiveMatch::default(),
            is_other_tenant: false,
            now: Timestamp::MIN,
            live: LiveMinutes::default(),
            idle: BTreeSet::new(),
            versions: Vec::new(),
            learned: Learned::nothing(&request.algorithm),
        })
    }

    /// Sets the members in which nothing runs, and what is learned, for the next refresh.
    pub fn prepare(&mut self, idle: &BTreeSet<Arc<str>>, learned: Learned) {
        self.idle.clone_from(idle);
        self.learned = learned;
        self.is_other_tenant = false;
    }

    /// Sets the time of the reads, and the live minutes that continue the values.
    pub fn begin(&mut self, now: Timestamp, live: LiveMinutes) {
        (self.now, self.live) = (now, live);
    }

    /// The query of the values, and that of minutes if the values are means over a longer time.
    pub fn queries(&self) -> impl Iterator<Item = &RangeQuery> {
        [&self.query].into_iter().chain(self.raw.query())
    }

    /// The read of the values.
    pub fn values(&self) -> ReadContext<'_> {
        ReadContext {
            query: &self.query,
            live_match: self.live_match,
            now: self.now,
            since: self.learned.since(self.now),
            live: &self.live.values,
            idle: &self.idle,
        }
    }

    /// The read of minutes, if the values are not those.
    pub fn minutes(&self) -> Option<ReadContext<'_>> {
        Some(ReadContext {
            query: self.raw.query()?,
            live_match: LiveMatch::default(),
            live: &[],
            ..self.values()
        })
    }

    /// The read of minutes, if they are to be queried now. It is recorded as one that may never return, until
    /// [`end_minutes`](Self::end_minutes).
    pub fn begin_minutes(&mut self) -> Option<ReadContext<'_>> {
        if !self.raw.is_due(self.now) {
            return None;
        }
        self.raw.returned = Some(false);
        self.raw.query_at = self.now.saturating_add(RETRY).unwrap_or(Timestamp::MAX);
        self.minutes()
    }

    /// Records that the query of minutes has returned without an error.
    pub fn end_minutes(&mut self) {
        self.raw.returned = Some(true);
    }

    /// Starts over if the series may be those of another tenant, by the version of the reader for each query; returns
    /// true if it did.
    pub fn keep_versions(&mut self, version: impl Fn(&HistoryQuery) -> u64) -> bool {
        let versions = (self.query.parts.iter().map(|part| version(&part.query))).collect();
        // The first read finds no versions, and has nothing to forget.
        let is_other = self.versions != versions && !self.versions.is_empty();
        if is_other {
            self.is_other_tenant = true;
            self.learned.fitted_at = None;
            self.learned.unit_change = None;
            self.live_match = LiveMatch::default();
            self.raw.forget();
        }
        self.versions = versions;
        is_other
    }

    /// True if a forecaster is to learn a whole history.
    pub fn is_learning(&self) -> bool {
        self.learned.is_incremental && !self.learned.continues_at(self.now)
    }

    /// True if a forecaster that began without raw values could start again with them.
    pub fn has_new_raw(&self, learned: &Learned) -> bool {
        learned.fitted_at.is_some() && self.raw.usable && !learned.from_raw
    }

    /// The samples to forecast from: the values, with the raw ones among the queried and the live minutes.
    pub fn samples(&mut self, values: &[Sample], queried: &[Sample]) -> SeriesSamples {
        let (raw, live) = (&mut self.raw, std::mem::take(&mut self.live));
        if let Some(has_returned) = raw.returned.take() {
            raw.usable = minutes_are_usable(queried, values);
            // Otherwise the wait that was set when the query began stays.
            if raw.usable && has_returned {
                raw.query_at = self.now;
            }
        }
        let raw_values = match &raw.resolution {
            Resolution::Unknown => Vec::new(),
            Resolution::Minute => values.to_vec(),
            Resolution::Mean(_) => (live.raw.iter().filter(|_| self.live_match.matches()))
                .chain(queried.iter().filter(|_| raw.usable))
                .copied()
                .collect(),
        };
        let mismatch = self.live_match.mismatch(live.per_replica);
        let mut samples = SeriesSamples {
            since: self.learned.since(self.now),
            minutes_are_usable: raw.usable,
            refused: mismatch.map(|found| found.refused(&self.query)),
            ..SeriesSamples::new(values, raw_values)
        };
        samples.leave_out(&live.surplus);
        samples
    }
}

// === impl Learned ===

impl Learned {
    /// The state of a forecaster that has learned nothing.
    pub const fn nothing(algorithm: &Algorithm) -> Self {
        Self {
            is_incremental: matches!(algorithm, Algorithm::Auto(_)),
            fitted_at: None,
            from_raw: false,
            unit_change: None,
        }
    }

    /// Time before which samples are not needed: they lie before a change of unit, or the forecaster has learned from
    /// them. The later of the two times; `None` if the whole history is needed.
    pub fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let continued_from = if self.continues_at(now) {
            now.checked_sub(INCREMENTAL_HISTORY).ok()
        } else {
            None
        };
        continued_from.max(self.unit_change.map(|change| change.at))
    }

    /// True if a forecaster that has learned can go on from the short history of `now`.
    fn continues_at(&self, now: Timestamp) -> bool {
        self.fitted_at.is_some_and(|fitted_at| {
            let ago = now.duration_since(fitted_at);
            // Negative after the clock was set back: the history would end before what was learned. After a longer
            // pause it would leave a gap in it.
            !ago.is_negative() && ago < INCREMENTAL_HISTORY / 2
        })
    }
}

// === impl RawValues ===

impl RawValues {
    /// The raw values of a series that `query` reads.
    fn new(resolution: Resolution<Vec<QueryPart>>, query: &RangeQuery) -> Self {
        // A longer step has no minutes.
        let resolution = if query.step() == MINUTE {
            resolution.map(|parts| query.with_parts(parts))
        } else {
            Resolution::Unknown
        };
        Self {
            resolution,
            usable: false,
            returned: None,
            query_at: Timestamp::MIN,
        }
    }

    /// The query of minutes, if the values are not those.
    fn query(&self) -> Option<&RangeQuery> {
        match &self.resolution {
            Resolution::Mean(minutes) => Some(minutes),
            Resolution::Minute | Resolution::Unknown => None,
        }
    }

    /// Forgets what was queried, from another tenant.
    fn forget(&mut self) {
        (self.usable, self.returned, self.query_at) = (false, None, Timestamp::MIN);
    }

    /// True if minutes are to be queried now.
    fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back by more than the wait must not stop the queries.
        let wait = self.query_at.duration_since(now);
        self.query().is_some() && (wait <= SignedDuration::ZERO || wait > RETRY)
    }
}
