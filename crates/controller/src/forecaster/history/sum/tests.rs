use std::sync::Mutex;

use foretide_models::Sample;
use proptest::prelude::*;

use super::*;
use crate::forecaster::history::{
    HistoryCache, LiveMatch, RangeQuery,
    tests::{knowing, read_with, unavailable},
};
use foretide_api::ports::{HistoryQuery, HistoryReader};
use foretide_base::error::chain;

const STEP: SignedDuration = SignedDuration::from_secs(60);
const NOW: i64 = 36_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A reader with a value for each query and second, and the queries that fail.
struct Servers<F> {
    holds: F,
    fails: Vec<&'static str>,
    asked: Mutex<Vec<String>>,
}

impl<F: Fn(&str, i64) -> Option<f64> + Send + Sync> HistoryReader for Servers<F> {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        _: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        self.asked.lock().unwrap().push(query.text.to_string());
        if self.fails.contains(&&*query.text) {
            return Err(unavailable());
        }
        let times = (from.as_second()..=to.as_second()).step_by(60);
        let samples: Vec<Sample> = times
            .filter_map(|second| {
                let value = (self.holds)(&query.text, second)?;
                let at = at(second);
                Some(Sample { at, value })
            })
            .collect();
        if samples.is_empty() {
            return Err(HistoryError::Empty);
        }
        Ok(samples)
    }
}

fn servers<F: Fn(&str, i64) -> Option<f64>>(holds: F) -> Servers<F> {
    Servers {
        holds,
        fails: Vec::new(),
        asked: Mutex::default(),
    }
}

/// One hour of members `a`, `b` and so on; the query of each is its name.
fn range_query(members: &[&str]) -> RangeQuery {
    let part = |name: &&str| QueryPart {
        member: Some((*name).into()),
        query: HistoryQuery {
            namespace: "shop".into(),
            endpoint: None,
            text: (*name).into(),
        },
    };
    let parts = members.iter().map(part).collect();
    RangeQuery::new(parts, STEP, SignedDuration::from_hours(1)).unwrap()
}

/// The minutes before now that have a sum, and the sums.
async fn read<R: HistoryReader>(
    reader: &R,
    members: &[&str],
    idle: &[&str],
) -> Result<Vec<(i64, f64)>, String> {
    let idle = idle.iter().map(|name| (*name).into()).collect();
    let context = ReadContext {
        idle: &idle,
        ..knowing(NOW, &[])
    };
    let (cache, mut live_match) = (HistoryCache::default(), LiveMatch::default());
    let query = range_query(members);
    let read = read_with(&cache, reader, &query, &mut live_match, &context);
    let samples = read.await.map_err(|error| chain(&error))?;
    let minute = |sample: &Sample| ((NOW - sample.at.as_second()) / 60, sample.value);
    Ok(samples.iter().map(minute).collect())
}

const BOTH: [&str; 2] = ["a", "b"];

/// One in each member, and another value in `b` where it is odd.
fn odd_in_b(name: &str, is_odd: bool, value: f64) -> f64 {
    if name == "b" && is_odd { value } else { 1.0 }
}

/// Number of minutes since a second.
fn ago(second: i64) -> i64 {
    (NOW - second) / 60
}

fn constant(minutes: impl IntoIterator<Item = i64>, value: f64) -> Vec<(i64, f64)> {
    minutes.into_iter().map(|minute| (minute, value)).collect()
}

#[tokio::test]
async fn a_member_without_samples_is_an_error_with_its_name_and_is_not_left_out_of_the_sum() {
    let mut broken = servers(|_, _| Some(1.0));
    broken.fails = vec!["b"];
    let silent = servers(|name, _| (name == "a").then_some(1.0));
    let gone = servers(|name, second| (name == "a" || ago(second) > 20).then_some(1.0));
    let late = servers(|name, second| (name == "a" || ago(second) > 9).then_some(1.0));
    for (found, why) in [
        (
            read(&broken, &BOTH, &[]).await,
            "Prometheus is unavailable (status 503): starting",
        ),
        (
            read(&silent, &BOTH, &[]).await,
            "the query returned no samples",
        ),
        (
            read(&gone, &BOTH, &[]).await,
            "no samples since 1970-01-01T09:39:00Z; other clusters have samples to 1970-01-01T10:00:00Z",
        ),
    ] {
        let missing = format!("the history of cluster b is missing: {why}");
        assert_eq!(found, Err(missing));
    }
    let late = read(&late, &BOTH, &[]).await;
    assert_eq!(late, Ok(constant((10..=60).rev(), 2.0)));
}

#[tokio::test]
async fn when_one_member_fails_the_samples_of_the_others_stay_cached() {
    let cache = HistoryCache::default();
    let mut live_match = LiveMatch::default();
    let context = knowing(NOW, &[]);
    let mut broken = servers(|_, _| Some(1.0));
    broken.fails = vec!["a"];
    let query = range_query(&["a", "b"]);
    let failed = read_with(&cache, &broken, &query, &mut live_match, &context).await;
    assert!(matches!(failed, Err(HistoryError::Member { member, .. }) if &*member == "a"));
    let recovered = servers(|name, second| (name == "a" || ago(second) < 6).then_some(1.0));
    let sum = read_with(&cache, &recovered, &query, &mut live_match, &context).await;
    assert_eq!(sum.unwrap().len(), 61);
}

#[tokio::test]
async fn an_idle_member_needs_no_samples_but_its_query_must_succeed() {
    let idle_lately = |name: &str, second| (name == "a" || ago(second) > 30).then_some(1.0);
    let sum = read(&servers(idle_lately), &BOTH, &["b"]).await.unwrap();
    let (before, after): (Vec<_>, Vec<_>) = sum.into_iter().partition(|(minute, _)| *minute > 30);
    assert_eq!(before, constant((31..=60).rev(), 2.0));
    assert_eq!(after, constant((0..=30).rev(), 1.0));
    let mut broken = servers(idle_lately);
    broken.fails = vec!["b"];
    assert!(read(&broken, &BOTH, &["b"]).await.is_err());
    let empty = read(&servers(|_, _| None), &BOTH, &BOTH).await;
    assert_eq!(empty, Err("the query returned no samples".to_owned()));
}

#[tokio::test]
async fn a_negative_value_counts_as_zero_unless_pods_run_there_now() {
    // Scaled to zero for half an hour in the middle.
    let scaled_to_zero =
        |name: &str, second| Some(odd_in_b(name, (20..50).contains(&ago(second)), -3.0));
    let sum = read(&servers(scaled_to_zero), &BOTH, &[]).await.unwrap();
    let (of_both, of_a): (Vec<_>, Vec<_>) = sum
        .into_iter()
        .partition(|(minute, _)| !(20..50).contains(minute));
    assert_eq!(of_a, constant((20..50).rev(), 1.0));
    assert_eq!(of_both, constant((50..=60).rev().chain((0..20).rev()), 2.0));
    // The series of the member have moved elsewhere, or it was scaled to zero.
    let ended = |name: &str, second| Some(odd_in_b(name, ago(second) < 20, -3.0));
    assert!(read(&servers(ended), &BOTH, &[]).await.is_err());
    let sum = read(&servers(ended), &BOTH, &["b"]).await.unwrap();
    assert_eq!((sum.len(), sum.last()), (61, Some(&(0, 1.0))));
}

#[tokio::test]
async fn a_sum_with_nan_is_nan() {
    let reader = servers(|name, second| Some(odd_in_b(name, ago(second) == 7, f64::NAN)));
    let sum = read(&reader, &BOTH, &[]).await.unwrap();
    let odd: Vec<_> = sum.iter().filter(|(_, value)| value.is_nan()).collect();
    assert_eq!(odd.len(), 1);
    assert_eq!(odd[0].0, 7);
}

#[tokio::test]
async fn live_minutes_of_the_fleet_replace_the_queries_of_all_members() {
    let reader = servers(|_, _| Some(1.0));
    let (cache, mut live_match) = (HistoryCache::default(), LiveMatch::default());
    let query = range_query(&["a", "b", "c"]);
    let live = (NOW - 1800..=NOW + 120).step_by(60).map(|second| Sample {
        at: at(second),
        value: 3.1,
    });
    let live: Vec<_> = live.collect();
    let mut asked = Vec::new();
    for now in [NOW, NOW + 60, NOW + 120] {
        let context = knowing(now, &live);
        let read = ReadContext {
            query: &query,
            live_match,
            ..context
        };
        let samples = match cache.cached_samples(&read) {
            Some(samples) => samples,
            None => read_with(&cache, &reader, &query, &mut live_match, &context)
                .await
                .unwrap(),
        };
        let newest = *samples.last().unwrap();
        let queries = std::mem::take(&mut *reader.asked.lock().unwrap()).len();
        asked.push((queries, newest.at == at(now), newest.value));
    }
    assert_eq!(asked, [(3, true, 3.0), (0, true, 3.1), (0, true, 3.1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_sum_is_exact_and_absent_where_a_member_has_no_sample(
        parts in prop::collection::vec(
            (prop::collection::vec(prop::option::of(-2_i32..9), 61), any::<bool>()),
            1..4,
        ),
    ) {
        let names: Vec<String> = (0..parts.len()).map(|n| format!("m{n}")).collect();
        let holds = |name: &str, second: i64| {
            let index = names.iter().position(|known| known == name)?;
            let minute = usize::try_from(ago(second)).ok()?;
            parts.get(index)?.0.get(minute).copied().flatten().map(f64::from)
        };
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let idle = asked.iter().zip(&parts).filter(|(_, (_, idle))| *idle);
        let idle: Vec<&str> = idle.map(|(name, _)| *name).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let Ok(sum) = runtime.block_on(read(&servers(holds), &asked, &idle)) else {
            return Ok(());
        };
        for minute in 0..=60 {
            let sample = |name: &&str| {
                let value = |minute| holds(name, NOW - minute * 60);
                // Negative values after the last other one are ignored where pods run.
                let ran = (0..=minute).any(|at| value(at).is_some_and(|value| value >= 0.0));
                value(minute).filter(|_| ran || idle.contains(name))
            };
            let all: Vec<f64> = asked.iter().filter_map(sample).collect();
            let complete = asked.iter().all(|name| idle.contains(name) || sample(name).is_some());
            let expected = (complete && !all.is_empty()).then(|| all.iter().map(|v| v.max(0.0)).sum());
            let found = sum.iter().find(|(at, _)| *at == minute).map(|(_, value)| *value);
            prop_assert_eq!(found, expected, "{}", minute);
        }
    }
}
