//! The expected replicas of a span, as text, JSON, CSV, chart and page.

pub mod page;
pub mod view;
