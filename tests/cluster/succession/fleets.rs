//! Leaders that stop while they write about fleets: to the hub, or to a member.

use futures::future::join_all;
use kube::Client;
use rig::Cluster;
use serde_json::{Value, json};

use super::{
    Account, Decreases, Pair, Replica, add_account, all_have, bound, first_of, member_account, now,
    reported, write::Write,
};
use crate::{
    fleet::world::{FleetWorld, SYSTEM},
    leadership::next_holder,
    world::{NAMESPACE, TIMEOUT},
};

/// Fleets that change at once.
const FLEETS: usize = 20;
/// The namespace in which replica `two` finds the member.
const MEMBERS_OF_TWO: &str = "members-of-two";

/// Fleets that are created at once; each has this count, and its workload is placed by the hub.
#[derive(Debug, Clone, Copy)]
struct Batch {
    name: &'static str,
    count: i32,
}

/// The first batch of a scenario.
const FIRST: Batch = Batch {
    name: "first-",
    count: 1,
};
/// Another one.
const SECOND: Batch = Batch {
    name: "second-",
    count: 2,
};

// === impl Batch ===

impl Batch {
    fn names(self) -> impl Iterator<Item = String> {
        (0..FLEETS).map(move |n| format!("{}{n}", self.name))
    }

    /// Creates the templates of the workloads in the hub.
    async fn create_templates(self, hub: &Cluster) {
        let created = self.names().map(|name| async move {
            let template = template(&name).to_string();
            hub.apply(&template).await.unwrap();
        });
        join_all(created).await;
    }

    async fn create(self, hub: &Cluster) {
        let created = self.names().map(|name| async move {
            let fleet = json!({
                "apiVersion": "autoscaling.foretide.io/v1alpha1",
                "kind": "FederatedHPA",
                "metadata": { "name": name, "namespace": NAMESPACE },
                "spec": {
                    "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                    "minReplicas": self.count,
                    "maxReplicas": self.count,
                    "mode": "Delegated",
                    "workloadSource": "Hub",
                    "federatedHPAAssignment": { "federatedHPAAssignmentType": "Duplicated" },
                },
            });
            hub.apply(&fleet.to_string()).await.unwrap();
        });
        join_all(created).await;
    }

    async fn runs(self, member: &Client, count: i32) {
        all_have(member, self.name, FLEETS, count).await;
    }
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "app", "image": "app:1",
                    "resources": { "requests": { "cpu": "100m" } },
                }] },
            },
        },
    })
}

async fn start(name: &str) -> FleetWorld {
    let world = FleetWorld::start_apart(name, &[("member1", 100)]).await;
    world.join("member1", &["--place"]).await;
    world
}

/// A leader and a standby, each with accounts of its own in the hub and in the member.
async fn replicas(world: &FleetWorld) -> Pair {
    let hub = &world.fleet.hub;
    let one = Account {
        name: "one",
        kubeconfig: add_account(hub, "one").await,
        flags: &["--member-allow-loopback", "--member-namespace", SYSTEM],
    };
    let two = Account {
        name: "two",
        kubeconfig: add_account(hub, "two").await,
        flags: &[
            "--member-allow-loopback",
            "--member-namespace",
            MEMBERS_OF_TWO,
        ],
    };
    show_the_member_to_two(world).await;
    let leader = Replica::start(one);
    next_holder(&hub.client(), TIMEOUT, "").await;
    Pair::with_standby(leader, two, hub).await
}

/// Replica `two` reads the member's Secret in a namespace of its own, and has an account of its own in the member.
async fn show_the_member_to_two(world: &FleetWorld) {
    let (hub, member) = (&world.fleet.hub, world.fleet.member("member1"));
    let in_member = member_account("two");
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": in_member, "namespace": SYSTEM },
    });
    let binding = bound(in_member, SYSTEM, ["ClusterRole", "foretide-member"]);
    member.cluster.apply(&account.to_string()).await.unwrap();
    member.cluster.apply(&binding.to_string()).await.unwrap();
    let kubeconfig = member.kubeconfig(SYSTEM, in_member).await.unwrap();
    hub.namespace(MEMBERS_OF_TWO).await.unwrap();
    let unlabeled = json!({});
    let registered =
        world
            .fleet
            .register_member("member1", MEMBERS_OF_TWO, &kubeconfig, &unlabeled);
    registered.await.unwrap();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": { "name": "foretide-members", "namespace": MEMBERS_OF_TWO },
        "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"] },
            {
                "apiGroups": ["multicluster.x-k8s.io"], "resources": ["clusterprofiles"],
                "verbs": ["list", "watch"],
            },
        ],
    });
    hub.apply(&role.to_string()).await.unwrap();
    let binding = bound("two", MEMBERS_OF_TWO, ["Role", "foretide-members"]);
    hub.apply(&binding.to_string()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_ledgers_or_hpas_in_a_member_writes_no_more() {
    let world = start("paused-fleets").await;
    let (hub, member) = (&world.fleet.hub, world.cluster("member1"));
    for batch in [FIRST, SECOND] {
        batch.create_templates(hub).await;
    }
    let mut pair = replicas(&world).await;
    let decreases = Decreases::of(member.client());
    let phases = [
        (FIRST, Write::Ledger, hub.client()),
        (SECOND, Write::Hpa, member.client()),
    ];
    let mut created = 0;
    for (batch, kind, shown_in) in phases {
        if created > 0 {
            pair = pair.swap(hub).await;
        }
        let since = now();
        let first = first_of(&shown_in, kind, batch.count).await;
        let paused = pair.pause(&hub.client(), first, batch.create(hub)).await;
        batch.runs(&member.client(), batch.count).await;
        created += FLEETS;
        reported(&hub.client(), Write::Ledger, created).await;
        pair.resume(paused).await;
        let of_old = pair.assert_succession(&[hub, member], since);
        kind.assert_unfinished(&of_old, FLEETS);
    }
    decreases.assert_none();
}
