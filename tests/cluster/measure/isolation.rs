//! A thousand autoscalers in fifty namespaces, of which some use a dependency that hangs: how much later the decisions
//! about all others come.

use std::{collections::BTreeMap, fmt};

use futures::{StreamExt, future::join_all, stream};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use rig::{
    ClusterOptions, Component, FakeMetrics, FakeScales, Fleet, HpaFlags, MetricsApi, NodeSize,
    Prometheus, Reading, eventually,
};
use serde_json::json;
use tokio::process::Command;

use super::{
    PERIOD,
    decisions::{Object, Span},
    now,
    phase::{Meter, Phase, print_table},
    process::{Launch, Process},
    thousand::{
        Group, MEMBERS, NAMESPACES, apply_all, deployment, hub_history, manifests, members_history,
        metric_of, role, serve_usage,
    },
    until,
};
use crate::world::install;

/// How long the thousand objects may take until each has been decided a few times and every forecast is there.
const SETTLED: std::time::Duration = std::time::Duration::from_mins(12);
/// The namespace of the members' Secrets.
const SYSTEM: &str = "foretide-system";
/// The endpoint of the fleets' history.
const WEST: &str = "west";
/// What a window asks for, besides the one replica that each object has, or the three of a fleet.
const WINDOW: i64 = 6;

/// What hangs in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dependency {
    CustomMetrics,
    Scales,
    Prometheus,
    Member,
}

/// The clusters and servers.
struct Environment {
    fleet: Fleet,
    metrics: FakeMetrics,
    scales: FakeScales,
    _usage: Vec<FakeMetrics>,
    /// Of the hub.
    prometheus: Prometheus,
    _west: Prometheus,
    launch: Launch,
    objects: BTreeMap<Group, Vec<Object>>,
}

// === impl Dependency ===

impl Dependency {
    const fn users(self) -> Group {
        match self {
            Self::CustomMetrics => Group::Custom,
            Self::Scales => Group::Queue,
            Self::Prometheus => Group::Forecast,
            Self::Member => Group::Spread,
        }
    }

    /// Two and a half minutes; a forecast is made again after four, so that its server has to hang for longer.
    const fn length(self) -> SignedDuration {
        match self {
            Self::Prometheus => SignedDuration::from_secs(390),
            _ => SignedDuration::from_secs(150),
        }
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CustomMetrics => "custom.metrics.k8s.io hangs",
            Self::Scales => "an API group of targets hangs",
            Self::Prometheus => "one Prometheus of two hangs",
            Self::Member => "one member of three hangs",
        })
    }
}

#[ignore = "measures for half an hour; run it with `just isolation`"]
#[tokio::test(flavor = "multi_thread")]
async fn isolation_of_a_thousand_autoscalers() {
    let environment = Environment::start().await;
    let process = environment.launch.start();
    environment.settle(&process).await;
    let mut phases = vec![environment.undisturbed(&process).await];
    for dependency in [
        Dependency::CustomMetrics,
        Dependency::Scales,
        Dependency::Member,
        // Last: forecasts that were not made in time are made again within four minutes.
        Dependency::Prometheus,
    ] {
        phases.push(environment.disturbed(&process, dependency).await);
    }
    phases.push(environment.undisturbed(&process).await);
    print_table(&phases);
    println!("peak resident: {} MiB", process.peak_resident());
    println!("warnings: {:#?}", environment.launch.decisions().warnings);
    for phase in phases {
        let missed = phase.windows.map_or(0, |(_, missed)| missed);
        assert_eq!(missed, 0, "windows missed while {}", phase.name);
        assert_ne!(phase.others.count(), 0, "{}", phase.name);
    }
}

// === impl Environment ===

impl Environment {
    async fn start() -> Self {
        // No controllers in the hub: its Deployments have a count and no pods.
        let hub = ClusterOptions::named("isolation-hub")
            .without(Component::KubeControllerManager)
            .without(Component::KubeScheduler)
            .without(Component::Kwok)
            .nodes(0, NodeSize::new("1", "1Gi", 1));
        let members = MEMBERS.map(|name| {
            ClusterOptions::named(name)
                .nodes(2, NodeSize::new("64", "256Gi", 400))
                .hpa(HpaFlags::upstream())
        });
        let fleet = Fleet::start(hub, members.to_vec()).await.unwrap();
        let kubeconfig = install(&fleet.hub).await;
        let objects = Group::ALL.map(|group| (group, group.objects())).into();
        let histories = (hub_history(&objects), members_history(&objects));
        let (metrics, scales, prometheus, west) = tokio::join!(
            FakeMetrics::start(&fleet.hub, &[MetricsApi::Custom, MetricsApi::External]),
            FakeScales::start(&fleet.hub),
            Prometheus::start(&histories.0),
            Prometheus::start(&histories.1),
        );
        let (prometheus, west) = (prometheus.unwrap(), west.unwrap());
        let environment = Self {
            launch: Launch::new(&kubeconfig, flags(&prometheus, &west)),
            fleet,
            metrics: metrics.unwrap(),
            scales: scales.unwrap(),
            _usage: Vec::new(),
            prometheus,
            _west: west,
            objects,
        };
        let usage = environment.create().await;
        Self {
            _usage: usage,
            ..environment
        }
    }

    /// Creates every object, with its target and its metrics; returns what serves the usage of the members' pods.
    async fn create(&self) -> Vec<FakeMetrics> {
        self.fleet.hub.apply(&role()).await.unwrap();
        for member in MEMBERS {
            self.join(member).await;
        }
        for namespace in (0..NAMESPACES).map(|n| format!("team-{n}")) {
            self.fleet.hub.namespace(&namespace).await.unwrap();
            for (_, member) in self.fleet.members() {
                member.cluster.namespace(&namespace).await.unwrap();
            }
        }
        for (group, objects) in &self.objects {
            for object in objects {
                self.serve(*group, object);
            }
            let manifests = objects.iter().flat_map(|object| manifests(*group, object));
            let manifests: Vec<_> = manifests.collect();
            apply_all(&self.fleet.hub, &manifests).await;
            for member in group.members() {
                let deployments = objects.iter().map(|object| deployment(object).to_string());
                let cluster = &self.fleet.member(member).cluster;
                apply_all(cluster, &deployments.collect::<Vec<_>>()).await;
            }
        }
        let members = self
            .fleet
            .members()
            .map(|(_, member)| serve_usage(&member.cluster));
        let usage = join_all(members).await;
        println!("created");
        usage
    }

    /// Healthy metrics of an object, which ask for the replicas that it has.
    fn serve(&self, group: Group, (namespace, name): &Object) {
        let reading = Reading::new("5");
        match group {
            Group::Custom => {
                let described = ("deployments.apps", name.as_str());
                self.metrics
                    .set_object_metric(namespace, described, "depth", reading);
            }
            Group::Queue => self.scales.add(namespace, name, 1),
            _ => {}
        }
        if matches!(group, Group::Queue | Group::Forecast | Group::Plain) {
            let metric = metric_of(name);
            self.metrics
                .set_external(namespace, &metric, vec![Reading::new("5")]);
        }
    }

    async fn join(&self, member: &str) {
        let joined = Command::new(env!("CARGO_BIN_EXE_foretide"))
            .args([
                "members",
                "add",
                member,
                "--allow-loopback",
                "--prometheus",
                WEST,
            ])
            .arg("--kubeconfig")
            .arg(self.fleet.member(member).admin_kubeconfig().unwrap())
            .arg("--hub-kubeconfig")
            .arg(self.fleet.hub.kubeconfig_path())
            .output();
        let joined = joined.await.unwrap();
        let trouble = String::from_utf8_lossy(&joined.stderr);
        assert!(joined.status.success(), "{trouble}");
    }

    /// Waits until every object was decided a few times and every forecast is there.
    async fn settle(&self, process: &Process) {
        let all: Vec<_> = self.objects.values().flatten().collect();
        let with_forecast = [Group::Forecast, Group::Spread, Group::Near];
        let forecasts: usize = with_forecast
            .map(|group| self.objects[&group].len())
            .iter()
            .sum();
        eventually(
            SETTLED,
            "every object has its decisions and forecasts",
            || async {
                let decided = self.launch.decisions().decided(all.iter().copied(), 3);
                let forecast = process
                    .series("foretide_forecast_model_age_seconds")
                    .await
                    .len();
                if decided == all.len() && forecast >= forecasts {
                    Ok(())
                } else {
                    Err(format!(
                        "{decided} decided, {forecast} forecasts of {forecasts}"
                    ))
                }
            },
        )
        .await;
        println!("settled; peak resident {} MiB", process.peak_resident());
    }

    async fn undisturbed(&self, process: &Process) -> Phase {
        let (from, meter) = (now(), Meter::start(process));
        until(from + SignedDuration::from_secs(150)).await;
        let span = Span { from, to: now() };
        let phase = self.phase(process, None, (span, meter), None).await;
        phase.print("undisturbed");
        phase
    }

    /// A phase in which one dependency hangs; it ends two periods after the dependency answers again.
    async fn disturbed(&self, process: &Process, dependency: Dependency) -> Phase {
        let opens = self.open_windows(dependency.users()).await;
        let (from, meter) = (now(), Meter::start(process));
        self.hang(dependency, true);
        until(from + dependency.length()).await;
        let hung = Span { from, to: now() };
        self.hang(dependency, false);
        until(hung.to + PERIOD * 2).await;
        let span = Span { from, to: now() };
        let mut phase = self
            .phase(
                process,
                Some((dependency.users(), hung)),
                (span, meter),
                Some(opens),
            )
            .await;
        phase.name = dependency.to_string();
        if dependency == Dependency::Scales {
            // Nothing can be written while their scale hangs.
            phase.windows = None;
        }
        phase.print("");
        phase
    }

    fn hang(&self, dependency: Dependency, hangs: bool) {
        match (dependency, hangs) {
            (Dependency::CustomMetrics, _) => self.metrics.hang(MetricsApi::Custom, hangs),
            (Dependency::Scales, _) => self.scales.hang(hangs),
            (Dependency::Prometheus, true) => self.prometheus.pause().unwrap(),
            (Dependency::Prometheus, false) => self.prometheus.resume().unwrap(),
            (Dependency::Member, true) => self.fleet.member("member3").block(),
            (Dependency::Member, false) => self.fleet.member("member3").unblock(),
        }
    }

    /// Gives one object of the group in each namespace a window, and returns when they open: at a full minute, so that
    /// the dependency hangs by then.
    async fn open_windows(&self, group: Group) -> Timestamp {
        let in_a_minute = (now().as_second() + 105) / 60 * 60;
        let opens = Timestamp::from_second(in_a_minute).unwrap();
        let start = opens.to_zoned(TimeZone::UTC).strftime("%-M %-H %-d %-m *");
        let window = json!({ "spec": { "crons": [{
            "name": "window", "start": start.to_string(), "end": "0 0 1 1 *", "timezone": "UTC",
            "targetReplicas": WINDOW,
        }] } });
        let kind = if group.is_fleet() {
            GroupVersionKind::gvk("autoscaling.foretide.io", "v1alpha1", "FederatedHPA")
        } else {
            let kind = "EffectiveHorizontalPodAutoscaler";
            GroupVersionKind::gvk("autoscaling.crane.io", "v1alpha1", kind)
        };
        let resource = ApiResource::from_gvk(&kind);
        let patches = self.with_window(group).map(|(namespace, name)| {
            let client = self.fleet.hub.client();
            let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
            let patch = Patch::Merge(&window);
            async move {
                let parameters = PatchParams::default();
                objects.patch(name, &parameters, &patch).await.unwrap();
            }
        });
        stream::iter(patches).buffer_unordered(8).count().await;
        opens
    }

    /// The objects of a group that get a window.
    fn with_window(&self, group: Group) -> impl Iterator<Item = &Object> {
        let objects = self.objects[&group].iter();
        objects.filter(|(_, name)| name.ends_with("-0"))
    }

    /// What was measured in a span, in a part of which the dependency of these users hung.
    async fn phase(
        &self,
        process: &Process,
        users: Option<(Group, Span)>,
        (span, meter): (Span, Meter),
        opens: Option<Timestamp>,
    ) -> Phase {
        let (busy_percent, cpu_percent) = meter.end(process, span);
        let group = users.map(|(group, _)| group);
        let others = self
            .objects
            .iter()
            .filter(|(other, _)| Some(**other) != group);
        let others = others.flat_map(|(_, objects)| objects);
        let oldest_forecast = self.oldest_forecast(process, group).await;
        let decisions = self.launch.decisions();
        let windows = group.zip(opens).map(|(group, opens)| {
            let reached = |object| decisions.reached(object, WINDOW, opens);
            let reached: Vec<_> = self.with_window(group).map(reached).collect();
            let worst = reached.iter().flatten().copied().fold(0.0, f64::max);
            (worst, reached.iter().filter(|one| one.is_none()).count())
        });
        Phase {
            name: "undisturbed".to_owned(),
            others: decisions.ages(others, span),
            users: users.map(|(group, hung)| decisions.ages(&self.objects[&group], hung)),
            windows,
            oldest_forecast,
            busy_percent,
            cpu_percent,
        }
    }

    async fn oldest_forecast(&self, process: &Process, except: Option<Group>) -> f64 {
        let except = except.map_or("none", Group::name);
        let except = format!("name=\"{except}-");
        let ages = process.series("foretide_forecast_model_age_seconds").await;
        let others = ages.iter().filter(|(labels, _)| !labels.contains(&except));
        others.map(|(_, age)| *age).fold(0.0, f64::max)
    }
}

fn flags(prometheus: &Prometheus, west: &Prometheus) -> Vec<String> {
    let west = format!("{WEST}={}", west.url());
    let flags = [
        "--prometheus",
        &prometheus.url(),
        "--prometheus-endpoint",
        &west,
        "--member-namespace",
        SYSTEM,
        "--member-allow-loopback",
    ];
    flags.map(str::to_owned).to_vec()
}
