//! A builder of `PromQL` without string templates: every name is checked, every value is escaped, and the text is
//! parsed back and compared with the expression before it may be sent.
//!
//! Names that need quoting are rejected, because older servers cannot parse them.

use std::fmt;

use foretide_domain::words;
use promql_parser::label::{MatchOp, Matcher as ParsedMatcher};
use promql_parser::parser::{self, Expr, VectorSelector};

const METRIC_NAME_MAX: usize = 256;
const LABEL_VALUE_MAX: usize = 1024;
/// The characters that have a meaning in RE2 syntax, so a literal escapes them.
const RE2_METACHARACTERS: &str = r"\.+*?()|[]{}^$";

/// Reasons why a query cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Not `[a-zA-Z_:][a-zA-Z0-9_:]*`, or longer than 256 bytes.
    #[error(
        "metric name {0:?} is not a Prometheus metric name; \
         expected letters, digits, '_' and ':', not starting with a digit, at most 256 bytes"
    )]
    MetricName(String),
    /// Not `[a-zA-Z_][a-zA-Z0-9_]*`, or reserved (`__...`).
    #[error(
        "label {0:?} is not a usable Prometheus label name; \
         expected letters, digits and '_', not starting with a digit or '__'"
    )]
    LabelName(String),
    /// Longer than 1 KiB.
    #[error("value of label {label:?} has {bytes} bytes; at most 1024 are accepted")]
    LabelValue {
        /// The label.
        label: String,
        /// Length of the value in bytes.
        bytes: usize,
    },
    /// A rate window of zero seconds.
    #[error("the rate window is zero; expected at least one second")]
    Window,
    /// The parser reads an expression other than the one that was printed.
    #[error("the query {0:?} does not parse as the expression it was built from; it is not sent")]
    NotReadBack(String),
}

/// A checked metric name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricName(String);

impl MetricName {
    /// Accepts `[a-zA-Z_:][a-zA-Z0-9_:]*` of at most 256 bytes.
    ///
    /// # Errors
    /// [`BuildError::MetricName`].
    pub fn new(name: &str) -> Result<Self, BuildError> {
        if name.len() <= METRIC_NAME_MAX && is_identifier(name, ":") {
            Ok(Self(name.to_owned()))
        } else {
            Err(BuildError::MetricName(excerpt(name)))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A checked label name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelName(String);

impl LabelName {
    /// Accepts `[a-zA-Z_][a-zA-Z0-9_]*` that does not start with `__` (reserved by Prometheus).
    ///
    /// # Errors
    /// [`BuildError::LabelName`].
    pub fn new(name: &str) -> Result<Self, BuildError> {
        let usable = name.len() <= LABEL_VALUE_MAX && is_identifier(name, "");
        // Reserved; a matcher on `__name__` would select another metric.
        if usable && !name.starts_with("__") {
            Ok(Self(name.to_owned()))
        } else {
            Err(BuildError::LabelName(excerpt(name)))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A regular expression (RE2, anchored) of constant fragments and escaped literals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegexValue(String);

impl RegexValue {
    /// The empty expression.
    pub fn new() -> Self {
        Self::default()
    }

    /// An expression that the administrator wrote.
    pub fn written(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Appends text that matches itself: all 14 RE2 metacharacters are escaped.
    #[must_use]
    pub fn literal(mut self, text: &str) -> Self {
        for character in text.chars() {
            if RE2_METACHARACTERS.contains(character) {
                self.0.push('\\');
            }
            self.0.push(character);
        }
        self
    }

    /// Appends a fragment of regular expression that is a constant of this program.
    #[must_use]
    pub fn pattern(mut self, fragment: &'static str) -> Self {
        self.0.push_str(fragment);
        self
    }

    /// The expression as RE2 text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The operator of a matcher, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// `=`: the label has this value; an absent label has the empty one.
    Equal(String),
    /// `!=`.
    NotEqual(String),
    /// `=~`, anchored at both ends.
    Like(RegexValue),
    /// `!~`, anchored at both ends.
    Unlike(RegexValue),
}

impl Match {
    const fn operator(&self) -> &'static str {
        match self {
            Self::Equal(_) => "=",
            Self::NotEqual(_) => "!=",
            Self::Like(_) => "=~",
            Self::Unlike(_) => "!~",
        }
    }

    fn value(&self) -> &str {
        match self {
            Self::Equal(value) | Self::NotEqual(value) => value,
            Self::Like(value) | Self::Unlike(value) => value.as_str(),
        }
    }
}

/// A condition on one label: `label="value"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    name: LabelName,
    test: Match,
}

impl Matcher {
    /// A matcher that applies `test` to `label`.
    ///
    /// # Errors
    /// [`BuildError::LabelName`]; [`BuildError::LabelValue`] beyond 1 KiB.
    pub fn new(label: &str, test: Match) -> Result<Self, BuildError> {
        let name = LabelName::new(label)?;
        let bytes = test.value().len();
        if bytes > LABEL_VALUE_MAX {
            return Err(BuildError::LabelValue {
                label: label.to_owned(),
                bytes,
            });
        }
        Ok(Self { name, test })
    }

    /// `label="value"`.
    ///
    /// # Errors
    /// As [`Matcher::new`].
    pub fn equal(label: &str, value: &str) -> Result<Self, BuildError> {
        Self::new(label, Match::Equal(value.to_owned()))
    }

    /// The label whose value is compared.
    pub const fn label(&self) -> &LabelName {
        &self.name
    }

    /// Operator and value of the comparison.
    pub const fn test(&self) -> &Match {
        &self.test
    }

    fn is_read_as(&self, parsed: &ParsedMatcher) -> bool {
        let operator = match parsed.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Re(_) => "=~",
            MatchOp::NotRe(_) => "!~",
        };
        parsed.name == self.name.0
            && operator == self.test.operator()
            && parsed.value == self.test.value()
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}\"", self.name.0, self.test.operator())?;
        // Strings of PromQL in double quotes have the escapes of Go. Other characters may stand as they are.
        for character in self.test.value().chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => write!(f, "{other}")?,
            }
        }
        f.write_str("\"")
    }
}

/// A metric and its matchers: `name{label="value",...}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesSelector {
    /// The metric.
    pub metric: MetricName,
    /// The matchers, all of which a series must match.
    pub matchers: Vec<Matcher>,
}

impl SeriesSelector {
    fn is_read_as(&self, parsed: &VectorSelector) -> bool {
        parsed.name.as_deref() == Some(self.metric.as_str())
            && parsed.offset.is_none()
            && parsed.at.is_none()
            && parsed.matchers.or_matchers.is_empty()
            && parsed.matchers.matchers.len() == self.matchers.len()
            && self
                .matchers
                .iter()
                .zip(&parsed.matchers.matchers)
                .all(|(ours, its)| ours.is_read_as(its))
    }
}

impl fmt::Display for SeriesSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{", self.metric.as_str())?;
        for (index, matcher) in self.matchers.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{matcher}")?;
        }
        f.write_str("}")
    }
}

/// Range over which `rate` looks back; prints as `3m` or `90s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateWindow {
    seconds: u32,
}

impl RateWindow {
    /// A window of that many seconds.
    ///
    /// # Errors
    /// [`BuildError::Window`] for zero.
    pub const fn from_secs(seconds: u32) -> Result<Self, BuildError> {
        if seconds == 0 {
            Err(BuildError::Window)
        } else {
            Ok(Self { seconds })
        }
    }

    /// Three minutes, the window of crane's built-in queries.
    pub const THREE_MINUTES: Self = Self { seconds: 180 };
}

impl fmt::Display for RateWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds.is_multiple_of(60) {
            write!(f, "{}m", self.seconds / 60)
        } else {
            write!(f, "{}s", self.seconds)
        }
    }
}

/// The forms of expression that the built-in queries need; the result of each is one series.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum QueryExpression {
    /// `sum(selector)`: the total of gauges.
    #[display("sum({_0})")]
    Sum(SeriesSelector),
    /// `sum(rate(selector[window]))`: the total increase per second of counters; the server handles resets.
    #[display("sum(rate({_0}[{_1}]))")]
    SumOfRate(SeriesSelector, RateWindow),
    /// `sum(...) or -count(selector)`: the total or, where it has no value, a number below zero if the selected series
    /// exist.
    #[display("{_0} or -count({_1})")]
    OrBelowZero(Box<QueryExpression>, SeriesSelector),
}

impl QueryExpression {
    fn is_read_as(&self, parsed: &Expr) -> bool {
        if let (Self::OrBelowZero(total, selector), Expr::Binary(or)) = (self, parsed) {
            return or.op.to_string() == "or"
                && total.is_read_as(&or.lhs)
                && is_minus_count(&or.rhs, selector);
        }
        let Expr::Aggregate(sum) = parsed else {
            return false;
        };
        if sum.op.to_string() != "sum" || sum.param.is_some() || sum.modifier.is_some() {
            return false;
        }
        match (self, &*sum.expr) {
            (Self::Sum(selector), Expr::VectorSelector(its)) => selector.is_read_as(its),
            (Self::SumOfRate(selector, window), Expr::Call(call)) => {
                call.func.name == "rate"
                    && matches!(&call.args.args[..], [only] if matches!(&**only,
                        Expr::MatrixSelector(its) if its.range.as_secs() == u64::from(window.seconds)
                            && its.range.subsec_nanos() == 0
                            && selector.is_read_as(&its.vs)))
            }
            _ => false,
        }
    }
}

fn is_minus_count(parsed: &Expr, selector: &SeriesSelector) -> bool {
    let Expr::Unary(minus) = parsed else {
        return false;
    };
    match &*minus.expr {
        Expr::Aggregate(count) => {
            count.op.to_string() == "count"
                && count.param.is_none()
                && count.modifier.is_none()
                && matches!(&*count.expr, Expr::VectorSelector(its) if selector.is_read_as(its))
        }
        _ => false,
    }
}

/// The text of a query that may be sent: built here, or admitted by [`super::scope::admit`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub struct Query(String);

impl Query {
    /// Prints the expression, parses the text, and compares the two.
    ///
    /// # Errors
    /// `BuildError::NotReadBack` when the two differ.
    pub fn build(expression: &QueryExpression) -> Result<Self, BuildError> {
        let text = expression.to_string();
        match parser::parse(&text) {
            Ok(parsed) if expression.is_read_as(&parsed) => Ok(Self(text)),
            _ => Err(BuildError::NotReadBack(excerpt(&text))),
        }
    }

    /// Text that `scope` has checked.
    pub const fn admitted(text: String) -> Self {
        Self(text)
    }

    /// The text, as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_identifier(text: &str, extra: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || extra.contains(c))
}

/// The beginning of a text from outside, short enough for the message of a condition.
pub fn excerpt(text: &str) -> String {
    words::excerpt(text, 200)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selector(value: &str) -> SeriesSelector {
        SeriesSelector {
            metric: MetricName::new("up").unwrap(),
            matchers: vec![Matcher::equal("job", value).unwrap()],
        }
    }

    #[test]
    fn metric_and_label_names_are_checked() {
        for good in ["up", "job:rate:5m", "_x", ":", "A9"] {
            assert_eq!(MetricName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "9x",
            "a-b",
            "a b",
            "up)",
            "a{",
            "ü",
            "up\n",
            &"a".repeat(257),
        ] {
            assert!(MetricName::new(bad).is_err(), "{bad}");
        }
        for bad in ["", "__name__", "a:b", "k8s.io", "a=\"b\"", "1a"] {
            assert!(LabelName::new(bad).is_err(), "{bad}");
        }
        assert!(Matcher::equal("a", &"v".repeat(1025)).is_err());
        assert!(Matcher::equal("a", &"v".repeat(1024)).is_ok());
        assert_eq!(RateWindow::from_secs(0), Err(BuildError::Window));
    }

    #[test]
    fn values_are_escaped_and_regex_literals_match_themselves_only() {
        let hostile = "x\"} or up{job=\"\\\n";
        let query = Query::build(&QueryExpression::Sum(selector(hostile))).unwrap();
        assert_eq!(query.as_str(), r#"sum(up{job="x\"} or up{job=\"\\\n"})"#);
        let all = RegexValue::new()
            .literal(r"\.+*?()|[]{}^$-a")
            .pattern("-[0-9]+");
        assert_eq!(all.as_str(), r"\\\.\+\*\?\(\)\|\[\]\{\}\^\$-a-[0-9]+");
    }

    #[test]
    fn a_window_prints_in_the_largest_exact_unit() {
        let printed = |seconds| RateWindow::from_secs(seconds).unwrap().to_string();
        assert_eq!(
            [printed(180), printed(90), printed(3600)],
            ["3m", "90s", "60m"]
        );
    }

    #[test]
    fn a_text_that_parses_as_another_expression_is_no_query() {
        let built = QueryExpression::Sum(selector("a"));
        for other in [
            r#"sum(up{job="b"})"#,
            r#"sum(up{job!="a"})"#,
            r#"sum(up{job="a",x="y"})"#,
            r#"sum(up{job="a"} offset 5m)"#,
            r#"sum by (job) (up{job="a"})"#,
            r#"max(up{job="a"})"#,
            r#"sum(down{job="a"})"#,
            r#"sum(up{job="a" or job="b"})"#,
            r#"up{job="a"}"#,
        ] {
            assert!(!built.is_read_as(&parser::parse(other).unwrap()), "{other}");
        }
        assert!(built.is_read_as(&parser::parse("sum ( up { job = 'a' } )").unwrap()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn a_query_with_any_value_parses_as_the_expression_it_was_built_from(value in ".{0,80}", seconds in 1_u32..9999) {
            let window = RateWindow::from_secs(seconds).unwrap();
            prop_assert!(Query::build(&QueryExpression::SumOfRate(selector(&value), window)).is_ok());
            let like = Match::Like(RegexValue::new().pattern("^").literal(&value).pattern("-[a-z]+$"));
            let matchers = vec![Matcher::new("pod", like).unwrap()];
            let metric = MetricName::new("up").unwrap();
            let sum = Query::build(&QueryExpression::Sum(SeriesSelector { metric, matchers }));
            prop_assert!(sum.is_ok(), "{:?}", sum);
        }
    }

    #[test]
    fn promql_builder_roundtrip_on_arbitrary_text() {
        bolero::check!()
            .with_iterations(1500)
            .with_type::<(String, String, String)>()
            .for_each(|(metric, label, value)| {
                let Ok(metric) = MetricName::new(metric) else {
                    return;
                };
                let Ok(matcher) = Matcher::equal(label, value) else {
                    return;
                };
                let selector = SeriesSelector {
                    metric,
                    matchers: vec![matcher],
                };
                Query::build(&QueryExpression::Sum(selector)).unwrap();
            });
    }
}
