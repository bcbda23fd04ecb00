//! The budgets of namespaces: the one price at which the series of a namespace buy replicas, such that together they
//! have at most a configured percentage more than a plain HPA would have.
//!
//! The price follows from what each quantile would have cost and saved ([`TradeOffs`]), which the forecasters measure.
//! A namespace has its own price, so that none changes the forecasts of another. Series with a quantile of their own,
//! or with another algorithm, have no trade-offs and count neither way.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use foretide_models::{Algorithm, SharedPrice, TradeOffs};
use jiff::SignedDuration;

use super::series_key::SeriesKey;
use foretide_api::validation::{self, CostLimits};
use foretide_base::{clock::Monotonic, telemetry::BudgetGauges};

/// Time for which a price is kept while its namespace has the same series: the trade-offs are means of days.
const PRICE_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// Trade-offs of the series of a namespace, in the order of their keys.
pub type Measured<'a> = BTreeMap<&'a SeriesKey, &'a TradeOffs>;

/// The prices of all namespaces with a limit.
#[derive(Debug, Default)]
pub struct Budgets {
    limits: CostLimits,
    shared: BTreeMap<Arc<str>, Shared>,
}

/// The price of one namespace.
#[derive(Debug)]
struct Shared {
    price: SharedPrice,
    /// The series that it was computed from, in order.
    series: Vec<SeriesKey>,
    due_at: Monotonic,
}

// === impl Budgets ===

impl Budgets {
    pub fn new(limits: CostLimits) -> Self {
        Self {
            limits,
            shared: BTreeMap::new(),
        }
    }

    /// True if the series of a namespace share a budget.
    pub fn has(&self, namespace: &str) -> bool {
        self.limits.percent(namespace).is_some()
    }

    /// The note on the origin of the quantile of a forecast with this algorithm.
    pub fn note(&self, namespace: &str, algorithm: &Algorithm) -> Option<Arc<str>> {
        let percent = self.limits.percent(namespace)?;
        if !validation::is_priced(algorithm) {
            return None;
        }
        let note = format!(
            "the quantile is chosen by the budget of namespace {namespace}: at most {percent} % more replicas than a \
             plain HPA"
        );
        Some(note.into())
    }

    /// The price in a namespace, once it is known.
    pub fn price(&self, namespace: &str) -> Option<f64> {
        Some(self.shared.get(namespace)?.price.price)
    }

    /// Computes the prices that are due; forgets namespaces without series.
    pub fn update(&mut self, namespaces: &BTreeMap<Arc<str>, Measured<'_>>, now: Monotonic) {
        self.shared.retain(|name, _| namespaces.contains_key(name));
        for (namespace, measured) in namespaces {
            let entry = self.shared.entry(Arc::clone(namespace));
            // A series that came or went changes what the others may cost, so the price is not kept for it.
            if let Entry::Occupied(known) = &entry
                && known.get().series.iter().eq(measured.keys().copied())
                && known.get().due_at > now
            {
                continue;
            }
            if let Some(percent) = self.limits.percent(namespace)
                && let Some(price) = SharedPrice::within(percent, measured.values().copied())
            {
                entry.insert_entry(Shared {
                    price,
                    series: measured.keys().copied().cloned().collect(),
                    due_at: now + PRICE_PERIOD.unsigned_abs(),
                });
            }
        }
    }

    /// The gauges of each price.
    pub fn gauges(&self) -> impl Iterator<Item = BudgetGauges<'_>> {
        self.shared.iter().map(|(namespace, shared)| BudgetGauges {
            namespace,
            price: shared.price.price,
            cost_percent: shared.price.cost_percent,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foretide_models::TradeOff;

    use super::*;

    /// A series that saves `saved` of its minutes for two replicas more than its ten.
    fn trade_offs(saved: f64) -> TradeOffs {
        let level = |quantile, short, replicas| TradeOff {
            quantile,
            short,
            replicas,
        };
        TradeOffs {
            levels: vec![level(0.5, saved, 10.0), level(0.9, 0.0, 12.0)],
            alone: 10.0,
        }
    }

    fn key(uid: &str) -> SeriesKey {
        SeriesKey {
            uid: uid.into(),
            metric: "resource.cpu".into(),
        }
    }

    /// The prices after an update at `second`, where each series is of a namespace.
    fn update(budgets: &mut Budgets, series: &[(&str, &str, f64)], second: u64) {
        let known: Vec<_> = series
            .iter()
            .map(|(namespace, uid, saved)| (*namespace, key(uid), trade_offs(*saved)))
            .collect();
        let mut namespaces = BTreeMap::<Arc<str>, Measured<'_>>::new();
        for (namespace, key, trade_offs) in &known {
            let measured = namespaces.entry(Arc::from(*namespace)).or_default();
            measured.insert(key, trade_offs);
        }
        budgets.update(
            &namespaces,
            Monotonic::after_origin(Duration::from_secs(second)),
        );
    }

    fn budgets() -> Budgets {
        Budgets::new(CostLimits::parse(["shop=10", "blog=10"]).unwrap())
    }

    #[test]
    fn no_namespace_changes_the_price_of_another() {
        let shop = [("shop", "web", 0.1), ("shop", "api", 0.01)];
        let mut alone = budgets();
        update(&mut alone, &shop, 0);
        let mut beside = budgets();
        let others = [
            ("blog", "web", 0.5),
            ("blog", "cache", 0.9),
            ("wiki", "w", 0.7),
        ];
        update(&mut beside, &[&shop[..], &others].concat(), 0);
        assert!(alone.price("shop").is_some_and(|price| price > 0.0));
        assert_eq!(beside.price("shop"), alone.price("shop"));
        assert_ne!(beside.price("blog"), alone.price("shop"));
        assert_eq!(beside.price("wiki"), None);
    }

    #[test]
    fn a_price_is_kept_for_five_minutes_unless_a_series_comes_or_leaves() {
        let mut budgets = budgets();
        update(
            &mut budgets,
            &[("shop", "web", 0.1), ("shop", "api", 0.01)],
            0,
        );
        let first = budgets.price("shop");
        let changed = [("shop", "web", 0.2), ("shop", "api", 0.02)];
        update(&mut budgets, &changed, 299);
        assert_eq!(budgets.price("shop"), first);
        update(&mut budgets, &changed, 300);
        let second = budgets.price("shop");
        assert_ne!(second, first);
        let more = [&changed[..], &[("shop", "cache", 0.05)]].concat();
        update(&mut budgets, &more, 301);
        let third = budgets.price("shop");
        assert_ne!(third, second);
        let another = [&changed[..], &[("shop", "queue", 0.3)]].concat();
        update(&mut budgets, &another, 302);
        assert_ne!(budgets.price("shop"), third);
        update(&mut budgets, &[], 303);
        assert_eq!(budgets.price("shop"), None);
    }
}
