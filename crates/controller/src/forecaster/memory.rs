//! The budget of memory: the series that go without a forecast, because the limit of the process does not hold those of
//! all.
//!
//! ```text
//! limit:  | everything else | forecasts                        | a tenth |
//!           measured          the newest of the namespace that   kept free
//!                             holds most go first
//! ```

use std::collections::BTreeMap;

use foretide_domain::{forecast::Refused, proposal::Reason};
use jiff::Timestamp;

use super::series_key::SeriesKey;
use foretide_base::{
    clock::{LogPace, Monotonic},
    memory::{FairShares, Item, Memory},
};

/// Bytes that a series is taken for until it is measured: a learned `auto` and its history, measured at 248 KiB.
const EXPECTED: usize = 256 << 10;
/// The part of the budget, in percent, into which a series must fit to get its forecast back, so that it does not come
/// and go at the edge.
const RETURNS_WITHIN: usize = 95;

/// A series that asks for a forecast.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub namespace: &'a str,
    /// The time at which its autoscaler was created.
    pub created: Option<Timestamp>,
    pub key: &'a SeriesKey,
    /// The bytes that it takes, once they are measured.
    pub bytes: Option<usize>,
}

/// The series without a forecast, and the memory that this follows from.
#[derive(Debug)]
pub struct MemoryBudget {
    memory: Option<Memory>,
    /// The series that go without a forecast, with the bytes that each is taken for.
    left_out: BTreeMap<SeriesKey, usize>,
    usage: Usage,
    log_pace: LogPace,
}

/// The memory of the process at the last pass, in bytes.
#[derive(Debug, Default)]
struct Usage {
    resident: usize,
    /// The most that forecasts have taken since the process last gave memory back: what a forecast leaves is kept for
    /// the next one.
    forecasts: usize,
}

// === impl MemoryBudget ===

impl MemoryBudget {
    /// A budget of this memory; without a limit every series has a forecast.
    pub fn new(memory: Option<Memory>) -> Self {
        Self {
            memory,
            left_out: BTreeMap::new(),
            usage: Usage::default(),
            log_pace: LogPace::default(),
        }
    }

    /// Decides which series go without a forecast.
    pub fn update(&mut self, claims: &[Claim<'_>], now: Monotonic) {
        let Some(memory) = self.memory.clone() else {
            return;
        };
        let measured = claims.iter().filter_map(|claim| claim.bytes).sum();
        let rest = self.usage.rest(memory.resident(), measured);
        let budget = (memory.limit() / 10 * 9).saturating_sub(rest);
        let claims: Vec<_> = claims.iter().map(|claim| self.sized(*claim)).collect();
        let wanted = claims.iter().map(|(_, bytes)| bytes).sum();
        memory.copies().share_with_forecasts(wanted);
        let mut left_out = beyond(&claims, budget);
        let stays = beyond(&claims, budget / 100 * RETURNS_WITHIN);
        left_out.extend((stays.into_iter()).filter(|(key, _)| self.left_out.contains_key(key)));
        self.left_out = left_out;
        self.log(&memory, claims.len(), now);
    }

    /// The reason why a series goes without a forecast, if it does.
    pub fn refusal(&self, key: &SeriesKey) -> Option<Refused> {
        let limit = self.memory.as_ref()?.limit() >> 20;
        self.left_out.get(key)?;
        // Without the number of others, which would write every status whenever it changes.
        let message = format!(
            "the memory limit of the controller, {limit} MiB, does not hold the forecasts of all series: the newest ones \
             of the namespace that holds most go without; raise the limit"
        );
        Some(Refused::new(Reason::MemoryLimit, message))
    }

    /// Number of series that go without a forecast.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// A claim with the bytes that it is taken for.
    fn sized<'a>(&self, claim: Claim<'a>) -> (Claim<'a>, usize) {
        let known = claim
            .bytes
            .or_else(|| self.left_out.get(claim.key).copied());
        (claim, known.unwrap_or(EXPECTED))
    }

    fn log(&mut self, memory: &Memory, all: usize, now: Monotonic) {
        if self.left_out.is_empty() || !self.log_pace.admits(now) {
            return;
        }
        tracing::warn!(
            series = self.left_out.len(),
            of = all,
            limit_mib = memory.limit() >> 20,
            "the memory limit does not hold the forecasts of all series; raise it (docs/operations.md, Memory)"
        );
    }
}

// === impl Usage ===

impl Usage {
    /// Bytes that everything but forecasts takes now, given what is resident and what forecasts take.
    fn rest(&mut self, resident: usize, forecasts: usize) -> usize {
        let given_back = self.resident.saturating_sub(resident);
        let kept = self.forecasts.saturating_sub(given_back);
        self.resident = resident;
        self.forecasts = kept.max(forecasts);
        resident.saturating_sub(self.forecasts)
    }
}

/// The series that do not fit into a budget of bytes, with the bytes of each.
fn beyond(claims: &[(Claim<'_>, usize)], budget: usize) -> BTreeMap<SeriesKey, usize> {
    let mut shares = FairShares::default();
    for (claim, bytes) in claims {
        let item = Item {
            created: claim.created,
            key: claim.key,
            bytes: *bytes,
        };
        shares.insert(&claim.namespace, item);
    }
    std::iter::from_fn(|| shares.pop_beyond(budget))
        .map(|(_, item)| (item.key.clone(), item.bytes))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;

    const KIB: usize = 1 << 10;

    fn key(uid: usize) -> SeriesKey {
        SeriesKey {
            uid: format!("{uid:04}"),
            metric: "resource.cpu".into(),
        }
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    /// The number of each series that goes without a forecast at this second, given the bytes of all, in KiB.
    fn left_out(budget: &mut MemoryBudget, bytes: &[Option<usize>], at: u64) -> Vec<usize> {
        let keys: Vec<_> = (0..bytes.len()).map(key).collect();
        let claims = keys
            .iter()
            .zip(bytes)
            .zip(0..)
            .map(|((key, bytes), at)| Claim {
                namespace: "shop",
                created: Some(second(-at)),
                key,
                bytes: bytes.map(|kib| kib * KIB),
            });
        let claims: Vec<_> = claims.collect();
        budget.update(&claims, Monotonic::after_origin(Duration::from_secs(at)));
        let refused = |uid: &usize| budget.refusal(&key(*uid)).is_some();
        let refused: Vec<_> = (0..bytes.len()).filter(refused).collect();
        assert_eq!(refused.len(), budget.left_out());
        refused
    }

    #[test]
    fn a_series_at_the_edge_of_the_budget_does_not_come_and_go() {
        // A tenth is kept free: 900 KiB.
        let mut budget = MemoryBudget::new(Some(Memory::unused(1000 * KIB)));
        // Two are not measured, and taken for 256 KiB each. The newest is the one with the lowest number.
        let all = [None, None, Some(300), Some(300)];
        assert_eq!(left_out(&mut budget, &all, 0), [0]);
        let measured = [None, Some(40), Some(300), Some(300)];
        assert_eq!(left_out(&mut budget, &measured, 5), [0], "896 KiB");
        let less = [None, Some(40), Some(300), Some(258)];
        assert_eq!(left_out(&mut budget, &less, 10), [0; 0], "854 KiB");
        let more = [Some(260), Some(40), Some(300), Some(299)];
        assert_eq!(left_out(&mut budget, &more, 15), [0; 0], "899 KiB");
        let beyond = [Some(262), Some(40), Some(300), Some(299)];
        assert_eq!(left_out(&mut budget, &beyond, 20), [0], "901 KiB");
        // What it took is known, though it takes nothing now.
        let after = [None, Some(40), Some(300), Some(258)];
        assert_eq!(left_out(&mut budget, &after, 25), [0], "860 KiB");
        let unlimited = &mut MemoryBudget::new(None);
        assert_eq!(left_out(unlimited, &beyond, 0), [0; 0]);
    }

    #[test]
    fn memory_that_a_forecast_left_is_not_taken_for_that_of_the_rest() {
        let mut usage = Usage::default();
        for (resident, forecasts, rest) in [
            (100, 0, 100),
            (400, 290, 110),
            // Forecasts are dropped, and the allocator keeps their memory, for the next ones or for anything else.
            (400, 200, 110),
            (400, 280, 110),
            (420, 280, 130),
            // The process gives some back.
            (300, 200, 100),
            (300, 240, 60),
            (350, 240, 110),
            (0, 240, 0),
        ] {
            assert_eq!(
                usage.rest(resident, forecasts),
                rest,
                "{resident} {forecasts}"
            );
        }
    }
}
