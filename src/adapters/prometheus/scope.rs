//! Queries that people write: restricted to the namespace of their object, so that nobody reads a neighbour's
//! numbers through a replica count. The text is parsed, what could reach outside is refused with the reason, the
//! namespace is added to every selector, and the result is printed from the tree, so that comments and tricks of
//! quoting do not survive. Says nothing about who may reach the server: that is for it, or a proxy before it.

mod raw;

use std::time::Duration;

use promql_parser::label::{METRIC_NAME, MatchOp, Matcher, Matchers};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinModifier, BinaryExpr, Call, Expr, LabelModifier, Offset, VectorSelector,
};

pub(super) use self::raw::read;
use super::promql::{LabelName, Matcher as BuiltMatcher, MetricName, Query, excerpt};

pub(super) const BYTES_MAX: usize = 2048;
const DEPTH_MAX: usize = 32;
const SELECTORS_MAX: usize = 8;
/// A chain `x + x + ...` is a tree as deep as it is long, without a bracket.
const OPERATORS_MAX: usize = 256;
/// `any` trusts the authors, not their clipboard.
const BYTES_MAX_UNSCOPED: usize = 16 * 1024;

/// The labels that name a namespace in common installations; the first is the one we bind.
const TENANT_LABELS: [&str; 3] = [NAMESPACE, "exported_namespace", "kubernetes_namespace"];
/// The label that holds the namespace unless the administrator says another.
pub(super) const NAMESPACE: &str = "namespace";

/// Whose series may be read: those whose `label` is `namespace`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant<'a> {
    /// The label that holds a series' namespace.
    pub(super) label: &'a str,
    /// The namespace.
    pub(super) namespace: &'a str,
}

/// How far a query written by a person may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromqlScope {
    /// Into the namespace of its object only.
    #[default]
    Namespace,
    /// As it is written: for clusters with one tenant.
    Any,
}

/// Why a query is not used, with what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing but space.
    #[error("the query is empty")]
    Empty,
    /// Longer than the limit.
    #[error("the query has {bytes} bytes; at most {limit} are accepted")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Nested deeper than 32.
    #[error("the query nests deeper than {DEPTH_MAX} levels; simplify it")]
    TooDeep,
    /// More than 256 operators.
    #[error("the query has more than {OPERATORS_MAX} operators; split it or use a recording rule")]
    TooManyOperators,
    /// More than 8 selectors.
    #[error("the query has more than {SELECTORS_MAX} selectors; split it or use a recording rule")]
    TooManySelectors,
    /// Not `PromQL`, as far as we read it.
    #[error("the query cannot be parsed: {0}")]
    Syntax(String),
    /// A range vector or a string.
    #[error(
        "the query gives a {0}, expected a number at each time; wrap it in rate(...) or the like"
    )]
    NotANumber(String),
    /// A range or offset without a unit.
    #[error("duration {0:?} has no unit; write it as 5m or 30s")]
    Duration(String),
    /// `expr[1h:1m]`.
    #[error("subqueries are not accepted; use a recording rule")]
    Subquery,
    /// `@ time`.
    #[error("the @ modifier is not accepted; the time is given by the caller")]
    At,
    /// An offset into the future.
    #[error("a negative offset is not accepted")]
    NegativeOffset,
    /// Further back than the history that is kept.
    #[error("a range or offset of {asked} s reaches back further than the history of {kept} s")]
    TooFarBack {
        /// What the query says, in seconds.
        asked: u64,
        /// The history's length, in seconds.
        kept: u64,
    },
    /// A selector that does not name exactly one metric.
    #[error("each selector must name one metric, as in http_requests_total{{...}}; found {0:?}")]
    MetricName(String),
    /// A label that cannot be written without quotes.
    #[error(
        "label {0:?} needs quoting and is not accepted; expected letters, digits and '_', \
         not starting with '__'"
    )]
    LabelName(String),
    /// A condition on the namespace other than equality with the own one.
    #[error(
        "the query may read namespace {own:?} only: leave out the condition on label {label:?}, it is added"
    )]
    Namespace {
        /// The label.
        label: String,
        /// The object's namespace.
        own: String,
    },
    /// `{a="b" or c="d"}`.
    #[error("'or' between matchers is not accepted; use a regular expression")]
    OrMatchers,
    /// A function that can step around the binding.
    #[error("{0} is not accepted here: it can read or relabel across namespaces")]
    Function(String),
    /// The printed text does not read back as the same tree.
    #[error("the query cannot be printed safely; simplify it")]
    NotReadBack,
}

impl Refusal {
    /// The stable `UpperCamelCase` word for conditions.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        "QueryNotAccepted"
    }
}

/// Checks a person's query and makes it one that may be sent.
///
/// Under [`PromqlScope::Namespace`] every selector of the result has the matcher `namespace="<namespace>"`;
/// ranges and offsets reach back no further than `history`. Under [`PromqlScope::Any`] only emptiness and length
/// (16 KiB) are looked at.
///
/// # Errors
/// [`Refusal`], which says what is accepted.
pub fn admit(
    text: &str,
    namespace: &str,
    history: Duration,
    scope: PromqlScope,
) -> Result<Query, Refusal> {
    let label = NAMESPACE;
    admit_for(text, Tenant { label, namespace }, history, scope)
}

/// As [`admit`], where series tell their namespace by a label that the administrator named.
pub(super) fn admit_for(
    text: &str,
    tenant: Tenant<'_>,
    history: Duration,
    scope: PromqlScope,
) -> Result<Query, Refusal> {
    let text = text.trim();
    let limit = match scope {
        PromqlScope::Namespace => BYTES_MAX,
        PromqlScope::Any => BYTES_MAX_UNSCOPED,
    };
    if text.is_empty() {
        return Err(Refusal::Empty);
    }
    if text.len() > limit {
        return Err(Refusal::TooLong {
            bytes: text.len(),
            limit,
        });
    }
    match scope {
        PromqlScope::Any => Ok(Query::admitted(text.to_owned())),
        PromqlScope::Namespace => restrict(text, tenant, history),
    }
}

fn restrict(text: &str, tenant: Tenant<'_>, history: Duration) -> Result<Query, Refusal> {
    let mut tree = read(text)?;
    let mut guard = Guard {
        tenant,
        history,
        selectors: 0,
    };
    guard.expression(&mut tree, 0)?;
    if let kind @ (ValueType::Matrix | ValueType::String) = tree.value_type() {
        return Err(Refusal::NotANumber(kind.to_string()));
    }
    let printed = tree.to_string();
    match read(&printed) {
        Ok(again) if again == tree => Ok(Query::admitted(printed)),
        _ => Err(Refusal::NotReadBack),
    }
}

/// The same query over the series of one member cluster: every selector gets the condition, beside those it has.
///
/// # Errors
/// A query that was let pass unread ([`PromqlScope::Any`]) and cannot be read, or is too large to be walked through.
pub(super) fn within(query: &Query, condition: &BuiltMatcher) -> Result<Query, Refusal> {
    let condition = match read(&format!("x{{{condition}}}"))? {
        Expr::VectorSelector(selector) => selector.matchers.matchers,
        _ => return Err(Refusal::NotReadBack),
    };
    let mut tree = read(query.as_str())?;
    each_selector(&mut tree, &mut |selector| {
        let matchers = &mut selector.matchers.matchers;
        matchers.extend(condition.iter().cloned());
        // The printer sorts them so; all hold together, and their order means nothing.
        matchers.sort_by_cached_key(ToString::to_string);
        matchers.dedup();
        for all in &mut selector.matchers.or_matchers {
            all.extend(condition.iter().cloned());
        }
    });
    let printed = tree.to_string();
    match read(&printed) {
        Ok(again) if again == tree => Ok(Query::admitted(printed)),
        _ => Err(Refusal::NotReadBack),
    }
}

fn each_selector(tree: &mut Expr, visit: &mut impl FnMut(&mut VectorSelector)) {
    match tree {
        Expr::Aggregate(it) => {
            if let Some(parameter) = &mut it.param {
                each_selector(parameter, visit);
            }
            each_selector(&mut it.expr, visit);
        }
        Expr::Unary(it) => each_selector(&mut it.expr, visit),
        Expr::Binary(it) => {
            each_selector(&mut it.lhs, visit);
            each_selector(&mut it.rhs, visit);
        }
        Expr::Paren(it) => each_selector(&mut it.expr, visit),
        Expr::Subquery(it) => each_selector(&mut it.expr, visit),
        Expr::Call(it) => {
            let arguments = it.args.args.iter_mut();
            arguments.for_each(|argument| each_selector(argument, visit));
        }
        Expr::VectorSelector(it) => visit(it),
        Expr::MatrixSelector(it) => visit(&mut it.vs),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

/// Whether a label names a namespace.
pub(super) fn is_tenant_label(label: &str) -> bool {
    TENANT_LABELS.contains(&label)
}

/// The walk over the tree: refuses, and binds what it lets pass.
struct Guard<'a> {
    tenant: Tenant<'a>,
    history: Duration,
    selectors: usize,
}

impl Guard<'_> {
    /// Every node is visited; the parser's own walk leaves out the parameter of `topk(parameter, ...)`.
    fn expression(&mut self, tree: &mut Expr, depth: usize) -> Result<(), Refusal> {
        if depth > DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        match tree {
            Expr::Aggregate(it) => self.aggregate(it, depth),
            Expr::Unary(it) => self.expression(&mut it.expr, depth + 1),
            Expr::Binary(it) => self.binary(it, depth),
            Expr::Paren(it) => self.expression(&mut it.expr, depth + 1),
            Expr::Call(it) => self.call(it, depth),
            Expr::VectorSelector(it) => self.selector(it),
            Expr::MatrixSelector(it) => {
                self.reach(it.range)?;
                self.selector(&mut it.vs)
            }
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(()),
            Expr::Subquery(_) => Err(Refusal::Subquery),
            Expr::Extension(_) => Err(Refusal::Syntax("unknown expression".to_owned())),
        }
    }

    fn aggregate(&mut self, it: &mut AggregateExpr, depth: usize) -> Result<(), Refusal> {
        // `by ()` says nothing and is not printed.
        if matches!(&it.modifier, Some(LabelModifier::Include(labels)) if labels.is_empty()) {
            it.modifier = None;
        }
        for label in it
            .modifier
            .iter()
            .flat_map(|modifier| &modifier.labels().labels)
        {
            check_label(label)?;
        }
        if let Some(parameter) = &mut it.param {
            self.refuse_tenant_text(&it.op.to_string(), parameter)?;
            self.expression(parameter, depth + 1)?;
        }
        self.expression(&mut it.expr, depth + 1)
    }

    fn binary(&mut self, it: &mut BinaryExpr, depth: usize) -> Result<(), Refusal> {
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
        self.expression(&mut it.lhs, depth + 1)?;
        self.expression(&mut it.rhs, depth + 1)
    }

    fn call(&mut self, it: &mut Call, depth: usize) -> Result<(), Refusal> {
        // `info` joins series that its arguments do not select.
        if it.func.name == "info" {
            return Err(Refusal::Function("info".to_owned()));
        }
        for argument in &mut it.args.args {
            self.refuse_tenant_text(it.func.name, argument)?;
            self.expression(argument, depth + 1)?;
        }
        Ok(())
    }

    fn selector(&mut self, it: &mut VectorSelector) -> Result<(), Refusal> {
        self.selectors += 1;
        if self.selectors > SELECTORS_MAX {
            return Err(Refusal::TooManySelectors);
        }
        if it.at.is_some() {
            return Err(Refusal::At);
        }
        match it.offset {
            Some(Offset::Neg(_)) => return Err(Refusal::NegativeOffset),
            Some(Offset::Pos(back)) => self.reach(back)?,
            None => {}
        }
        check_metric(it)?;
        self.bind(&mut it.matchers)
    }

    fn bind(&self, matchers: &mut Matchers) -> Result<(), Refusal> {
        if !matchers.or_matchers.is_empty() {
            return Err(Refusal::OrMatchers);
        }
        for matcher in matchers
            .matchers
            .iter()
            .filter(|matcher| matcher.name != METRIC_NAME)
        {
            check_label(&matcher.name)?;
            let own = matcher.op == MatchOp::Equal && matcher.value == self.tenant.namespace;
            if self.tells_tenant(&matcher.name) && !own {
                let (label, own) = (matcher.name.clone(), self.tenant.namespace.to_owned());
                return Err(Refusal::Namespace { label, own });
            }
        }
        matchers
            .matchers
            .retain(|matcher| matcher.name != self.tenant.label);
        matchers.matchers.push(Matcher::new(
            MatchOp::Equal,
            self.tenant.label,
            self.tenant.namespace,
        ));
        // The printer sorts them so; all hold together, and their order means nothing.
        matchers.matchers.sort_by_cached_key(ToString::to_string);
        Ok(())
    }

    /// Functions that write labels (`label_replace`, `label_join`, `count_values`) must not touch the namespace.
    fn refuse_tenant_text(&self, function: &str, argument: &Expr) -> Result<(), Refusal> {
        match argument {
            Expr::Paren(it) => self.refuse_tenant_text(function, &it.expr),
            Expr::StringLiteral(it) if self.tells_tenant(&it.val) => Err(Refusal::Function(
                format!("{function} on label {:?}", it.val),
            )),
            _ => Ok(()),
        }
    }

    fn tells_tenant(&self, label: &str) -> bool {
        label == self.tenant.label || is_tenant_label(label)
    }

    const fn reach(&self, back: Duration) -> Result<(), Refusal> {
        let (asked, kept) = (back.as_secs(), self.history.as_secs());
        if asked > kept {
            Err(Refusal::TooFarBack { asked, kept })
        } else {
            Ok(())
        }
    }
}

/// Exactly one metric, by name or by `__name__="..."`, with a name that needs no quotes.
fn check_metric(it: &VectorSelector) -> Result<(), Refusal> {
    let matchers = it
        .matchers
        .matchers
        .iter()
        .chain(it.matchers.or_matchers.iter().flatten());
    let mut names = it.name.iter().cloned().collect::<Vec<_>>();
    for matcher in matchers.filter(|matcher| matcher.name == METRIC_NAME) {
        if matcher.op != MatchOp::Equal {
            return Err(Refusal::MetricName(excerpt(&matcher.to_string())));
        }
        names.push(matcher.value.clone());
    }
    match &names[..] {
        [name] if MetricName::new(name).is_ok() => Ok(()),
        [name] => Err(Refusal::MetricName(excerpt(name))),
        _ => Err(Refusal::MetricName(excerpt(&it.to_string()))),
    }
}

fn check_label(label: &str) -> Result<(), Refusal> {
    match LabelName::new(label) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refusal::LabelName(excerpt(label))),
    }
}

fn check_modifier(modifier: &mut BinModifier) -> Result<(), Refusal> {
    // `ignoring ()` says nothing and is not printed.
    if matches!(&modifier.matching, Some(LabelModifier::Exclude(labels)) if labels.is_empty()) {
        modifier.matching = None;
    }
    let matching = modifier
        .matching
        .iter()
        .flat_map(|matching| &matching.labels().labels);
    let grouping = modifier
        .card
        .labels()
        .into_iter()
        .flat_map(|labels| &labels.labels);
    matching
        .chain(grouping)
        .try_for_each(|label| check_label(label))
}

/// Whether every selector of the text has the exact namespace as a matcher: for tests, independent of the guard.
#[cfg(test)]
pub(super) fn is_bound(text: &str, namespace: &str) -> bool {
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
