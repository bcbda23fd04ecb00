//! Recorded minutes, to be read without a lock: unpacked, cut to a span, and thinned. Pure.

use std::{collections::BTreeSet, iter, sync::Arc};

use foretide_domain::proposal::Source;

use super::block::{
    ABSENT, BLOCK, COLUMNS, Column, MINUTE, OpenBlock, PER_METRIC, SealedBlock, known,
    source_column, unpack,
};

/// Rows that are kept of each span of a thinned history.
const KEPT: usize = 3;
/// Seconds per block.
const LENGTH: i64 = BLOCK as i64 * MINUTE;

/// Recorded minutes, to be read without a lock.
#[derive(Debug)]
pub struct Snapshot {
    pub sealed: Vec<Arc<SealedBlock>>,
    pub open: Option<OpenBlock>,
}

/// A part of what is recorded: a row for each recorded minute.
#[derive(Debug, Default)]
pub struct Rows {
    /// Beginning of each minute, in seconds since 1970.
    pub times: Vec<i64>,
    fixed: Vec<Vec<u32>>,
    /// By metric, in the order of their first minute.
    pub metrics: Vec<MetricColumns>,
}

/// The columns of one metric.
#[derive(Debug)]
pub struct MetricColumns {
    /// Identifier of the metric.
    pub name: Arc<str>,
    demand: Vec<u32>,
    per_replica: Vec<u32>,
}

// === impl Snapshot ===

impl Snapshot {
    /// The recorded minutes that begin in `[from, until)`, in seconds since 1970.
    pub fn rows(&self, from: i64, until: i64) -> Rows {
        let mut rows = Rows {
            fixed: vec![Vec::new(); COLUMNS],
            ..Rows::default()
        };
        let mut words = Vec::new();
        for sealed in &self.sealed {
            let begin = sealed.number * LENGTH;
            if begin < until && begin + LENGTH > from {
                words.clear();
                unpack(&sealed.packed, &mut words);
                let block = Block {
                    begin,
                    present: sealed.present,
                    metrics: &sealed.metrics,
                    words: &words,
                };
                rows.add(&block, from, until);
            }
        }
        if let Some(open) = &self.open {
            let begin = open.number * LENGTH;
            if begin < until && begin + LENGTH > from {
                let block = Block {
                    begin,
                    present: open.present,
                    metrics: &open.metrics,
                    words: &open.words,
                };
                rows.add(&block, from, until);
            }
        }
        rows
    }
}

/// A block whose columns are unpacked.
struct Block<'a> {
    begin: i64,
    present: u32,
    metrics: &'a [Arc<str>],
    words: &'a [u32],
}

/// A row of a history that is thinned.
struct Candidate {
    row: usize,
    /// Number of its span.
    span: i64,
    count: Option<u32>,
    missing: f64,
}

// === impl Block ===

impl Block<'_> {
    /// The words of a column in these minutes.
    fn column(&self, index: usize, minutes: &[usize]) -> impl Iterator<Item = u32> {
        let first = index * usize::from(BLOCK);
        minutes
            .iter()
            .map(move |minute| *self.words.get(first + minute).unwrap_or(&ABSENT))
    }
}

// === impl Rows ===

impl Rows {
    fn add(&mut self, block: &Block<'_>, from: i64, until: i64) {
        let before = self.times.len();
        let last = self.times.last().copied().unwrap_or(i64::MIN);
        let mut minutes = Vec::new();
        for minute in 0..BLOCK {
            let at = block.begin + MINUTE * i64::from(minute);
            // Two blocks have a minute in common if the metrics of the autoscaler changed within it.
            if block.present >> minute & 1 == 1 && (from..until).contains(&at) && at > last {
                minutes.push(usize::from(minute));
                self.times.push(at);
            }
        }
        for (index, fixed) in self.fixed.iter_mut().enumerate() {
            fixed.extend(block.column(index, &minutes));
        }
        for (index, name) in block.metrics.iter().enumerate() {
            if !self.metrics.iter().any(|known| known.name == *name) {
                self.metrics.push(MetricColumns {
                    name: Arc::clone(name),
                    demand: Vec::new(),
                    per_replica: Vec::new(),
                });
            }
            if let Some(known) = self.metrics.iter_mut().find(|it| it.name == *name) {
                let first = COLUMNS + PER_METRIC * index;
                known.demand.resize(before, ABSENT);
                known.per_replica.resize(before, ABSENT);
                known.demand.extend(block.column(first, &minutes));
                known.per_replica.extend(block.column(first + 1, &minutes));
            }
        }
        for known in &mut self.metrics {
            known.demand.resize(self.times.len(), ABSENT);
            known.per_replica.resize(self.times.len(), ABSENT);
        }
    }

    /// Keeps at most `most` rows, the last one among them: of each of equal spans the minutes of the fewest and of the
    /// most replicas, and the one with the largest shortage. Returns the length of the spans in seconds: a minute if
    /// all rows are kept.
    pub fn thin(&mut self, most: usize) -> i64 {
        let [first, .., last] = self.times[..] else {
            return MINUTE;
        };
        if self.times.len() <= most {
            return MINUTE;
        }
        // Two less: spans that begin at multiples of their length may be one more than fit, and the last row is kept,
        // too.
        let spans = i64::try_from((most / KEPT).saturating_sub(2).max(1)).unwrap_or(i64::MAX);
        let minutes = (last - first) / MINUTE + 1;
        let step = MINUTE * (minutes + spans - 1).div_euclid(spans);
        let counts = iter::zip(self.counts(Column::Current), self.counts(Column::Ready));
        let states = iter::zip(counts, self.needed());
        let rows: Vec<_> = iter::zip(&self.times, states)
            .enumerate()
            .map(|(row, (at, ((count, ready), needed)))| Candidate {
                row,
                span: at.div_euclid(step),
                count,
                missing: f64::from(needed.unwrap_or(0.0)) - f64::from(ready.unwrap_or(0)),
            })
            .collect();
        let mut kept = BTreeSet::from([self.times.len() - 1]);
        for rows in rows.chunk_by(|one, next| one.span == next.span) {
            kept.extend(rows.iter().min_by_key(|it| it.count).map(|it| it.row));
            kept.extend(rows.iter().max_by_key(|it| it.count).map(|it| it.row));
            let shortest = rows
                .iter()
                .max_by(|one, other| one.missing.total_cmp(&other.missing));
            kept.extend(shortest.map(|it| it.row));
        }
        self.keep(&kept);
        step
    }

    fn keep(&mut self, rows: &BTreeSet<usize>) {
        fn chosen<T: Copy>(column: &mut Vec<T>, rows: &BTreeSet<usize>) {
            *column = rows
                .iter()
                .filter_map(|row| column.get(*row).copied())
                .collect();
        }
        chosen(&mut self.times, rows);
        for column in &mut self.fixed {
            chosen(column, rows);
        }
        for metric in &mut self.metrics {
            chosen(&mut metric.demand, rows);
            chosen(&mut metric.per_replica, rows);
        }
    }

    /// The counts of a column.
    pub fn counts(&self, column: Column) -> Vec<Option<u32>> {
        counts(self.words(column.index()))
    }

    /// The largest proposals of a source.
    pub fn proposed(&self, source: Source) -> Vec<Option<u32>> {
        counts(self.words(source_column(source)))
    }

    /// The amounts of a column.
    pub fn amounts(&self, column: Column) -> Vec<Option<f32>> {
        self.words(column.index())
            .iter()
            .copied()
            .map(known)
            .collect()
    }

    fn words(&self, index: usize) -> &[u32] {
        self.fixed.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the replicas that the demand of each minute needs: the largest number among the metrics.
    pub fn needed(&self) -> Vec<Option<f32>> {
        (0..self.times.len())
            .map(|row| {
                let needed = self.metrics.iter().filter_map(|it| it.needed(row));
                needed.reduce(f32::max)
            })
            .collect()
    }
}

fn counts(words: &[u32]) -> Vec<Option<u32>> {
    words
        .iter()
        .map(|word| (*word != ABSENT).then_some(*word))
        .collect()
}

// === impl MetricColumns ===

impl MetricColumns {
    fn needed(&self, row: usize) -> Option<f32> {
        let demand = known(*self.demand.get(row)?)?;
        let per_replica = known(*self.per_replica.get(row)?)?;
        Some(demand / per_replica).filter(|needed| needed.is_finite())
    }

    /// The demand of each minute.
    pub fn demand(&self) -> Vec<Option<f32>> {
        self.demand.iter().copied().map(known).collect()
    }
}
