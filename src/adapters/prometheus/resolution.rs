//! Over how long the values of a query are means, and the query for the values of single minutes: the same one with
//! ranges of a minute.
//!
//! ```text
//! sum(rate(x[3m]))                   a mean over 3m    sum(rate(x[1m]))
//! sum(increase(x[5m]))               a mean over 5m    sum((increase(x[1m]) * 5))
//! sum(rate(x[3m])) or -count(nodes)  a mean over 3m    sum(rate(x[1m]))
//! sum(queue_length)                  of its own minute
//! max_over_time(x[1h])               not known
//! ```
//!
//! A form of query that is not listed here is not known, because a wrong value of a minute is worse than none.

use std::time::Duration;

use jiff::SignedDuration;
use promql_parser::parser::{Call, Expr, MatrixSelector, VectorSelector};

use super::{promql::Query, scope};
use crate::ports::Resolution;

const MINUTE: Duration = Duration::from_secs(60);
/// Aggregations whose result is of the same minute as what they aggregate.
const AGGREGATIONS: [&str; 5] = ["sum", "avg", "min", "max", "count"];
/// Operators whose result is of the same minute as their operands. Comparisons would leave minutes out.
const OPERATORS: [&str; 4] = ["+", "-", "*", "/"];
/// Functions whose result is of the same minute as their arguments.
const FUNCTIONS: [&str; 6] = [
    "ceil",
    "clamp_max",
    "clamp_min",
    "round",
    "scalar",
    "vector",
];

/// The resolution of a query that may be sent.
pub(super) fn resolution(text: &str) -> Resolution<Query> {
    let Ok(mut tree) = scope::parse(text) else {
        return Resolution::Unknown;
    };
    let mut longest = MINUTE;
    if shorten(&mut tree, &mut longest).is_none() {
        return Resolution::Unknown;
    }
    if longest == MINUTE {
        return Resolution::Minute;
    }
    // Where the left side of `or` lacks a scrape, the right side would stand in for a demand that is not known.
    let mut measured = &tree;
    loop {
        measured = match measured {
            Expr::Paren(it) => &it.expr,
            Expr::Binary(it) if it.op.to_string() == "or" => &it.lhs,
            _ => break,
        };
    }
    let over = SignedDuration::try_from(longest);
    match (scope::print(measured), over) {
        (Ok(minutes), Ok(over)) => Resolution::Mean { over, minutes },
        _ => Resolution::Unknown,
    }
}

/// Shortens every range that a mean is taken over to a minute; `longest` becomes the longest of them. `None` if the
/// result would not be that of single minutes.
fn shorten(tree: &mut Expr, longest: &mut Duration) -> Option<()> {
    match tree {
        Expr::Binary(it) if it.op.to_string() == "or" => {
            shorten(&mut it.lhs, longest)?;
            shorten(&mut it.rhs, longest)
        }
        Expr::Paren(it) => shorten(&mut it.expr, longest),
        other => shorten_operand(other, longest),
    }
}

/// As [`shorten`], below `or`.
fn shorten_operand(tree: &mut Expr, longest: &mut Duration) -> Option<()> {
    match tree {
        Expr::Paren(it) => shorten_operand(&mut it.expr, longest),
        Expr::Unary(it) => shorten_operand(&mut it.expr, longest),
        Expr::Aggregate(it) if it.param.is_none() && is_one_of(&AGGREGATIONS, &it.op) => {
            shorten_operand(&mut it.expr, longest)
        }
        Expr::Binary(it) if is_one_of(&OPERATORS, &it.op) => {
            shorten_operand(&mut it.lhs, longest)?;
            shorten_operand(&mut it.rhs, longest)
        }
        Expr::Call(it) if FUNCTIONS.contains(&it.func.name) => {
            let mut arguments = it.args.args.iter_mut();
            arguments.try_for_each(|argument| shorten_operand(argument, longest))
        }
        Expr::Call(it) => {
            if let Some(factor) = shorten_call(it, longest)? {
                *tree = scope::parse(&format!("({tree} * {factor})")).ok()?;
            }
            Some(())
        }
        Expr::VectorSelector(it) => is_plain(it).then(|| sort_matchers(it)),
        Expr::NumberLiteral(_) => Some(()),
        _ => None,
    }
}

/// Shortens the range of a function over it. `Some(Some(factor))` is what the result must then be multiplied by.
fn shorten_call(call: &mut Call, longest: &mut Duration) -> Option<Option<f64>> {
    let [argument] = &mut call.args.args[..] else {
        return None;
    };
    let Expr::MatrixSelector(MatrixSelector { vs, range }) = &mut **argument else {
        return None;
    };
    if !is_plain(vs) {
        return None;
    }
    sort_matchers(vs);
    let before = *range;
    match call.func.name {
        // They use the newest samples only, however long the range is.
        "irate" | "last_over_time" => return Some(None),
        "rate" | "increase" | "avg_over_time" => *range = before.min(MINUTE),
        _ => return None,
    }
    *longest = before.max(*longest);
    let is_total = call.func.name == "increase" && before > MINUTE;
    Some(is_total.then(|| before.as_secs_f64() / MINUTE.as_secs_f64()))
}

/// Whether a selector reads series of the present that no recording rule has made: a rule may have a range of its own.
fn is_plain(selector: &VectorSelector) -> bool {
    let name = selector.name.as_deref();
    name.is_some_and(|name| !name.contains(':'))
        && selector.offset.is_none()
        && selector.at.is_none()
        && selector.matchers.or_matchers.is_empty()
}

/// The order of the printer, so that the printed text parses as the same tree; the order has no meaning.
fn sort_matchers(selector: &mut VectorSelector) {
    let matchers = &mut selector.matchers.matchers;
    matchers.sort_by_cached_key(ToString::to_string);
}

fn is_one_of(words: &[&str], word: &impl ToString) -> bool {
    words.contains(&word.to_string().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds of the mean and the query of minutes; 60 and nothing for a value of its own minute.
    fn read(text: &str) -> Option<(i64, String)> {
        match resolution(text) {
            Resolution::Minute => Some((60, String::new())),
            Resolution::Mean { over, minutes } => Some((over.as_secs(), minutes.to_string())),
            Resolution::Unknown => None,
        }
    }

    #[test]
    fn a_mean_has_a_query_of_minutes() {
        let nodes = "count(machine_cpu_cores{cluster=\"east\"})";
        let cases = [
            ("sum(rate(x[3m]))", 180, "sum(rate(x[1m]))"),
            ("sum(rate(x[90s]))", 90, "sum(rate(x[1m]))"),
            (
                "sum(rate(x{b=\"2\",a=\"1\"}[5m])) by (job)",
                300,
                "sum by (job) (rate(x{a=\"1\",b=\"2\"}[1m]))",
            ),
            (
                "sum(rate(x[2m]) + on (pod) rate(y[10m])) / 2",
                600,
                "sum(rate(x[1m]) + on (pod) rate(y[1m])) / 2",
            ),
            ("sum(increase(x[5m]))", 300, "sum((increase(x[1m]) * 5))"),
            ("avg_over_time(x[90s])", 90, "avg_over_time(x[1m])"),
            (
                "sum(rate(x[3m])) / scalar(count(y))",
                180,
                "sum(rate(x[1m])) / scalar(count(y))",
            ),
            ("sum(rate(x[3m])) or vector(0)", 180, "sum(rate(x[1m]))"),
            (
                "(sum(rate(x[3m])) or sum(y)) or vector(0)",
                180,
                "sum(rate(x[1m]))",
            ),
            (
                &format!("sum(rate(x[3m])) or -{nodes}"),
                180,
                "sum(rate(x[1m]))",
            ),
        ];
        for (text, over, minutes) in cases {
            assert_eq!(read(text), Some((over, minutes.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_value_of_its_own_minute_needs_no_other_query() {
        for text in [
            "sum(queue_length)",
            "sum(rate(x[1m]))",
            "sum(rate(x[30s]))",
            "sum(increase(x[1m])) * 3",
            "sum(irate(x[5m]))",
            "max(last_over_time(x[1h]))",
            "sum(x) or vector(0)",
            "clamp_min(sum(x), 1)",
        ] {
            assert_eq!(read(text), Some((60, String::new())), "{text}");
        }
    }

    #[test]
    fn what_may_be_smoothed_otherwise_is_not_known() {
        for text in [
            "sum(job:requests:rate5m)",
            "sum(rate(job:requests:sum[5m]))",
            "sum({__name__=\"x\"})",
            "max_over_time(x[5m])",
            "sum(rate(x[5m] offset 1h))",
            "sum(x offset 1h)",
            "sum(x @ 0)",
            "avg_over_time(sum(rate(x[1m]))[5m:1m])",
            "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
            "topk(1, rate(x[5m]))",
            "sum(rate(x[5m]) > 0)",
            "sum(rate(x[5m]) or rate(y[5m]))",
            "sum(rate(x[5m])) unless on () y",
            "predict_linear(x[1h], 600)",
            "deriv(x[5m])",
            "not promql (",
            "",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
