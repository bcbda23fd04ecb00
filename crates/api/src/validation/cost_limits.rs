//! What the operator lets the forecasts of a namespace cost, as a flag says: replicas beyond those of a plain HPA.

use std::collections::BTreeMap;

/// Stands for every namespace without a limit of its own.
const OTHERS: &str = "*";
/// The highest limit, in percent.
const MOST: f64 = 1000.0;

/// By how many percent the replicas of a namespace may exceed those of a plain HPA. Off for a namespace without a limit.
///
/// ```
/// use foretide_api::validation::CostLimits;
///
/// let limits = CostLimits::parse(["shop=15", "*=10"])?;
/// assert_eq!([limits.percent("shop"), limits.percent("blog")], [Some(15.0), Some(10.0)]);
/// # Ok::<(), foretide_api::validation::InvalidCostLimit>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostLimits {
    percents: BTreeMap<String, f64>,
}

/// A text that is no limit, or a second one for a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected NAMESPACE=PERCENT with a percentage from 0 to 1000, such as shop=15, once for each namespace and *=10 for \
     all others, got {0:?}"
)]
pub struct InvalidCostLimit(pub String);

// === impl CostLimits ===

impl CostLimits {
    /// Reads `NAMESPACE=PERCENT`, one for each namespace; `*` stands for all others.
    ///
    /// # Errors
    /// The first one that cannot be read.
    pub fn parse(
        limits: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, InvalidCostLimit> {
        let mut percents = BTreeMap::new();
        for limit in limits {
            let limit = limit.as_ref();
            let refused = || InvalidCostLimit(limit.to_owned());
            let (namespace, percent) = limit.split_once('=').ok_or_else(refused)?;
            let parsed = percent.trim().parse::<f64>().ok();
            // `parse` accepts NaN and inf; no range contains them.
            let in_range = parsed.filter(|percent| (0.0..=MOST).contains(percent));
            let percent = in_range.ok_or_else(refused)?;
            let namespace = namespace.trim();
            if !is_namespace(namespace) || percents.insert(namespace.to_owned(), percent).is_some()
            {
                return Err(refused());
            }
        }
        Ok(Self { percents })
    }

    /// The limit of a namespace, if it has one.
    #[must_use]
    pub fn percent(&self, namespace: &str) -> Option<f64> {
        let own = self.percents.get(namespace);
        own.or_else(|| self.percents.get(OTHERS)).copied()
    }
}

fn is_namespace(name: &str) -> bool {
    let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name == OTHERS || (!name.is_empty() && name.chars().all(is_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_limit_or_that_of_all_others() {
        let limits = CostLimits::parse([" shop = 15 ", "blog=0", "*=7.5"]).unwrap();
        for (namespace, percent) in [("shop", 15.0), ("blog", 0.0), ("web", 7.5), ("*", 7.5)] {
            assert_eq!(limits.percent(namespace), Some(percent), "{namespace}");
        }
        let limits = CostLimits::parse(["shop=15"]).unwrap();
        assert_eq!(limits.percent("blog"), None);
        assert_eq!(CostLimits::default().percent("shop"), None);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in [
            "",
            "shop",
            "15",
            "=15",
            "shop=",
            "shop=-1",
            "shop=1001",
            "shop=NaN",
            "shop=inf",
            "shop=15%",
            "Shop=15",
            "shop/web=15",
        ] {
            let refused = InvalidCostLimit(bad.to_owned());
            assert_eq!(CostLimits::parse(["blog=1", bad]), Err(refused));
        }
        let refused = InvalidCostLimit("shop=2".to_owned());
        assert_eq!(CostLimits::parse(["shop=1", "shop=2"]), Err(refused));
    }
}
