use std::{
    collections::VecDeque,
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use proptest::prelude::*;

use super::*;

const STEP: SignedDuration = SignedDuration::from_secs(60);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A reader with a sample at each second that `holds` accepts; it records the ranges it is asked for.
struct Recorded<F> {
    holds: F,
    asked: Mutex<Vec<(i64, i64)>>,
    failures: Mutex<VecDeque<bool>>,
}

impl<F: Fn(i64) -> bool> Recorded<F> {
    fn new(holds: F) -> Self {
        Self {
            holds,
            asked: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    fn asked(&self) -> Vec<(i64, i64)> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// The next calls fail where marked.
    fn fail(&self, calls: &[bool]) {
        self.failures.lock().extend(calls);
    }
}

impl<F: Fn(i64) -> bool + Send + Sync> HistoryReader for Recorded<F> {
    async fn range(
        &self,
        _query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let (from, to) = (from.as_second(), to.as_second());
        self.asked.lock().push((from, to));
        if self.failures.lock().pop_front() == Some(true) {
            return Err(unavailable());
        }
        let times = (from..=to).step_by(usize::try_from(step.as_secs()).unwrap());
        let samples: Vec<Sample> = times
            .filter(|second| (self.holds)(*second))
            .map(sample)
            .collect();
        if samples.is_empty() {
            Err(HistoryError::Empty)
        } else {
            Ok(samples)
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "small seconds")]
fn sample(second: i64) -> Sample {
    Sample {
        at: at(second),
        value: second as f64,
    }
}

pub fn unavailable() -> HistoryError {
    HistoryError::Unavailable {
        status: 503,
        message: "starting".to_owned(),
    }
}

/// The context of a read at this second, with these live minutes.
pub fn knowing(now: i64, live: &[Sample]) -> ReadContext<'_> {
    static QUERY: LazyLock<RangeQuery> = LazyLock::new(|| request(3600));
    ReadContext {
        query: &QUERY,
        live_match: LiveMatch::default(),
        now: at(now),
        since: None,
        live,
        idle: &NO_MEMBERS,
    }
}

/// Reads a query in this context, with a match of its own.
pub async fn read_with<R: HistoryReader>(
    cache: &HistoryCache,
    reader: &R,
    query: &RangeQuery,
    live_match: &mut LiveMatch,
    context: &ReadContext<'_>,
) -> Result<Vec<Sample>, HistoryError> {
    let mut context = ReadContext {
        query,
        live_match: *live_match,
        ..*context
    };
    let read = cache.read(reader, &mut context).await;
    *live_match = context.live_match;
    read
}

async fn read<R: HistoryReader>(
    cache: &HistoryCache,
    reader: &R,
    request: &RangeQuery,
    now: i64,
) -> Result<Vec<Sample>, HistoryError> {
    let mut live_match = LiveMatch::default();
    let context = knowing(now, &[]);
    read_with(cache, reader, request, &mut live_match, &context).await
}

static NO_MEMBERS: BTreeSet<Arc<str>> = BTreeSet::new();

fn single(query: &str, step: SignedDuration, span: i64) -> Result<RangeQuery, InvalidRange> {
    let query = HistoryQuery {
        namespace: "shop".into(),
        endpoint: None,
        text: query.into(),
    };
    let member = None;
    RangeQuery::new(
        vec![QueryPart { member, query }],
        step,
        SignedDuration::from_secs(span),
    )
}

fn request(span: i64) -> RangeQuery {
    single("sum(up)", STEP, span).unwrap()
}

/// The minutes from one second to another.
fn minutes(from: i64, to: i64) -> Vec<i64> {
    (from..=to).step_by(60).collect()
}

fn seconds(samples: &[Sample]) -> Vec<i64> {
    samples.iter().map(|sample| sample.at.as_second()).collect()
}

#[tokio::test]
async fn the_first_read_queries_the_whole_span_and_the_next_one_what_is_new() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let hour = request(3600);
    let first = read(&cache, &reader, &hour, 36_059).await.unwrap();
    assert_eq!(seconds(&first), minutes(32_400, 36_000));
    assert_eq!(reader.asked(), [(32_400, 36_000)]);
    let next = read(&cache, &reader, &hour, 36_120).await.unwrap();
    assert_eq!(reader.asked(), [(35_700, 36_120)]);
    assert_eq!(seconds(&next), minutes(32_520, 36_120));
}

#[tokio::test]
async fn a_long_span_is_queried_in_pieces_of_eleven_thousand_points() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let got = read(&cache, &reader, &request(14 * 86_400), 14 * 86_400)
        .await
        .unwrap();
    assert_eq!(got.len(), 14 * 1440 + 1);
    assert_eq!(reader.asked(), [(0, 659_940), (660_000, 14 * 86_400)]);
}

#[tokio::test]
async fn after_a_failure_the_next_read_continues_where_it_stopped() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let long = request(14 * 86_400);
    reader.fail(&[false, true]);
    let error = read(&cache, &reader, &long, 14 * 86_400).await.unwrap_err();
    assert!(matches!(error, HistoryError::Unavailable { .. }), "{error}");
    assert_eq!(reader.asked().len(), 2);
    let got = read(&cache, &reader, &long, 14 * 86_400).await.unwrap();
    assert_eq!(reader.asked(), [(659_640, 14 * 86_400)]);
    assert_eq!(got.len(), 14 * 1440 + 1);
}

#[tokio::test]
async fn an_outage_is_filled_and_after_a_long_one_the_whole_span_is_queried() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let hour = request(3600);
    read(&cache, &reader, &hour, 36_000).await.unwrap();
    let later = read(&cache, &reader, &hour, 37_800).await.unwrap();
    assert_eq!((later.len(), reader.asked()[1]), (61, (35_700, 37_800)));
    read(&cache, &reader, &hour, 90_000).await.unwrap();
    assert_eq!(reader.asked(), [(86_400, 90_000)]);
}

#[tokio::test]
async fn no_samples_at_all_is_no_data_and_the_whole_span_is_queried_again() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| false));
    for _ in 0..2 {
        let error = read(&cache, &reader, &request(3600), 36_000)
            .await
            .unwrap_err();
        assert!(matches!(error, HistoryError::Empty), "{error}");
        assert_eq!(reader.asked(), [(32_400, 36_000)]);
    }
}

#[tokio::test]
async fn a_gap_at_the_end_keeps_the_earlier_samples_and_is_queried_again() {
    let (cache, reader) = (
        HistoryCache::default(),
        Recorded::new(|second| second < 35_000),
    );
    let hour = request(3600);
    let got = read(&cache, &reader, &hour, 36_000).await.unwrap();
    assert_eq!(got.last().map(|sample| sample.at), Some(at(34_980)));
    let again = read(&cache, &reader, &hour, 36_060).await.unwrap();
    assert_eq!(reader.asked()[1], (34_680, 36_060));
    assert_eq!(again.len(), got.len() - 1);
}

#[tokio::test]
async fn a_server_that_lost_its_past_does_not_shorten_the_history() {
    let first_kept = AtomicI64::new(0);
    let reader = Recorded::new(|second| second >= first_kept.load(Ordering::Relaxed));
    let (cache, hour) = (HistoryCache::default(), request(3600));
    read(&cache, &reader, &hour, 36_000).await.unwrap();
    // The server starts empty, and has samples again some minutes later.
    for (now, lost_before, outage) in [(36_300, i64::MAX, 300), (36_960, 36_600, 540)] {
        first_kept.store(lost_before, Ordering::Relaxed);
        let got = seconds(&read(&cache, &reader, &hour, now).await.unwrap());
        let of_before = minutes(now - 3600, 36_000);
        let of_now = minutes(36_000 + outage + 60, now);
        assert_eq!(got, [of_before, of_now].concat(), "{now}");
    }
    // Hours later the whole window is queried again, because of the hole: what is cached stays.
    let got = seconds(&read(&cache, &reader, &hour, 39_300).await.unwrap());
    assert_eq!(got.first(), Some(&35_700));
}

#[tokio::test]
async fn the_first_samples_after_an_outage_count_when_they_cover_all_pods() {
    let outage = (AtomicI64::new(0), AtomicI64::new(0));
    let reader = Recorded::new(|second| {
        second < outage.0.load(Ordering::Relaxed) || second >= outage.1.load(Ordering::Relaxed)
    });
    // Two missing samples are a hole; three or more are an outage.
    for (end, warms_up) in [(36_120, false), (36_180, true), (39_000, true)] {
        let (cache, hour) = (HistoryCache::default(), request(7200));
        outage.0.store(36_000, Ordering::Relaxed);
        outage.1.store(end, Ordering::Relaxed);
        for (after, counts) in [(0, false), (300, false), (359, false), (360, true)] {
            let got = read(&cache, &reader, &hour, end + after).await;
            let is_refused = match &got {
                Ok(_) => false,
                Err(HistoryError::WarmingUp { .. }) => true,
                Err(error) => panic!("{end} {after}: {error}"),
            };
            assert_eq!(is_refused, warms_up && !counts, "{end} {after}");
            let newest = got.map_or(35_940, |got| *seconds(&got).last().unwrap());
            let is_newest = newest == (end + after) / 60 * 60;
            assert_eq!(is_newest, !warms_up || counts, "{end} {after}");
        }
    }
    // A series that begins is not known to cover all pods either.
    outage.0.store(0, Ordering::Relaxed);
    let cache = HistoryCache::default();
    let error = read(&cache, &reader, &request(7200), 39_120).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "the history begins again at 1970-01-01T10:50:00Z, and its first samples may not cover all pods; they count \
         from 1970-01-01T10:56:00Z"
    );
}

#[tokio::test]
async fn a_series_that_is_always_in_short_runs_counts_at_once() {
    // Five minutes of every nine, as of a metric that is pushed every nine minutes.
    let reader = Recorded::new(|second| second / 60 % 9 < 5);
    let (cache, hour) = (HistoryCache::default(), request(3600));
    for now in (36_000..37_080).step_by(60) {
        let got = seconds(&read(&cache, &reader, &hour, now).await.unwrap());
        let newest = (0..9)
            .map(|back| now - 60 * back)
            .find(|second| second / 60 % 9 < 5);
        assert_eq!(got.last().copied(), newest, "{now}");
    }
}

#[tokio::test]
async fn live_minutes_are_used_instead_of_the_first_samples_after_an_outage() {
    let away = AtomicI64::new(i64::MAX);
    let reader = Recorded::new(|second| {
        let from = away.load(Ordering::Relaxed);
        second < from || second >= from.saturating_add(600)
    });
    let (cache, mut live_match) = (HistoryCache::default(), LiveMatch::default());
    for now in [36_000, 36_060, 36_720, 36_780, 37_080] {
        let live = live(now, 120, 1.0);
        let context = knowing(now, &live);
        let got = read_with(&cache, &reader, &request(7200), &mut live_match, &context).await;
        assert_eq!(seconds(&got.unwrap()).last(), Some(&now), "{now}");
        away.store(36_060, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_window_with_many_holes_is_queried_as_a_whole_once_an_hour() {
    let filled = AtomicBool::new(false);
    let holds = |second| second >= 34_000 || filled.load(Ordering::Relaxed);
    let (cache, reader) = (HistoryCache::default(), Recorded::new(holds));
    let day = request(86_400);
    read(&cache, &reader, &day, 36_000).await.unwrap();
    filled.store(true, Ordering::Relaxed);
    for (now, from) in [(39_540, 35_700), (39_600, -46_800), (39_660, 39_300)] {
        reader.asked();
        read(&cache, &reader, &day, now).await.unwrap();
        let asked = reader.asked();
        assert_eq!(asked, [(from, now)]);
    }
}

#[tokio::test]
async fn after_the_clock_is_set_back_no_samples_of_the_future_are_returned() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let hour = request(3600);
    read(&cache, &reader, &hour, 36_000).await.unwrap();
    let back = read(&cache, &reader, &hour, 34_200).await.unwrap();
    assert_eq!(seconds(&back), minutes(30_600, 34_200));
}

/// A reader of several tenants, whose samples have the number of the tenant as value. The tenant may change while a
/// query is answered.
struct Tenants {
    tenant: AtomicU64,
    next: AtomicU64,
}

impl HistoryReader for Tenants {
    async fn range(
        &self,
        _query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        _step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let tenant = self.next.load(Ordering::Relaxed);
        self.tenant.store(tenant, Ordering::Relaxed);
        let value = if tenant == 0 { 0.0 } else { 1.0 };
        let times = (from.as_second()..=to.as_second()).step_by(60);
        Ok(times
            .map(|second| Sample {
                at: at(second),
                value,
            })
            .collect())
    }

    fn version(&self, _query: &HistoryQuery) -> u64 {
        self.tenant.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn samples_of_one_tenant_are_never_continued_by_those_of_another() {
    let cache = HistoryCache::default();
    let reader = Tenants {
        tenant: AtomicU64::new(0),
        next: AtomicU64::new(0),
    };
    let values = async |now: i64| {
        let samples = read(&cache, &reader, &request(3600), now).await.unwrap();
        samples
            .iter()
            .map(|sample| sample.value)
            .collect::<Vec<_>>()
    };
    assert_eq!(values(36_000).await, [0.0; 61]);
    // The credentials are read again before this query, which is the first with the other tenant.
    reader.next.store(1, Ordering::Relaxed);
    assert_eq!(values(36_060).await, [1.0; 61]);
    assert_eq!(values(36_120).await, [1.0; 61]);
}

#[tokio::test]
async fn queries_are_cached_separately_and_dropped_on_request() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let other = single("sum(down)", STEP, 3600).unwrap();
    read(&cache, &reader, &request(3600), 36_000).await.unwrap();
    read(&cache, &reader, &other, 36_000).await.unwrap();
    assert_eq!(cache.len(), 2);
    let kept: Vec<CacheKey> = other.cache_keys().collect();
    cache.retain(|request| kept.contains(request));
    assert_eq!(cache.len(), 1);
    reader.asked();
    read(&cache, &reader, &request(3600), 36_000).await.unwrap();
    assert_eq!(reader.asked(), [(32_400, 36_000)]);
    cache.retain(|_| false);
    assert_eq!(cache.len(), 0);
}

/// Live minutes up to `now`, each `factor` times the reader's value.
fn live(now: i64, minutes: i64, factor: f64) -> Vec<Sample> {
    let newest = now / 60 * 60;
    let ends = (newest - (minutes - 1) * 60..=newest).step_by(60);
    ends.map(|end| Sample {
        value: sample(end).value * factor,
        ..sample(end)
    })
    .collect()
}

/// The ranges that are queried at these times, given this many live minutes of `factor` times the reader's values.
async fn asked_at(times: &[i64], known: i64, factor: f64) -> Vec<Option<(i64, i64)>> {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let mut live_match = LiveMatch::default();
    let mut all = Vec::new();
    for now in times {
        let live = live(*now, known, factor);
        let context = knowing(*now, &live);
        let got = read_with(&cache, &reader, &request(7200), &mut live_match, &context).await;
        let whole = minutes(now - 7200, *now);
        assert_eq!(seconds(&got.unwrap()), whole, "at {now}");
        all.push(reader.asked().first().copied());
    }
    all
}

#[tokio::test]
async fn live_minutes_that_match_replace_the_query_until_the_next_comparison() {
    let times = [36_000, 36_060, 36_120, 39_540, 39_600, 39_660];
    let asked = asked_at(&times, 120, 1.05).await;
    let whole = Some((28_800, 36_000));
    let compared = Some((35_700, 39_600));
    assert_eq!(asked, [whole, None, None, None, compared, None]);
}

#[tokio::test]
async fn live_minutes_that_differ_or_are_few_or_have_a_hole_replace_no_query() {
    let times = [36_000, 36_060];
    let next = Some((35_700, 36_060));
    for (minutes, factor) in [(120, 1.2), (120, 0.8), (120, 1000.0), (29, 1.0), (0, 1.0)] {
        let asked = asked_at(&times, minutes, factor).await;
        assert_eq!(asked[1], next, "{minutes} minutes, {factor} times");
    }
    let hole = asked_at(&[36_000, 36_060 + 31 * 60], 31, 1.0).await;
    assert_eq!(hole[1], Some((35_700, 36_060 + 31 * 60)));
}

#[tokio::test]
async fn live_minutes_that_vary_match_the_means_of_the_query() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    for (factors, matches) in [([2.2, 0.4, 0.4], true), ([2.2, 2.2, 0.4], false)] {
        let mut live_match = LiveMatch::default();
        let mut live = live(36_000, 120, 1.0);
        for (minute, factor) in live.iter_mut().zip(factors.into_iter().cycle()) {
            minute.value *= factor;
        }
        let context = knowing(36_000, &live);
        let query = request(7200);
        let read = read_with(&cache, &reader, &query, &mut live_match, &context);
        assert!(read.await.is_ok());
        assert_eq!(live_match.matches(), matches, "{factors:?}");
        cache.retain(|_| false);
    }
}

#[tokio::test]
async fn live_minutes_continue_a_history_for_two_hours_while_its_query_fails() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let (query, mut live_match, mut lasted) = (request(86_400), LiveMatch::default(), 0);
    for minute in 0..180 {
        let now = 36_000 + minute * 60;
        reader.fail(&[minute > 0]);
        let live = live(now, 180, 1.0);
        let context = knowing(now, &live);
        let read = read_with(&cache, &reader, &query, &mut live_match, &context);
        if read.await.is_ok() {
            lasted = minute;
        }
    }
    assert_eq!(lasted, 120);
    // An hour without a query, then one try every ten minutes, then one every minute.
    assert_eq!(reader.asked().len(), 1 + 7 + 59);
}

#[tokio::test]
async fn live_minutes_that_no_longer_match_give_way_to_queried_samples() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let (query, mut live_match, mut last_values) =
        (request(7200), LiveMatch::default(), Vec::new());
    for (now, factor) in [(36_000, 1.0), (37_800, 3.0), (39_600, 3.0)] {
        let live = live(now, 120, factor);
        let context = knowing(now, &live);
        let got = read_with(&cache, &reader, &query, &mut live_match, &context);
        let last = *got.await.unwrap().last().unwrap();
        last_values.push((reader.asked().len(), last.value / sample(now).value));
    }
    assert_eq!(last_values, [(1, 1.0), (0, 3.0), (1, 1.0)]);
}

#[tokio::test]
async fn live_minutes_of_one_series_do_not_reach_another_with_the_same_query() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let (mut one, mut other) = (LiveMatch::default(), LiveMatch::default());
    let (agree, differ) = (live(36_060, 120, 1.05), live(36_060, 120, 3.0));
    let mut last = Vec::new();
    for now in [36_000, 36_060] {
        for (live_match, live) in [(&mut one, &agree), (&mut other, &differ)] {
            let context = knowing(now, live);
            let got = read_with(&cache, &reader, &request(7200), live_match, &context).await;
            let newest = *got.unwrap().last().unwrap();
            assert_eq!(newest.at, at(now));
            last.push((newest.value / sample(now).value, reader.asked().len()));
        }
    }
    // The first one's live minutes match and replace the query; the second one's do not.
    assert_eq!(last, [(1.0, 1), (1.0, 1), (1.05, 0), (1.0, 1)]);
}

#[tokio::test]
async fn cached_samples_are_available_while_another_read_waits_for_its_query() {
    struct Hangs;
    impl HistoryReader for Hangs {
        async fn range(
            &self,
            _: &HistoryQuery,
            _: Timestamp,
            _: Timestamp,
            _: SignedDuration,
        ) -> Result<Vec<Sample>, HistoryError> {
            std::future::pending().await
        }
    }
    let cache = HistoryCache::default();
    let mut live_match = LiveMatch::default();
    let live = live(36_060, 120, 1.0);
    let context = |now| knowing(now, &live);
    let (reader, query, first) = (Recorded::new(|_| true), request(7200), context(36_000));
    let read = read_with(&cache, &reader, &query, &mut live_match, &first);
    assert!(read.await.is_ok());
    let (mut other, context) = (LiveMatch::default(), context(36_060));
    let hanging = read_with(&cache, &Hangs, &query, &mut other, &context);
    futures::pin_mut!(hanging);
    assert!(futures::poll!(hanging.as_mut()).is_pending());
    let context = ReadContext {
        query: &query,
        ..context
    };
    let matching = ReadContext {
        live_match,
        ..context
    };
    let cached = cache.cached_samples(&matching).unwrap();
    assert_eq!((cached.len(), cached.last()), (121, Some(&sample(36_060))));
    assert!(cache.cached_samples(&context).is_none());
}

#[tokio::test]
async fn samples_before_the_needed_time_are_dropped_and_queried_again_when_they_are_needed() {
    let (cache, reader) = (HistoryCache::default(), Recorded::new(|_| true));
    let (query, mut live_match, mut asked) = (request(86_400), LiveMatch::default(), Vec::new());
    for (now, since) in [
        (86_400, None),
        (86_460, Some(79_190)),
        (86_520, Some(79_250)),
        (86_580, None),
    ] {
        let context = ReadContext {
            since: since.map(at),
            ..knowing(now, &[])
        };
        let got = read_with(&cache, &reader, &query, &mut live_match, &context);
        asked.push((got.await.unwrap().len(), reader.asked()[0]));
    }
    let want = [
        (1441, (0, 86_400)),
        (122, (86_100, 86_460)),
        (122, (86_160, 86_520)),
        (1441, (180, 86_580)),
    ];
    assert_eq!(asked, want);
}

#[test]
fn a_range_has_steps_of_whole_seconds_and_a_bounded_number_of_them() {
    let new = |step, span| single("q", SignedDuration::from_millis(step), span).map(|_| ());
    for (step, span) in [(60_000, 60), (1000, 100_800), (60_000, 14 * 86_400)] {
        assert_eq!(new(step, span), Ok(()));
    }
    for (step, span) in [(0, 60), (-1000, 60), (1500, 60), (500, 60)] {
        assert!(
            matches!(new(step, span), Err(InvalidRange::Step(_))),
            "{step}"
        );
    }
    for (step, span) in [(60_000, 59), (1000, 100_801), (1000, -5)] {
        assert!(
            matches!(new(step, span), Err(InvalidRange::Span { .. })),
            "{span}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn many_reads_return_what_a_single_read_would(
        steps in prop::collection::vec((0_i64..4000, any::<bool>()), 1..12),
        span in 60_i64..20_000,
        gap in 0_i64..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // Samples may be missing, but those that exist do not vanish.
            let holds = move |second: i64| gap == 0 || (second / 60) % 4 != gap;
            let (cache, reader) = (HistoryCache::default(), Recorded::new(holds));
            let mut now = 100_000;
            for (ahead, fails) in steps {
                now += ahead;
                reader.fail(&[fails]);
                let read = read(&cache, &reader, &request(span), now).await;
                if fails {
                    prop_assert!(read.is_err());
                    continue;
                }
                let to = now / 60 * 60;
                let whole = (to - span / 60 * 60..=to).step_by(60).filter(|second| holds(*second));
                prop_assert_eq!(read.map_or(Vec::new(), |samples| seconds(&samples)), whole.collect::<Vec<_>>());
            }
            Ok(())
        })?;
    }
}
