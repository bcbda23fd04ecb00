//! Rules and queries whose durations are divided by one factor.
//!
//! The durations of `PromQL` and of rules are divided: `for`, ranges, subqueries and offsets. Numbers that a metric is
//! compared with stay as they are, also those in seconds, because the controllers measure them by their own clocks.

use promql_parser::{
    parser::{self, Expr, Offset},
    util::parse_duration,
};
use serde_json::{Value, json};
use std::time::Duration;

/// By how much durations are divided.
pub(super) const FACTOR: u32 = 120;

/// A rule file with scaled durations.
pub(super) fn scaled_rules(groups: &Value) -> Value {
    let mut groups = groups.clone();
    for group in groups["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule["expr"] = json!(scaled_query(rule["expr"].as_str().unwrap()));
            if let Some(pending) = rule.get("for").and_then(Value::as_str) {
                let pending = parse_duration(pending).unwrap() / FACTOR;
                rule["for"] = json!(format!("{}ms", pending.as_millis()));
            }
        }
    }
    groups
}

/// A query with scaled durations.
pub(super) fn scaled_query(query: &str) -> String {
    let mut tree = parser::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    scale(&mut tree);
    let text = tree.to_string();
    // It is read as it was printed.
    let read = parser::parse(&text).map(|tree| tree.to_string());
    assert_eq!(read.as_ref(), Ok(&text));
    text
}

fn scale(tree: &mut Expr) {
    match tree {
        Expr::Aggregate(it) => {
            scale(&mut it.expr);
            it.param.iter_mut().for_each(|param| scale(param));
        }
        Expr::Unary(it) => scale(&mut it.expr),
        Expr::Binary(it) => {
            scale(&mut it.lhs);
            scale(&mut it.rhs);
        }
        Expr::Paren(it) => scale(&mut it.expr),
        Expr::Subquery(it) => {
            scale(&mut it.expr);
            shorten(&mut it.range);
            it.step.iter_mut().for_each(shorten);
            it.offset.iter_mut().for_each(shift);
        }
        Expr::Call(it) => it.args.args.iter_mut().for_each(|arg| scale(arg)),
        Expr::VectorSelector(it) => it.offset.iter_mut().for_each(shift),
        Expr::MatrixSelector(it) => {
            shorten(&mut it.range);
            it.vs.offset.iter_mut().for_each(shift);
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

fn shorten(duration: &mut Duration) {
    *duration /= FACTOR;
}

fn shift(offset: &mut Offset) {
    match offset {
        Offset::Pos(duration) | Offset::Neg(duration) => shorten(duration),
    }
}

#[test]
fn durations_are_divided_and_thresholds_are_not() {
    let query = "max by (kind) (increase(x{a=\"5m\"}[10m] offset 2m)) > 120 and sum_over_time(y[1h:4m]) > 60";
    let scaled = "max by (kind) (increase(x{a=\"5m\"}[5s] offset 1s)) > 120 and sum_over_time(y[30s:2s]) > 60";
    assert_eq!(scaled_query(query), scaled);
}
