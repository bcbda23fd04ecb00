mod worth;

use std::{collections::BTreeSet, sync::Arc};

use foretide_crds::{ClusterStatus, EffectiveHorizontalPodAutoscaler};
use foretide_domain::{
    Observation, Replicas, Scale,
    autoscale::{self, Decision, Inputs, history::History},
    cron::Zone,
    hpa::Settings,
    lead_time::LeadTime,
    observation::Container,
    sim::{PodTemplate, measure},
    workload::Workload,
};
use foretide_models::Forecast;
use jiff::SignedDuration;
use serde_json::json;

use super::{
    api::{CalendarQuery, ChartQuery, FleetQuery, FleetRow, SpanQuery, Worth},
    *,
};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    status::{condition, decided_condition, decision_status, window_status},
    validation,
};

/// A Tuesday, 10 March 2026, 08:50 UTC.
const NOW: Timestamp = Timestamp::constant(1_773_132_600, 0);

#[derive(Debug)]
struct StandingClock;

impl Host for StandingClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// The input and the time of one sync of an autoscaler.
struct Sync {
    autoscaler: Autoscaler,
    workload: Arc<Workload>,
    ready: u32,
    /// In replicas.
    demand: f64,
    forecast: Option<Arc<Forecast>>,
    at: Timestamp,
}

// === impl Sync ===

impl Sync {
    /// A sync of an autoscaler of 2 to 10 replicas with this demand in replicas, of which `ready` serve.
    fn of(namespace: &str, name: &str, ready: u32, demand: f64) -> Self {
        let object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"namespace": namespace, "name": name, "uid": "u-1", "resourceVersion": "7", "generation": 3},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("{name}-app")},
                "minReplicas": 2,
                "maxReplicas": 10,
                "metrics": [{"type": "External", "external": {
                    "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}}],
                "crons": [{"name": "late", "start": "0 20 * * *", "end": "0 22 * * *", "targetReplicas": 8,
                    "timezone": "Europe/Berlin"}],
            },
        });
        let object: EffectiveHorizontalPodAutoscaler = serde_json::from_value(object).unwrap();
        let workload = validation::workload(&object, &Zone::utc()).unwrap();
        Self {
            autoscaler: Autoscaler::Effective(Arc::new(object)),
            workload: Arc::new(workload),
            ready,
            demand,
            forecast: None,
            at: NOW,
        }
    }

    fn later(mut self, seconds: i64) -> Self {
        self.at = NOW + SignedDuration::from_secs(seconds);
        self
    }

    fn decision(&self) -> Decision {
        let template = PodTemplate {
            containers: Arc::new([Container {
                name: "app".into(),
                requests: [("cpu", 400)].into_iter().collect(),
            }]),
            pod_level: None,
        };
        let pods = (0..self.ready).map(|index| template.serving(&index.to_string(), self.at));
        let pods: Vec<_> = pods.collect();
        let count = Replicas::new(self.ready);
        let total = Some(self.demand * 30.0);
        let readings = self.workload.metrics.iter();
        let readings = readings.map(|metric| measure::reading(metric, total, &pods, self.at));
        let seen = Inputs {
            observation: Observation {
                scale: Scale {
                    spec: count,
                    status: count,
                },
                readings: readings.collect(),
                pods,
                ..Observation::default()
            },
            forecasts: Vec::new(),
            child: None,
            share: None,
        };
        let settings = Settings::default();
        autoscale::decide(
            &self.workload,
            &seen,
            &History::default(),
            &settings,
            self.at,
        )
        .0
    }

    fn status(decision: &Decision) -> Status {
        let own = decision.conditions.iter();
        let own = own.map(|own| decided_condition(own.kind.as_str(), own));
        let mut status = Status::default();
        status.common.current_replicas = Some(decision.current.as_i32());
        status.common.decision = Some(decision_status(decision));
        status.common.windows = Some(window_status(decision));
        status.common.conditions = Some(own.collect());
        status
    }

    /// Records the sync, with a change of its status.
    fn record_with(&self, log: &DecisionLog, change: impl FnOnce(&mut Status)) {
        let decision = self.decision();
        let mut status = Self::status(&decision);
        change(&mut status);
        self.record_decided(log, &decision, &status);
    }

    fn record_decided(&self, log: &DecisionLog, decision: &Decision, status: &Status) {
        log.record(Record {
            at: self.at,
            autoscaler: &self.autoscaler,
            status,
            decided: Some(self.decided(decision)),
        });
    }

    fn decided<'a>(&'a self, decision: &'a Decision) -> Decided<'a> {
        Decided {
            workload: &self.workload,
            decision,
            current: decision.current,
            ready: Replicas::new(self.ready),
            metrics: vec![MetricRecord {
                name: "external.queue".to_owned(),
                demand: Some(self.demand * 30.0),
                per_replica: Some(30.0),
                forecast: self.forecast.clone().map(|forecast| {
                    let lead_time = LeadTime::of(None, Some(SignedDuration::from_secs(120)));
                    (forecast, lead_time)
                }),
            }],
            template: None,
            start_up: None,
        }
    }

    fn record(&self, log: &DecisionLog) {
        self.record_with(log, |_| {});
    }
}

fn page() -> Page {
    Page::new(Arc::default(), Arc::new(StandingClock))
}

fn set(status: &mut Status, kind: &str, value: &str, reason: &str) {
    let conditions = status.common.conditions.get_or_insert_default();
    conditions.retain(|known| known.type_ != kind);
    conditions.push(condition(kind, value, reason, &format!("about {kind}")));
}

/// The row of an autoscaler of which `ready` replicas serve, with this demand in replicas and a change of its status.
fn row_of(ready: u32, demand: f64, change: impl FnOnce(&mut Status)) -> FleetRow {
    let page = page();
    Sync::of("shop", "web", ready, demand).record_with(page.log(), change);
    first_row(&page)
}

fn first_row(page: &Page) -> FleetRow {
    let view = page.fleet(&Visible::All, &FleetQuery::default()).unwrap();
    view.rows.into_iter().next().unwrap()
}

#[test]
fn a_state_has_the_worst_of_its_words_and_the_sentence_of_it() {
    let short = "4 serve, and the demand needs 4.5; 5 replicas";
    for (ready, demand, word, sentence) in [
        (4, 3.8, Word::Fine, "4 replicas: queue"),
        (4, 4.3, Word::Fine, "4 replicas: queue"),
        (4, 4.5, Word::Short, short),
        (10, 10.9, Word::Fine, "10 replicas"),
    ] {
        let row = row_of(ready, demand, |_| {});
        assert_eq!(row.word, word, "{ready} {demand}: {row:?}");
        assert!(row.sentence.starts_with(sentence), "{sentence:?}: {row:?}");
    }
    for ([kind, value, reason], word) in [
        (["Ready", "False", "InvalidSpec"], Word::Unready),
        (["Ready", "False", "TargetConflict"], Word::Conflict),
        (["Ready", "False", "ExternalWriter"], Word::Conflict),
        (["ReplicaConflict", "True", "ForeignWriter"], Word::Conflict),
        (["PredictionReady", "False", "NoData"], Word::Untrusted),
    ] {
        let row = row_of(4, 3.8, |status| set(status, kind, value, reason));
        assert_eq!(row.word, word, "{reason}: {row:?}");
        let sentence = format!("about {kind}");
        assert!(row.sentence.starts_with(&sentence), "{row:?}");
    }
    let both = row_of(4, 4.5, |it| set(it, "Ready", "False", "InvalidSpec"));
    assert_eq!(both.word, Word::Short);
    assert!(both.sentence.starts_with("4 serve"), "{both:?}");
    let pending = row_of(4, 3.8, |it| {
        set(it, "PredictionReady", "Unknown", "Pending");
    });
    assert_eq!(pending.word, Word::Fine);
    assert!(pending.sentence.starts_with("4 replicas"), "{pending:?}");
    let capped = "the clusters can run 3 replicas; 4 replicas";
    for (room, word, sentence) in [(3, Word::Capped, capped), (4, Word::Fine, "4 replicas")] {
        let row = row_of(4, 3.8, |status| {
            status.fleet.unassigned = Some(3);
            status.fleet.clusters = Some(vec![ClusterStatus {
                max: Some(room),
                ..ClusterStatus::default()
            }]);
        });
        assert_eq!(row.word, word, "{room}: {row:?}");
        assert!(row.sentence.starts_with(sentence), "{sentence:?}: {row:?}");
    }
}

/// Five autoscalers: two of `shop`, three of `data`.
fn five() -> Page {
    let page = page();
    for (namespace, name, ready, demand) in [
        ("shop", "web", 5, 4.8),
        ("shop", "api", 3, 6.0),
        ("data", "etl", 2, 1.5),
        ("data", "web", 7, 6.9),
        ("data", "load", 6, 11.0),
    ] {
        Sync::of(namespace, name, ready, demand).record(page.log());
    }
    page
}

fn sort(by: &str) -> FleetQuery {
    FleetQuery {
        sort: by.to_owned(),
        ..FleetQuery::default()
    }
}

#[test]
fn the_fleet_is_counted_searched_sorted_and_paged() {
    let page = five();
    let names = |query: FleetQuery| {
        let view = page.fleet(&Visible::All, &query).unwrap();
        let names = view
            .rows
            .iter()
            .map(|row| format!("{}/{}", row.key.namespace, row.key.name));
        (names.collect::<Vec<_>>(), view.matching)
    };
    let worst_first = ["data/load", "shop/api", "data/etl", "data/web", "shop/web"];
    assert_eq!(names(FleetQuery::default()).0, worst_first);
    assert_eq!(
        names(sort("current")).0,
        ["data/etl", "shop/api", "shop/web", "data/load", "data/web"]
    );
    assert_eq!(
        names(sort("-name")).0,
        ["shop/web", "shop/api", "data/web", "data/load", "data/etl"]
    );
    let query = FleetQuery {
        search: "WEB-app".to_owned(),
        ..sort("name")
    };
    assert_eq!(
        names(query),
        (vec!["data/web".to_owned(), "shop/web".to_owned()], 2)
    );
    let query = FleetQuery {
        word: Some(Word::Short),
        offset: 1,
        limit: Some(1),
        ..FleetQuery::default()
    };
    assert_eq!(names(query), (vec!["shop/api".to_owned()], 2));
    let view = page.fleet(&Visible::All, &FleetQuery::default()).unwrap();
    let counts = [Word::Short, Word::Fine].map(|word| view.counts[&word]);
    assert_eq!((view.current, counts), (23, [2, 3]));
}

#[test]
fn an_order_or_a_limit_that_is_not_known_is_refused() {
    let page = five();
    let limit = FleetQuery {
        limit: Some(201),
        ..FleetQuery::default()
    };
    let orders = "sort: expected one of word, name, current, desired, window";
    for (query, expected) in [
        (sort("age"), orders),
        (limit, "limit: expected 1 to 200, got 201"),
    ] {
        let error = page.fleet(&Visible::All, &query).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_is_in_another_namespace_is_not_there() {
    let page = five();
    let visible = Visible::Namespaces(BTreeSet::from(["shop".to_owned()]));
    let view = page.fleet(&visible, &FleetQuery::default()).unwrap();
    assert_eq!((view.matching, view.current), (2, 8));
    let calendar = page.calendar(&visible, &CalendarQuery::default()).unwrap();
    let namespaces: BTreeSet<_> = calendar
        .windows
        .iter()
        .map(|it| &*it.autoscaler.namespace)
        .collect();
    assert_eq!(namespaces, BTreeSet::from(["shop"]));
}

#[test]
fn a_version_changes_with_the_minute_and_with_the_decision_and_with_nothing_else() {
    let page = page();
    let sync = |ready, demand, later| {
        Sync::of("shop", "web", ready, demand)
            .later(later)
            .record(page.log());
    };
    let mut versions = Vec::new();
    for (ready, demand, later) in [
        (4, 3.8, 0),
        (4, 3.8, 15),
        (4, 3.9, 30),
        (5, 3.9, 45),
        (5, 3.9, 60),
        (5, 3.9, 75),
    ] {
        sync(ready, demand, later);
        versions.push(page.version(&Visible::All, None));
    }
    assert_eq!(versions, [2, 2, 2, 3, 4, 4]);
    let elsewhere = Visible::Namespaces(BTreeSet::from(["data".to_owned()]));
    assert_eq!(page.version(&elsewhere, None), 0);
}

#[test]
fn an_object_about_which_nothing_can_be_decided_keeps_its_last_decision() {
    let page = page();
    let sync = Sync::of("shop", "web", 4, 3.8);
    sync.record(page.log());
    let mut status = Sync::status(&sync.decision());
    set(&mut status, "Ready", "False", "FailedGetScale");
    page.log().record(Record {
        at: NOW + SignedDuration::from_secs(60),
        autoscaler: &sync.autoscaler,
        status: &status,
        decided: None,
    });
    let key = key_of(&sync.autoscaler);
    let view = page.autoscaler(&key, &Visible::All).unwrap();
    assert_eq!(
        (view.row.word, view.row.current, view.row.desired),
        (Word::Unready, Some(4), Some(4))
    );
    let first = view.conditions.first().unwrap();
    assert_eq!(
        (first.healthy, &*first.condition.reason),
        (false, "FailedGetScale")
    );
    let copy = first
        .remedy
        .as_ref()
        .and_then(|remedy| remedy.copy.as_deref());
    assert_eq!(copy, Some("kubectl -n shop describe deployment/web-app"));
    // A minute without a decision is a hole.
    let history = page
        .history(&key, &Visible::All, &SpanQuery::default())
        .unwrap();
    assert_eq!(history.times, [NOW.as_second()]);
    page.log().forget(sync.autoscaler.kind(), "shop", "web");
    assert_eq!(
        page.autoscaler(&key, &Visible::All).unwrap_err(),
        ViewError::NotFound(key)
    );
}

#[test]
fn what_was_expected_for_a_minute_is_kept_as_it_was_made_a_lead_time_before() {
    let page = page();
    let later = |seconds| NOW + SignedDuration::from_secs(seconds);
    let minute = SignedDuration::from_mins(1);
    // The first forecast expects 1, 2, 3... replicas at the end of each minute, and twice as many at most.
    let made = |first: f64| {
        let totals = (0..9).map(|index| 30.0 * (first + f64::from(index)));
        let totals: Vec<_> = totals.collect();
        let upper = totals.iter().map(|total| 2.0 * total).collect();
        let made = Forecast::new("test", later(60), minute, totals, later(9000)).unwrap();
        Some(Arc::new(made.with_upper(upper).unwrap()))
    };
    for (seconds, forecast) in [
        (0, made(1.0)),
        (60, made(1.0)),
        (120, made(5.0)),
        (180, None),
    ] {
        let mut sync = Sync::of("shop", "web", 4, 3.8).later(seconds);
        sync.forecast = forecast;
        sync.record(page.log());
    }
    let key = key_of(&Sync::of("shop", "web", 4, 3.8).autoscaler);
    let span = SpanQuery::default();
    let view = page.history(&key, &Visible::All, &span).unwrap();
    assert_eq!(
        view.times,
        [0, 60, 120, 180].map(|seconds| later(seconds).as_second())
    );
    assert_eq!(view.expected, [None, None, Some(3.0), Some(4.0)]);
    assert_eq!(view.expected_upper, [None, None, Some(6.0), Some(8.0)]);
    assert_eq!(view.ahead.times, [0; 0]);
    let mut sync = Sync::of("shop", "web", 4, 3.8).later(240);
    sync.forecast = made(1.0);
    sync.record(page.log());
    let view = page.history(&key, &Visible::All, &span).unwrap();
    assert_eq!(view.expected.last(), Some(&Some(9.0)));
    assert_eq!(view.ahead.expected, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let svg = page
        .chart(&key, &Visible::All, &ChartQuery::default())
        .unwrap();
    for layer in [
        "needed", "expected", "band", "ahead", "desired", "min", "max", "floor",
    ] {
        let drawn = svg.contains(&format!("data-layer=\"{layer}\""));
        // No floor is set.
        assert_eq!(drawn, layer != "floor", "{layer} in {svg}");
    }
    assert!(!svg.contains(">floor</text>"), "{svg}");
    assert!(svg.contains(">minReplicas, maxReplicas</text>"), "{svg}");
}

#[test]
fn a_manifest_is_what_a_user_would_apply_and_what_its_pods_request() {
    let page = page();
    let sync = Sync::of("shop", "web", 4, 3.8);
    let documents = || -> Vec<serde_json::Value> {
        let text = page.manifest(&key_of(&sync.autoscaler), &Visible::All);
        serde_saphyr::from_multiple(&text.unwrap()).unwrap()
    };
    sync.record(page.log());
    let alone = documents();
    let [object] = &*alone else {
        panic!("{alone:?}");
    };
    assert_eq!(
        object["metadata"],
        json!({"namespace": "shop", "name": "web"})
    );
    assert_eq!(object["spec"]["scaleTargetRef"]["name"], "web-app");
    assert_eq!(object.get("status"), None);

    let decision = sync.decision();
    let requests = [("cpu", 250), ("memory", 64_000)].into_iter().collect();
    let template = PodTemplate {
        containers: Arc::new([Container {
            name: "app".into(),
            requests,
        }]),
        pod_level: Some([("cpu", 300)].into_iter().collect()),
    };
    page.log().record(Record {
        at: sync.at,
        autoscaler: &sync.autoscaler,
        status: &Sync::status(&decision),
        decided: Some(Decided {
            template: Some(template),
            ..sync.decided(&decision)
        }),
    });
    let app = json!({"name": "app", "resources": {"requests": {"cpu": "250m", "memory": "64"}}});
    let pod = json!({"containers": [app], "resources": {"requests": {"cpu": "300m"}}});
    let workload = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web-app"},
        "spec": {"template": {"spec": pod}},
    });
    assert_eq!(documents(), [object.clone(), workload]);
}

#[test]
fn windows_are_of_their_own_zone_and_weeks_of_the_readers() {
    let page = five();
    let query = CalendarQuery {
        weeks: Some(4),
        zone: Some("America/New_York".to_owned()),
        namespace: Some("shop".to_owned()),
        ..CalendarQuery::default()
    };
    let view = page.calendar(&Visible::All, &query).unwrap();
    // Monday, 9 March, 00:00 in New York; 28 evenings of two autoscalers, in Berlin.
    assert_eq!(view.span.from, 1_773_028_800);
    assert_eq!(view.windows.len(), 56);
    let first = &view.windows[0].window;
    assert_eq!(
        (&*first.zone, first.replicas, first.span.from),
        ("Europe/Berlin", 8, 1_773_082_800)
    );
    let changes: Vec<_> = view
        .clock_changes
        .iter()
        .map(|it| (it.at, &*it.zone, it.forward))
        .collect();
    assert_eq!(changes, [(1_774_746_000, "Europe/Berlin", 3600)]);
    assert!(view.svg.contains("shop/web: late"), "{}", view.svg);
    for (weeks, zone) in [(Some(9), None), (None, Some("Mars".to_owned()))] {
        let query = CalendarQuery {
            weeks,
            zone,
            ..CalendarQuery::default()
        };
        let refused = page.calendar(&Visible::All, &query);
        assert!(matches!(refused, Err(ViewError::BadQuery(_))));
    }
}

#[test]
fn a_span_without_sense_is_refused() {
    let page = five();
    let key = key_of(&Sync::of("shop", "web", 5, 4.8).autoscaler);
    for (from, until) in [
        (Some(10), Some(10)),
        (Some(i64::MIN), Some(i64::MAX)),
        (Some(0), None),
        (None, Some(i64::MIN)),
    ] {
        let refused = page.history(&key, &Visible::All, &SpanQuery { from, until });
        assert!(
            matches!(refused, Err(ViewError::BadQuery(_))),
            "{from:?} {until:?}"
        );
    }
    let query = ChartQuery {
        width: Some(20),
        ..ChartQuery::default()
    };
    assert!(matches!(
        page.chart(&key, &Visible::All, &query),
        Err(ViewError::BadQuery(_))
    ));
}

#[test]
fn a_long_history_has_2000_rows_at_most() {
    let page = page();
    for minute in 0..2100 {
        let ready = if minute == 777 {
            9
        } else {
            3 + u32::from(minute % 2 == 0)
        };
        let sync = Sync::of("shop", "web", ready, 3.1 + f64::from(ready));
        sync.later(60 * (i64::from(minute) - 2099))
            .record(page.log());
    }
    let key = key_of(&Sync::of("shop", "web", 4, 3.8).autoscaler);
    let history = |minutes: i64| {
        let from = Some(NOW.as_second() - 60 * (minutes - 1));
        let span = SpanQuery { from, until: None };
        page.history(&key, &Visible::All, &span).unwrap()
    };
    let (part, all) = (history(2000), history(2100));
    assert_eq!((part.step_seconds, part.times.len()), (60, 2000));
    assert_eq!(all.step_seconds, 240);
    let rows = all.times.len();
    assert!((1000..=2000).contains(&rows), "{rows}");
    assert_eq!(all.ready.iter().max(), Some(&Some(9)));
    let newest = Some(&NOW.as_second());
    assert_eq!((all.times.last(), all.current.len()), (newest, rows));
}

/// A process with one server of metrics that is not current.
#[derive(Debug)]
struct Ailing;

impl Host for Ailing {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn health(&self) -> Health {
        let source = |name: &str, problem: &str| SourceHealth {
            name: name.to_owned(),
            healthy: problem.is_empty(),
            age_seconds: None,
            errors: 3,
            problem: problem.to_owned(),
        };
        Health {
            unready: Some("Prometheus https://secret.example does not answer".to_owned()),
            lag_seconds: 1.0,
            sources: vec![
                source("watch of deployments", ""),
                source(
                    "Prometheus https://secret.example",
                    "the token of secret.example expired",
                ),
            ],
        }
    }
}

#[test]
fn only_a_reader_of_all_namespaces_sees_which_servers_there_are_and_what_is_wrong_with_them() {
    let page = Page::new(Arc::default(), Arc::new(Ailing));
    let all = page.health(&Visible::All);
    assert_eq!(all.sources.len(), 2);
    let shop = Visible::Namespaces(BTreeSet::from(["shop".to_owned()]));
    let some = page.health(&shop);
    let text = serde_json::to_string(&some).unwrap();
    assert!(!text.contains("secret") && some.unready.is_some(), "{text}");
    let sum = some.sources.first().unwrap();
    assert_eq!((some.sources.len(), sum.healthy, sum.errors), (1, false, 0));
    assert_eq!(
        sum.problem,
        "1 of them not current; a reader of all namespaces sees which"
    );
}

#[test]
fn windows_that_open_too_often_are_cut_and_that_is_said() {
    let page = page();
    let mut sync = Sync::of("shop", "web", 4, 3.8);
    let Autoscaler::Effective(object) = &sync.autoscaler else {
        panic!("{:?}", sync.autoscaler);
    };
    let mut object = EffectiveHorizontalPodAutoscaler::clone(object);
    object.spec.crons = serde_json::from_value(json!([
        {"name": "often", "start": "*/2 * * * *", "end": "1-59/2 * * * *", "targetReplicas": 3},
        {"name": "late", "start": "0 20 * * *", "end": "0 22 * * *", "targetReplicas": 8},
    ]))
    .unwrap();
    sync.workload = Arc::new(validation::workload(&object, &Zone::utc()).unwrap());
    sync.record(page.log());
    let view = page
        .calendar(&Visible::All, &CalendarQuery::default())
        .unwrap();
    // The Monday has a thousand before now, which is on Tuesday.
    let times: Vec<_> = view.windows.iter().map(|it| it.window.span.from).collect();
    assert!(view.truncated && times.is_sorted(), "{times:?}");
    assert_eq!((times.len(), times[0]), (1000, NOW.as_second()));
    let names = |name: &str| {
        view.windows
            .iter()
            .filter(|it| it.window.name == name)
            .count()
    };
    assert_eq!((names("often"), names("late")), (999, 1));
    let span = |hours: i64| SpanQuery {
        from: Some(NOW.as_second()),
        until: Some(NOW.as_second() + 3600 * hours),
    };
    for (hours, expected) in [(10, (300, false)), (30, (500, true))] {
        let key = key_of(&sync.autoscaler);
        let view = page.history(&key, &Visible::All, &span(hours)).unwrap();
        let found = (view.windows.len(), view.windows_truncated);
        assert_eq!(found.1, expected.1, "{hours}");
        assert!(
            found.0 >= expected.0 && found.0 <= expected.0 + 1,
            "{found:?}"
        );
    }
}

#[test]
fn a_word_or_a_layer_that_is_not_known_is_refused_with_those_that_are() {
    let query = |word: &str| serde_json::from_value::<FleetQuery>(json!({"word": word}));
    assert_eq!(query("capped").unwrap().word, Some(Word::Capped));
    assert_eq!(query("").unwrap().word, None);
    let error = query("nonsense").unwrap_err().to_string();
    let expected = "expected short, unready, conflict, capped, untrusted or fine, got \"nonsense\"";
    assert!(error.contains(expected), "{error}");
    let page = five();
    let key = key_of(&Sync::of("shop", "web", 5, 4.8).autoscaler);
    let chart = |layers: &str| {
        let query = ChartQuery {
            layers: Some(layers.to_owned()),
            ..ChartQuery::default()
        };
        page.chart(&key, &Visible::All, &query)
    };
    assert!(chart("needed,ready,").is_ok());
    let error = chart("ready,zz").unwrap_err().to_string();
    assert!(
        error.starts_with("layers: expected some of band, needed, "),
        "{error}"
    );
    assert!(error.ends_with("got \"zz\""), "{error}");
}

#[test]
fn a_sentence_begins_with_the_bound_that_is_in_the_way() {
    for (ready, demand, expected) in [
        (10, 10.9, "10 replicas"),
        (
            10,
            13.2,
            "10 serve, and the demand needs 13.2, maxReplicas is 10, and 14 are asked for; ",
        ),
    ] {
        let row = row_of(ready, demand, |_| {});
        assert!(row.sentence.starts_with(expected), "{row:?}");
    }
    let page = page();
    let sync = Sync::of("shop", "web", 10, 10.5);
    let mut decision = sync.decision();
    decision.maximum = Some(Replicas::new(12));
    sync.record_decided(page.log(), &decision, &Sync::status(&decision));
    let row = first_row(&page);
    assert_eq!(row.word, Word::Capped);
    let expected = "12 replicas are asked for, and maxReplicas is 10; ";
    assert!(row.sentence.starts_with(expected), "{row:?}");
}

/// The remedy for a condition of an autoscaler that was recorded at these times with this demand.
fn remedy_of(page: &Page, [kind, reason]: [&str; 2], demands: &[f64]) -> api::Remedy {
    for (index, demand) in demands.iter().enumerate() {
        let sync = Sync::of("shop", "web", 10, *demand);
        let sync = sync.later(3600 * i64::try_from(index).unwrap());
        let is_true = if kind == "ScalingLimited" {
            "True"
        } else {
            "False"
        };
        sync.record_with(page.log(), |status| set(status, kind, is_true, reason));
    }
    let key = key_of(&Sync::of("shop", "web", 10, 1.0).autoscaler);
    let view = page.autoscaler(&key, &Visible::All).unwrap();
    let mut conditions = view.conditions.into_iter();
    let found = conditions.find(|it| it.condition.type_ == kind);
    found.and_then(|it| it.remedy).unwrap()
}

#[test]
fn a_remedy_raises_max_replicas_to_what_was_needed_within_a_day() {
    let limited = ["ScalingLimited", "TooManyReplicas"];
    let mut demands = vec![12.3, 15.2];
    demands.extend([11.5; 23]);
    let remedy = remedy_of(&page(), limited, &demands);
    let line = r#"kubectl -n shop patch effectivehorizontalpodautoscalers web --type=merge -p '{"spec":{"maxReplicas":16}}'"#;
    assert_eq!(remedy.copy.as_deref(), Some(line));
    // After a day the higher demand is not considered.
    demands.extend([11.5; 2]);
    let remedy = remedy_of(&page(), limited, &demands);
    assert!(remedy.copy.unwrap().contains(r#""maxReplicas":12}"#));
}

#[test]
fn a_remedy_names_the_controller_only_where_its_namespace_is_known() {
    #[derive(Debug)]
    struct InOps;

    impl Host for InOps {
        fn now(&self) -> Timestamp {
            NOW
        }

        fn namespace(&self) -> Option<String> {
            Some("ops".to_owned())
        }
    }

    let failed = ["PredictionReady", "QueryError"];
    assert_eq!(remedy_of(&page(), failed, &[3.0]).copy, None);
    let remedy = remedy_of(&Page::new(Arc::default(), Arc::new(InOps)), failed, &[3.0]);
    let line = "kubectl -n ops logs deployment/foretide-controller --since=10m";
    assert_eq!(remedy.copy.as_deref(), Some(line));
    let invalid = remedy_of(&page(), ["Ready", "InvalidSpec"], &[3.0]);
    assert!(
        invalid.text.contains("; foretide validate -f FILE checks"),
        "{invalid:?}"
    );
}

#[test]
fn a_metric_without_a_value_is_no_fault_of_the_metrics_api() {
    let page = page();
    let sync = Sync::of("shop", "web", 4, 3.8);
    let decision = sync.decision();
    let mut status = Sync::status(&decision);
    let failed = "FailedGetExternalMetric";
    set(&mut status, "ScalingActive", "False", failed);
    let advice = |status: &Status| {
        sync.record_decided(page.log(), &decision, status);
        let view = page.autoscaler(&key_of(&sync.autoscaler), &Visible::All);
        view.unwrap().conditions.remove(0).remedy.unwrap().text
    };
    assert!(advice(&status).starts_with("check that the metrics adapter runs"));
    let proposals = status.common.decision.as_mut().unwrap().proposals.as_mut();
    let proposal = proposals.unwrap().first_mut().unwrap();
    (proposal.replicas, proposal.reason) = (None, Some("NoSamples".to_owned()));
    assert!(advice(&status).starts_with("check that the pods run"));
}
