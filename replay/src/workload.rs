//! [`Workload`]: the demand that is replayed, which of its minutes count, and what one replica should carry.

use crate::DAY;
use crate::average::mean;

/// Minutes of a run before the first counted one.
const LEAD_IN: usize = 30;

/// The number of replicas for the mean demand.
const MEAN_REPLICAS: f64 = 10.0;

/// The demand of a workload, which minutes of it are counted, and the target demand of one replica.
#[derive(Debug, Clone, Copy)]
pub struct Workload<'a> {
    demand: &'a [f64],
    from: usize,
    target: f64,
}

/// Demand that cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Less than five days of demand.
    #[error("demand covers {minutes} minutes; expected at least 7200, which are five days")]
    TooShort {
        /// The length of the demand.
        minutes: usize,
    },
    /// A value that is not finite or is negative.
    #[error("demand of minute {minute} is {value}; expected a finite number of at least zero")]
    NotDemand {
        /// Its minute.
        minute: usize,
        /// The value.
        value: f64,
    },
    /// Demand is zero in every counted minute.
    #[error("demand is zero in every counted minute; expected a positive value")]
    Idle,
}

// === impl Workload ===

impl<'a> Workload<'a> {
    /// A workload whose demand after the first seven days is counted; if it is shorter than ten and a half days, the
    /// last four days are. The target of one replica is a tenth of the mean counted demand.
    ///
    /// # Errors
    /// [`WorkloadError`] if there are less than five days, a value is not finite or is negative, or all counted values
    /// are zero.
    pub fn new(demand: &'a [f64]) -> Result<Self, WorkloadError> {
        let minutes = demand.len();
        if minutes < 5 * DAY {
            return Err(WorkloadError::TooShort { minutes });
        }
        let from = if 2 * minutes < 21 * DAY {
            minutes - 4 * DAY
        } else {
            7 * DAY
        };
        Self::counted_from(demand, from)
    }

    /// A workload whose demand from minute `from` on is counted; `from` is at least 31.
    ///
    /// # Errors
    /// As for [`new`](Self::new); also if no minute is left to count.
    pub fn counted_from(demand: &'a [f64], from: usize) -> Result<Self, WorkloadError> {
        let bad = |value: &f64| !value.is_finite() || *value < 0.0;
        if let Some((minute, &value)) = demand.iter().enumerate().find(|(_, value)| bad(value)) {
            return Err(WorkloadError::NotDemand { minute, value });
        }
        // Each minute is decided from the one before, so a run cannot begin with the first.
        let from = from.max(LEAD_IN + 1);
        let target = mean(demand.iter().copied().skip(from)).unwrap_or(0.0) / MEAN_REPLICAS;
        if target > 0.0 {
            Ok(Self {
                demand,
                from,
                target,
            })
        } else {
            Err(WorkloadError::Idle)
        }
    }

    /// The same workload with another target per replica, in the unit of the metric; above zero.
    #[must_use]
    pub fn with_target(self, target: f64) -> Self {
        Self { target, ..self }
    }

    /// The demand of every minute.
    pub fn demand(&self) -> &'a [f64] {
        self.demand
    }

    /// The first counted minute.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The first minute of a run.
    pub fn first(&self) -> usize {
        self.from - LEAD_IN
    }

    /// The target demand of one replica.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The values of a run in the counted minutes.
    pub fn counted<T>(&self, of_the_run: &'a [T]) -> &'a [T] {
        of_the_run.get(LEAD_IN..).unwrap_or_default()
    }

    /// The demand of the counted minutes.
    pub fn counted_demand(&self) -> &'a [f64] {
        self.demand.get(self.from..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_begins_after_seven_days_or_four_days_before_the_end() {
        let begins = |minutes: usize| {
            let demand = vec![50.0; minutes];
            Workload::new(&demand)
                .map(|workload| (workload.first(), workload.from(), workload.target()))
        };
        assert_eq!(begins(21 * 720), Ok((10_050, 10_080, 5.0)));
        assert_eq!(begins(21 * 720 - 1), Ok((9329, 9359, 5.0)));
        assert_eq!(begins(7200), Ok((1410, 1440, 5.0)));
        assert_eq!(begins(7199), Err(WorkloadError::TooShort { minutes: 7199 }));
        assert_eq!(
            Workload::new(&vec![0.0; 7200]).unwrap_err(),
            WorkloadError::Idle
        );
        let error = Workload::counted_from(&[1.0, f64::INFINITY], 0).unwrap_err();
        let message = "demand of minute 1 is inf; expected a finite number of at least zero";
        assert_eq!(error.to_string(), message);
    }
}
