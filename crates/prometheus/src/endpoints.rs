//! The configured Prometheus servers: the hub's own, and one per name that the administrator gave for members whose
//! series it does not hold.
//!
//! Objects only refer to an endpoint by its name, never by an address. A query for an unknown endpoint is an error and
//! is not sent to another one.

use std::{collections::BTreeMap, sync::Arc};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::client::Prometheus;
use foretide_api::ports::{HistoryError, HistoryQuery, HistoryReader, ServerHealth};

/// The clients of all configured servers.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    /// The client of `--prometheus`, if it is set.
    pub hub: Option<Prometheus>,
    /// The clients of `--prometheus-endpoint`, by name.
    pub named: BTreeMap<Arc<str>, Prometheus>,
}

/// The names of the configured endpoints, and the label that separates the series of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointNames {
    /// True if the hub has an endpoint.
    pub hub: bool,
    /// The names of the other endpoints.
    pub named: Vec<Arc<str>>,
    /// The label that holds the member's name at the endpoint of the hub.
    pub cluster_label: String,
}

impl Default for EndpointNames {
    fn default() -> Self {
        Self {
            hub: true,
            named: Vec::new(),
            cluster_label: "cluster".to_owned(),
        }
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// The names of the endpoints, for the queries that are made.
    pub fn names(&self, cluster_label: &str) -> EndpointNames {
        EndpointNames {
            hub: self.hub.is_some(),
            named: self.named.keys().cloned().collect(),
            cluster_label: cluster_label.to_owned(),
        }
    }

    fn client_of(&self, query: &HistoryQuery) -> Result<&Prometheus, HistoryError> {
        match &query.endpoint {
            None => self.hub.as_ref(),
            Some(name) => self.named.get(name),
        }
        .ok_or_else(|| HistoryError::UnknownEndpoint {
            name: query.endpoint.as_deref().unwrap_or("hub").to_owned(),
        })
    }
}

impl HistoryReader for Endpoints {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        self.client_of(query)?.range(query, from, to, step).await
    }

    fn headers_in_words(&self, query: &HistoryQuery) -> Option<String> {
        self.client_of(query).ok()?.headers_in_words()
    }

    fn version(&self, query: &HistoryQuery) -> u64 {
        self.client_of(query).map_or(0, Prometheus::version)
    }

    fn servers(&self) -> Vec<ServerHealth> {
        let hub = self.hub.iter().map(|client| ("hub", client));
        let named = self.named.iter().map(|(name, client)| (&**name, client));
        hub.chain(named)
            .map(|(name, client)| client.health(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretide_api::ports::HistoryServer;
    use foretide_base::machine::Machine;

    #[test]
    fn an_unknown_endpoint_is_an_error_that_names_it() {
        let thanos = Prometheus::new(
            &HistoryServer::at("https://thanos").unwrap(),
            &Machine::system(),
        );
        let endpoints = Endpoints {
            hub: None,
            named: [("east".into(), thanos)].into(),
        };
        let client_of = |endpoint: Option<&str>| {
            let query = HistoryQuery {
                namespace: "shop".into(),
                endpoint: endpoint.map(Into::into),
                text: "x".into(),
            };
            let found = endpoints.client_of(&query).map(|_| ());
            found.map_err(|error| error.to_string())
        };
        assert_eq!(client_of(Some("east")), Ok(()));
        assert!(client_of(None).unwrap_err().contains("\"hub\""));
        assert!(
            client_of(Some("west"))
                .unwrap_err()
                .contains("--prometheus-endpoint west=URL")
        );
        let names = endpoints.names("k8s");
        assert_eq!((names.hub, names.named.len()), (false, 1));
    }
}
