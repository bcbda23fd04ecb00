//! Leaders that stop while they write about fleets: to the hub, or to a member.

use futures::future::join_all;
use kube::{Client, api::DeleteParams};
use rig::Cluster;
use serde_json::{Value, json};

use super::{
    Account, Decreases, Pair, Replica, add_account, all_have, bound, finished, first_of,
    member_account, now, objects, patch_all, write::Write,
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

/// Fleets that are created at once; each has this count and mode, and its workload is placed by the hub.
#[derive(Debug, Clone, Copy)]
struct Batch {
    name: &'static str,
    count: i32,
    mode: &'static str,
}

/// The first batch of a scenario.
const FIRST: Batch = Batch {
    name: "first-",
    count: 1,
    mode: "Delegated",
};
/// Another one, of the same mode.
const SECOND: Batch = Batch {
    name: "second-",
    count: 2,
    mode: "Delegated",
};
/// Fleets without HPAs.
const DIRECT: Batch = Batch {
    name: "direct-",
    count: 1,
    mode: "Direct",
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
                    "mode": self.mode,
                    "workloadSource": "Hub",
                    "federatedHPAAssignment": { "federatedHPAAssignmentType": "Duplicated" },
                },
            });
            hub.apply(&fleet.to_string()).await.unwrap();
        });
        join_all(created).await;
    }

    /// Changes the count of every fleet.
    async fn change(self, hub: &Client, count: i32) {
        let fleets = objects(hub, &Write::Ledger.kind());
        let spec = json!({ "spec": Write::Hpa.change(count) });
        patch_all(&fleets, self.names(), &spec).await;
    }

    /// Deletes the fleets; their workloads stay.
    async fn delete(self, hub: &Client) {
        let fleets = &objects(hub, &Write::Ledger.kind());
        let deleted = self.names().map(|name| async move {
            fleets
                .delete(&name, &DeleteParams::default())
                .await
                .unwrap();
        });
        join_all(deleted).await;
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

/// How many requests write all of this kind.
fn requests_of(kind: Write) -> usize {
    match kind {
        // The ledger of each fleet is a write to its status too.
        Write::FleetStatus => 2 * FLEETS,
        _ => FLEETS,
    }
}

/// Two replicas. Fleets are created, and one leader and then the other is paused at its first write of these kinds.
async fn paused_at(name: &str, kinds: [Write; 2]) {
    let world = start(name).await;
    let (hub, member) = (&world.fleet.hub, world.cluster("member1"));
    let batches = [FIRST, SECOND];
    for batch in batches {
        batch.create_templates(hub).await;
    }
    let mut pair = replicas(&world).await;
    let decreases = Decreases::of(member.client());
    let mut created = 0;
    for (batch, kind) in batches.into_iter().zip(kinds) {
        if created > 0 {
            pair = pair.swap(hub).await;
        }
        let since = now();
        let shown_in = match kind {
            Write::Workload | Write::NewHpa => member.client(),
            _ => hub.client(),
        };
        let first = first_of(&shown_in, kind, batch.count).await;
        let paused = pair.pause(&hub.client(), first, batch.create(hub)).await;
        batch.runs(&member.client(), batch.count).await;
        created += FLEETS;
        finished(&hub.client(), Write::FleetStatus, created).await;
        pair.resume(paused).await;
        let succession = pair.assert_succession(&[hub, member], since);
        kind.assert_unfinished(&succession.of_old, requests_of(kind));
        succession.assert_prompt(paused);
    }
    decreases.assert_none();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_finalizers_or_ledgers_writes_no_more() {
    paused_at("paused-intents", [Write::Finalizer, Write::Ledger]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_creates_workloads_or_hpas_in_a_member_writes_no_more() {
    paused_at("paused-placing", [Write::Workload, Write::NewHpa]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_statuses_or_events_of_fleets_writes_no_more() {
    paused_at("paused-fleet-reports", [Write::FleetStatus, Write::Event]).await;
}

/// Two replicas, and batches of fleets about which everything is written.
async fn settled(world: &FleetWorld, batches: [Batch; 2]) -> Pair {
    let hub = &world.fleet.hub;
    for batch in batches {
        batch.create_templates(hub).await;
        batch.create(hub).await;
    }
    let pair = replicas(world).await;
    for batch in batches {
        let member = world.cluster("member1").client();
        batch.runs(&member, batch.count).await;
    }
    finished(&hub.client(), Write::FleetStatus, 2 * FLEETS).await;
    pair
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_changes_hpas_or_scales_in_a_member_writes_no_more() {
    let world = start("paused-fleets").await;
    let (hub, member) = (&world.fleet.hub, world.cluster("member1"));
    let mut pair = settled(&world, [FIRST, DIRECT]).await;
    finished(&member.client(), Write::NewHpa, FLEETS).await;
    let decreases = Decreases::of(member.client());
    for (batch, kind) in [(FIRST, Write::Hpa), (DIRECT, Write::Scale)] {
        if kind == Write::Scale {
            pair = pair.swap(hub).await;
        }
        let since = now();
        let client = hub.client();
        // They differ, because the first batch has its count while the other one changes.
        let count = if kind == Write::Scale { 3 } else { 2 };
        let first = first_of(&member.client(), kind, count).await;
        let paused = pair
            .pause(&client, first, batch.change(&client, count))
            .await;
        batch.runs(&member.client(), count).await;
        pair.resume(paused).await;
        let succession = pair.assert_succession(&[hub, member], since);
        kind.assert_unfinished(&succession.of_old, FLEETS);
        succession.assert_prompt(paused);
    }
    decreases.assert_none();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_cleans_up_after_deleted_fleets_writes_no_more() {
    let world = start("paused-deletions").await;
    let (hub, member) = (&world.fleet.hub, world.cluster("member1"));
    let mut pair = settled(&world, [FIRST, SECOND]).await;
    finished(&member.client(), Write::NewHpa, 2 * FLEETS).await;
    let decreases = Decreases::of(member.client());
    let client = hub.client();
    let phases = [
        (FIRST, Write::HpaDeletion, member.client(), FLEETS),
        (SECOND, Write::FinalizerRemoval, hub.client(), 0),
    ];
    for (batch, kind, shown_in, left) in phases {
        if left == 0 {
            pair = pair.swap(hub).await;
        }
        let since = now();
        let first = first_of(&shown_in, kind, batch.count).await;
        let paused = pair.pause(&client, first, batch.delete(&client)).await;
        finished(&client, Write::Finalizer, left).await;
        finished(&member.client(), Write::NewHpa, left).await;
        pair.resume(paused).await;
        let succession = pair.assert_succession(&[hub, member], since);
        kind.assert_unfinished(&succession.of_old, FLEETS);
        succession.assert_prompt(paused);
    }
    decreases.assert_none();
}
