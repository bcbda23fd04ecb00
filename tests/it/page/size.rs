//! The largest answers are small enough for a slow connection.

use std::sync::Arc;

use axum::body::to_bytes;
use foretide_base::clock::Clock;
use foretide_page::{DecisionLog, Page, Visible, api::FleetQuery, http::PageSite};
use tower::ServiceExt as _;

use super::{Body, Request, Router, request};

#[path = "../../../benches/crowd/mod.rs"]
mod crowd;

use self::crowd::{Member, NOW, StandingClock};

const KIB: usize = 1024;
const TWO_WEEKS: u32 = 14 * 24 * 60;

#[tokio::test]
async fn the_worst_200_of_5000_autoscalers_are_a_small_answer() {
    let log = Arc::new(DecisionLog::default());
    // Every twentieth is short of replicas, and so among the worst: only they need a past.
    for number in 0..5000 {
        let mut member = Member::new(number);
        let minutes = if number % 20 == 0 { 360 } else { 1 };
        (0..minutes).rev().for_each(|ago| member.record(&log, ago));
    }
    let page = Arc::new(Page::new(log, Arc::new(StandingClock)));
    let router = PageSite::open(Arc::clone(&page), &Clock::system()).router();
    let rows = compressed(&router, "/api/v1/autoscalers?limit=200").await;
    assert!((10 * KIB..300 * KIB).contains(&rows), "{rows} B");
    let view = page.fleet(&Visible::All, &FleetQuery::default()).unwrap();
    assert_eq!((view.matching, view.counts.values().sum()), (5000, 5000));
    assert!(view.rows.iter().all(|row| row.sparkline.is_some()));
}

#[tokio::test]
async fn two_weeks_of_an_autoscaler_are_a_small_answer() {
    let log = Arc::new(DecisionLog::default());
    let mut member = Member::new(0);
    (0..TWO_WEEKS)
        .rev()
        .for_each(|ago| member.record(&log, ago));
    let page = Arc::new(Page::new(log, Arc::new(StandingClock)));
    let router = PageSite::open(Arc::clone(&page), &Clock::system()).router();
    let view = page.fleet(&Visible::All, &FleetQuery::default()).unwrap();
    let row = &view.rows[0];
    assert_eq!(row.desired, Some(member.decide().desired.as_i32()));
    let key = &row.key;
    let from = NOW.as_second() - 60 * i64::from(TWO_WEEKS);
    let path = format!(
        "/api/v1/autoscalers/{}/{}/{}",
        key.resource, key.namespace, key.name
    );
    let history = compressed(&router, &format!("{path}/history?from={from}")).await;
    assert!((20 * KIB..300 * KIB).contains(&history), "{history} B");
    let chart = compressed(&router, &format!("{path}/chart.svg?from={from}")).await;
    assert!((5 * KIB..300 * KIB).contains(&chart), "{chart} B");
}

/// Returns the number of sent bytes.
async fn compressed(router: &Router, path: &str) -> usize {
    let request: Request<Body> = request(path)
        .header("accept-encoding", "gzip")
        .body(Body::empty())
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert!(response.status().is_success(), "{path}");
    assert_eq!(response.headers()["content-encoding"], "gzip", "{path}");
    to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap()
        .len()
}
