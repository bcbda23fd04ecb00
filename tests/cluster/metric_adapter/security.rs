//! The rights to read metrics, as a real API server decides: through it, and by a direct connection to the adapter.

use std::{net::SocketAddr, sync::Arc};

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Client};
use rig::eventually;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};

use super::{
    API_SERVICES, TIMEOUT, World, autoscaler, cpu_forecast, decide, outage::forecast, read,
};
use crate::metrics_access::token;

/// The name by which the API server reaches the adapter.
const NAME: &str = "foretide-adapter.foretide-system.svc";

/// `reader` may read external metrics, and `other` may not.
const OBJECTS: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: external-metrics-reader}
rules:
- {apiGroups: [external.metrics.k8s.io], resources: ['*'], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: external-metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: external-metrics-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

/// A client of one replica that trusts the bundle of the registrations, and no other authority.
pub(super) struct Direct {
    http: reqwest::Client,
    address: SocketAddr,
}

/// Answer of the adapter.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Direct {
    /// Returns a client with the certificate and key in these two texts, if there are any.
    pub(super) fn new(address: SocketAddr, bundle: &str, identity: Option<[&str; 2]>) -> Self {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(one.unwrap()).unwrap();
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
                let chain = vec![certificate.unwrap()];
                builder.with_client_auth_cert(chain, key.unwrap()).unwrap()
            }
        };
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(config)
            .resolve(NAME, address)
            .build();
        Self {
            http: http.unwrap(),
            address,
        }
    }

    pub(super) async fn get(&self, headers: &[(&str, &str)]) -> Result<Answer, reqwest::Error> {
        let url = format!("https://{NAME}:{}{}", self.address.port(), forecast());
        let mut request = self.http.get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let body = serde_json::from_str(&response.text().await?).unwrap_or_default();
        Ok(Answer { status, body })
    }
}

/// The bundle of authorities that the API server trusts.
pub(super) async fn bundle(client: &Client) -> String {
    let services: Api<APIService> = Api::all(client.clone());
    let found = services.get(API_SERVICES[0]).await.unwrap();
    String::from_utf8(found.spec.unwrap().ca_bundle.unwrap().0).unwrap()
}

/// Checks the decisions of a real API server: through it, and by a direct connection to the adapter at this address.
/// The headers and certificates that count are proven in `http::identity`.
pub(super) async fn a_request_needs_a_user_and_the_user_a_role(world: &World, address: SocketAddr) {
    let client = world.client.clone();
    world.apply(OBJECTS).await;
    autoscaler(world, "web", json!({"prediction": {}})).await;
    decide(world, "web", 1, cpu_forecast("0.9")).await;
    let bundle = bundle(&client).await;
    let plain = Direct::new(address, &bundle, None);
    let bearer = async |account: &str| format!("Bearer {}", token(world, account, None).await);
    let (reader, other) = (bearer("reader").await, bearer("other").await);
    assert_eq!(plain.get(&[]).await.unwrap().status, 401);
    let invalid = format!("{reader}x");
    let invalid = plain.get(&[("authorization", &invalid)]).await;
    assert_eq!(invalid.unwrap().status, 401);
    let denied = plain.get(&[("authorization", &other)]).await.unwrap();
    assert_eq!(denied.status, 403);
    let message = r#"crane_autoscaling_prediction.external.metrics.k8s.io "" is forbidden: User "system:serviceaccount:default:other" cannot list resource "crane_autoscaling_prediction" in API group "external.metrics.k8s.io" in the namespace "default""#;
    assert_eq!(denied.body["message"], message);
    // The API server has read a role, and the adapter a status, some time after it was written.
    eventually(TIMEOUT, "the reader gets the value", || async {
        let answer = plain.get(&[("authorization", &reader)]).await;
        let Answer { status, body } = answer.map_err(|error| error.to_string())?;
        let is_value = status == 200 && body["items"][0]["value"] == "900m";
        is_value.then_some(()).ok_or(format!("{status}: {body}"))
    })
    .await;

    // With the certificate of the aggregator, the request is one of the user that it names.
    let file = |name| std::fs::read_to_string(world.cluster.folder().join(name)).unwrap();
    let (certificate, key) = (file("front-proxy.crt"), file("front-proxy.key"));
    let proxy = Direct::new(address, &bundle, Some([&certificate, &key]));
    for (user, code) in [("eve", 403), ("system:serviceaccount:default:reader", 200)] {
        let answer = proxy.get(&[("x-remote-user", user)]).await.unwrap();
        assert_eq!(answer.status, code, "{}", answer.body);
        // Through the API server, which asks the same roles before it passes a request on.
        let client = world.cluster.client_as(user).await.unwrap();
        let is_passed_on = read(&client, &forecast()).await.is_ok();
        assert_eq!(is_passed_on, code == 200, "{user}");
    }
}
