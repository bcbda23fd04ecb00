//! The recorded minutes of one autoscaler: a row per minute, in blocks of half an hour, within a share of one
//! memory budget.
//!
//! ```text
//! sync --Row--> open block (30 rows) --packed--> sealed blocks, oldest first --dropped when the share is used up
//! ```

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    api::Sentence,
    block::{
        BLOCK, Expected, METRICS, MINUTE, MetricRecord, OpenBlock, Row, SealedBlock, are_named,
        place,
    },
    rows::Snapshot,
};

/// The most minutes that are kept of an autoscaler, however much room there is: 14 days.
const MOST: i64 = 14 * 24 * 60;
/// Memory of a sentence besides its text.
const SENTENCE_OVERHEAD: usize = 160;
/// The part of a share that sentences may use.
const SENTENCES_SHARE: usize = 4;
/// The most sentences in one answer.
const MOST_SENTENCES: usize = 1000;
/// The most forecasts for coming minutes that are remembered: those for a day.
const MOST_EXPECTED: usize = 24 * 60;

/// The memory that all recorded minutes share.
#[derive(Debug)]
pub struct Budget {
    bytes: usize,
    used: AtomicUsize,
    objects: AtomicUsize,
}

/// The minutes of one autoscaler.
#[derive(Debug)]
pub struct Minutes {
    budget: Arc<Budget>,
    sealed: VecDeque<Arc<SealedBlock>>,
    open: Option<OpenBlock>,
    expected: VecDeque<Expected>,
    sentences: VecDeque<Arc<Sentence>>,
    /// The last recorded minute since 1970, whether it is kept or not.
    last: Option<i64>,
    /// Bytes taken from the budget.
    held: usize,
}

// === impl Budget ===

impl Budget {
    /// Returns a budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            used: AtomicUsize::new(0),
            objects: AtomicUsize::new(0),
        }
    }

    /// Returns the size of the budget, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the used part, in bytes.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the share of one autoscaler, in bytes.
    fn share(&self) -> usize {
        self.bytes / self.objects.load(Ordering::Relaxed).max(1)
    }

    fn take(&self, bytes: usize) -> bool {
        let rest = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes);
        // Relaxed order suffices, because nothing else is published by these counts.
        let relaxed = Ordering::Relaxed;
        self.used.fetch_update(relaxed, relaxed, rest).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// === impl Minutes ===

impl Minutes {
    /// Returns an empty record; the budget is shared with this autoscaler from now on.
    pub fn new(budget: Arc<Budget>) -> Self {
        budget.objects.fetch_add(1, Ordering::Relaxed);
        Self {
            budget,
            sealed: VecDeque::new(),
            open: None,
            expected: VecDeque::new(),
            sentences: VecDeque::new(),
            last: None,
            held: 0,
        }
    }

    /// Returns whether nothing is recorded of the minute of this second.
    pub fn is_new(&self, second: i64) -> bool {
        self.last != Some(second.div_euclid(MINUTE))
    }

    /// Records the results of a sync at this second.
    ///
    /// A wall clock that was set back voids the records after its new time, and up to half an hour before it.
    pub fn record(&mut self, second: i64, row: &Row<'_>) {
        self.keep_expected(row.expected);
        let (number, minute) = place(second);
        self.turn_to(number, row.metrics);
        self.drop_older(number - MOST / i64::from(BLOCK));
        self.last = Some(second.div_euclid(MINUTE));
        let begin = second.div_euclid(MINUTE) * MINUTE;
        while self.expected.pop_front_if(|made| made.at < begin).is_some() {
            self.release(size_of::<Expected>());
        }
        let made = self.expected.front().filter(|made| made.at == begin);
        if let Some(open) = &mut self.open {
            open.set(minute, row, made.copied());
        } else {
            self.release(self.expected.len() * size_of::<Expected>());
            self.expected.clear();
        }
    }

    /// Adds a sentence, and drops the oldest ones for which there is no room.
    pub fn say(&mut self, sentence: Sentence) {
        while let Some(void) = self.sentences.pop_back_if(|later| later.at > sentence.at) {
            self.release(cost_of(&void));
        }
        // A sentence is in force until the next one, so the oldest goes only once its successor is that old.
        let oldest = sentence.at - MOST * MINUTE;
        while self.sentences.get(1).is_some_and(|next| next.at <= oldest) {
            self.drop_sentence();
        }
        let last = self.sentences.back();
        if last.is_some_and(|last| last.text == sentence.text) {
            return;
        }
        let cost = cost_of(&sentence);
        let most = self.budget.share() / SENTENCES_SHARE;
        let mut used: usize = self.sentences.iter().map(|it| cost_of(it)).sum();
        while used + cost > most {
            let Some(freed) = self.drop_sentence() else {
                return;
            };
            used = used.saturating_sub(freed);
        }
        if self.reserve(cost) {
            self.sentences.push_back(Arc::new(sentence));
        }
    }

    /// Returns the records; cheap, because blocks are shared.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            sealed: self.sealed.iter().cloned().collect(),
            open: self.open.clone(),
        }
    }

    /// The sentences from the one that was in force at `from` to the last one before `until`; if there are too many,
    /// the last ones.
    pub fn sentences(&self, from: i64, until: i64) -> Vec<Arc<Sentence>> {
        let after = self.sentences.partition_point(|said| said.at <= from);
        let end = self.sentences.partition_point(|said| said.at < until);
        let first = after
            .saturating_sub(1)
            .max(end.saturating_sub(MOST_SENTENCES));
        let said = self.sentences.iter().take(end).skip(first);
        said.cloned().collect()
    }

    /// The first recorded minute and the end of the last one, in seconds since 1970.
    pub fn span(&self) -> Option<(i64, i64)> {
        let sealed = self.sealed.iter().map(|it| (it.number, it.present));
        let open = self.open.iter().map(|it| (it.number, it.present));
        sealed
            .chain(open)
            .filter(|(_, present)| *present != 0)
            .map(|(number, present)| {
                let first = i64::from(present.trailing_zeros());
                let end = i64::from(u32::BITS - present.leading_zeros());
                let begin = number * i64::from(BLOCK);
                ((begin + first) * MINUTE, (begin + end) * MINUTE)
            })
            .reduce(|(first, _), (_, end)| (first, end))
    }

    fn keep_expected(&mut self, expected: Option<Expected>) {
        let Some(made) = expected else { return };
        // After the lead time became shorter, the last forecast for a minute counts.
        while self.expected.pop_back_if(|it| it.at >= made.at).is_some() {
            self.release(size_of::<Expected>());
        }
        if self.expected.len() < MOST_EXPECTED && self.reserve(size_of::<Expected>()) {
            self.expected.push_back(made);
        }
    }

    /// Opens the block of this number, with the columns of these metrics; the one before is packed.
    fn turn_to(&mut self, number: i64, metrics: &[MetricRecord]) {
        let metrics = metrics.get(..METRICS).unwrap_or(metrics);
        if let Some(open) = &self.open
            && open.number == number
            && open.has(metrics)
        {
            return;
        }
        let is_back = self.open.as_ref().is_some_and(|open| open.number > number);
        self.seal();
        // Unless the clock went back, a block of this number had other metrics, and its minutes are earlier ones.
        let first_void = if is_back { number } else { number + 1 };
        while let Some(void) = self.sealed.pop_back_if(|it| it.number >= first_void) {
            self.release(void.cost());
        }
        let names = match self.sealed.back() {
            Some(last) if are_named(&last.metrics, metrics) => Arc::clone(&last.metrics),
            _ => metrics.iter().map(|it| Arc::from(&*it.name)).collect(),
        };
        let block = OpenBlock::new(number, names);
        if self.reserve(block.cost()) {
            self.open = Some(block);
        }
    }

    /// Packs the open block.
    fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        // Released before the packed block, which is smaller, takes its part: otherwise older blocks could be dropped
        // for it.
        self.release(open.cost());
        let sealed = open.sealed();
        if self.reserve(sealed.cost()) {
            self.sealed.push_back(Arc::new(sealed));
        }
    }

    /// Takes this much from the budget, after dropping as many of the oldest blocks as that needs; `false` if all of them
    /// are not enough.
    fn reserve(&mut self, bytes: usize) -> bool {
        loop {
            // The share alone does not suffice: it shrinks with each new autoscaler, and others may still hold more
            // than theirs.
            let fits = self.held + bytes <= self.budget.share();
            if fits && self.budget.take(bytes) {
                self.held += bytes;
                return true;
            }
            let Some(oldest) = self.sealed.pop_front() else {
                return false;
            };
            self.release(oldest.cost());
        }
    }

    fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        self.budget.give_back(bytes);
    }

    /// Drops the oldest sentence; returns what that frees.
    fn drop_sentence(&mut self) -> Option<usize> {
        let freed = cost_of(&*self.sentences.pop_front()?);
        self.release(freed);
        Some(freed)
    }

    fn drop_older(&mut self, number: i64) {
        while let Some(oldest) = self.sealed.pop_front_if(|oldest| oldest.number < number) {
            self.release(oldest.cost());
        }
    }
}

impl Drop for Minutes {
    fn drop(&mut self) {
        self.budget.give_back(self.held);
        self.budget.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

fn cost_of(sentence: &Sentence) -> usize {
    sentence.text.len() + SENTENCE_OVERHEAD
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{
        super::{
            block::Column,
            rows::{MetricColumns, Rows},
        },
        *,
    };

    /// One step of an autoscaler, of several that share a budget.
    #[derive(Clone, Debug)]
    enum Step {
        /// A sync this many seconds later, with this count and demand; its sentence has this length.
        Sync {
            of: usize,
            later: i64,
            count: u32,
            demand: f64,
            text: usize,
        },
        /// Replacement of the autoscaler by another one.
        Renew { of: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let later = prop_oneof![8 => 0..90_i64, 2 => 90..4000_i64, 1 => -4000..0_i64, 1 => 0..2_000_000_i64];
        let sync = (0..6_usize, later, 0..5_u32, 0.0..9.0, 0..900_usize);
        let sync = sync.prop_map(|(of, later, count, demand, text)| Step::Sync {
            of,
            later,
            count,
            demand,
            text,
        });
        prop_oneof![30 => sync, 1 => (0..6_usize).prop_map(|of| Step::Renew { of })]
    }

    /// Sum of the costs of all parts.
    fn cost(minutes: &Minutes) -> usize {
        let sealed: usize = minutes.sealed.iter().map(|block| block.cost()).sum();
        let open = minutes.open.as_ref().map_or(0, OpenBlock::cost);
        let said: usize = minutes.sentences.iter().map(|said| cost_of(said)).sum();
        sealed + open + said + minutes.expected.len() * size_of::<Expected>()
    }

    fn said(at: i64, length: usize) -> Sentence {
        Sentence {
            at,
            winner: None,
            limit: None,
            text: "x".repeat(length),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn what_is_kept_is_the_end_of_what_was_recorded_and_never_above_the_budget(
            bytes in 0..40_000_usize,
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let budget = Arc::new(Budget::new(bytes));
            let mut objects: BTreeMap<usize, (Minutes, i64, BTreeMap<i64, u32>, bool)> = BTreeMap::new();
            for step in steps {
                let (Step::Sync { of, .. } | Step::Renew { of }) = step;
                let new = || (Minutes::new(Arc::clone(&budget)), 1_700_000_000, BTreeMap::new(), false);
                if let Step::Renew { of } = step {
                    objects.remove(&of);
                }
                let (minutes, now, model, went_back) = objects.entry(of).or_insert_with(new);
                if let Step::Sync { later, count, demand, text, .. } = step {
                    *now += later;
                    *went_back |= later < 0;
                    let metrics = [MetricRecord { name: "cpu".into(), demand: Some(demand), per_replica: Some(0.5), ..MetricRecord::default() }];
                    let counts = [(Column::Current, count)];
                    let expected = Some(Expected { at: *now + 600, value: 1.0, upper: None });
                    minutes.record(*now, &Row { counts: &counts, metrics: &metrics, expected, ..Row::default() });
                    minutes.say(said(*now, text));
                    let minute = now.div_euclid(MINUTE) * MINUTE;
                    model.split_off(&minute);
                    model.insert(minute, count);
                }
                let held: usize = objects.values().map(|(minutes, ..)| cost(minutes)).sum();
                prop_assert_eq!(budget.used(), held);
                prop_assert!(held <= bytes, "{} > {}", held, bytes);
            }
            for (minutes, _, model, went_back) in objects.values() {
                let rows = minutes.snapshot().rows(i64::MIN, i64::MAX);
                let kept: Vec<_> = std::iter::zip(rows.times.clone(), rows.counts(Column::Current).into_iter().flatten()).collect();
                let recorded: Vec<_> = model.iter().map(|(at, count)| (*at, *count)).collect();
                let is_end = recorded.ends_with(&kept);
                let is_part = kept.iter().all(|row| recorded.contains(row));
                prop_assert!(is_end || *went_back && is_part, "{:?} is no end of {:?}", kept, recorded);
                prop_assert_eq!(minutes.span().map(|(first, _)| first), rows.times.first().copied());
            }
        }
    }

    /// A day of minutes of one metric, with counts that change twice an hour, within this budget for all of `objects`.
    fn a_day(bytes: usize, objects: usize) -> Minutes {
        let budget = Arc::new(Budget::new(bytes));
        let all: Vec<_> = (0..objects)
            .map(|_| Minutes::new(Arc::clone(&budget)))
            .collect();
        let mut all = all.into_iter();
        let mut minutes = all.next().unwrap();
        for minute in 0..1440_i64 {
            let demand = f64::from(u32::try_from(minute % 97).unwrap()) / 7.0;
            let metrics = [MetricRecord {
                name: "resource.cpu".into(),
                demand: Some(demand),
                per_replica: Some(0.1),
                ..MetricRecord::default()
            }];
            let count = u32::try_from(minute / 30 % 7).unwrap();
            let counts =
                [Column::Current, Column::Ready, Column::Desired].map(|column| (column, count));
            let made = Expected {
                at: (minute + 2) * 60,
                value: 3.0 + 0.01 * demand,
                upper: Some(demand),
            };
            minutes.record(
                minute * 60,
                &Row {
                    counts: &counts,
                    metrics: &metrics,
                    expected: Some(made),
                    ..Row::default()
                },
            );
        }
        minutes
    }

    #[test]
    fn five_thousand_autoscalers_keep_hours_in_64_mib() {
        let minutes = a_day(64 << 20, 5000);
        let (from, until) = minutes.span().unwrap();
        assert!((until - from) / 3600 >= 8, "{} h", (until - from) / 3600);
        assert_eq!(until, 86_400);
    }

    #[test]
    fn a_thinned_history_keeps_the_extremes_and_the_last_minute() {
        let all = || a_day(1 << 20, 1).snapshot().rows(0, 86_400);
        let mut rows = all();
        assert_eq!(rows.thin(1440), 60);
        assert_eq!(rows.times.len(), 1440);
        for most in [1439, 720, 100] {
            let (whole, mut rows) = (all(), all());
            let step = rows.thin(most);
            assert!(
                (120..=86_400).contains(&step) && rows.times.len() <= most,
                "{step} s"
            );
            assert_eq!(rows.times.last(), whole.times.last());
            let extremes = |rows: &Rows| {
                let counts = rows.counts(Column::Current).into_iter().flatten();
                let (counts, others) = (counts.clone(), counts);
                (
                    counts.min(),
                    others.max(),
                    rows.needed().into_iter().flatten().reduce(f32::max),
                )
            };
            assert_eq!(extremes(&rows), extremes(&whole), "{most}");
            let gaps = rows.times.array_windows().map(|[one, next]| next - one);
            assert!(gaps.max().is_some_and(|gap| gap < 2 * step), "{most}");
            // A row is still one minute in all its columns.
            let of = |rows: &Rows, at| {
                let row = rows.times.iter().position(|time| *time == at).unwrap();
                (
                    rows.counts(Column::Desired)[row],
                    rows.amounts(Column::Expected)[row],
                    rows.needed()[row],
                )
            };
            for at in &rows.times {
                assert_eq!(of(&rows, *at), of(&whole, *at));
            }
        }
    }

    #[test]
    fn a_thinned_history_keeps_a_shortage_between_equal_counts_and_the_last_minute() {
        let mut minutes = Minutes::new(Arc::new(Budget::new(1 << 20)));
        for minute in 0..1440_i64 {
            let count = match minute {
                300 | 1437 => 1,
                900 | 1438 => 9,
                _ => 4,
            };
            let metrics = [MetricRecord {
                name: "cpu".into(),
                demand: Some(if [700, 1436].contains(&minute) {
                    8.0
                } else {
                    3.0
                }),
                per_replica: Some(1.0),
                ..MetricRecord::default()
            }];
            let counts = [(Column::Current, count), (Column::Ready, count)];
            let row = Row {
                counts: &counts,
                metrics: &metrics,
                ..Row::default()
            };
            minutes.record(minute * 60, &row);
        }
        let mut rows = minutes.snapshot().rows(0, 86_400);
        assert_eq!(rows.thin(100), 47 * 60);
        for minute in [300, 700, 900, 1436, 1437, 1438, 1439] {
            assert!(rows.times.contains(&(minute * 60)), "{minute}");
        }
    }

    #[test]
    fn what_was_expected_is_in_the_minute_that_it_was_expected_for() {
        let rows = a_day(1 << 20, 1).snapshot().rows(600, 660);
        assert_eq!(rows.times, [600]);
        assert_eq!(rows.amounts(Column::ExpectedUpper), [Some(8.0 / 7.0)]);
        assert_eq!(rows.amounts(Column::Expected), [Some(3.0 + 0.08 / 7.0)]);
        assert_eq!(rows.needed(), [Some(10.0 / 7.0 / 0.1)]);
    }

    #[test]
    fn the_demand_of_a_minute_is_the_mean_of_its_syncs_and_its_counts_are_the_last() {
        let mut minutes = Minutes::new(Arc::new(Budget::new(1 << 20)));
        for (second, demand, count) in [(60, Some(1.0), 4), (75, None, 5), (90, Some(3.0), 6)] {
            let metrics = [MetricRecord {
                name: "cpu".into(),
                demand,
                ..MetricRecord::default()
            }];
            minutes.record(
                second,
                &Row {
                    counts: &[(Column::Ready, count)],
                    metrics: &metrics,
                    ..Row::default()
                },
            );
        }
        let rows = minutes.snapshot().rows(0, 600);
        assert_eq!(rows.times, [60]);
        assert_eq!(rows.counts(Column::Ready), [Some(6)]);
        assert_eq!(
            rows.metrics.first().map(MetricColumns::demand),
            Some(vec![Some(2.0)])
        );
        assert_eq!(rows.needed(), [None]);
    }

    #[test]
    fn a_sentence_in_force_at_the_beginning_of_a_span_belongs_to_it() {
        let mut minutes = Minutes::new(Arc::new(Budget::new(1 << 20)));
        for at in [10, 20, 30] {
            minutes.say(said(at, usize::try_from(at).unwrap()));
        }
        let times = |from, until| {
            minutes
                .sentences(from, until)
                .iter()
                .map(|said| said.at)
                .collect::<Vec<_>>()
        };
        assert_eq!(times(15, 30), [10, 20]);
        assert_eq!(times(20, 99), [20, 30]);
        assert_eq!(times(0, 10), [0; 0]);
    }

    #[test]
    fn sentences_are_as_old_as_minutes_at_most_and_an_answer_has_a_thousand() {
        let mut minutes = Minutes::new(Arc::new(Budget::new(64 << 20)));
        let days = |days: i64| days * 24 * 3600;
        for at in [0, 10, days(14) + 5, days(14) + 10] {
            minutes.say(said(at, usize::try_from(at % 977).unwrap()));
        }
        let times = |minutes: &Minutes| {
            let said = minutes.sentences(0, i64::MAX);
            said.iter().map(|said| said.at).collect::<Vec<_>>()
        };
        // The sentence of second ten was in force fourteen days before the last one.
        assert_eq!(times(&minutes), [10, days(14) + 5, days(14) + 10]);
        for at in 0..1500 {
            minutes.say(said(days(15) + at, usize::try_from(at % 7).unwrap()));
        }
        let kept = times(&minutes);
        assert_eq!((kept.len(), kept.last()), (1000, Some(&(days(15) + 1499))));
    }

    #[test]
    fn without_memory_a_minute_is_new_once_and_nothing_is_kept_of_it() {
        let mut minutes = Minutes::new(Arc::new(Budget::new(0)));
        let made = |second: i64| Expected {
            at: second + 6000,
            value: 1.0,
            upper: None,
        };
        let found = [0, 15, 59, 60, 61].map(|second| {
            let is_new = minutes.is_new(second);
            let expected = Some(made(second));
            minutes.record(
                second,
                &Row {
                    expected,
                    ..Row::default()
                },
            );
            is_new
        });
        assert_eq!(found, [true, false, false, true, false]);
        assert_eq!(minutes.expected.len(), 0);
    }
}
