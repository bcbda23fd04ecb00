//! One field of a cron expression: its range, its grammar, its bit set and its shortest spelling.
//!
//! ```text
//! "1-5,10/20" --parse--> {1, 2, 3, 4, 5, 10, 30, 50} --print--> "1-5,10,30,50"
//! ```
//!
//! How the five fields combine is in `expression.rs`.

/// Most items in one comma-separated list.
pub(super) const MAX_ITEMS: usize = 64;

/// The five fields, in the order they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Field {
    /// 0-59.
    #[display("minute")]
    Minute,
    /// 0-23.
    #[display("hour")]
    Hour,
    /// 1-31.
    #[display("day of month")]
    DayOfMonth,
    /// 1-12 or `jan`-`dec`.
    #[display("month")]
    Month,
    /// 0-6 or `sun`-`sat`; 7 is Sunday too.
    #[display("day of week")]
    DayOfWeek,
}

/// The values of one field as a bit set, marked if a `*` or `?` put them there.
///
/// The star matters for the day fields: `*` does not restrict the day, `1-31` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bits {
    values: u64,
    star: bool,
}

/// An item of a field that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} field, column {column}, `{item}`: {problem}")]
pub struct FieldError {
    /// The field.
    pub field: Field,
    /// Position of the item's first character in the expression, from 1.
    pub column: usize,
    /// The item as written.
    pub item: String,
    /// The problem, and the accepted values.
    pub problem: FieldProblem,
}

/// A problem of one item of a field, and the accepted values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// Not a number, nor a name of this field.
    #[error("`{word}` is not a value of this field: expected {}", .field.accepted())]
    Value {
        /// The part that is not a value.
        word: String,
        /// The field.
        field: Field,
    },
    /// A number outside the field's range.
    #[error("{value} is out of range: expected {}", .field.accepted())]
    OutOfRange {
        /// The number.
        value: i64,
        /// The field.
        field: Field,
    },
    /// A range whose end is below its start.
    #[error(
        "the range ends before it begins: expected the lower value first, or two ranges in a list ({hint})"
    )]
    Backwards {
        /// The same values as two ranges.
        hint: String,
    },
    /// Weekday 7 where a range or step starts.
    #[error("7 (Sunday) may stand alone or end a range: expected 0 where a range or step starts")]
    SundayFirst,
    /// More than one `-`, or more than one `/`.
    #[error("more than one `{0}`: expected at most `first-last/step`")]
    Repeated(char),
    /// A step that is not a whole number of at least 1.
    #[error("step `{0}` is not usable: expected a whole number of at least 1")]
    Step(String),
    /// More than 64 items.
    #[error("the list has {0} items: expected at most {MAX_ITEMS}")]
    TooManyItems(usize),
}

/// A blank-separated word and the column of its first character, from 1.
pub(super) struct Word<'t> {
    pub(super) column: usize,
    pub(super) text: &'t str,
}

/// Splits at blanks, counting columns in characters.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut column = 1;
    let mut words = Vec::new();
    for piece in text.split(char::is_whitespace) {
        if !piece.is_empty() {
            words.push(Word {
                column,
                text: piece,
            });
        }
        column += piece.chars().count() + 1;
    }
    words
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

// === impl Bits ===

impl Bits {
    /// Bit `n` stands for value `n`.
    pub(super) fn values(self) -> u64 {
        self.values
    }

    /// Returns true if a `*` or `?` put values there, so that the field restricts nothing.
    pub(super) fn is_star(self) -> bool {
        self.star
    }

    pub(super) fn is_empty(self) -> bool {
        self.values == 0
    }

    pub(super) fn contains(self, value: u32) -> bool {
        value < 64 && self.values & (1 << value) != 0
    }

    /// Returns true if any value is at most `limit`.
    pub(super) fn below(self, limit: u32) -> bool {
        self.at_or_before(limit).is_some()
    }

    /// The lowest value at or after `from`.
    pub(super) fn at_or_after(self, from: u32) -> Option<u32> {
        let rest = self.values & u64::MAX.checked_shl(from)?;
        (rest != 0).then(|| rest.trailing_zeros())
    }

    /// The highest value at or before `to`.
    pub(super) fn at_or_before(self, to: u32) -> Option<u32> {
        (self.values & (u64::MAX >> 63_u32.saturating_sub(to))).checked_ilog2()
    }

    /// The values but for those of `others`.
    pub(super) fn without(self, others: u64) -> Self {
        Self {
            values: self.values & !others,
            star: false,
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            values: self.values | other.values,
            star: self.star || other.star,
        }
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |value| self.contains(*value))
    }
}

// === impl Field ===

impl Field {
    /// Lowest and highest value.
    ///
    /// ```
    /// use foretide_domain::cron::Field;
    ///
    /// assert_eq!(Field::DayOfMonth.range(), (1, 31));
    /// assert_eq!(Field::DayOfWeek.range(), (0, 6));
    /// ```
    pub fn range(self) -> (u32, u32) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// The accepted forms of one item, for error messages.
    fn accepted(self) -> &'static str {
        match self {
            Self::Minute => "0-59, `*`, a range `a-b`, a step `/n`, or a list of these",
            Self::Hour => "0-23, `*`, a range `a-b`, a step `/n`, or a list of these",
            Self::DayOfMonth => "1-31, `*` or `?`, a range `a-b`, a step `/n`, or a list of these",
            Self::Month => "1-12 or jan-dec, `*`, a range `a-b`, a step `/n`, or a list of these",
            Self::DayOfWeek => {
                "0-6 or sun-sat (7 is Sunday too), `*` or `?`, a range `a-b`, a step `/n`, or a list of these"
            }
        }
    }

    /// Names of the field's values, from its lowest.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
            _ => &[],
        }
    }

    /// Every value, starred.
    pub(super) fn every(self) -> Bits {
        let (low, high) = self.range();
        Bits {
            values: span(low, high, 1),
            star: true,
        }
    }

    /// Reads one field: the union of its list. Empty items are skipped, as robfig does.
    pub(super) fn parse(self, word: &Word<'_>) -> Result<Bits, FieldError> {
        let items = word.text.split(',').count();
        if items > MAX_ITEMS {
            return Err(self.error(word.column, word.text, FieldProblem::TooManyItems(items)));
        }
        let mut bits = Bits::default();
        let mut column = word.column;
        for item in word.text.split(',') {
            if !item.is_empty() {
                let read = self
                    .parse_item(item)
                    .map_err(|problem| self.error(column, item, problem))?;
                bits = bits.union(read);
            }
            column += item.chars().count() + 1;
        }
        Ok(bits)
    }

    fn error(self, column: usize, item: &str, problem: FieldProblem) -> FieldError {
        FieldError {
            field: self,
            column,
            item: item.to_owned(),
            problem,
        }
    }

    /// Reads `*`, `a`, `a-b`, each with or without `/n`.
    fn parse_item(self, item: &str) -> Result<Bits, FieldProblem> {
        let (range, step) = match item.split_once('/') {
            Some((_, step)) if step.contains('/') => return Err(FieldProblem::Repeated('/')),
            Some((range, step)) => (range, Some(parse_step(step)?)),
            None => (item, None),
        };
        let (low, high, starred) = self.parse_range(range, step.is_some())?;
        let step = step.unwrap_or(1);
        let values = fold_sunday(self, span(low, high, step));
        // A step above 1 restricts, whatever it started from (robfig clears its star bit too).
        Ok(Bits {
            values,
            star: starred && step == 1,
        })
    }

    /// (lowest, highest, whether `*`) of the part before the step.
    fn parse_range(self, range: &str, stepped: bool) -> Result<(u32, u32, bool), FieldProblem> {
        let (min, max) = self.range();
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (first, Some(last)),
            None => (range, None),
        };
        if matches!(first, "*" | "?") {
            // robfig ignores what follows a starred start (`*-5`); lint reports it.
            return Ok((min, max, true));
        }
        if last.is_some_and(|last| last.contains('-')) {
            return Err(FieldProblem::Repeated('-'));
        }
        let low = self.parse_value(first)?;
        let high = match last {
            Some(last) => self.parse_value(last)?,
            // `a/n` runs to the end of the field; `max(low)` is for Sunday written as 7.
            None if stepped => max.max(low),
            None => low,
        };
        if self == Self::DayOfWeek && low == 7 && (high != 7 || stepped) {
            return Err(FieldProblem::SundayFirst);
        }
        if low > high {
            let hint = print_runs([(low, max), (min, high)].into_iter());
            return Err(FieldProblem::Backwards { hint });
        }
        Ok((low, high, false))
    }

    /// Reads a number or a name; weekday 7 is still 7 here.
    fn parse_value(self, word: &str) -> Result<u32, FieldProblem> {
        let (min, max) = self.range();
        let named = self
            .names()
            .iter()
            .zip(min..)
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        if let Some((_, value)) = named {
            return Ok(value);
        }
        let value = word.parse::<i64>().map_err(|_| FieldProblem::Value {
            word: word.to_owned(),
            field: self,
        })?;
        // Sunday may be written as 0 or 7.
        let highest = if self == Self::DayOfWeek { 7 } else { max };
        u32::try_from(value)
            .ok()
            .filter(|value| (min..=highest).contains(value))
            .ok_or(FieldProblem::OutOfRange { value, field: self })
    }

    /// The shortest usual spelling of a set of values.
    pub(super) fn print(self, bits: Bits) -> String {
        if bits.is_star() {
            return "*".to_owned();
        }
        if bits.is_empty() {
            // Empty items are skipped, so this is the text of a field without values.
            return ",".to_owned();
        }
        if let Some(step) = self.step_of(bits) {
            return format!("*/{step}");
        }
        print_runs(runs(bits).into_iter())
    }

    /// The step above 1 that generates these values, at least three, from the field's start.
    fn step_of(self, bits: Bits) -> Option<u32> {
        let (min, max) = self.range();
        let second = bits.at_or_after(min + 1)?;
        let step = second - min;
        let generated = span(min, max, step);
        (step > 1 && generated == bits.values && generated.count_ones() > 2).then_some(step)
    }
}

/// Any whole number of at least 1; beyond the field's width it selects the first value only.
fn parse_step(text: &str) -> Result<u32, FieldProblem> {
    match text.parse::<i64>() {
        Ok(step) if step >= 1 => Ok(u32::try_from(step).unwrap_or(u32::MAX)),
        _ => Err(FieldProblem::Step(text.to_owned())),
    }
}

/// Bits `low`, `low + step`, ... up to `high`, all below 64.
fn span(low: u32, high: u32, step: u32) -> u64 {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (low..=high)
        .step_by(step)
        .fold(0, |values, value| values | 1 << value)
}

/// Weekday 7 is Sunday, 0.
fn fold_sunday(field: Field, values: u64) -> u64 {
    if field == Field::DayOfWeek {
        (values | values >> 7) & 0x7f
    } else {
        values
    }
}

/// Maximal runs of neighbouring values.
fn runs(bits: Bits) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for value in bits.iter() {
        match runs.last_mut() {
            Some((_, high)) if *high + 1 == value => *high = value,
            _ => runs.push((value, value)),
        }
    }
    runs
}

/// Prints runs as a list: singles, pairs by comma, longer ones as ranges.
fn print_runs(runs: impl Iterator<Item = (u32, u32)>) -> String {
    runs.map(|(low, high)| match high - low {
        0 => low.to_string(),
        1 => format!("{low},{high}"),
        _ => format!("{low}-{high}"),
    })
    .collect::<Vec<_>>()
    .join(",")
}
