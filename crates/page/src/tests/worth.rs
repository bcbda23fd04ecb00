//! The comparison with a plain HPA, and the minutes that it leaves out.

use std::{ops::Range, sync::Mutex};

use foretide_domain::workload::Strategy;

use super::*;

/// Recorded minutes of four replicas with a demand of 3.8, with these differences.
#[derive(Clone, Copy)]
struct Minutes {
    strategy: Strategy,
    is_conflict: bool,
    per_replica: f64,
}

const USUAL: Minutes = Minutes {
    strategy: Strategy::Auto,
    is_conflict: false,
    per_replica: 30.0,
};

fn record(page: &Page, name: &str, minutes: Range<i64>, of: Minutes) {
    for minute in minutes {
        let mut sync = Sync::of("shop", name, 4, 3.8).later(minute * 60);
        sync.workload = Arc::new(Workload {
            strategy: of.strategy,
            ..Workload::clone(&sync.workload)
        });
        let decision = sync.decision();
        let mut status = Sync::status(&decision);
        if of.is_conflict {
            set(&mut status, "Ready", "False", "TargetConflict");
        }
        let mut decided = sync.decided(&decision);
        decided.template = Some(PodTemplate {
            containers: Arc::new([]),
            pod_level: None,
        });
        for metric in &mut decided.metrics {
            metric.per_replica = Some(of.per_replica);
        }
        page.log().record(Record {
            at: sync.at,
            autoscaler: &sync.autoscaler,
            status: &status,
            decided: Some(decided),
        });
    }
}

fn worth(page: &Page) -> Worth {
    let key = key_of(&Sync::of("shop", "web", 4, 3.8).autoscaler);
    page.worth(&key, &Visible::All).unwrap()
}

#[test]
fn preview_is_not_compared() {
    let page = page();
    let preview = Minutes {
        strategy: Strategy::Preview,
        ..USUAL
    };
    record(&page, "web", 0..200, preview);
    let worth = worth(&page);
    assert_eq!((worth.autoscalers, worth.left_out), (0, 1));
    assert!(
        worth.verdict.starts_with("with scaleStrategy Preview"),
        "{worth:?}"
    );
    let all = page.worth_of_all(&Visible::All);
    assert_eq!(
        (all.autoscalers, all.left_out, all.actual.minutes),
        (0, 1, 0)
    );
}

#[test]
fn minutes_of_a_conflict_are_not_compared_and_neither_is_the_half_hour_after_them() {
    let page = page();
    let conflict = Minutes {
        is_conflict: true,
        ..USUAL
    };
    record(&page, "web", 0..100, USUAL);
    record(&page, "web", 100..200, conflict);
    record(&page, "web", 200..300, USUAL);
    let worth = worth(&page);
    assert_eq!(
        (worth.actual.minutes, worth.plain.minutes),
        (140, 140),
        "{worth:?}"
    );
}

#[test]
fn a_plain_hpa_is_enough_after_a_day_at_the_earliest() {
    for (minutes, expected) in [(1440 + 29, false), (1440 + 30, true)] {
        let page = page();
        record(&page, "web", 0..minutes, USUAL);
        let verdict = worth(&page).verdict;
        assert_eq!(
            verdict.contains("is enough here"),
            expected,
            "{minutes} {verdict}"
        );
        let all = page.worth_of_all(&Visible::All).verdict;
        assert_eq!(
            all.contains("is enough for 1 of 1"),
            expected,
            "{minutes} {all}"
        );
    }
}

#[test]
fn a_minute_was_short_by_the_target_of_its_time() {
    let page = page();
    let half = Minutes {
        per_replica: 15.0,
        ..USUAL
    };
    record(&page, "web", 0..50, half);
    record(&page, "web", 50..150, USUAL);
    let worth = worth(&page);
    assert_eq!(
        (worth.actual.minutes, worth.actual.short_minutes),
        (120, 20),
        "{worth:?}"
    );
    assert_eq!(worth.plain.short_minutes, 0);
}

#[test]
fn too_few_minutes_are_said_with_how_many_count() {
    let page = page();
    record(&page, "web", 0..80, USUAL);
    let verdict = worth(&page).verdict;
    assert!(
        verdict.starts_with("of 80 recorded minutes 50 can be compared, and 60 are needed"),
        "{verdict}"
    );
}

#[derive(Debug)]
struct SetClock(Mutex<Timestamp>);

impl Host for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[test]
fn all_are_computed_again_after_the_clock_was_set_back() {
    let host = Arc::new(SetClock(Mutex::new(NOW)));
    let page = Page::new(Arc::default(), Arc::clone(&host) as Arc<dyn Host>);
    for name in ["web", "api", "etl"] {
        record(&page, name, 0..2, USUAL);
    }
    for hours in [0, -3] {
        *host.0.lock().unwrap() = NOW + SignedDuration::from_hours(hours);
        let found = [(); 4].map(|()| page.refresh_worth());
        assert_eq!(found, [true, true, true, false], "{hours}");
    }
}
