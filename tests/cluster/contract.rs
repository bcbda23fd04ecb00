//! `SimKube` and the real API server answer the script of the contract alike.

use std::{sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use http::{Request, Response};
use jiff::Timestamp;
use rig::{Cluster, ClusterOptions, Component};
use simkube::{
    SimKube,
    contract::{Peer, differences, run},
};

/// The real API server. Its controllers are started late: only what they are asked for may change objects.
struct Real(Cluster);

struct Simulated(SimKube);

impl Peer for Real {
    async fn send(&self, request: Request<Vec<u8>>) -> (u16, String) {
        let client = self.0.client();
        let response = client.send(request.map(Into::into)).await.unwrap();
        text(response.map(Body::new)).await
    }

    async fn forget(&self) {
        self.0.stop_apiserver();
        self.0.start_apiserver().await.unwrap();
    }

    async fn start_controllers(&self) {
        let controllers = Component::KubeControllerManager;
        self.0.start_component(controllers).await.unwrap();
    }

    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Peer for Simulated {
    async fn send(&self, request: Request<Vec<u8>>) -> (u16, String) {
        text(self.0.answer(request).await).await
    }

    async fn forget(&self) {
        self.0.compact();
    }

    async fn start_controllers(&self) {}

    async fn settle(&self) {
        self.0.collect_garbage();
    }
}

async fn text(response: Response<Body>) -> (u16, String) {
    let code = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn simkube_answers_as_the_real_api_server_does() {
    let options = ClusterOptions::named("contract")
        .without(Component::KubeControllerManager)
        .without(Component::KubeScheduler)
        .without(Component::Kwok);
    let real = Real(Cluster::start(options).await.unwrap());
    let simulated = Simulated(SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH)));
    let (real, simulated) = (run(&real).await, run(&simulated).await);
    let unexpected: Vec<_> = real.iter().filter(|e| e.code != e.expected).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let differences = differences(&simulated, &real);
    assert!(
        differences.is_empty(),
        "{} of {} answers differ:\n{}",
        differences.len(),
        real.len(),
        differences.join("\n")
    );
}
