//! One series that is kept fresh: what is asked for, the forecaster with what it learnt, and when its next turn is.
//!
//! A history is handed over on a grid that does not slide, so that what a forecaster learnt of it stays valid. Computing
//! happens on a thread of its own kind: building from two weeks takes longer than a task may hold its worker. It
//! refuses to decide what becomes of a forecast.

use std::{collections::BTreeSet, sync::Arc};

use foretide_models::{Algorithm, Forecast, ForecastError, Forecaster, Sample, Series};
use jiff::{SignedDuration, Timestamp};
use tokio::task::Id;

use super::history::{self, HistoryCache, LiveMatch, Part, Past, ReadContext};
use super::ingest::{self, Rejection};
use super::unit_change::{Levels, UnitChange, unit_change};
use crate::{
    domain::{forecast::Refused, lead_time::LeadTime, proposal::Reason},
    error::chain,
    ports::{HistoryError, HistoryReader},
};

/// First wait after a failed query; doubles up to the refresh period.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How much of a history is kept and handed over once a forecaster has learnt from all of it: a day to compare with,
/// and what the newest values are compared by.
const CONTINUED: SignedDuration = SignedDuration::from_hours(26);

/// What is asked of one series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// What is read: one query, or one for each member of a fleet.
    pub(super) parts: Vec<Part>,
    /// The members in which nothing runs now.
    pub(super) idle: BTreeSet<Arc<str>>,
    pub(super) algorithm: Algorithm,
    /// How far beyond the history is asked for.
    pub(super) horizon: SignedDuration,
    /// The lead time in use, which is among the settings of an algorithm that heeds it.
    pub(super) lead_time: LeadTime,
}

/// A series that is kept fresh.
#[derive(Debug)]
pub(super) struct Plan {
    request: Request,
    past: Past,
    turn: Timestamp,
    failures: u32,
    usual_wait: SignedDuration,
    place: RefreshState,
}

/// Where what refreshes a series is.
#[derive(Debug)]
enum RefreshState {
    Here(Box<Refresher>),
    /// At work, as this task.
    Out(Id),
    /// About to go to work.
    Leaving,
}

/// What refreshes a series: the forecaster, and what was found out about the series so far.
#[derive(Debug)]
pub(super) struct Refresher {
    algorithm: Algorithm,
    horizon: SignedDuration,
    forecaster: Box<dyn Forecaster>,
    past: Past,
    idle: BTreeSet<Arc<str>>,
    agreement: LiveMatch,
    /// When the forecaster last answered, if it keeps what it learnt.
    answered: Option<Timestamp>,
    /// The change of unit before which nothing is used.
    changed: Option<UnitChange>,
    /// Where it stood, as far back as was ever looked.
    levels: Levels,
    /// The highest value that was believed, as far back as was ever looked.
    believed: f64,
    /// The newest sample that was looked at when rejections were last counted.
    counted: Timestamp,
}

/// Why a series could not be refreshed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The history says that there is no forecast to be had.
    Refused(Refused),
    /// The history could not be read; what is in force stays.
    Unread(HistoryError),
}

/// What came of a refresh.
#[derive(Debug)]
pub(super) struct Refreshed {
    /// What it was made with; nothing if the forecaster broke off.
    pub(super) refresher: Option<Box<Refresher>>,
    pub(super) outcome: Result<Forecast, Failure>,
    /// Why samples were taken out that had not been seen before.
    pub(super) rejected: Vec<Rejection>,
    /// The time that it was made for.
    pub(super) now: Timestamp,
}

// === impl Plan ===

impl Plan {
    /// A plan whose turn is now.
    ///
    /// # Errors
    /// The settings ask for a history that cannot be asked for.
    pub(super) fn new(
        request: Request,
        forecaster: Box<dyn Forecaster>,
        now: Timestamp,
    ) -> Result<Self, Refused> {
        let (step, span) = (forecaster.sample_interval(), forecaster.history_length());
        let past = Past::new(request.parts.clone(), step, span)
            .map_err(|error| Refused::new(Reason::InvalidSpec, chain(&error)))?;
        Ok(Self {
            turn: now,
            failures: 0,
            usual_wait: forecaster.refresh_period(),
            place: RefreshState::Here(Box::new(Refresher {
                algorithm: request.algorithm.clone(),
                horizon: request.horizon,
                forecaster,
                past: past.clone(),
                idle: BTreeSet::new(),
                agreement: LiveMatch::default(),
                answered: None,
                changed: None,
                levels: Levels::default(),
                believed: 0.0,
                counted: Timestamp::MIN,
            })),
            past,
            request,
        })
    }

    /// Whether this plan answers a request: only where a lead time is from may differ, and where nothing runs now.
    pub(super) fn asks_for(&self, request: &Request) -> bool {
        let own = Request {
            lead_time: request.lead_time,
            idle: request.idle.clone(),
            ..self.request.clone()
        };
        own == *request
    }

    /// Notes where the lead time is from, and where nothing runs now.
    pub(super) fn situate(&mut self, request: Request) {
        self.request.lead_time = request.lead_time;
        self.request.idle = request.idle;
    }

    pub(super) fn lead_time(&self) -> LeadTime {
        self.request.lead_time
    }

    /// Whether it reads the same as a request.
    pub(super) fn reads(&self, request: &Request) -> bool {
        self.request.parts == request.parts
    }

    /// What is kept for it.
    pub(super) fn histories(&self) -> impl Iterator<Item = history::Request> {
        self.past.requests()
    }

    /// When it is to be refreshed.
    #[cfg(test)]
    pub(super) fn turn(&self) -> Timestamp {
        self.turn
    }

    /// Sends out a refresh if its turn has come and none is under way.
    pub(super) fn send(&mut self, now: Timestamp, spawn: impl FnOnce(Box<Refresher>) -> Id) {
        // A turn beyond the longest wait was set before the clock was put back.
        let latest = now
            .saturating_add(self.usual_wait)
            .unwrap_or(Timestamp::MAX);
        if self.turn > now && self.turn <= latest {
            return;
        }
        self.place = match std::mem::replace(&mut self.place, RefreshState::Leaving) {
            RefreshState::Here(mut refresher) => {
                refresher.idle.clone_from(&self.request.idle);
                RefreshState::Out(spawn(refresher))
            }
            elsewhere => elsewhere,
        };
    }

    /// Whether its refresh is this task.
    pub(super) fn is_out_as(&self, task: Id) -> bool {
        matches!(self.place, RefreshState::Out(id) if id == task)
    }

    /// Takes back what was sent out.
    pub(super) fn take_back(&mut self, refresher: Box<Refresher>) {
        self.place = RefreshState::Here(refresher);
    }

    /// Sets the next turn; failures of reading are tried again sooner, and less and less often.
    pub(super) fn set_turn(&mut self, outcome: &Result<Forecast, Failure>, now: Timestamp) {
        self.failures = match outcome {
            Err(Failure::Unread(_)) => self.failures.saturating_add(1),
            Ok(_) | Err(Failure::Refused(_)) => 0,
        };
        let wait = match self.failures {
            0 => self.usual_wait,
            n => (RETRY_AFTER * 2_i32.saturating_pow((n - 1).min(8))).min(self.usual_wait),
        };
        // From turn to turn, so that looking for work every few seconds does not make them drift apart.
        let late = now.duration_since(self.turn);
        let from = if !late.is_negative() && late < wait {
            self.turn
        } else {
            now
        };
        self.turn = from.saturating_add(wait).unwrap_or(Timestamp::MAX);
    }
}

// === impl Refresher ===

impl Refresher {
    /// The samples to answer from, if nobody has to be asked for them.
    pub(super) fn known(
        &self,
        histories: &HistoryCache,
        live: &[Sample],
        now: Timestamp,
    ) -> Option<Vec<Sample>> {
        histories.known(&self.past, self.agreement, &self.occasion(live, now))
    }

    /// The samples to answer from, whoever has to be asked for them.
    pub(super) async fn read<H: HistoryReader>(
        &mut self,
        reader: &H,
        histories: &HistoryCache,
        live: &[Sample],
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        let mut agreement = self.agreement;
        let occasion = self.occasion(live, now);
        let read = histories.read(reader, &self.past, &mut agreement, &occasion);
        let read = read.await;
        self.agreement = agreement;
        read
    }

    fn occasion<'a>(&'a self, live: &'a [Sample], now: Timestamp) -> ReadContext<'a> {
        ReadContext {
            now,
            since: self.since(now),
            live,
            idle: &self.idle,
        }
    }

    /// Asks the forecaster what it makes of samples that were read, or says why they were not.
    pub(super) async fn conclude(
        mut self: Box<Self>,
        samples: Result<Vec<Sample>, HistoryError>,
        now: Timestamp,
    ) -> Refreshed {
        let samples = match samples {
            Ok(samples) => samples,
            Err(error) => {
                return Refreshed {
                    refresher: Some(self),
                    outcome: Err(Failure::Unread(error)),
                    rejected: Vec::new(),
                    now,
                };
            }
        };
        let work = tokio::task::spawn_blocking(move || {
            let (outcome, rejected) = self.answer(samples, now);
            Refreshed {
                refresher: Some(self),
                outcome: outcome.map_err(Failure::Refused),
                rejected,
                now,
            }
        });
        work.await.unwrap_or_else(|_| Refreshed {
            refresher: None,
            outcome: Err(Failure::Refused(Refused::new(
                Reason::NumericalFailure,
                "the forecaster broke off; its series starts afresh",
            ))),
            rejected: Vec::new(),
            now,
        })
    }

    /// Before when nothing is wanted: a change of unit, or what the forecaster has learnt from.
    fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let fresh = |answered: &Timestamp| {
            let ago = now.duration_since(*answered);
            !ago.is_negative() && ago < CONTINUED / 2
        };
        let continued = self.answered.filter(fresh);
        let continued = continued.and_then(|_| now.checked_sub(CONTINUED).ok());
        continued.max(self.changed.map(|change| change.at))
    }

    fn answer(
        &mut self,
        mut samples: Vec<Sample>,
        now: Timestamp,
    ) -> (Result<Forecast, Refused>, Vec<Rejection>) {
        let span = self.forecaster.history_length();
        let start = now.saturating_sub(span).unwrap_or(now);
        let start = self.since(now).map_or(start, |since| since.max(start));
        let rejected = ingest::gate(&mut samples, (self.aligned(start), now), &mut self.believed);
        let seen = self.counted;
        let rejected = rejected
            .into_iter()
            .filter(|(at, _)| *at > seen)
            .map(|(_, why)| why)
            .collect();
        self.counted = now;
        let series = self.binned(&samples, start, now);
        let series = match unit_change(&series, &self.levels) {
            Some(change) => {
                self.begin(change);
                self.binned(&samples, change.at, now)
            }
            None => series,
        };
        self.levels.remember(&series);
        let answer = self.forecaster.forecast(&series, self.horizon);
        if answer.is_ok() && self.keeps_what_it_learnt() {
            self.answered = Some(now);
        }
        (answer.map_err(|refusal| self.told(&refusal)), rejected)
    }

    /// Starts afresh with a series that is counted in another unit from here on.
    fn begin(&mut self, change: UnitChange) {
        self.changed = Some(change);
        self.answered = None;
        self.levels = Levels::default();
        self.believed = 0.0;
        if let Ok(forecaster) = self.algorithm.clone().build() {
            self.forecaster = forecaster;
        }
    }

    fn keeps_what_it_learnt(&self) -> bool {
        matches!(self.algorithm, Algorithm::Auto(_))
    }

    fn binned(&self, samples: &[Sample], start: Timestamp, now: Timestamp) -> Series {
        let step = self.forecaster.sample_interval();
        Series::from_samples(samples, step, self.aligned(start), self.aligned(now))
    }

    /// The last instant, not after `at`, that every series of this step has in common: a multiple of the step and of a
    /// minute.
    fn aligned(&self, at: Timestamp) -> Timestamp {
        let step = self.forecaster.sample_interval().as_secs().max(1);
        let mut grid = step;
        while grid % 60 != 0 && grid < step * 60 {
            grid += step;
        }
        let second = at.as_second().div_euclid(grid) * grid;
        Timestamp::from_second(second).unwrap_or(at)
    }

    fn told(&self, refusal: &ForecastError) -> Refused {
        match (refusal, self.changed) {
            (ForecastError::InsufficientHistory { .. }, Some(change)) => {
                let message = format!(
                    "the series changed at {} by a factor of {}, as between units, and what lies before is not used: \
                     {refusal}",
                    change.at, change.factor
                );
                Refused::new(Reason::SeriesChanged, message)
            }
            _ => Refused::from(refusal),
        }
    }
}

#[cfg(test)]
mod tests;
