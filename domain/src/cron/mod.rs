//! Cron windows, and the times at which each is active in its zone.
//!
//! ```text
//! text --Expression::parse--> bit sets --Search--> occurrences --Window--> active, since, until
//! name --Zone::parse--------> rules ------^                        \--lint--> findings
//! ```
//!
//! A window is active if its last start has not been followed by an end. Crane looks for the next start
//! and end instead, which is wrong across clock changes and wherever starts and ends do not alternate.
//! `now` is an argument, and zones come from the compiled-in database. Combining the targets with other
//! proposals is left to [`autoscale`](super::autoscale).

mod clock_change;
mod exception;
mod expression;
mod field;
mod lint;
mod month;
mod occurrence;
mod window;
mod zone;

#[cfg(test)]
mod tests;

pub use expression::{Expression, ExpressionError, MAX_EXPRESSION_CHARS};
pub use field::{Field, FieldError, FieldProblem};
pub use lint::{Finding, Lint, lint};
pub use occurrence::{Occurrence, occurrences};
pub use window::{
    Activity, Window, WindowError, WindowField, WindowProblem, WindowState, WindowText,
};
pub use zone::{Ambiguity, MAX_ZONE_CHARS, Zone, ZoneError};
