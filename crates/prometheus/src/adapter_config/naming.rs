//! From the name of a metric to the series that a rule derives it from: the adapter's naming, read backwards.
//!
//! The adapter asks Prometheus which series exist and names the metrics of each. Here the few series names that could
//! give the metric are enumerated from the patterns, and each is named forwards again as a check. Where a pattern
//! leaves infinitely many, the series are unknown.
//!
//! ```text
//! name: {matches: "^(.*)_total$", as: "${1}_per_second"}
//! metric requests_per_second -> capture 1 is "requests" -> series requests_total
//! ```

use promql_parser::label::{METRIC_NAME, MatchOp, Matcher};
use promql_parser::parser::Expr;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::fields::{FieldError, Fields};
use crate::{
    promql::{MetricName, excerpt},
    scope,
};

/// Maximum number of names that one pattern may stand for.
const NAMES_MAX: usize = 16;
/// Maximum number of ways in which the name of one metric may be divided among the captures of a pattern.
const SOLUTIONS_MAX: usize = 32;
/// Maximum number of steps of one search: the name of a metric comes from a user, who must not decide how long it
/// takes.
const ATTEMPTS_MAX: usize = 20_000;
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The series that a rule derives a metric from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeriesNames {
    /// Exactly these series; possibly none.
    Known(Vec<MetricName>),
    /// The rule can make the metric, but only Prometheus knows from which series.
    Unknown,
}

/// The naming of one rule.
#[derive(Debug, Clone)]
pub struct Naming {
    /// The matchers of `seriesQuery` on `__name__`.
    name_matchers: Vec<Matcher>,
    filters: Vec<SeriesFilter>,
    /// `name.matches`.
    matches: Pattern,
    /// `name.as`, and the same in parts.
    template: String,
    template_parts: Vec<NamePart>,
}

#[derive(Debug, Clone)]
struct SeriesFilter {
    pattern: Regex,
    wanted: bool,
}

/// A regular expression, to match with and to enumerate the texts that it matches.
#[derive(Debug, Clone)]
struct Pattern {
    regex: Regex,
    tree: Hir,
}

/// A part of `name.as`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NamePart {
    Text(String),
    /// The text that the capture of this number matched.
    Capture(usize),
}

// === impl Naming ===

impl Naming {
    /// Reads `seriesQuery`, `seriesFilters` and `name` of a rule.
    pub fn read(rule: &Fields<'_>) -> Result<Self, FieldError> {
        let name = rule.mapping("name")?;
        let written = match name.string("matches")? {
            "" => ".*",
            pattern => pattern,
        };
        let matches = Pattern::read(written).map_err(|why| name.error("matches", why))?;
        let template = match (name.string("as")?, matches.regex.captures_len()) {
            ("", 1) => "$0",
            ("", 2) => "$1",
            ("", _) => {
                let why = "is missing; it must be given when name.matches has several captures";
                return Err(name.error("as", why));
            }
            (template, _) => template,
        };
        Ok(Self {
            name_matchers: name_matchers(rule)?,
            filters: filters(rule)?,
            template: template.to_owned(),
            template_parts: parse_template(template, &matches.regex),
            matches,
        })
    }

    /// The series that the adapter derives `metric` from.
    pub fn series_of(&self, metric: &str) -> SeriesNames {
        let Some(mut names) = self.candidates(metric) else {
            return SeriesNames::Unknown;
        };
        names.retain(|name| self.metric_of(name).as_deref() == Some(metric));
        names.sort();
        names.dedup();
        let valid = names.iter().filter_map(|name| MetricName::new(name).ok());
        SeriesNames::Known(valid.collect())
    }

    /// The metric that the adapter derives from a series, if the rule selects it.
    fn metric_of(&self, name: &str) -> Option<String> {
        let selected = self.name_matchers.iter().all(|it| it.is_match(name));
        if !selected || !self.filters.iter().all(|it| it.keeps(name)) {
            return None;
        }
        let captures = self.matches.regex.captures(name)?;
        let mut metric = String::new();
        captures.expand(&self.template, &mut metric);
        Some(metric)
    }

    /// A finite set that contains the series of the metric; none if every such set is infinite or too large.
    fn candidates(&self, metric: &str) -> Option<Vec<String>> {
        let finite = self
            .name_matchers
            .iter()
            .find_map(|matcher| match matcher.op {
                MatchOp::Equal => Some(vec![matcher.value.clone()]),
                MatchOp::Re(_) => Pattern::read(&matcher.value)
                    .ok()
                    .and_then(|pattern| matched_texts(&pattern.tree, &[])),
                MatchOp::NotEqual | MatchOp::NotRe(_) => None,
            });
        // No other series is selected by seriesQuery, whatever name.matches would accept.
        if finite.is_some() {
            return finite;
        }
        let mut all = Vec::new();
        for captures in self.captures_of(metric) {
            all.extend(match captures.first() {
                // Capture 0 is the name itself.
                Some(Some(name)) => vec![(*name).to_owned()],
                _ => matched_texts(&self.matches.tree, &captures)?,
            });
        }
        Some(all)
    }

    /// The captures with which `name.as` gives this metric, in every way that the search finds within its limits.
    fn captures_of<'m>(&self, metric: &'m str) -> Vec<Captures<'m>> {
        let mut search = CaptureSearch::default();
        let unbound = vec![None; self.matches.regex.captures_len()];
        search.search(&self.template_parts, metric, unbound);
        search.found
    }
}

// === impl SeriesFilter ===

impl SeriesFilter {
    fn keeps(&self, name: &str) -> bool {
        self.pattern.is_match(name) == self.wanted
    }
}

// === impl Pattern ===

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

/// The matchers of `seriesQuery` on the name of the series. The other matchers only select which series the adapter
/// lists.
fn name_matchers(rule: &Fields<'_>) -> Result<Vec<Matcher>, FieldError> {
    const FIELD: &str = "seriesQuery";
    let text = rule.string(FIELD)?;
    if text.len() > scope::BYTES_MAX {
        let why = format!("is longer than {} bytes", scope::BYTES_MAX);
        return Err(rule.error(FIELD, why));
    }
    let selector = match scope::parse(text) {
        Ok(Expr::VectorSelector(selector)) if selector.matchers.or_matchers.is_empty() => selector,
        Ok(_) => {
            let why = r#"expected one series selector, as in http_requests_total{pod!=""}"#;
            return Err(rule.error(FIELD, why));
        }
        Err(error) => return Err(rule.error(FIELD, error.to_string())),
    };
    let mut matchers = selector.matchers.matchers;
    matchers.retain(|matcher| matcher.name == METRIC_NAME);
    let name = selector.name.as_deref();
    matchers.extend(name.map(|name| Matcher::new(MatchOp::Equal, METRIC_NAME, name)));
    Ok(matchers)
}

fn filters(rule: &Fields<'_>) -> Result<Vec<SeriesFilter>, FieldError> {
    let mut filters = Vec::new();
    for filter in rule.list("seriesFilters")? {
        let filter = filter?;
        let (field, wanted) = match (filter.string("is")?, filter.string("isNot")?) {
            ("", "") => {
                return Err(FieldError::new(
                    filter.path(),
                    "expected `is` or `isNot`, found neither",
                ));
            }
            (_, "") => ("is", true),
            ("", _) => ("isNot", false),
            _ => {
                return Err(FieldError::new(
                    filter.path(),
                    "expected `is` or `isNot`, found both",
                ));
            }
        };
        let pattern =
            Pattern::read(filter.string(field)?).map_err(|why| filter.error(field, why))?;
        filters.push(SeriesFilter {
            pattern: pattern.regex,
            wanted,
        });
    }
    Ok(filters)
}

/// Parses `name.as` like Go's `Regexp.Expand` and the regex crate: `$name` is as long as possible, `$$` is a dollar
/// sign, and a capture that does not exist is empty.
fn parse_template(template: &str, matches: &Regex) -> Vec<NamePart> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('$') {
        parts.push(NamePart::Text(text.to_owned()));
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let braced = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, tail) = match braced {
            Some(braced) => braced,
            None => after.split_at(end.unwrap_or(after.len())),
        };
        rest = tail;
        if name.is_empty() {
            parts.push(NamePart::Text("$".to_owned()));
            rest = after.strip_prefix('$').unwrap_or(after);
        } else if let Some(number) = capture(name, matches) {
            parts.push(NamePart::Capture(number));
        }
    }
    parts.push(NamePart::Text(rest.to_owned()));
    parts.retain(|piece| *piece != NamePart::Text(String::new()));
    parts
}

fn capture(name: &str, matches: &Regex) -> Option<usize> {
    let number = match name.parse::<usize>() {
        Ok(number) => Some(number),
        Err(_) => matches.capture_names().position(|it| it == Some(name)),
    };
    number.filter(|number| *number < matches.captures_len())
}

/// Text that each capture matched, by its number; none where it is not known.
type Captures<'m> = Vec<Option<&'m str>>;

/// A depth-first search for the captures that give a name.
#[derive(Default)]
struct CaptureSearch<'m> {
    found: Vec<Captures<'m>>,
    attempts: usize,
}

impl<'m> CaptureSearch<'m> {
    fn search(&mut self, parts: &[NamePart], rest: &'m str, captures: Captures<'m>) {
        self.attempts += 1;
        if self.found.len() >= SOLUTIONS_MAX || self.attempts > ATTEMPTS_MAX {
            return;
        }
        match parts {
            [] if rest.is_empty() => self.found.push(captures),
            [] => {}
            [NamePart::Text(text), parts @ ..] => {
                if let Some(rest) = rest.strip_prefix(text.as_str()) {
                    self.search(parts, rest, captures);
                }
            }
            // The last one takes all that is left.
            [NamePart::Capture(number)] => {
                if let Some(captures) = with_capture(captures, *number, rest) {
                    self.search(&[], "", captures);
                }
            }
            [NamePart::Capture(number), parts @ ..] => {
                let ends = rest.char_indices().map(|(at, _)| at);
                for end in ends.chain([rest.len()]) {
                    // Each call returns at once then, but every level of the search would still finish its loop.
                    if self.attempts > ATTEMPTS_MAX {
                        return;
                    }
                    let (value, rest) = rest.split_at(end);
                    if let Some(captures) = with_capture(captures.clone(), *number, value) {
                        self.search(parts, rest, captures);
                    }
                }
            }
        }
    }
}

/// The captures with one more value; none if that capture has another value already.
fn with_capture<'m>(
    mut captures: Captures<'m>,
    number: usize,
    value: &'m str,
) -> Option<Captures<'m>> {
    let slot = captures.get_mut(number)?;
    if slot.is_some_and(|before| before != value) {
        return None;
    }
    *slot = Some(value);
    Some(captures)
}

/// Every text that a pattern matches as a whole with these captures; none if there are too many.
fn matched_texts(tree: &Hir, captures: &[Option<&str>]) -> Option<Vec<String>> {
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(vec![String::new()]),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            Some(vec![text.to_owned()])
        }
        HirKind::Class(class) => characters(class),
        HirKind::Repetition(repetition) => {
            let most = usize::try_from(repetition.max?).ok()?;
            let least = usize::try_from(repetition.min).ok()?;
            let once = matched_texts(&repetition.sub, captures)?;
            let mut all = Vec::new();
            // Limited because of the cost. With a larger maximum the result is incomplete, and dropped below.
            for times in least..=most.min(NAMES_MAX) {
                all.extend(concatenations(std::iter::repeat_n(&once, times))?);
            }
            limited(all).filter(|_| most <= NAMES_MAX)
        }
        HirKind::Capture(capture) => {
            let index = usize::try_from(capture.index).ok()?;
            match captures.get(index).copied().flatten() {
                Some(value) => Some(vec![value.to_owned()]),
                None => matched_texts(&capture.sub, captures),
            }
        }
        HirKind::Concat(parts) => {
            let texts = parts.iter().map(|part| matched_texts(part, captures));
            concatenations(texts.collect::<Option<Vec<_>>>()?.iter())
        }
        HirKind::Alternation(choices) => {
            let texts = choices.iter().map(|choice| matched_texts(choice, captures));
            limited(texts.collect::<Option<Vec<_>>>()?.concat())
        }
    }
}

fn characters(class: &Class) -> Option<Vec<String>> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let characters = class.iter().flat_map(|range| range.start()..=range.end());
    limited(characters.take(NAMES_MAX + 1).map(String::from).collect())
}

fn concatenations<'a>(parts: impl Iterator<Item = &'a Vec<String>>) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    for part in parts {
        let longer = all
            .iter()
            .flat_map(|head| part.iter().map(move |tail| format!("{head}{tail}")));
        all = limited(longer.take(NAMES_MAX + 1).collect())?;
    }
    Some(all)
}

fn limited(names: Vec<String>) -> Option<Vec<String>> {
    (names.len() <= NAMES_MAX).then_some(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn naming(rule: &serde_json::Value) -> Result<Naming, FieldError> {
        Naming::read(&Fields::root(rule).unwrap())
    }

    fn series_of(rule: &serde_json::Value, metric: &str) -> Option<Vec<String>> {
        match naming(rule).unwrap().series_of(metric) {
            SeriesNames::Known(names) => {
                Some(names.iter().map(|name| name.as_str().to_owned()).collect())
            }
            SeriesNames::Unknown => None,
        }
    }

    /// A rule whose parts of `name` are left out where they are empty.
    fn rule(query: &str, matches: &str, template: &str) -> serde_json::Value {
        let mut rule = json!({"seriesQuery": query});
        for (field, text) in [("matches", matches), ("as", template)] {
            if !text.is_empty() {
                rule["name"][field] = json!(text);
            }
        }
        rule
    }

    fn filtered(filter: &serde_json::Value) -> serde_json::Value {
        json!({"seriesQuery": ANY, "seriesFilters": [filter]})
    }

    /// Checks the names of the series, separated by blanks.
    fn assert_series(rule: &serde_json::Value, metric: &str, expected: &str) {
        let names = series_of(rule, metric).unwrap();
        assert_eq!(names.join(" "), expected, "{metric} by {rule}");
    }

    const ANY: &str = r#"{namespace!=""}"#;

    #[test]
    fn a_series_query_that_names_its_series_needs_no_pattern() {
        for (query, template, metric, expected) in [
            ("a_total", "", "a_total", "a_total"),
            (r#"{__name__="a_total"}"#, "b", "b", "a_total"),
            (r#"a{x="y"}"#, "b", "a", ""),
            (r#"{__name__=~"^a_count$"}"#, "mine", "mine", "a_count"),
            (r#"{__name__=~"a|b"}"#, "mine", "mine", "a b"),
        ] {
            assert_series(&rule(query, "", template), metric, expected);
        }
    }

    #[test]
    fn a_series_is_derived_from_the_captures_of_the_metric() {
        for (matches, template, metric, expected) in [
            ("", "", "queue", "queue"),
            ("^(.*)_total$", "", "x", "x_total"),
            ("^(.*)_total$", "${1}_rate", "x_rate", "x_total"),
            ("^(.*)_total$", "${1}_rate", "x", ""),
            ("^(?P<head>.*)_total$", "rate:$head", "rate:x", "x_total"),
            ("^(.*)_(total|sum)$", "$1", "x", "x_sum x_total"),
            ("^(.+)_(.+)_total$", "${2}_${1}", "b_a", "a_b_total"),
            ("^x_?y[ab]$", "", "xya", "xya"),
            ("^a{2}$", "doubled", "doubled", "aa"),
        ] {
            assert_series(&rule(ANY, matches, template), metric, expected);
        }
    }

    #[test]
    fn a_series_must_match_the_query_and_the_filters_of_the_rule() {
        let http = rule(r#"{__name__=~"^http_.*"}"#, "^(.*)_total$", "");
        let no_container = rule(r#"{__name__!~"^container_.*",n!=""}"#, "", "");
        for (rule, metric, expected) in [
            (http, "x", ""),
            (no_container, "container_x", ""),
            (filtered(&json!({"isNot": "_total$"})), "x_total", ""),
            (filtered(&json!({"is": "^http_"})), "http_x", "http_x"),
            (rule(ANY, "", ""), "not-a-series", ""),
        ] {
            assert_series(&rule, metric, expected);
        }
    }

    #[test]
    fn an_unbounded_set_of_series_is_unknown() {
        let lossy = |template| rule(ANY, "^(.*)_(.*)_total$", template);
        assert_eq!(series_of(&lossy("requests"), "requests"), None);
        assert_eq!(series_of(&lossy("$1"), "requests"), None);
        assert_eq!(series_of(&lossy("requests"), "other").unwrap(), [""; 0]);
        let wide = rule(ANY, "^x_[a-z]$", "x");
        assert_eq!(series_of(&wide, "x"), None);
    }

    #[test]
    fn an_invalid_field_is_reported_with_its_path() {
        let of_type = json!({"seriesQuery": 3});
        let of_list = json!({"seriesQuery": "x", "name": []});
        for (rule, field, why) in [
            (rule("sum(x)", "", ""), "seriesQuery", "expected one series"),
            (rule("{", "", ""), "seriesQuery", "the query cannot be"),
            (json!({}), "seriesQuery", "the query cannot be parsed"),
            (of_type, "seriesQuery", "expected a string, found a number"),
            (rule("x", "(", ""), "name.matches", "expected a regular"),
            (rule("x", "(a)(b)", ""), "name.as", "is missing"),
            (of_list, "name", "expected a mapping of fields"),
            (filtered(&json!({})), "seriesFilters[0]", "expected `is` or"),
            (
                filtered(&json!({"is": "["})),
                "seriesFilters[0].is",
                "expected a regular",
            ),
        ] {
            let error = naming(&rule).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field}: {why}")), "{error}");
        }
    }

    #[test]
    fn the_search_ends_for_a_long_name_that_does_not_fit() {
        let rule = rule(ANY, "(a*)(a*)(a*)(a*)(a*)(a*)", "$1$2$3$4$5${6}_b");
        let naming = naming(&rule).unwrap();
        let name = "a".repeat(200);
        let mut search = CaptureSearch::default();
        search.search(&naming.template_parts, &name, vec![None; 7]);
        assert_eq!(search.found, Vec::<Vec<Option<&str>>>::new());
        assert!(search.attempts <= ATTEMPTS_MAX + 1, "{}", search.attempts);
    }
}
