//! Whole syncs over a fleet in memory: a hub and its members, what is written where, and what is not.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use foretide::{
    autoscaler::{
        Setup,
        fleet::{FleetAutoscaler, Told},
    },
    clock::Clock,
    domain::{
        cron::Zone,
        federate::{Health, Profile},
        hpa::Settings,
    },
    ports::{Fleet, MemberView},
};
use foretide_crds::{ClusterStatus, FederatedHPA, FederatedHPAStatus};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::memory::Memory;

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: \
                   {type: Utilization, averageUtilization: 50}}}]";

/// The members, and whether they can be reached.
#[derive(Clone, Default)]
struct Members(Arc<Mutex<BTreeMap<String, (Memory, Health)>>>);

impl Fleet for Members {
    type Member = Memory;

    fn is_synced(&self) -> bool {
        true
    }

    fn members(&self) -> Vec<Arc<MemberView<Memory>>> {
        let members = self.0.lock().unwrap();
        let view = |(name, (memory, health)): (&String, &(Memory, Health))| {
            Arc::new(MemberView {
                profile: Profile {
                    name: name.clone(),
                    ..Profile::default()
                },
                taints: Vec::new(),
                prometheus: None,
                health: *health,
                cluster: Some(Arc::new(memory.clone())),
                problem: None,
            })
        };
        members.iter().map(view).collect()
    }

    async fn changed(&self) {
        std::future::pending().await
    }
}

/// A hub and its members, under a clock that the test sets.
struct World {
    hub: Memory,
    members: Members,
    clock: Clock,
    start: Timestamp,
    autoscaler: FleetAutoscaler<Memory, Members>,
}

impl World {
    /// Members with so many replicas of Deployment `web`, of 200m each.
    fn new(members: &[(&str, u32)]) -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::starting_at(start, 1e-6);
        let fleet = Members::default();
        for (name, replicas) in members {
            let memory = Memory::default();
            memory.state().replicas.insert("web".into(), *replicas);
            memory.state().room = Some(100);
            memory.state().millicores = i64::from(*replicas) * 100;
            let mut all = fleet.0.lock().unwrap();
            all.insert((*name).to_owned(), (memory, Health::Ready));
        }
        let hub = Memory::default();
        let autoscaler = Self::autoscaler(&hub, &fleet, &clock);
        Self {
            hub,
            members: fleet,
            clock,
            start,
            autoscaler,
        }
    }

    fn autoscaler(
        hub: &Memory,
        members: &Members,
        clock: &Clock,
    ) -> FleetAutoscaler<Memory, Members> {
        let setup = Setup {
            sync_period: SignedDuration::from_secs(15),
            local_zone: Zone::utc(),
            settings: Settings::default(),
        };
        let told = Told {
            forecasts: Arc::default(),
            telemetry: Arc::default(),
        };
        FleetAutoscaler::new(
            Arc::new(hub.clone()),
            Arc::new(members.clone()),
            clock.clone(),
            setup,
            told,
        )
    }

    /// The controller is another one, which knows what status says.
    fn restart(&mut self) {
        self.autoscaler = Self::autoscaler(&self.hub, &self.members, &self.clock);
    }

    fn put(&self, spec: &str) {
        let yaml = format!(
            "apiVersion: autoscaling.foretide.io/v1alpha1\nkind: FederatedHPA\n\
             metadata: {{name: web, namespace: shop, uid: uid-fleet, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, {spec}}}"
        );
        let fdhpa: FederatedHPA = serde_saphyr::from_str(&yaml).unwrap();
        self.hub.state().federated.insert("web".into(), fdhpa);
    }

    fn edit(&self, change: impl FnOnce(&mut FederatedHPA)) {
        let mut state = self.hub.state();
        let fdhpa = state.federated.get_mut("web").unwrap();
        change(fdhpa);
        fdhpa.metadata.generation = fdhpa.metadata.generation.map(|n| n + 1);
    }

    fn member(&self, name: &str) -> Memory {
        self.members.0.lock().unwrap()[name].0.clone()
    }

    fn health(&self, name: &str, health: Health) {
        self.members.0.lock().unwrap().get_mut(name).unwrap().1 = health;
    }

    /// One sync at so many seconds after the start; returns what it wrote, by cluster.
    async fn sync(&mut self, second: i64) -> Vec<String> {
        let now = self.start + SignedDuration::from_secs(second);
        self.clock.set(now, 1e-6);
        let members = self.members.0.lock().unwrap().clone();
        for (memory, _) in members.values() {
            memory.state().now = now;
        }
        self.autoscaler.sync().await;
        let own = self.hub.writes().into_iter();
        let mut writes: Vec<String> = own.map(|write| format!("hub: {write}")).collect();
        for (name, (memory, _)) in &members {
            let of_member = memory.writes().into_iter();
            writes.extend(of_member.map(|write| format!("{name}: {write}")));
        }
        writes
    }

    /// What the members' own autoscalers do with their load.
    fn autoscale(&self) {
        for (memory, _) in self.members.0.lock().unwrap().values() {
            let mut state = memory.state();
            let Some(hpa) = state.hpas.values().next().cloned() else {
                continue;
            };
            let bound = |name: &str| u32::try_from(hpa.spec[name].as_u64().unwrap()).unwrap();
            let wanted = u32::try_from(state.millicores / 100).unwrap();
            let wanted = wanted.min(bound("maxReplicas")).max(bound("minReplicas"));
            if state.replicas["web"] > 0 {
                state.replicas.insert("web".into(), wanted);
            }
            for hpa in state.hpas.values_mut() {
                hpa.status = json!({ "desiredReplicas": wanted });
            }
        }
    }

    fn status(&self) -> FederatedHPAStatus {
        self.hub.state().federated["web"]
            .status
            .clone()
            .unwrap_or_default()
    }

    fn cluster(&self, name: &str) -> ClusterStatus {
        let clusters = self.status().clusters.unwrap();
        clusters.into_iter().find(|c| c.name == name).unwrap()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.status().fleet.conditions.unwrap_or_default();
        let found = conditions.into_iter().find(|c| c.type_ == kind).unwrap();
        (found.status, found.reason)
    }

    /// Bounds of the members' autoscalers, by member.
    fn bounds(&self) -> BTreeMap<String, (u64, u64)> {
        let members = self.members.0.lock().unwrap();
        let bounds = members.iter().filter_map(|(name, (memory, _))| {
            let state = memory.state();
            let hpa = state.hpas.values().next()?;
            let bound = |field: &str| hpa.spec[field].as_u64().unwrap();
            Some((name.clone(), (bound("minReplicas"), bound("maxReplicas"))))
        });
        bounds.collect()
    }
}

fn bounds(of: &[(&str, (u64, u64))]) -> BTreeMap<String, (u64, u64)> {
    of.iter().map(|(name, both)| ((*name).to_owned(), *both)).collect()
}

fn weighted(spec: &str) -> String {
    format!(
        "minReplicas: 2, maxReplicas: 10, {CPU}, federatedHPAAssignment: {{federatedHPAAssignmentType: \
         StaticWeighted, clusterAutoscalingPreference: [{{targetCluster: {{clusterNames: [m1]}}, \
         staticWeight: 1}}, {{targetCluster: {{clusterNames: [m2]}}, staticWeight: 4}}]}}, {spec}"
    )
}

#[tokio::test]
async fn bounds_are_divided_once_and_a_settled_fleet_costs_no_write() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    let first = world.sync(0).await;
    assert_eq!(world.bounds(), bounds(&[("m1", (1, 2)), ("m2", (2, 8))]), "{first:?}");
    world.autoscale();
    for pass in 1..3 {
        world.sync(pass * 15).await;
    }
    for pass in 3..40 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
}
