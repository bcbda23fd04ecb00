//! [`SharedPrice`]: one budget for many series. All of them buy replicas at the same price, the highest use of the budget
//! that one price can make.
//!
//! # Formula
//! At a price `p` each series takes the level with the least `short + p * replicas`. As `p` falls, it walks along the
//! lower convex hull of its levels, and each of its edges has a slope: the share of minutes that another replica there
//! saves. So the replicas of all change at these slopes only, and the price is between the last one that the budget
//! allows and the first that it does not. Then no replica of one series would save more in another.

/// Slopes and counts that differ by less than this, as a fraction, are taken as equal.
const EQUAL: f64 = 1e-6;

/// The short minutes and the replicas that a series would have had at each quantile level in its own past: means of
/// about ten days.
///
/// ```
/// use foretide_models::{TradeOff, TradeOffs};
///
/// let level = |quantile, short, replicas| TradeOff { quantile, short, replicas };
/// let measured = TradeOffs { levels: vec![level(0.5, 0.02, 10.0), level(0.9, 0.0, 12.0)], alone: 9.0 };
/// // Each of the two replicas saves one minute in a hundred.
/// assert_eq!(measured.at_price(0.005), Some(0.9));
/// assert_eq!(measured.at_price(0.015), Some(0.5));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TradeOffs {
    /// The levels by quantile, ascending.
    pub levels: Vec<TradeOff>,
    /// The replicas without a forecast: those of a plain HPA.
    pub alone: f64,
}

/// The short minutes and the replicas that a series would have had at one quantile level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TradeOff {
    /// The quantile of the level.
    pub quantile: f64,
    /// The share of minutes with too few replicas, in `[0, 1]`.
    pub short: f64,
    /// The mean count of replicas, or of the demand that is provided for where it is not known what a replica carries.
    pub replicas: f64,
}

/// The price that keeps many series within one budget, with its cost and its short minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedPrice {
    /// The share of minutes that a replica must save to be worth asking for: see [`TradeOffs::at_price`].
    pub price: f64,
    /// The replicas beyond those of a plain HPA, in percent of them. It is above the budget where even the cheapest
    /// levels are.
    pub cost_percent: f64,
    /// The sum of the shares of short minutes, in minutes per minute.
    pub short: f64,
}

/// An edge of the lower hull of a series: from a level to one with more replicas.
#[derive(Debug, Clone, Copy)]
struct Edge {
    /// The share of minutes that each replica saves.
    slope: f64,
    replicas: f64,
    saved: f64,
}

// === impl SharedPrice ===

impl SharedPrice {
    /// The price at which the series together have at most `percent` more replicas than without a forecast: the lowest
    /// one, so that they use as much of the budget as one price for all can. `None` where nothing is known of any.
    ///
    /// # Guarantees
    /// - Within the budget, unless the cheapest levels exceed it; then these are taken.
    /// - A larger budget never has more short minutes, nor a higher price.
    /// - The order of the series does not matter, but for the last digits.
    ///
    /// ```
    /// use foretide_models::{SharedPrice, TradeOff, TradeOffs};
    ///
    /// let level = |quantile, short, replicas| TradeOff { quantile, short, replicas };
    /// let steady = TradeOffs { levels: vec![level(0.5, 0.001, 10.0), level(0.9, 0.0, 12.0)], alone: 10.0 };
    /// let bursty = TradeOffs { levels: vec![level(0.5, 0.030, 10.0), level(0.9, 0.002, 12.0)], alone: 10.0 };
    /// // Two replicas more are allowed, and the bursty one needs them.
    /// let shared = SharedPrice::within(10.0, [&steady, &bursty]).unwrap();
    /// assert_eq!(steady.at_price(shared.price), Some(0.5));
    /// assert_eq!(bursty.at_price(shared.price), Some(0.9));
    /// ```
    pub fn within<'a>(
        percent: f64,
        series: impl IntoIterator<Item = &'a TradeOffs>,
    ) -> Option<Self> {
        let (mut alone, mut replicas, mut short) = (0.0, 0.0, 0.0);
        let mut edges = Vec::new();
        for one in series {
            let Some(cheapest) = one.cheapest() else {
                continue;
            };
            alone += one.alone;
            replicas += cheapest.replicas;
            short += cheapest.short;
            edges.extend(one.edges(cheapest));
        }
        // The budget is a percentage of these replicas, and nothing is a percentage of none.
        if alone <= 0.0 {
            return None;
        }
        // The replicas that save the most are bought first.
        edges.sort_by(|a, b| b.slope.total_cmp(&a.slope));
        let budget = alone * (1.0 + percent / 100.0);
        let mut bought = None;
        let mut refused = None;
        // Series with the same slope buy at the same price: all of them, or none.
        for equal in edges.chunk_by(|a, b| b.slope > a.slope * (1.0 - EQUAL)) {
            let more: f64 = equal.iter().map(|edge| edge.replicas).sum();
            if replicas + more > budget {
                refused = equal.first().map(|edge| edge.slope);
                break;
            }
            replicas += more;
            short -= equal.iter().map(|edge| edge.saved).sum::<f64>();
            bought = equal.last().map(|edge| edge.slope);
        }
        let price = match (bought, refused) {
            (_, None) => 0.0,
            // Above the highest slope no series buys a replica.
            (None, Some(refused)) => 2.0 * refused,
            // In the middle, so that neither the last digits nor the next minute change a quantile.
            (Some(bought), Some(refused)) => bought.sqrt() * refused.sqrt(),
        };
        Some(Self {
            price,
            cost_percent: 100.0 * (replicas / alone - 1.0),
            short,
        })
    }
}

// === impl TradeOffs ===

impl TradeOffs {
    /// The level at which another replica is worth less than `price`, a share of minutes: it has the least sum of its
    /// short share and the price of its replicas, and of equal ones the fewest replicas. `None` without levels.
    ///
    /// A price of 0 takes the level with the fewest short minutes.
    ///
    /// # Units
    /// `price` is a share of minutes for each replica, as in [`SharedPrice::price`].
    pub fn at_price(&self, price: f64) -> Option<f64> {
        self.levels
            .iter()
            .min_by(|a, b| {
                a.total(price)
                    .total_cmp(&b.total(price))
                    .then(a.replicas.total_cmp(&b.replicas))
            })
            .map(|level| level.quantile)
    }

    /// The level with the fewest replicas; `None` if something is no number, or there is none.
    fn cheapest(&self) -> Option<TradeOff> {
        let finite = |level: &TradeOff| level.short.is_finite() && level.replicas.is_finite();
        let usable = self.alone.is_finite() && self.levels.iter().all(finite);
        let mut levels = self.levels.iter().filter(|_| usable).copied();
        let first = levels.next()?;
        Some(levels.fold(first, |best, level| {
            let (replicas, short) = (level.replicas, level.short);
            if (replicas, short) < (best.replicas, best.short) {
                level
            } else {
                best
            }
        }))
    }

    /// The edges of the lower hull from the cheapest level on, in descending order of their slopes.
    fn edges(&self, cheapest: TradeOff) -> impl Iterator<Item = Edge> + '_ {
        let mut at = cheapest;
        std::iter::from_fn(move || {
            let from = at;
            let steepest = self
                .levels
                .iter()
                // Levels with the same replicas have no slope between them.
                .filter(|level| {
                    level.short < from.short && level.replicas > from.replicas * (1.0 + EQUAL)
                })
                .max_by(|a, b| {
                    let (a, b) = (from.edge_to(a), from.edge_to(b));
                    a.slope
                        .total_cmp(&b.slope)
                        .then(a.replicas.total_cmp(&b.replicas))
                })?;
            at = *steepest;
            Some(from.edge_to(steepest))
        })
    }
}

// === impl TradeOff ===

impl TradeOff {
    /// The short share and the price of the replicas.
    fn total(&self, price: f64) -> f64 {
        self.short + price * self.replicas
    }

    fn edge_to(&self, level: &Self) -> Edge {
        Edge {
            slope: (self.short - level.short) / (level.replicas - self.replicas),
            replicas: level.replicas - self.replicas,
            saved: self.short - level.short,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// The same cases on every machine; a failure prints its values.
    fn cases() -> ProptestConfig {
        ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(20_261_126),
            ..ProptestConfig::default()
        }
    }

    /// Up to five levels, in any order and with ties.
    fn any_series() -> impl Strategy<Value = TradeOffs> {
        let level = (0_u16..40, 10_u16..30);
        let levels = prop::collection::vec(level, 1..5);
        levels.prop_map(|levels| TradeOffs {
            alone: 10.0,
            levels: levels
                .into_iter()
                .zip([0.5, 0.8, 0.9, 0.99])
                .map(|((short, replicas), quantile)| TradeOff {
                    quantile,
                    short: f64::from(short) / 1000.0,
                    replicas: f64::from(replicas),
                })
                .collect(),
        })
    }

    fn some_series() -> impl Strategy<Value = Vec<TradeOffs>> {
        prop::collection::vec(any_series(), 1..5)
    }

    /// The replicas and the short share of all at one price.
    fn at_price(series: &[TradeOffs], price: f64) -> (f64, f64) {
        let taken = series.iter().map(|one| {
            let quantile = one.at_price(price).unwrap();
            let level = one.levels.iter().find(|l| l.quantile >= quantile).unwrap();
            (level.replicas, level.short)
        });
        taken.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn alone(series: &[TradeOffs]) -> f64 {
        series.iter().map(|one| one.alone).sum()
    }

    /// The replicas and the short share of every choice of levels.
    fn choices(series: &[TradeOffs]) -> Vec<(f64, f64)> {
        series.iter().fold(vec![(0.0, 0.0)], |sums, one| {
            let with = |sum: &(f64, f64)| {
                let (replicas, short) = *sum;
                let levels = one.levels.iter();
                let sums = levels.map(move |l| (replicas + l.replicas, short + l.short));
                sums.collect::<Vec<_>>()
            };
            sums.iter().flat_map(with).collect()
        })
    }

    /// Prices between any two slopes of pairs of levels, and beyond them.
    fn prices(series: &[TradeOffs]) -> Vec<f64> {
        let mut slopes = vec![0.0, 1.0];
        for one in series {
            for (a, b) in one
                .levels
                .iter()
                .flat_map(|a| one.levels.iter().map(move |b| (a, b)))
            {
                slopes.push((a.short - b.short) / (b.replicas - a.replicas));
            }
        }
        slopes.retain(|slope| slope.is_finite() && *slope >= 0.0);
        slopes.sort_by(f64::total_cmp);
        let between = slopes
            .windows(2)
            .map(|pair| f64::midpoint(pair[0], pair[1]));
        between.chain([0.0]).collect()
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn the_budget_is_kept_if_the_cheapest_levels_are_within_it(
            series in some_series(),
            percent in 0.0..200.0,
        ) {
            let shared = SharedPrice::within(percent, &series).unwrap();
            let (replicas, short) = at_price(&series, shared.price);
            let cost = 100.0 * (replicas / alone(&series) - 1.0);
            prop_assert!((shared.cost_percent - cost).abs() < 1e-9, "{shared:?} {cost}");
            prop_assert!((shared.short - short).abs() < 1e-9, "{shared:?} {short}");
            let cheapest = at_price(&series, 1e9).0;
            prop_assert!(cost <= percent + 1e-9 || replicas <= cheapest, "{shared:?}");
        }

        #[test]
        fn more_budget_never_has_more_short_minutes(
            series in some_series(),
            percents in (0.0..200.0, 0.0..200.0),
        ) {
            let (less, more) = (f64::min(percents.0, percents.1), f64::max(percents.0, percents.1));
            let [less, more] = [less, more].map(|it| SharedPrice::within(it, &series).unwrap());
            prop_assert!(more.short <= less.short + 1e-12);
            prop_assert!(more.price <= less.price);
            prop_assert!(more.cost_percent >= less.cost_percent - 1e-9);
        }

        #[test]
        fn no_other_choice_of_the_same_cost_has_fewer_short_minutes(
            series in some_series(),
            percent in 0.0..200.0,
        ) {
            let shared = SharedPrice::within(percent, &series).unwrap();
            let (replicas, short) = at_price(&series, shared.price);
            for (other, others_short) in choices(&series) {
                prop_assert!(other > replicas || others_short >= short - 1e-9);
            }
        }

        #[test]
        fn no_other_price_within_the_budget_has_fewer_short_minutes(
            series in some_series(),
            percent in 0.0..200.0,
        ) {
            let shared = SharedPrice::within(percent, &series).unwrap();
            let budget = alone(&series) * (1.0 + percent / 100.0);
            for price in prices(&series) {
                let (replicas, short) = at_price(&series, price);
                prop_assert!(replicas > budget || short >= shared.short - 1e-9, "{price}");
            }
        }

        #[test]
        fn the_order_of_the_series_does_not_matter(
            series in some_series(),
            percent in 0.0..200.0,
        ) {
            let shared = SharedPrice::within(percent, &series).unwrap();
            let reversed = SharedPrice::within(percent, series.iter().rev()).unwrap();
            prop_assert!((shared.price - reversed.price).abs() <= 1e-9 * shared.price);
        }
    }

    #[test]
    fn equal_series_buy_at_the_same_price_or_not_at_all() {
        let level = |quantile, short, replicas| TradeOff {
            quantile,
            short,
            replicas,
        };
        let one = TradeOffs {
            levels: vec![level(0.5, 0.03, 10.0), level(0.9, 0.0, 12.0)],
            alone: 10.0,
        };
        // Two replicas more are allowed, which one of them could buy.
        for (percent, quantile, cost) in [(10.0, 0.5, 0.0), (20.0, 0.9, 20.0)] {
            let shared = SharedPrice::within(percent, [&one, &one]).unwrap();
            assert_eq!(one.at_price(shared.price), Some(quantile));
            assert!((shared.cost_percent - cost).abs() < 1e-9, "{shared:?}");
        }
    }

    #[test]
    fn series_that_are_unknown_or_no_number_are_left_out() {
        let level = |short, replicas| TradeOff {
            quantile: 0.9,
            short,
            replicas,
        };
        let series = |short, replicas, alone| TradeOffs {
            levels: vec![level(short, replicas)],
            alone,
        };
        let usual = series(0.01, 11.0, 10.0);
        for odd in [
            series(f64::NAN, 11.0, 10.0),
            series(0.0, f64::INFINITY, 10.0),
            series(0.0, 11.0, f64::NAN),
            TradeOffs {
                levels: Vec::new(),
                alone: 10.0,
            },
        ] {
            assert_eq!(SharedPrice::within(15.0, [&odd]), None, "{odd:?}");
            let both = SharedPrice::within(15.0, [&usual, &odd]);
            assert_eq!(both, SharedPrice::within(15.0, [&usual]), "{odd:?}");
        }
        assert_eq!(SharedPrice::within(15.0, []), None);
        assert_eq!(SharedPrice::within(15.0, [&series(0.0, 0.0, 0.0)]), None);
    }
}
