//! From the name that a metric has in the API to the series that a rule makes it of: the adapter's naming read
//! backwards. The adapter asks the server which series there are and names them; here the few names that could give
//! the metric are worked out from the patterns, and each is named forwards again before it is believed. Refuses to
//! guess where a pattern leaves infinitely many.

use promql_parser::label::{METRIC_NAME, MatchOp, Matcher};
use promql_parser::parser::Expr;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::file::{Fault, Fields};
use crate::adapters::prometheus::{
    promql::{MetricName, excerpt},
    scope,
};

/// The most names that one pattern may stand for.
const NAMES_MAX: usize = 16;
/// The most ways in which one metric's name may be split over the captures of a pattern.
const SPLITS_MAX: usize = 32;
/// How many attempts at a split are made: who names a metric does not choose how long that takes.
const ATTEMPTS_MAX: usize = 20_000;
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Which series make a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Series {
    /// Those of these names, and no others; possibly none.
    Named(Vec<MetricName>),
    /// The rule can make the metric, but of which series only the server knows.
    Unknown,
}

/// The naming of one rule.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    /// What `seriesQuery` asks of `__name__`.
    series: Vec<Matcher>,
    filters: Vec<Filter>,
    matches: Pattern,
    shape: Vec<Piece>,
    written: String,
}

#[derive(Debug, Clone)]
struct Filter {
    pattern: Regex,
    wanted: bool,
}

/// A regular expression, to match with and to read backwards.
#[derive(Debug, Clone)]
struct Pattern {
    regex: Regex,
    tree: Hir,
}

/// A part of `as`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What the capture of that number matched.
    Capture(usize),
}

// === impl Naming ===

impl Naming {
    /// Reads `seriesQuery`, `seriesFilters` and `name` of a rule.
    pub(super) fn read(rule: &Fields<'_>) -> Result<Self, Fault> {
        let name = rule.fields("name")?;
        let matches = match name.text("matches")? {
            "" => ".*",
            pattern => pattern,
        };
        let matches = Pattern::read(matches).map_err(|why| name.fault("matches", why))?;
        let written = match (name.text("as")?, matches.regex.captures_len()) {
            ("", 1) => "$0",
            ("", 2) => "$1",
            ("", _) => {
                let why = "is missing; it must be given when name.matches has several captures";
                return Err(name.fault("as", why));
            }
            (written, _) => written,
        };
        Ok(Self {
            series: series(rule)?,
            filters: filters(rule)?,
            shape: shape(written, &matches.regex),
            matches,
            written: written.to_owned(),
        })
    }

    /// The series that the adapter would show as `metric`.
    pub(super) fn series_of(&self, metric: &str) -> Series {
        let Some(mut names) = self.candidates(metric) else {
            return Series::Unknown;
        };
        names.retain(|name| self.shown_as(name).as_deref() == Some(metric));
        names.sort();
        names.dedup();
        let valid = |name: String| MetricName::new(&name).ok();
        Series::Named(names.into_iter().filter_map(valid).collect())
    }

    /// What the adapter calls a series, if the rule is about it.
    fn shown_as(&self, name: &str) -> Option<String> {
        let selected = self.series.iter().all(|matcher| matcher.is_match(name));
        let kept = |filter: &Filter| filter.pattern.is_match(name) == filter.wanted;
        if !selected || !self.filters.iter().all(kept) {
            return None;
        }
        let captures = self.matches.regex.captures(name)?;
        let mut shown = String::new();
        captures.expand(&self.written, &mut shown);
        Some(shown)
    }

    /// Names among which those of the metric are, or nothing when there is no end of them.
    fn candidates(&self, metric: &str) -> Option<Vec<String>> {
        let finite = self.series.iter().find_map(|matcher| match matcher.op {
            MatchOp::Equal => Some(vec![matcher.value.clone()]),
            MatchOp::Re(_) => Pattern::read(&matcher.value)
                .ok()
                .and_then(|pattern| names(&pattern.tree, &[])),
            MatchOp::NotEqual | MatchOp::NotRe(_) => None,
        });
        if finite.is_some() {
            return finite;
        }
        let mut all = Vec::new();
        for bound in self.splits(metric) {
            all.extend(match bound.first() {
                Some(Some(whole)) => vec![(*whole).to_owned()],
                _ => names(&self.matches.tree, &bound)?,
            });
        }
        Some(all)
    }

    /// Every way in which `as` gives this metric, as what each capture matched.
    /// Those of the first attempts, if it takes very many.
    fn splits<'m>(&self, metric: &'m str) -> Vec<Vec<Option<&'m str>>> {
        let mut splits = Splits::default();
        let bound = vec![None; self.matches.regex.captures_len()];
        splits.split(&self.shape, metric, bound);
        splits.found
    }
}

impl Pattern {
    fn read(pattern: &str) -> Result<Self, String> {
        let unusable = || {
            let shown = excerpt(pattern);
            format!("expected a regular expression of RE2 syntax, found {shown:?}")
        };
        let tree = regex_syntax::parse(pattern).map_err(|_| unusable())?;
        let regex = RegexBuilder::new(pattern)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|_| unusable())?;
        Ok(Self { regex, tree })
    }
}

/// What `seriesQuery` says about the name of the series; its other conditions only tell the adapter what exists.
fn series(rule: &Fields<'_>) -> Result<Vec<Matcher>, Fault> {
    const FIELD: &str = "seriesQuery";
    let text = rule.text(FIELD)?;
    if text.len() > scope::BYTES_MAX {
        let why = format!("is longer than {} bytes", scope::BYTES_MAX);
        return Err(rule.fault(FIELD, why));
    }
    let selector = match scope::read(text) {
        Ok(Expr::VectorSelector(selector)) if selector.matchers.or_matchers.is_empty() => selector,
        Ok(_) => {
            let why = r#"expected one series selector, as in http_requests_total{pod!=""}"#;
            return Err(rule.fault(FIELD, why));
        }
        Err(refusal) => return Err(rule.fault(FIELD, refusal.to_string())),
    };
    let mut conditions = selector.matchers.matchers;
    conditions.retain(|matcher| matcher.name == METRIC_NAME);
    let name = selector.name.as_deref();
    conditions.extend(name.map(|name| Matcher::new(MatchOp::Equal, METRIC_NAME, name)));
    Ok(conditions)
}

fn filters(rule: &Fields<'_>) -> Result<Vec<Filter>, Fault> {
    let mut filters = Vec::new();
    for filter in rule.each("seriesFilters")? {
        let filter = filter?;
        let (field, wanted) = match (filter.text("is")?, filter.text("isNot")?) {
            ("", "") => {
                return Err(Fault::new(
                    filter.at(),
                    "expected `is` or `isNot`, found neither",
                ));
            }
            (_, "") => ("is", true),
            ("", _) => ("isNot", false),
            _ => {
                return Err(Fault::new(
                    filter.at(),
                    "expected `is` or `isNot`, found both",
                ));
            }
        };
        let pattern = Pattern::read(filter.text(field)?).map_err(|why| filter.fault(field, why))?;
        filters.push(Filter {
            pattern: pattern.regex,
            wanted,
        });
    }
    Ok(filters)
}

/// Takes `as` apart as `Regexp.Expand` of Go does, and the regex crate: `$name` is as long as it can be, `$$` is a
/// dollar, and a capture that does not exist is nothing.
fn shape(written: &str, matches: &Regex) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = written;
    while let Some((text, after)) = rest.split_once('$') {
        pieces.push(Piece::Text(text.to_owned()));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, tail) = match braced {
            Some(braced) => braced,
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        rest = tail;
        if name.is_empty() {
            pieces.push(Piece::Text("$".to_owned()));
            rest = after.strip_prefix('$').unwrap_or(after);
        } else if let Some(number) = capture(name, matches) {
            pieces.push(Piece::Capture(number));
        }
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    pieces
}

fn capture(name: &str, matches: &Regex) -> Option<usize> {
    let number = match name.parse::<usize>() {
        Ok(number) => Some(number),
        Err(_) => matches.capture_names().position(|it| it == Some(name)),
    };
    number.filter(|number| *number < matches.captures_len())
}

/// The ways found so far in which a name may be split, and how many were tried.
#[derive(Default)]
struct Splits<'m> {
    found: Vec<Vec<Option<&'m str>>>,
    attempts: usize,
}

impl<'m> Splits<'m> {
    fn split(&mut self, shape: &[Piece], rest: &'m str, bound: Vec<Option<&'m str>>) {
        self.attempts += 1;
        if self.found.len() >= SPLITS_MAX || self.attempts > ATTEMPTS_MAX {
            return;
        }
        match shape {
            [] if rest.is_empty() => self.found.push(bound),
            [] => {}
            [Piece::Text(text), shape @ ..] => {
                if let Some(rest) = rest.strip_prefix(text.as_str()) {
                    self.split(shape, rest, bound);
                }
            }
            // The last one takes all that is left.
            [Piece::Capture(number)] => self.bind(&[], (*number, rest, ""), bound),
            [Piece::Capture(number), shape @ ..] => {
                let ends = rest.char_indices().map(|(at, _)| at);
                for end in ends.chain([rest.len()]) {
                    if self.attempts > ATTEMPTS_MAX {
                        return;
                    }
                    let (value, rest) = rest.split_at(end);
                    self.bind(shape, (*number, value, rest), bound.clone());
                }
            }
        }
    }

    fn bind(
        &mut self,
        shape: &[Piece],
        (number, value, rest): (usize, &'m str, &'m str),
        mut bound: Vec<Option<&'m str>>,
    ) {
        let Some(slot) = bound.get_mut(number) else {
            return;
        };
        if slot.is_none_or(|before| before == value) {
            *slot = Some(value);
            self.split(shape, rest, bound);
        }
    }
}

/// Every text that a pattern matches whole when its captures matched what is bound; nothing when there are too many.
fn names(tree: &Hir, bound: &[Option<&str>]) -> Option<Vec<String>> {
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(vec![String::new()]),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            Some(vec![text.to_owned()])
        }
        HirKind::Class(class) => letters(class),
        HirKind::Repetition(repetition) => {
            let most = usize::try_from(repetition.max?).ok()?;
            let least = usize::try_from(repetition.min).ok()?;
            let once = names(&repetition.sub, bound)?;
            let mut all = Vec::new();
            for times in least..=most.min(NAMES_MAX) {
                all.extend(product(std::iter::repeat_n(&once, times))?);
            }
            few(all).filter(|_| most <= NAMES_MAX)
        }
        HirKind::Capture(capture) => {
            let index = usize::try_from(capture.index).ok()?;
            match bound.get(index).copied().flatten() {
                Some(value) => Some(vec![value.to_owned()]),
                None => names(&capture.sub, bound),
            }
        }
        HirKind::Concat(parts) => {
            let parts = parts.iter().map(|part| names(part, bound));
            product(parts.collect::<Option<Vec<_>>>()?.iter())
        }
        HirKind::Alternation(choices) => {
            let choices = choices.iter().map(|choice| names(choice, bound));
            few(choices.collect::<Option<Vec<_>>>()?.concat())
        }
    }
}

fn letters(class: &Class) -> Option<Vec<String>> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let letters = class.iter().flat_map(|range| range.start()..=range.end());
    few(letters.take(NAMES_MAX + 1).map(String::from).collect())
}

fn product<'a>(parts: impl Iterator<Item = &'a Vec<String>>) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    for part in parts {
        let longer = all
            .iter()
            .flat_map(|head| part.iter().map(move |tail| format!("{head}{tail}")));
        all = few(longer.take(NAMES_MAX + 1).collect())?;
    }
    Some(all)
}

fn few(names: Vec<String>) -> Option<Vec<String>> {
    (names.len() <= NAMES_MAX).then_some(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn naming(rule: &serde_json::Value) -> Result<Naming, Fault> {
        Naming::read(&Fields::root(rule).unwrap())
    }

    fn series_of(rule: &serde_json::Value, metric: &str) -> Option<Vec<String>> {
        match naming(rule).unwrap().series_of(metric) {
            Series::Named(names) => {
                Some(names.iter().map(|name| name.as_str().to_owned()).collect())
            }
            Series::Unknown => None,
        }
    }

    fn believed(table: &[(serde_json::Value, &str, &[&str])]) {
        for (rule, metric, expected) in table {
            let names = series_of(rule, metric).unwrap();
            assert_eq!(names, *expected, "{metric} by {rule}");
        }
    }

    #[test]
    fn a_series_that_is_named_needs_no_reading_backwards() {
        let table = [
            (
                json!({"seriesQuery": "http_requests_total"}),
                "http_requests_total",
                &["http_requests_total"][..],
            ),
            (
                json!({"seriesQuery": r#"{__name__="a_total"}"#, "name": {"as": "b"}}),
                "b",
                &["a_total"],
            ),
            (
                json!({"seriesQuery": r#"a{x="y"}"#, "name": {"as": "b"}}),
                "a",
                &[],
            ),
            (
                json!({"seriesQuery": r#"{__name__=~"^some_count$"}"#, "name": {"as": "mine"}}),
                "mine",
                &["some_count"],
            ),
            (
                json!({"seriesQuery": r#"{__name__=~"a|b"}"#, "name": {"as": "mine"}}),
                "mine",
                &["a", "b"],
            ),
        ];
        believed(&table);
    }

    #[test]
    fn captures_are_read_backwards() {
        let any = r#"{namespace!=""}"#;
        let table = [
            (json!({"seriesQuery": any}), "queue", &["queue"][..]),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(.*)_total$"}}),
                "x",
                &["x_total"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"}}),
                "x_per_second",
                &["x_total"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"}}),
                "x",
                &[],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(?P<head>.*)_total$", "as": "rate:$head"}}),
                "rate:x",
                &["x_total"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(.*)_(total|sum)$", "as": "$1"}}),
                "x",
                &["x_sum", "x_total"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^(.+)_(.+)_total$", "as": "${2}_${1}"}}),
                "b_a",
                &["a_b_total"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^x_?y[ab]$"}}),
                "xya",
                &["xya"],
            ),
            (
                json!({"seriesQuery": any, "name": {"matches": "^a{2}$", "as": "doubled"}}),
                "doubled",
                &["aa"],
            ),
        ];
        believed(&table);
    }

    #[test]
    fn conditions_on_the_name_hold_before_a_series_is_believed() {
        let any = r#"{namespace!=""}"#;
        let table = [
            (
                json!({"seriesQuery": r#"{__name__=~"^http_.*"}"#, "name": {"matches": "^(.*)_total$"}}),
                "x",
                &[][..],
            ),
            (
                json!({"seriesQuery": r#"{__name__!~"^container_.*",n!=""}"#}),
                "container_x",
                &[],
            ),
            (
                json!({"seriesQuery": any, "seriesFilters": [{"isNot": "_total$"}]}),
                "x_total",
                &[],
            ),
            (
                json!({"seriesQuery": any, "seriesFilters": [{"is": "^http_"}]}),
                "http_x",
                &["http_x"],
            ),
            (json!({"seriesQuery": any}), "not-a-series", &[]),
        ];
        believed(&table);
    }

    #[test]
    fn what_only_the_server_can_tell_is_not_guessed() {
        let lossy = |as_: &str| json!({"seriesQuery": r#"{namespace!=""}"#, "name": {"matches": "^(.*)_(.*)_total$", "as": as_}});
        assert_eq!(series_of(&lossy("requests"), "requests"), None);
        assert_eq!(series_of(&lossy("$1"), "requests"), None);
        assert_eq!(series_of(&lossy("requests"), "other").unwrap(), [""; 0]);
        let wide = json!({"seriesQuery": "{n!=\"\"}", "name": {"matches": "^x_[a-z]$", "as": "x"}});
        assert_eq!(series_of(&wide, "x"), None);
    }

    #[test]
    fn a_field_that_cannot_be_read_is_named() {
        let table = [
            (
                json!({"seriesQuery": "sum(x)"}),
                "seriesQuery: expected one series selector",
            ),
            (
                json!({"seriesQuery": "{"}),
                "seriesQuery: the query cannot be parsed",
            ),
            (json!({}), "seriesQuery: the query cannot be parsed"),
            (
                json!({"seriesQuery": 3}),
                "seriesQuery: expected a text, found a number",
            ),
            (
                json!({"seriesQuery": "x", "name": {"matches": "("}}),
                "name.matches: expected a regular expression",
            ),
            (
                json!({"seriesQuery": "x", "name": {"matches": "(a)(b)"}}),
                "name.as: is missing",
            ),
            (
                json!({"seriesQuery": "x", "name": []}),
                "name: expected a mapping of fields, found a list",
            ),
            (
                json!({"seriesQuery": "x", "seriesFilters": [{}]}),
                "seriesFilters[0]: expected `is` or `isNot`",
            ),
            (
                json!({"seriesQuery": "x", "seriesFilters": [{"is": "["}]}),
                "seriesFilters[0].is: expected a regular",
            ),
        ];
        for (rule, expected) in table {
            let fault = naming(&rule).unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn a_long_name_that_does_not_fit_is_given_up_on() {
        let rule = json!({
            "seriesQuery": r#"{namespace!=""}"#,
            "name": {"matches": "(a*)(a*)(a*)(a*)(a*)(a*)", "as": "$1$2$3$4$5${6}_b"},
        });
        let naming = naming(&rule).unwrap();
        let name = "a".repeat(200);
        let mut splits = Splits::default();
        splits.split(&naming.shape, &name, vec![None; 7]);
        assert_eq!(splits.found, Vec::<Vec<Option<&str>>>::new());
        assert!(splits.attempts <= ATTEMPTS_MAX + 1, "{}", splits.attempts);
    }
}
