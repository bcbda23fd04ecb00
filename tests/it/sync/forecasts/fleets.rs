//! Forecasts of fleets: of the total over the members, or of each member where each is a fleet of its own.

use std::collections::{BTreeMap, BTreeSet};

use foretide_base::machine::Machine;
use foretide_controller::forecaster::{demand_history::DemandSample, shares::FleetMember};
use foretide_domain::forecast::Refused;

use foretide_crds::FederatedHPA;

use super::*;

/// A Prometheus with three days of history for each query in `cores`, of a constant value; it records its queries.
#[derive(Clone, Default)]
struct FakePrometheus(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    cores: BTreeMap<String, f64>,
    asked: BTreeSet<String>,
}

impl HistoryReader for FakePrometheus {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let mut held = self.0.lock().unwrap();
        let asked = format!(
            "{} at {}",
            query.text,
            query.endpoint.as_deref().unwrap_or("hub")
        );
        held.asked.insert(asked);
        let Some(value) = held.cores.get(&*query.text).copied() else {
            return Err(HistoryError::Empty);
        };
        let first = from.as_second().max(START - 3 * 86_400);
        let times = (first..=to.as_second()).step_by(usize::try_from(step.as_secs()).unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        Ok(times
            .map(|second| Sample {
                at: at(second),
                value,
            })
            .collect())
    }
}

/// Queries by the written text, or by the name of the member, at the endpoint that the member names.
struct ByMember;

impl DemandQueries for ByMember {
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
        let member = demand.member;
        let text = demand
            .written
            .or(member.map(|member| member.name))
            .unwrap_or("whole");
        let shared = member.is_some_and(|member| member.endpoint.is_some() && !member.alone);
        let text = if shared {
            format!("{text} by its label")
        } else {
            text.to_owned()
        };
        Ok(HistoryQuery {
            namespace: demand.target.namespace.as_str().into(),
            endpoint: member.and_then(|member| member.endpoint).map(Into::into),
            text: text.into(),
        })
    }

    fn version(&self) -> u64 {
        0
    }
}

struct Fleet {
    fake: FakeCluster,
    clock: Clock,
    forecasts: Arc<Forecasts>,
    held: FakePrometheus,
    forecaster: Forecaster<FakeCluster, FakePrometheus, ByMember>,
    /// Syncs report the demand of each member.
    reports_members: bool,
}

impl Fleet {
    fn new(spec: &str, cores: &[(&str, f64)]) -> Self {
        let yaml = format!(
            "apiVersion: autoscaling.foretide.io/v1alpha1\nkind: FederatedHPA\n\
             metadata: {{name: web, namespace: shop, uid: uid-web, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, minReplicas: 3, \
             maxReplicas: 50, prediction: {{}}, {spec}}}"
        );
        let fake = FakeCluster::default();
        let fdhpa: FederatedHPA = serde_saphyr::from_str(&yaml).unwrap();
        fake.state().federated.insert("web".to_owned(), fdhpa);
        let held = FakePrometheus::default();
        let cores = cores
            .iter()
            .map(|(query, cores)| ((*query).to_owned(), *cores));
        held.0.lock().unwrap().cores = cores.collect();
        let clock = Clock::standing_at(Timestamp::from_second(START).unwrap());
        let forecasts = Arc::<Forecasts>::default();
        let source = HistorySource {
            reader: held.clone(),
            queries: ByMember,
        };
        let forecaster = Forecaster::new(
            Arc::new(fake.clone()),
            Some(source),
            Arc::clone(&forecasts),
            ForecasterSetup {
                machine: Machine::system().with_clock(clock.clone()),
                local_zone: Zone::utc(),
                targets: Arc::default(),
                cost_limits: CostLimits::default(),
                telemetry: Arc::default(),
            },
        );
        Self {
            fake,
            clock,
            forecasts,
            held,
            forecaster,
            reports_members: false,
        }
    }

    /// Runs the report of a sync, and then a pass.
    async fn pass(&mut self, second: i64, members: &[(&str, Option<&str>, bool)]) {
        let now = Timestamp::from_second(START + second).unwrap();
        run_to(&self.clock, now);
        let member = |(name, prometheus, idle): &(&str, Option<&str>, bool)| FleetMember {
            name: (*name).into(),
            prometheus: prometheus.map(Into::into),
            idle: *idle,
        };
        let history = self.forecasts.demand_history();
        history.report("uid-web", None, [], now);
        for (name, ..) in members.iter().filter(|_| self.reports_members) {
            let samples = [("resource.cpu".to_owned(), DemandSample::default())];
            history.report(&SeriesKey::of_member("uid-web", name), None, samples, now);
        }
        self.forecasts
            .shares()
            .report("uid-web", members.iter().map(member).collect());
        self.forecaster.pass().await;
        self.forecaster.delivered().await;
    }

    fn annotate(&self, annotations: BTreeMap<String, String>) {
        let mut state = self.fake.state();
        let fdhpa = state.federated.get_mut("web").unwrap();
        fdhpa.metadata.annotations = Some(annotations);
    }

    /// The highest value that is predicted for the next hour, or the reason for its absence.
    fn peak(&self, uid: &str, metric: &str) -> Result<f64, Refused> {
        let key = SeriesKey {
            uid: uid.to_owned(),
            metric: metric.to_owned(),
        };
        let hour = SignedDuration::from_hours(1);
        let forecasts = &self.forecasts;
        let peak = forecasts.predicted(&key, self.clock.now(), hour, 1.0);
        peak.map(|(predicted, _)| (predicted.value * 100.0).round() / 100.0)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.held.0.lock().unwrap().asked)
            .into_iter()
            .collect()
    }

    fn predicted(&self) -> (bool, Vec<String>) {
        let status = self.fake.state().predicted.clone().unwrap();
        let metrics = status.prediction_metrics.unwrap();
        let ready = metrics.iter().all(|metric| metric.ready);
        let names = metrics
            .into_iter()
            .filter_map(|metric| metric.resource_identifier);
        (ready, names.collect())
    }
}

const DIVIDED: &str = "federatedHPAAssignment: {federatedHPAAssignmentType: Aggregated}";
const EACH: [(&str, f64); 3] = [("east", 1.0), ("north", 2.0), ("west", 4.0)];
const ALL: [(&str, Option<&str>, bool); 3] = [
    ("west", None, false),
    ("east", Some("thanos"), false),
    ("north", None, false),
];

#[tokio::test]
async fn a_dividing_fleet_is_forecast_as_the_sum_of_its_members() {
    let mut fleet = Fleet::new(&format!("{DIVIDED}, {CPU}"), &EACH);
    fleet.pass(0, &ALL).await;
    assert_eq!(
        fleet.asked(),
        ["east at thanos", "north at hub", "west at hub"]
    );
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(7.0));
    assert_eq!(fleet.predicted(), (true, vec!["resource.cpu".to_owned()]));
    let shown = fleet.fake.state().prediction.clone();
    let owner = shown.pointer("/metadata/ownerReferences/0").unwrap();
    assert_eq!(
        (
            shown.pointer("/metadata/name"),
            owner.get("kind"),
            owner.get("apiVersion")
        ),
        (
            Some(&"fdhpa-web".into()),
            Some(&"FederatedHPA".into()),
            Some(&"autoscaling.foretide.io/v1alpha1".into())
        )
    );
}

#[tokio::test]
async fn a_fleet_has_no_forecast_while_a_member_has_no_history_and_the_reason_names_it() {
    let mut fleet = Fleet::new(&format!("{DIVIDED}, {CPU}"), &EACH[..2]);
    fleet.pass(0, &ALL).await;
    let refused = fleet.peak("uid-web", "resource.cpu").unwrap_err();
    assert_eq!(refused.reason.as_str(), "PartialHistory");
    assert_eq!(
        refused.message,
        "the history of cluster west is missing: the query returned no samples"
    );
    assert!(!fleet.predicted().0);
    // The hub sees no pods of the workload there.
    let mut without = ALL;
    without[0].2 = true;
    fleet.pass(60, &without).await;
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(3.0));
    // Pods appear there, but no history.
    fleet.pass(120, &ALL).await;
    fleet.pass(1200, &ALL).await;
    let refused = fleet.peak("uid-web", "resource.cpu").unwrap_err();
    assert_eq!(refused.reason.as_str(), "PartialHistory");
}

#[tokio::test]
async fn a_forecast_needs_a_reported_list_of_clusters_that_is_not_empty() {
    let mut fleet = Fleet::new(&format!("{DIVIDED}, {CPU}"), &EACH);
    fleet.pass(0, &[]).await;
    let refused = fleet.peak("uid-web", "resource.cpu").unwrap_err();
    assert_eq!(refused.reason.as_str(), "NoData");
    assert_eq!(fleet.asked(), Vec::<String>::new());
    let mut other = Fleet::new(&format!("{DIVIDED}, {CPU}"), &EACH);
    let late = other.clock.now() + SignedDuration::from_mins(1);
    other.forecaster.pass().await;
    run_to(&other.clock, late);
    other.forecaster.pass().await;
    let refused = other.peak("uid-web", "resource.cpu").unwrap_err();
    assert_eq!(refused.reason.as_str(), "Pending");
    assert!(refused.message.contains("which clusters"), "{refused}");
}

#[tokio::test]
async fn a_member_that_joins_is_queried_and_one_that_leaves_is_not() {
    let mut fleet = Fleet::new(&format!("{DIVIDED}, {CPU}"), &EACH);
    fleet.pass(0, &ALL[..2]).await;
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(5.0));
    fleet.asked();
    fleet.pass(60, &ALL).await;
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(7.0));
    fleet.asked();
    fleet.pass(120, &ALL[1..]).await;
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(3.0));
    assert_eq!(fleet.asked(), ["east at thanos", "north at hub"]);
}

#[tokio::test]
async fn in_a_duplicated_fleet_each_member_has_its_own_forecast() {
    let mut fleet = Fleet::new(CPU, &EACH[..2]);
    fleet.reports_members = true;
    fleet.pass(0, &ALL).await;
    let cpu = |member| fleet.peak(&SeriesKey::of_member("uid-web", member), "resource.cpu");
    assert_eq!((cpu("east"), cpu("north")), (Ok(1.0), Ok(2.0)));
    assert_eq!(cpu("west").unwrap_err().reason.as_str(), "PartialHistory");
    assert!(fleet.peak("uid-web", "resource.cpu").is_err());
    let names = ["east", "north", "west"].map(|member| format!("{member}/resource.cpu"));
    assert_eq!(fleet.predicted(), (false, names.to_vec()));
    let mut together = Fleet::new(CPU, &EACH);
    together.pass(0, &ALL).await;
    assert_eq!(together.peak("uid-web", "resource.cpu"), Ok(7.0));
}

#[tokio::test]
async fn members_that_name_the_same_endpoint_are_distinguished_by_their_cluster_label() {
    let shared = [
        ("east", Some("thanos"), false),
        ("north", Some("mimir"), false),
        ("west", Some("thanos"), false),
    ];
    for (spec, reports_members) in [(format!("{DIVIDED}, {CPU}"), false), (CPU.to_owned(), true)] {
        let mut fleet = Fleet::new(&spec, &EACH);
        fleet.reports_members = reports_members;
        fleet.pass(0, &shared).await;
        assert_eq!(
            fleet.asked(),
            [
                "east by its label at thanos",
                "north at mimir",
                "west by its label at thanos"
            ],
            "{spec}"
        );
    }
}

#[tokio::test]
async fn metrics_that_no_pod_has_and_written_queries_are_queried_once() {
    let queue = "metrics: [{type: External, external: {metric: {name: queue}, \
                 target: {type: AverageValue, averageValue: 10}}}]";
    for policy in [DIVIDED, "federatedHPAAssignment: {}"] {
        let mut fleet = Fleet::new(&format!("{policy}, {queue}"), &[("whole", 9.0)]);
        fleet.pass(0, &ALL).await;
        assert_eq!(fleet.asked(), ["whole at hub"]);
        assert_eq!(fleet.peak("uid-web", "external.queue"), Ok(9.0), "{policy}");
    }
    let mut fleet = Fleet::new(&format!("{DIVIDED}, {CPU}"), &[("sum(x)", 5.0)]);
    let annotation = "metric-query.autoscaling.crane.io/resource.cpu".to_owned();
    let written = [(annotation, "sum(x)".to_owned())].into_iter().collect();
    fleet.annotate(written);
    fleet.pass(0, &ALL).await;
    assert_eq!(fleet.asked(), ["sum(x) at hub"]);
    assert_eq!(fleet.peak("uid-web", "resource.cpu"), Ok(5.0));
}
