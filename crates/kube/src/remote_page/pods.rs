//! The pod of a controller that leads, reached by a port-forward of the API server.
//!
//! ```text
//! Lease foretide ──holder──► pod: ready, labeled ──owner──► ReplicaSet ──owner──► Deployment foretide-controller
//! ```
//!
//! A token is sent to that pod and to no other: whoever may create a pod in the namespace may give it the label. A
//! standby knows no decisions, so nothing is lost.

use std::{io, time::Duration};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::{
    client::legacy::Builder,
    rt::{TokioExecutor, TokioIo},
};
use k8s_openapi::{
    api::{apps::v1::ReplicaSet, coordination::v1::Lease, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Client, Config, client::middleware::AuthLayer};
use tokio::sync::Mutex;
use tower::{BoxError, ServiceBuilder, service_fn};

use crate::api_server::{CallError, Calls, Connection, Resource};
use foretide_base::{
    clock::{Clock, Monotonic},
    error::chain,
    leadership::{LEASE, host_of},
    machine::Stream,
};

/// The label of the pods that `deploy/` and the chart install.
const SELECTOR: &str = "app.kubernetes.io/name=foretide";
/// The Deployment that `deploy/` and the chart install.
const DEPLOYMENT: &str = "foretide-controller";
/// The name of the container's port, and its usual number.
const PORT_NAME: &str = "http";
const PORT: u16 = 8080;
/// Time for which a pod is read before the Lease is read again.
const USED_FOR: Duration = Duration::from_secs(30);

/// Choice of the pod that is read.
#[derive(Debug)]
pub struct ControllerPods {
    calls: Calls,
    namespace: String,
    clock: Clock,
    /// Time since when the pod is known to lead, and its address.
    current: Mutex<Option<(Monotonic, String)>>,
}

/// A client of addresses `http://POD:PORT/` of a namespace, which sends a token to them.
pub fn client(
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

fn forward(pods: Api<Pod>, uri: Uri) -> BoxFuture<'static, io::Result<TokioIo<Box<dyn Stream>>>> {
    Box::pin(async move {
        let (pod, port) = (
            uri.host().unwrap_or_default(),
            uri.port_u16().unwrap_or(PORT),
        );
        let mut forwarded = pods.portforward(pod, &[port]).await.map_err(|error| {
            let error = chain(&error);
            io::Error::other(format!(
                "no port-forward to pod {pod}: {error}; you need the right to create pods/portforward"
            ))
        })?;
        let Some(stream) = forwarded.take_stream(port) else {
            return Err(io::Error::other("the API server forwarded no port"));
        };
        Ok(TokioIo::new(Box::new(stream) as Box<dyn Stream>))
    })
}

// === impl ControllerPods ===

impl ControllerPods {
    pub fn new(connection: &Connection, namespace: String, clock: Clock) -> Self {
        Self {
            calls: connection.calls(),
            namespace,
            clock,
            current: Mutex::default(),
        }
    }

    /// The address of the pod that leads.
    ///
    /// # Errors
    /// A sentence that says why none is known, and what to do.
    pub async fn current(&self) -> Result<String, String> {
        let mut current = self.current.lock().await;
        let now = self.clock.monotonic();
        if let Some((since, pod)) = &*current
            && now.since(*since) < USED_FOR
        {
            return Ok(pod.clone());
        }
        let chosen = self.choose().await?;
        *current = Some((now, chosen.clone()));
        Ok(chosen)
    }

    /// Forgets a pod, so that another one may be chosen for the next request.
    pub async fn forget(&self, pod: &str) {
        self.current.lock().await.take_if(|(_, last)| last == pod);
    }

    async fn choose(&self) -> Result<String, String> {
        let namespace = &self.namespace;
        let leader = self.leader().await?;
        let mut ready = self.ready().await.map_err(|error| {
            let error = chain(&error);
            format!("the pods of namespace {namespace} cannot be listed: {error}")
        })?;
        if let Some(leader) = &leader {
            ready.retain(|pod| pod.metadata.name.as_ref() == Some(leader));
        }
        let (pod, others) = (ready.pop(), ready.len());
        match (pod, leader) {
            (Some(pod), _) if others == 0 => {
                self.check_owner(&pod.metadata).await?;
                Ok(address(&pod))
            }
            (None, Some(leader)) => Err(format!(
                "pod {leader} of namespace {namespace} leads by the Lease {LEASE}, and is not ready or has no label \
                 {SELECTOR}; try again when it is ready, or when another one leads"
            )),
            (Some(_), _) => Err(format!(
                "{} pods with the label {SELECTOR} are ready in namespace {namespace}, and no Lease {LEASE} says which one \
                 leads; run the controller with --leader-elect",
                others + 1
            )),
            (None, None) => Err(format!(
                "no pod with the label {SELECTOR} is ready in namespace {namespace}; name the namespace of the controller \
                 with --namespace, or its address with --url"
            )),
        }
    }

    /// The name of the pod that leads; none where there is no election.
    async fn leader(&self) -> Result<Option<String>, String> {
        let namespace = &self.namespace;
        let read = async {
            let path = Resource::LEASE.object(namespace, LEASE).path()?;
            self.calls.read::<Lease>(&path).await
        };
        let lease = match read.await {
            Ok(lease) => lease,
            Err(error) if error.is_status(404) => return Ok(None),
            Err(error) => {
                let error = chain(&error);
                return Err(format!(
                    "the Lease {LEASE} of namespace {namespace}, which names the pod that leads, cannot be read: {error}; \
                     you need the right to get it"
                ));
            }
        };
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        match holder.as_deref().and_then(host_of) {
            Some(host) => Ok(Some(host.to_owned())),
            None => Err(format!(
                "no pod leads by the Lease {LEASE} of namespace {namespace}; try again in some seconds"
            )),
        }
    }

    /// The pods that are ready.
    async fn ready(&self) -> Result<Vec<Pod>, CallError> {
        let collection = Resource::POD.collection(Some(&self.namespace))?;
        let selected = [("labelSelector", SELECTOR)];
        let mut pods: Vec<Pod> = self.calls.list(&collection, &selected).await?;
        pods.retain(is_ready);
        Ok(pods)
    }

    /// Checks that a pod is of the Deployment; without the right to read a `ReplicaSet`, by the name of that alone.
    async fn check_owner(&self, pod: &ObjectMeta) -> Result<(), String> {
        let (namespace, name) = (&self.namespace, pod.name.as_deref().unwrap_or_default());
        let foreign = format!(
            "pod {name} of namespace {namespace} is not of the Deployment {DEPLOYMENT}, so no token is sent to it; \
             find out who made it, or name the address of the controller with --url"
        );
        let Some(owner) = controller(pod).filter(|owner| {
            let set = owner.name.strip_prefix(DEPLOYMENT);
            owner.kind == "ReplicaSet" && set.is_some_and(|rest| rest.starts_with('-'))
        }) else {
            return Err(foreign);
        };
        let read = async {
            let path = Resource::REPLICA_SET
                .object(namespace, &owner.name)
                .path()?;
            self.calls.read::<ReplicaSet>(&path).await
        };
        let is_ours = match read.await {
            Ok(set) => {
                set.metadata.uid.as_ref() == Some(&owner.uid)
                    && controller(&set.metadata)
                        .is_some_and(|owner| owner.kind == "Deployment" && owner.name == DEPLOYMENT)
            }
            Err(error) if error.is_status(403) => true,
            Err(error) if error.is_status(404) => false,
            Err(error) => {
                let error = chain(&error);
                return Err(format!(
                    "the ReplicaSet {} of namespace {namespace} cannot be read: {error}",
                    owner.name
                ));
            }
        };
        if is_ours { Ok(()) } else { Err(foreign) }
    }
}

/// The owner that manages an object.
fn controller(object: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = object.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The address of a pod.
fn address(pod: &Pod) -> String {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    let port = port.map_or(i32::from(PORT), |port| port.container_port);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("http://{name}:{port}")
}
