//! The optional admission policy of `deploy/admission/`: an autoscaler is written only by users who may update the scale
//! of its target.

use foretide::clock::Clock;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use rig::{ClusterOptions, eventually};
use serde_json::{Value, json};

use crate::{
    manual_changes::{deployment, ehpa},
    world::{NAMESPACE, TIMEOUT, World},
};

const POLICY: &str = include_str!("../../deploy/admission/targets.yaml");

/// `author` writes autoscalers and fleets; `operator` also the scale of the Deployment `web`.
const USERS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: default}
rules:
- {apiGroups: [autoscaling.crane.io], resources: [effectivehorizontalpodautoscalers], verbs: ["*"]}
- {apiGroups: [autoscaling.foretide.io], resources: [federatedhpas], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: default}
rules:
- {apiGroups: [apps], resources: [deployments/scale], resourceNames: [web], verbs: [update]}
- {apiGroups: [example.com], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: author}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}
"#;

/// The objects of one kind, as one user writes them.
struct Writer(Api<DynamicObject>);

impl Writer {
    fn new<K: Resource<DynamicType = ()>>(client: Client) -> Self {
        let resource = ApiResource::erase::<K>(&());
        Self(Api::namespaced_with(client, NAMESPACE, &resource))
    }

    /// Creates an object; the message of the API server if it refuses.
    async fn create(&self, object: &Value) -> Result<(), String> {
        let object = serde_json::from_value(object.clone()).unwrap();
        let created = self.0.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| refusal(&error))
    }

    /// Changes `web`; the message of the API server if it refuses.
    async fn patch(&self, patch: &Value) -> Result<(), String> {
        let patch = Patch::Merge(patch);
        let patched = self.0.patch("web", &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| refusal(&error))
    }
}

fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => panic!("no response: {other}"),
    }
}

fn assert_refused(written: Result<(), String>, part: &str) {
    let Err(message) = written else {
        panic!("accepted, expected: {part}")
    };
    assert!(message.contains(part), "{message}");
}

fn fleet() -> Value {
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": 5,
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_scale_a_target_may_not_write_an_autoscaler_of_it() {
    let world = World::start(ClusterOptions::named("admission")).await;
    world.apply(USERS).await;
    let author = world.cluster.client_as("author", &[]).await.unwrap();
    let operator = world.cluster.client_as("operator", &[]).await.unwrap();
    let ehpas = Writer::new::<foretide_crds::EffectiveHorizontalPodAutoscaler>;
    let fleets = Writer::new::<foretide_crds::FederatedHPA>;
    let (by_author, by_operator) = (ehpas(author.clone()), ehpas(operator.clone()));
    let of = |target| ehpa(target, (1, 5), &json!({}));

    // Without the policy every author may, once the API server has seen the roles.
    eventually(TIMEOUT, "an author writes autoscalers", || async {
        by_author.create(&of(deployment("before"))).await
    })
    .await;
    world.apply(POLICY).await;
    let cannot = "user author cannot update the scale of Deployment.apps default/web, which the object would scale";
    eventually(TIMEOUT, "the policy is in force", || async {
        let created = by_author.create(&of(deployment("web"))).await;
        match created {
            Err(message) if message.contains(cannot) => Ok(()),
            // The policy was not in force yet.
            Ok(()) => {
                world
                    .ehpas()
                    .delete("web", &DeleteParams::default())
                    .await
                    .unwrap();
                Err("accepted".to_owned())
            }
            Err(message) => Err(message),
        }
    })
    .await;
    by_operator.create(&of(deployment("web"))).await.unwrap();
    assert_refused(fleets(author).create(&fleet()).await, cannot);
    fleets(operator).create(&fleet()).await.unwrap();

    // Any change of the spec scales the target, and so do an adoption and a history query; other changes do not.
    let query = |text: Option<&str>| json!({ "metadata": { "annotations": { "metric-query.autoscaling.crane.io/resource.cpu": text } } });
    for patch in [
        query(Some("vector(1)")),
        query(Some("vector(2)")),
        query(None),
        json!({ "spec": { "minReplicas": 4 } }),
        json!({ "spec": { "mode": "Direct" } }),
        json!({ "metadata": { "annotations": { "autoscaling.foretide.io/adopt": "true" } } }),
    ] {
        assert_refused(by_author.patch(&patch).await, cannot);
        by_operator.patch(&patch).await.unwrap();
    }
    let team =
        json!({ "metadata": { "labels": { "team": "shop" }, "annotations": { "note": "a" } } });
    by_author.patch(&team).await.unwrap();

    // The permission is for one name, and a kind that the policy does not list is refused to all.
    let other = json!({ "spec": { "scaleTargetRef": { "name": "other" } } });
    assert_refused(
        by_operator.patch(&other).await,
        "Deployment.apps default/other",
    );
    let unlisted = of(("example.com/v1", "Deployment", "own"));
    assert_refused(
        by_operator.create(&unlisted).await,
        "spec.scaleTargetRef is Deployment.example.com, expected a kind that the ValidatingAdmissionPolicy",
    );
    let without_group = json!({ "spec": { "scaleTargetRef": { "apiVersion": null } } });
    assert_refused(
        by_operator.patch(&without_group).await,
        "spec.scaleTargetRef is Deployment, expected",
    );

    // The controller cannot update scales, and writes statuses.
    let controller = world.run(world.config(), Clock::system());
    world
        .status("web", "a condition", |status| {
            status.get("conditions").cloned()
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
