//! Label selectors in the form of a query (`a=b,c in (d,e),!f`). It reads what Kubernetes clients write, and does not
//! validate.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector, SelectorExt as _};

/// Whether the labels meet every requirement of the selector; an empty selector matches all.
pub(super) fn matches(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = requirements(selector).into_iter().map(expression);
    expressions.collect::<Selector>().matches(labels)
}

/// Splits at the commas that are not inside parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = selector.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn expression(requirement: &str) -> Expression {
    let set = |list: &str| -> BTreeSet<String> {
        list.trim()
            .trim_matches(['(', ')'])
            .split(',')
            .map(|one| one.trim().to_owned())
            .collect()
    };
    let own = |text: &str| text.trim().to_owned();
    if let Some((key, list)) = requirement.split_once(" notin ") {
        Expression::NotIn(own(key), set(list))
    } else if let Some((key, list)) = requirement.split_once(" in ") {
        Expression::In(own(key), set(list))
    } else if let Some((key, value)) = requirement.split_once("!=") {
        Expression::NotEqual(own(key), own(value))
    } else if let Some((key, value)) = requirement.split_once('=') {
        Expression::Equal(own(key), own(value.trim_start_matches('=')))
    } else if let Some(key) = requirement.strip_prefix('!') {
        Expression::DoesNotExist(own(key))
    } else {
        Expression::Exists(own(requirement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let labels = BTreeMap::from([("a", "b"), ("c", "d")])
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let met = [
            "",
            "a=b",
            "a==b,c=d",
            "a!=x",
            "c in (x, d)",
            "c notin (x,y),a",
            "!z",
        ];
        let missed = [
            "a=x",
            "a=b,c=x",
            "a!=b",
            "c in (x,y)",
            "c notin (d)",
            "z",
            "!a",
        ];
        let outcome = |all: &[&'static str]| -> Vec<_> {
            all.iter()
                .filter(|selector| matches(selector, &labels))
                .copied()
                .collect()
        };
        assert_eq!(outcome(&met), met);
        assert_eq!(outcome(&missed), Vec::<&str>::new());
    }
}
