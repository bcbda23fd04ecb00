//! One series that is kept fresh: what is asked for, the forecaster with what it learnt, and when its next turn is.
//!
//! A history is handed over on a grid that does not slide, so that what a forecaster learnt of it stays valid. Computing
//! happens on a thread of its own kind: building from two weeks takes longer than a task may hold its worker. It
//! refuses to decide what becomes of a forecast.

use foretide_models::{Algorithm, Forecast, Forecaster, Refusal, Sample, Series};
use jiff::{SignedDuration, Timestamp};

use super::history::{self, HistoryCache, Occasion};
use crate::{
    domain::{
        forecast::Refused,
        ingest::{self, Rejection},
        lead_time::LeadTime,
        proposal::Reason,
        series_change::{UnitChange, unit_change},
    },
    ports::{HistoryError, HistoryReader},
    validate::chain,
};

/// First wait after a failed query; doubles up to the refresh period.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How much of a history is kept and handed over once a forecaster has learnt from all of it: a day to compare with,
/// and what the newest values are compared by.
const CONTINUED: SignedDuration = SignedDuration::from_hours(26);

/// What is asked of one series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) query: String,
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
    forecaster: Box<dyn Forecaster>,
    history: history::Request,
    turn: Timestamp,
    failures: u32,
    /// When the forecaster last answered, if it keeps what it learnt.
    answered: Option<Timestamp>,
    /// The change of unit before which nothing is used.
    changed: Option<UnitChange>,
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
    /// The plan; nothing if the forecaster broke off.
    pub(super) plan: Option<Plan>,
    pub(super) outcome: Result<Forecast, Failure>,
    /// Why samples were taken out that had not been seen before.
    pub(super) rejected: Vec<Rejection>,
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
        let history = history::Request::new(&request.query, step, span)
            .map_err(|error| Refused::new(Reason::InvalidSpec, chain(&error)))?;
        Ok(Self {
            request,
            forecaster,
            history,
            turn: now,
            failures: 0,
            answered: None,
            changed: None,
            counted: Timestamp::MIN,
        })
    }

    /// Whether this plan answers a request: only where a lead time is from may differ.
    pub(super) fn asks_for(&self, request: &Request) -> bool {
        let own = Request {
            lead_time: request.lead_time,
            ..self.request.clone()
        };
        own == *request
    }

    /// Notes where the lead time is from.
    pub(super) fn situate(&mut self, request: &Request) {
        self.request.lead_time = request.lead_time;
    }

    pub(super) fn lead_time(&self) -> LeadTime {
        self.request.lead_time
    }

    pub(super) fn history(&self) -> &history::Request {
        &self.history
    }

    /// When it is to be refreshed.
    pub(super) fn turn(&self) -> Timestamp {
        self.turn
    }

    /// Reads what is new and asks the forecaster.
    pub(super) async fn refresh<H: HistoryReader>(
        mut self,
        reader: &H,
        histories: &HistoryCache,
        live: &[Sample],
        now: Timestamp,
    ) -> Refreshed {
        let occasion = Occasion {
            now,
            since: self.since(now),
            live,
        };
        let samples = match histories.read(reader, &self.history, &occasion).await {
            Ok(samples) => samples,
            Err(error) => {
                return Refreshed {
                    plan: Some(self),
                    outcome: Err(Failure::Unread(error)),
                    rejected: Vec::new(),
                };
            }
        };
        let work = tokio::task::spawn_blocking(move || {
            let (outcome, rejected) = self.answer(samples, now);
            Refreshed {
                plan: Some(self),
                outcome: outcome.map_err(Failure::Refused),
                rejected,
            }
        });
        work.await.unwrap_or_else(|_| Refreshed {
            plan: None,
            outcome: Err(Failure::Refused(Refused::new(
                Reason::NumericalFailure,
                "the forecaster broke off; its series starts afresh",
            ))),
            rejected: Vec::new(),
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
        let rejected = ingest::gate(&mut samples, self.aligned(start), now);
        let seen = self.counted;
        let rejected = rejected
            .into_iter()
            .filter(|(at, _)| *at > seen)
            .map(|(_, why)| why)
            .collect();
        self.counted = now;
        let series = self.binned(&samples, start, now);
        let series = match unit_change(&series) {
            Some(change) => {
                self.begin(change);
                self.binned(&samples, change.at, now)
            }
            None => series,
        };
        let answer = self.forecaster.forecast(&series, self.request.horizon);
        if answer.is_ok() && self.keeps_what_it_learnt() {
            self.answered = Some(now);
        }
        (answer.map_err(|refusal| self.told(&refusal)), rejected)
    }

    /// Starts afresh with a series that is counted in another unit from here on.
    fn begin(&mut self, change: UnitChange) {
        self.changed = Some(change);
        self.answered = None;
        if let Ok(forecaster) = self.request.algorithm.clone().build() {
            self.forecaster = forecaster;
        }
    }

    fn keeps_what_it_learnt(&self) -> bool {
        matches!(self.request.algorithm, Algorithm::Auto(_))
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
        while grid % 60 != 0 && step % 60 != 0 && grid < step * 60 {
            grid += step;
        }
        let grid = if step % 60 == 0 { step } else { grid };
        let second = at.as_second().div_euclid(grid) * grid;
        Timestamp::from_second(second).unwrap_or(at)
    }

    fn told(&self, refusal: &Refusal) -> Refused {
        match (refusal, self.changed) {
            (Refusal::InsufficientHistory { .. }, Some(change)) => {
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

    /// Sets the next turn; failures of reading are tried again sooner, and less and less often.
    pub(super) fn set_turn(&mut self, outcome: &Result<Forecast, Failure>, now: Timestamp) {
        self.failures = match outcome {
            Err(Failure::Unread(_)) => self.failures.saturating_add(1),
            Ok(_) | Err(Failure::Refused(_)) => 0,
        };
        let usual = self.forecaster.refresh_period();
        let wait = match self.failures {
            0 => usual,
            n => (RETRY_AFTER * 2_i32.saturating_pow((n - 1).min(8))).min(usual),
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

#[cfg(test)]
mod tests;
