//! Matchers that the administrator writes for the built-in queries of resources.

use promql_parser::{
    label::{METRIC_NAME, MatchOp, Matcher as ParsedMatcher},
    parser::Expr,
};

use super::{
    super::promql::{BuildError, Match, Matcher, RegexValue, excerpt},
    error::AdmitError,
    parse::parse,
    tenant::is_tenant_label,
};

/// Reasons why matchers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatchersError {
    /// Not a list of matchers.
    #[error("expected matchers such as job=\"kubelet\",endpoint=~\"https.*\", found {0:?}")]
    Form(String),
    /// A matcher on the namespace or the metric.
    #[error("label {0:?} is not accepted: every query has its own matcher for it")]
    Taken(String),
    /// A label or value that a query cannot hold.
    #[error(transparent)]
    Matcher(#[from] BuildError),
    /// Text that cannot be parsed.
    #[error(transparent)]
    Query(#[from] AdmitError),
}

/// Reads matchers as `PromQL` writes them between braces.
///
/// # Errors
/// [`MatchersError`], which names what is accepted.
pub fn matchers(text: &str) -> Result<Vec<Matcher>, MatchersError> {
    // Braces would end the selector that the text is read in.
    let Expr::VectorSelector(selector) = parse(&format!("x{{{text}}}"))? else {
        return Err(MatchersError::Form(excerpt(text)));
    };
    let is_plain = selector.offset.is_none() && selector.at.is_none();
    if !is_plain || !selector.matchers.or_matchers.is_empty() || text.trim().is_empty() {
        return Err(MatchersError::Form(excerpt(text)));
    }
    selector.matchers.matchers.iter().map(built).collect()
}

fn built(parsed: &ParsedMatcher) -> Result<Matcher, MatchersError> {
    if parsed.name == METRIC_NAME || parsed.name == "pod" || is_tenant_label(&parsed.name) {
        return Err(MatchersError::Taken(parsed.name.clone()));
    }
    let value = parsed.value.clone();
    let test = match parsed.op {
        MatchOp::Equal => Match::Equal(value),
        MatchOp::NotEqual => Match::NotEqual(value),
        MatchOp::Re(_) => Match::Like(RegexValue::written(&value)),
        MatchOp::NotRe(_) => Match::Unlike(RegexValue::written(&value)),
    };
    Ok(Matcher::new(&parsed.name, test)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metric, QueryDefaults, WorkloadRef, queries::built_in};

    #[test]
    fn matchers_are_added_to_the_queries_of_resources() {
        let text = r#" job="kubelet", metrics_path!="/m",endpoint=~"https.*",a!~'b"c' "#;
        let defaults = QueryDefaults {
            resource_matchers: matchers(text).unwrap(),
            ..QueryDefaults::default()
        };
        let workload = WorkloadRef {
            namespace: "shop",
            kind: "StatefulSet",
            name: "web",
            pods: None,
        };
        let query = built_in(workload, Metric::Resource { name: "memory" }, &defaults).unwrap();
        assert_eq!(
            query.as_str(),
            r#"sum(container_memory_working_set_bytes{namespace="shop",pod=~"^web-[0-9]+$",container!="",job="kubelet",metrics_path!="/m",endpoint=~"https.*",a!~"b\"c"})"#
        );
    }

    #[test]
    fn what_is_no_list_of_matchers_is_refused() {
        for text in [
            "",
            "kubelet",
            "job",
            r#"job="a"} or up{job="b""#,
            r#"job="a"} offset 5m #"#,
            r#"job="a" or job="b""#,
            r#"namespace="other""#,
            r#"pod="a""#,
            r#"__name__="up""#,
            r#""a b"="c""#,
            r#"a=~"\\w{99}""#,
        ] {
            assert!(matchers(text).is_err(), "{text}");
        }
    }
}
