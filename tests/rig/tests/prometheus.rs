//! Tests of the rig's Prometheus: it serves a history, including its future part, and survives a kill.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use rig::{History, Prometheus, Series, Span};

/// 2026-01-01T00:00:00Z.
const START: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;

fn history_over(start: f64, end: f64) -> History {
    let span = Span {
        start,
        end,
        step: 60.0,
    };
    History::new()
        .cpu_usage(["shop", "web-1", "web"], span, |_| 0.25)
        .gauge(
            "queue",
            Series::of(&[("queue", "orders")], span, |at| (at - start) / DAY),
        )
}

async fn value(prometheus: &Prometheus, query: &str, at: f64) -> Option<f64> {
    let data = prometheus.query(query, at).await.unwrap();
    data.pointer("/result/0/value/1")?.as_str()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_can_be_queried_before_and_after_a_kill() {
    let prometheus = Prometheus::start(&history_over(START, START + 3.0 * DAY))
        .await
        .unwrap();
    let rate = "sum(rate(container_cpu_usage_seconds_total{namespace=\"shop\"}[3m]))";
    let noon = START + 1.5 * DAY;
    assert_eq!(value(&prometheus, rate, noon).await, Some(0.25));
    prometheus.kill();
    assert!(prometheus.query(rate, noon).await.is_err());
    prometheus.restart().await.unwrap();
    assert_eq!(value(&prometheus, rate, noon).await, Some(0.25));
    assert_eq!(value(&prometheus, "queue", noon).await, Some(1.5));
    assert_eq!(value(&prometheus, "queue", START - DAY).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn future_samples_can_be_queried_at_their_time() {
    // 2100-01-01T00:00:00Z: ahead of every clock that this runs under.
    let start = 4_102_444_800.0;
    let prometheus = Prometheus::start(&history_over(start, start + 2.0 * DAY))
        .await
        .unwrap();
    assert_eq!(value(&prometheus, "queue", start + DAY).await, Some(1.0));
    let later = history_over(start + 3.0 * DAY, start + 4.0 * DAY);
    prometheus.add(&later).await.unwrap();
    assert_eq!(
        value(&prometheus, "queue", start + 3.5 * DAY).await,
        Some(0.5)
    );
}
