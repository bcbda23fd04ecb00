//! The cost of the page: recording a sync beside the decision that it records, the worst 200 rows of 5,000 autoscalers,
//! and the history of one over two weeks. The limits are 100 ms and 300 KiB of gzip for the rows.

#![expect(
    clippy::expect_used,
    reason = "a bench may stop on input of its own that is wrong"
)]

mod crowd;

use std::{hint::black_box, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foretide_base::clock::Clock;
use foretide_page::{
    DecisionLog, Page, Visible,
    api::{ChartQuery, FleetQuery, ObjectKey, SpanQuery},
    http::PageSite,
};
use tower::ServiceExt as _;

use self::crowd::{Member, NOW, StandingClock};

const AUTOSCALERS: u32 = 5_000;
/// What a sparkline shows.
const MINUTES: u32 = 6 * 60;
/// What is kept of one autoscaler at most.
const TWO_WEEKS: u32 = 14 * 24 * 60;

fn page(log: &Arc<DecisionLog>) -> Arc<Page> {
    Arc::new(Page::new(Arc::clone(log), Arc::new(StandingClock)))
}

/// A decision, and its record: in a minute that has others, and as the first of its minute.
fn record(c: &mut Criterion) {
    let mut crowd: Vec<_> = (0..1000).map(Member::new).collect();
    let log = DecisionLog::default();
    for member in &mut crowd {
        for ago in (1..=30).rev() {
            member.record(&log, ago);
        }
    }
    let mut group = c.benchmark_group("sync");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("decide", |b| {
        b.iter(|| {
            for member in &crowd {
                black_box(member.decide());
            }
        });
    });
    group.bench_function("record", |b| {
        b.iter(|| {
            for member in &mut crowd {
                member.record(&log, 0);
            }
        });
    });
    let mut ago = 1_000_000;
    group.bench_function("record, a minute later each", |b| {
        b.iter(|| {
            ago -= 1;
            for member in &mut crowd {
                member.record(&log, ago);
            }
        });
    });
    group.finish();
}

fn fleet(c: &mut Criterion) {
    let log = Arc::new(DecisionLog::default());
    for number in 0..AUTOSCALERS {
        let mut member = Member::new(number);
        for ago in (0..MINUTES).rev() {
            member.record(&log, ago);
        }
    }
    let page = page(&log);
    let query = || FleetQuery {
        limit: Some(200),
        ..FleetQuery::default()
    };
    let router = PageSite::open(Arc::clone(&page), &Clock::system()).router();
    size(&router, "/api/v1/autoscalers?limit=200");
    c.bench_function("fleet: 200 rows of 5,000", |b| {
        b.iter(|| black_box(page.fleet(&Visible::All, &query())));
    });
    c.bench_function("fleet: as JSON, compressed", |b| {
        b.iter(|| compressed(&router, "/api/v1/autoscalers?limit=200"));
    });
}

fn workload(c: &mut Criterion) {
    let log = Arc::new(DecisionLog::default());
    let mut member = Member::new(0);
    for ago in (0..TWO_WEEKS).rev() {
        member.record(&log, ago);
    }
    let page = page(&log);
    let row = page.fleet(&Visible::All, &FleetQuery::default());
    let row = row.expect("a fleet").rows.remove(0);
    let key: ObjectKey = row.key;
    let from = NOW.as_second() - 60 * i64::from(TWO_WEEKS);
    let router = PageSite::open(Arc::clone(&page), &Clock::system()).router();
    let path = format!(
        "/api/v1/autoscalers/{}/{}/{}",
        key.resource, key.namespace, key.name
    );
    size(&router, &format!("{path}/history?from={from}"));
    size(&router, &format!("{path}/chart.svg?from={from}&width=1000"));
    c.bench_function("history of two weeks", |b| {
        let query = SpanQuery {
            from: Some(from),
            until: None,
        };
        b.iter(|| black_box(page.history(&key, &Visible::All, &query)));
    });
    c.bench_function("chart of two weeks", |b| {
        let query = ChartQuery {
            from: Some(from),
            ..ChartQuery::default()
        };
        b.iter(|| black_box(page.chart(&key, &Visible::All, &query)));
    });
}

fn size(router: &Router, path: &str) {
    let kib = compressed(router, path).div_ceil(1024);
    assert!(kib < 300, "{path}: {kib} KiB");
}

/// How many bytes are sent.
fn compressed(router: &Router, path: &str) -> usize {
    let request = Request::get(path)
        .header("host", "127.0.0.1:8090")
        .header("accept-encoding", "gzip")
        .body(Body::empty())
        .expect("a request");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let answer = runtime.expect("a runtime").block_on(async {
        let response = router.clone().oneshot(request).await;
        let (parts, body) = response.expect("an answer").into_parts();
        assert!(parts.status.is_success(), "{path}: {}", parts.status);
        to_bytes(body, usize::MAX).await.expect("a body")
    });
    answer.len()
}

criterion_group!(benches, record, fleet, workload);
criterion_main!(benches);
