//! A cron expression: five fields, each a bit set, and the rule that joins the two day fields.
//!
//! This file parses and prints expressions; `occurrence.rs` finds the times they name. A field that is
//! valid but probably not what was meant, such as `*-5`, is accepted here and reported by `lint.rs`.

use std::fmt;

use super::field::{Bits, Field, FieldError, Word, words};
use super::zone::{Zone, ZoneError};
use derive_where::derive_where;

/// Longest expression read, in characters, zone prefix included.
///
/// # Source
/// The limit of the custom resource's schema, repeated here for text from the command line.
pub const MAX_EXPRESSION_CHARS: usize = 128;

/// A parsed cron expression: the times of day, days and months it names.
///
/// The dialect is the one crane's manifests are written in (robfig/cron v3, five fields): minute,
/// hour, day of month, month, day of week; `*` and `?` mean every value in any field; `a-b`, `/n`,
/// `a/n` (from `a` to the field's end), lists, three-letter English names; `@hourly` and the like;
/// a `TZ=` or `CRON_TZ=` prefix. Weekday 7 is Sunday, which robfig refuses.
///
/// A day matches when both day fields match; if neither day field is `*`, when either does.
///
/// Two expressions are equal when they parse to the same fields and prefix, however written.
///
/// # Guarantees
/// - Parsing takes a bounded number of steps and never panics.
/// - What [`fmt::Display`] prints parses to an equal expression.
///
/// # Examples
/// ```
/// use foretide_domain::cron::Expression;
///
/// let workdays = Expression::parse("0 9 ? * mon-fri")?;
/// assert_eq!(workdays.to_string(), "0 9 * * 1-5");
/// assert!(!workdays.never_fires());
/// # Ok::<(), foretide_domain::cron::ExpressionError>(())
/// ```
///
/// # Source
/// robfig/cron v3.0.1 `ParseStandard`, for what is accepted and what each form means.
#[derive(Debug, Clone)]
#[derive_where(PartialEq, Eq)]
pub struct Expression {
    pub(super) minute: Bits,
    pub(super) hour: Bits,
    pub(super) day_of_month: Bits,
    pub(super) month: Bits,
    pub(super) day_of_week: Bits,
    zone_name: Option<Box<str>>,
    #[derive_where(skip)]
    text: Box<str>,
}

/// A problem of a text that is not a cron expression, and the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// Only blanks, or nothing after the zone prefix.
    #[error("expression is empty: expected five fields such as `0 9 * * 1-5`, or `@daily`")]
    Empty,
    /// More than [`MAX_EXPRESSION_CHARS`] characters.
    #[error("expression has {chars} characters: expected at most {MAX_EXPRESSION_CHARS}")]
    TooLong {
        /// Characters found.
        chars: usize,
    },
    /// Not five fields.
    #[error(
        "expression has {found} fields: expected five \
         (minute, hour, day of month, month, day of week){}",
        field_count_hint(*found)
    )]
    FieldCount {
        /// Fields found.
        found: usize,
    },
    /// `@every`, which names an interval and no times.
    #[error(
        "`@every` at column {column} names an interval, not times, so a window cannot begin or end \
         on it: expected times, such as `*/30 * * * *` for each half hour"
    )]
    Every {
        /// Position of its first character, from 1.
        column: usize,
    },
    /// An `@` word that is not a known one.
    #[error(
        "descriptor `{descriptor}` at column {column} is unknown: expected @yearly, @annually, \
         @monthly, @weekly, @daily, @midnight or @hourly"
    )]
    Descriptor {
        /// The word as written.
        descriptor: String,
        /// Position of its first character, from 1.
        column: usize,
    },
    /// A descriptor followed by more fields.
    #[error(
        "descriptor `{descriptor}` at column {column} is followed by other fields: remove them"
    )]
    DescriptorNotAlone {
        /// The word as written.
        descriptor: String,
        /// Position of its first character, from 1.
        column: usize,
    },
    /// The zone of the `TZ=` or `CRON_TZ=` prefix does not exist.
    #[error("invalid time zone prefix")]
    Zone(#[source] ZoneError),
    /// An item of a field is not valid.
    #[error(transparent)]
    Field(#[from] FieldError),
}

fn field_count_hint(found: usize) -> &'static str {
    match found {
        6 => ": seconds are not supported, drop the first field",
        7 => ": seconds and years are not supported, drop the first and last field",
        _ => "",
    }
}

/// The zone name of a `TZ=` or `CRON_TZ=` word.
fn zone_prefix(word: &str) -> Option<&str> {
    word.strip_prefix("CRON_TZ=")
        .or_else(|| word.strip_prefix("TZ="))
}

/// The words after the zone prefix, and the prefix's zone name.
pub(super) fn split_prefix<'w, 't>(words: &'w [Word<'t>]) -> (Option<&'t str>, &'w [Word<'t>]) {
    match words.split_first() {
        Some((first, rest)) => match zone_prefix(first.text) {
            Some(name) => (Some(name), rest),
            None => (None, words),
        },
        None => (None, words),
    }
}

// === impl Expression ===

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionError`], each naming the place and what is accepted there.
    ///
    /// ```
    /// use foretide_domain::cron::{Expression, ExpressionError};
    ///
    /// assert!(Expression::parse("TZ=Europe/Berlin 30 7 * * *").is_ok());
    /// assert_eq!(Expression::parse("0 9 * *"), Err(ExpressionError::FieldCount { found: 4 }));
    /// ```
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let chars = text.chars().count();
        // Before anything else, so that the work is bounded.
        if chars > MAX_EXPRESSION_CHARS {
            return Err(ExpressionError::TooLong { chars });
        }
        let words = words(text);
        let (zone_name, fields) = split_prefix(&words);
        if let Some(name) = zone_name {
            // Only whether the zone exists: what `Local` stands for is known to the window that uses the expression.
            Zone::parse(name, &Zone::utc()).map_err(ExpressionError::Zone)?;
        }
        let mut expression = match fields {
            [] => Err(ExpressionError::Empty),
            [first, ..] if first.text.starts_with('@') => {
                Self::from_descriptor(first, fields.len())
            }
            [minute, hour, day_of_month, month, day_of_week] => Ok(Self {
                minute: Field::Minute.parse(minute)?,
                hour: Field::Hour.parse(hour)?,
                day_of_month: Field::DayOfMonth.parse(day_of_month)?,
                month: Field::Month.parse(month)?,
                day_of_week: Field::DayOfWeek.parse(day_of_week)?,
                zone_name: None,
                text: Box::default(),
            }),
            _ => Err(ExpressionError::FieldCount {
                found: fields.len(),
            }),
        }?;
        expression.zone_name = zone_name.map(Box::from);
        expression.text = Box::from(text);
        Ok(expression)
    }

    fn from_descriptor(word: &Word<'_>, words: usize) -> Result<Self, ExpressionError> {
        let (descriptor, column) = (word.text.to_owned(), word.column);
        let fields = match word.text {
            "@every" => return Err(ExpressionError::Every { column }),
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => return Err(ExpressionError::Descriptor { descriptor, column }),
        };
        if words > 1 {
            return Err(ExpressionError::DescriptorNotAlone { descriptor, column });
        }
        Self::parse(fields)
    }

    /// The text that the expression was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The zone of its `TZ=` or `CRON_TZ=` prefix, which overrides the `timezone` field.
    ///
    /// ```
    /// use foretide_domain::cron::Expression;
    ///
    /// let expression = Expression::parse("CRON_TZ=Asia/Tokyo 0 9 * * *")?;
    /// assert_eq!(expression.zone_name(), Some("Asia/Tokyo"));
    /// # Ok::<(), foretide_domain::cron::ExpressionError>(())
    /// ```
    pub fn zone_name(&self) -> Option<&str> {
        self.zone_name.as_deref()
    }

    /// Returns true if no date at all matches: a field is empty, or none of its months has such days.
    ///
    /// ```
    /// use foretide_domain::cron::Expression;
    ///
    /// let thirtieth_of_february = Expression::parse("0 0 30 2 *")?;
    /// assert!(thirtieth_of_february.never_fires());
    /// let leap_day = Expression::parse("0 0 29 2 *")?;
    /// assert!(!leap_day.never_fires());
    /// # Ok::<(), foretide_domain::cron::ExpressionError>(())
    /// ```
    pub fn never_fires(&self) -> bool {
        self.minute.is_empty()
            || self.hour.is_empty()
            || !(1..=12).any(|month| self.month.contains(month) && self.has_day(month))
    }

    /// Returns true if a day of the month matches in some year.
    fn has_day(&self, month: u32) -> bool {
        match self.days() {
            Days::Both(of_month, of_week) => of_month.below(longest(month)) && !of_week.is_empty(),
            Days::Either(of_month, of_week) => {
                of_month.below(longest(month)) || !of_week.is_empty()
            }
        }
    }

    /// Returns true if both name the same times of the same days, however written; zones are not compared.
    pub(super) fn same_times(&self, other: &Self) -> bool {
        self.minute.values() == other.minute.values()
            && self.hour.values() == other.hour.values()
            && self.month.values() == other.month.values()
            && self.days().normal_form() == other.days().normal_form()
    }

    /// Returns true if both day fields restrict, so that a day matching either of them counts.
    pub(super) fn joins_days_by_or(&self) -> bool {
        matches!(self.days(), Days::Either(..))
    }

    /// Returns true if it names times on every day of every month.
    pub(super) fn matches_every_day(&self) -> bool {
        let (_, of_month, of_week) = self.days().normal_form();
        [
            (Field::Month, self.month.values()),
            (Field::DayOfMonth, of_month),
            (Field::DayOfWeek, of_week),
        ]
        .into_iter()
        .all(|(field, values)| values == field.every().values())
    }

    pub(super) fn days(&self) -> Days {
        if self.day_of_month.is_star() || self.day_of_week.is_star() {
            Days::Both(self.day_of_month, self.day_of_week)
        } else {
            Days::Either(self.day_of_month, self.day_of_week)
        }
    }

    fn print_fields(&self) -> String {
        [
            Field::Minute.print(self.minute),
            Field::Hour.print(self.hour),
            Field::DayOfMonth.print(self.day_of_month),
            Field::Month.print(self.month),
            Field::DayOfWeek.print(self.day_of_week),
        ]
        .join(" ")
    }
}

/// Days in the longest form of a month.
fn longest(month: u32) -> u32 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Expression {
    /// Prints each field in its shortest usual form, and as it was written where spelling out the
    /// values would go beyond [`MAX_EXPRESSION_CHARS`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.print_fields();
        let printed = match &self.zone_name {
            Some(name) => format!("CRON_TZ={name} {fields}"),
            None => fields,
        };
        if printed.chars().count() <= MAX_EXPRESSION_CHARS {
            f.write_str(&printed)
        } else {
            f.write_str(&self.text)
        }
    }
}

/// The two day fields and the rule that joins them: day of month first, day of week second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Days {
    /// One of them is `*`: a day matches when both match.
    Both(Bits, Bits),
    /// Both restrict: a day matches when either does.
    Either(Bits, Bits),
}

impl Days {
    /// (either, days of month, days of week), equal for fields that select the same days.
    fn normal_form(self) -> (bool, u64, u64) {
        let every = (
            Field::DayOfMonth.every().values(),
            Field::DayOfWeek.every().values(),
        );
        match self {
            Self::Both(of_month, of_week) => (false, of_month.values(), of_week.values()),
            Self::Either(of_month, of_week) => match (of_month.values(), of_week.values()) {
                (m, w) if m == every.0 || w == every.1 => (false, every.0, every.1),
                // A field without values matches no day, so only the other one decides.
                (0, w) => (false, every.0, w),
                (m, 0) => (false, m, every.1),
                (m, w) => (true, m, w),
            },
        }
    }
}
