//! Previous output of `assign -o json`, to continue from: its ledger, and the bounds that it wrote.
//!
//! Output with an unreadable ledger is an error, because another fleet would be simulated without it.

use std::collections::BTreeMap;

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{Ledger, Member};
use jiff::Timestamp;
use serde::Deserialize;

use super::AssignError;
use crate::Error;
use foretide_api::status::stored_ledger;

/// A previous assignment.
#[derive(Debug)]
pub struct Previous {
    /// Time of the previous decision.
    pub at: Timestamp,
    ledger: Ledger,
    bounds: BTreeMap<String, ReplicaBounds>,
}

#[derive(Debug, Deserialize)]
struct PreviousDocument {
    kind: String,
    at: Timestamp,
    ledger: String,
    clusters: Vec<PreviousCluster>,
}

#[derive(Debug, Deserialize)]
struct PreviousCluster {
    name: String,
    min: Option<u32>,
    max: Option<u32>,
}

// === impl Previous ===

impl Previous {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text is not output of `assign`.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|found| AssignError::NotPrevious(file.to_owned(), found).into())
    }

    fn read(text: &str) -> Result<Self, String> {
        let written: PreviousDocument =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        if written.kind != "Assignment" {
            return Err(format!("its kind is {}", written.kind));
        }
        let bounds = written.clusters.into_iter().filter_map(|cluster| {
            // No HPA has a maximum of 0, so such bounds were not applied.
            let (min, max) = (cluster.min?, cluster.max.filter(|max| *max > 0)?);
            let bounds = ReplicaBounds::new(Replicas::new(min), Replicas::new(max));
            Some((cluster.name, bounds))
        });
        Ok(Self {
            at: written.at,
            ledger: stored_ledger(&written.ledger).ok_or("its ledger cannot be read")?,
            bounds: bounds.collect(),
        })
    }

    /// The ledger; members without bounds get those of the previous assignment.
    pub fn applied(&self, members: &mut [Member]) -> Ledger {
        for member in members {
            let written = self.bounds.get(&member.profile.name).copied();
            member.hpa = member.hpa.or(written);
        }
        self.ledger.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_documents_are_rejected() {
        for (text, want) in [
            ("{}", "missing field `kind`"),
            (
                r#"{"kind": "Plan", "at": "2026-03-02T12:00:00Z", "ledger": "{}", "clusters": []}"#,
                "its kind is Plan",
            ),
            (
                r#"{"kind": "Assignment", "at": "2026-03-02T12:00:00Z", "ledger": "?", "clusters": []}"#,
                "its ledger cannot be read",
            ),
        ] {
            let error = Previous::read(text).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
