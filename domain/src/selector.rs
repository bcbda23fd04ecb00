//! Label selectors in their text form, as `kubectl -l` and the `status.selector` of a scale subresource write them.
//!
//! | text | selects objects whose label `a` |
//! |---|---|
//! | `a=b`, `a==b`, `a!=b` | is, or is not, `b` |
//! | `a in (b,c)`, `a notin (b,c)` | is, or is not, one of these |
//! | `a`, `!a` | exists, or does not |
//! | `a>1`, `a<1` | is an integer above, or below, this |
//!
//! Requirements are joined by commas and must all hold. Keys and values are checked for the characters of the grammar,
//! not for their length: the API server did that when it stored the selector.
//!
//! Source: kubernetes/apimachinery `pkg/labels`.

use std::{collections::BTreeMap, str::FromStr};

/// The labels of one object.
pub type Labels = BTreeMap<String, String>;

/// A label selector: all requirements must hold. Without requirements it selects everything.
///
/// ```
/// use foretide_domain::{Labels, Selector};
///
/// let selector: Selector = "app=web,tier in (front,back),!canary".parse()?;
/// let labels = |text: &[(&str, &str)]| -> Labels {
///     text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
/// };
/// assert!(selector.matches(&labels(&[("app", "web"), ("tier", "front")])));
/// assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "front"), ("canary", "")])));
/// # Ok::<(), foretide_domain::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// One requirement of a selector.
///
/// ```
/// use foretide_domain::{Requirement, Selector};
///
/// let selector: Selector = "app=web".parse()?;
/// assert_eq!(selector.requirements(), [Requirement::Equal("app".into(), "web".into())]);
/// # Ok::<(), foretide_domain::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The label has this value.
    Equal(String, String),
    /// The label is absent or has another value.
    NotEqual(String, String),
    /// The label has one of these values.
    In(String, Vec<String>),
    /// The label is absent or has none of these values.
    NotIn(String, Vec<String>),
    /// The label exists.
    Exists(String),
    /// The label does not exist.
    DoesNotExist(String),
    /// The label is an integer greater than this.
    GreaterThan(String, i64),
    /// The label is an integer less than this.
    LessThan(String, i64),
}

/// A text that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid requirement '{requirement}' in the label selector '{selector}'; expected a=b, a!=b, a in (b,c), \
     a notin (b,c), a, !a, a>1 or a<1"
)]
pub struct ParseSelectorError {
    /// The requirement that cannot be parsed.
    pub requirement: String,
    /// The whole text of the selector.
    pub selector: String,
}

// === impl Selector ===

impl Selector {
    /// The requirements, in the order of the text.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Returns true if an object with these labels is selected.
    ///
    /// As in Kubernetes, `!=` and `notin` also select objects without the label, and `>` and `<` none whose label is
    /// not an integer.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_by(|key| labels.get(key).map(String::as_str))
    }

    /// Returns true if an object whose labels are looked up by `label` is selected.
    ///
    /// For labels that are not stored as [`Labels`], such as those of an object that is only borrowed.
    ///
    /// ```
    /// use foretide_domain::Selector;
    ///
    /// let selector: Selector = "zone!=a,cores>4".parse()?;
    /// let label = |key: &str| (key == "cores").then_some("8");
    /// assert!(selector.matches_by(label));
    /// # Ok::<(), foretide_domain::ParseSelectorError>(())
    /// ```
    pub fn matches_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(&label))
    }
}

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        if text.trim().is_empty() {
            // As upstream: no requirement, which every object fulfills.
            return Ok(Self::default());
        }
        split_outside_parentheses(text)
            .map(|part| {
                requirement(part).ok_or_else(|| ParseSelectorError {
                    requirement: part.trim().to_owned(),
                    selector: text.to_owned(),
                })
            })
            .collect()
    }
}

impl FromIterator<Requirement> for Selector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

// === impl Requirement ===

impl Requirement {
    /// The key of the label.
    pub fn key(&self) -> &str {
        match self {
            Self::Equal(key, _)
            | Self::NotEqual(key, _)
            | Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::Exists(key)
            | Self::DoesNotExist(key)
            | Self::GreaterThan(key, _)
            | Self::LessThan(key, _) => key,
        }
    }

    fn holds<'a>(&self, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(self.key());
        match self {
            Self::Equal(_, wanted) => value == Some(wanted),
            Self::NotEqual(_, unwanted) => value != Some(unwanted),
            Self::In(_, wanted) => is_among(value, wanted),
            Self::NotIn(_, unwanted) => !is_among(value, unwanted),
            Self::Exists(_) => value.is_some(),
            Self::DoesNotExist(_) => value.is_none(),
            Self::GreaterThan(_, bound) => integer(value).is_some_and(|n| n > *bound),
            Self::LessThan(_, bound) => integer(value).is_some_and(|n| n < *bound),
        }
    }
}

fn is_among(value: Option<&str>, values: &[String]) -> bool {
    value.is_some_and(|value| values.iter().any(|v| v == value))
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// The parts between commas that are not inside a value list.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    // The values of `in (b,c)` are separated by commas too.
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Option<Requirement> {
    let part = part.trim();
    if let Some(absent) = part.strip_prefix('!') {
        return Some(Requirement::DoesNotExist(key(absent)?));
    }
    if let Some((head, list)) = part.split_once('(') {
        let (label, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let values = list.trim_end().strip_suffix(')')?.split(',');
        let values = values.map(value).collect::<Option<Vec<_>>>()?;
        return match operator {
            "in" => Some(Requirement::In(key(label)?, values)),
            "notin" => Some(Requirement::NotIn(key(label)?, values)),
            _ => None,
        };
    }
    if let Some((label, bound)) = part.split_once('>') {
        return Some(Requirement::GreaterThan(
            key(label)?,
            bound.trim().parse().ok()?,
        ));
    }
    if let Some((label, bound)) = part.split_once('<') {
        return Some(Requirement::LessThan(
            key(label)?,
            bound.trim().parse().ok()?,
        ));
    }
    if let Some((label, other)) = part.split_once("!=") {
        return Some(Requirement::NotEqual(key(label)?, value(other)?));
    }
    // `==` first: at the first `=` the value would begin with the second one.
    match part.split_once("==").or_else(|| part.split_once('=')) {
        Some((label, equal)) => Some(Requirement::Equal(key(label)?, value(equal)?)),
        None => Some(Requirement::Exists(key(part)?)),
    }
}

/// A key: not empty, and with a `/` after its prefix if it has one.
fn key(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.chars().all(is_of_key)).then(|| text.to_owned())
}

/// A value, which may be empty.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    text.chars().all(is_of_value).then(|| text.to_owned())
}

fn is_of_key(c: char) -> bool {
    c == '/' || is_of_value(c)
}

fn is_of_value(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_selects_the_labels_that_kubectl_selects() {
        let labels = [("app", "web"), ("tier", "front"), ("empty", ""), ("n", "5")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,n", true),
            ("app = web , tier=front", true),
            ("app=api", false),
            ("app=", false),
            ("app!=api", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("app in (api, web),!missing", true),
            ("app in (api)", false),
            ("missing in (api)", false),
            ("app notin (api, db)", true),
            ("app notin (api,web)", false),
            ("missing notin (web)", true),
            ("tier", true),
            ("missing", false),
            ("!missing", true),
            ("!tier", false),
            ("empty=", true),
            ("empty in (,x)", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>1", false),
            ("example.com/team=a", false),
            ("app=web,tier in (front,back),!canary,empty", true),
            ("app=web,tier in (front,back),canary", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels.clone().into()), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_selector_is_refused_with_its_invalid_requirement() {
        for (text, invalid) in [
            ("=b", "=b"),
            ("a=b=c", "a=b=c"),
            ("x, a b", "a b"),
            ("cheddar cheese", "cheddar cheese"),
            ("a in b", "a in b"),
            ("a in (b", "a in (b"),
            ("a near (b)", "a near (b)"),
            ("a=b,,c", ""),
            ("app=web,", ""),
            ("!", "!"),
            (",", ""),
            ("a in b (c)", "a in b (c)"),
            ("a=b/c", "a=b/c"),
            ("n>x", "n>x"),
        ] {
            let error = text.parse::<Selector>().unwrap_err();
            assert_eq!(error.requirement, invalid, "{text}");
            let expected = format!("in the label selector '{text}'; expected a=b, a!=b");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}
