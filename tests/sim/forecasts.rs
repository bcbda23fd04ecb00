//! The scenario of forecasts: apps with the load of the days before, and a Prometheus that is in trouble.
//!
//! One replica. The kind of trouble follows from the seed, so a few seeds have all of them. A forecast asks for
//! replicas before the load comes; it says nothing about the unknown, and it never lasts.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::{
    faults::Plan,
    network::Way,
    world::prometheus::{Defects, Prometheus},
};

use crate::{
    cluster::{Cluster, PER_POD, PERIOD, PROMETHEUS, START, TENANT},
    laws::needed,
    predictions::silent,
    schedule::Dice,
    seeds::{self, Scenario},
};

const HOST: &str = "pod-0";
const APPS: [(&str, &str); 2] = [("web", "Delegated"), ("api", "Direct")];
/// Days of history in Prometheus.
const DAYS: i64 = 4;
/// The pods that are needed on each day, from a second on.
const DAY: [(i64, u64); 6] = [
    (0, 4),
    (RISE, 8),
    (3_600, 5),
    (21_600, 7),
    (43_200, 6),
    (64_800, 4),
];
const RISE: i64 = 300;
/// Seconds until a requested pod is ready, as in the spec.
const LEAD_TIME: i64 = 60;
/// Span of time from the start in which nothing is scraped; for six minutes after it there is no forecast.
const OUTAGE: (SignedDuration, SignedDuration) =
    (SignedDuration::from_mins(-6), SignedDuration::from_secs(50));
/// Second of the first forecast.
const FIRST: u64 = 45;
/// Seconds that a forecast lasts: three minutes after the last known sample, and a sync that notices.
const LASTS: u64 = 180 + 75;
/// An app that needs more than its maximum.
const LIMITED: &str = "limited";
/// Number of sleeps of the app's host, which is at its limits for more than a fifth of a day.
const SLEEPS: u64 = 6;
const SLEEP: Duration = Duration::from_hours(1);
const AWAKE: u64 = 50;
/// An app with more pods than its spec asks for, as in an update that does not end, each of which uses the same.
const UPDATED: &str = "updated";
const UPDATED_PODS: u64 = 4;
const UPDATE: u64 = 50;
/// Number of autoscalers of a tenant without an answer.
const SERIES: usize = 20;
/// A part of the queries about a tenant.
const OF_TENANT: &str = "namespace=\"tenant\"";
/// Largest number of their queries during the trouble.
const ATTEMPTS: usize = 45;

/// Trouble of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing listens on the port.
    Down,
    /// Prometheus answers nothing.
    Silent,
    /// Prometheus answers nothing about the apps of a tenant and about one beside those of the shop.
    SilentAboutTenant,
    /// Half of the data is missing.
    Partial,
    /// Prometheus scraped nothing for a while, and only some pods since then.
    Outage,
    /// Samples are known later.
    Lag,
    /// No trouble of Prometheus; for hours an app needs more than its maximum, and the host is awake for some of each
    /// hour.
    AtLimits,
}

struct Forecasts {
    cluster: Cluster,
    prometheus: Prometheus,
    kind: Kind,
    begins: u64,
    /// Requests have no faults.
    is_calm: bool,
    second: u64,
}

// === impl Kind ===

impl Kind {
    const NAMES: [&str; 7] = [
        "down",
        "silent",
        "silent about a tenant",
        "partial",
        "outage",
        "lag",
        "at its limits",
    ];

    const ALL: [Self; 7] = [
        Self::Down,
        Self::Silent,
        Self::SilentAboutTenant,
        Self::Partial,
        Self::Outage,
        Self::Lag,
        Self::AtLimits,
    ];

    /// Returns whether the apps of the shop are without new history.
    fn is_blind(self) -> bool {
        !matches!(self, Self::SilentAboutTenant | Self::Lag | Self::AtLimits)
    }

    fn defects(self) -> Defects {
        let none = Defects::default();
        match self {
            Self::Down | Self::AtLimits => none,
            Self::Silent => silent(""),
            Self::SilentAboutTenant => silent(&format!("\"^{TENANT}-")),
            Self::Partial => Defects {
                is_partial: true,
                ..none
            },
            Self::Outage => Defects {
                outage: Some((START + OUTAGE.0, START + OUTAGE.1)),
                ..none
            },
            Self::Lag => Defects {
                lag: SignedDuration::from_secs(50),
                ..none
            },
        }
    }
}

impl Scenario for Forecasts {
    type Disruption = Kind;
    type Record = ();

    const DISRUPTIONS: &'static [&'static str] = &Kind::NAMES;
    const COMPARED: u64 = 0;
    const SHARE: u64 = 4;
    const COVERS: u64 = 12;
    const HEALED: u64 = 350;
    const ALIVE: u64 = Self::HEALED + 100;
    // Never at rest, because forecasts are published for ever.
    const SETTLED: u64 = Self::ALIVE;
    const END: u64 = Self::ALIVE;

    fn rate(seed: u64) -> u64 {
        40 * (seed / Kind::ALL.len() as u64 % 2)
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed);
        let kind = Kind::ALL[usize::try_from(seed).unwrap() % Kind::ALL.len()];
        let mut cluster = Cluster::new(seed, plan);
        cluster.elects = false;
        let prometheus = with_days(&mut cluster, true);
        let days = START - SignedDuration::from_hours(24 * DAYS);
        cluster.load.set(UPDATED, days, UPDATED_PODS * PER_POD);
        cluster.autoscaler(UPDATED, UPDATED_PODS, "Direct", &predicted());
        if kind == Kind::AtLimits {
            load_days(&cluster, LIMITED, true);
            let most = json!({"maxReplicas": 2, "prediction": {"leadTimeSeconds": LEAD_TIME}});
            cluster.autoscaler(LIMITED, 2, "Direct", &most);
        }
        let mut scenario = Self {
            cluster,
            prometheus,
            kind,
            begins: if kind == Kind::Outage {
                0
            } else {
                60 + dice.below(20)
            },
            is_calm: Self::rate(seed) == 0,
            second: 0,
        };
        scenario.cluster.start(HOST);
        scenario
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn disruptions_at(&self, second: u64) -> Vec<(usize, Kind)> {
        if second == self.begins {
            vec![(0, self.kind)]
        } else {
            Vec::new()
        }
    }

    fn kind_of(disruption: &Kind) -> Option<&'static str> {
        Some(Kind::NAMES[*disruption as usize])
    }

    fn happen(&mut self, kind: &Kind) {
        self.prometheus.set(kind.defects());
        if *kind == Kind::Down {
            go_down(&self.cluster);
        }
        if matches!(kind, Kind::Silent | Kind::SilentAboutTenant) {
            for number in 0..SERIES {
                let name = format!("{TENANT}-{number}");
                self.cluster
                    .autoscaler_in(TENANT, &name, (1, "Direct"), &predicted());
            }
            let beside = format!("{TENANT}-beside");
            self.cluster.autoscaler(&beside, 1, "Direct", &predicted());
        }
    }

    fn heal(&mut self) {
        self.cluster.heal();
        let open = Way::Open(Duration::ZERO);
        self.cluster.network().set(HOST, PROMETHEUS, open);
        if self.kind != Kind::Outage {
            self.prometheus.set(Defects::default());
        }
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        self.second = second;
        if second == UPDATE {
            let surge = if self.is_calm { "25%" } else { "100%" };
            self.cluster.pause_update(UPDATED, surge);
        }
        self.cluster.uses_per_pod(UPDATED);
        self.cluster.second()?;
        let count = self.cluster.replicas(UPDATED);
        if count > UPDATED_PODS {
            return Err(format!(
                "bounded: {UPDATED} has {count}, and its load per pod is constant"
            ));
        }
        if self.kind == Kind::AtLimits {
            // Nothing is expected of the apps of the shop: their loads go on while the host sleeps.
            if second.is_multiple_of(AWAKE) && (1..=SLEEPS).contains(&(second / AWAKE)) {
                self.cluster.sleep(HOST, SLEEP);
            }
            return Ok(());
        }
        APPS.iter().try_for_each(|(app, _)| self.check(app))?;
        let (_, asked) = self.prometheus.asked(OF_TENANT);
        if asked > ATTEMPTS {
            return Err(format!(
                "attempts: {asked} queries of a tenant, and none is answered"
            ));
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<(), String> {
        for (app, _) in APPS {
            let now = self.cluster.now();
            let (count, needed) = (
                self.cluster.replicas(app),
                needed(self.cluster.load.at(app, now)),
            );
            if count < needed {
                return Err(format!("alive: {app} has {count} and needs {needed}"));
            }
            if self.kind != Kind::Outage && self.cluster.forecast(app).is_none() {
                let status = self.cluster.status(app);
                return Err(format!("alive: {app} has no forecast: {status}"));
            }
        }
        // The forecast is made of the demand that could be served. With faults, it may be invisible in the short time
        // in which the host is awake.
        let is_limited = self.kind == Kind::AtLimits && self.is_calm;
        if is_limited && !self.cluster.status(LIMITED).contains("at its limits") {
            return Err(format!(
                "alive: the forecast of {LIMITED} does not say what it is made of"
            ));
        }
        Ok(())
    }
}

impl Forecasts {
    /// Checks the forecast of an app.
    fn check(&self, app: &str) -> Result<(), String> {
        let (cluster, now) = (&self.cluster, self.cluster.now());
        let forecast = cluster.forecast(app);
        let least = cluster.load.least_between(
            app,
            now - SignedDuration::from_secs(90),
            now + SignedDuration::from_mins(2),
        );
        if forecast.is_some_and(|count| 10 * count < 7 * least / PER_POD) {
            return Err(format!(
                "low: the forecast of {app} asks for {forecast:?}, and it needs {}",
                needed(least)
            ));
        }
        let is_in_trouble = (self.begins..Self::HEALED).contains(&self.second);
        if is_in_trouble && self.kind.is_blind() {
            // A refused status is written by the next sync.
            let lasts = LASTS
                + if self.is_calm {
                    0
                } else {
                    2 * PERIOD.as_secs()
                };
            if forecast.is_some() && self.second > self.begins + lasts {
                return Err(format!(
                    "expired: {app} has a forecast, and nothing is known since {} s",
                    self.begins
                ));
            }
            return Ok(());
        }
        if self.is_calm && !self.kind.is_blind() && self.second > FIRST {
            if forecast.is_none() {
                return Err(format!("due: {app} has no forecast"));
            }
            let count = cluster.replicas(app);
            if i64::try_from(self.second) == Ok(RISE) && count < 8 {
                return Err(format!("due: {app} has {count} when its load comes"));
            }
        }
        Ok(())
    }
}

/// A prediction by default.
fn predicted() -> Value {
    json!({"prediction": {"leadTimeSeconds": LEAD_TIME}})
}

/// A Prometheus that knows days like this one, and apps with a forecast; with `comes`, their load comes today.
fn with_days(cluster: &mut Cluster, comes: bool) -> Prometheus {
    for (app, mode) in APPS {
        load_days(cluster, app, comes);
        cluster.autoscaler(app, 4, mode, &predicted());
    }
    cluster.add_prometheus(START - SignedDuration::from_hours(24 * DAYS))
}

/// The load of an app on each day.
fn load_days(cluster: &Cluster, app: &str, comes: bool) {
    for day in -DAYS..=0 {
        for (second, pods) in DAY {
            let at = START + SignedDuration::from_secs(day * 86_400 + second);
            if comes || at <= START {
                cluster.load.set(app, at, pods * PER_POD);
            }
        }
    }
}

fn go_down(cluster: &Cluster) {
    cluster.network().set(HOST, PROMETHEUS, Way::Refused);
    cluster.network().reset(HOST, PROMETHEUS);
}

#[test]
fn no_seed_breaks_a_law() {
    seeds::play::<Forecasts>();
}

/// Replicas that were added for a load that does not come stay until the forecast ends.
#[test]
fn a_forecast_raises_before_the_load_comes_and_its_floor_falls_away_when_it_expires() {
    let mut cluster = Cluster::without_election();
    with_days(&mut cluster, false);
    let have = |pods: u64| {
        move |cluster: &Cluster| APPS.iter().all(|(app, _)| cluster.replicas(app) == pods)
    };
    cluster.start(HOST);
    cluster.run_for(u64::try_from(RISE).unwrap() - 5);
    assert!(have(8)(&cluster), "{}", cluster.status("web"));
    go_down(&cluster);
    cluster.run_for(120);
    assert!(have(8)(&cluster), "{}", cluster.status("web"));
    cluster.until(LASTS, "what the load needs", have(4));
    let predictions = "timeseriespredictions.prediction.crane.io";
    for prediction in cluster.server.objects(predictions) {
        let metric = &prediction["status"]["predictionMetrics"][0];
        assert_eq!(metric["reason"], "QueryError", "{prediction}");
    }
    assert_eq!(cluster.server.objects(predictions).len(), APPS.len());
    for (app, _) in APPS {
        assert_eq!(cluster.forecast(app), None);
        assert!(
            cluster.status(app).contains("QueryError"),
            "{}",
            cluster.status(app)
        );
    }
    // A successor has no forecast at first, which says nothing of the one that was lost.
    assert_eq!(cluster.events("QueryError").len(), APPS.len());
    cluster.crash(HOST, 2);
    cluster.run_for(60);
    assert_eq!(cluster.events("QueryError").len(), APPS.len());
}
