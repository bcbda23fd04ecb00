//! The cached samples of one query, and how the live minutes of a series continue them.
//!
//! Live minutes continue the samples only of the series that they were measured for: two series may share a query, and
//! one of them may belong to another user.

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::{RangeQuery, ReadContext, SampleGrid, TimeRange, query_text, samples::GridSamples};
use foretide_api::ports::{HistoryError, QUERY_ANNOTATION};

/// Time before the newest sample at which a query starts, because samples may arrive late.
const OVERLAP: SignedDuration = SignedDuration::from_mins(5);
/// Period of reading a window with many holes as a whole: Prometheus may have been backfilled.
const FULL_READ_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Period of comparing live minutes with the query that they stand in for.
const COMPARE_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Longest time for which live minutes continue a history whose query fails or returns no new samples.
const LIVE_ONLY_MAX: SignedDuration = SignedDuration::from_hours(2);
/// The rate window of the built-in queries.
const RATE_WINDOW: SignedDuration = SignedDuration::from_mins(3);
/// Number of steps between two samples beyond which there was an outage; fewer are late or missed scrapes.
const OUTAGE_STEPS: i64 = 3;
/// Time after an outage, in addition to the rate window, after which every pod has been scraped again: three times,
/// once per minute.
const SCRAPED_AGAIN: SignedDuration = SignedDuration::from_mins(3);
/// Number of common samples that a comparison needs.
const COMPARED_SAMPLES: usize = 30;
/// Largest distance from one of the median of the ratios.
const TOLERANCE: f64 = 0.10;
/// The factor beyond which a comparison shows another amount, and that of fewer samples, of which there must be three.
const DIFFER: f64 = 1.25;
const FEW_DIFFER: f64 = 2.0;
const FEW_SAMPLES: usize = 3;

/// Match of the live minutes of one series with the results of its query. Every series has its own, even where several
/// share a query.
#[derive(Debug, Clone, Copy)]
pub struct LiveMatch {
    matches: bool,
    /// The comparison that came closest.
    compared: Option<Comparison>,
    /// The second of the next comparison.
    pub compare_at: i64,
}

/// The newest live minutes beside the queried samples of the same times: the pair whose ratio is the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The total of the pods that the selector selects.
    pub live: f64,
    /// The sample of the query.
    pub queried: f64,
    /// The number of pairs.
    samples: usize,
}

/// The samples of one query.
#[derive(Debug)]
pub struct CachedSamples {
    pub grid: SampleGrid,
    pub samples: GridSamples,
    /// The second of the newest sample that was ever read.
    pub newest: Option<i64>,
    /// The earliest second that was read with success.
    pub read_from: Option<i64>,
    /// The second at which the whole window was last queried.
    pub full_read_at: i64,
    /// The version of the reader that they are from.
    version: u64,
}

/// Warm-up of the samples at the end of a window, which began so recently that they may cover only a part of the pods,
/// or of the rate window: after an outage of what collects them, or at the start of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WarmUp {
    /// The second of the first of these samples.
    since: i64,
    /// The second from which on these samples count.
    until: i64,
    /// The second of the newest sample before the outage.
    before: Option<i64>,
}

// === impl LiveMatch ===

impl Default for LiveMatch {
    fn default() -> Self {
        Self {
            matches: false,
            compared: None,
            // Nothing is used before it was compared, so the first read queries and compares.
            compare_at: i64::MIN,
        }
    }
}

impl LiveMatch {
    /// True if live minutes measure what the query does.
    pub const fn matches(&self) -> bool {
        self.matches
    }

    /// Compares live minutes with queried samples: they match if the median ratio of the newest 30 common samples is
    /// within a tenth of one. Another unit or another set of pods shows in it.
    pub fn compare(&mut self, cached: &CachedSamples, context: &ReadContext<'_>) {
        // Minutes that vary much are far from the mean over the rate window that a query may return.
        self.compared = [SignedDuration::from_mins(1), RATE_WINDOW]
            .into_iter()
            .filter_map(|window| comparison(cached, context.live, window))
            .min_by(|one, other| one.factor().total_cmp(&other.factor()));
        self.matches = self.compared.is_some_and(|compared| compared.matches());
        self.compare_at = context.now.as_second() + COMPARE_PERIOD.as_secs();
    }

    /// The comparison, if it shows another amount: by more than what one replica carries, which must be known, and by a
    /// factor that noise does not explain.
    pub fn mismatch(&self, per_replica: Option<f64>) -> Option<Comparison> {
        let compared = self.compared.filter(Comparison::differs)?;
        ((compared.live - compared.queried).abs() > per_replica?).then_some(compared)
    }
}

// === impl Comparison ===

impl Comparison {
    fn ratio(&self) -> f64 {
        ratio(self.live, self.queried)
    }

    /// Factor between the two; at least one.
    fn factor(&self) -> f64 {
        self.ratio().max(self.ratio().recip())
    }

    /// True if live values may stand in for queried ones.
    fn matches(&self) -> bool {
        self.samples == COMPARED_SAMPLES && (self.ratio() - 1.0).abs() <= TOLERANCE
    }

    /// The refusal of a forecast from a history that is another amount than what is measured.
    pub fn refused(&self, query: &RangeQuery) -> Refused {
        let Self { live, queried, .. } = self;
        let message = format!(
            "the history has {queried:.3} where the pods of the selector have {live:.3}: it counts other pods, another cluster \
             or another unit, or lacks a part; write a query that matches into the annotation {QUERY_ANNOTATION}<metric>; the \
             query is {}",
            query_text(&query.parts)
        );
        Refused::new(Reason::HistoryMismatch, message)
    }

    fn differs(&self) -> bool {
        let allowed = match self.samples {
            0..FEW_SAMPLES => f64::INFINITY,
            FEW_SAMPLES..COMPARED_SAMPLES => FEW_DIFFER,
            _ => DIFFER,
        };
        self.factor() > allowed
    }
}

/// The newest means of live minutes over `window` beside the queried samples of the same times, at most 30; `None` if
/// there are none.
fn comparison(
    cached: &CachedSamples,
    live: &[Sample],
    window: SignedDuration,
) -> Option<Comparison> {
    let mut pairs: Vec<Comparison> = (live.iter().enumerate().rev())
        .filter_map(|(index, sample)| {
            let queried = cached.samples.get(sample.at.as_second())?;
            let (mut sum, mut count) = (0.0, 0_u32);
            for minute in live.get(..=index)?.iter().rev() {
                if sample.at.duration_since(minute.at) >= window {
                    break;
                }
                (sum, count) = (sum + minute.value, count + 1);
            }
            queried.is_finite().then_some(Comparison {
                live: sum / f64::from(count),
                queried,
                samples: 0,
            })
        })
        .take(COMPARED_SAMPLES)
        .collect();
    // The median, because single minutes may differ by much.
    pairs.sort_unstable_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let middle = *pairs.get(pairs.len() / 2)?;
    Some(Comparison {
        samples: pairs.len(),
        ..middle
    })
}

// === impl CachedSamples ===

impl CachedSamples {
    pub const fn empty(grid: SampleGrid) -> Self {
        Self {
            grid,
            samples: GridSamples::empty(grid.step),
            newest: None,
            read_from: None,
            full_read_at: i64::MIN,
            version: 0,
        }
    }

    /// Forgets the samples of other versions of the reader: they may be those of another tenant.
    pub fn keep_version(&mut self, version: u64) {
        if self.version != version {
            *self = Self {
                version,
                ..Self::empty(self.grid)
            };
        }
    }

    /// The range that is needed, on the grid.
    pub fn window(&self, context: &ReadContext<'_>) -> TimeRange {
        let SampleGrid { step, span } = self.grid;
        let to = context.now.as_second().div_euclid(step) * step;
        let start = to - span / step * step;
        // Rounded up to the grid.
        let since = context
            .since
            .map_or(start, |since| -(-since.as_second()).div_euclid(step) * step);
        TimeRange {
            // After the clock was set back, `since` may be ahead of it.
            from: since.clamp(start, to),
            to,
        }
    }

    /// The second of the newest sample that is still cached.
    fn newest_kept(&self) -> Option<i64> {
        self.newest.filter(|at| self.samples.get(*at).is_some())
    }

    /// The warm-up of the newest samples, if it has not ended.
    fn warm_up(&self, window: TimeRange) -> Option<WarmUp> {
        let outage = OUTAGE_STEPS * self.grid.step;
        let lasts = (RATE_WINDOW + SCRAPED_AGAIN).as_secs();
        let (newest, _) = self.samples.range(window).next_back()?;
        let since = self.run_start(newest, window, lasts);
        let (until, before) = (since + lasts, self.last_before(since, window));
        let is_over = window.to >= until || newest - since >= lasts;
        let follows_outage = match before {
            // A series that is always in short runs is sparse: none of its gaps is an outage.
            Some(at) => at - self.run_start(at, window, lasts) >= lasts,
            // Samples from the start of the window on are cut off by it; later ones are the start of a history.
            None => since - window.from > outage,
        };
        (follows_outage && !is_over).then_some(WarmUp {
            since,
            until,
            before,
        })
    }

    /// The first second of the samples without an outage between them that end at `newest`, as far as `enough` seconds
    /// back.
    fn run_start(&self, newest: i64, window: TimeRange, enough: i64) -> i64 {
        let outage = OUTAGE_STEPS * self.grid.step;
        let (mut start, to) = (newest, newest - 1);
        for (at, _) in self.samples.range(TimeRange { to, ..window }).rev() {
            if newest - start >= enough || start - at > outage {
                break;
            }
            start = at;
        }
        start
    }

    /// The second of the newest sample of the window before a second.
    fn last_before(&self, second: i64, window: TimeRange) -> Option<i64> {
        let to = second - 1;
        let (at, _) = self.samples.range(TimeRange { to, ..window }).next_back()?;
        Some(at)
    }

    /// The second of the newest sample that counts.
    fn newest_trusted(&self, window: TimeRange) -> Option<i64> {
        self.warm_up(window)
            .map_or_else(|| self.newest_kept(), |warm_up| warm_up.before)
    }

    /// The range to query: the whole window, or from shortly before the newest sample; none while live minutes continue
    /// it.
    ///
    /// The newest sample counts, not the last query: a gap at the end is queried again as a whole. A window that lacks
    /// a tenth of its points is queried as a whole once an hour.
    pub fn missing(&self, context: &ReadContext<'_>) -> Option<TimeRange> {
        let window = self.window(context);
        let (Some(newest), Some(read_from)) = (self.newest_kept(), self.read_from) else {
            return Some(window);
        };
        let step = self.grid.step;
        let tail = self.live_tail(context);
        let points = (window.to - window.from) / step + 1;
        let present = self.samples.range(window).count() + tail.len();
        let is_dense = present as i128 * 10 >= i128::from(points) * 9;
        // Saturating, because it starts at `i64::MIN`.
        let since_full_read = window.to.saturating_sub(self.full_read_at);
        let was_just_read = since_full_read < FULL_READ_PERIOD.as_secs();
        // The window starts earlier than before when a forecaster needs the whole span again.
        if read_from > window.from || !(is_dense || was_just_read) {
            return Some(window);
        }
        if self.live_reaches_end(context) && window.to < context.live_match.compare_at {
            return None;
        }
        // With long steps, five minutes may not cover a single sample.
        let overlap = OVERLAP.as_secs().max(2 * step);
        let from = (newest - overlap).div_euclid(step) * step;
        Some(TimeRange {
            from: from.clamp(window.from, window.to),
            to: window.to,
        })
    }

    /// True if live minutes lead without a gap from the newest sample to the end of the window.
    pub fn live_reaches_end(&self, context: &ReadContext<'_>) -> bool {
        let window = self.window(context);
        let newest = self.newest_trusted(window);
        let complete =
            context.live_match.matches && newest.is_some_and(|newest| newest >= window.to);
        complete || !self.live_tail(context).is_empty()
    }

    /// The live minutes from the newest sample to the end of the window; none of them if one is missing, if they do not
    /// match the query, or if the newest sample is too old.
    fn live_tail(&self, context: &ReadContext<'_>) -> Vec<Sample> {
        let (window, step) = (self.window(context), self.grid.step);
        let newest = self.newest_trusted(window);
        let Some(newest) = newest.filter(|_| context.live_match.matches) else {
            return Vec::new();
        };
        let to = window.to;
        let mut tail = context.live.to_vec();
        tail.retain(|sample| {
            let at = sample.at.as_second();
            // With a longer step, only the minutes that end at a time of the grid stand for a sample.
            at > newest && at <= to && at % step == 0
        });
        let gapless = i64::try_from(tail.len()).is_ok_and(|count| count >= (to - newest) / step);
        if gapless && to - newest <= LIVE_ONLY_MAX.as_secs() {
            tail
        } else {
            Vec::new()
        }
    }

    /// The samples of the window, continued by live minutes.
    ///
    /// # Errors
    /// [`HistoryError::Empty`]; [`HistoryError::WarmingUp`] while the newest samples do not count and no live minutes
    /// are used instead: a history that ends before an outage, or with a part of the pods, gives no forecast.
    pub fn samples(&self, context: &ReadContext<'_>) -> Result<Vec<Sample>, HistoryError> {
        let window = self.window(context);
        let tail = self.live_tail(context);
        if let Some(WarmUp { since, until, .. }) = self.warm_up(window)
            && tail.is_empty()
        {
            let (since, until) = (super::second(since)?, super::second(until)?);
            return Err(HistoryError::WarmingUp { since, until });
        }
        // In a warm-up the tail replaces the samples since the outage, which are left out here.
        let end = self.newest_trusted(window).unwrap_or(window.to);
        let to = end.clamp(window.from, window.to);
        let mut samples = self.within(TimeRange { to, ..window });
        samples.extend(tail);
        if samples.is_empty() {
            Err(HistoryError::Empty)
        } else {
            Ok(samples)
        }
    }

    /// The samples of the window that were queried.
    pub fn queried(&self, context: &ReadContext<'_>) -> Vec<Sample> {
        self.within(self.window(context))
    }

    fn within(&self, range: TimeRange) -> Vec<Sample> {
        (self.samples.range(range))
            .filter_map(|(at, value)| {
                let at = Timestamp::from_second(at).ok()?;
                Some(Sample { at, value })
            })
            .collect()
    }

    /// Merges the result of a query; for the same time the later result wins.
    pub fn merge(&mut self, range: TimeRange, samples: Vec<Sample>) {
        self.read_from = Some(
            self.read_from
                .map_or(range.from, |from| from.min(range.from)),
        );
        for sample in samples {
            let at = sample.at.as_second();
            if (range.from..=range.to).contains(&at) {
                self.samples.insert(at, sample.value);
            }
        }
        self.newest = self.newest.max(self.samples.newest());
    }

    pub fn drop_before(&mut self, from: i64) {
        self.samples.drop_before(from);
        self.read_from = self.read_from.map(|read| read.max(from));
    }
}

/// The ratio of a live value to a queried one; that of two zeros is one.
fn ratio(live: f64, queried: f64) -> f64 {
    // 0 / 0 is not a number, and an idle series would never match.
    if live.to_bits() == queried.to_bits() {
        1.0
    } else {
        live / queried
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecaster::history::tests::knowing;

    /// The mismatch that these live minutes show beside a history of 1.0 in each, if one replica carries 0.5.
    fn mismatch(live: &[f64]) -> Option<(f64, f64)> {
        let at =
            |minute: usize| Timestamp::from_second(60 * i64::try_from(minute).unwrap()).unwrap();
        let sample = |(minute, value): (usize, &f64)| Sample {
            at: at(minute),
            value: *value,
        };
        let live: Vec<Sample> = live.iter().enumerate().map(sample).collect();
        let queried = live.iter().map(|sample| Sample {
            value: 1.0,
            ..*sample
        });
        let mut cached = CachedSamples::empty(SampleGrid {
            step: 60,
            span: 86_400,
        });
        let span = TimeRange {
            from: 0,
            to: 86_400,
        };
        cached.merge(span, queried.collect());
        let context = knowing(6000, &live);
        let mut found = LiveMatch::default();
        found.compare(&cached, &context);
        assert_eq!(found.mismatch(None), None);
        found
            .mismatch(Some(0.5))
            .map(|compared| (compared.live, compared.queried))
    }

    #[test]
    fn another_amount_is_seen_by_its_factor_which_must_be_larger_where_fewer_minutes_were_compared()
    {
        for (live, minutes, differs) in [
            (0.0, 3, true),
            (0.4, 2, false),
            (0.4, 3, true),
            (2.5, 3, true),
            (1.6, 29, false),
            (1.6, 30, true),
            (0.45, 30, true),
            // By less than what one replica carries.
            (0.6, 30, false),
            (1.4, 30, false),
        ] {
            let found = mismatch(&vec![live; minutes]);
            assert_eq!(
                found,
                differs.then_some((live, 1.0)),
                "{live} in {minutes} minutes"
            );
        }
        let mut noisy: Vec<f64> = (0..30_u8)
            .map(|i| if i % 3 == 0 { 0.2 } else { 1.4 })
            .collect();
        assert_eq!(mismatch(&noisy), None);
        noisy.truncate(9);
        assert_eq!(mismatch(&noisy), None);
    }
}
