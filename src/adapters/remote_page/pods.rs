//! The pods of a controller, each reached by a port-forward of the API server. The one that leads is read; a standby
//! knows no decisions.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use http::{HeaderMap, Response, Uri};
use hyper_util::{
    client::legacy::{
        Builder,
        connect::{Connected, Connection as PooledConnection},
    },
    rt::{TokioExecutor, TokioIo},
};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::{
    Api, Client, Config,
    client::{Body, middleware::AuthLayer},
};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::Mutex,
    time::timeout,
};
use tower::{BoxError, ServiceBuilder, service_fn};

use super::client::PageClient;
use crate::{
    adapters::api_server::{CallError, Calls, Connection, Resource},
    clock::{Clock, Monotonic},
    error::chain,
};

/// The label of the pods that `deploy/` and the chart install.
const SELECTOR: &str = "app.kubernetes.io/name=foretide";
/// The name of the container's port, and its usual number.
const PORT_NAME: &str = "http";
const PORT: u16 = 8080;
/// How long a pod is read before it is asked again whether it leads.
const USED_FOR: Duration = Duration::from_secs(30);
/// How long a pod may take to say so.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The longest overview.
const OVERVIEW_MAX: usize = 1 << 20;

/// Which pod is read.
pub(super) struct ControllerPods {
    calls: Calls,
    namespace: String,
    clock: Clock,
    /// Its address, and since when it is known to lead.
    current: Mutex<Option<(Monotonic, String)>>,
}

#[derive(Deserialize)]
struct Overview {
    leads: bool,
}

/// A forwarded port as the pool of connections keeps it.
struct Forwarded(DuplexStream);

/// A client of addresses `http://POD:PORT/` of a namespace, which sends a token there.
pub(super) fn client(
    mut api_server: Config,
    namespace: String,
    token: Option<AuthLayer>,
) -> kube::Result<Client> {
    // The client library's own retries may hide minutes of waiting in one request.
    api_server.default_retry = false;
    // Forwarded ports may be silent.
    api_server.read_timeout = None;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(api_server)?, &namespace);
    let connector = service_fn(move |uri: Uri| forward(pods.clone(), uri));
    let service = ServiceBuilder::new()
        .option_layer(token)
        .map_err(BoxError::from)
        .service(Builder::new(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, namespace))
}

fn forward(pods: Api<Pod>, uri: Uri) -> BoxFuture<'static, io::Result<TokioIo<Forwarded>>> {
    Box::pin(async move {
        let (pod, port) = (
            uri.host().unwrap_or_default(),
            uri.port_u16().unwrap_or(PORT),
        );
        let opened = pods.portforward(pod, &[port]).await;
        let mut forwarded = opened.map_err(|error| {
            let error = chain(&error);
            io::Error::other(format!(
                "no port-forward to pod {pod}: {error}; you need the right to create pods/portforward"
            ))
        })?;
        let taken = forwarded.take_stream(port);
        let stream = taken.ok_or_else(|| io::Error::other("the API server forwarded no port"))?;
        Ok(TokioIo::new(Forwarded(stream)))
    })
}

// === impl ControllerPods ===

impl ControllerPods {
    pub(super) fn new(connection: &Connection, namespace: String, clock: Clock) -> Self {
        Self {
            calls: connection.calls(),
            namespace,
            clock,
            current: Mutex::default(),
        }
    }

    /// The address of the pod that leads, or of one that is ready if none says so.
    pub(super) async fn current(&self, client: &PageClient) -> Result<String, String> {
        let mut current = self.current.lock().await;
        let now = self.clock.monotonic();
        if let Some((since, pod)) = &*current
            && now.since(*since) < USED_FOR
        {
            return Ok(pod.clone());
        }
        let chosen = self.choose(client).await?;
        *current = Some((now, chosen.clone()));
        Ok(chosen)
    }

    /// Another pod is chosen for the next request.
    pub(super) async fn forget(&self, pod: &str) {
        let mut current = self.current.lock().await;
        current.take_if(|(_, last)| last == pod);
    }

    async fn choose(&self, client: &PageClient) -> Result<String, String> {
        let namespace = &self.namespace;
        let pods = self.ready().await.map_err(|error| {
            let error = chain(&error);
            format!("the pods of namespace {namespace} cannot be listed: {error}")
        })?;
        // All at once: one that does not answer holds up nobody.
        let mut asked: FuturesUnordered<_> = pods.into_iter().map(|pod| ask(client, pod)).collect();
        let mut answering = None;
        let mut problem = format!(
            "no pod with the label {SELECTOR} is ready in namespace {namespace}; name the namespace of the controller \
             with --namespace, or its address with --url"
        );
        while let Some(asked) = asked.next().await {
            match asked {
                Ok((pod, true)) => return Ok(pod),
                Ok((pod, false)) => answering = answering.or(Some(pod)),
                Err(error) => problem = error,
            }
        }
        answering.ok_or(problem)
    }

    /// The addresses of the pods that are ready.
    async fn ready(&self) -> Result<Vec<String>, CallError> {
        let collection = Resource::POD.collection(Some(&self.namespace))?;
        let mut ready = Vec::new();
        let selected = [("labelSelector", SELECTOR)];
        let listed = self.calls.list(&collection, &selected, |pod| {
            ready.extend(address(&serde_json::from_str(pod)?));
            Ok(())
        });
        listed.await.map(|()| ready)
    }
}

/// The address of a pod, if it is ready.
fn address(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let is_ready = |it: &&PodCondition| it.type_ == "Ready" && it.status == "True";
    conditions.iter().find(is_ready)?;
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    let port = port.map_or(i32::from(PORT), |port| port.container_port);
    Some(format!("http://{}:{port}", pod.metadata.name.as_ref()?))
}

/// A pod that answers, and whether it leads.
async fn ask(client: &PageClient, pod: String) -> Result<(String, bool), String> {
    let overview = format!("{pod}/api/v1/overview");
    let answered = async {
        let answer = client.get(&overview, HeaderMap::new()).await?;
        Ok(leads(answer).await)
    };
    let late = |_| {
        Err(format!(
            "{pod} did not answer within {} s",
            ANSWER_WITHIN.as_secs()
        ))
    };
    let leads = timeout(ANSWER_WITHIN, answered)
        .await
        .unwrap_or_else(late)?;
    Ok((pod, leads))
}

/// Whether an overview says that its process leads.
async fn leads(answer: Response<Body>) -> bool {
    let body = axum::body::Body::new(answer.into_body());
    let text = axum::body::to_bytes(body, OVERVIEW_MAX)
        .await
        .unwrap_or_default();
    serde_json::from_slice(&text).is_ok_and(|overview: Overview| overview.leads)
}

// === impl Forwarded ===

impl PooledConnection for Forwarded {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
