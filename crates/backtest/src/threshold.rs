//! Bounds on a back-test that make a pipeline fail, such as `under>1%`.

use std::fmt;
use std::str::FromStr;

use foretide_domain::sim::Score;
use serde::{Serialize, Serializer};

use crate::{Error, runs::RunError};

/// The accepted syntax.
const EXPECTED: &str = "expected under>PERCENT%, cost>PERCENT% or actions>NUMBER, such as under>1%";

/// A bound on a quantity that must not be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, derive_more::Display)]
#[display("{}>{limit}{}", quantity.as_str(), quantity.unit())]
pub struct Bound {
    quantity: Quantity,
    limit: f64,
}

/// Quantity that a bound limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Under-provisioned minutes, in percent of all.
    Under,
    /// Replica-hours more than those of the plain HPA, in percent.
    Cost,
    /// Changes of the count.
    Actions,
}

/// A bound and its value for a score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The bound.
    #[serde(serialize_with = "as_written")]
    pub bound: Bound,
    /// Value of the bounded quantity.
    pub value: f64,
    /// Set if the value is above the bound.
    pub exceeded: bool,
}

// === impl Quantity ===

impl Quantity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Under => "under",
            Self::Cost => "cost",
            Self::Actions => "actions",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Under | Self::Cost => "%",
            Self::Actions => "",
        }
    }
}

// === impl Bound ===

impl Bound {
    /// The value of the bounded quantity for a score.
    pub fn outcome(self, ours: &Score, plain: Option<&Score>) -> Outcome {
        let value = match self.quantity {
            Quantity::Under => ours.under_percent(),
            // A bound on cost without a baseline was refused by `check`.
            Quantity::Cost => plain.map_or(0.0, |plain| ours.more_percent(plain)),
            Quantity::Actions => f64::from(ours.actions),
        };
        Outcome {
            bound: self,
            value,
            exceeded: value > self.limit,
        }
    }
}

/// Writes a bound as users write it.
fn as_written<S: Serializer>(bound: &Bound, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(bound)
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || format!("{EXPECTED}; got {text:?}");
        let (quantity, limit) = text.split_once('>').ok_or_else(refused)?;
        let quantity = [Quantity::Under, Quantity::Cost, Quantity::Actions]
            .into_iter()
            .find(|known| known.as_str() == quantity.trim())
            .ok_or_else(refused)?;
        let written = limit.trim();
        let number = match quantity.unit() {
            "" => Some(written),
            unit => written.strip_suffix(unit),
        };
        let limit = number
            .and_then(|number| number.trim().parse::<f64>().ok())
            .filter(|limit| limit.is_finite())
            .ok_or_else(refused)?;
        Ok(Self { quantity, limit })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = (self.bound.quantity.as_str(), self.bound.quantity.unit());
        let value = (self.value * 100.0).round() / 100.0;
        let outcome = if self.exceeded {
            "exceeded"
        } else {
            "not exceeded"
        };
        write!(
            f,
            "--fail-if '{}' {outcome}: {name} is {value}{unit}",
            self.bound
        )
    }
}

/// Checks that a bound on cost has a baseline to compare with.
///
/// # Errors
/// The first bound without one.
pub fn check(bounds: &[Bound], has_baseline: bool) -> Result<(), Error> {
    let mut of_cost = bounds
        .iter()
        .filter(|bound| bound.quantity == Quantity::Cost);
    match of_cost.next() {
        Some(bound) if !has_baseline => Err(RunError::NoBaseline(bound.to_string()).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_quantity_and_a_limit_in_its_unit() {
        for (text, shown) in [
            ("under>1%", "under>1%"),
            (" cost > 10.5 % ", "cost>10.5%"),
            ("actions>50", "actions>50"),
            ("cost>-5%", "cost>-5%"),
        ] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), shown);
        }
        for bad in [
            "under",
            "under>1",
            "under<1%",
            "actions>5%",
            "price>1%",
            "under>NaN%",
            "",
        ] {
            let error = bad.parse::<Bound>().unwrap_err();
            assert_eq!(error, format!("{EXPECTED}; got {bad:?}"));
        }
    }

    #[test]
    fn a_bound_is_exceeded_above_its_limit_and_not_at_it() {
        let ours = Score {
            minutes: 200,
            under: 2,
            replica_minutes: 110,
            actions: 7,
            ..Score::default()
        };
        let plain = Score {
            replica_minutes: 100,
            ..Score::default()
        };
        for (bound, exceeded) in [
            ("under>1%", false),
            ("under>0.9%", true),
            ("cost>9%", true),
            ("cost>11%", false),
            ("actions>7", false),
            ("actions>6", true),
        ] {
            let outcome = bound.parse::<Bound>().unwrap().outcome(&ours, Some(&plain));
            assert_eq!(outcome.exceeded, exceeded, "{outcome}");
        }
        let outcome = "under>0.9%".parse::<Bound>().unwrap().outcome(&ours, None);
        assert_eq!(
            outcome.to_string(),
            "--fail-if 'under>0.9%' exceeded: under is 1%"
        );
    }
}
