//! Several Prometheus servers behind one port: the hub's own, and one per name that the administrator configured for
//! members whose series are not in it. Only names come from objects; an address never does. It refuses to ask another
//! endpoint in the place of one that it does not know.

use std::{collections::BTreeMap, sync::Arc};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::Prometheus;
use crate::ports::{HistoryError, HistoryQuery, HistoryReader};

/// The servers that may be asked.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    /// The one of `--prometheus`, if it is given.
    pub hub: Option<Prometheus>,
    /// Those of `--prometheus-endpoint`, by name.
    pub named: BTreeMap<Arc<str>, Prometheus>,
}

/// How far queries can reach: which endpoints there are, and what tells the series of one member from another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// Whether there is an endpoint of the hub.
    pub hub: bool,
    /// The names of the others.
    pub named: Vec<Arc<str>>,
    /// The label whose value is the member's name, on the hub's endpoint.
    pub cluster_label: String,
}

impl Default for Reach {
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
    /// What queries are made for.
    #[must_use]
    pub fn reach(&self, cluster_label: &str) -> Reach {
        Reach {
            hub: self.hub.is_some(),
            named: self.named.keys().cloned().collect(),
            cluster_label: cluster_label.to_owned(),
        }
    }

    fn asked(&self, query: &HistoryQuery) -> Result<&Prometheus, HistoryError> {
        let found = match &query.endpoint {
            None => self.hub.as_ref(),
            Some(name) => self.named.get(name),
        };
        found.ok_or_else(|| HistoryError::UnknownEndpoint {
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
        let prometheus = self.asked(query)?;
        prometheus.range(&query.text, from, to, step).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::prometheus::Endpoint;

    #[test]
    fn an_endpoint_that_is_not_there_is_named_and_no_other_is_asked_for_it() {
        let url = "https://thanos";
        let thanos = Prometheus::new(&Endpoint::new(url)).unwrap();
        let endpoints = Endpoints {
            hub: None,
            named: [("east".into(), thanos)].into(),
        };
        let asked = |endpoint: Option<&str>| {
            let query = HistoryQuery {
                endpoint: endpoint.map(Into::into),
                text: "x".into(),
            };
            let asked = endpoints.asked(&query).map(|_| ());
            asked.map_err(|error| error.to_string())
        };
        assert_eq!(asked(Some("east")), Ok(()));
        assert!(asked(None).unwrap_err().contains("\"hub\""));
        assert!(
            asked(Some("west"))
                .unwrap_err()
                .contains("--prometheus-endpoint west=URL")
        );
        let reach = endpoints.reach("k8s");
        assert_eq!((reach.hub, reach.named.len()), (false, 1));
    }
}
