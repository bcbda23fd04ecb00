//! Label selectors in text form, as a scale subresource carries them, and what makes one unusable.
//!
//! The grammar is the API's: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, `a>1`,
//! `a<1`, joined by commas. Character sets of keys and values are checked as far as parsing needs it.
//!
//! Source: kubernetes/apimachinery `pkg/labels`; upstream `validateAndParseSelector`.

use std::collections::BTreeMap;

use super::ConditionReason;

/// The labels of one object.
pub type Labels = BTreeMap<String, String>;

/// A parsed label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, Vec<String>),
    /// The label is absent or has none of these values.
    NotIn(String, Vec<String>),
    /// The label is there.
    Exists(String),
    /// The label is not there.
    Absent(String),
    /// The label is an integer greater than this.
    Above(String, i64),
    /// The label is an integer less than this.
    Below(String, i64),
}

/// Why a selector does not tell a workload's pods apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorProblem {
    /// There is none.
    Missing,
    /// It cannot be parsed.
    Unparsable,
    /// Another autoscaler's target selects one of the same pods.
    Ambiguous,
}

impl SelectorProblem {
    /// The reason `ScalingActive` gives.
    #[must_use]
    pub const fn reason(self) -> ConditionReason {
        match self {
            Self::Missing | Self::Unparsable => ConditionReason::InvalidSelector,
            Self::Ambiguous => ConditionReason::AmbiguousSelector,
        }
    }
}

impl Selector {
    /// The selector of a scale subresource.
    ///
    /// # Errors
    ///
    /// [`SelectorProblem::Missing`] for an empty text, [`SelectorProblem::Unparsable`] for one outside
    /// the grammar.
    pub fn parse(text: &str) -> Result<Self, SelectorProblem> {
        if text.trim().is_empty() {
            return Err(SelectorProblem::Missing);
        }
        let requirements = split_outside_parentheses(text).map(requirement);
        requirements
            .collect::<Option<_>>()
            .map(Self)
            .ok_or(SelectorProblem::Unparsable)
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }

    /// Checks that no pod selected by this selector is also selected by one of `others`.
    ///
    /// # Errors
    ///
    /// [`SelectorProblem::Ambiguous`] when there is such a pod.
    pub fn check_alone<'a>(
        &self,
        pods: impl IntoIterator<Item = &'a Labels>,
        others: &[Self],
    ) -> Result<(), SelectorProblem> {
        let mut selected = pods.into_iter().filter(|labels| self.matches(labels));
        if selected.any(|labels| others.iter().any(|other| other.matches(labels))) {
            return Err(SelectorProblem::Ambiguous);
        }
        Ok(())
    }
}

impl FromIterator<Requirement> for Selector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Requirement {
    /// The key of the label it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::Exists(key)
            | Self::Absent(key)
            | Self::Above(key, _)
            | Self::Below(key, _) => key,
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        let number = |key| {
            labels
                .get(key)
                .and_then(|value: &String| value.parse::<i64>().ok())
        };
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::Above(key, than) => number(key).is_some_and(|n| n > *than),
            Self::Below(key, than) => number(key).is_some_and(|n| n < *than),
        }
    }
}

/// The parts between commas that are not inside a value list.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Option<Requirement> {
    let part = part.trim();
    if let Some(key) = part.strip_prefix('!') {
        return Some(Requirement::Absent(label(key)?));
    }
    if let Some((head, list)) = part.split_once('(') {
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let values = list.trim_end().strip_suffix(')')?.split(',');
        let values = values.map(value).collect::<Option<Vec<_>>>()?;
        return match operator {
            "in" => Some(Requirement::In(label(key)?, values)),
            "notin" => Some(Requirement::NotIn(label(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, than)) = part.split_once('>') {
        return Some(Requirement::Above(label(key)?, than.trim().parse().ok()?));
    }
    if let Some((key, than)) = part.split_once('<') {
        return Some(Requirement::Below(label(key)?, than.trim().parse().ok()?));
    }
    if let Some((key, other)) = part.split_once("!=") {
        return Some(Requirement::NotIn(label(key)?, vec![value(other)?]));
    }
    match part.split_once("==").or_else(|| part.split_once('=')) {
        Some((key, other)) => Some(Requirement::In(label(key)?, vec![value(other)?])),
        None => Some(Requirement::Exists(label(part)?)),
    }
}

fn label(key: &str) -> Option<String> {
    value(key).filter(|key| !key.is_empty())
}

/// A value may be empty; a key, which may also have a `/`, may not.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(is_allowed).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_the_api_is_read() {
        let labels = Labels::from([("app".into(), "web".into()), ("n".into(), "5".into())]);
        for (text, want) in [
            ("app=web", Ok(true)),
            ("app==web,n", Ok(true)),
            ("app!=web", Ok(false)),
            ("tier!=db", Ok(true)),
            ("app in (api, web),!tier", Ok(true)),
            ("app notin (api,web)", Ok(false)),
            ("n>4,n<6", Ok(true)),
            ("n>5", Ok(false)),
            ("app=", Ok(false)),
            ("example.com/team=a", Ok(false)),
            ("", Err(SelectorProblem::Missing)),
            ("cheddar cheese", Err(SelectorProblem::Unparsable)),
            ("app=web,", Err(SelectorProblem::Unparsable)),
            ("app in web", Err(SelectorProblem::Unparsable)),
            ("app in (web", Err(SelectorProblem::Unparsable)),
            ("n>x", Err(SelectorProblem::Unparsable)),
            ("!", Err(SelectorProblem::Unparsable)),
        ] {
            assert_eq!(
                Selector::parse(text).map(|s| s.matches(&labels)),
                want,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_pod_of_two_autoscalers_is_ambiguous() -> Result<(), SelectorProblem> {
        let pod = Labels::from([("app".into(), "web".into()), ("team".into(), "a".into())]);
        let mine = Selector::parse("app=web")?;
        let other = Selector::parse("team=a")?;
        assert_eq!(mine.check_alone([&pod], &[]), Ok(()));
        assert_eq!(
            mine.check_alone([&pod], &[other]),
            Err(SelectorProblem::Ambiguous)
        );
        Ok(())
    }
}
