//! Label selectors in their text form, as `status.selector` of a scale has them.
//!
//! Reads the grammar of `kubectl -l`: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`,
//! joined by commas. It matches sets of labels and refuses to check their spelling: the API server did.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector};

/// Parses a selector; the empty text selects everything.
///
/// # Errors
/// One sentence saying what was expected where.
pub(super) fn parse(text: &str) -> Result<Vec<Expression>, String> {
    requirements(text)
        .map(|piece| requirement(piece).ok_or_else(|| complaint(piece, text)))
        .collect()
}

/// The text form of a `LabelSelector`.
///
/// # Errors
/// One sentence naming the operator that is not known.
pub(super) fn text(selector: LabelSelector) -> Result<String, String> {
    Selector::try_from(selector)
        .map(|selector| selector.to_string())
        .map_err(|error| format!("{error}; expected the operators In, NotIn, Exists, DoesNotExist"))
}

/// Whether labels, looked up by `label`, satisfy a requirement.
pub(super) fn matches<'a>(
    requirement: &Expression,
    label: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    match requirement {
        Expression::Equal(key, value) => label(key) == Some(value),
        Expression::NotEqual(key, value) => label(key) != Some(value),
        Expression::In(key, values) => label(key).is_some_and(|v| values.contains(v)),
        Expression::NotIn(key, values) => label(key).is_none_or(|v| !values.contains(v)),
        Expression::Exists(key) => label(key).is_some(),
        Expression::DoesNotExist(key) => label(key).is_none(),
    }
}

/// Splits at the commas outside of parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let pieces = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    pieces
        .map(str::trim)
        .filter(move |piece| !(piece.is_empty() && text.trim().is_empty()))
}

fn requirement(piece: &str) -> Option<Expression> {
    if let Some(key) = piece.strip_prefix('!') {
        return Some(Expression::DoesNotExist(word(key)?));
    }
    if let Some((head, values)) = piece.strip_suffix(')').and_then(|p| p.split_once('(')) {
        return set(head, values);
    }
    if let Some((key, value)) = piece.split_once("!=") {
        return Some(Expression::NotEqual(word(key)?, value_of(value)?));
    }
    if let Some((key, value)) = piece.split_once("==").or_else(|| piece.split_once('=')) {
        return Some(Expression::Equal(word(key)?, value_of(value)?));
    }
    Some(Expression::Exists(word(piece)?))
}

fn set(head: &str, values: &str) -> Option<Expression> {
    let mut words = head.split_whitespace();
    let (key, operator) = (word(words.next()?)?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let values = values.split(',').map(value_of).collect::<Option<_>>()?;
    match operator {
        "in" => Some(Expression::In(key, values)),
        "notin" => Some(Expression::NotIn(key, values)),
        _ => None,
    }
}

fn word(text: &str) -> Option<String> {
    value_of(text).filter(|word| !word.is_empty())
}

/// A label value: it may be empty, but holds nothing that belongs to the grammar.
fn value_of(text: &str) -> Option<String> {
    let text = text.trim();
    let foreign = |c: char| c.is_whitespace() || "=!(),".contains(c);
    (!text.contains(foreign)).then(|| text.to_owned())
}

fn complaint(piece: &str, text: &str) -> String {
    format!(
        "'{piece}' in the label selector '{text}'; expected a=b, a!=b, a in (b,c), a notin (b,c), a or !a"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_selector_selects_the_labels_that_kubectl_would_select() {
        let web = [("app", "web"), ("tier", "front"), ("empty", "")];
        for (text, want) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , tier=front", true),
            ("app=api", false),
            ("app!=api", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("app in (api,web)", true),
            ("app in (api)", false),
            ("missing in (api)", false),
            ("app notin (api, db)", true),
            ("app notin (web)", false),
            ("missing notin (web)", true),
            ("tier", true),
            ("missing", false),
            ("!missing", true),
            ("!tier", false),
            ("empty=", true),
            ("empty in (,x)", true),
            ("app=web,tier in (front,back),!canary,empty", true),
            ("app=web,tier in (front,back),canary", false),
        ] {
            let labels: BTreeMap<_, _> = web.into();
            let parsed = parse(text).unwrap();
            let all = parsed
                .iter()
                .all(|r| matches(r, |key| labels.get(key).copied()));
            assert_eq!(all, want, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_selector_is_refused_with_the_piece_that_is_wrong() {
        for text in [
            "=b",
            "a=b=c",
            "a b",
            "a in b",
            "a in (b",
            "a near (b)",
            "a=b,,c",
            "!",
            ",",
            "a in b (c)",
        ] {
            let complaint = parse(text).unwrap_err();
            assert!(
                complaint.contains(&format!("selector '{text}'; expected a=b")),
                "{complaint}"
            );
        }
    }

    #[test]
    fn a_label_selector_keeps_its_meaning_as_text() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "track", "operator": "NotIn", "values": ["canary"]},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        let shown = text(selector).unwrap();
        assert_eq!(shown, "app=web,tier in (a,b),track notin (canary),x,!y");
        assert_eq!(parse(&shown).unwrap().len(), 5);
    }
}
