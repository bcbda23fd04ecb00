//! The scenario of harmless trouble: that of a tenant or of the clock of a host, next to others who get the same at the
//! same time as without it.
//!
//! One replica, no faults of requests. The kind of trouble follows from the seed, so a few seeds have all of them.

use std::{collections::BTreeMap, time::Duration};

use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::{
    faults::Plan,
    network::{Effect, Trouble, Way},
    world::prometheus::Prometheus,
};

use crate::{
    cluster::{Cluster, DENIED, MAX, SHOP, START, TENANT, cpu, external},
    laws::{fits, needed},
    predictions::silent,
    schedule::Dice,
    seeds::{self, Scenario},
};

const HOST: &str = "pod-0";
const ADAPTER: &str = "adapter-0";
/// Second until which the adapter's registrations change.
const CHANGES: u64 = BEGINS + 8;
/// Second from which the registrations have the adapter's authority.
const PUBLISHED: u64 = BEGINS + 24;
/// Second from which the adapter answers.
const ANSWERED: u64 = BEGINS + 40;
/// Second in which the trouble begins.
const BEGINS: u64 = 45;
/// Second in which the trouble of metrics begins: the window opens before the API counts as silent.
const METRICS_BEGIN: u64 = WINDOW.0 - 4;
/// Seconds by which an effect may be earlier, because a sync may come a period earlier.
const EARLIER: usize = 17;
/// Seconds by which an effect may be later, because an increase takes two syncs.
const LATER: usize = 32;
/// Seconds for which a child keeps the count of a load: the window of a decrease.
const KEPT: usize = 30;
/// Seconds for which a count may stay to which a decision has raised the child: two windows, and the syncs before,
/// between and after them.
const RAISED: usize = 2 * KEPT + 3 * EARLIER;
/// Opening and end of the window of `own`.
const WINDOW: (u64, u64) = (60, 120);
/// Seconds after the opening within which its count is there.
const DUE: u64 = 17;
/// Period of the edits of a user during the trouble.
const EDIT: u64 = 7;
/// Seconds after an edit at which the status is about it.
const REPORTED: u64 = 2;
const FLOOR: u64 = 4;
/// First `minReplicas` that a user sets in `edited`.
const LEAST: u64 = 2;
/// Second in which a paused host goes on.
const RESUMED: u64 = BEGINS + 20;
/// Seconds after the pause at which an edit during it is carried out.
const RESUMED_DUE: u64 = 6;
/// Second in which everything that was due in the pause is done.
const CAUGHT_UP: u64 = RESUMED + 15;
/// Second from which no request hangs: after a deadline, a penalty and a sync.
const RECOVERED: u64 = Harmless::HEALED + 30;
/// An annotation with a length that makes its object longer than the 256 KiB that are kept.
const NOTE: &str = "autoscaling.foretide.io/note";
const LARGE: usize = (256 << 10) - 64;
/// A query that is refused.
const QUERY: &str =
    r#"sum(rate(container_cpu_usage_seconds_total{namespace="tenant",pod=~"^own-[\\w]{99}"}[3m]))"#;
/// The query of an HPA to the adapter for the count of a window that is always open.
const CRON: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/crane_autoscaling_cron?labelSelector=targetKind%3DDeployment%2CtargetName%3Dcron%2CresourceIdentifier%3Dcron";
/// The apps of the shop that may have external metrics.
const EXTERNAL: [&str; 6] = ["ext", "ext-1", "ext-2", "ext-3", "ext-4", "ext-5"];
/// Largest number of hanging requests during the trouble.
const ATTEMPTS: usize = 90;
/// Largest number of hanging requests of one tenant beside others without trouble: a third of that of five.
const EDITED_ATTEMPTS: usize = 30;
/// Largest number of writes of a count that another writer changes again.
const WRITES: usize = 3;
const WRITER_ENDS: u64 = 115;
/// Time for which a load must last until its count is there.
const ASKED: SignedDuration = SignedDuration::from_secs(40);
const GONE: &str = "00000000-0000-4000-8000-000000000000";

/// Kind of trouble, with the object in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Reads of metrics of the tenant hang.
    Metrics,
    /// Writes of the statuses of the tenant hang.
    Statuses,
    /// Everything about the workloads of the tenant hangs.
    Workloads,
    /// A kind that the tenant names hangs.
    Discovery,
    /// External metrics of tenants hang ([`Hanging`]).
    External,
    /// One of two metrics cannot be read: the one that asks for more.
    Missing,
    /// An autoscaler of the tenant cannot be decoded.
    Garbled,
    /// An autoscaler of the tenant has a mistake: its last spec stays in force.
    Mistake,
    /// An autoscaler is in a namespace in which nothing may be scaled.
    Denied,
    /// Another writer sets the count of the tenant's app each second, to less than it needs.
    Writer,
    /// An HPA that claims to be adopted cannot be restored.
    Orphan,
    /// The registrations of a metric adapter change while it publishes its authority.
    Registration,
    /// The clock of the host is stepped.
    Step,
    /// The host is far from the API server, and paused while much is due and a user edits.
    Pause,
    /// An autoscaler of the tenant is larger than the kept part.
    Large,
    /// A Prometheus that asks for a credential does not exist.
    Prometheus,
    /// A query of the tenant has a pattern that is large when it is compiled.
    Query,
}

/// Owners of the external metrics that hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hanging {
    /// One tenant; in the meantime no other external metrics are read.
    One,
    /// Five tenants, most of whose metrics hang.
    Five,
    /// One tenant, who edits all its autoscalers again and again, also one whose metric is answered.
    Edited,
}

struct Harmless {
    cluster: Cluster,
    /// A Prometheus that does not answer the query with the pattern.
    prometheus: Option<Prometheus>,
    kind: Kind,
    /// Seconds by which a clock is stepped.
    step: i64,
    hanging: Hanging,
    needs: Vec<(u64, &'static str, u64)>,
    /// Counts that must be equal to those without the trouble, second by second.
    series: Vec<BTreeMap<&'static str, Count>>,
    orphans: usize,
    /// Another writer changes a count.
    has_writer: bool,
    /// The apps of the tenant that have a window.
    windows: Vec<String>,
    /// The apps of all tenants that have external metrics.
    external: Vec<String>,
}

/// The count of an app, and its load.
#[derive(Debug, Clone, Copy)]
struct Count {
    replicas: u64,
    load: u64,
}

// === impl Hanging ===

impl Hanging {
    fn of(seed: u64) -> Self {
        match seed / Kind::ALL.len() as u64 % 3 {
            0 => Self::One,
            1 => Self::Five,
            _ => Self::Edited,
        }
    }

    /// The apps of the shop that have external metrics.
    fn of_shop(self) -> &'static [&'static str] {
        match self {
            Self::Five => &EXTERNAL,
            Self::One | Self::Edited => &EXTERNAL[..1],
        }
    }

    /// The namespaces of the tenants, and the number of autoscalers in each.
    const fn spaces(self) -> (&'static [usize], usize) {
        match self {
            // Synced in the middle between two syncs of the shop.
            Self::One => (&[8], 30),
            Self::Five => (&[0, 1, 2, 3, 4], 8),
            Self::Edited => (&[0], 9),
        }
    }
}

// === impl Kind ===

impl Kind {
    const ALL: [Self; 17] = [
        Self::Metrics,
        Self::Statuses,
        Self::Workloads,
        Self::Discovery,
        Self::External,
        Self::Missing,
        Self::Garbled,
        Self::Mistake,
        Self::Denied,
        Self::Writer,
        Self::Orphan,
        Self::Registration,
        Self::Step,
        Self::Pause,
        Self::Large,
        Self::Prometheus,
        Self::Query,
    ];
    /// Names in the order of the kinds.
    const NAMES: [&str; 17] = [
        "metrics",
        "statuses",
        "workloads",
        "discovery",
        "external",
        "missing",
        "garbled",
        "mistake",
        "denied",
        "writer",
        "orphan",
        "registration",
        "step",
        "pause",
        "large",
        "prometheus",
        "query",
    ];

    fn of(seed: u64) -> Self {
        Self::ALL[usize::try_from(seed).unwrap() % Self::ALL.len()]
    }

    /// Returns whether the tenant's own workload is as without the trouble.
    const fn leaves_own(self) -> bool {
        !matches!(
            self,
            Self::Metrics | Self::Workloads | Self::Mistake | Self::Writer | Self::Step
        )
    }

    /// The requests in trouble.
    fn trouble(self) -> Option<Trouble> {
        let mut client = String::new();
        let (method, parts, effect): (_, &[&str], _) = match self {
            Self::Metrics => ("", &["metrics.k8s.io", "/namespaces/tenant"], Effect::Hang),
            Self::Statuses => (
                "PATCH",
                &["/namespaces/tenant/effective", "/status"],
                Effect::Hang,
            ),
            Self::Workloads => ("", &["/namespaces/tenant/deployments/"], Effect::Hang),
            Self::Discovery => ("", &["/apis/work.tenant.example"], Effect::Hang),
            Self::External => ("", &["external.metrics.k8s.io", "/hang-"], Effect::Hang),
            Self::Missing => (
                "",
                &["external.metrics.k8s.io", "/queue"],
                Effect::Refused(503),
            ),
            Self::Orphan => (
                "PATCH",
                &["/namespaces/tenant/horizontalpodautoscalers/forged"],
                Effect::Refused(403),
            ),
            Self::Registration => {
                ADAPTER.clone_into(&mut client);
                let late = Effect::Late(Duration::from_secs(4));
                ("GET", &["/effectivehorizontalpodautoscalers"], late)
            }
            _ => return None,
        };
        Some(Trouble {
            client,
            method,
            parts,
            effect,
        })
    }
}

fn window() -> Value {
    json!({"name": "rush", "start": "1/4 * * * *", "end": "2/4 * * * *", "targetReplicas": FLOOR})
}

fn tenant(number: usize) -> String {
    format!("{TENANT}-{number}")
}

/// Returns whether the last count of an app in a record is as good as another count, that of the run without the
/// trouble.
fn is_as_good(
    kind: Kind,
    name: &str,
    record: &[BTreeMap<&'static str, Count>],
    other: Count,
) -> bool {
    let now = record.len() - 1;
    let count = record[now][name].replicas;
    let since = |seconds| &record[now.saturating_sub(seconds)..];
    let fits_then = |then: &BTreeMap<_, Count>| fits(count, then[name].load);
    let load = record[now][name].load;
    match (kind, name) {
        // A load fits several counts, and the one that results depends on the moments of syncs and samples.
        _ if fits(count, load) && fits(other.replicas, load) => true,
        // Steps that are left out in a pause may lead to another count that a load asks for, or to one between two
        // loads.
        (Kind::Pause, _) => {
            let is_enough = |then: &BTreeMap<_, Count>| needed(then[name].load) <= count;
            let is_asked = |then| fits_then(then) || !is_enough(then);
            let raised = since(RAISED);
            now as u64 >= RESUMED && raised.iter().any(is_enough) && raised.iter().any(is_asked)
        }
        // A child that scales down by its own readings is raised again if the window of the decision still has a higher
        // one after a sync period: that depends on a moment, and the run with the trouble may miss it.
        (_, "web") => count < other.replicas && since(KEPT).iter().all(fits_then),
        _ => false,
    }
}

/// Returns the number of edits until a second.
fn edits(second: u64) -> Option<u64> {
    let is_edited = (BEGINS + 2..Harmless::HEALED).contains(&second);
    is_edited.then(|| second / EDIT - (BEGINS + 2) / EDIT)
}

impl Scenario for Harmless {
    type Disruption = Kind;
    type Record = Vec<BTreeMap<&'static str, Count>>;

    const DISRUPTIONS: &'static [&'static str] = &Kind::NAMES;
    const SHARE: u64 = 10;
    const COVERS: u64 = 32;
    const HEALED: u64 = 105;
    /// One period until the metric is read again, and three from one pod to ten: to four, to eight, and until those
    /// have samples.
    const ALIVE: u64 = Self::HEALED + 65;
    const SETTLED: u64 = 212;
    const END: u64 = 244;

    fn rate(_seed: u64) -> u64 {
        0
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed);
        let kind = Kind::of(seed);
        let mut needs: Vec<_> = (0..5)
            .map(|_change| {
                let app = ["web", "own"][dice.index(2)];
                (20 + dice.below(60), app, 1 + dice.below(10))
            })
            .collect();
        // A decrease that waits when a clock is stepped.
        needs.extend([(BEGINS - 3, "api", 2), (90, "api", 9)]);
        needs.extend([(BEGINS + 5, "own", 8), (BEGINS + 8, "ext", 9)]);
        needs.sort_unstable();
        // Often enough that a count is written whenever that is allowed.
        if kind == Kind::Writer {
            needs.retain(|(_, app, _)| *app != "own");
            needs.push((BEGINS, "own", 5));
        }
        // The count of `own` is judged before the mistake is mended. A load that changes again while pods are new takes
        // longer.
        if kind == Kind::Mistake {
            needs.retain(|(_, app, _)| *app != "own");
            needs.push((BEGINS + 5, "own", 8));
        }
        let step = [-7_200, -600, -20, 20, 600, 7_200][dice.index(6)];
        let mut scenario = Self {
            cluster: Cluster::new(seed, plan),
            prometheus: None,
            kind,
            step,
            hanging: Hanging::of(seed),
            needs,
            series: Vec::new(),
            orphans: 0,
            has_writer: false,
            windows: Vec::new(),
            external: Vec::new(),
        };
        scenario.populate();
        scenario.cluster.start(HOST);
        scenario
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn disruptions_at(&self, second: u64) -> Vec<(usize, Kind)> {
        let begins = match self.kind {
            Kind::Metrics => METRICS_BEGIN,
            _ => BEGINS,
        };
        let now = second == begins;
        now.then_some((0, self.kind)).into_iter().collect()
    }

    fn kind_of(disruption: &Kind) -> Option<&'static str> {
        Some(Kind::NAMES[*disruption as usize])
    }

    fn happen(&mut self, kind: &Kind) {
        if let Some(trouble) = kind.trouble() {
            self.cluster.network().begin(trouble);
        }
        match kind {
            Kind::Garbled => self
                .cluster
                .edit_in(TENANT, "own", &json!({"minReplicas": "one"})),
            Kind::Registration => self.cluster.start_adapter(ADAPTER),
            Kind::Orphan => self.cluster.adopted_hpa(TENANT, "forged", Some(GONE)),
            Kind::Step => self.cluster.step_clock(HOST, self.step),
            Kind::Pause => {
                self.cluster
                    .reach(HOST, Way::Open(Duration::from_millis(200)));
                self.cluster.pause(HOST);
            }
            Kind::Mistake => self
                .cluster
                .edit_in(TENANT, "own", &json!({"maxReplicas": -1})),
            Kind::Writer => self.has_writer = true,
            Kind::Discovery => (0..4).for_each(|number| self.name_unknown_kind(number)),
            Kind::Statuses => {
                for number in 0..self.orphans {
                    let bounds = json!({"maxReplicas": MAX - 1});
                    self.cluster.edit_in(TENANT, &tenant(number), &bounds);
                }
            }
            _ => {}
        }
    }

    fn heal(&mut self) {
        self.cluster.heal();
        if matches!(self.kind, Kind::Garbled | Kind::Mistake) {
            let spec = json!({"minReplicas": 1, "maxReplicas": MAX});
            self.cluster.edit_in(TENANT, "own", &spec);
        }
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        for (_, app, pods) in self.needs.iter().filter(|(at, _, _)| *at == second) {
            self.cluster.needs(app, *pods);
        }
        self.edit(second);
        self.edit_external(second);
        if self.has_writer && second < WRITER_ENDS {
            self.cluster.scale_by_hand_in(TENANT, "own", 3);
        }
        match second {
            RESUMED => self.cluster.resume(HOST),
            CAUGHT_UP => self.cluster.reach(HOST, Way::Open(Duration::ZERO)),
            _ => {}
        }
        self.cluster.second()?;
        self.check_edits(second)?;
        match self.kind {
            Kind::Registration => {
                self.check_registrations(second)?;
                self.check_answers(second)?;
            }
            Kind::Mistake if second == Self::HEALED - 1 => self.check_count("own")?,
            Kind::Statuses if second == RECOVERED => self.check_statuses()?,
            _ => {}
        }
        let mut now = BTreeMap::new();
        for app in ["web", "api", "own"] {
            if app != "own" || self.kind.leaves_own() {
                now.insert(app, self.count(app));
            }
        }
        match self.kind {
            Kind::External => now.insert("ext", self.count("ext")),
            Kind::Missing => now.insert("two", self.count("two")),
            _ => None,
        };
        self.series.push(now);
        self.check_windows(second)?;
        self.check_metrics(second)?;
        let attempts = self.cluster.network().troubled().len();
        let (attempts, most) = match self.kind {
            Kind::Orphan => (attempts, 2),
            Kind::Writer if second < WRITER_ENDS + 10 => (self.cluster.scaled("own"), WRITES),
            Kind::Denied => (self.cluster.scaled("denied"), 0),
            Kind::Large => (self.cluster.scaled("large"), 0),
            Kind::Query => (self.unanswered(), 0),
            Kind::External if self.hanging == Hanging::Edited => (attempts, EDITED_ATTEMPTS),
            _ => (attempts, ATTEMPTS),
        };
        if attempts > most {
            return Err(format!("attempts: {attempts} requests were sent in vain"));
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<(), String> {
        let own = (self.kind != Kind::Writer).then_some("own");
        let mut apps = ["web", "api"].into_iter().chain(own);
        apps.try_for_each(|app| self.check_count(app))?;
        // The metrics that hung are read again.
        let mut external = self.external.iter();
        match external.find(|name| self.cluster.lacks_metrics(name)) {
            Some(name) => Err(format!("alive: {name} lacks a metric")),
            None => Ok(()),
        }
    }

    fn record(&self) -> Self::Record {
        self.series.clone()
    }

    fn compare(seed: u64, record: &Self::Record, undisturbed: &Self::Record) -> Result<(), String> {
        let kind = Kind::of(seed);
        // During a pause nothing is done; some of the due steps may be left out.
        let (earlier, later) = match kind {
            Kind::Pause => (LATER, LATER + usize::try_from(CAUGHT_UP - BEGINS).unwrap()),
            _ => (EARLIER, LATER),
        };
        for (second, now) in record.iter().enumerate() {
            let from = second.saturating_sub(later);
            let to = (second + earlier + 1).min(undisturbed.len());
            for (name, count) in now {
                let (value, others) = (count.replicas, &undisturbed[from..to]);
                let others = others.iter().map(|other| other[name].replicas);
                let (least, most) = others.fold((u64::MAX, 0), |(least, most), other| {
                    (least.min(other), most.max(other))
                });
                // An HPA alone scales by its own readings only.
                let is_alone = kind == Kind::Garbled && *name == "own";
                let is_same = (least - u64::from(is_alone)..=most).contains(&value);
                let other = undisturbed[second][name];
                if !is_same && !is_as_good(kind, name, &record[..=second], other) {
                    return Err(format!(
                        "same: {name} is {value} at second {second}, and without the trouble {least} to {most}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Harmless {
    fn count(&self, app: &str) -> Count {
        Count {
            replicas: self.cluster.replicas(app),
            load: self.cluster.load.at(app, self.cluster.now()),
        }
    }

    /// Edits again and again, as a user.
    fn edit(&self, second: u64) {
        let Some(edits) = edits(second).filter(|_| second.is_multiple_of(EDIT)) else {
            return;
        };
        let most = json!({"maxReplicas": MAX - edits % 2});
        let least = json!({"minReplicas": LEAST + edits});
        self.cluster.edit("edited", &least);
        self.cluster.edit("unknown", &most);
    }

    /// Checks that an edit is carried out at once, independently of the trouble.
    fn check_edits(&self, second: u64) -> Result<(), String> {
        let is_behind = self.kind == Kind::Pause && (BEGINS..CAUGHT_UP).contains(&second);
        let is_due = if is_behind {
            second == RESUMED + RESUMED_DUE
        } else {
            second % EDIT == REPORTED
        };
        let Some(edits) = edits(second.saturating_sub(REPORTED)).filter(|_| is_due) else {
            return Ok(());
        };
        let count = self.cluster.replicas("edited");
        if count < LEAST + edits {
            return Err(format!("due: edited has {count} after edit {edits}"));
        }
        if is_behind {
            return Ok(());
        }
        let mut edited = ["edited", "unknown"].into_iter();
        match edited.find(|app| !self.cluster.is_reported(app)) {
            Some(app) => Err(format!("due: the status of {app} is not of its edit")),
            None => Ok(()),
        }
    }

    /// Returns how often Prometheus was asked the refused query.
    fn unanswered(&self) -> usize {
        let asked = self.prometheus.as_ref();
        asked.map_or(0, |prometheus| prometheus.asked("namespace=\"tenant\"").1)
    }

    /// Creates the apps of the shop, and the objects of the tenant for its trouble.
    fn populate(&mut self) {
        if self.kind == Kind::Prometheus {
            self.cluster.expect_prometheus();
        }
        if self.kind == Kind::Query {
            let prometheus = self.cluster.add_prometheus(START);
            prometheus.set(silent("{99}"));
            self.prometheus = Some(prometheus);
        }
        // No election, so that no other process leads meanwhile.
        self.cluster.elects = self.kind != Kind::Pause;
        let cluster = &mut self.cluster;
        let edited = match self.kind {
            // In the meantime nothing of the same API is read.
            Kind::External if self.hanging == Hanging::One => json!({}),
            Kind::External | Kind::Pause => external("edited"),
            _ => json!({}),
        };
        cluster.autoscaler("edited", 1, "Direct", &edited);
        cluster.autoscaler_without_target(SHOP, "unknown", "shop.example/v1");
        cluster.autoscaler("web", 2, "Delegated", &json!({}));
        cluster.autoscaler("api", 6, "Direct", &json!({}));
        let own = match self.kind {
            Kind::Metrics => {
                self.windows.push("own".to_owned());
                json!({"crons": [window()]})
            }
            Kind::Prometheus | Kind::Query => json!({"prediction": {"leadTimeSeconds": 60}}),
            _ => json!({}),
        };
        let mode = if self.kind == Kind::Garbled {
            "Delegated"
        } else {
            "Direct"
        };
        cluster.autoscaler_in(TENANT, "own", (2, mode), &own);
        for (app, pods) in [("web", 2), ("api", 6), ("own", 2)] {
            cluster.needs(app, pods);
        }
        self.populate_trouble();
    }

    fn populate_trouble(&mut self) {
        let (cluster, direct) = (&mut self.cluster, (1, "Direct"));
        match self.kind {
            Kind::Metrics | Kind::Workloads => {
                for number in 0..10 {
                    cluster.autoscaler_in(TENANT, &tenant(number), direct, &json!({}));
                }
            }
            Kind::Statuses => {
                self.orphans = 40;
                for number in 0..self.orphans {
                    cluster.autoscaler_without_target(TENANT, &tenant(number), "apps/v1");
                }
            }
            Kind::External => self.populate_external(),
            Kind::Missing => {
                let (mut two, resource) = (external("queue"), cpu());
                two["metrics"].as_array_mut().unwrap().push(resource);
                cluster.autoscaler("two", 6, "Direct", &two);
                cluster.needs("two", 2);
                cluster.needs("queue", 6);
            }
            Kind::Denied => {
                cluster.namespace(DENIED);
                cluster.autoscaler_in(DENIED, "denied", direct, &json!({}));
                cluster.needs("denied", 9);
            }
            Kind::Garbled => cluster.adopted_hpa(TENANT, "own", None),
            Kind::Registration => {
                let always = json!({"crons": [{
                    "name": "all", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": FLOOR,
                }]});
                cluster.autoscaler("cron", 1, "Metric", &always);
            }
            Kind::Pause => {
                for number in 0..60 {
                    let name = format!("other-{number}");
                    cluster.autoscaler(&name, 1, "Direct", &external(&name));
                }
            }
            Kind::Query => {
                let key = "metric-query.autoscaling.crane.io/resource.cpu";
                cluster.annotate_in(TENANT, "own", key, QUERY);
            }
            Kind::Large => {
                cluster.autoscaler_in(TENANT, "large", direct, &json!({}));
                cluster.annotate_in(TENANT, "large", NOTE, &"x".repeat(LARGE));
                cluster.needs("large", 9);
            }
            _ => {}
        }
    }

    fn populate_external(&mut self) {
        let cluster = &mut self.cluster;
        // Each app is read at another time.
        for name in self.hanging.of_shop() {
            cluster.autoscaler(name, 2, "Direct", &external(name));
        }
        cluster.needs("ext", 3);
        let (spaces, each) = self.hanging.spaces();
        for space in spaces {
            cluster.namespace(&tenant(*space));
            for number in 0..each {
                let is_fast = self.hanging != Hanging::One && number % 8 == 7;
                let kind = if is_fast { "fast" } else { "hang" };
                let name = format!("{kind}-{space}-{number}");
                let mut rest = external(&name);
                if self.hanging == Hanging::One {
                    rest["crons"] = json!([window()]);
                    self.windows.push(name.clone());
                }
                cluster.autoscaler_in(&tenant(*space), &name, (1, "Direct"), &rest);
                self.external.push(name);
            }
        }
    }

    /// Edits as the tenant: the app whose metric is answered at once, and the others one after the other.
    fn edit_external(&self, second: u64) {
        let is_edited = self.kind == Kind::External && self.hanging == Hanging::Edited;
        if !is_edited || !(BEGINS..Self::HEALED).contains(&second) {
            return;
        }
        let (fast, hang): (Vec<_>, Vec<_>) = self
            .external
            .iter()
            .partition(|name| name.starts_with("fast"));
        let all = hang.len() as u64;
        let turn = usize::try_from(second % all).unwrap();
        let fast = fast.into_iter().map(|name| (name, second));
        for (name, edits) in fast.chain([(hang[turn], second / all)]) {
            let most = json!({"maxReplicas": MAX - edits % 2});
            self.cluster.edit_in(&tenant(0), name, &most);
        }
    }

    /// Checks that the tenant's statuses are about their edits.
    fn check_statuses(&self) -> Result<(), String> {
        let mut edited = (0..self.orphans).map(tenant);
        match edited.find(|name| !self.cluster.is_reported(name)) {
            Some(name) => Err(format!("alive: the status of {name} is not of its edit")),
            None => Ok(()),
        }
    }

    /// Checks that an app has the replicas that it has needed for a while.
    fn check_count(&self, app: &str) -> Result<(), String> {
        let (count, since) = (self.cluster.replicas(app), self.cluster.now() - ASKED);
        let needed = needed(
            self.cluster
                .load
                .least_between(app, since, self.cluster.now()),
        )
        .min(MAX);
        if count < needed {
            return Err(format!("alive: {app} has {count} and needs {needed}"));
        }
        Ok(())
    }

    /// Checks that a window opens in time also while the metrics of its app hang.
    fn check_windows(&self, second: u64) -> Result<(), String> {
        let (opens, closes) = WINDOW;
        if !(opens + DUE..closes).contains(&second) {
            return Ok(());
        }
        let late = self
            .windows
            .iter()
            .find(|app| self.cluster.replicas(app) < FLOOR);
        match late {
            Some(app) => Err(format!(
                "due: the window of {app} is open, and it has {}",
                self.cluster.replicas(app)
            )),
            None => Ok(()),
        }
    }

    /// Checks that no trouble of a tenant takes a metric away from others.
    fn check_metrics(&self, second: u64) -> Result<(), String> {
        let external = match self.kind {
            Kind::External => self.hanging.of_shop(),
            _ => &[],
        };
        let mut of_others = ["web", "api", "edited"].iter().chain(external);
        let lacking = of_others.find(|app| self.cluster.lacks_metrics(app));
        match lacking {
            Some(app) if second > BEGINS => Err(format!("same: {app} lacks a metric")),
            _ => Ok(()),
        }
    }

    /// Checks that the API server writes whether it reaches the adapter.
    fn check_registrations(&self, second: u64) -> Result<(), String> {
        let registrations = self.cluster.registrations("custom.metrics.k8s.io");
        for one in &registrations {
            let name = one["metadata"]["name"].as_str().unwrap();
            if second < CHANGES {
                let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}/status");
                let condition =
                    json!({"type": "Available", "status": "False", "message": format!("{second}")});
                let status = json!({"status": {"conditions": [condition]}});
                let server = &self.cluster.server;
                server.ask("kube-aggregator", "PATCH", &path, &status);
            }
            if second == PUBLISHED && one["spec"]["caBundle"].is_null() {
                return Err(format!("due: {name} has no authority"));
            }
        }
        Ok(())
    }

    /// Checks that an HPA that asks the adapter hears of the window, or that it has to wait.
    fn check_answers(&self, second: u64) -> Result<(), String> {
        self.cluster.ask_adapter(ADAPTER, CRON);
        let mut answers = self.cluster.answers().into_iter();
        let is_wrong = |code: u16| code != 200 && (code != 503 || second > ANSWERED);
        match answers.find(|(code, _)| is_wrong(*code)) {
            Some(answer) => Err(format!("answer: the adapter says {answer:?}")),
            None => Ok(()),
        }
    }

    fn name_unknown_kind(&self, number: usize) {
        let api = format!("work.tenant.example/v{}", number + 1);
        self.cluster
            .autoscaler_without_target(TENANT, &tenant(number), &api);
    }
}

#[test]
fn no_seed_breaks_a_law() {
    seeds::play::<Harmless>();
}
