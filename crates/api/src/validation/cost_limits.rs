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
            let (namespace, percent) =
                namespace_limit(limit).ok_or_else(|| InvalidCostLimit(limit.to_owned()))?;
            if percents.insert(namespace.to_owned(), percent).is_some() {
                return Err(InvalidCostLimit(limit.to_owned()));
            }
        }
        Ok(Self { percents })
    }

    /// The limit of a namespace, if it has one.
    pub fn percent(&self, namespace: &str) -> Option<f64> {
        self.percents
            .get(namespace)
            .or_else(|| self.percents.get(OTHERS))
            .copied()
    }
}

/// The namespace and its limit.
fn namespace_limit(text: &str) -> Option<(&str, f64)> {
    let (namespace, percent) = text.split_once('=')?;
    let (namespace, percent) = (namespace.trim(), percent.trim().parse().ok()?);
    // `parse` accepts NaN and inf; no range contains them.
    let is_limit = is_namespace(namespace) && (0.0..=MOST).contains(&percent);
    is_limit.then_some((namespace, percent))
}

fn is_namespace(name: &str) -> bool {
    name == OTHERS
        || (!name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
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
