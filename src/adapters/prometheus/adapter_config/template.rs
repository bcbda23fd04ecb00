//! `metricsQuery` of a rule: a query with blanks, which the adapter fills in as text. Here names that were checked are
//! filled in as text, and everything that comes from an object is put into the parsed tree, where a condition can only
//! be a condition. Refuses every other use of Go's templates.

use promql_parser::label::{MatchOp, Matcher as ParsedMatcher, Matchers};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector};

use crate::adapters::prometheus::{
    promql::{BuildError, LabelName, Match, Matcher, MetricName, RegexValue, excerpt},
    scope::{self, Refusal},
};

/// Stands for the conditions while the query is parsed. Conditions of our own names cannot be confused with it: label
/// names that begin with `__` are refused in them.
const MATCHERS: &str = "__foretide_matchers__";
/// Stands, with a number, for one value.
const VALUE: &str = "__foretide_value__";

/// A query with blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Series,
    Matchers,
    GroupBy,
    /// What the conditions ask of this label.
    Value(String),
}

/// What the blanks are filled with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blanks<'a> {
    /// The series; resource rules name theirs themselves.
    pub(super) series: Option<&'a MetricName>,
    /// The conditions that find the series of the workload or object.
    pub(super) matchers: &'a [Matcher],
    /// By what the adapter tells the values of several objects apart.
    pub(super) group_by: &'a [LabelName],
}

/// Why a template cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// Nothing but space.
    #[error("is missing")]
    Empty,
    /// Longer than the limit.
    #[error("has {0} bytes; at most {max} are accepted", max = scope::BYTES_MAX)]
    TooLong(usize),
    /// A placeholder that we do not know.
    #[error(
        "has the placeholder {0:?}; known are <<.Series>>, <<.LabelMatchers>>, <<.GroupBy>> and \
         <<index .LabelValuesByName \"label\">>"
    )]
    Placeholder(String),
    /// `<<.Series>>` in a resource rule.
    #[error("has the placeholder <<.Series>>, which has no value in a resource rule")]
    Series,
    /// A placeholder outside the conditions of a selector.
    #[error(
        "has <<.LabelMatchers>> or <<index .LabelValuesByName ...>> in a place other than the conditions of \
         a series, as in x{{<<.LabelMatchers>>}} or x{{pod=~\"<<index .LabelValuesByName \"pod\">>\"}}"
    )]
    Place,
    /// `<<index .LabelValuesByName "x">>` for a label without a value that fits.
    #[error("compares label {0:?} in a way that the conditions of this metric do not allow")]
    Value(String),
    /// A query that is the same for every workload.
    #[error("selects no pods: the placeholder <<.LabelMatchers>> is missing")]
    Unbound,
    /// The query itself.
    #[error(transparent)]
    Query(#[from] Refusal),
    /// A value that cannot stand in a query.
    #[error(transparent)]
    Build(#[from] BuildError),
}

// === impl Template ===

impl Template {
    /// Takes a template apart.
    pub(super) fn read(text: &str) -> Result<Self, TemplateError> {
        if text.trim().is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > scope::BYTES_MAX {
            return Err(TemplateError::TooLong(text.len()));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("<<") {
            let unknown = || TemplateError::Placeholder(excerpt(after));
            let (action, tail) = after.split_once(">>").ok_or_else(unknown)?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(placeholder(action)?);
            rest = tail;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self { pieces })
    }

    /// The total over everything that the conditions select, as a query with one series for an answer.
    ///
    /// A query that ends in `sum(...) by (...)` is summed over all labels; any other is put into `sum(...)`: the
    /// adapter's answer for each pod or series, added up as the HPA does.
    pub(super) fn total(&self, blanks: Blanks<'_>) -> Result<String, TemplateError> {
        let bound = |piece: &Piece| matches!(piece, Piece::Matchers | Piece::Value(_));
        if !blanks.matchers.is_empty() && !self.pieces.iter().any(bound) {
            return Err(TemplateError::Unbound);
        }
        let mut tree = scope::read(&self.text(blanks)?)?;
        let mut filling = Filling {
            blanks,
            template: self,
            filled: 0,
        };
        filling.expression(&mut tree)?;
        let wanted = self.pieces.iter().filter(|piece| bound(piece)).count();
        if filling.filled != wanted {
            return Err(TemplateError::Place);
        }
        let printed = tree.to_string();
        if scope::read(&printed)? != tree {
            return Err(Refusal::NotReadBack.into());
        }
        summed(tree)
    }

    fn text(&self, blanks: Blanks<'_>) -> Result<String, TemplateError> {
        let mut text = String::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Series => {
                    text.push_str(blanks.series.ok_or(TemplateError::Series)?.as_str());
                }
                Piece::Matchers => text.extend([MATCHERS, "=\"all\""]),
                Piece::GroupBy => {
                    let labels: Vec<&str> = blanks.group_by.iter().map(LabelName::as_str).collect();
                    text.push_str(&labels.join(","));
                }
                Piece::Value(_) => text.extend([VALUE, index.to_string().as_str()]),
            }
        }
        Ok(text)
    }
}

fn placeholder(action: &str) -> Result<Piece, TemplateError> {
    let known = match action.split_whitespace().collect::<Vec<_>>()[..] {
        [".Series"] => Some(Piece::Series),
        [".LabelMatchers"] => Some(Piece::Matchers),
        [".GroupBy"] => Some(Piece::GroupBy),
        ["index", ".LabelValuesByName", label] => unquoted(label).map(Piece::Value),
        [field] => field
            .strip_prefix(".LabelValuesByName.")
            .filter(|label| LabelName::new(label).is_ok())
            .map(|label| Piece::Value(label.to_owned())),
        _ => None,
    };
    known.ok_or_else(|| TemplateError::Placeholder(format!("<<{}>>", excerpt(action))))
}

fn unquoted(word: &str) -> Option<String> {
    let quoted = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    let label = quoted('"').or_else(|| quoted('`'))?;
    LabelName::new(label).ok().map(|_| label.to_owned())
}

/// One query for the answer of one series.
fn summed(mut tree: Expr) -> Result<String, TemplateError> {
    while let Expr::Paren(inner) = tree {
        tree = *inner.expr;
    }
    if let Expr::Aggregate(outer) = &mut tree
        && outer.op.to_string() == "sum"
        && outer.param.is_none()
    {
        outer.modifier = None;
        return Ok(tree.to_string());
    }
    match tree.value_type() {
        ValueType::Vector => Ok(format!("sum({tree})")),
        ValueType::Scalar => Ok(format!("vector({tree})")),
        kind @ (ValueType::Matrix | ValueType::String) => {
            Err(Refusal::NotANumber(kind.to_string()).into())
        }
    }
}

/// The walk over the tree that fills the conditions in.
struct Filling<'a> {
    blanks: Blanks<'a>,
    template: &'a Template,
    filled: usize,
}

impl Filling<'_> {
    fn expression(&mut self, tree: &mut Expr) -> Result<(), TemplateError> {
        match tree {
            Expr::Aggregate(it) => {
                // Where nothing is grouped by, `by ()` is left; it says nothing and is not printed.
                if matches!(&it.modifier, Some(LabelModifier::Include(labels)) if labels.is_empty())
                {
                    it.modifier = None;
                }
                if let Some(parameter) = &mut it.param {
                    self.expression(parameter)?;
                }
                self.expression(&mut it.expr)
            }
            Expr::Unary(it) => self.expression(&mut it.expr),
            Expr::Binary(it) => {
                self.expression(&mut it.lhs)?;
                self.expression(&mut it.rhs)
            }
            Expr::Paren(it) => self.expression(&mut it.expr),
            Expr::Subquery(it) => self.expression(&mut it.expr),
            Expr::Call(it) => it
                .args
                .args
                .iter_mut()
                .try_for_each(|argument| self.expression(argument)),
            Expr::VectorSelector(it) => self.selector(it),
            Expr::MatrixSelector(it) => self.selector(&mut it.vs),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => Ok(()),
        }
    }

    fn selector(&mut self, it: &mut VectorSelector) -> Result<(), TemplateError> {
        let written = std::mem::take(&mut it.matchers.matchers);
        let mut conditions = Vec::new();
        for matcher in written {
            if matcher.name == MATCHERS {
                self.filled += 1;
                conditions.extend(parsed(self.blanks.matchers)?);
            } else if let Some(label) = self.named(&matcher.value) {
                let test = self.value(label, &matcher)?;
                self.filled += 1;
                conditions.extend(parsed(&[Matcher::new(&matcher.name, test)?])?);
            } else {
                conditions.push(matcher);
            }
        }
        // The printer sorts them so; all hold together, and their order means nothing.
        conditions.sort_by_cached_key(ToString::to_string);
        conditions.dedup();
        it.matchers = Matchers {
            matchers: conditions,
            or_matchers: std::mem::take(&mut it.matchers.or_matchers),
        };
        Ok(())
    }

    /// The label whose value a text stands for.
    fn named(&self, value: &str) -> Option<&str> {
        let index = value.strip_prefix(VALUE)?.parse::<usize>().ok()?;
        match self.template.pieces.get(index)? {
            Piece::Value(label) => Some(label),
            _ => None,
        }
    }

    /// What the conditions ask of a label, as the test that the template writes.
    fn value(&self, label: &str, written: &ParsedMatcher) -> Result<Match, TemplateError> {
        let mut conditions = self.blanks.matchers.iter();
        let condition = conditions.find(|matcher| matcher.label().as_str() == label);
        match (condition.map(Matcher::test), &written.op) {
            (Some(test @ Match::Equal(_)), MatchOp::Equal)
            | (Some(test @ Match::Like(_)), MatchOp::Re(_)) => Ok(test.clone()),
            (Some(Match::Equal(value)), MatchOp::Re(_)) => {
                Ok(Match::Like(RegexValue::new().literal(value)))
            }
            _ => Err(TemplateError::Value(label.to_owned())),
        }
    }
}

/// Our conditions as the parser reads them.
fn parsed(matchers: &[Matcher]) -> Result<Vec<ParsedMatcher>, TemplateError> {
    let texts: Vec<String> = matchers.iter().map(ToString::to_string).collect();
    match scope::read(&format!("x{{{}}}", texts.join(",")))? {
        Expr::VectorSelector(selector) => Ok(selector.matchers.matchers),
        _ => Err(Refusal::NotReadBack.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(template: &str) -> Result<String, TemplateError> {
        let series = MetricName::new("requests_total").unwrap();
        let pods = RegexValue::new()
            .pattern("^")
            .literal("a.b")
            .pattern("-[0-9]+$");
        let matchers = [
            Matcher::equal("namespace", "shop").unwrap(),
            Matcher::new("pod", Match::Like(pods)).unwrap(),
            Matcher::equal("path", r#"'x"} or up{a=""#).unwrap(),
        ];
        let group_by = [LabelName::new("pod").unwrap()];
        Template::read(template)?.total(Blanks {
            series: Some(&series),
            matchers: &matchers,
            group_by: &group_by,
        })
    }

    const ALL: &str = r#"namespace="shop",path="'x\"} or up{a=\"",pod=~"^a\\.b-[0-9]+$""#;

    #[test]
    fn the_total_is_over_all_pods_in_the_units_of_the_rule() {
        let table = [
            (
                "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
                format!("sum(requests_total{{{ALL}}})"),
            ),
            (
                "sum by (<< .GroupBy >>) (rate(<<.Series>>{<<.LabelMatchers>>}[5m]))",
                format!("sum(rate(requests_total{{{ALL}}}[5m]))"),
            ),
            (
                "(sum(<<.Series>>{<<.LabelMatchers>>}))",
                format!("sum(requests_total{{{ALL}}})"),
            ),
            (
                "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
                format!("sum(max by (pod) (requests_total{{{ALL}}}))"),
            ),
            (
                "sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
                format!("sum(sum by (pod) (a{{{ALL}}}) / sum by (pod) (b{{{ALL}}}))"),
            ),
            (
                "scalar(sum(<<.Series>>{<<.LabelMatchers>>}))",
                format!("vector(scalar(sum(requests_total{{{ALL}}})))"),
            ),
            (
                "sum(<<.Series>>_sum{<<.LabelMatchers>>,zone='a'})",
                format!("sum(requests_total_sum{{{ALL},zone=\"a\"}})"),
            ),
            (
                r#"sum(x{namespace="<<index .LabelValuesByName "namespace">>",pod=~'<<.LabelValuesByName.pod>>'})"#,
                r#"sum(x{namespace="shop",pod=~"^a\\.b-[0-9]+$"})"#.to_owned(),
            ),
            (
                r"sum(x{path=~'<<index .LabelValuesByName `path`>>'})",
                r#"sum(x{path=~"'x\"\\} or up\\{a=\""})"#.to_owned(),
            ),
        ];
        for (template, expected) in table {
            assert_eq!(total(template), Ok(expected), "{template}");
        }
    }

    #[test]
    fn what_is_not_a_plain_blank_is_refused_and_said() {
        for (template, expected) in [
            (" ", "is missing"),
            ("sum(<<.Series)", "has the placeholder \".Series)\""),
            (
                "sum(<<range .GroupBySlice>>x<<end>>)",
                "has the placeholder \"<<range .GroupBySlice>>\"",
            ),
            ("sum(<<.LabelValuesByName.a-b>>)", "has the placeholder"),
            ("sum(<<.Series | printf \"%s\">>)", "has the placeholder"),
            ("sum(<<.Series>>)", "selects no pods"),
            ("sum(x{a='<<.LabelMatchers>>'})", "has <<.LabelMatchers>>"),
            (
                "label_replace(x, 'a', '<<.LabelMatchers>>', 'b', 'c')",
                "has <<.LabelMatchers>>",
            ),
            ("sum(x) # <<.LabelMatchers>>", "has <<.LabelMatchers>>"),
            (
                r#"sum(x{pod=~"y|<<index .LabelValuesByName "pod">>"})"#,
                "has <<.LabelMatchers>>",
            ),
            (
                r#"sum(x{pod="<<index .LabelValuesByName "pod">>"})"#,
                "compares label \"pod\"",
            ),
            (
                r#"sum(x{pod!~"<<index .LabelValuesByName "pod">>"})"#,
                "compares label \"pod\"",
            ),
            (
                r#"sum(x{a="<<index .LabelValuesByName "zone">>"})"#,
                "compares label \"zone\"",
            ),
            ("<<.Series>>{<<.LabelMatchers>>}[5m]", "the query gives a"),
            ("sum(x{<<.LabelMatchers>>)", "the query cannot be parsed"),
        ] {
            let error = total(template).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{template}: {error}");
        }
    }

    #[test]
    fn whatever_is_asked_the_answer_has_no_labels_that_would_set_it_beside_another() {
        for (text, expected) in [
            ("x", "sum(x)"),
            ("(sum(x) by (pod))", "sum(x)"),
            ("max(x) by (pod)", "sum(max by (pod) (x))"),
            ("x or y", "sum(x or y)"),
            ("sum(x) or sum(y)", "sum(sum(x) or sum(y))"),
            ("1 + 2", "vector(1 + 2)"),
            ("sum(x) / 2", "sum(sum(x) / 2)"),
        ] {
            let tree = scope::read(text).unwrap();
            assert_eq!(summed(tree).unwrap(), expected, "{text}");
        }
    }
}
