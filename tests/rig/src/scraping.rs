//! What a Prometheus scrapes and evaluates: its configuration, and the list of targets, which changes while it runs as
//! pods do.

use std::{net::SocketAddr, time::Duration};

use serde_json::json;

/// The file with the targets.
pub(crate) const TARGETS: &str = "targets.json";
/// The file with the bearer token that is sent to targets.
pub(crate) const TOKEN: &str = "token";
/// The file with the rules.
pub(crate) const RULES: &str = "rules.yml";

/// How a Prometheus scrapes.
#[derive(Debug)]
pub struct Scraping {
    /// The value of the label `job`.
    pub job: String,
    /// The time between two scrapes, and between two evaluations of the rules.
    pub interval: Duration,
    /// For how long a sample counts that no other one follows; 5 minutes by default.
    pub lookback: Duration,
    /// The bearer token that is sent to the targets.
    pub token: String,
    /// A rule file.
    pub rules: String,
}

impl Scraping {
    pub(crate) fn configuration(&self) -> String {
        let interval = milliseconds(self.interval);
        let configuration = json!({
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": [RULES],
            "scrape_configs": [{
                "job_name": self.job,
                "authorization": { "credentials_file": TOKEN },
                "file_sd_configs": [{ "files": [TARGETS], "refresh_interval": "1s" }],
            }],
        });
        // JSON is YAML.
        format!("{configuration:#}\n")
    }

    pub(crate) fn lookback_flag(&self) -> String {
        format!("--query.lookback-delta={}", milliseconds(self.lookback))
    }
}

/// The list of targets, in the format of file-based service discovery.
pub(crate) fn targets(targets: &[SocketAddr]) -> String {
    let targets: Vec<_> = targets.iter().map(SocketAddr::to_string).collect();
    json!([{ "targets": targets }]).to_string()
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
