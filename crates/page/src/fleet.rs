//! The fleet: totals, and a page of rows, filtered, searched and sorted.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    Page, ViewError, Visible,
    api::{FleetQuery, FleetRow, FleetView, NextWindow, Sparkline},
    history,
    record::Latest,
    word,
};

/// Default and largest number of rows of a page.
const ROWS: usize = 50;
const MOST_ROWS: usize = 200;

impl Page {
    /// A page of the fleet.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn fleet(&self, visible: &Visible, query: &FleetQuery) -> Result<FleetView, ViewError> {
        let order = Order::parse(&query.sort)?;
        let limit = query.limit.unwrap_or(ROWS);
        if !(1..=MOST_ROWS).contains(&limit) {
            let message = format!("limit: expected 1 to {MOST_ROWS}, got {limit}");
            return Err(ViewError::BadQuery(message));
        }
        let text = query.search.to_lowercase();
        let mut found = self.log.all(visible);
        found.retain(|latest| has_text(latest, &text));
        let mut counts = BTreeMap::new();
        for latest in &found {
            *counts.entry(latest.word).or_insert(0) += 1;
        }
        let (current, desired) = (sum(&found, current), sum(&found, desired));
        found.retain(|latest| query.word.is_none_or(|word| word == latest.word));
        found.sort_by(|one, other| order.compare(one, other));
        let rows = found.iter().skip(query.offset).take(limit);
        Ok(FleetView {
            now: self.host.now().to_string(),
            counts,
            current,
            desired,
            matching: found.len(),
            rows: rows.map(|it| row(it, self.sparkline(it))).collect(),
        })
    }

    fn sparkline(&self, latest: &Latest) -> Option<Sparkline> {
        history::sparkline(&self.log.recorded(&latest.key)?, self.host.now())
    }
}

fn sum(all: &[Arc<Latest>], of: fn(&Latest) -> Option<i32>) -> i64 {
    all.iter().filter_map(|it| of(it)).map(i64::from).sum()
}

/// One autoscaler among others.
pub fn row(latest: &Latest, sparkline: Option<Sparkline>) -> FleetRow {
    let spec = latest.autoscaler.spec();
    let decision = latest.status.common.decision.as_ref();
    let winner = decision.and_then(|decision| decision.winner);
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
        winner: winner.map(|winner| winner.to_string()),
        next_window: next_window(latest).map(|(_, window)| window),
        sparkline,
        decided: decision
            .and_then(|decision| decision.time.as_ref())
            .map(|time| time.0.to_string()),
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
    match &common.decision {
        Some(decision) => decision.desired.or(common.expect_replicas),
        None => common.expect_replicas,
    }
}

/// The next change of a window, with its time.
fn next_window(latest: &Latest) -> Option<(Timestamp, NextWindow)> {
    let windows = latest.status.common.windows.as_ref()?;
    let (at, next) = windows
        .iter()
        .filter_map(|window| Some((window.next_transition.as_ref()?.0, window)))
        .min_by_key(|(at, _)| *at)?;
    let window = NextWindow {
        name: next.name.clone(),
        opens: !next.active,
        at: at.to_string(),
    };
    Some((at, window))
}

fn has_text(latest: &Latest, text: &str) -> bool {
    let key = &latest.key;
    text.is_empty()
        || [&key.name, &key.namespace, &target(latest)]
            .iter()
            .any(|name| name.to_lowercase().contains(text))
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
        let order = match self.by {
            By::Word => one.word.cmp(&other.word),
            By::Name => name(one).cmp(&name(other)),
            By::Current => current(one).cmp(&current(other)),
            By::Desired => desired(one).cmp(&desired(other)),
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
