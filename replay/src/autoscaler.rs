//! The autoscaler that is replayed: [`run`] gives the replicas that it asks for every minute, with or without a
//! forecast, and [`Rule`] says how a forecast becomes a count.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use foretide_models::DemandBounds as Bounds;

use crate::Workload;

/// A proposal within this part of the target demand of the current replicas changes nothing.
///
/// # Source
/// The tolerance of the Kubernetes HPA.
pub const TOLERANCE: f64 = 0.1;

/// Minutes without a higher proposal, including the current one, after which replicas are removed.
const STABILIZATION: usize = 5;

/// The limits of the replica count.
const REPLICAS: RangeInclusive<u32> = 1..=100_000;

/// How a forecast becomes a count: when the count that is there stays, and which one replaces it.
///
/// # Formula
/// With `T` the target demand of a replica and `r` the reference count, `need` is the demand to provide for. `r` stays
/// while `need / (r T) - 1` is within the band; otherwise the count is `ceil(share * need / T)`.
///
/// | `count` | band | share |
/// |---|---|---|
/// | `Hpa` | -0.10 to 0.10 | 1 |
/// | `Band` | -0.05 to 0.10 | 0.95 |
///
/// | `reference` | `r` | `need` |
/// |---|---|---|
/// | `Current` | the current replicas | `min(max(need of the minute before, raise), hold)`; `hold` without one |
/// | `LastProposal` | the forecast's own last proposal | `min(max(r T, raise), hold)`; `hold` without one |
///
/// A minute without a forecast has no proposal, and clears what the next one would refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rule {
    /// The band, and the count beyond it.
    pub count: Count,
    /// What the band is relative to.
    pub reference: Reference,
}

/// When a count stays, and which one replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Count {
    /// The rule of the Kubernetes HPA for any metric.
    #[default]
    Hpa,
    /// A narrower band below, and fewer replicas beyond: a twentieth of the demand is left to the tolerance.
    Band,
}

/// What the band of a [`Rule`] is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Reference {
    /// The current replicas, as for the HPA.
    #[default]
    Current,
    /// The last proposal of the forecast itself.
    LastProposal,
}

/// A name that no rule has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {name:?} is unknown; expected hpa, hpa-last, band or band-last")]
pub struct UnknownRule {
    name: String,
}

/// Settings of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayConfig {
    /// Minutes from the request for a replica until it serves.
    pub start_up: usize,
    /// How a forecast becomes a count.
    pub rule: Rule,
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
struct State {
    target: f64,
    rule: Rule,
    current: u32,
    /// What the forecast asked for in the minute before; `None` without a forecast then.
    last: Option<Proposal>,
    /// The latest desired counts, at most [`STABILIZATION`].
    recent: VecDeque<u32>,
}

/// What a forecast asks for.
#[derive(Debug, Clone, Copy)]
struct Proposal {
    need: f64,
    replicas: u32,
}

// === impl Rule ===

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] = [
        Self::HPA,
        Self {
            count: Count::Hpa,
            reference: Reference::LastProposal,
        },
        Self {
            count: Count::Band,
            reference: Reference::Current,
        },
        Self {
            count: Count::Band,
            reference: Reference::LastProposal,
        },
    ];

    /// The rule of the HPA, for which a forecast is one more metric.
    pub const HPA: Self = Self {
        count: Count::Hpa,
        reference: Reference::Current,
    };

    /// The name: `hpa`, `hpa-last`, `band` or `band-last`.
    pub fn name(self) -> &'static str {
        match (self.count, self.reference) {
            (Count::Hpa, Reference::Current) => "hpa",
            (Count::Hpa, Reference::LastProposal) => "hpa-last",
            (Count::Band, Reference::Current) => "band",
            (Count::Band, Reference::LastProposal) => "band-last",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, UnknownRule> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == name);
        found.ok_or_else(|| UnknownRule {
            name: name.to_owned(),
        })
    }
}

// === impl Count ===

impl Count {
    /// The count for a demand of `need`, of which each replica carries `target`: `reference` while it stays.
    fn replicas(self, need: f64, target: f64, reference: Option<u32>) -> u32 {
        let asked = match self {
            Self::Hpa => {
                let off = reference.map(|count| need / (f64::from(count) * target) - 1.0);
                let stays = off.is_some_and(|off| off.abs() <= TOLERANCE);
                (!stays).then_some(need / target)
            }
            Self::Band => Bounds::both(need).replicas(reference.map(f64::from), target),
        };
        let replaced = asked.map(|asked| replicas(asked, 1.0));
        replaced.or(reference).unwrap_or_default()
    }
}

// === impl State ===

impl State {
    /// The replicas requested in one minute, from the demand of the minute before and the forecast.
    fn step(&mut self, observed: f64, forecast: Option<Bounds>) -> u32 {
        let proposal = Count::Hpa.replicas(observed, self.target, Some(self.current));
        self.last = forecast.map(|bounds| self.propose(bounds));
        let desired = proposal
            .max(self.last.map_or(0, |last| last.replicas))
            .clamp(*REPLICAS.start(), *REPLICAS.end());
        if self.recent.len() == STABILIZATION {
            self.recent.pop_front();
        }
        self.recent.push_back(desired);
        let stabilized = self.recent.iter().copied().max().unwrap_or(desired);
        // Up at once; down only to the highest count that was desired within the window.
        self.current = desired.max(self.current.min(stabilized));
        self.current
    }

    /// What the forecast asks for.
    fn propose(&self, bounds: Bounds) -> Proposal {
        let (provided, reference) = match self.rule.reference {
            Reference::Current => (self.last.map(|last| last.need), Some(self.current)),
            Reference::LastProposal => {
                let held = self.last.map(|last| last.replicas);
                (held.map(|held| f64::from(held) * self.target), held)
            }
        };
        let need = bounds.need(provided);
        let replicas = self.rule.count.replicas(need, self.target, reference);
        Proposal { need, replicas }
    }
}

/// Replays the workload. `forecast` has one entry per minute of the run; missing entries mean no forecast.
pub fn run(workload: &Workload<'_>, config: ReplayConfig, forecast: &[Option<Bounds>]) -> Run {
    let target = workload.target();
    let demand = workload.demand();
    let observed = demand.get(workload.first() - 1..).unwrap_or_default();
    let mut autoscaler = State {
        target,
        rule: config.rule,
        current: observed
            .first()
            .map_or(1, |&demand| replicas(demand, target).max(1)),
        last: None,
        recent: VecDeque::with_capacity(STABILIZATION),
    };
    let forecasts = forecast.iter().copied().chain(std::iter::repeat(None));
    let minutes = demand.len() - workload.first();
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
    // A request serves after `start_up`, a removal at once.
    let least = |t| since(t).iter().copied().min().unwrap_or(0);
    (0..asked.len()).map(least).collect()
}

/// The number of replicas for a demand. A billionth of a replica is taken as a rounding error.
pub(crate) fn replicas(demand: f64, target: f64) -> u32 {
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
    use proptest::prelude::*;

    const HPA_LAST: Rule = Rule::ALL[1];
    const BAND: Rule = Rule::ALL[2];
    const BAND_LAST: Rule = Rule::ALL[3];

    /// Demand of the minutes before each decision, and then no change; a replica carries 10.
    fn asked(rule: Rule, observed: &[f64], forecast: &[Option<Bounds>]) -> Vec<u32> {
        let still = std::iter::repeat_n(observed[observed.len() - 1], 40);
        let demand: Vec<f64> = observed.iter().copied().chain(still).collect();
        let workload = Workload::counted_from(&demand, 31).unwrap();
        let config = ReplayConfig { start_up: 0, rule };
        let run = run(&workload.with_target(10.0), config, forecast);
        run.asked[..observed.len()].to_vec()
    }

    /// Without demand, so that the counts are those of the forecast after the stabilization.
    fn proposed(rule: Rule, forecast: &[(f64, f64)]) -> Vec<u32> {
        let bounds = |&(raise, hold): &(f64, f64)| Some(Bounds { raise, hold });
        let forecast: Vec<_> = forecast.iter().map(bounds).collect();
        let observed: Vec<f64> = std::iter::repeat_n(0.0, forecast.len())
            .chain([1.0])
            .collect();
        asked(rule, &observed, &forecast)[..forecast.len()].to_vec()
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
        for rule in Rule::ALL {
            for (name, observed, expected) in cases {
                assert_eq!(asked(rule, observed, &[]), *expected, "{rule}: {name}");
            }
        }
    }

    #[test]
    fn a_forecast_is_one_more_proposal_and_the_highest_wins() {
        type Case = (
            &'static str,
            Rule,
            &'static [f64],
            &'static [f64],
            &'static [u32],
        );
        let cases: &[Case] = &[
            ("higher", Rule::HPA, &[50.0, 50.0], &[50.0, 80.0], &[5, 8]),
            ("lower", Rule::HPA, &[50.0, 50.0], &[10.0, 10.0], &[5, 5]),
            (
                "within tolerance",
                Rule::HPA,
                &[50.0, 50.0],
                &[54.0, 54.9],
                &[5, 5],
            ),
            (
                "against the current count, a count a little too high stays",
                Rule::HPA,
                &[110.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0],
                &[100.0; 7],
                &[11; 7],
            ),
            (
                "against its own last proposal, it does not",
                HPA_LAST,
                &[110.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0],
                &[100.0; 7],
                &[11, 11, 11, 11, 11, 10, 10],
            ),
            (
                "its own last proposal stays",
                HPA_LAST,
                &[50.0; 3],
                &[80.0, 87.9, 88.1],
                &[8, 8, 9],
            ),
        ];
        for (name, rule, observed, forecast, expected) in cases {
            let forecast: Vec<_> = forecast
                .iter()
                .map(|&one| Some(Bounds::both(one)))
                .collect();
            assert_eq!(asked(*rule, observed, &forecast), *expected, "{name}");
        }
        let none = [None, Some(Bounds::both(80.0)), None];
        assert_eq!(
            asked(Rule::HPA, &[50.0; 3], &none),
            [5, 8, 8],
            "no proposal"
        );
    }

    #[test]
    fn the_band_keeps_a_count_and_replaces_it_by_one_with_less() {
        for rule in [BAND, BAND_LAST] {
            // 95 of 100 is enough for ten replicas; these stay from 95 to 110.
            let one = |demands: &[f64]| {
                let both: Vec<_> = demands.iter().map(|&demand| (demand, demand)).collect();
                proposed(rule, &both)
            };
            assert_eq!(one(&[100.0]), [10], "{rule}");
            assert_eq!(one(&[100.0, 109.9, 95.1]), [10, 10, 10], "{rule}");
            assert_eq!(one(&[100.0, 110.1]), [10, 11], "{rule}");
            let falls = [100.0, 94.9, 94.9, 94.9, 94.9, 94.9];
            assert_eq!(
                one(&falls),
                [10, 10, 10, 10, 10, 10],
                "{rule}: 90.2 needs ten"
            );
            let falls = [100.0, 94.0, 94.0, 94.0, 94.0, 94.0];
            assert_eq!(one(&falls), [10, 10, 10, 10, 10, 9], "{rule}");
            // 950 / 1000 - 1 is a little below -0.05 by an error of rounding.
            let edge = [1050.0, 950.0, 950.0, 950.0, 950.0, 950.0];
            assert_eq!(one(&edge), [100; 6], "{rule}");
        }
    }

    #[test]
    fn between_its_bounds_a_forecast_changes_nothing() {
        type Case = (&'static str, &'static [(f64, f64)], &'static [u32]);
        let cases: [Case; 4] = [
            ("begins at hold", &[(50.0, 100.0)], &[10]),
            (
                "stays while it is between them",
                &[(100.0, 100.0), (50.0, 150.0), (90.0, 300.0)],
                &[10, 10, 10],
            ),
            (
                "rises to raise, not to hold",
                &[(100.0, 100.0), (120.0, 300.0)],
                &[10, 12],
            ),
            (
                "falls to hold, not to raise",
                &[
                    (100.0, 100.0),
                    (10.0, 60.0),
                    (10.0, 60.0),
                    (10.0, 60.0),
                    (10.0, 60.0),
                    (10.0, 60.0),
                ],
                &[10, 10, 10, 10, 10, 6],
            ),
        ];
        for rule in [BAND, BAND_LAST] {
            for (name, forecast, expected) in &cases {
                assert_eq!(proposed(rule, forecast), *expected, "{rule}: {name}");
            }
        }
    }

    #[test]
    fn a_missing_forecast_clears_what_the_next_one_refers_to() {
        let wide = Bounds {
            raise: 10.0,
            hold: 60.0,
        };
        let forecast = [Some(Bounds::both(30.0)), Some(wide), None, Some(wide)];
        for rule in [BAND, BAND_LAST] {
            let observed = [1.0; 5];
            assert_eq!(
                asked(rule, &observed, &forecast)[..4],
                [3, 3, 3, 6],
                "{rule}"
            );
        }
    }

    #[test]
    fn a_rule_is_read_by_its_name() {
        for rule in Rule::ALL {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert_eq!(
            "tolerance".parse::<Rule>().unwrap_err().to_string(),
            "rule \"tolerance\" is unknown; expected hpa, hpa-last, band or band-last"
        );
        assert_eq!(Rule::default(), Rule::HPA);
    }

    #[test]
    fn a_replica_serves_after_its_start_up_and_is_gone_at_once() {
        let asked = [2, 5, 5, 5, 3, 5];
        assert_eq!(serving(&asked, 2), [2, 2, 2, 5, 3, 3]);
        assert_eq!(serving(&asked, 0), asked);
        assert_eq!(serving(&asked, 9), [2; 6]);
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

    proptest! {
        #[test]
        fn what_is_asked_for_carries_demand_and_forecast_within_the_tolerance(
            observed in prop::collection::vec(1.0..200.0, 2..60),
            forecast in prop::collection::vec(prop::option::of((0.0..200.0, 0.0..50.0)), 60),
        ) {
            let bounds = |(raise, more): (f64, f64)| Bounds { raise, hold: raise + more };
            let forecast: Vec<_> = forecast.into_iter().map(|one| one.map(bounds)).collect();
            for rule in Rule::ALL {
                let asked = asked(rule, &observed, &forecast);
                for (asked, (observed, forecast)) in asked.iter().zip(observed.iter().zip(&forecast)) {
                    let raise = forecast.map_or(0.0, |bounds| bounds.raise);
                    let carried = f64::from(*asked) * 10.0 * (1.0 + TOLERANCE) + 1e-6;
                    prop_assert!(carried >= observed.max(raise), "{rule}: {asked} for {observed} and {raise}");
                }
            }
        }

        #[test]
        fn band_last_asks_for_what_the_controller_asks_for(
            forecast in prop::collection::vec((1.0..200.0, 0.0..50.0), 1..60),
        ) {
            let target = 10.0;
            let state = |last: Option<u32>| State {
                target,
                rule: BAND_LAST,
                current: 1,
                last: last.map(|replicas| Proposal { need: 0.0, replicas }),
                recent: VecDeque::new(),
            };
            let mut held = None;
            for (raise, more) in forecast {
                let bounds = Bounds { raise, hold: raise + more };
                let theirs = bounds.replicas(held.map(f64::from), target);
                let theirs = theirs.map_or(held, |asked| Some(replicas(asked, 1.0)));
                held = Some(state(held).propose(bounds).replicas);
                prop_assert_eq!(held, theirs);
            }
        }

        #[test]
        fn a_constant_forecast_gives_one_count(demand in 10.0..500.0) {
            for rule in Rule::ALL {
                let asked = proposed(rule, &[(demand, demand); 20]);
                prop_assert_eq!(&asked, &vec![asked[0]; 20], "{}", rule);
                if rule.reference == Reference::LastProposal {
                    let expected = rule.count.replicas(demand, 10.0, None).max(1);
                    prop_assert_eq!(asked[0], expected, "{}", rule);
                }
            }
        }
    }
}
