//! Forecasts, kept fresh from history.

pub mod history;
