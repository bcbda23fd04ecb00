//! The lease of the leader election: the port [`LeaseStore`].
//!
//! It has slots and deadlines of its own, so that a renewal never waits behind other requests, and it does not pass the
//! write gate, which opens only with it.

use std::time::Duration;

use http::Method;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use serde_json::{Value, json};

use super::{Connection, WriteGate, read};
use crate::api_server::{About as _, Body, CallError, Calls, Limits, ObjectPath, Resource};
use foretide_api::ports::{ClusterError, LeaseRecord, LeaseStore, StoredLease};

/// One lease of a cluster.
#[derive(Debug)]
pub struct KubeLease {
    calls: Calls,
    namespace: String,
    name: String,
}

// === impl KubeLease ===

impl KubeLease {
    /// The lease of this name. Each request about it takes at most `deadline`.
    pub fn new(connection: &Connection, namespace: &str, name: &str, deadline: Duration) -> Self {
        let limits = Limits::for_lease(deadline);
        Self {
            calls: connection.calls_within(limits, WriteGate::default()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn path(&self) -> ObjectPath<'_> {
        Resource::LEASE.object(&self.namespace, &self.name)
    }

    async fn write(
        &self,
        method: Method,
        url: Result<String, CallError>,
        object: &Value,
    ) -> Result<StoredLease, ClusterError> {
        let written = async {
            let body = Body::json(object);
            stored(self.calls.write(method, &url?, body).await?)
        };
        written.await.about(self.path())
    }
}

impl LeaseStore for KubeLease {
    async fn read(&self) -> Result<Option<StoredLease>, ClusterError> {
        let found = async { stored(self.calls.read(&self.path().path()?).await?) };
        match found.await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_status(404) => Ok(None),
            Err(error) => Err(error.about(self.path())),
        }
    }

    async fn create(&self, record: &LeaseRecord) -> Result<StoredLease, ClusterError> {
        let object = json!({
            "apiVersion": Resource::LEASE.api_version,
            "kind": Resource::LEASE.kind,
            "metadata": {"namespace": self.namespace, "name": self.name},
            "spec": spec(record),
        });
        let url = Resource::LEASE.collection(Some(&self.namespace));
        self.write(Method::POST, url, &object).await
    }

    async fn replace(
        &self,
        seen: &StoredLease,
        record: &LeaseRecord,
    ) -> Result<StoredLease, ClusterError> {
        // With the resourceVersion that was seen, which makes it conditional.
        let mut object = seen.object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("spec".to_owned(), spec(record));
        }
        self.write(Method::PUT, self.path().path(), &object).await
    }
}

pub fn spec(record: &LeaseRecord) -> Value {
    json!({
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration.map(|duration| duration.as_secs()),
        // A MicroTime has six decimals.
        "acquireTime": record.acquired.map(|at| format!("{at:.6}")),
        "renewTime": record.renewed.map(|at| format!("{at:.6}")),
        "leaseTransitions": record.transitions,
    })
}

/// An object as it was read; without a version a replacement would not be conditional, so one is required.
pub fn stored(object: Value) -> Result<StoredLease, CallError> {
    let Lease { metadata, spec } = read(object.clone()).map_err(CallError::Response)?;
    let version = metadata.resource_version.filter(|it| !it.is_empty());
    let version = version
        .ok_or_else(|| CallError::Response("expected a metadata.resourceVersion".to_owned()))?;
    let spec = spec.unwrap_or_default();
    let written = spec.lease_duration_seconds.unwrap_or_default();
    let seconds = u64::try_from(written).ok().filter(|seconds| *seconds > 0);
    Ok(StoredLease {
        record: LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: seconds.map(Duration::from_secs),
            acquired: spec.acquire_time.map(|MicroTime(at)| at),
            renewed: spec.renew_time.map(|MicroTime(at)| at),
            transitions: spec.lease_transitions.unwrap_or_default(),
        },
        version,
        object,
    })
}
