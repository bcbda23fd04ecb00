//! Reasons why a query is not accepted, and the limits that the messages name.

/// Longest query, in bytes.
pub const BYTES_MAX: usize = 2048;
/// Longest query under [`super::PromqlScope::Any`], which trusts its author but not the size of a pasted text.
pub const BYTES_MAX_UNSCOPED: usize = 16 * 1024;
/// Deepest nesting.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of selectors, each of which costs the server a lookup.
pub const SELECTORS_MAX: usize = 8;
/// Maximum number of operators: a chain `x + x + ...` is a tree as deep as it is long, without a bracket.
pub const OPERATORS_MAX: usize = 256;
/// The most bytes that the regular expressions of one query may take when compiled, in total.
pub const PATTERNS_BYTES_MAX: usize = 1 << 20;
/// The most regular expressions of one query.
pub const PATTERNS_MAX: usize = 64;
/// The longest regular expression, in bytes. A class of two bytes (`\w`) takes 6 KiB before it is compiled.
pub const PATTERN_LENGTH_MAX: usize = 4096;

/// Reasons why a query is not accepted, each with what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// Empty, or white space only.
    #[error("the query is empty")]
    Empty,
    /// Longer than the limit.
    #[error("the query has {bytes} bytes; at most {limit} are accepted")]
    TooLong {
        /// Length of the query in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Nested deeper than 32.
    #[error("the query nests deeper than {DEPTH_MAX} levels; simplify it")]
    TooDeep,
    /// More than 256 operators.
    #[error("the query has more than {OPERATORS_MAX} operators; split it or use a recording rule")]
    TooManyOperators,
    /// More than 8 selectors.
    #[error("the query has more than {SELECTORS_MAX} selectors; split it or use a recording rule")]
    TooManySelectors,
    /// More than 64 regular expressions.
    #[error(
        "the query has more than {PATTERNS_MAX} regular expressions; match several values by one, as in a=~\"x|y\""
    )]
    TooManyPatterns,
    /// A regular expression that is too long, or with which those of the query take too much memory.
    #[error(
        "the regular expression {0:?} is too large: at most {PATTERN_LENGTH_MAX} bytes are accepted, and compiled at most \
         {max} KiB for all of the query; avoid counted repetitions such as {{99}}, and write [0-9A-Za-z_] for \\w",
        max = PATTERNS_BYTES_MAX / 1024
    )]
    PatternTooLarge(String),
    /// Not `PromQL`, or not in the form that the parser supports.
    #[error("the query cannot be parsed: {0}")]
    Syntax(String),
    /// A range vector or a string.
    #[error("the query gives a {0}; expected a number at each time, as from rate(...)")]
    NotANumber(String),
    /// A range or offset without a unit.
    #[error("duration {0:?} has no unit; write it as 5m or 30s")]
    Duration(String),
    /// `expr[1h:1m]`.
    #[error("subqueries are not accepted; use a recording rule")]
    Subquery,
    /// `@ time`.
    #[error("the @ modifier is not accepted; the forecaster sets the time")]
    At,
    /// An offset into the future.
    #[error("a negative offset is not accepted")]
    NegativeOffset,
    /// Further back than the history.
    #[error("a range or offset of {asked} s reaches back further than the history of {kept} s")]
    TooFarBack {
        /// The range or offset, in seconds.
        asked: u64,
        /// The history's length, in seconds.
        kept: u64,
    },
    /// A selector that does not name exactly one metric.
    #[error("each selector must name one metric, as in http_requests_total{{...}}; found {0:?}")]
    MetricName(String),
    /// A label that cannot be written without quotes.
    #[error(
        "label {0:?} needs quoting and is not accepted; expected letters, digits and '_', \
         not starting with '__'"
    )]
    LabelName(String),
    /// A matcher on the namespace other than equality with that of the object.
    #[error(
        "the query may read namespace {own:?} only: remove the matcher on label {label:?}, which is added automatically"
    )]
    Namespace {
        /// The label.
        label: String,
        /// The object's namespace.
        own: String,
    },
    /// `{a="b" or c="d"}`.
    #[error("'or' between matchers is not accepted; use a regular expression")]
    OrMatchers,
    /// A function that can read or write series of another namespace.
    #[error("{0} is not accepted here: it can read or relabel across namespaces")]
    Function(String),
    /// The printed text does not read back as the same tree.
    #[error("the query cannot be rewritten safely; simplify it")]
    NotReadBack,
}
