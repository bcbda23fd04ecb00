//! A block of half an hour of rows: as it is filled, and packed by column once it is complete. Pure.
//!
//! A column that does not change costs six bytes per block. The counts are what the last sync of a minute saw; the demand is
//! the mean of the syncs of that minute.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::{Replicas, lead_time::LeadTime, proposal::Source};
use foretide_models::{Forecast, Prediction};

/// Minutes per block.
pub const BLOCK: u8 = 30;
/// Seconds per minute.
pub const MINUTE: i64 = 60;
/// Words of each metric in a block: its demand, and the amount that one replica carries.
pub const PER_METRIC: usize = 2;
/// The most metrics of which the demand is kept.
pub const METRICS: usize = 16;
/// Memory of a block besides its bytes: the pointers to it, its allocations.
const BLOCK_OVERHEAD: usize = 128;
/// A value that is not known. Of an amount it is one of the bit patterns that are not a number.
pub const ABSENT: u32 = u32::MAX;

/// A column that every autoscaler has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Replicas that were expected to be needed, as an amount.
    Expected,
    /// Upper end of the expected replicas.
    ExpectedUpper,
    /// First of the counts, which are as in `api::HistoryView`; those of [`source_column`] follow.
    Current,
    Ready,
    Highest,
    Stabilized,
    Limited,
    Desired,
    Floor,
    Min,
    Max,
    /// 1 if the decision scales the workload, else 0.
    Acted,
}

/// Number of columns of every autoscaler: those above, and one for each source.
pub const COLUMNS: usize = FIXED + Source::ALL.len();
/// Number of variants of [`Column`].
const FIXED: usize = Column::Acted as usize + 1;

/// Results of one sync, for the row of its minute.
#[derive(Debug, Default)]
pub struct Row<'a> {
    /// The known counts.
    pub counts: &'a [(Column, u32)],
    /// The largest proposal of each source that has one.
    pub proposed: BTreeMap<Source, Replicas>,
    /// The metrics.
    pub metrics: &'a [MetricRecord],
    /// The forecast for a later minute.
    pub expected: Option<Expected>,
}

/// The demand of one metric.
#[derive(Clone, Debug, Default)]
pub struct MetricRecord {
    /// Identifier of the metric.
    pub name: String,
    /// The total, in its base unit; absent if it could not be measured.
    pub demand: Option<f64>,
    /// Amount that one replica carries, in the same unit.
    pub per_replica: Option<f64>,
    /// The forecast in force, and the lead time that it is read at.
    pub forecast: Option<(Arc<Forecast>, LeadTime)>,
}

/// Forecast for a minute, in replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Beginning of the minute, in seconds since 1970.
    pub at: i64,
    /// Expected replicas.
    pub value: f64,
    /// The upper end, if the algorithm has one.
    pub upper: Option<f64>,
}

/// A complete block.
#[derive(Debug)]
pub struct SealedBlock {
    /// Number of the block: half-hours since 1970.
    pub number: i64,
    /// The minutes that were recorded, a bit for each.
    pub present: u32,
    pub metrics: Arc<[Arc<str>]>,
    /// The columns, packed one after the other.
    pub packed: Box<[u8]>,
}

/// The block that is being filled.
#[derive(Clone, Debug)]
pub struct OpenBlock {
    pub number: i64,
    pub present: u32,
    pub metrics: Arc<[Arc<str>]>,
    /// The columns, one after the other.
    pub words: Box<[u32]>,
    /// The minute that is being recorded, and the sums of its demand by metric.
    pub minute: usize,
    pub sums: Vec<(f64, u32)>,
}

// === impl Column ===

impl Column {
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Index of the column of a source's largest proposal.
pub const fn source_column(source: Source) -> usize {
    FIXED + source as usize
}

// === impl Expected ===

impl Expected {
    /// Returns a predicted amount in replicas, of which each carries `per_replica`.
    pub fn of(at: i64, sample: &Prediction, per_replica: f64) -> Self {
        Self {
            at,
            value: sample.value / per_replica,
            upper: sample.upper.map(|upper| upper / per_replica),
        }
    }

    /// The upper end, or the value if the algorithm has none.
    pub fn end(&self) -> f64 {
        self.upper.unwrap_or(self.value)
    }
}

// === impl OpenBlock ===

impl OpenBlock {
    pub fn new(number: i64, metrics: Arc<[Arc<str>]>) -> Self {
        let columns = COLUMNS + PER_METRIC * metrics.len();
        Self {
            number,
            present: 0,
            words: vec![ABSENT; columns * usize::from(BLOCK)].into(),
            // Outside of a block, so that the first row begins a minute.
            minute: usize::from(BLOCK),
            sums: vec![(0.0, 0); metrics.len()],
            metrics,
        }
    }

    pub fn has(&self, metrics: &[MetricRecord]) -> bool {
        are_named(&self.metrics, metrics)
    }

    pub fn cost(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.sums) + names_cost(&self.metrics)
    }

    pub fn set(&mut self, minute: usize, row: &Row<'_>, made: Option<Expected>) {
        if self.minute != minute {
            self.minute = minute;
            self.sums.fill((0.0, 0));
            // Later minutes exist only after the clock was set back; they are void.
            self.present &= (1 << minute) - 1;
        }
        self.present |= 1 << minute;
        if let Some(made) = made {
            self.put(Column::Expected.index(), amount(Some(made.value)));
            self.put(Column::ExpectedUpper.index(), amount(made.upper));
        }
        // Values of an earlier sync of this minute that this sync does not know are removed.
        for column in Column::Current.index()..COLUMNS {
            self.put(column, ABSENT);
        }
        for (column, count) in row.counts {
            self.put(column.index(), (*count).min(ABSENT - 1));
        }
        for (source, count) in &row.proposed {
            self.put(source_column(*source), count.get());
        }
        for (index, metric) in row.metrics.iter().take(self.metrics.len()).enumerate() {
            let column = COLUMNS + PER_METRIC * index;
            self.put(column + 1, amount(metric.per_replica));
            let Some((sum, count)) = self.sums.get_mut(index) else {
                continue;
            };
            if let Some(demand) = metric.demand {
                *sum += demand;
                *count += 1;
            }
            let mean = (*count > 0).then(|| *sum / f64::from(*count));
            self.put(column, amount(mean));
        }
    }

    fn put(&mut self, column: usize, word: u32) {
        if let Some(slot) = self
            .words
            .get_mut(column * usize::from(BLOCK) + self.minute)
        {
            *slot = word;
        }
    }

    pub fn sealed(&self) -> SealedBlock {
        let mut packed = Vec::new();
        for column in self.words.chunks(usize::from(BLOCK)) {
            pack(column, &mut packed);
        }
        SealedBlock {
            number: self.number,
            present: self.present,
            metrics: Arc::clone(&self.metrics),
            packed: packed.into(),
        }
    }
}

// === impl SealedBlock ===

impl SealedBlock {
    pub fn cost(&self) -> usize {
        // The names are shared by the blocks of an autoscaler, unless its metrics change; each block pays for them.
        self.packed.len() + names_cost(&self.metrics)
    }
}

/// The number of the block of a second, and the position of its minute.
pub fn place(second: i64) -> (i64, usize) {
    let minute = second.div_euclid(MINUTE);
    let position = usize::try_from(minute.rem_euclid(i64::from(BLOCK))).unwrap_or(0);
    (minute.div_euclid(i64::from(BLOCK)), position)
}

pub fn are_named(names: &[Arc<str>], metrics: &[MetricRecord]) -> bool {
    let metrics = metrics.get(..METRICS).unwrap_or(metrics);
    names
        .iter()
        .map(|name| &**name)
        .eq(metrics.iter().map(|metric| &*metric.name))
}

fn names_cost(names: &[Arc<str>]) -> usize {
    let texts: usize = names
        .iter()
        // A pointer with its length, and the two counts of an `Arc`.
        .map(|name| name.len() + BLOCK_OVERHEAD / 4)
        .sum();
    texts + BLOCK_OVERHEAD
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits of an amount are kept"
)]
fn amount(value: Option<f64>) -> u32 {
    value
        .map(|value| value as f32)
        .filter(|value| value.is_finite())
        .map_or(ABSENT, f32::to_bits)
}

pub fn known(word: u32) -> Option<f32> {
    Some(f32::from_bits(word)).filter(|value| value.is_finite())
}

/// Packs a column: how many runs of equal words there are, and each with its length; or all words, if that is shorter.
fn pack(column: &[u32], packed: &mut Vec<u8>) {
    let runs = column.chunk_by(|one, next| one == next);
    let count = runs.clone().count();
    // A run takes five bytes, its length and its word; a plain word takes four. No runs mark plain words.
    if count * 5 >= column.len() * 4 {
        packed.push(0);
        packed.extend(column.iter().flat_map(|word| word.to_le_bytes()));
        return;
    }
    packed.push(u8::try_from(count).unwrap_or(u8::MAX));
    for run in runs {
        packed.push(u8::try_from(run.len()).unwrap_or(u8::MAX));
        packed.extend(run.first().unwrap_or(&ABSENT).to_le_bytes());
    }
}

/// Unpacks all columns of a block.
pub fn unpack(packed: &[u8], words: &mut Vec<u32>) {
    let mut bytes = packed;
    while let Some((runs, rest)) = bytes.split_first() {
        bytes = rest;
        let (count, repeats) = if *runs == 0 {
            (usize::from(BLOCK), false)
        } else {
            (usize::from(*runs), true)
        };
        for _ in 0..count {
            let mut times = 1;
            if repeats && let Some((length, rest)) = bytes.split_first() {
                (times, bytes) = (usize::from(*length), rest);
            }
            let Some((word, rest)) = bytes.split_first_chunk() else {
                return;
            };
            bytes = rest;
            words.extend(std::iter::repeat_n(u32::from_le_bytes(*word), times));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn packed_columns_are_unpacked_as_they_were(words in prop::collection::vec(0..4_u32, usize::from(BLOCK) * 3)) {
            let mut packed = Vec::new();
            for column in words.chunks(usize::from(BLOCK)) {
                pack(column, &mut packed);
            }
            let mut unpacked = Vec::new();
            unpack(&packed, &mut unpacked);
            prop_assert_eq!(unpacked, words);
        }
    }
}
