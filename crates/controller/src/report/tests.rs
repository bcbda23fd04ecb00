//! Reports of syncs to the page.

use std::sync::Arc;

use foretide_domain::lead_time::LeadTime;
use foretide_models::Forecast;
use foretide_page::{
    Host, Page, Visible,
    api::{ObjectKey, SpanQuery, Word},
};

use super::*;
use crate::{
    apply::Effect,
    decide::tests::{QUEUE, decide, observed, part},
    forecaster::SeriesKey,
    observe::ForecastSeries,
    part::Part,
};
use foretide_api::ownership::OwnerKind;

/// A host with this time.
#[derive(Debug)]
struct At(Timestamp);

impl Host for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A page after five minutes of syncs of two replicas with a forecast of twelve, and the last decision.
fn played(part: &Part) -> (Page, Decision) {
    let (log, forecasts) = (Arc::new(DecisionLog::new(1 << 20)), Forecasts::default());
    let (telemetry, start) = (Telemetry::default(), Timestamp::UNIX_EPOCH);
    let key = SeriesKey {
        uid: part.autoscaler.uid().to_owned(),
        metric: QUEUE.to_owned(),
    };
    let (minute, points) = (SignedDuration::from_mins(1), vec![60.0; 24 * 60]);
    let forecast = Forecast::new("test", start, minute, points, Timestamp::MAX);
    forecasts.replace(key, forecast.unwrap(), LeadTime::of(None, None));
    let series = ForecastSeries {
        forecasts: &forecasts,
        uid: part.autoscaler.uid(),
        workload: &part.workload,
    };
    let mut target = TargetState::default();
    let mut state = ReportState::new(&part.autoscaler);
    let mut last = None;
    for second in (0..=300).step_by(15) {
        let passed = std::time::Duration::from_secs(second);
        let now = start + SignedDuration::try_from(passed).unwrap();
        let mut seen = observed(2, 0, None);
        seen.workload.forecasts = series.readings(&[], None, now);
        let decided = decide(&mut target, part, seen, i64::try_from(second).unwrap());
        last = Some(decided.decision.clone());
        let applied = Applied {
            decided,
            outcome: Ok(Effect::default()),
        };
        let input = ReportInput {
            state: &mut state,
            target: &target,
            invalid: None,
            start_up: None,
        };
        let reporter = Reporter {
            telemetry: &telemetry,
            page: &log,
            forecasts: &forecasts,
            now,
            passed: Monotonic::after_origin(passed),
        };
        reporter.applied(input, &applied, Extras::default());
    }
    let now = start + SignedDuration::from_mins(5);
    (Page::new(log, Arc::new(At(now))), last.unwrap())
}

#[test]
fn the_page_shows_what_was_decided_and_expected() {
    let prediction = serde_json::json!({"leadTimeSeconds": 60});
    let spec = serde_json::json!({"maxReplicas": 10, "prediction": prediction});
    let (page, decision) = played(&part(&spec));
    let key = ObjectKey {
        resource: OwnerKind::Effective.plural().to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let view = page.autoscaler(&key, &Visible::All).unwrap();
    assert_eq!(view.row.desired, Some(decision.desired.as_i32()));
    // The forecast asks for 12, and maxReplicas is 10.
    assert_eq!(view.row.word, Word::Capped, "{view:?}");
    let history = page
        .history(&key, &Visible::All, &SpanQuery::default())
        .unwrap();
    let minutes: Vec<_> = (0..=5).map(|minute| minute * 60).collect();
    assert_eq!(history.times, minutes);
    assert_eq!(
        history.desired.last().copied().flatten(),
        Some(decision.desired.get())
    );
    // The first two minutes were not expected: the lead time is two minutes.
    let twelve = Some(12.0);
    assert_eq!(
        history.expected,
        [None, None, twelve, twelve, twelve, twelve]
    );
    assert!(history.needed.iter().all(Option::is_some), "{history:?}");
    let sentence = history.sentences.last().map(|said| &*said.text);
    assert_eq!(sentence, Some(&*decision.message()));
    assert!(history.ahead.times.len() > 100, "{:?}", history.ahead);
}
