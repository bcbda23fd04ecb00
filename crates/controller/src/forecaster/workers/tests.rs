use std::f64::consts::TAU;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::forecaster::request::{
    RefreshRequest,
    tests::{part, request},
};
use foretide_api::ports::{HistoryQuery, Resolution};
use foretide_base::clock::Clock;

/// A history with this demand in each minute, the same for every query.
struct Demand(fn(i64) -> f64);

impl HistoryReader for Demand {
    async fn range(
        &self,
        _: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        _: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let times = (from.as_second()..=to.as_second()).step_by(60);
        let sample = |second| Sample {
            at: Timestamp::from_second(second).unwrap(),
            value: (self.0)(second / 60),
        };
        Ok(times.map(sample).collect())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a minute of a day")]
fn daily(minute: i64) -> f64 {
    5.0 + (minute % 1440) as f64 / 1440.0 * TAU.sin() + (minute * 7919 % 101) as f64 / 50.0
}

/// The first refresh of a series with this number.
async fn refreshed<R: HistoryReader>(
    workers: &Workers<R, ()>,
    number: usize,
    request: RefreshRequest,
) -> Option<RefreshResult> {
    let forecaster = request.algorithm.clone().build().unwrap();
    let refresher = Box::new(Refresher::new(&request, forecaster).unwrap());
    let key = SeriesKey {
        uid: number.to_string(),
        metric: "resource.cpu".into(),
    };
    workers.refresh(&key, refresher).await
}

/// Refreshes as many new series of means as asked for, all at once; returns the refreshers with the bytes that each
/// takes.
async fn learned(demand: fn(i64) -> f64, count: usize) -> Vec<(Box<Refresher>, usize)> {
    let source = HistorySource {
        reader: Demand(demand),
        queries: (),
    };
    let clock = Clock::standing_at(Timestamp::constant(1_767_225_600, 0));
    let machine = Machine::system().with_clock(clock);
    let workers = Workers::new(Some(source), machine, Arc::default());
    let refreshes = (0..count).map(async |number| {
        let request = RefreshRequest {
            parts: vec![part(&format!("demand {number}"))],
            resolution: Resolution::Mean(vec![part(&format!("minutes {number}"))]),
            ..request()
        };
        let result = refreshed(&workers, number, request).await.unwrap();
        result.refresher.unwrap()
    });
    let all = futures::future::join_all(refreshes).await;
    let with_bytes = |refresher: Box<Refresher>| {
        let bytes = refresher.bytes(&workers.history);
        (refresher, bytes)
    };
    all.into_iter().map(with_bytes).collect()
}

#[tokio::test]
async fn two_weeks_of_a_series_take_260_kib_once_they_are_learned() {
    for (name, demand) in [("daily", daily as fn(i64) -> f64), ("idle", |_| 0.0)] {
        let learned = learned(demand, 3).await;
        assert!(
            learned
                .iter()
                .all(|(refresher, _)| refresher.plan.queries().count() == 2)
        );
        let most = learned.iter().map(|(_, bytes)| *bytes).max().unwrap();
        assert!(most <= 260 * 1024, "{name}: {most} bytes");
    }
}

/// A history that is never read of the namespace `heavy`, nor at the endpoint `east`.
struct Hanging;

impl HistoryReader for Hanging {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        if &*query.namespace == "heavy" || query.endpoint.is_some() {
            std::future::pending::<()>().await;
        }
        Demand(daily).range(query, from, to, step).await
    }
}

#[tokio::test(start_paused = true)]
async fn queries_that_hang_delay_no_other_namespace_and_no_other_server() {
    for (namespace, endpoint) in [("heavy", None), ("shop", Some("east"))] {
        let source = HistorySource {
            reader: Hanging,
            queries: (),
        };
        let clock = Clock::simulated(Timestamp::constant(1_767_225_600, 0));
        let machine = Machine::system().with_clock(clock);
        let workers = Workers::new(Some(source), machine, Arc::default());
        let refresh = async |number: usize, namespace: &str, endpoint: Option<&str>| {
            let mut request = request();
            let query = &mut request.parts[0].query;
            query.namespace = namespace.into();
            query.endpoint = endpoint.map(Into::into);
            query.text = format!("demand {number}").into();
            refreshed(&workers, number, request).await
        };
        let hanging = (0..50).map(|number| refresh(number, namespace, endpoint));
        let other = async {
            // By then the others have all the slots that they can get.
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            refresh(50, "shop", None).await
        };
        let other = tokio::time::timeout(std::time::Duration::from_secs(20), other);
        tokio::select! {
            _never = futures::future::join_all(hanging) => unreachable!("they hang"),
            other = other => assert!(other.is_ok(), "{namespace} {endpoint:?}"),
        }
    }
}
