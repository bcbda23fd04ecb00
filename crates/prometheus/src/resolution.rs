//! Resolution of a query: whether its values are those of single minutes. If they are means over a longer time, the
//! query for the values of minutes is the same one with ranges of a minute.
//!
//! ```text
//! sum(rate(x[3m]))                   a mean    sum(rate(x[1m]))
//! sum(increase(x[5m]))               a mean    sum((increase(x[1m]) * 5))
//! sum(rate(x[3m])) or -count(nodes)  a mean    sum(rate(x[1m]))
//! sum(queue_length)                  of its own minute
//! max_over_time(x[1h])               not known
//! ```
//!
//! A form of query that is not listed here is not known, because a wrong value of a minute is worse than none.

use std::time::Duration;

use promql_parser::parser::{Call, Expr, MatrixSelector, VectorSelector};

use super::{promql::Query, scope};
use foretide_api::ports::Resolution;

const MINUTE: Duration = Duration::from_mins(1);
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
pub fn resolution(text: &str) -> Resolution<Query> {
    let Ok(mut tree) = scope::parse(text) else {
        return Resolution::Unknown;
    };
    match shorten(&mut tree) {
        None => return Resolution::Unknown,
        Some(false) => return Resolution::Minute,
        Some(true) => {}
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
    scope::print(measured).map_or(Resolution::Unknown, Resolution::Mean)
}

/// Shortens every range that a mean is taken over to a minute; returns whether there was a longer one. `None` if the
/// result would not be that of single minutes.
fn shorten(tree: &mut Expr) -> Option<bool> {
    match tree {
        Expr::Binary(it) if it.op.to_string() == "or" => {
            Some(shorten(&mut it.lhs)? | shorten(&mut it.rhs)?)
        }
        Expr::Paren(it) => shorten(&mut it.expr),
        other => shorten_operand(other),
    }
}

/// Shortens the ranges of an expression below `or`, as [`shorten`] does.
fn shorten_operand(tree: &mut Expr) -> Option<bool> {
    match tree {
        Expr::Paren(it) => shorten_operand(&mut it.expr),
        Expr::Unary(it) => shorten_operand(&mut it.expr),
        Expr::Aggregate(it) if it.param.is_none() && is_one_of(&AGGREGATIONS, &it.op) => {
            shorten_operand(&mut it.expr)
        }
        Expr::Binary(it) if is_one_of(&OPERATORS, &it.op) => {
            Some(shorten_operand(&mut it.lhs)? | shorten_operand(&mut it.rhs)?)
        }
        Expr::Call(it) if FUNCTIONS.contains(&it.func.name) => {
            let mut any = false;
            for argument in &mut it.args.args {
                any |= shorten_operand(argument)?;
            }
            Some(any)
        }
        Expr::Call(it) => {
            let times = shorten_call(it)?;
            // The user asked for the increase over the longer range, so that of a minute is scaled up to it.
            if it.func.name == "increase" && times > 1.0 {
                *tree = scope::parse(&format!("({tree} * {times})")).ok()?;
            }
            Some(times > 1.0)
        }
        Expr::VectorSelector(it) => {
            sort_matchers(it);
            is_plain(it).then_some(false)
        }
        Expr::NumberLiteral(_) => Some(false),
        _ => None,
    }
}

/// Shortens the range of a function over it, and returns how many times shorter it is now.
fn shorten_call(call: &mut Call) -> Option<f64> {
    let [argument] = &mut call.args.args[..] else {
        return None;
    };
    let Expr::MatrixSelector(MatrixSelector { vs, range }) = &mut **argument else {
        return None;
    };
    sort_matchers(vs);
    if !is_plain(vs) {
        return None;
    }
    match call.func.name {
        // These functions use the newest samples only, however long the range is.
        "irate" | "last_over_time" => Some(1.0),
        "rate" | "increase" | "avg_over_time" => {
            let before = std::mem::replace(range, (*range).min(MINUTE));
            Some(before.div_duration_f64(*range))
        }
        _ => None,
    }
}

/// True if a selector reads series of the present that no recording rule has made: a rule may have a range of its own.
fn is_plain(selector: &VectorSelector) -> bool {
    let name = selector.name.as_deref();
    name.is_some_and(|name| !name.contains(':'))
        && selector.offset.is_none()
        && selector.at.is_none()
        && selector.matchers.or_matchers.is_empty()
}

/// Puts the matchers into the order of the printer, so that the printed text parses as the same tree; the order has no
/// meaning.
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

    #[test]
    fn a_mean_has_a_query_of_minutes() {
        let minutes = "sum(rate(x[1m]))";
        let or_nodes = r#"sum(rate(x[3m])) or -count(machine_cpu_cores{cluster="east"})"#;
        for (text, expected) in [
            ("sum(rate(x[3m]))", minutes),
            ("sum(rate(x[90s]))", minutes),
            ("sum(rate(x[3m])) or vector(0)", minutes),
            ("(sum(rate(x[3m])) or sum(y)) or vector(0)", minutes),
            (or_nodes, minutes),
            (
                r#"sum(rate(x{b="2",a="1"}[5m])) by (job)"#,
                r#"sum by (job) (rate(x{a="1",b="2"}[1m]))"#,
            ),
            (
                "sum(rate(x[2m]) + on (pod) rate(y[10m])) / 2",
                "sum(rate(x[1m]) + on (pod) rate(y[1m])) / 2",
            ),
            ("sum(increase(x[5m]))", "sum((increase(x[1m]) * 5))"),
            ("avg_over_time(x[90s])", "avg_over_time(x[1m])"),
            (
                "sum(rate(x[3m])) / scalar(count(y))",
                "sum(rate(x[1m])) / scalar(count(y))",
            ),
        ] {
            let expected = Resolution::Mean(expected.to_owned());
            let got = resolution(text).map(|query| query.to_string());
            assert_eq!(got, expected, "{text}");
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
            assert_eq!(resolution(text), Resolution::Minute, "{text}");
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
            assert_eq!(resolution(text), Resolution::Unknown, "{text}");
        }
    }
}
