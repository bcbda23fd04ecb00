//! The refresher of one series: the plan of its reads, and the fit that forecasts from them.
//!
//! It goes to a task of `workers`, which reads and forecasts with it, and comes back with the result. When that is due
//! is `refresh`'s.

use std::{collections::BTreeSet, sync::Arc};

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::{Forecast, Forecaster};

use super::fit::Fit;
use super::history::HistoryCache;
use super::ingest::Rejection;
use super::read_plan::ReadPlan;
use super::request::RefreshRequest;
use foretide_api::ports::HistoryError;

/// The state of a series that refreshes change.
#[derive(Debug)]
pub struct Refresher {
    pub plan: ReadPlan,
    pub fit: Fit,
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
        Ok(Self {
            plan: ReadPlan::new(request, &*forecaster)?,
            fit: Fit::new(request, forecaster),
        })
    }

    /// Sets the members in which nothing runs, and the price of the namespace, for the next refresh.
    ///
    /// A forecaster that began without raw values starts again once they can be queried: what it has learned from the
    /// values would take a week to wear off. Not before it is used again, so that its trade-offs stay known.
    pub fn prepare(&mut self, idle: &BTreeSet<Arc<str>>, price: Option<f64>) {
        if self.plan.has_new_raw(&self.fit.learned) {
            self.fit.renew_forecaster();
        }
        if let Some(price) = price {
            self.fit.forecaster.set_price(price);
        }
        self.plan.prepare(idle, self.fit.learned);
    }

    /// Bytes that the forecaster and the history of its series take.
    pub fn bytes(&self, histories: &HistoryCache) -> usize {
        let queries = self.plan.queries().map(|query| histories.bytes(query));
        self.fit.forecaster.bytes() + queries.sum::<usize>()
    }
}

// === impl RefreshError ===

impl RefreshError {
    /// The error of a forecaster that panicked.
    pub fn panicked() -> Self {
        let message = "the forecaster panicked; the series was reset";
        Self::Refused(Refused::new(Reason::NumericalFailure, message))
    }
}

// === impl RefreshResult ===

impl RefreshResult {
    /// The result of a refresh that has no forecast.
    pub fn failed(refresher: Option<Box<Refresher>>, error: RefreshError) -> Self {
        Self {
            refresher,
            outcome: Err(error),
            rejected: Vec::new(),
        }
    }
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
