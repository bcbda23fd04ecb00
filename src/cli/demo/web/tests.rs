use std::{collections::BTreeMap, ops::ControlFlow, sync::LazyLock};

use foretide_domain::sim::Score;

use super::*;
use crate::cli::demo::{scenario::Scenario, tests::context, web::workloads::WorkloadRun};
use foretide_page::{
    Visible,
    api::{
        Experiment, FleetQuery, HistoryQuery, MetricHistory, NamedText, ObjectKey, SpanQuery, Word,
        WorthScore,
    },
    key_of,
};

/// The demo at the end of its replay.
static AT_PRESENT: LazyLock<Page> = LazyLock::new(|| {
    let host = Arc::new(DemoHost {
        clock: Clock::standing_at(PRESENT),
        speed: 60.0,
        members: Mutex::default(),
    });
    let page = Page::new(
        Arc::new(DecisionLog::default()),
        Arc::clone(&host) as Arc<dyn Host>,
    );
    let workloads = Workloads::new(&context()).unwrap();
    let (mut runs, mut fleet) = (workloads.runs(), FleetRun::new(&context()).unwrap());
    let mut now = PRESENT.checked_sub(REPLAYED).unwrap();
    while now <= PRESENT {
        for run in &mut runs {
            run.minute(now, page.log());
        }
        *host.members.lock() = fleet.minute(now, page.log());
        now = now.checked_add(MINUTE).unwrap();
    }
    page
});

#[test]
fn the_demo_is_mostly_fine_and_shows_each_problem() {
    let page = &*AT_PRESENT;
    let view = page.fleet(&Visible::All, &FleetQuery::default()).unwrap();
    let words = [
        (Word::Short, 1),
        (Word::Conflict, 1),
        (Word::Capped, 1),
        (Word::Untrusted, 2),
        (Word::Fine, 7),
    ];
    assert_eq!(view.counts, BTreeMap::from(words));
    assert_eq!(view.rows.len(), 12);
    for row in &view.rows {
        assert!(
            row.sparkline
                .as_ref()
                .is_some_and(|line| !line.past.is_empty()),
            "{row:?}"
        );
        let span = SpanQuery {
            from: Some(0),
            until: None,
        };
        assert!(page.history(&row.key, &Visible::All, &span).is_err());
        let of_a_day = PRESENT.as_second() - 24 * 3600;
        let span = SpanQuery {
            from: Some(of_a_day),
            until: None,
        };
        let history = page.history(&row.key, &Visible::All, &span).unwrap();
        assert_eq!(history.times.len(), 1441, "{row:?}");
        assert!(!history.sentences.is_empty(), "{row:?}");
    }
    let clusters = page.clusters(&Visible::All).clusters;
    let lost: Vec<_> = clusters
        .iter()
        .filter(|it| it.ready == Some(false))
        .map(|it| &*it.name)
        .collect();
    assert_eq!(lost, ["lisbon"]);
}

#[test]
fn what_a_simulated_workload_was_worth_is_what_its_back_test_says() {
    for scenario in [Scenario::Shop, Scenario::Batch, Scenario::Surge] {
        let setup = scenario.setup(&context()).unwrap();
        let log = Arc::new(DecisionLog::default());
        let host = DemoHost {
            clock: Clock::standing_at(PRESENT),
            speed: 1.0,
            members: Mutex::default(),
        };
        let (mut ours, mut plain) = (Score::default(), Score::default());
        let mut recorded = WorkloadRun::from_the_beginning(&setup);
        let runs = foretide_backtest::runs::Runs::of(&setup);
        let mut other = runs.plain();
        for minute in 0..runs.lead_in() + runs.minutes() {
            let was = recorded.record(&log);
            let would_be = other.minute().0;
            if minute >= runs.lead_in() {
                ours.add_minute(&was);
                plain.add_minute(&would_be);
            }
        }
        let page = Page::new(log, Arc::new(host));
        let worth = page
            .worth(&key_of(&setup.autoscaler), &Visible::All)
            .unwrap();
        assert_eq!(
            (worth.actual, worth.plain),
            (totals(&ours), totals(&plain)),
            "{scenario:?}: {worth:?}"
        );
        assert!(
            worth.plain.short_minutes > worth.actual.short_minutes,
            "{scenario:?}"
        );
    }
}

fn totals(score: &Score) -> WorthScore {
    WorthScore {
        minutes: score.minutes.into(),
        short_minutes: score.under.into(),
        replica_hours: score.replica_hours(),
        actions: score.actions.into(),
    }
}

#[test]
fn foretide_is_worth_it_but_where_it_neither_forecasts_nor_has_windows() {
    let page = &*AT_PRESENT;
    let key = |name: &str| ObjectKey {
        resource: "effectivehorizontalpodautoscalers".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    };
    let images = page.worth(&key("images"), &Visible::All).unwrap();
    // The runs begin a replica apart; after the first half hour they are equal.
    let hours = images.actual.replica_hours - images.plain.replica_hours;
    assert!(hours.abs() < 0.1, "{hours}");
    assert_eq!(images.actual.short_minutes, images.plain.short_minutes);
    assert!(
        images.verdict.ends_with("a plain HPA is enough here"),
        "{}",
        images.verdict
    );
    let web = page.worth(&key("web"), &Visible::All).unwrap();
    assert!(
        web.verdict.starts_with("Foretide is never short"),
        "{}",
        web.verdict
    );
    assert!(!web.verdict.contains("enough"), "{}", web.verdict);
    let all = page.worth_of_all(&Visible::All);
    assert_eq!((all.autoscalers, all.left_out), (2, 10));
    while page.refresh_worth() {}
    // Foretide scales neither the workload in Preview nor the one that another autoscaler scales.
    let all = page.worth_of_all(&Visible::All);
    assert_eq!((all.autoscalers, all.left_out), (10, 2));
    assert!(
        all.actual.short_minutes * 5 < all.plain.short_minutes
            && all.actual.replica_hours < all.plain.replica_hours * 1.1,
        "{}",
        all.verdict
    );
    for one in &all.each {
        assert!(one.actual.short_minutes <= 120, "{one:?}");
    }
}

#[test]
fn a_workload_of_the_page_is_back_tested_as_it_is() {
    let page = &*AT_PRESENT;
    for (namespace, name) in [("shop", "web"), ("data", "etl")] {
        let key = ObjectKey {
            resource: "effectivehorizontalpodautoscalers".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let csv = page.history_csv(&key, &Visible::All, &HistoryQuery::default());
        let experiment = Experiment {
            manifests: vec![NamedText {
                name: name.to_owned(),
                text: page.manifest(&key, &Visible::All).unwrap(),
            }],
            histories: vec![MetricHistory {
                metric: None,
                name: name.to_owned(),
                text: csv.unwrap(),
            }],
            ..Experiment::default()
        };
        let report = crate::cli::backtest::lab::run(&experiment, &context(), &mut |_| {
            ControlFlow::Continue(())
        });
        let report: serde_json::Value = serde_json::from_str(&report.unwrap().json()).unwrap();
        let [ours, plain] = ["/candidates/0", "/candidates/1"].map(|candidate| {
            let minutes = report.pointer(&format!("{candidate}/underProvisionedMinutes"));
            minutes.unwrap().as_u64().unwrap()
        });
        assert!(ours * 3 < plain, "{name}: {ours} and {plain} in {report:#}");
    }
}

#[test]
fn the_clock_of_the_demo_stands_at_the_beginning_until_the_replay_goes_on() {
    let (page, _run) = start(&context(), 60.0).unwrap();
    let view = page.overview(&Visible::All, None);
    let begin = "2026-03-06T08:50:00Z".to_owned();
    assert_eq!((view.now, view.speed), (begin, 0.0));
    let health = page.health(&Visible::All);
    assert_eq!(
        health.unready.as_deref(),
        Some("replaying the last four days")
    );
    let view = AT_PRESENT.overview(&Visible::All, None);
    assert_eq!((&*view.source, view.speed), ("demo", 60.0));
    assert_eq!(AT_PRESENT.health(&Visible::All).unready, None);
}
