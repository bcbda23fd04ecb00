use std::sync::{
    Mutex,
    atomic::{AtomicI64, Ordering},
};

use foretide_models::{Algorithm, ForecastError, Sample, Series, seasonal};
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::forecaster::{
    HistorySource, SeriesKey,
    history::tests::unavailable,
    request::tests::{part, request},
    workers::Workers,
};
use foretide_api::ports::{HistoryQuery, HistoryReader, Resolution};
use foretide_base::{clock::Clock, machine::Machine};

const START: i64 = 1_767_225_600;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

/// A call of a forecaster: first and last minute from the start, and the last value.
type Call = (i64, i64, Option<f64>);

/// A forecaster that records its calls and may need some history.
#[derive(Debug, Clone, Default)]
struct Recorder {
    calls: Arc<Mutex<Vec<Call>>>,
    /// Numbers of values of the series, and of raw ones among them.
    raw: Arc<Mutex<Vec<(usize, usize)>>>,
    needs: usize,
}

impl Forecaster for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn history_length(&self) -> SignedDuration {
        SignedDuration::from_hours(14 * 24)
    }

    fn sample_interval(&self) -> SignedDuration {
        MINUTE
    }

    fn refresh_period(&self) -> SignedDuration {
        MINUTE
    }

    fn forecast(&mut self, series: &Series, _: SignedDuration) -> Result<Forecast, ForecastError> {
        let minute = |at: Timestamp| (at.as_second() - START).div_euclid(60);
        let last = series.last().map(|sample| sample.value);
        let call = (minute(series.start()), minute(series.end()) - 1, last);
        self.calls.lock().unwrap().push(call);
        let raw = (0..series.len())
            .filter(|slot| series.is_raw(*slot))
            .count();
        self.raw.lock().unwrap().push((series.len(), raw));
        let usable = series.values().iter().filter(|v| !v.is_nan()).count();
        if usable < self.needs {
            let span = |n: usize| MINUTE * i32::try_from(n).unwrap();
            let (have, need) = (span(usable), span(self.needs));
            return Err(ForecastError::InsufficientHistory { have, need });
        }
        Forecast::new("recorder", series.end(), MINUTE, vec![1.0; 60], at(1 << 30))
    }
}

/// A reader with a value for each minute; it records the length of each query in minutes.
struct FakeReader<F> {
    value: F,
    asked: Mutex<Vec<i64>>,
    /// The queries of minutes, with the second of each.
    asked_minutes: Mutex<Vec<(i64, i64)>>,
    /// The value of a minute, and whether it can be queried, at a second.
    minutes: fn(i64) -> Option<f64>,
    minutes_fail_at: fn(i64) -> bool,
    /// The second from which on another tenant is read.
    other_tenant_from: i64,
    read_until: AtomicI64,
}

impl<F: Fn(i64) -> f64 + Send + Sync> HistoryReader for &FakeReader<F> {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        _: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let minutes = (to.as_second() - from.as_second()) / 60;
        if *query.text == *"minutes" {
            return self.of_minutes(from.as_second() - START, to.as_second() - START);
        }
        self.asked.lock().unwrap().push(minutes);
        // The credentials are read again with a query.
        let until = to.as_second() - START;
        self.read_until.store(until, Ordering::Relaxed);
        let times = (from.as_second()..=to.as_second()).step_by(60);
        let sample = |second: i64| Sample {
            at: Timestamp::from_second(second).unwrap(),
            value: (self.value)((second - START) / 60),
        };
        Ok(times.map(sample).collect())
    }

    fn version(&self, _: &HistoryQuery) -> u64 {
        u64::from(self.read_until.load(Ordering::Relaxed) >= self.other_tenant_from)
    }
}

impl<F> FakeReader<F> {
    fn new(value: F) -> Self {
        Self {
            value,
            asked: Mutex::default(),
            asked_minutes: Mutex::default(),
            minutes: |_| None,
            minutes_fail_at: |_| false,
            other_tenant_from: i64::MAX,
            read_until: AtomicI64::new(0),
        }
    }

    fn of_minutes(&self, from: i64, to: i64) -> Result<Vec<Sample>, HistoryError> {
        let asked = (to, (to - from) / 60);
        self.asked_minutes.lock().unwrap().push(asked);
        if (self.minutes_fail_at)(to) {
            return Err(unavailable());
        }
        let values = (from..=to).step_by(60).filter_map(|second| {
            let value = (self.minutes)(second / 60)?;
            Some(Sample {
                at: at(second),
                value,
            })
        });
        Ok(values.collect())
    }
}

/// Refreshes a series at each of these seconds; returns each result, and how many minutes each query covered.
async fn refreshed(
    recorder: &Recorder,
    request: RefreshRequest,
    seconds: impl IntoIterator<Item = i64>,
    value: impl Fn(i64) -> f64 + Send + Sync,
) -> (Vec<RefreshResult>, Vec<i64>) {
    let reader = FakeReader::new(value);
    refreshed_from(&reader, recorder, request, seconds).await
}

/// Refreshes a series like [`refreshed`], from this reader.
async fn refreshed_from(
    reader: &FakeReader<impl Fn(i64) -> f64 + Send + Sync>,
    recorder: &Recorder,
    request: RefreshRequest,
    seconds: impl IntoIterator<Item = i64>,
) -> (Vec<RefreshResult>, Vec<i64>) {
    let clock = Clock::standing_at(at(0));
    let machine = Machine::system().with_clock(clock.clone());
    let source = HistorySource {
        reader,
        queries: (),
    };
    let workers = Workers::new(Some(source), machine, Arc::default());
    let key = SeriesKey {
        uid: "uid".into(),
        metric: "resource.cpu".into(),
    };
    let refresher = Refresher::new(&request, Box::new(recorder.clone())).unwrap();
    let (mut refresher, mut all) = (Box::new(refresher), Vec::new());
    for second in seconds {
        clock.set(at(second));
        refresher.prepare(&BTreeSet::new(), None);
        let mut result = workers.refresh(&key, refresher).await.unwrap();
        refresher = result.refresher.take().unwrap();
        all.push(result);
    }
    let asked = reader.asked.lock().unwrap().clone();
    (all, asked)
}

fn reason(result: &RefreshResult) -> Option<Reason> {
    match &result.outcome {
        Err(RefreshError::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

#[tokio::test]
async fn what_was_learned_from_one_tenant_is_forgotten_with_another() {
    let recorder = Recorder::default();
    let reader = FakeReader {
        other_tenant_from: 120,
        ..FakeReader::new(|_| 1.0)
    };
    let seconds = [7, 61, 125, 181];
    let (_, queries) = refreshed_from(&reader, &recorder, request(), seconds).await;
    let two_days = 2 * 24 * 60;
    let long = queries.iter().filter(|minutes| **minutes > two_days);
    // The whole span in two pieces, for each of the tenants.
    assert_eq!(long.count(), 4, "{queries:?}");
    // The third refresh is that of a new forecaster.
    assert_eq!(recorder.calls.lock().unwrap().len(), 2);
}

/// Refreshes a series of means that has a query of minutes at these seconds; returns the numbers of values and of raw
/// ones that the forecaster got, and the queries of minutes.
async fn raw_at(
    seconds: &[i64],
    minutes: fn(i64) -> Option<f64>,
    minutes_fail_at: fn(i64) -> bool,
) -> (Vec<(usize, usize)>, Vec<(i64, i64)>) {
    let reader = FakeReader {
        minutes,
        minutes_fail_at,
        ..FakeReader::new(|_| 1.0)
    };
    let (recorder, request) = (
        Recorder::default(),
        RefreshRequest {
            resolution: Resolution::Mean(vec![part("minutes")]),
            ..request()
        },
    );
    refreshed_from(&reader, &recorder, request, seconds.iter().copied()).await;
    let raw = recorder.raw.lock().unwrap().clone();
    let asked = reader.asked_minutes.lock().unwrap().clone();
    (raw, asked)
}

const WHOLE: i64 = 14 * 24 * 60;

#[tokio::test]
async fn minutes_are_queried_with_the_values_and_take_their_place() {
    let (raw, asked) = raw_at(&[0, 60], |_| Some(1.0), |_| false).await;
    let (whole, kept) = (14 * 24 * 60 + 1, 26 * 60 + 1);
    assert_eq!(raw, [(whole, whole), (kept, kept)]);
    // The whole span in two pieces, then the new minute and five before it.
    let pieces = [(659_940, 10_999), (0, WHOLE - 11_000)];
    assert_eq!(asked[0].1, pieces[0].1);
    assert_eq!(asked[1..], [pieces[1], (60, 6)]);
}

#[tokio::test]
async fn minutes_of_no_use_are_queried_once_an_hour_and_the_values_alone_are_used() {
    let every_third: fn(i64) -> Option<f64> = |minute| (minute % 3 == 0).then_some(1.0);
    let too_low: fn(i64) -> Option<f64> = |_| Some(0.9);
    for minutes in [every_third, too_low, |_| None] {
        let seconds: Vec<i64> = (0..=70).map(|minute| minute * 60).collect();
        let (raw, asked) = raw_at(&seconds, minutes, |_| false).await;
        assert!(raw.iter().all(|(_, raw)| *raw == 0), "{raw:?}");
        let queried: BTreeSet<i64> = asked.iter().map(|(second, _)| *second).collect();
        let hourly = queried.iter().filter(|second| **second >= 0);
        assert_eq!(hourly.collect::<Vec<_>>(), [&0, &3600]);
    }
}

#[tokio::test]
async fn a_query_of_minutes_that_fails_costs_no_forecast_and_once_it_succeeds_the_forecaster_starts_again()
 {
    let seconds = [0, 60, 3600, 3660, 3720];
    let fails = |second| (0..3600).contains(&second);
    let (raw, asked) = raw_at(&seconds, |_| Some(1.0), fails).await;
    let (whole, kept) = (14 * 24 * 60 + 1, 26 * 60 + 1);
    // The later refreshes are those of a new forecaster, which learns from the whole history.
    assert_eq!(raw, [(whole, 0), (kept, 0), (kept, kept)]);
    let asked: Vec<i64> = asked.into_iter().map(|(_, minutes)| minutes).collect();
    assert_eq!(asked, [10_999, 9160, 1560, 10_999, 9160, 6]);
}

#[tokio::test]
async fn the_values_of_a_gauge_are_raw_without_another_query() {
    for (resolution, expected) in [
        (Resolution::Minute, 14 * 24 * 60 + 1),
        (Resolution::Unknown, 0),
    ] {
        let recorder = Recorder::default();
        let gauge = RefreshRequest {
            resolution,
            ..request()
        };
        refreshed(&recorder, gauge, [0], |_| 1.0).await;
        assert_eq!(recorder.raw.lock().unwrap()[0].1, expected);
    }
}

#[tokio::test]
async fn times_are_aligned_and_learned_samples_are_not_handed_over_again() {
    let recorder = Recorder::default();
    let seconds = [7, 61, 65, 3600 * 12 + 30];
    let (_, queries) = refreshed(&recorder, request(), seconds, |_| 1.0).await;
    let day = 24 * 60;
    let asked = recorder.calls.lock().unwrap().clone();
    let kept = 26 * 60;
    let want = [
        (-14 * day, 0, Some(1.0)),
        (1 - kept, 1, Some(1.0)),
        (1 - kept, 1, Some(1.0)),
        (720 - kept, 720, Some(1.0)),
    ];
    assert_eq!(asked, want);
    // The whole span in two pieces; new minutes and five before them; all that is kept, when less than half of it is
    // cached.
    assert_eq!(queries, [10_999, 14 * day - 11_000, 6, 5, kept - 1]);
}

#[tokio::test]
async fn a_forecaster_that_was_idle_for_half_a_day_gets_the_whole_history_again() {
    let recorder = Recorder::default();
    refreshed(&recorder, request(), [0, 3600 * 14], |_| 1.0).await;
    let starts = recorder.calls.lock().unwrap().clone();
    assert_eq!(starts[1].0, 14 * 60 - 14 * 24 * 60);
}

#[tokio::test]
async fn after_a_change_of_unit_the_series_is_refused_until_it_has_enough_samples() {
    let recorder = Recorder {
        needs: 120,
        ..Recorder::default()
    };
    // From minute 10 on everything is counted in thousandths.
    let value = |minute| if minute < 10 { 2.0 } else { 2000.0 };
    let seconds = (0..180).map(|minute| minute * 60);
    let daily = RefreshRequest {
        algorithm: Algorithm::SeasonalNaive(seasonal::Config::default()),
        ..request()
    };
    let (all, _) = refreshed(&recorder, daily, seconds, value).await;
    let reasons: Vec<_> = all.iter().map(reason).collect();
    // Six samples may be an outlier; thirty are a change of unit.
    let first = reasons.iter().position(Option::is_some).unwrap();
    assert_eq!(first, 39);
    // The forecaster is rebuilt from its settings and needs a day.
    assert!(
        reasons[first..]
            .iter()
            .flatten()
            .all(|r| *r == Reason::SeriesChanged)
    );
    let Err(RefreshError::Refused(refused)) = &all[first].outcome else {
        unreachable!("it was refused");
    };
    assert!(refused.message.contains("by a factor of 1000"), "{refused}");
}

#[tokio::test]
async fn a_rejected_sample_is_a_gap_and_is_counted_once() {
    use Rejection::{Absurd, Negative, NotFinite};
    let recorder = Recorder::default();
    let value = |minute| match minute {
        -5 => f64::NAN,
        -3 => -1.0,
        -1 => 1e300,
        1 => f64::INFINITY,
        _ => 1.0,
    };
    let (all, _) = refreshed(&recorder, request(), [0, 60, 120], value).await;
    let rejected: Vec<_> = all.into_iter().map(|one| one.rejected).collect();
    let want = [vec![NotFinite, Negative, Absurd], vec![NotFinite], vec![]];
    assert_eq!(rejected, want);
}
