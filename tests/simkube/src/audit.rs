//! The requests to a server, in order, with their users, objects and results.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    request::{Call, Place, User},
    rights::Access,
    serve::Answer,
};

/// Sender of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// The host, as the network names it.
    pub(crate) host: String,
    pub(crate) sent: Option<Timestamp>,
}

/// One request that was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Time at which the request took effect.
    pub time: Timestamp,
    /// The host that sent it.
    pub client: String,
    /// Time at which the request was sent.
    pub sent: Timestamp,
    /// The user.
    pub user: String,
    /// Verb and object.
    pub access: Access,
    /// The code of the answer.
    pub code: u16,
    /// The object in the answer to a write that took effect.
    pub written: Option<Arc<Value>>,
}

/// All requests until now.
#[derive(Debug, Default)]
pub(crate) struct Audit(Vec<Entry>);

// === impl Entry ===

impl Entry {
    /// The collection of the object and the subresource, such as `deployments.apps/scale`.
    pub fn collection(&self) -> String {
        let Access {
            group, resource, ..
        } = &self.access;
        match resource.split_once('/') {
            _ if group.is_empty() => resource.clone(),
            Some((plural, subresource)) => format!("{plural}.{group}/{subresource}"),
            None => format!("{resource}.{group}"),
        }
    }

    /// The object, such as `deployments.apps/scale shop/web`.
    pub fn object(&self) -> String {
        let Access {
            namespace, name, ..
        } = &self.access;
        format!("{} {namespace}/{name}", self.collection())
    }
}

// === impl Audit ===

impl Audit {
    pub(crate) fn record(
        &mut self,
        time: Timestamp,
        (client, user): (&Client, &User),
        call: &Call,
        answer: &Answer,
    ) {
        let Some(place) = &call.place else {
            return;
        };
        let verb = call.verb();
        let is_read = matches!(verb, "get" | "list") || call.is_dry_run();
        let written = answer
            .as_ref()
            .ok()
            .filter(|_| !is_read)
            .map(|(_, object)| Arc::new(object.clone()));
        let name = name(place, written.as_deref());
        self.0.push(Entry {
            time,
            client: client.host.clone(),
            sent: client.sent.unwrap_or(time),
            user: user.name.clone(),
            access: Access::new(verb, place, &name),
            code: answer
                .as_ref()
                .map_or_else(|status| status.code, |(code, _)| *code),
            written,
        });
    }

    pub(crate) fn since(&self, asked: usize) -> &[Entry] {
        self.0.get(asked..).unwrap_or_default()
    }
}

/// The name of the object, which a request that creates it has in its body.
fn name(place: &Place, written: Option<&Value>) -> String {
    let named = written.and_then(|object| object["metadata"]["name"].as_str());
    if place.name.is_empty() {
        named.unwrap_or_default().to_owned()
    } else {
        place.name.clone()
    }
}
