//! The scene of what must not matter: a tenant or the clock of a host is in trouble, and what the others get is the same at
//! the same time as without it.
//!
//! One replica, no faults of requests. The kind of trouble follows from the seed, so a few seeds have all of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use simkube::{
    faults::Plan,
    network::{Effect, Trouble},
};

use crate::{
    cluster::{Cluster, MAX, TENANT},
    laws::needed,
    seeds::{self, Scene},
    story::Dice,
};

const HOST: &str = "pod-0";
const ADAPTER: &str = "adapter-0";
/// How long the registrations of the adapter change, and when its authority is in them.
const CHANGES: u64 = BEGINS + 8;
const PUBLISHED: u64 = BEGINS + 24;
/// When trouble begins, in seconds.
const BEGINS: u64 = 45;
/// By how many seconds an effect may be earlier: a sync may come a period earlier; and later: an increase takes two.
const EARLIER: usize = 17;
const LATER: usize = 32;
/// The window of `own` is open for this minute; what is due is done within so many seconds.
const WINDOW: (u64, u64) = (60, 120);
const DUE: u64 = 12;
/// When a user edits `web`: so often during the trouble, and its status is of that edit so many seconds later.
const EDIT: u64 = 10;
const REPORTED: u64 = 3;
const FLOOR: u64 = 4;
/// So many requests that hang are sent at most, in all of the trouble.
const ATTEMPTS: usize = 90;
const GONE: &str = "00000000-0000-4000-8000-000000000000";

/// Who is in trouble, and which.
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
    /// External metrics of one tenant hang, or those of five.
    External,
    /// An autoscaler of the tenant cannot be decoded.
    Garbled,
    /// An HPA that claims to be adopted cannot be restored.
    Orphan,
    /// The registrations of a metric adapter change while it publishes its authority.
    Registration,
    /// The clock of the host is stepped.
    Step(i64),
}

struct Harmless {
    cluster: Cluster,
    kind: Kind,
    /// Whether the metrics that hang belong to one namespace.
    is_one_space: bool,
    needs: Vec<(u64, &'static str, u64)>,
    /// What is to be the same, second by second.
    series: Vec<BTreeMap<&'static str, u64>>,
    orphans: usize,
}

// === impl Kind ===

impl Kind {
    const NAMES: [&str; 9] = [
        "metrics",
        "statuses",
        "workloads",
        "discovery",
        "external",
        "garbled",
        "orphan",
        "step",
        "registration",
    ];

    fn of(seed: u64, dice: &mut Dice) -> Self {
        match seed % 9 {
            0 => Self::Metrics,
            1 => Self::Statuses,
            2 => Self::Workloads,
            3 => Self::Discovery,
            4 => Self::External,
            5 => Self::Garbled,
            6 => Self::Orphan,
            7 => Self::Registration,
            _ => Self::Step([-7_200, -600, -20, 20, 600, 7_200][dice.index(6)]),
        }
    }

    const fn name(self) -> &'static str {
        Self::NAMES[match self {
            Self::Metrics => 0,
            Self::Statuses => 1,
            Self::Workloads => 2,
            Self::Discovery => 3,
            Self::External => 4,
            Self::Garbled => 5,
            Self::Orphan => 6,
            Self::Step(_) => 7,
            Self::Registration => 8,
        }]
    }

    /// Whether the tenant's own workload is as without the trouble.
    const fn leaves_own(self) -> bool {
        !matches!(self, Self::Metrics | Self::Workloads | Self::Step(_))
    }

    /// The requests in trouble.
    fn trouble(self) -> Option<Trouble> {
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
            Self::Orphan => (
                "PATCH",
                &["/namespaces/tenant/horizontalpodautoscalers/forged"],
                Effect::Refused(403),
            ),
            Self::Garbled | Self::Registration | Self::Step(_) => return None,
        };
        Some(Trouble {
            client: String::new(),
            method,
            parts,
            effect,
        })
    }
}

/// An external metric as the only one.
fn external(metric: &str) -> Value {
    json!({"metrics": [{"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "100m"},
    }}]})
}

fn window() -> Value {
    json!({"crons": [{"name": "rush", "start": "1/4 * * * *", "end": "2/4 * * * *", "targetReplicas": FLOOR}]})
}

fn tenant(number: usize) -> String {
    format!("{TENANT}-{number}")
}

impl Scene for Harmless {
    type Upset = Kind;
    type Record = Vec<BTreeMap<&'static str, u64>>;

    const UPSETS: &'static [&'static str] = &Kind::NAMES;
    const SHARE: u64 = 10;
    const HEALED: u64 = 105;
    const ALIVE: u64 = Self::HEALED + 50;
    const SETTLED: u64 = 208;
    const END: u64 = 224;

    fn rate(_seed: u64) -> u64 {
        0
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed);
        let kind = Kind::of(seed, &mut dice);
        let mut needs: Vec<_> = (0..5)
            .map(|_change| {
                let app = ["web", "own"][dice.index(2)];
                (20 + dice.below(90), app, 1 + dice.below(10))
            })
            .collect();
        // A decrease that waits when a clock is stepped.
        needs.extend([(BEGINS - 3, "api", 2), (90, "api", 9)]);
        needs.extend([(BEGINS + 5, "own", 8), (BEGINS + 8, "ext", 9)]);
        needs.sort_unstable();
        let mut scene = Self {
            cluster: Cluster::new(seed, plan),
            kind,
            is_one_space: seed % 2 == 1,
            needs,
            series: Vec::new(),
            orphans: 0,
        };
        scene.populate();
        scene.cluster.start(HOST);
        scene
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn upsets_at(&self, second: u64) -> Vec<(usize, Kind)> {
        if second == BEGINS {
            vec![(0, self.kind)]
        } else {
            Vec::new()
        }
    }

    fn kind_of(upset: &Kind) -> Option<&'static str> {
        Some(upset.name())
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
            Kind::Step(seconds) => self.cluster.step_clock(HOST, *seconds),
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
        if self.kind == Kind::Garbled {
            self.cluster
                .edit_in(TENANT, "own", &json!({"minReplicas": 1}));
        }
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        for (_, app, pods) in self.needs.iter().filter(|(at, _, _)| *at == second) {
            self.cluster.needs(app, *pods);
        }
        let since_edit = second.saturating_sub(BEGINS + 2) % EDIT;
        let is_edited = (BEGINS + 2..Self::HEALED).contains(&second);
        if is_edited && since_edit == 0 {
            let even = second / EDIT % 2;
            self.cluster
                .edit("web", &json!({"maxReplicas": MAX - even}));
        }
        self.cluster.second()?;
        if is_edited && since_edit == REPORTED && !self.cluster.is_reported("web") {
            return Err("due: the status of web is not of its edit".to_owned());
        }
        if self.kind == Kind::Registration {
            self.check_registrations(second)?;
        }
        let mut now = BTreeMap::new();
        for app in ["web", "api", "own"] {
            if app != "own" || self.kind.leaves_own() {
                now.insert(app, self.cluster.replicas(app));
            }
        }
        if self.kind == Kind::External {
            now.insert("ext", self.cluster.replicas("ext"));
        }
        self.series.push(now);
        let (opens, closes) = WINDOW;
        let is_due = self.kind == Kind::Metrics && (opens + DUE..closes).contains(&second);
        if is_due && self.cluster.replicas("own") < FLOOR {
            return Err(format!(
                "due: the window of own is open, and it has {}",
                self.cluster.replicas("own")
            ));
        }
        let attempts = self.cluster.network().troubled().len();
        let most = if self.kind == Kind::Orphan {
            2
        } else {
            ATTEMPTS
        };
        if attempts > most {
            return Err(format!(
                "attempts: {attempts} requests were sent although none is answered"
            ));
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<(), String> {
        for app in ["web", "api", "own"] {
            let (count, load) = (
                self.cluster.replicas(app),
                self.cluster.load.at(app, self.cluster.now()),
            );
            let needed = needed(load).min(MAX);
            if count < needed {
                return Err(format!("alive: {app} has {count} and needs {needed}"));
            }
        }
        Ok(())
    }

    fn record(&self) -> Self::Record {
        self.series.clone()
    }

    fn compare(
        _seed: u64,
        record: &Self::Record,
        undisturbed: &Self::Record,
    ) -> Result<(), String> {
        for (second, now) in record.iter().enumerate() {
            let from = second.saturating_sub(LATER);
            let to = (second + EARLIER + 1).min(undisturbed.len());
            for (name, value) in now {
                let others = undisturbed[from..to].iter().map(|other| other[name]);
                let (least, most) = others.fold((u64::MAX, 0), |(least, most), other| {
                    (least.min(other), most.max(other))
                });
                if !(least..=most).contains(value) {
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
    /// The apps of the shop, and what the tenant has for its trouble.
    fn populate(&mut self) {
        let (cluster, direct) = (&mut self.cluster, (1, "Direct"));
        cluster.autoscaler("web", 2, "Delegated", &json!({}));
        cluster.autoscaler("api", 6, "Direct", &json!({}));
        let own = if self.kind == Kind::Metrics {
            window()
        } else {
            json!({})
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
            Kind::External => {
                cluster.autoscaler("ext", 2, "Direct", &external("ext"));
                cluster.needs("ext", 3);
                let (spaces, each) = if self.is_one_space { (1, 30) } else { (5, 8) };
                for space in 0..spaces {
                    cluster.namespace(&tenant(space));
                    for number in 0..each {
                        let kind = if number % 8 == 7 { "fast" } else { "hang" };
                        let name = format!("{kind}-{space}-{number}");
                        let metric = external(&name);
                        cluster.autoscaler_in(&tenant(space), &name, direct, &metric);
                    }
                }
            }
            Kind::Garbled => cluster.adopted_hpa(TENANT, "own", None),
            Kind::Orphan | Kind::Registration | Kind::Discovery | Kind::Step(_) => {}
        }
    }

    /// The API server writes whether it reaches the adapter.
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

    fn name_unknown_kind(&self, number: usize) {
        let api = format!("work.tenant.example/v{}", number + 1);
        self.cluster
            .autoscaler_without_target(TENANT, &tenant(number), &api);
    }
}

#[test]
fn what_others_get_is_the_same_with_and_without_trouble() {
    seeds::play::<Harmless>();
}
