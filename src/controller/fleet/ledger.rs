//! The ledger of a fleet as status keeps it: one line of JSON, times in seconds.
//!
//! The domain's ledger knows no format; here is the only one there is. What cannot be read is forgotten, and then the
//! next decision assigns anew. Fields that are absent are the ledger's defaults, so that older lines stay readable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::{
    Replicas,
    federate::{Backoff, Entry, Landing, Ledger, ShareStatus, Span, Standing},
};

/// Seconds since the epoch.
type Seconds = i64;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kept {
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(skip_serializing_if = "is_zero")]
    unassigned: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    landing: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    landing_served: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimized: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shrunk: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excess_since: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handover: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    woken: Option<Seconds>,
    members: BTreeMap<String, KeptEntry>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KeptEntry {
    #[serde(skip_serializing_if = "is_zero")]
    tenure: u32,
    min: u32,
    max: u32,
    #[serde(skip_serializing_if = "is_zero")]
    written: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<KeptStanding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
    #[serde(skip_serializing_if = "is_none_at_all")]
    weight: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rank: u32,
    /// Placed, claimed, until, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<(u32, Option<u32>, Seconds, u32)>,
    /// Until, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<(Seconds, u32)>,
    #[serde(skip_serializing_if = "is_false")]
    held: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shrunk: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saturated_since: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    woken: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slept: Option<Seconds>,
    /// Until, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<(Seconds, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tainted: Option<Seconds>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KeptStanding {
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "is_zero")]
    lo: u32,
    hi: u32,
    #[serde(skip_serializing_if = "is_false")]
    elastic: bool,
}

/// The tenures by their number in the text.
const TENURES: [ShareStatus; 4] = [
    ShareStatus::Candidate,
    ShareStatus::Pinned,
    ShareStatus::Failed,
    ShareStatus::Leaving,
];

/// A ledger as status keeps it.
pub(crate) fn written(ledger: &Ledger) -> String {
    let members = ledger.members.iter();
    let kept = Kept {
        generation: ledger.generation,
        unassigned: ledger.unassigned.get(),
        landing: ledger.landing.map(|landing| second(landing.until)),
        landing_served: ledger
            .landing
            .and_then(|landing| Some(landing.served?.get())),
        optimized: ledger.optimized.map(second),
        shrunk: ledger.shrunk.map(second),
        excess_since: ledger.excess_since.map(second),
        idle_since: ledger.idle_since.map(second),
        handover: ledger.handover.map(Replicas::get),
        woken: ledger.woken.map(second),
        members: members
            .map(|(name, entry)| (name.clone(), kept(entry)))
            .collect(),
    };
    // Numbers and strings: nothing in it can fail to be JSON.
    serde_json::to_string(&kept).unwrap_or_default()
}

/// The ledger that a status kept, if it can be read.
pub(crate) fn read(text: &str) -> Option<Ledger> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    let members = kept.members.into_iter();
    Some(Ledger {
        generation: kept.generation,
        unassigned: Replicas::new(kept.unassigned),
        landing: kept.landing.and_then(instant).map(|until| Landing {
            until,
            served: kept.landing_served.map(Replicas::new),
        }),
        optimized: kept.optimized.and_then(instant),
        shrunk: kept.shrunk.and_then(instant),
        excess_since: kept.excess_since.and_then(instant),
        idle_since: kept.idle_since.and_then(instant),
        handover: kept.handover.map(Replicas::new),
        woken: kept.woken.and_then(instant),
        members: members.map(|(name, kept)| (name, entry(&kept))).collect(),
    })
}

fn kept(entry: &Entry) -> KeptEntry {
    let tenure = TENURES.iter().position(|tenure| *tenure == entry.tenure);
    let span = |span: Span| (second(span.until), span.seconds);
    KeptEntry {
        tenure: tenure
            .and_then(|at| u32::try_from(at).ok())
            .unwrap_or_default(),
        min: entry.min.get(),
        max: entry.max.get(),
        written: entry.written.get(),
        standing: entry.standing.map(|standing| KeptStanding {
            weight: standing.weight,
            priority: standing.priority,
            lo: standing.lo.get(),
            hi: standing.hi.get(),
            elastic: standing.elastic,
        }),
        capacity: entry.capacity.map(Replicas::get),
        weight: entry.weight,
        rank: entry.rank,
        mark: entry.mark.map(|mark| {
            let (until, seconds) = span(mark.span);
            let claimed = mark.claimed.map(Replicas::get);
            (mark.placed.get(), claimed, until, seconds)
        }),
        local: entry.local.map(span),
        held: entry.held,
        moved: entry.moved.map(second),
        shrunk: entry.shrunk.map(second),
        saturated_since: entry.saturated_since.map(second),
        idle_since: entry.idle_since.map(second),
        woken: entry.woken.map(second),
        slept: entry.slept.map(second),
        needed: entry.needed.map(span),
        recovered: entry.recovered.map(second),
        tainted: entry.tainted.map(second),
    }
}

fn entry(kept: &KeptEntry) -> Entry {
    let tenure = usize::try_from(kept.tenure).ok();
    let tenure = tenure.and_then(|at| TENURES.get(at).copied());
    let span = |(until, seconds): (Seconds, u32)| {
        let until = instant(until)?;
        Some(Span { until, seconds })
    };
    Entry {
        tenure: tenure.unwrap_or_default(),
        min: Replicas::new(kept.min),
        max: Replicas::new(kept.max),
        written: Replicas::new(kept.written),
        standing: kept.standing.map(|kept| Standing {
            weight: kept.weight,
            priority: kept.priority,
            lo: Replicas::new(kept.lo),
            hi: Replicas::new(kept.hi),
            elastic: kept.elastic,
        }),
        capacity: kept.capacity.map(Replicas::new),
        weight: kept.weight,
        rank: kept.rank,
        mark: kept.mark.and_then(|(placed, claimed, until, seconds)| {
            let span = span((until, seconds))?;
            let placed = Replicas::new(placed);
            let claimed = claimed.map(Replicas::new);
            Some(Backoff {
                placed,
                claimed,
                span,
            })
        }),
        local: kept.local.and_then(span),
        held: kept.held,
        moved: kept.moved.and_then(instant),
        shrunk: kept.shrunk.and_then(instant),
        saturated_since: kept.saturated_since.and_then(instant),
        idle_since: kept.idle_since.and_then(instant),
        woken: kept.woken.and_then(instant),
        slept: kept.slept.and_then(instant),
        needed: kept.needed.and_then(span),
        recovered: kept.recovered.and_then(instant),
        tainted: kept.tainted.and_then(instant),
    }
}

fn second(at: Timestamp) -> Seconds {
    at.as_second()
}

fn instant(second: Seconds) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_none_at_all(n: &u64) -> bool {
    *n == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back_and_nonsense_is_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let n = Replicas::new;
        let span = Span {
            until: at(900),
            seconds: 600,
        };
        let full = Entry {
            tenure: ShareStatus::Failed,
            min: n(1),
            max: n(7),
            written: n(8),
            standing: Some(Standing {
                weight: Some(5),
                priority: Some(-2),
                lo: n(1),
                hi: n(9),
                elastic: true,
            }),
            capacity: Some(n(9)),
            weight: 3,
            rank: 2,
            mark: Some(Backoff {
                placed: n(4),
                claimed: Some(n(6)),
                span,
            }),
            local: Some(span),
            held: true,
            moved: Some(at(1)),
            shrunk: Some(at(2)),
            saturated_since: Some(at(3)),
            idle_since: Some(at(4)),
            slept: Some(at(6)),
            needed: Some(span),
            woken: Some(at(5)),
            recovered: Some(at(7)),
            tainted: Some(at(8)),
        };
        let members = [("m1".to_owned(), full), ("m2".to_owned(), Entry::default())];
        let ledger = Ledger {
            generation: Some(3),
            unassigned: n(2),
            landing: Some(Landing {
                until: at(10),
                served: Some(n(6)),
            }),
            optimized: Some(at(11)),
            shrunk: Some(at(12)),
            excess_since: Some(at(13)),
            idle_since: Some(at(14)),
            handover: Some(n(5)),
            woken: Some(at(15)),
            members: members.into_iter().collect(),
        };
        assert_eq!(read(&written(&ledger)), Some(ledger));
        assert_eq!(read("{}"), Some(Ledger::default()));
        assert_eq!(read("nonsense"), None);
    }

    #[test]
    fn a_landing_of_an_older_line_goes_on_and_does_not_know_what_served() {
        let older = read(r#"{"landing": 10, "members": {}}"#).unwrap();
        let begun = Landing {
            until: Timestamp::from_second(10).unwrap(),
            served: None,
        };
        assert_eq!(older.landing, Some(begun));
    }
}
