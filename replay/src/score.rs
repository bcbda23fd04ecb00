//! [`Score`]: what a replay cost and what demand it failed to serve, as one row of numbers. Only `cost` weighs the two
//! against each other.

use std::fmt;

use crate::autoscaler::replicas;
use crate::average::count;
use crate::{DAY, Run, TOLERANCE, Workload};

/// The target of a replica as a share of its capacity, above which it is overloaded.
const UTILIZATION: f64 = 0.7;

/// The cost of a missing replica-minute in spare replica-minutes.
const MISSING_WEIGHS: f64 = 20.0;

/// The result of a run in the counted minutes.
///
/// # Shape
/// `D` is the demand of a minute, `asked` and `ready` are replica counts, `T` is the target; sums and shares are over
/// all counted minutes, `(x)+` is x where positive, else zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Under-provisioned: percent of minutes with `D > 1.1 * ready * T`, past the HPA's own tolerance.
    pub under: f64,
    /// `100 * sum (D - 1.1 * ready * T)+ / sum D`, in percent.
    pub unmet: f64,
    /// Overload: percent of minutes with `D > ready * T / 0.7`, past the capacity of replicas with a target of 70 %.
    pub over: f64,
    /// `100 * sum (D - ready * T / 0.7)+ / sum D`, in percent.
    pub unmet_hard: f64,
    /// `sum asked / sum max(1, ceil(D / T))`: 1 is an autoscaler that knows each minute in advance.
    pub replicas: f64,
    /// Changes of the replica count per day.
    pub actions: f64,
    /// `(sum (asked - D/T)+ + 20 * sum (D/(1.1 * T) - ready)+) / sum D/T`: one missing replica-minute costs as much as
    /// twenty spare ones.
    pub cost: f64,
}

/// The sums that a score is made of.
#[derive(Debug, Default)]
struct Sums {
    minutes: f64,
    demand: f64,
    under: f64,
    unmet: f64,
    over: f64,
    unmet_hard: f64,
    asked: f64,
    needed: f64,
    excess: f64,
}

// === impl Score ===

impl Score {
    /// The heading of the rows that [`Display`](fmt::Display) writes.
    pub const COLUMNS: [&'static str; 7] =
        ["under", "unmet", "over", "unmet_hard", "rh", "actions", "j"];

    /// The score of a run of this workload.
    pub fn of(workload: &Workload<'_>, run: &Run) -> Self {
        let counts = run
            .asked
            .iter()
            .zip(&run.ready)
            .skip(workload.from() - workload.first());
        let mut sums = Sums::default();
        for (&demand, (&asked, &ready)) in workload.counted_demand().iter().zip(counts) {
            sums.add(demand / workload.target(), asked, ready);
        }
        let changes = changes(&run.asked, workload.from() - workload.first());
        sums.score(changes)
    }

    /// The numbers in the order of [`COLUMNS`](Self::COLUMNS).
    pub fn values(&self) -> [f64; 7] {
        [
            self.under,
            self.unmet,
            self.over,
            self.unmet_hard,
            self.replicas,
            self.actions,
            self.cost,
        ]
    }
}

/// From numbers in the order of [`Score::COLUMNS`].
impl From<[f64; 7]> for Score {
    fn from([under, unmet, over, unmet_hard, replicas, actions, cost]: [f64; 7]) -> Self {
        Self {
            under,
            unmet,
            over,
            unmet_hard,
            replicas,
            actions,
            cost,
        }
    }
}

/// Comma-separated, in the order of [`Score::COLUMNS`]; six decimals, four for actions.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            under,
            unmet,
            over,
            unmet_hard,
            replicas,
            actions,
            cost,
        } = self;
        write!(
            f,
            "{under:.6},{unmet:.6},{over:.6},{unmet_hard:.6},{replicas:.6},{actions:.4},{cost:.6}"
        )
    }
}

// === impl Sums ===

impl Sums {
    /// One minute; `load` is its demand in targets.
    fn add(&mut self, load: f64, asked: u32, ready: u32) {
        let (asked, ready) = (f64::from(asked), f64::from(ready));
        let (tolerated, capacity) = (ready * (1.0 + TOLERANCE), ready / UTILIZATION);
        self.minutes += 1.0;
        self.demand += load;
        self.under += f64::from(load > tolerated);
        self.unmet += (load - tolerated).max(0.0);
        self.over += f64::from(load > capacity);
        self.unmet_hard += (load - capacity).max(0.0);
        self.asked += asked;
        self.needed += f64::from(replicas(load, 1.0).max(1));
        self.excess += (asked - load).max(0.0);
    }

    fn score(&self, changes: usize) -> Score {
        let missing = self.unmet / (1.0 + TOLERANCE);
        Score {
            under: 100.0 * self.under / self.minutes,
            unmet: 100.0 * self.unmet / self.demand,
            over: 100.0 * self.over / self.minutes,
            unmet_hard: 100.0 * self.unmet_hard / self.demand,
            replicas: self.asked / self.needed,
            actions: count(changes) * count(DAY) / self.minutes,
            cost: (self.excess + MISSING_WEIGHS * missing) / self.demand,
        }
    }
}

/// How often the count changes after the first `skip` minutes.
fn changes(asked: &[u32], skip: usize) -> usize {
    let pairs = asked.iter().zip(asked.iter().skip(1));
    pairs
        .skip(skip.saturating_sub(1))
        .filter(|(before, after)| before != after)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_what_a_hand_computes() {
        // Thirty-one minutes that do not count, then loads of 10, 12, 8 and 15 targets.
        let mut demand = vec![100.0; 31];
        demand.extend([100.0, 120.0, 80.0, 150.0]);
        let workload = Workload::counted_from(&demand, 31)
            .unwrap()
            .with_target(10.0);
        let lead_in = [vec![10; 29], vec![9]].concat();
        let run = Run {
            asked: [lead_in.clone(), vec![10, 10, 12, 12]].concat(),
            ready: [lead_in, vec![10; 4]].concat(),
        };
        // Tolerated 11, capacity 14.29. Below: 1 and 4; hard: 0.714; spare: 4; changes: 9 to 10, 10 to 12.
        let expected = "50.000000,11.111111,25.000000,1.587302,0.977778,720.0000,2.109091";
        let score = Score::of(&workload, &run);
        assert_eq!(score.to_string(), expected);
        assert_eq!(Score::from(score.values()), score);
        assert_eq!(
            Score::COLUMNS.join(","),
            "under,unmet,over,unmet_hard,rh,actions,j"
        );
    }
}
