//! Expectations for the minutes ahead, from a given forecast and cron windows.

use foretide_models::Forecast;

use super::*;

/// A workload with a prediction window of twenty minutes, and a cron window from minute 60 to 90 of every two hours.
fn watched() -> Workload {
    let text = WindowText {
        name: "sale",
        start: "0 1-23/2 * * *",
        end: "30 1-23/2 * * *",
        timezone: "",
        target_replicas: 9,
    };
    Workload {
        bounds: ReplicaBounds::new(n(2), n(12)),
        floor: FloorSources {
            windows: vec![Window::parse(&text, &Zone::utc()).unwrap()],
            ..predicted("test", SignedDuration::from_mins(20))
        },
        ..workload()
    }
}

/// A forecast with one value for each ten minutes from minute 0 on, and a target of ten.
fn made(values: &[f64]) -> ForecastAhead {
    let step = SignedDuration::from_mins(10);
    let forecast = Forecast::new("test", at(0), step, values.to_vec(), at(10)).unwrap();
    ForecastAhead {
        name: "external.queue".into(),
        made: Ok((forecast, 10.0)),
        lead_time: LeadTime::of(None, None),
    }
}

/// The minutes in which the expected count changes, with their counts and sources.
fn changes(workload: Workload, forecasts: Vec<ForecastAhead>) -> Vec<(i64, u32, Option<Source>)> {
    let minutes: Vec<_> = Ahead::new(workload, forecasts, n(3), at(0))
        .take(120)
        .collect();
    let mut changes: Vec<(i64, u32, Option<Source>)> = Vec::new();
    for (minute, index) in minutes.iter().zip(0..) {
        assert_eq!(minute.at, at(index));
        let count = minute.replicas.get();
        if changes.last().is_none_or(|last| last.1 != count) {
            changes.push((index, count, minute.source));
        }
    }
    changes
}

#[test]
fn a_forecast_counts_a_window_ahead_and_a_cron_window_beyond_its_end() {
    // The peak of 70 at minute 40 is provided for from minute 20 on, and held for five minutes after its end.
    let forecast = made(&[10.0, 10.0, 10.0, 10.0, 70.0, 10.0, 10.0, 10.0]);
    let forecast_and_cron = [
        (0, 2, Some(Source::Forecast)),
        (20, 7, Some(Source::Forecast)),
        (55, 2, Some(Source::Forecast)),
        (60, 9, Some(Source::Cron)),
        (95, 2, None),
    ];
    let found = changes(watched(), vec![forecast]);
    assert_eq!(found, forecast_and_cron);
}

#[test]
fn where_nothing_proposes_a_count_the_minimum_is_expected_and_the_reason_says_what_is_missing() {
    let minutes: Vec<_> = Ahead::new(watched(), vec![made(&[10.0; 4])], n(3), at(0))
        .take(60)
        .collect();
    assert_eq!(
        minutes[0].reason,
        "2 replicas: the forecast for queue (10 over the next 20 min at 10 per replica) asks for 1; raised to \
         minReplicas 2"
    );
    assert_eq!(
        (
            minutes[30].replicas,
            minutes[30].source,
            &*minutes[30].reason
        ),
        (
            n(2),
            None,
            "2 replicas: minReplicas; no cron window is open; no forecast of external.queue: the forecast ends at \
             2026-01-01T00:40:00Z"
        )
    );
}

#[test]
fn a_workload_of_cron_windows_alone_keeps_its_count_between_them() {
    let mut crons = watched();
    crons.metrics.clear();
    crons.floor.prediction = None;
    let kept = [(0, 3, None), (60, 9, Some(Source::Cron))];
    assert_eq!(changes(crons, Vec::new()), kept);
}

#[test]
fn a_paused_workload_stays_at_zero() {
    for forecasts in [vec![made(&[50.0; 30])], Vec::new()] {
        let mut ahead = Ahead::new(watched(), forecasts, Replicas::ZERO, at(0));
        assert_eq!(ahead.nth(50).unwrap().replicas, Replicas::ZERO);
        assert_eq!(ahead.nth(20).unwrap().replicas, Replicas::ZERO);
    }
}
