//! Previous output of `assign -o json`, to continue from: its ledger, and the bounds that it wrote.
//!
//! Output with an unreadable ledger is an error, because another fleet would be simulated without it.

use std::collections::BTreeMap;
use std::path::Path;

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{Ledger, Member};
use jiff::Timestamp;
use serde::Deserialize;

use crate::cli::{manifest, output::Failure};
use foretide_api::status::stored_ledger;
use foretide_base::error::chain;

/// A previous assignment.
#[derive(Debug)]
pub(super) struct Previous {
    /// Time of the previous decision.
    pub(super) at: Timestamp,
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
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read, or is not output of `assign`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = manifest::text(path).map_err(|error| Failure::invalid(chain(&error)))?;
        Self::parse(&text).map_err(|what| {
            let file = path.display();
            let expected = "expected output of `foretide assign -o json`";
            Failure::invalid(format!("{file}: {expected} ({what})"))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let written: PreviousDocument =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        if written.kind != "Assignment" {
            return Err(format!("its kind is {}", written.kind));
        }
        let clusters = written.clusters.into_iter();
        let bounds = clusters.filter_map(|cluster| {
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
    pub(super) fn applied(&self, members: &mut [Member]) -> Ledger {
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
            let error = Previous::parse(text).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
