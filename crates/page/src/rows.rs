//! Recorded minutes, to be read without a lock: unpacked, cut to a span, and thinned. Pure.

use std::{collections::BTreeSet, sync::Arc};

use super::block::{
    ABSENT, BLOCK, COLUMNS, Column, MINUTE, OpenBlock, PER_METRIC, SealedBlock, known, unpack,
};

/// Rows that are kept of each span of a thinned history.
const KEPT: usize = 3;

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
        let overlaps = |number: i64| {
            let begin = number * i64::from(BLOCK) * MINUTE;
            begin < until && begin + i64::from(BLOCK) * MINUTE > from
        };
        let mut words = Vec::new();
        for block in self.sealed.iter().filter(|block| overlaps(block.number)) {
            words.clear();
            unpack(&block.packed, &mut words);
            let found = Block(block.number, block.present, &block.metrics, &words);
            rows.add(&found, from, until);
        }
        if let Some(open) = self.open.as_ref().filter(|open| overlaps(open.number)) {
            let found = Block(open.number, open.present, &open.metrics, &open.words);
            rows.add(&found, from, until);
        }
        rows
    }
}

/// The number of a block, its recorded minutes, its metrics, its columns.
struct Block<'a>(i64, u32, &'a [Arc<str>], &'a [u32]);

// === impl Rows ===

impl Rows {
    fn add(&mut self, &Block(number, present, metrics, words): &Block<'_>, from: i64, until: i64) {
        let begin = number * i64::from(BLOCK) * MINUTE;
        let second = |minute: usize| begin + MINUTE * i64::try_from(minute).unwrap_or(0);
        let last = self.times.last().copied().unwrap_or(i64::MIN);
        let is_wanted = |minute: &usize| {
            let at = second(*minute);
            // Two blocks have a minute in common if the metrics of the autoscaler changed within it.
            present >> *minute & 1 == 1 && (from..until).contains(&at) && at > last
        };
        let minutes: Vec<usize> = (0..usize::from(BLOCK)).filter(is_wanted).collect();
        let column = |index: usize| {
            let word =
                move |minute: &usize| words.get(index * usize::from(BLOCK) + minute).copied();
            minutes
                .iter()
                .map(move |minute| word(minute).unwrap_or(ABSENT))
        };
        for (index, fixed) in self.fixed.iter_mut().enumerate() {
            fixed.extend(column(index));
        }
        for (index, name) in metrics.iter().enumerate() {
            let before = self.times.len();
            let known_at = self.metrics.iter().position(|known| known.name == *name);
            let at = known_at.unwrap_or_else(|| {
                self.metrics.push(MetricColumns {
                    name: Arc::clone(name),
                    demand: Vec::new(),
                    per_replica: Vec::new(),
                });
                self.metrics.len() - 1
            });
            if let Some(known) = self.metrics.get_mut(at) {
                let first = COLUMNS + PER_METRIC * index;
                known.demand.resize(before, ABSENT);
                known.per_replica.resize(before, ABSENT);
                known.demand.extend(column(first));
                known.per_replica.extend(column(first + 1));
            }
        }
        self.times
            .extend(minutes.iter().map(|minute| second(*minute)));
        for known in &mut self.metrics {
            known.demand.resize(self.times.len(), ABSENT);
            known.per_replica.resize(self.times.len(), ABSENT);
        }
    }

    /// Keeps at most `most` rows, the last one among them: of each of equal spans the minutes of the fewest and of the
    /// most replicas, and the one with the largest shortage. Returns the length of the spans in seconds: a minute if
    /// all rows are kept.
    pub fn thin(&mut self, most: usize) -> i64 {
        if self.times.len() <= most {
            return MINUTE;
        }
        // Two less: spans that begin at multiples of their length may be one more than fit, and the last row is kept,
        // too.
        let spans = i64::try_from((most / KEPT).saturating_sub(2).max(1)).unwrap_or(i64::MAX);
        let ends = self.times.first().zip(self.times.last());
        let minutes = ends.map_or(0, |(first, last)| (last - first) / MINUTE + 1);
        let step = MINUTE * (minutes + spans - 1).div_euclid(spans);
        let (needed, ready) = (self.needed(), self.counts(Column::Ready));
        let counts = self.counts(Column::Current);
        let count = |row: &usize| counts.get(*row).copied().flatten();
        let missing = |row: &usize| {
            let needed = needed.get(*row).copied().flatten().unwrap_or(0.0);
            let ready = ready.get(*row).copied().flatten().unwrap_or(0);
            f64::from(needed) - f64::from(ready)
        };
        let rows: Vec<usize> = (0..self.times.len()).collect();
        let span = |row: &usize| self.times.get(*row).map(|at| at.div_euclid(step));
        let mut kept: BTreeSet<usize> = rows.last().copied().into_iter().collect();
        for rows in rows.chunk_by(|one, next| span(one) == span(next)) {
            let by_missing = |one: &usize, other: &usize| missing(one).total_cmp(&missing(other));
            let rows = || rows.iter().copied();
            kept.extend(rows().min_by_key(count));
            kept.extend(rows().max_by_key(count));
            kept.extend(rows().max_by(by_missing));
        }
        self.keep(&kept.into_iter().collect::<Vec<_>>());
        step
    }

    fn keep(&mut self, rows: &[usize]) {
        fn chosen<T: Copy>(column: &mut Vec<T>, rows: &[usize]) {
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
        let words = self
            .fixed
            .get(column.index())
            .map_or(&[][..], Vec::as_slice);
        words
            .iter()
            .map(|word| (*word != ABSENT).then_some(*word))
            .collect()
    }

    /// The amounts of a column.
    pub fn amounts(&self, column: Column) -> Vec<Option<f32>> {
        let words = self
            .fixed
            .get(column.index())
            .map_or(&[][..], Vec::as_slice);
        words.iter().copied().map(known).collect()
    }

    /// Returns the replicas that the demand of each minute needs: the largest number among the metrics.
    pub fn needed(&self) -> Vec<Option<f32>> {
        let of_minute = |minute: usize| {
            let needed = self.metrics.iter().filter_map(|metric| {
                let demand = known(*metric.demand.get(minute)?)?;
                let target = known(*metric.per_replica.get(minute)?)?;
                Some(demand / target).filter(|needed| needed.is_finite())
            });
            needed.reduce(f32::max)
        };
        (0..self.times.len()).map(of_minute).collect()
    }
}

// === impl MetricColumns ===

impl MetricColumns {
    /// The demand of each minute.
    pub fn demand(&self) -> Vec<Option<f32>> {
        self.demand.iter().copied().map(known).collect()
    }
}
