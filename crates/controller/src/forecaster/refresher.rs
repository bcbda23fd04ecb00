//! The refresher of one series: its forecaster, and what earlier refreshes found out about the series.
//!
//! It goes to a task, reads the samples, forecasts from them, and comes back with the result. When that is due is
//! `refresh`'s.
//!
//! Times are aligned to a fixed grid, so that a forecaster can go on from the samples that it has learned from.
//! Forecasts are computed on blocking threads, because fitting two weeks takes longer than an async task may block.

use std::{collections::BTreeSet, sync::Arc};

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::{Algorithm, Forecast, ForecastError, Forecaster, Sample, Series, TradeOffs};
use jiff::{SignedDuration, Timestamp};

use super::demand_history::LiveMinutes;
use super::history::{Comparison, HistoryCache, LiveMatch, RangeQuery, ReadContext, Servers};
use super::ingest::{self, Rejection};
use super::minutes::{RawValues, SeriesSamples};
use super::request::RefreshRequest;
use super::unit_change::{PastLevels, UnitChange, unit_change};
use foretide_api::ports::{HistoryError, HistoryReader, QUERY_ANNOTATION};
use foretide_base::{error::chain, fair_slots::Slot, machine::Machine};

/// Length of the history that an incremental forecaster gets once it has learned from all of it: a day to compare with,
/// and two hours that are compared.
const INCREMENTAL_HISTORY: SignedDuration = SignedDuration::from_hours(26);

/// The forecaster of a series, and what it knows of the series from earlier refreshes.
#[derive(Debug)]
pub struct Refresher {
    algorithm: Algorithm,
    horizon: SignedDuration,
    forecaster: Box<dyn Forecaster>,
    query: RangeQuery,
    idle: BTreeSet<Arc<str>>,
    live_match: LiveMatch,
    /// The history beside the live total, if it is another amount.
    mismatch: Option<Comparison>,
    raw: RawValues,
    /// True if the forecaster could learn from queried raw values when it began.
    learned_from_raw: bool,
    /// The time at which the forecaster had last learned the whole history, if it is incremental.
    fitted_at: Option<Timestamp>,
    /// The versions of the readers of its queries, when they were last read.
    versions: Vec<u64>,
    /// The change of unit; samples before it are not used.
    unit_change: Option<UnitChange>,
    /// The levels of the series, including those of samples that are no longer kept.
    levels: PastLevels,
    /// The highest value that ever passed the checks.
    highest_accepted: f64,
    /// The time up to which rejected samples have been counted.
    checked_until: Timestamp,
}

/// Reasons why a series could not be refreshed.
#[derive(Debug)]
pub enum RefreshError {
    /// The history allows no forecast.
    Refused(Refused),
    /// The history could not be read; the forecast in force stays.
    Unread(HistoryError),
}

/// The result of a refresh.
#[derive(Debug)]
pub struct RefreshResult {
    /// The refresher, to be used again; absent if the forecaster panicked.
    pub refresher: Option<Box<Refresher>>,
    pub outcome: Result<Forecast, RefreshError>,
    /// The reasons why samples were rejected, each counted once.
    pub rejected: Vec<Rejection>,
}

// === impl Refresher ===

impl Refresher {
    /// A refresher that has learned nothing.
    ///
    /// # Errors
    /// The settings ask for a range that cannot be read.
    pub fn new(request: &RefreshRequest, forecaster: Box<dyn Forecaster>) -> Result<Self, Refused> {
        let (step, span) = (forecaster.sample_interval(), forecaster.history_length());
        let query = RangeQuery::new(request.parts.clone(), step, span)
            .map_err(|error| Refused::new(Reason::InvalidSpec, chain(&error)))?;
        Ok(Self {
            algorithm: request.algorithm.clone(),
            horizon: request.horizon,
            forecaster,
            raw: RawValues::new(request.resolution.clone(), &query),
            query,
            idle: BTreeSet::new(),
            live_match: LiveMatch::default(),
            mismatch: None,
            learned_from_raw: false,
            fitted_at: None,
            versions: Vec::new(),
            unit_change: None,
            levels: PastLevels::default(),
            highest_accepted: 0.0,
            checked_until: Timestamp::MIN,
        })
    }

    /// The query of its values, and that of its minutes if the values are means over a longer time.
    pub fn queries(&self) -> impl Iterator<Item = &RangeQuery> {
        [&self.query].into_iter().chain(self.raw.query())
    }

    /// Sets the members in which nothing runs, and the price of the namespace, for the next refresh.
    ///
    /// A forecaster that began without raw values starts again once they can be queried: what it has learned from the
    /// values would take a week to wear off. Not before it is used again, so that its trade-offs stay known.
    pub fn prepare(&mut self, idle: &BTreeSet<Arc<str>>, price: Option<f64>) {
        self.idle.clone_from(idle);
        if self.fitted_at.is_some() && self.raw.is_usable() && !self.learned_from_raw {
            self.renew_forecaster();
        }
        if let Some(price) = price {
            self.forecaster.set_price(price);
        }
    }

    /// Cost and saving that each quantile would have had, as far as the forecaster measures them.
    pub fn trade_offs(&self) -> Option<TradeOffs> {
        self.forecaster.trade_offs()
    }

    /// The samples to forecast from, if no query is needed for them.
    pub fn cached_samples(
        &mut self,
        histories: &HistoryCache,
        live: &LiveMinutes,
        now: Timestamp,
    ) -> Option<SeriesSamples> {
        let context = self.context(&live.values, now);
        let values = histories.cached_samples(&self.query, self.live_match, &context)?;
        Some(self.with_raw(&values, histories, live, now))
    }

    /// The values with the raw ones that are known.
    pub fn with_raw(
        &mut self,
        values: &[Sample],
        histories: &HistoryCache,
        live: &LiveMinutes,
        now: Timestamp,
    ) -> SeriesSamples {
        let context = self.context(&live.values, now);
        let query = self.raw.query();
        let queried = query.map(|query| histories.queried(query, &context));
        self.mismatch = self.live_match.mismatch(live.per_replica);
        let raw_live = (live, self.live_match);
        let mut samples = self
            .raw
            .samples(values, &queried.unwrap_or_default(), raw_live, now);
        samples.leave_out(&live.surplus);
        samples
    }

    /// True if raw values are to be queried now.
    pub fn needs_raw(&self, now: Timestamp) -> bool {
        self.raw.is_due(now)
    }

    /// Queries the raw values. A failure leaves them unknown.
    pub async fn query_raw<H: HistoryReader>(
        &mut self,
        reader: &H,
        histories: &HistoryCache,
        now: Timestamp,
    ) {
        self.raw.begin(now);
        let Some(query) = self.raw.query() else {
            return;
        };
        let context = self.context(&[], now);
        match histories.query(reader, query, &context).await {
            Ok(()) => self.raw.end(),
            Err(error) => tracing::debug!(error = %chain(&error), "could not read raw values"),
        }
    }

    /// The namespace of the object that it forecasts for.
    pub fn namespace(&self) -> Arc<str> {
        self.query.namespace()
    }

    /// The servers that its history is read from.
    pub fn servers(&self) -> Servers {
        self.query.servers()
    }

    /// The values to forecast from, queried where they are missing.
    pub async fn read<H: HistoryReader>(
        &mut self,
        reader: &H,
        histories: &HistoryCache,
        live: &[Sample],
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        self.keep_versions(self.query.versions(reader));
        let read = self.read_once(reader, histories, live, now).await;
        // The tenant changed during the read: only a part of the history was asked for, and a new tenant needs all of
        // it. A further change is seen next time.
        if self.keep_versions(self.query.versions(reader)) {
            return self.read_once(reader, histories, live, now).await;
        }
        read
    }

    async fn read_once<H: HistoryReader>(
        &mut self,
        reader: &H,
        histories: &HistoryCache,
        live: &[Sample],
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        // A copy, because the context borrows from `self`.
        let mut live_match = self.live_match;
        let context = self.context(live, now);
        let read = histories.read(reader, &self.query, &mut live_match, &context);
        let values = read.await;
        self.live_match = live_match;
        values
    }

    /// Starts over if the series may be those of another tenant; returns true if it did.
    fn keep_versions(&mut self, versions: Vec<u64>) -> bool {
        // The first read finds no versions, and has nothing to forget.
        let is_other = self.versions != versions && !self.versions.is_empty();
        if is_other {
            self.start_over(None);
            self.live_match = LiveMatch::default();
            self.raw.forget();
        }
        self.versions = versions;
        is_other
    }

    fn context<'a>(&'a self, live: &'a [Sample], now: Timestamp) -> ReadContext<'a> {
        ReadContext {
            now,
            since: self.since(now),
            live,
            idle: &self.idle,
        }
    }

    /// Forecasts from the samples, or passes on why they could not be read. The slot is held until the computation has
    /// ended, also if the refresh is dropped before.
    pub async fn finish(
        mut self: Box<Self>,
        samples: Result<SeriesSamples, HistoryError>,
        machine: &Machine,
        slot: Slot,
        now: Timestamp,
    ) -> RefreshResult {
        let samples = match samples {
            Ok(samples) => samples,
            Err(error) => {
                return RefreshResult {
                    refresher: Some(self),
                    outcome: Err(RefreshError::Unread(error)),
                    rejected: Vec::new(),
                };
            }
        };
        // A forecast is pure computation and would block the other tasks; a panic ends this task only.
        let slot = Arc::new(slot);
        let held = Arc::clone(&slot);
        let work = machine.run_blocking(move || {
            let _held = held;
            let (outcome, rejected) = self.forecast(samples, now);
            RefreshResult {
                refresher: Some(self),
                outcome: outcome.map_err(RefreshError::Refused),
                rejected,
            }
        });
        slot.run(work).await.unwrap_or_else(|_| RefreshResult {
            refresher: None,
            outcome: Err(RefreshError::Refused(Refused::new(
                Reason::NumericalFailure,
                "the forecaster panicked; the series was reset",
            ))),
            rejected: Vec::new(),
        })
    }

    /// True if its forecaster is to learn a whole history.
    pub fn is_learning(&self, now: Timestamp) -> bool {
        self.is_incremental() && !self.continues_at(now)
    }

    /// Drops the samples that are no longer needed: a forecaster that learns has most of them in its own form.
    pub fn drop_learned(&self, histories: &HistoryCache, now: Timestamp) {
        if let Some(since) = self.since(now) {
            for query in self.queries() {
                histories.drop_before(query, since);
            }
        }
    }

    /// Bytes that the forecaster and the history of its series take.
    pub fn bytes(&self, histories: &HistoryCache) -> usize {
        let queries = self.queries().map(|query| histories.bytes(query));
        self.forecaster.bytes() + queries.sum::<usize>()
    }

    /// Time before which samples are not needed: they lie before a change of unit, or the forecaster has learned from
    /// them. The later of the two times; `None` if the whole history is needed.
    fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let continued_from = if self.continues_at(now) {
            now.checked_sub(INCREMENTAL_HISTORY).ok()
        } else {
            None
        };
        let unit_changed_at = self.unit_change.map(|change| change.at);
        continued_from.max(unit_changed_at)
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

    fn forecast(
        &mut self,
        mut samples: SeriesSamples,
        now: Timestamp,
    ) -> (Result<Forecast, Refused>, Vec<Rejection>) {
        if let Some(found) = self.mismatch {
            return (Err(mismatched(found, &self.query)), Vec::new());
        }
        let span = self.forecaster.history_length();
        let start = now.saturating_sub(span).unwrap_or(now);
        let start = self.since(now).map_or(start, |since| since.max(start));
        let from = self.aligned(start);
        let highest = &mut self.highest_accepted;
        let rejected = ingest::gate(&mut samples.values, from, now, highest);
        let counted = self.checked_until;
        let rejected = rejected
            .into_iter()
            // Histories of two refreshes overlap.
            .filter(|(at, _)| *at > counted)
            .map(|(_, why)| why)
            .collect();
        self.checked_until = now;
        let series = self.binned(&samples, start, now);
        let series = match unit_change(&series, &self.levels) {
            Some(change) => {
                self.start_over(Some(change));
                self.binned(&samples, change.at, now)
            }
            None => series,
        };
        self.levels.record(&series);
        let forecast = self.forecaster.forecast(&series, self.horizon);
        // From an idle series, too, the forecaster has learned all there is.
        let has_learned = matches!(forecast, Ok(_) | Err(ForecastError::ZeroSeries));
        if has_learned && self.is_incremental() {
            // The first fit decides; the next one adds to it.
            if self.fitted_at.replace(now).is_none() {
                self.learned_from_raw = self.raw.is_usable();
            }
        }
        (
            forecast.map_err(|refusal| self.refused(&refusal, &samples)),
            rejected,
        )
    }

    /// Forgets what was learned, from another tenant or before a change of unit.
    fn start_over(&mut self, unit_change: Option<UnitChange>) {
        self.unit_change = unit_change;
        self.levels = PastLevels::default();
        self.highest_accepted = 0.0;
        self.renew_forecaster();
    }

    /// Replaces the forecaster by one that has learned nothing; the next refresh reads the whole history.
    fn renew_forecaster(&mut self) {
        self.fitted_at = None;
        // A forecaster was built from the same settings before, so there is no error to handle.
        if let Ok(forecaster) = self.algorithm.clone().build() {
            self.forecaster = forecaster;
        }
    }

    /// True if the forecaster keeps what it has learned from one refresh to the next.
    fn is_incremental(&self) -> bool {
        matches!(self.algorithm, Algorithm::Auto(_))
    }

    fn binned(&self, samples: &SeriesSamples, start: Timestamp, now: Timestamp) -> Series {
        let step = self.forecaster.sample_interval();
        let (start, end) = (self.aligned(start), self.aligned(now));
        let is_raw = |sample: &&Sample| samples.raw.contains(&sample.at);
        let raw: Vec<Sample> = samples.values.iter().filter(is_raw).copied().collect();
        Series::from_samples(&samples.values, step, start, end).with_raw(&raw)
    }

    /// The last instant, not after `at`, that every series of this step has in common: a multiple of the step and of a
    /// minute.
    fn aligned(&self, at: Timestamp) -> Timestamp {
        let step = self.forecaster.sample_interval().as_secs().max(1);
        let mut grid = step;
        // Ends at a common multiple: `step * 60` is one of both.
        while grid % 60 != 0 && grid < step * 60 {
            grid += step;
        }
        let second = at.as_second().div_euclid(grid) * grid;
        Timestamp::from_second(second).unwrap_or(at)
    }

    fn refused(&self, refusal: &ForecastError, samples: &SeriesSamples) -> Refused {
        match (refusal, self.unit_change) {
            (ForecastError::StaleHistory { .. }, _) if samples.ends_left_out => {
                let message = "more pods run than the spec asks for, as in a rolling update: these minutes are not learned";
                Refused::new(Reason::PodsChanging, message)
            }
            (ForecastError::InsufficientHistory { .. }, Some(change)) => {
                let message = format!(
                    "the unit of the series changed at {} by a factor of {}; earlier samples are not used: {refusal}",
                    change.at, change.factor
                );
                Refused::new(Reason::SeriesChanged, message)
            }
            _ => Refused::from(refusal),
        }
    }
}

/// The refusal of a forecast from a history that is another amount than what is measured.
fn mismatched(found: Comparison, query: &RangeQuery) -> Refused {
    let Comparison { live, queried, .. } = found;
    let message = format!(
        "the history has {queried:.3} where the pods of the selector have {live:.3}: it counts other pods, another cluster \
         or another unit, or lacks a part; write a query that matches into the annotation {QUERY_ANNOTATION}<metric>; the \
         query is {}",
        query.text()
    );
    Refused::new(Reason::HistoryMismatch, message)
}

/// The reason why there is no forecast where the history could not be read.
pub fn unread_reason(error: &HistoryError) -> Reason {
    match error {
        // What has to be fixed at the server is named as for one cluster; otherwise the sum lacks a part.
        HistoryError::Member { source, .. } => match unread_reason(source) {
            refused @ (Reason::QueryRefused
            | Reason::CredentialsUnreadable
            | Reason::Unauthorized
            | Reason::Forbidden
            | Reason::TlsFailed) => refused,
            _ => Reason::PartialHistory,
        },
        HistoryError::Empty | HistoryError::EmptyTenant { .. } => Reason::NoData,
        HistoryError::Credentials { .. } => Reason::CredentialsUnreadable,
        HistoryError::Unauthorized { status: 403, .. } => Reason::Forbidden,
        HistoryError::Unauthorized { .. } => Reason::Unauthorized,
        HistoryError::Tls { .. } => Reason::TlsFailed,
        HistoryError::WarmingUp { .. } => Reason::HistoryWarmingUp,
        HistoryError::QueryRefused { .. } | HistoryError::MultiSeries(_) => Reason::QueryRefused,
        HistoryError::Partial { .. } => Reason::PartialHistory,
        _ => Reason::QueryError,
    }
}

#[cfg(test)]
mod tests;
