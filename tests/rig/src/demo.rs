//! The demo of `rig up`: the Deployment `php-apache` of the Kubernetes walkthrough, its past and its next day in
//! Prometheus, and its present load. It leaves scaling to the controllers.

use std::{io::Write as _, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use rig::{Cluster, Demand, History, Span};
use serde_json::{Value, json};

/// Deployment, container and value of the label `run`.
pub(crate) const NAME: &str = "php-apache";

/// A pod of the past, named as one of the Deployment's.
pub(crate) const PAST_POD: &str = "php-apache-7c5d8b9f6d-x2v9k";

const DAY: f64 = 86_400.0;

/// The interval at which the load is shared among the running pods.
pub(crate) const BEAT: Duration = Duration::from_secs(5);

/// Unix seconds.
#[expect(clippy::disallowed_methods, reason = "the demo follows real time")]
pub(crate) fn now() -> f64 {
    jiff::Timestamp::now().as_duration().as_secs_f64()
}

/// All days of the demand, and on to a day from `now`; nothing without demand.
pub(crate) fn history(demand: Option<&Demand>, now: f64) -> History {
    let Some(demand) = demand else {
        return History::new();
    };
    let span = sample_span(demand, now);
    History::new().cpu_usage(["default", PAST_POD, NAME], span, |at| demand.cores(at))
}

/// The instants of the samples in Prometheus: every full minute, as scrapes of one target.
pub(crate) fn sample_span(demand: &Demand, now: f64) -> Span {
    Span {
        start: (demand.start() / 60.0).ceil() * 60.0,
        end: now + DAY,
        step: 60.0,
    }
}

pub(crate) async fn deploy(cluster: &Cluster) -> rig::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    cluster.put(&deployments, &deployment()).await.map(drop)
}

/// Shares the present demand among the pods, forever.
pub(crate) async fn drive(cluster: &Cluster, demand: &Demand) -> ! {
    let selector = format!("run={NAME}");
    let mut beat = tokio::time::interval(BEAT);
    loop {
        beat.tick().await;
        let shared = cluster
            .share_cpu("default", &selector, demand.cores(now()))
            .await;
        if let Err(failure) = shared {
            // The API server may be stopped on purpose: the next pass retries.
            print_error(&failure);
        }
    }
}

pub(crate) fn print_error(failure: &rig::Error) {
    drop(writeln!(std::io::stderr(), "rig: {failure}"));
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": NAME},
        "spec": {
            "selector": {"matchLabels": {"run": NAME}},
            "template": {
                "metadata": {"labels": {"run": NAME}},
                "spec": {"containers": [{
                    "name": NAME,
                    "image": "registry.k8s.io/hpa-example",
                    "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "500m"}},
                }]},
            },
        },
    })
}
