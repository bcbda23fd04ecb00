//! The fleet: totals, and a page of rows, filtered, searched and sorted.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    Page, ViewError,
    api::{FleetQuery, FleetRow, FleetView, NextWindow, Sparkline},
    history,
    record::Latest,
    word,
};

/// Default and largest number of rows of a page.
const ROWS: usize = 50;
const MOST_ROWS: usize = 200;

/// A page of all that the reader may see.
pub fn view(all: &[Arc<Latest>], page: &Page, query: &FleetQuery) -> Result<FleetView, ViewError> {
    let order = Order::parse(&query.sort)?;
    let limit = query.limit.unwrap_or(ROWS);
    if !(1..=MOST_ROWS).contains(&limit) {
        let message = format!("limit: expected 1 to {MOST_ROWS}, got {limit}");
        return Err(ViewError::BadQuery(message));
    }
    let text = query.search.to_lowercase();
    let found: Vec<_> = all
        .iter()
        .filter(|latest| has_text(latest, &text))
        .collect();
    let mut counts = BTreeMap::new();
    for latest in &found {
        *counts.entry(latest.word).or_insert(0) += 1;
    }
    let is_wanted = |latest: &&Arc<Latest>| query.word.is_none_or(|word| word == latest.word);
    let mut matching: Vec<_> = found.iter().copied().filter(is_wanted).collect();
    matching.sort_by(|one, other| order.compare(one, other));
    let sum = |of: fn(&Latest) -> Option<i32>| {
        let counts = found.iter().filter_map(|latest| of(latest));
        counts.map(i64::from).sum()
    };
    let rows = matching.iter().skip(query.offset).take(limit);
    let row = |latest: &&Arc<Latest>| row(latest, sparkline(latest, page));
    Ok(FleetView {
        now: page.host.now().to_string(),
        counts,
        current: sum(current),
        desired: sum(desired),
        matching: matching.len(),
        rows: rows.map(row).collect(),
    })
}

/// One autoscaler among others.
pub fn row(latest: &Latest, sparkline: Option<Sparkline>) -> FleetRow {
    let spec = latest.autoscaler.spec();
    let decision = latest.status.common.decision.as_ref();
    let winner = decision.and_then(|decision| decision.winner);
    let text = |time: Timestamp| time.to_string();
    FleetRow {
        key: latest.key.clone(),
        word: latest.word,
        sentence: word::sentence(
            latest.word,
            &latest.status,
            spec.max_replicas,
            latest.decided.as_deref(),
        ),
        target: target(latest),
        strategy: spec.scale_strategy.unwrap_or_default(),
        current: current(latest),
        desired: desired(latest),
        min: spec.min_replicas.unwrap_or(1),
        max: spec.max_replicas,
        winner: winner.map(|winner| foretide_api::status::stored_source(winner).to_string()),
        next_window: next_window(latest).map(|(at, window)| NextWindow {
            at: text(at),
            ..window
        }),
        sparkline,
        decided: decision
            .and_then(|decision| decision.time.as_ref())
            .map(|time| text(time.0)),
    }
}

fn target(latest: &Latest) -> String {
    let target = &latest.autoscaler.spec().scale_target_ref;
    format!("{} {}", target.kind, target.name)
}

fn current(latest: &Latest) -> Option<i32> {
    latest.status.common.current_replicas
}

fn desired(latest: &Latest) -> Option<i32> {
    let common = &latest.status.common;
    let decided = common
        .decision
        .as_ref()
        .and_then(|decision| decision.desired);
    decided.or(common.expect_replicas)
}

/// The next change of a window, with its time.
fn next_window(latest: &Latest) -> Option<(Timestamp, NextWindow)> {
    let windows = latest.status.common.windows.iter().flatten();
    let next = windows.filter_map(|window| {
        let at = window.next_transition.as_ref()?.0;
        let next = NextWindow {
            name: window.name.clone(),
            opens: !window.active,
            at: String::new(),
        };
        Some((at, next))
    });
    next.min_by_key(|(at, _)| *at)
}

fn has_text(latest: &Latest, text: &str) -> bool {
    let contains = |name: &str| name.to_lowercase().contains(text);
    text.is_empty()
        || contains(&latest.key.name)
        || contains(&latest.key.namespace)
        || contains(&target(latest))
}

fn sparkline(latest: &Latest, page: &Page) -> Option<Sparkline> {
    let recorded = page.log.recorded(&latest.key)?;
    history::sparkline(&recorded, page.host.now())
}

/// The order of rows.
#[derive(Clone, Copy, Debug)]
struct Order {
    by: By,
    reversed: bool,
}

/// Sort key of rows.
#[derive(Clone, Copy, Debug)]
enum By {
    Word,
    Name,
    Current,
    Desired,
    Window,
}

// === impl By ===

impl By {
    /// All sort keys by their names in a query.
    const ALL: [(&str, Self); 5] = [
        ("word", Self::Word),
        ("name", Self::Name),
        ("current", Self::Current),
        ("desired", Self::Desired),
        ("window", Self::Window),
    ];
}

// === impl Order ===

impl Order {
    fn parse(text: &str) -> Result<Self, ViewError> {
        let (name, reversed) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let by = By::ALL.into_iter().find(|(known, _)| *known == name);
        match by.or(text.is_empty().then_some(("", By::Word))) {
            Some((_, by)) => Ok(Self { by, reversed }),
            None => Err(ViewError::BadQuery(format!(
                "sort: expected one of {}, or one of them after -, got {text:?}",
                By::ALL.map(|(known, _)| known).join(", ")
            ))),
        }
    }

    fn compare(self, one: &Latest, other: &Latest) -> Ordering {
        let both = |of: fn(&Latest) -> Option<i32>| of(one).cmp(&of(other));
        let order = match self.by {
            By::Word => one.word.cmp(&other.word),
            By::Name => name(one).cmp(&name(other)),
            By::Current => both(current),
            By::Desired => both(desired),
            By::Window => soonest(one).cmp(&soonest(other)),
        };
        let order = if self.reversed {
            order.reverse()
        } else {
            order
        };
        // Not reversed: without one order of equal rows, a row could be on two pages, or on none.
        order.then_with(|| one.key.cmp(&other.key))
    }
}

fn name(latest: &Latest) -> (&str, &str) {
    (&latest.key.namespace, &latest.key.name)
}

fn soonest(latest: &Latest) -> Timestamp {
    next_window(latest).map_or(Timestamp::MAX, |(at, _)| at)
}
