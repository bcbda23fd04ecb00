//! Cron windows: when each is active, in its zone, and why not.
//!
//! ```text
//! text --Expression::parse--> bit sets --Search--> occurrences --Window--> active, since, until
//! name --Zone::parse--------> rules ------^                        \--lint--> findings
//! ```
//!
//! The engine is our own: crane's rule looks forward only and is wrong across clock changes and
//! wherever starts and ends do not alternate; this one is anchored at the last start. Pure: `now`
//! is an argument, zones come from the compiled-in database. It proposes targets; joining them with
//! other proposals happens elsewhere.

mod clock_change;
mod expression;
mod field;
mod lint;
mod occurrence;
mod window;
mod zone;

#[cfg(test)]
mod tests;

pub use expression::{Expression, ExpressionError, MAX_EXPRESSION_CHARS};
pub use field::{Field, FieldProblem};
pub use lint::{Bounds, Code, Finding, lint};
pub use occurrence::{Occurrence, last_at_or_before, next_after, occurrences};
pub use window::{
    Activity, Problem, Window, WindowError, WindowField, WindowState, WindowText, largest_active,
};
pub use zone::{MAX_ZONE_CHARS, Standing, Zone, ZoneError};
