//! Refreshing forecasts from history.
pub mod history;
