//! `metricsQuery` and `containerQuery` of a rule: a query with placeholders.
//!
//! The adapter fills placeholders in as text. Here only checked names are filled in as text. Values that come from an
//! object are put into the parsed tree, where a matcher can only be a matcher. Other uses of Go templates are rejected.
//!
//! ```text
//! sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
//! sum(rate(http_requests_total{namespace="shop",pod=~"^web-[0-9]+$"}[5m]))
//! ```

use promql_parser::label::{MatchOp, Matcher as ParsedMatcher, Matchers};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{Expr, VectorSelector};

use crate::{
    promql::{BuildError, LabelName, Match, Matcher, MetricName, RegexValue, excerpt},
    scope::{self, AdmitError},
};

/// Stands for the matchers while the query is parsed. It cannot be confused with one of them, whose label names must
/// not begin with `__`.
const MATCHERS: &str = "__foretide_matchers__";
/// Stands, with a number, for one value.
const VALUE: &str = "__foretide_value__";

/// A query with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Series,
    Matchers,
    GroupBy,
    /// The value that the matchers require of this label.
    Value(String),
}

/// Values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub struct TemplateArgs<'a> {
    /// The series; none in a resource rule, whose query names its own.
    pub series: Option<&'a MetricName>,
    /// Matchers that select the series of the workload or object.
    pub matchers: &'a [Matcher],
    /// The labels by which the adapter separates several objects.
    pub group_by: &'a [LabelName],
}

/// Reasons why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Empty, or white space only.
    #[error("is missing")]
    Empty,
    /// Longer than the limit.
    #[error("has {0} bytes; at most {max} are accepted", max = scope::BYTES_MAX)]
    TooLong(usize),
    /// An unknown placeholder.
    #[error(
        "has the placeholder {0:?}; known are <<.Series>>, <<.LabelMatchers>>, <<.GroupBy>> and \
         <<index .LabelValuesByName \"label\">>"
    )]
    Placeholder(String),
    /// `<<.Series>>` in a resource rule.
    #[error("has the placeholder <<.Series>>, which has no value in a resource rule")]
    SeriesInResourceRule,
    /// A placeholder outside the matchers of a selector.
    #[error(
        "has <<.LabelMatchers>> or <<index .LabelValuesByName ...>> outside the matchers of a series; \
         expected it as in x{{<<.LabelMatchers>>}} or x{{pod=~\"<<index .LabelValuesByName \"pod\">>\"}}"
    )]
    Misplaced,
    /// `<<index .LabelValuesByName "x">>` for a label without a value, or with an operator that the matcher of that
    /// label does not have.
    #[error("compares label {0:?} in a way that the selector of this metric does not allow")]
    Value(String),
    /// A query without matchers: it would be the same for every workload.
    #[error("selects no pods: the placeholder <<.LabelMatchers>> is missing")]
    Unbound,
    /// The query is not accepted.
    #[error(transparent)]
    Query(#[from] AdmitError),
    /// A value that a query cannot hold.
    #[error(transparent)]
    Build(#[from] BuildError),
}

// === impl QueryTemplate ===

impl QueryTemplate {
    /// Parses a template.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        if text.trim().is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > scope::BYTES_MAX {
            return Err(TemplateError::TooLong(text.len()));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("<<") {
            let Some((action, tail)) = after.split_once(">>") else {
                return Err(TemplateError::Placeholder(excerpt(after)));
            };
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(placeholder(action)?);
            rest = tail;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Self { parts })
    }

    /// The query for the total over everything that the matchers select; its result is one series without labels.
    ///
    /// A query of the form `sum(...) by (...)` is summed over all labels instead. Any other is put into `sum(...)`: the
    /// adapter's value of each pod or series, added up as the HPA does.
    pub fn total_query(&self, args: TemplateArgs<'_>) -> Result<String, TemplateError> {
        let parts = &self.parts;
        if !args.matchers.is_empty() && !parts.iter().any(TemplatePart::takes_matchers) {
            return Err(TemplateError::Unbound);
        }
        let mut tree = scope::parse(&self.text(args)?)?;
        let mut substitution = Substitution {
            args,
            template: self,
            filled: 0,
        };
        scope::each_expression(&mut tree, 0, &mut |node, _| substitution.node(node))?;
        let wanted = parts.iter().filter(|it| it.takes_matchers()).count();
        if substitution.filled != wanted {
            return Err(TemplateError::Misplaced);
        }
        let printed = tree.to_string();
        if scope::parse(&printed)? != tree {
            return Err(AdmitError::NotReadBack.into());
        }
        as_total(tree)
    }

    fn text(&self, args: TemplateArgs<'_>) -> Result<String, TemplateError> {
        let mut text = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                TemplatePart::Text(part) => text.push_str(part),
                TemplatePart::Series => {
                    text.push_str(
                        args.series
                            .ok_or(TemplateError::SeriesInResourceRule)?
                            .as_str(),
                    );
                }
                // With a value, because the parser accepts matchers only.
                TemplatePart::Matchers => text.extend([MATCHERS, "=\"all\""]),
                TemplatePart::GroupBy => {
                    let labels: Vec<&str> = args.group_by.iter().map(LabelName::as_str).collect();
                    text.push_str(&labels.join(","));
                }
                TemplatePart::Value(_) => text.extend([VALUE, index.to_string().as_str()]),
            }
        }
        Ok(text)
    }
}

// === impl TemplatePart ===

impl TemplatePart {
    fn takes_matchers(&self) -> bool {
        matches!(self, Self::Matchers | Self::Value(_))
    }
}

fn placeholder(action: &str) -> Result<TemplatePart, TemplateError> {
    match action.split_whitespace().collect::<Vec<_>>()[..] {
        [".Series"] => Some(TemplatePart::Series),
        [".LabelMatchers"] => Some(TemplatePart::Matchers),
        [".GroupBy"] => Some(TemplatePart::GroupBy),
        ["index", ".LabelValuesByName", label] => unquoted(label).map(TemplatePart::Value),
        [field] => field
            .strip_prefix(".LabelValuesByName.")
            .filter(|label| LabelName::new(label).is_ok())
            .map(|label| TemplatePart::Value(label.to_owned())),
        _ => None,
    }
    .ok_or_else(|| TemplateError::Placeholder(format!("<<{}>>", excerpt(action))))
}

fn unquoted(word: &str) -> Option<String> {
    let quoted = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    let label = quoted('"').or_else(|| quoted('`'))?;
    LabelName::new(label).ok().map(|_| label.to_owned())
}

/// A query whose result is one series without labels.
fn as_total(mut tree: Expr) -> Result<String, TemplateError> {
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
        // Queries of several rules are joined by `or`, which takes vectors only.
        ValueType::Scalar => Ok(format!("vector({tree})")),
        kind @ (ValueType::Matrix | ValueType::String) => {
            Err(AdmitError::NotANumber(kind.to_string()).into())
        }
    }
}

/// Puts the matchers into the selectors of a tree.
struct Substitution<'a> {
    args: TemplateArgs<'a>,
    template: &'a QueryTemplate,
    filled: usize,
}

impl Substitution<'_> {
    fn node(&mut self, node: &mut Expr) -> Result<(), TemplateError> {
        // An empty <<.GroupBy>> leaves `by ()`.
        if let Expr::Aggregate(it) = node {
            scope::drop_empty_grouping(it);
        }
        scope::selector(node).map_or(Ok(()), |it| self.selector(it))
    }

    fn selector(&mut self, it: &mut VectorSelector) -> Result<(), TemplateError> {
        let template = std::mem::take(&mut it.matchers.matchers);
        let mut matchers = Vec::new();
        for matcher in template {
            if matcher.name == MATCHERS {
                self.filled += 1;
                matchers.extend(scope::parsed(self.args.matchers)?);
            } else if let Some(label) = self.label_behind(&matcher.value) {
                let test = self.value_test(label, &matcher)?;
                self.filled += 1;
                matchers.extend(scope::parsed(&[Matcher::new(&matcher.name, test)?])?);
            } else {
                matchers.push(matcher);
            }
        }
        // In the order of the printer, so that the printed text parses as the same tree; the order has no meaning.
        matchers.sort_by_cached_key(ToString::to_string);
        matchers.dedup();
        it.matchers = Matchers {
            matchers,
            or_matchers: std::mem::take(&mut it.matchers.or_matchers),
        };
        Ok(())
    }

    /// The label whose value this text stands for.
    fn label_behind(&self, value: &str) -> Option<&str> {
        let index = value.strip_prefix(VALUE)?.parse::<usize>().ok()?;
        match self.template.parts.get(index)? {
            TemplatePart::Value(label) => Some(label),
            _ => None,
        }
    }

    /// Condition that the matchers put on a label, as a test with the operator of the template.
    fn value_test(&self, label: &str, written: &ParsedMatcher) -> Result<Match, TemplateError> {
        let mut matchers = self.args.matchers.iter();
        let matcher = matchers.find(|matcher| matcher.label().as_str() == label);
        match (matcher.map(Matcher::test), &written.op) {
            (Some(test @ Match::Equal(_)), MatchOp::Equal)
            | (Some(test @ Match::Like(_)), MatchOp::Re(_)) => Ok(test.clone()),
            (Some(Match::Equal(value)), MatchOp::Re(_)) => {
                Ok(Match::Like(RegexValue::new().literal(value)))
            }
            _ => Err(TemplateError::Value(label.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total_query(template: &str) -> Result<String, TemplateError> {
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
        QueryTemplate::read(template)?.total_query(TemplateArgs {
            series: Some(&series),
            matchers: &matchers,
            group_by: &group_by,
        })
    }

    const ALL: &str = r#"namespace="shop",path="'x\"} or up{a=\"",pod=~"^a\\.b-[0-9]+$""#;

    #[test]
    fn the_total_is_summed_over_all_pods_in_the_unit_of_the_rule() {
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
            assert_eq!(total_query(template), Ok(expected), "{template}");
        }
    }

    #[test]
    fn unsupported_and_misplaced_placeholders_are_rejected_with_the_reason() {
        let range = "has the placeholder \"<<range .GroupBySlice>>\"";
        let has = "has <<.LabelMatchers>>";
        let [pod, zone] = ["compares label \"pod\"", "compares label \"zone\""];
        for (template, expected) in [
            (" ", "is missing"),
            ("sum(<<.Series)", "has the placeholder \".Series)\""),
            ("sum(<<range .GroupBySlice>>x<<end>>)", range),
            ("sum(<<.LabelValuesByName.a-b>>)", "has the placeholder"),
            ("sum(<<.Series | printf \"%s\">>)", "has the placeholder"),
            ("sum(<<.Series>>)", "selects no pods"),
            ("sum(x{a='<<.LabelMatchers>>'})", has),
            ("label_replace(x, 'a', '<<.LabelMatchers>>', 'b', 'c')", has),
            ("sum(x) # <<.LabelMatchers>>", has),
            (
                r#"sum(x{pod=~"y|<<index .LabelValuesByName "pod">>"})"#,
                has,
            ),
            (r#"sum(x{pod="<<index .LabelValuesByName "pod">>"})"#, pod),
            (r#"sum(x{pod!~"<<index .LabelValuesByName "pod">>"})"#, pod),
            (r#"sum(x{a="<<index .LabelValuesByName "zone">>"})"#, zone),
            ("<<.Series>>{<<.LabelMatchers>>}[5m]", "the query gives a"),
            ("sum(x{<<.LabelMatchers>>)", "the query cannot be parsed"),
        ] {
            let error = total_query(template).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{template}: {error}");
        }
    }

    #[test]
    fn every_total_is_one_series_without_labels() {
        for (text, expected) in [
            ("x", "sum(x)"),
            ("(sum(x) by (pod))", "sum(x)"),
            ("max(x) by (pod)", "sum(max by (pod) (x))"),
            ("x or y", "sum(x or y)"),
            ("sum(x) or sum(y)", "sum(sum(x) or sum(y))"),
            ("1 + 2", "vector(1 + 2)"),
            ("sum(x) / 2", "sum(sum(x) / 2)"),
        ] {
            let tree = scope::parse(text).unwrap();
            assert_eq!(as_total(tree).unwrap(), expected, "{text}");
        }
    }
}
