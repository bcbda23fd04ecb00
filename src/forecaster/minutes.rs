//! The raw values of a series whose query smooths them: what pods had in each minute alone.
//!
//! | the query | raw values |
//! |---|---|
//! | a mean over more than a minute, as `rate(...[3m])` | those of the same query over a minute, else live minutes |
//! | of its own minute, as a gauge | its values |
//! | not known | none |
//!
//! The query of minutes runs whenever that of the values does. Where it has too few values, as with scrapes that are more
//! than half a minute apart, or fails, it is tried again after an hour, and the values alone are used.

use std::collections::{BTreeMap, HashMap};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::{
    demand_history::LiveMinutes,
    history::{LiveMatch, QueryPart, RangeQuery},
};
use crate::ports::{DemandQueries, Resolution};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How long a query of minutes is not repeated that failed or was of no use.
const RETRY: SignedDuration = SignedDuration::from_hours(1);
/// What the minutes are compared with: the values of the last day.
const COMPARED: SignedDuration = SignedDuration::from_hours(24);
/// How far the mean of the minutes may be from that of the values at the same times. The sum of a minute lacks the pods
/// that were not scraped twice in it, and nothing else shows that.
const TOLERANCE: f64 = 0.05;

/// Where the raw values of one series come from.
#[derive(Debug)]
pub(super) struct RawValues {
    resolution: Resolution<RangeQuery>,
    /// Whether the queried minutes are as many, and as high, as they have to be.
    usable: bool,
    /// Whether the newest query has returned; absent once its minutes have been judged.
    returned: Option<bool>,
    /// Minutes are not queried before this time.
    query_at: Timestamp,
}

/// The samples of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SeriesSamples {
    /// The values, oldest first.
    pub(super) values: Vec<Sample>,
    /// The raw ones, oldest first, where they are known.
    pub(super) raw: Vec<Sample>,
}

/// The resolution of a sum of queries.
pub(super) fn resolution(
    queries: &impl DemandQueries,
    parts: &[QueryPart],
) -> Resolution<Vec<QueryPart>> {
    let mut minutes = Vec::new();
    let mut longest = None;
    for part in parts {
        let query = match queries.resolution(&part.query) {
            Resolution::Minute => part.query.clone(),
            Resolution::Mean { over, minutes } => {
                longest = longest.max(Some(over));
                minutes
            }
            Resolution::Unknown => return Resolution::Unknown,
        };
        let member = part.member.clone();
        minutes.push(QueryPart { member, query });
    }
    longest.map_or(Resolution::Minute, |over| Resolution::Mean {
        over,
        minutes,
    })
}

// === impl RawValues ===

impl RawValues {
    /// Those of a series that `query` reads.
    pub(super) fn new(resolution: Resolution<Vec<QueryPart>>, query: &RangeQuery) -> Self {
        // A longer step has no minutes.
        let resolution = if query.step() == MINUTE {
            resolution.map(|parts| query.with_parts(parts))
        } else {
            Resolution::Unknown
        };
        Self {
            resolution,
            usable: false,
            returned: None,
            query_at: Timestamp::MIN,
        }
    }

    /// The query of minutes, if the values are not those.
    pub(super) fn query(&self) -> Option<&RangeQuery> {
        match &self.resolution {
            Resolution::Mean { minutes, .. } => Some(minutes),
            Resolution::Minute | Resolution::Unknown => None,
        }
    }

    /// How far back a value looks.
    pub(super) fn smoothed_over(&self) -> SignedDuration {
        match &self.resolution {
            Resolution::Mean { over, .. } => *over,
            Resolution::Minute | Resolution::Unknown => MINUTE,
        }
    }

    /// Whether the queried minutes can be used.
    pub(super) const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Forgets what was queried, from another tenant.
    pub(super) fn forget(&mut self) {
        (self.usable, self.returned, self.query_at) = (false, None, Timestamp::MIN);
    }

    /// Whether minutes are to be queried now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back by more than the wait must not stop the queries.
        let wait = self.query_at.duration_since(now);
        self.query().is_some() && (wait <= SignedDuration::ZERO || wait > RETRY)
    }

    /// Records that a query begins: it may never return.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.returned = Some(false);
        self.query_at = now.saturating_add(RETRY).unwrap_or(Timestamp::MAX);
    }

    /// Records that the query has returned without an error.
    pub(super) fn end(&mut self) {
        self.returned = Some(true);
    }

    /// The samples of a series with these values, of which these minutes were queried and measured live.
    pub(super) fn samples(
        &mut self,
        values: Vec<Sample>,
        queried: Vec<Sample>,
        (live, live_match): (&LiveMinutes, LiveMatch),
        now: Timestamp,
    ) -> SeriesSamples {
        if let Some(has_returned) = self.returned.take() {
            self.usable = is_usable(&queried, &values, now);
            if self.usable && has_returned {
                self.query_at = now;
            }
        }
        let raw = match &self.resolution {
            Resolution::Unknown => Vec::new(),
            Resolution::Minute => values.clone(),
            Resolution::Mean { .. } => {
                let live = live.raw.iter().filter(|_| live_match.matches());
                let queried = queried.iter().filter(|_| self.usable);
                // A queried minute replaces a live one, as with the values.
                let raw = live.chain(queried).map(|sample| (sample.at, *sample));
                raw.collect::<BTreeMap<_, _>>().into_values().collect()
            }
        };
        SeriesSamples { values, raw }
    }
}

/// Whether the last day has at least half as many minutes as values, and they are as high.
fn is_usable(minutes: &[Sample], values: &[Sample], now: Timestamp) -> bool {
    let is_recent = |sample: &&Sample| now.duration_since(sample.at) <= COMPARED;
    let recent: Vec<&Sample> = values.iter().rev().take_while(is_recent).collect();
    let minutes = minutes.iter().rev().take_while(is_recent);
    let minutes: HashMap<Timestamp, f64> = minutes.map(|one| (one.at, one.value)).collect();
    let common = recent.iter().filter_map(|value| {
        let minute = minutes.get(&value.at)?;
        (minute.is_finite() && value.value.is_finite()).then_some((*minute, value.value))
    });
    let (mut count, mut sums) = (0, (0.0, 0.0));
    for (minute, value) in common {
        count += 1;
        sums = (sums.0 + minute, sums.1 + value);
    }
    let difference = (sums.0 - sums.1).abs();
    count > 0 && 2 * count >= recent.len() && difference <= TOLERANCE * sums.1
}
