//! Replays the demand of a workload, minute by minute, against a horizontal autoscaler with or without a forecast. All
//! forecasters of this crate are compared this way. Clusters are not simulated, and a forecaster is a list of numbers.
//!
//! # The autoscaler that is replayed
//! A service runs as a number of equal *replicas*. An operator configures how much demand one of them should carry: the
//! *target*. Every minute the autoscaler proposes `ceil(demand of the last minute / target)` replicas, unless that
//! is within 10 % of what the current ones should carry; then it keeps them. A forecast is one more proposal by
//! the same rule, and the highest proposal wins. More replicas are asked for at once but serve only after a *start-up
//! time*; fewer only once no proposal of the last five minutes was higher, and then at once. This is the rule of the
//! Kubernetes HPA, with a minute for its 15 seconds and no limit to how fast it may grow.
//!
//! `cargo run --release -p foretide-models --example replay -- FOLDER` replays every candidate on a folder of traces
//! and prints their results.
//!
//! # Shape
//! `demand[t]` is the mean of minute `t`, of the whole workload, in the unit of the metric. At the start of minute `t`
//! the minutes before it are known, and nothing else. A run begins 30 minutes before the first minute that counts, and
//! everything here that is "of the run" starts there: see [`Workload::first`].
//!
//! ```
//! use foretide_models::replay::{ReplayConfig, Score, Workload, run};
//!
//! // Eight days of a service that is busy from noon to one.
//! let demand: Vec<f64> = (0..8 * 1440)
//!     .map(|minute| if (720..780).contains(&(minute % 1440)) { 300.0 } else { 100.0 })
//!     .collect();
//! let workload = Workload::new(&demand)?;
//! let config = ReplayConfig { start_up: 2, ..ReplayConfig::default() };
//!
//! // Without a forecast, the autoscaler reacts when noon has come, and its replicas start too late.
//! let alone = run(&workload, config, &[]);
//! // A forecast of the next five minutes, here yesterday's demand, starts them in time.
//! let yesterday: Vec<_> = (workload.first()..demand.len())
//!     .map(|t| Some(demand[t - 1440..t - 1435].iter().copied().fold(0.0, f64::max)))
//!     .collect();
//! let with_forecast = run(&workload, config, &yesterday);
//!
//! let (alone, with_forecast) = (Score::of(&workload, &alone), Score::of(&workload, &with_forecast));
//! assert!(alone.under > 0.0 && with_forecast.under == 0.0);
//! assert!(with_forecast.replicas > alone.replicas);
//! # Ok::<(), foretide_models::replay::WorkloadError>(())
//! ```

mod accuracy;
mod auto;
mod candidate;
mod candidates;
mod score;
mod summary;

use std::collections::VecDeque;

use crate::series::count;

pub use accuracy::{Accuracy, highest_of_next};
pub use auto::AutoCandidate;
pub use candidate::{Candidate, CandidateForecast, MARGINS, Tuning, forecasts};
pub use candidates::{CalibratedPersistence, NaiveCandidate, RefittedCandidate};
pub use score::Score;
pub use summary::{Curve, Means, geometric_mean, mean, median};

/// Minutes in a day.
pub const DAY: usize = 1440;

/// A proposal within this part of the target demand of the current replicas changes nothing.
///
/// # Source
/// The tolerance of the Kubernetes HPA.
pub const TOLERANCE: f64 = 0.1;

/// Minutes of the run before the first counted one.
const LEAD_IN: usize = 30;

/// Minutes without a higher proposal, including the current one, after which replicas are removed.
const STABILIZATION: usize = 5;

/// The number of replicas for the mean demand.
const MEAN_REPLICAS: f64 = 10.0;

/// The limits of the replica count.
const REPLICAS: std::ops::RangeInclusive<u32> = 1..=100_000;

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

/// Settings of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayConfig {
    /// Minutes from the request for a replica until it serves.
    pub start_up: usize,
    /// What the tolerance of a forecast is relative to.
    pub tolerance: ToleranceReference,
}

/// What a forecast must differ from by more than [`TOLERANCE`] to be a new proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToleranceReference {
    /// The target demand of the current replicas; within tolerance, these are proposed again. The rule of the HPA.
    #[default]
    Current,
    /// The target demand of the last proposal of the forecast; within tolerance, it is repeated.
    LastProposal,
}

/// The replica counts of a replay.
///
/// # Shape
/// One value a minute, from [`Workload::first`] to the end of the demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Requested replicas, which are paid for.
    pub asked: Vec<u32>,
    /// Serving replicas.
    pub ready: Vec<u32>,
}

/// The state of the autoscaler between two minutes.
#[derive(Debug)]
struct ReplayState {
    target: f64,
    tolerance: ToleranceReference,
    current: u32,
    /// The last proposal of the forecast.
    forecast: Option<u32>,
    /// The latest desired counts, at most [`STABILIZATION`].
    recent: VecDeque<u32>,
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
    #[must_use]
    pub fn demand(&self) -> &'a [f64] {
        self.demand
    }

    /// The first counted minute.
    #[must_use]
    pub fn from(&self) -> usize {
        self.from
    }

    /// The first minute of a run.
    #[must_use]
    pub fn first(&self) -> usize {
        self.from - LEAD_IN
    }

    /// The target demand of one replica.
    #[must_use]
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The values of a run in the counted minutes.
    pub fn counted<T>(&self, of_the_run: &'a [T]) -> &'a [T] {
        of_the_run.get(LEAD_IN..).unwrap_or_default()
    }

    /// The demand of the counted minutes.
    #[must_use]
    pub fn counted_demand(&self) -> &'a [f64] {
        self.demand.get(self.from..).unwrap_or_default()
    }
}

// === impl ReplayState ===

impl ReplayState {
    /// The replicas requested in one minute, from the demand of the minute before and the forecast.
    fn step(&mut self, observed: f64, forecast: Option<f64>) -> u32 {
        let proposal = self.propose(observed, Some(self.current));
        let from_forecast = forecast.map(|forecast| self.propose(forecast, self.held()));
        self.forecast = from_forecast;
        let desired = proposal
            .max(from_forecast.unwrap_or(0))
            .clamp(*REPLICAS.start(), *REPLICAS.end());
        if self.recent.len() == STABILIZATION {
            self.recent.pop_front();
        }
        self.recent.push_back(desired);
        let stabilized = self.recent.iter().copied().max().unwrap_or(desired);
        self.current = desired.max(self.current.min(stabilized));
        self.current
    }

    /// The replicas that the tolerance of a forecast is relative to.
    fn held(&self) -> Option<u32> {
        match self.tolerance {
            ToleranceReference::Current => Some(self.current),
            ToleranceReference::LastProposal => self.forecast,
        }
    }

    /// `held` if its target demand is within tolerance of `demand`, else the replicas for `demand`.
    fn propose(&self, demand: f64, held: Option<u32>) -> u32 {
        let about = |held: &u32| {
            let ratio = demand / (f64::from(*held) * self.target);
            (ratio - 1.0).abs() <= TOLERANCE
        };
        held.filter(about)
            .unwrap_or_else(|| replicas(demand, self.target))
    }
}

/// Replays the workload. `forecast` has one entry per minute of the run; missing entries mean no forecast.
#[must_use]
pub fn run(workload: &Workload<'_>, config: ReplayConfig, forecast: &[Option<f64>]) -> Run {
    let target = workload.target;
    let observed = workload
        .demand
        .get(workload.first() - 1..)
        .unwrap_or_default();
    let mut autoscaler = ReplayState {
        target,
        tolerance: config.tolerance,
        current: observed
            .first()
            .map_or(1, |&demand| replicas(demand, target).max(1)),
        forecast: None,
        recent: VecDeque::with_capacity(STABILIZATION),
    };
    let forecasts = forecast.iter().copied().chain(std::iter::repeat(None));
    let minutes = workload.demand.len() - workload.first();
    let asked: Vec<u32> = observed
        .iter()
        .zip(forecasts)
        .take(minutes)
        .map(|(&observed, forecast)| autoscaler.step(observed, forecast))
        .collect();
    let ready = serving(&asked, config.start_up);
    Run { asked, ready }
}

/// The serving replicas: the least request of this minute and the `start_up` minutes before it.
fn serving(asked: &[u32], start_up: usize) -> Vec<u32> {
    let since = |t: usize| {
        asked
            .get(t.saturating_sub(start_up)..=t)
            .unwrap_or_default()
    };
    let least = |t| since(t).iter().copied().min().unwrap_or(0);
    (0..asked.len()).map(least).collect()
}

/// The number of replicas for a demand. A billionth of a replica is taken as a rounding error.
fn replicas(demand: f64, target: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast saturates, and the limits of the replica count are far inside"
    )]
    let needed = (demand / target - 1e-9).ceil() as u32;
    needed.min(*REPLICAS.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demand of the minutes before each decision, and then no change; a replica carries 10.
    fn asked(
        tolerance: ToleranceReference,
        observed: &[f64],
        forecast: &[Option<f64>],
    ) -> Vec<u32> {
        let still = std::iter::repeat_n(observed[observed.len() - 1], 40);
        let demand: Vec<f64> = observed.iter().copied().chain(still).collect();
        let workload = Workload::counted_from(&demand, 31).unwrap();
        let config = ReplayConfig {
            start_up: 0,
            tolerance,
        };
        let run = run(&workload.with_target(10.0), config, forecast);
        run.asked[..observed.len()].to_vec()
    }

    #[test]
    fn the_autoscaler_follows_demand_by_its_rules() {
        type Case = (&'static str, &'static [f64], &'static [u32]);
        let cases: &[Case] = &[
            ("begins at what is needed", &[41.0], &[5]),
            (
                "within 10 % nothing changes",
                &[50.0, 54.9, 45.1],
                &[5, 5, 5],
            ),
            ("beyond 10 % it does", &[50.0, 55.1, 66.1], &[5, 6, 7]),
            (
                "grows at once and without limit",
                &[10.0, 9000.0],
                &[1, 900],
            ),
            (
                "a billionth is rounding",
                &[30.0, 50.000_000_005, 60.000_1],
                &[3, 5, 7],
            ),
            ("never below one", &[0.0, 0.0, 1.0], &[1, 1, 1]),
            ("never above the limit", &[10.0, 1e9], &[1, 100_000]),
            (
                "shrinks once five minutes proposed less",
                &[100.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0],
                &[10, 10, 10, 10, 10, 5, 5],
            ),
            (
                "shrinks to the highest of the last five minutes",
                &[100.0, 50.0, 80.0, 50.0, 50.0, 50.0, 50.0, 50.0],
                &[10, 10, 10, 10, 10, 8, 8, 5],
            ),
            (
                "a proposal within tolerance counts as what is there",
                &[100.0, 91.0, 50.0, 50.0, 50.0, 50.0, 50.0],
                &[10, 10, 10, 10, 10, 10, 5],
            ),
        ];
        for (name, observed, expected) in cases {
            assert_eq!(
                asked(ToleranceReference::Current, observed, &[]),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_forecast_is_one_more_proposal_and_the_highest_wins() {
        type Case = (
            &'static str,
            ToleranceReference,
            &'static [f64],
            &'static [f64],
            &'static [u32],
        );
        let (current, last) = (
            ToleranceReference::Current,
            ToleranceReference::LastProposal,
        );
        let cases: &[Case] = &[
            ("higher", current, &[50.0, 50.0], &[50.0, 80.0], &[5, 8]),
            ("lower", current, &[50.0, 50.0], &[10.0, 10.0], &[5, 5]),
            (
                "within tolerance",
                current,
                &[50.0, 50.0],
                &[54.0, 54.9],
                &[5, 5],
            ),
            (
                "against the current count, a count a little too high stays",
                current,
                &[110.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0],
                &[100.0; 7],
                &[11; 7],
            ),
            (
                "against its own last proposal, it does not",
                last,
                &[110.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0],
                &[100.0; 7],
                &[11, 11, 11, 11, 11, 10, 10],
            ),
            (
                "its own last proposal stays",
                last,
                &[50.0; 3],
                &[80.0, 87.9, 88.1],
                &[8, 8, 9],
            ),
        ];
        for (name, hold, observed, forecast, expected) in cases {
            let forecast: Vec<_> = forecast.iter().copied().map(Some).collect();
            assert_eq!(asked(*hold, observed, &forecast), *expected, "{name}");
        }
        let none = [None, Some(80.0), None];
        assert_eq!(asked(current, &[50.0; 3], &none), [5, 8, 8], "no proposal");
    }

    #[test]
    fn a_replica_serves_after_its_start_up_and_is_gone_at_once() {
        let asked = [2, 5, 5, 5, 3, 5];
        assert_eq!(serving(&asked, 2), [2, 2, 2, 5, 3, 3]);
        assert_eq!(serving(&asked, 0), asked);
        assert_eq!(serving(&asked, 9), [2; 6]);
    }

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

    #[test]
    fn a_run_begins_half_an_hour_before_what_counts_and_ends_with_the_demand() {
        let demand = vec![50.0; 7200];
        let workload = Workload::new(&demand).unwrap();
        let run = run(&workload, ReplayConfig::default(), &[]);
        assert_eq!(
            run,
            Run {
                asked: vec![10; 5790],
                ready: vec![10; 5790]
            }
        );
        assert_eq!(
            workload.counted(&run.asked).len(),
            workload.counted_demand().len()
        );
    }
}
