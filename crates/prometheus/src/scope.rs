//! Queries that users write, restricted to the namespace of their object, so that no tenant reads the numbers of
//! another through a replica count.
//!
//! The text is parsed, whatever could read outside the namespace is rejected, the namespace is added to every selector,
//! and the result is printed from the tree, so that comments and quoting tricks do not survive. Access to the server
//! itself is left to the server, or to a proxy in front of it.
//!
//! ```text
//! sum(rate(http_requests_total{job="web"}[5m]))
//! sum(rate(http_requests_total{job="web",namespace="shop"}[5m]))
//! ```

mod error;
mod matchers;
mod parse;
mod patterns;
mod tenant;

use std::time::Duration;

use promql_parser::label::{METRIC_NAME, MatchOp, Matcher, Matchers};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinModifier, BinaryExpr, Call, Expr, LabelModifier, Offset, VectorSelector,
};

pub use self::error::AdmitError;
pub use self::error::BYTES_MAX;
use self::error::{BYTES_MAX_UNSCOPED, DEPTH_MAX, SELECTORS_MAX};
pub use self::matchers::{MatchersError, matchers};
pub use self::parse::parse;
pub use self::tenant::{NAMESPACE, Tenant, is_tenant_label};
use super::promql::{LabelName, Matcher as BuiltMatcher, MetricName, Query, excerpt};

/// The series that a query of a user may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromqlScope {
    /// The namespace of its object only.
    #[default]
    Namespace,
    /// Every series: for clusters with one tenant.
    Any,
}

/// Checks a query that a user wrote, and returns the query to send.
///
/// Under [`PromqlScope::Namespace`] every selector of the result has the matcher `namespace="<namespace>"`;
/// ranges and offsets reach back no further than `history`. Under [`PromqlScope::Any`] only emptiness and length
/// (16 KiB) are checked.
///
/// # Errors
/// [`AdmitError`], which names what is accepted.
pub fn admit(
    text: &str,
    namespace: &str,
    history: Duration,
    scope: PromqlScope,
) -> Result<Query, AdmitError> {
    let label = NAMESPACE;
    admit_for(text, Tenant { label, namespace }, history, scope)
}

/// Checks a query as [`admit`] does, where a label that the administrator named holds the namespace.
pub fn admit_for(
    text: &str,
    tenant: Tenant<'_>,
    history: Duration,
    scope: PromqlScope,
) -> Result<Query, AdmitError> {
    let text = text.trim();
    let limit = match scope {
        PromqlScope::Namespace => BYTES_MAX,
        PromqlScope::Any => BYTES_MAX_UNSCOPED,
    };
    if text.is_empty() {
        return Err(AdmitError::Empty);
    }
    if text.len() > limit {
        return Err(AdmitError::TooLong {
            bytes: text.len(),
            limit,
        });
    }
    match scope {
        PromqlScope::Any => Ok(Query::admitted(text.to_owned())),
        PromqlScope::Namespace => restrict(text, tenant, history),
    }
}

fn restrict(text: &str, tenant: Tenant<'_>, history: Duration) -> Result<Query, AdmitError> {
    let mut tree = parse(text)?;
    let mut guard = NamespaceGuard {
        tenant,
        history,
        selectors: 0,
    };
    each_expression(&mut tree, 0, &mut |node, depth| guard.check(node, depth))?;
    if let kind @ (ValueType::Matrix | ValueType::String) = tree.value_type() {
        return Err(AdmitError::NotANumber(kind.to_string()));
    }
    print(&tree)
}

/// The tree as text, if the parser reads the same tree back.
pub fn print(tree: &Expr) -> Result<Query, AdmitError> {
    let printed = tree.to_string();
    match parse(&printed) {
        // A printer that lost a part of the tree might lose the namespace.
        Ok(again) if again == *tree => Ok(Query::admitted(printed)),
        _ => Err(AdmitError::NotReadBack),
    }
}

/// The same query over the series of one member cluster: the matcher is added to every selector.
///
/// # Errors
/// The query was admitted unparsed ([`PromqlScope::Any`]), and cannot be parsed or is too large.
pub fn with_matcher(query: &Query, matcher: &BuiltMatcher) -> Result<Query, AdmitError> {
    let added = parsed(std::slice::from_ref(matcher))?;
    let mut tree = parse(query.as_str())?;
    each_expression(&mut tree, 0, &mut |node, _| {
        if let Some(selector) = selector(node) {
            let matchers = &mut selector.matchers.matchers;
            matchers.extend(added.iter().cloned());
            // In the order of the printer, so that the printed text parses as the same tree; the order has no meaning.
            matchers.sort_by_cached_key(ToString::to_string);
            matchers.dedup();
            for alternative in &mut selector.matchers.or_matchers {
                alternative.extend(added.iter().cloned());
            }
        }
        Ok::<_, AdmitError>(())
    })?;
    print(&tree)
}

/// Visits every node of a tree before what is inside it, with its depth. The visitor of the parser would skip the
/// parameter of `topk(parameter, ...)`.
///
/// # Errors
/// The first one of `visit`.
pub fn each_expression<E>(
    tree: &mut Expr,
    depth: usize,
    visit: &mut impl FnMut(&mut Expr, usize) -> Result<(), E>,
) -> Result<(), E> {
    visit(tree, depth)?;
    let mut below = |tree: &mut Expr| each_expression(tree, depth + 1, visit);
    match tree {
        Expr::Aggregate(it) => {
            if let Some(parameter) = &mut it.param {
                below(parameter)?;
            }
            below(&mut it.expr)
        }
        Expr::Unary(it) => below(&mut it.expr),
        Expr::Binary(it) => {
            below(&mut it.lhs)?;
            below(&mut it.rhs)
        }
        Expr::Paren(it) => below(&mut it.expr),
        Expr::Subquery(it) => below(&mut it.expr),
        Expr::Call(it) => {
            let mut arguments = it.args.args.iter_mut();
            arguments.try_for_each(|argument| below(argument))
        }
        Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Extension(_) => Ok(()),
    }
}

/// The selector of a node, if it is one.
pub fn selector(node: &mut Expr) -> Option<&mut VectorSelector> {
    match node {
        Expr::VectorSelector(it) => Some(it),
        Expr::MatrixSelector(it) => Some(&mut it.vs),
        _ => None,
    }
}

/// Drops an empty `by ()`, as the printer does: the printed text would not parse as the same tree.
pub fn drop_empty_grouping(it: &mut AggregateExpr) {
    if matches!(&it.modifier, Some(LabelModifier::Include(labels)) if labels.is_empty()) {
        it.modifier = None;
    }
}

/// Matchers as the parser represents them.
pub fn parsed(matchers: &[BuiltMatcher]) -> Result<Vec<Matcher>, AdmitError> {
    let texts: Vec<_> = matchers.iter().map(ToString::to_string).collect();
    match parse(&format!("x{{{}}}", texts.join(",")))? {
        Expr::VectorSelector(selector) => Ok(selector.matchers.matchers),
        _ => Err(AdmitError::NotReadBack),
    }
}

/// Rejects the nodes of a tree that are not accepted, and adds the namespace to every selector.
struct NamespaceGuard<'a> {
    tenant: Tenant<'a>,
    history: Duration,
    selectors: usize,
}

impl NamespaceGuard<'_> {
    fn check(&mut self, node: &mut Expr, depth: usize) -> Result<(), AdmitError> {
        if depth > DEPTH_MAX {
            return Err(AdmitError::TooDeep);
        }
        match node {
            Expr::Aggregate(it) => self.aggregate(it),
            Expr::Binary(it) => binary(it),
            Expr::Call(it) => self.call(it),
            Expr::VectorSelector(it) => self.selector(it),
            Expr::MatrixSelector(it) => {
                self.check_range(it.range)?;
                self.selector(&mut it.vs)
            }
            Expr::Unary(_) | Expr::Paren(_) | Expr::NumberLiteral(_) | Expr::StringLiteral(_) => {
                Ok(())
            }
            Expr::Subquery(_) => Err(AdmitError::Subquery),
            Expr::Extension(_) => Err(AdmitError::Syntax("unknown expression".to_owned())),
        }
    }

    fn aggregate(&self, it: &mut AggregateExpr) -> Result<(), AdmitError> {
        drop_empty_grouping(it);
        for label in it.modifier.iter().flat_map(|it| &it.labels().labels) {
            check_label(label)?;
        }
        let mut parameter = it.param.iter();
        parameter.try_for_each(|argument| self.reject_tenant_label(&it.op.to_string(), argument))
    }

    fn call(&self, it: &Call) -> Result<(), AdmitError> {
        // `info` joins series that its arguments do not select.
        if it.func.name == "info" {
            return Err(AdmitError::Function("info".to_owned()));
        }
        let mut arguments = it.args.args.iter();
        arguments.try_for_each(|argument| self.reject_tenant_label(it.func.name, argument))
    }

    fn selector(&mut self, it: &mut VectorSelector) -> Result<(), AdmitError> {
        self.selectors += 1;
        if self.selectors > SELECTORS_MAX {
            return Err(AdmitError::TooManySelectors);
        }
        if it.at.is_some() {
            return Err(AdmitError::At);
        }
        match it.offset {
            Some(Offset::Neg(_)) => return Err(AdmitError::NegativeOffset),
            Some(Offset::Pos(back)) => self.check_range(back)?,
            None => {}
        }
        check_metric(it)?;
        self.bind(&mut it.matchers)
    }

    fn bind(&self, matchers: &mut Matchers) -> Result<(), AdmitError> {
        if !matchers.or_matchers.is_empty() {
            return Err(AdmitError::OrMatchers);
        }
        let written = matchers.matchers.iter();
        for matcher in written.filter(|it| it.name != METRIC_NAME) {
            check_label(&matcher.name)?;
            let own = matcher.op == MatchOp::Equal && matcher.value == self.tenant.namespace;
            if self.is_tenant_label(&matcher.name) && !own {
                let (label, own) = (matcher.name.clone(), self.tenant.namespace.to_owned());
                return Err(AdmitError::Namespace { label, own });
            }
        }
        matchers
            .matchers
            // What is left on this label is equality with the namespace, which is added below.
            .retain(|matcher| matcher.name != self.tenant.label);
        matchers.matchers.push(Matcher::new(
            MatchOp::Equal,
            self.tenant.label,
            self.tenant.namespace,
        ));
        // In the order of the printer, so that the printed text parses as the same tree; the order has no meaning.
        matchers.matchers.sort_by_cached_key(ToString::to_string);
        Ok(())
    }

    /// Rejects functions that write labels (`label_replace`, `label_join`, `count_values`) if they write that of the
    /// namespace.
    fn reject_tenant_label(&self, function: &str, argument: &Expr) -> Result<(), AdmitError> {
        match argument {
            Expr::Paren(it) => self.reject_tenant_label(function, &it.expr),
            Expr::StringLiteral(it) if self.is_tenant_label(&it.val) => Err(AdmitError::Function(
                format!("{function} on label {:?}", it.val),
            )),
            _ => Ok(()),
        }
    }

    fn is_tenant_label(&self, label: &str) -> bool {
        label == self.tenant.label || is_tenant_label(label)
    }

    const fn check_range(&self, back: Duration) -> Result<(), AdmitError> {
        let (asked, kept) = (back.as_secs(), self.history.as_secs());
        if asked > kept {
            Err(AdmitError::TooFarBack { asked, kept })
        } else {
            Ok(())
        }
    }
}

fn binary(it: &mut BinaryExpr) -> Result<(), AdmitError> {
    if let Some(modifier) = &mut it.modifier {
        check_modifier(modifier)?;
    }
    if it
        .modifier
        .as_ref()
        .is_some_and(|modifier| *modifier == BinModifier::default())
    {
        it.modifier = None;
    }
    Ok(())
}

/// Requires exactly one metric, by name or by `__name__="..."`, whose name needs no quotes.
fn check_metric(it: &VectorSelector) -> Result<(), AdmitError> {
    let matchers = it
        .matchers
        .matchers
        .iter()
        .chain(it.matchers.or_matchers.iter().flatten());
    let mut names = it.name.iter().cloned().collect::<Vec<_>>();
    for matcher in matchers.filter(|matcher| matcher.name == METRIC_NAME) {
        if matcher.op != MatchOp::Equal {
            return Err(AdmitError::MetricName(excerpt(&matcher.to_string())));
        }
        names.push(matcher.value.clone());
    }
    match &names[..] {
        [name] if MetricName::new(name).is_ok() => Ok(()),
        [name] => Err(AdmitError::MetricName(excerpt(name))),
        _ => Err(AdmitError::MetricName(excerpt(&it.to_string()))),
    }
}

fn check_label(label: &str) -> Result<(), AdmitError> {
    match LabelName::new(label) {
        Ok(_) => Ok(()),
        Err(_) => Err(AdmitError::LabelName(excerpt(label))),
    }
}

fn check_modifier(modifier: &mut BinModifier) -> Result<(), AdmitError> {
    // The printer drops `ignoring ()`: the printed text would not parse as the same tree.
    if matches!(&modifier.matching, Some(LabelModifier::Exclude(labels)) if labels.is_empty()) {
        modifier.matching = None;
    }
    let matching = modifier.matching.iter().map(LabelModifier::labels);
    for labels in matching.chain(modifier.card.labels()) {
        labels.labels.iter().try_for_each(|it| check_label(it))?;
    }
    Ok(())
}

/// True if every selector of the text has the exact namespace as a matcher: for tests, independent of the guard.
#[cfg(test)]
pub fn is_bound(text: &str, namespace: &str) -> bool {
    fn selectors(tree: &Expr, found: &mut Vec<VectorSelector>) {
        match tree {
            Expr::Aggregate(it) => {
                it.param
                    .iter()
                    .for_each(|parameter| selectors(parameter, found));
                selectors(&it.expr, found);
            }
            Expr::Unary(it) => selectors(&it.expr, found),
            Expr::Binary(it) => {
                selectors(&it.lhs, found);
                selectors(&it.rhs, found);
            }
            Expr::Paren(it) => selectors(&it.expr, found),
            Expr::Subquery(it) => selectors(&it.expr, found),
            Expr::Call(it) => it
                .args
                .args
                .iter()
                .for_each(|argument| selectors(argument, found)),
            Expr::VectorSelector(it) => found.push(it.clone()),
            Expr::MatrixSelector(it) => found.push(it.vs.clone()),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }
    let mut found = Vec::new();
    selectors(&promql_parser::parser::parse(text).unwrap(), &mut found);
    found.iter().all(|selector| {
        selector.matchers.or_matchers.is_empty()
            && selector.matchers.matchers.iter().any(|matcher| {
                matcher.op == MatchOp::Equal
                    && matcher.name == "namespace"
                    && matcher.value == namespace
            })
    })
}

#[cfg(test)]
mod tests;
