//! Evaluates the CEL expressions of our validation rules, without an API server.
//!
//! [`Expression`] knows the part of CEL that the rules of our kinds use: comparisons, logic, lists,
//! `has`, the macros `all`, `exists` and `exists_one`, and the functions of [`Function`]. Any other
//! text does not parse. The tests compare it with kube-cel, a complete implementation, which takes
//! too long to build to be part of the program.
//!
//! ```text
//! "self >= 0 && self <= 30" --parser--> Expression --evaluate(self = 12)--> true
//! ```

mod parser;

use std::{borrow::Cow, cmp::Ordering, fmt};

use regex::Regex;
use serde_json::Value;

/// One parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// A number, a text or a boolean.
    Literal(Value),
    /// `[a, b]`
    List(Vec<Expression>),
    /// `self`, or the variable of a macro.
    Variable(String),
    /// `of.field`
    Field(Box<Expression>, String),
    /// `has(of.field)`
    Has(Box<Expression>, String),
    /// `size(a)`, or `a.contains(b)`: the receiver is the first argument.
    Call(Function, Vec<Expression>),
    /// `list.all(variable, condition)`
    Macro {
        list: Box<Expression>,
        quantifier: Quantifier,
        variable: String,
        condition: Box<Expression>,
    },
    /// `!a`
    Not(Box<Expression>),
    /// `a && b`
    Binary(Box<Expression>, Operator, Box<Expression>),
    /// `condition ? a : b`
    Conditional(Box<[Expression; 3]>),
}

/// How many items of a list must meet a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

/// What stands between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Multiply,
    Remainder,
}

/// The functions. A duration is the number of its whole seconds, as no rule asks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    Int,
    Double,
    Duration,
    GetSeconds,
    Matches,
    EndsWith,
    Contains,
    Replace,
}

/// Why an expression cannot be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CelError(String);

/// A variable and its value, and the variables around it.
struct Scope<'v> {
    name: &'v str,
    value: &'v Value,
    outer: Option<&'v Scope<'v>>,
}

// === impl CelError ===

impl fmt::Display for CelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CelError {}

// === impl Scope ===

impl<'v> Scope<'v> {
    fn get(&self, name: &str) -> Option<&'v Value> {
        if self.name == name {
            return Some(self.value);
        }
        self.outer?.get(name)
    }
}

// === impl Expression ===

impl Expression {
    /// Evaluates a rule for the value `object`, which it calls `self`.
    ///
    /// # Errors
    /// A value is of a type that an operator or function does not take, or a field is missing.
    pub(crate) fn holds(&self, object: &Value) -> Result<bool, CelError> {
        self.truth(&Scope {
            name: "self",
            value: object,
            outer: None,
        })
    }

    fn truth(&self, scope: &Scope<'_>) -> Result<bool, CelError> {
        let value = self.evaluate(scope)?;
        value
            .as_bool()
            .ok_or_else(|| CelError(format!("expected a boolean, found {value}")))
    }

    fn evaluate<'v>(&'v self, scope: &Scope<'v>) -> Result<Cow<'v, Value>, CelError> {
        let value = match self {
            Self::Literal(value) => return Ok(Cow::Borrowed(value)),
            Self::Variable(name) => {
                let value = scope.get(name).map(Cow::Borrowed);
                return value.ok_or_else(|| CelError(format!("no such variable: {name}")));
            }
            Self::Field(of, name) => {
                let value = field(of.evaluate(scope)?, name);
                return value.ok_or_else(|| CelError(format!("no such field: {name}")));
            }
            Self::Conditional(parts) => {
                let [condition, yes, no] = parts.as_ref();
                let chosen = if condition.truth(scope)? { yes } else { no };
                return chosen.evaluate(scope);
            }
            Self::List(items) => Value::Array(values(items, scope)?),
            Self::Has(of, name) => field(of.evaluate(scope)?, name).is_some().into(),
            Self::Call(function, arguments) => function.call(&values(arguments, scope)?)?,
            Self::Macro {
                list,
                quantifier,
                variable,
                condition,
            } => {
                let list = list.evaluate(scope)?;
                let (mut met, items) = (0, list.as_array().map_or(&[][..], Vec::as_slice));
                for value in items {
                    met += usize::from(condition.truth(&Scope {
                        name: variable,
                        value,
                        outer: Some(scope),
                    })?);
                }
                quantifier.accepts(met, items.len()).into()
            }
            Self::Not(operand) => (!operand.truth(scope)?).into(),
            Self::Binary(left, Operator::Or, right) => {
                (left.truth(scope)? || right.truth(scope)?).into()
            }
            Self::Binary(left, Operator::And, right) => {
                (left.truth(scope)? && right.truth(scope)?).into()
            }
            Self::Binary(left, operator, right) => {
                let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
                operator.apply(&left, &right)?
            }
        };
        Ok(Cow::Owned(value))
    }
}

fn values(of: &[Expression], scope: &Scope<'_>) -> Result<Vec<Value>, CelError> {
    of.iter()
        .map(|expression| expression.evaluate(scope).map(Cow::into_owned))
        .collect()
}

fn field<'v>(of: Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match of {
        Cow::Borrowed(object) => object.get(name).map(Cow::Borrowed),
        Cow::Owned(object) => object.get(name).cloned().map(Cow::Owned),
    }
}

// === impl Quantifier ===

impl Quantifier {
    const fn accepts(self, met: usize, of: usize) -> bool {
        match self {
            Self::All => met == of,
            Self::Exists => met > 0,
            Self::ExistsOne => met == 1,
        }
    }
}

// === impl Operator ===

impl Operator {
    fn apply(self, left: &Value, right: &Value) -> Result<Value, CelError> {
        let compared = |accepts: fn(Ordering) -> bool| {
            let order = order(left, right).ok_or_else(|| self.refusal(left, right))?;
            Ok(accepts(order).into())
        };
        match self {
            Self::Equal => Ok((left == right).into()),
            Self::NotEqual => Ok((left != right).into()),
            Self::Less => compared(Ordering::is_lt),
            Self::LessOrEqual => compared(Ordering::is_le),
            Self::Greater => compared(Ordering::is_gt),
            Self::GreaterOrEqual => compared(Ordering::is_ge),
            Self::In => {
                let list = right.as_array();
                let list = list.ok_or_else(|| self.refusal(left, right))?;
                Ok(list.contains(left).into())
            }
            Self::Multiply | Self::Remainder => {
                // Overflow and division by zero are errors in CEL, too.
                let operands = left.as_i64().zip(right.as_i64());
                let result = operands.and_then(|(left, right)| match self {
                    Self::Multiply => left.checked_mul(right),
                    _ => left.checked_rem(right),
                });
                result
                    .map(Value::from)
                    .ok_or_else(|| self.refusal(left, right))
            }
            // `Expression::evaluate` skips the right side of these where the left one decides.
            Self::Or | Self::And => Err(self.refusal(left, right)),
        }
    }

    fn refusal(self, left: &Value, right: &Value) -> CelError {
        CelError(format!("{self:?} does not take {left} and {right}"))
    }
}

/// The order of two numbers.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

// === impl Function ===

impl Function {
    fn call(self, arguments: &[Value]) -> Result<Value, CelError> {
        let result = match (self, arguments) {
            // CEL counts code points, not bytes.
            (Self::Size, [Value::String(text)]) => Some(text.chars().count().into()),
            (Self::Size, [Value::Array(items)]) => Some(items.len().into()),
            (Self::Int, [Value::String(text)]) => text.parse::<i64>().ok().map(Value::from),
            (Self::Double, [number]) => number.as_f64().map(Value::from),
            (Self::Duration, [Value::String(text)]) => seconds(text).map(Value::from),
            (Self::GetSeconds, [Value::Number(seconds)]) => Some(seconds.clone().into()),
            (Self::Matches, [Value::String(text), Value::String(pattern)]) => {
                let pattern = Regex::new(pattern).ok();
                pattern.map(|pattern| pattern.is_match(text).into())
            }
            (Self::EndsWith, [Value::String(text), Value::String(end)]) => {
                Some(text.ends_with(end.as_str()).into())
            }
            (Self::Contains, [Value::String(text), Value::String(part)]) => {
                Some(text.contains(part.as_str()).into())
            }
            (Self::Replace, [Value::String(text), Value::String(from), Value::String(to)]) => {
                Some(text.replace(from.as_str(), to).into())
            }
            _ => None,
        };
        result.ok_or_else(|| CelError(format!("{self:?} does not take {arguments:?}")))
    }
}

/// Nanoseconds of the units of a Go duration. `ms` comes before `m`, so that it is found first.
const UNITS: [(&str, i128); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Whole seconds of a Go duration such as `1h30m`, rounded down.
fn seconds(text: &str) -> Option<i64> {
    let (mut rest, mut total) = (text, 0_i128);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| c != '.' && !c.is_ascii_digit())?);
        let (unit, nanoseconds) = *UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = u32::try_from(fraction.len()).ok()?;
        let part =
            nanoseconds.checked_mul(fraction.parse().ok()?)? / 10_i128.checked_pow(digits)?;
        let whole = nanoseconds.checked_mul(whole.parse().ok()?)?;
        total = total.checked_add(whole)?.checked_add(part)?;
        rest = after.strip_prefix(unit)?;
    }
    i64::try_from(total / 1_000_000_000).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Whether `rule` holds for `value`, as kube-cel finds it.
    fn reference(rule: &str, value: &Value) -> bool {
        let schema = json!({"x-kubernetes-validations": [{"rule": rule, "message": "no"}]});
        match kube_cel::Validator::new().validate(&schema, value, None) {
            Ok(()) => true,
            Err(errors) => {
                let messages: Vec<_> = errors.iter().map(|error| &error.message).collect();
                assert_eq!(messages, ["no"], "{rule} of {value}");
                false
            }
        }
    }

    fn holds(rule: &str, value: &Value) -> bool {
        Expression::parse(rule).unwrap().holds(value).unwrap()
    }

    /// A rule for a value, and a value.
    fn cases() -> Vec<(&'static str, Value)> {
        let rules_by_value = [
            (
                json!(7),
                &[
                    "self >= 7 && self < 8",
                    "self > 7 || self <= 6",
                    "!(self == 7)",
                    "self != 8",
                    "double(self) > 6.9 && double(self) < 7.1",
                    "86400 % self == 6",
                    "self * 2 == 14 && true",
                    "self > 5 ? self < 6 : self > 0",
                    "self > 9 ? false : self > 5 ? true : false",
                    "self in [1, 7]",
                    "self == 8 || self == 7 && self == 6",
                    "self * 3 % 2 == 1",
                ][..],
            ),
            (
                json!("14d"),
                &[
                    "self in ['1d', '14d']",
                    "self in []",
                    r"self.matches('^[0-9]+\\w$')",
                    r"self.matches('\\s')",
                    "int(self.replace('d', '')) * 86400 == 1209600",
                    "self.endsWith('d') && !self.contains('h')",
                    "size(self) == 3 && self.size() == 3",
                    "self == \"14d\" && self != 'it\\'s'",
                ],
            ),
            (
                json!("1h30.5m"),
                &[
                    "duration(self).getSeconds() == 5430",
                    "duration(self).getSeconds() >= 5431",
                ],
            ),
            (
                json!([{"a": 1}, {"a": 2}, {}]),
                &[
                    "self.all(x, has(x.a))",
                    "self.all(x, !has(x.a) || x.a > 0)",
                    "self.exists(x, has(x.a) && x.a == 2)",
                    "self.exists_one(x, !has(x.a))",
                    "self.exists_one(x, has(x.a))",
                    "self.all(x, self.exists_one(y, (has(x.a) ? x.a : 0) == (has(y.a) ? y.a : 0)))",
                    "size(self) == 3",
                ],
            ),
        ];
        let each = rules_by_value.into_iter();
        each.flat_map(|(value, rules)| rules.iter().map(move |rule| (*rule, value.clone())))
            .collect()
    }

    #[test]
    fn a_rule_holds_where_a_complete_implementation_says_so() {
        let mut held = 0;
        for (rule, value) in cases() {
            let expected = reference(rule, &value);
            assert_eq!(holds(rule, &value), expected, "{rule} of {value}");
            held += usize::from(expected);
        }
        assert!(held > 15 && held + 5 < cases().len(), "{held}");
    }

    #[test]
    fn text_outside_the_part_that_is_known_does_not_parse() {
        for text in [
            "",
            "self >",
            "self >= 0)",
            "(self >= 0",
            "self + 1 == 2",
            "self.map(x, x)",
            "self.size(1)",
            "size()",
            "other == 1",
            "has(self)",
            "self.all(1, true)",
            "'open",
            r"'\q' == self",
            "self[0] == 1",
            "99999999999999999999 == self",
        ] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_an_error() {
        for (rule, value) in [
            ("self >= 0", json!("a")),
            ("self", json!(1)),
            ("self.a == 1", json!({})),
            ("size(self) == 1", json!(1)),
            ("int(self) == 1", json!("x")),
            ("self in self", json!(1)),
            ("1 % self == 0", json!(0)),
            ("duration(self).getSeconds() == 1", json!("1 fortnight")),
            ("self.matches('(')", json!("a")),
        ] {
            assert!(
                Expression::parse(rule).unwrap().holds(&value).is_err(),
                "{rule} of {value}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_duration_has_the_seconds_that_a_complete_implementation_finds(
            parts in prop::collection::vec(("[0-9]{1,4}(\\.[0-9]{1,2})?", "ms|s|m|h"), 1..4),
            expected in 0..20_000_000_i64,
        ) {
            let text: String = parts.into_iter().map(|(number, unit)| number + &unit).collect();
            let rule = format!("duration(self).getSeconds() >= {expected}");
            let value = Value::from(text);
            prop_assert_eq!(holds(&rule, &value), reference(&rule, &value));
        }
    }
}
