//! The history of a workload from Prometheus, for commands: by the queries and the client of the controller.
//!
//! ```text
//! flags, controller's configuration --app::history--> queries, reader
//! metric --query--> one range query per day --> History, or why there is none
//! ```

use std::{error::Error, path::PathBuf};

use foretide_backtest::recording::{self, History};
use foretide_domain::{sim::Recording, workload::Workload};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Runtime;

use super::{cluster::ReadCluster, context::Progress, output::Failure};
use crate::{
    app,
    config::{Config, ConfigFile, ScopeArg},
};
use foretide_api::ports::{
    Authorization, CredentialFiles, Demand, DemandQueries, HistoryError, HistoryQuery,
    HistoryReader, HistoryServer, QUERY_ANNOTATION, Resolution,
};
use foretide_api::{autoscaler::Autoscaler, validation};
use foretide_base::machine::Machine;
use foretide_controller::forecaster::{HistorySource, minutes_are_usable};

/// The distance between two samples that are read.
const STEP: SignedDuration = SignedDuration::from_mins(1);
/// Span of one query: progress can be shown, and a server with little time per query can keep up.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The longest history: a year.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);

/// Flags that read the history from Prometheus.
#[derive(Debug, Clone, clap::Args)]
pub struct HistoryArgs {
    /// Read the history from this Prometheus server, http(s)://HOST:PORT, by the controller's own queries
    #[arg(long, value_name = "URL", conflicts_with = "csv")]
    pub prometheus: Option<String>,
    /// File with the bearer token for that server
    #[arg(
        long,
        value_name = "FILE",
        requires = "prometheus",
        conflicts_with = "config"
    )]
    pub token_file: Option<PathBuf>,
    /// Configuration file of the controller, for its Prometheus server, credentials, certificates and rules
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub config: Option<PathBuf>,
    /// Length of the history that is read from Prometheus, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_span, default_value = "14d")]
    pub last: SignedDuration,
}

/// Means of reading a workload's history.
#[derive(Debug)]
pub struct Access<'a> {
    pub runtime: &'a Runtime,
    pub machine: &'a Machine,
    /// The cluster with the rules of prometheus-adapter, if one is read.
    pub cluster: Option<&'a ReadCluster<'a>>,
    /// Series that a query of the autoscaler may read, if not as in the configuration.
    pub scope: Option<ScopeArg>,
}

/// Recorded demand of a workload's metrics.
#[derive(Debug, Default)]
pub struct Histories {
    pub read: Vec<History>,
    /// Reasons for which metrics have no history, a sentence each.
    pub missing: Vec<String>,
    /// Notes on the reading of the histories, as lines for standard error.
    pub notes: String,
}

/// The end of the histories, and a callback for each day that is read.
pub struct Reading<'a> {
    pub until: Timestamp,
    pub progress: &'a mut dyn FnMut(Progress<'_>),
}

/// The history that a query returned.
struct QueryResult {
    query: HistoryQuery,
    recording: Recording,
    /// The query of the minutes that replace the means, if there are any.
    minutes: Option<HistoryQuery>,
}

/// Reason for which a metric has no samples.
enum Unread {
    /// There is no query, or it has no samples: other metrics may have some.
    Metric(String),
    /// The server cannot be read.
    Server(Failure),
}

/// Reads a duration, days included.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    validation::duration(text)
        .ok_or_else(|| format!("expected a duration such as 90s, 5m, 12h or 7d, got {text:?}"))
}

/// Reads the length of a history or of a forecast: a minute to a year.
pub fn parse_span(text: &str) -> Result<SignedDuration, String> {
    let span = parse_duration(text)?;
    if (STEP..=LONGEST).contains(&span) {
        return Ok(span);
    }
    Err(format!("expected between 1m and 366d, got {text:?}"))
}

// === impl HistoryArgs ===

impl HistoryArgs {
    /// Returns whether the history is read from Prometheus.
    pub const fn is_given(&self) -> bool {
        self.prometheus.is_some() || self.config.is_some()
    }

    /// The configuration of a controller that reads this history.
    fn config(&self) -> Result<Config, Failure> {
        let read = self.config.as_deref().map(ConfigFile::read).transpose();
        let file = read.map_err(Failure::in_file)?;
        let flags = match &self.prometheus {
            // The server of a URL with a token is made below, because a token is no flag of the controller.
            Some(url) if self.token_file.is_none() => vec!["--prometheus", url],
            _ => Vec::new(),
        };
        let config = file.unwrap_or_default().config_with(&flags);
        let mut config = config.map_err(Failure::in_flags)?;
        if let (Some(url), Some(token)) = (&self.prometheus, &self.token_file) {
            let token = token.clone();
            let credentials = CredentialFiles {
                authorization: Some(Authorization::Bearer { token }),
                ..CredentialFiles::default()
            };
            let server = HistoryServer::new(url, credentials);
            let server =
                server.map_err(|error| Failure::usage(format!("--prometheus: {error}")))?;
            config.prometheus = Some(server);
        }
        Ok(config)
    }

    /// The history of each metric of an autoscaler, by the controller's own query. Metrics without a history are
    /// removed from the workload.
    ///
    /// # Errors
    /// The server cannot be read, or no metric has a history.
    pub fn read(
        &self,
        autoscaler: &Autoscaler,
        workload: &mut Workload,
        access: &Access<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<Histories, Failure> {
        let mut config = self.config()?;
        config.promql_scope = access.scope.unwrap_or(config.promql_scope);
        let server = server(&config)?;
        let connection = access.cluster.map(ReadCluster::connection);
        access.runtime.block_on(async {
            let source = app::history::of_command(&config, connection, access.machine).await;
            let (source, problem) = source.map_err(Failure::in_flags)?;
            let source = source.ok_or_else(no_server)?;
            let mut found = Histories {
                notes: problem.map(|it| format!("{it}\n")).unwrap_or_default(),
                ..Histories::default()
            };
            let mut kept = Vec::new();
            for metric in std::mem::take(&mut workload.metrics) {
                let name = metric.identifier();
                let annotation = format!("{QUERY_ANNOTATION}{name}");
                let demand = Demand {
                    target: &workload.target,
                    metric: &metric,
                    pods: None,
                    written: autoscaler.annotation(&annotation).map(String::as_str),
                    span: self.last,
                    member: None,
                };
                let read = match source.queries.query(&demand) {
                    Ok(query) => self.recording(&source, query, &name, reading).await,
                    Err(refused) => Err(Unread::Metric(refused.message)),
                };
                match read {
                    Ok(result) => {
                        found.notes += &result.note(&name);
                        let holes = recording::holes(&name, &result.recording);
                        found.read.push(History {
                            notes: holes.into_iter().collect(),
                            metric: name,
                            file: server.url().to_string(),
                            recording: result.recording,
                        });
                        kept.push(metric);
                    }
                    Err(Unread::Metric(why)) => {
                        found.missing.push(format!("without {name}: {why}"));
                    }
                    Err(Unread::Server(failure)) => return Err(failure),
                }
            }
            workload.metrics = kept;
            // A spec with cron windows only has no metrics, and needs no history.
            if found.read.is_empty() && !found.missing.is_empty() {
                return Err(no_history(&found.missing));
            }
            Ok(found)
        })
    }

    /// The history that one query of the user returns, unchanged: it is sent with the user's own permissions.
    ///
    /// # Errors
    /// The server cannot be read, or the query has no samples.
    pub fn recording_of(
        &self,
        text: &str,
        runtime: &Runtime,
        machine: &Machine,
        reading: &mut Reading<'_>,
    ) -> Result<Recording, Failure> {
        let config = self.config()?;
        server(&config)?;
        runtime.block_on(async {
            let source = app::history::of_command(&config, None, machine).await;
            let (source, _) = source.map_err(Failure::in_flags)?;
            let source = source.ok_or_else(no_server)?;
            let query = HistoryQuery {
                namespace: "".into(),
                endpoint: None,
                text: text.into(),
            };
            let read = self.recording(&source, query, "the query", reading).await;
            read.map(|read| read.recording)
                .map_err(|error| match error {
                    Unread::Metric(why) => {
                        Failure::runtime(format!("{why}\nCheck it on the page of this Prometheus"))
                    }
                    Unread::Server(failure) => failure,
                })
        })
    }

    /// The history that a query returns, with the single minutes if its values may be means of them.
    async fn recording<R: HistoryReader, Q: DemandQueries>(
        &self,
        source: &HistorySource<R, Q>,
        query: HistoryQuery,
        name: &str,
        reading: &mut Reading<'_>,
    ) -> Result<QueryResult, Unread> {
        let values = self.samples(&source.reader, &query, name, reading).await?;
        let (recording, minutes) = match source.queries.resolution(&query) {
            Resolution::Minute => (Recording::new(values), None),
            Resolution::Unknown => (Recording::of_means(&values, &[]), None),
            Resolution::Mean(by_minute) => {
                let read = self.samples(&source.reader, &by_minute, name, reading);
                // A failure leaves the means, which are enough.
                match read.await {
                    Ok(minutes) if minutes_are_usable(&minutes, &values) => {
                        (Recording::of_means(&values, &minutes), Some(by_minute))
                    }
                    _ => (Recording::of_means(&values, &[]), None),
                }
            }
        };
        Ok(QueryResult {
            query,
            recording,
            minutes,
        })
    }

    /// The samples of a query, a day at a time.
    async fn samples(
        &self,
        reader: &impl HistoryReader,
        query: &HistoryQuery,
        name: &str,
        reading: &mut Reading<'_>,
    ) -> Result<Vec<Sample>, Unread> {
        let minutes = |at: Timestamp| at.as_second().div_euclid(60) * 60;
        let end = minutes(reading.until);
        let mut from = end - self.last.as_secs();
        let mut samples = Vec::new();
        while from <= end {
            // Both ends are part of a range query, so a day ends one step before the next begins.
            let to = end.min(from + DAY.as_secs() - STEP.as_secs());
            let span = Timestamp::from_second(from)
                .ok()
                .zip(Timestamp::from_second(to).ok());
            let Some((day, last)) = span else { break };
            (reading.progress)(Progress::Reading(name, day));
            match reader.range(query, day, last, STEP).await {
                Ok(day) => samples.extend(day.into_iter().filter(is_measurement)),
                // Other days may have samples.
                Err(HistoryError::Empty) => {}
                Err(error) => return Err(Unread::Server(unread(&error, query))),
            }
            from = to + STEP.as_secs();
        }
        if samples.is_empty() {
            let span =
                [end - self.last.as_secs(), end].map(|at| minute(Timestamp::from_second(at).ok()));
            let headers = reader.headers_in_words(query);
            return Err(Unread::Metric(empty(query, &span.join(" and "), headers)));
        }
        Ok(samples)
    }
}

/// The message about a query without samples in a span.
fn empty(query: &HistoryQuery, span: &str, headers: Option<String>) -> String {
    let tenant = headers.map(|headers| {
        format!("; it was sent with the header {headers}, which may name another tenant")
    });
    let tenant = tenant.unwrap_or_default();
    format!(
        "no samples between {span} UTC of the query{tenant}\n  {}",
        query.text
    )
}

/// A time as it is written in notes.
fn minute(at: Option<Timestamp>) -> String {
    at.map(|at| at.strftime("%F %H:%M").to_string())
        .unwrap_or_default()
}

/// Returns whether a sample can be a demand; the controller ignores others, too.
fn is_measurement(sample: &Sample) -> bool {
    sample.value.is_finite() && sample.value >= 0.0
}

fn server(config: &Config) -> Result<&HistoryServer, Failure> {
    config.prometheus.as_ref().ok_or_else(no_server)
}

fn no_server() -> Failure {
    Failure::usage("--prometheus URL is required, or --config FILE with prometheus.url")
}

/// The error that no metric has a history.
fn no_history(missing: &[String]) -> Failure {
    Failure::runtime(format!(
        "{}\nCheck that this Prometheus has the series, and that its labels namespace and pod name the workload. Annotation \
         {QUERY_ANNOTATION}METRIC of the autoscaler sets another query",
        missing.join("\n")
    ))
}

/// The error of a failed query, with advice.
fn unread(error: &HistoryError, query: &HistoryQuery) -> Failure {
    let advice = match error {
        HistoryError::Unauthorized { .. } => {
            "; set --token-file FILE, or --config FILE with the credentials of the controller"
                .to_owned()
        }
        HistoryError::Rejected { .. } => "; --prometheus takes it without /api/v1".to_owned(),
        // Only the innermost cause is about the server and not about a library.
        HistoryError::Unreachable { source, .. } => {
            let cause = innermost(source.as_ref());
            format!(
                ": {cause}; check --prometheus, and that this machine can reach it (kubectl port-forward)"
            )
        }
        HistoryError::Credentials { .. } | HistoryError::Tls { .. } => String::new(),
        _ => format!("\nThe query was:\n  {}", query.text),
    };
    Failure::runtime(format!("{error}{advice}"))
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

// === impl QueryResult ===

impl QueryResult {
    /// The queries that were used for a metric, for the user to check.
    fn note(&self, metric: &str) -> String {
        let ends = [self.recording.first(), self.recording.last()].map(minute);
        let mut note = format!(
            "history of {metric}: {} samples from {} UTC, by the query\n  {}\n",
            self.recording.samples().len(),
            ends.join(" to "),
            self.query.text
        );
        if let Some(minutes) = &self.minutes {
            note.extend([format!(
                "  and, for each minute alone,\n  {}\n",
                minutes.text
            )]);
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_duration_is_rejected_with_examples() {
        let week = SignedDuration::from_hours(7 * 24);
        assert_eq!(parse_duration("7d"), Ok(week));
        for bad in ["", "-1d", "soon", "100000000000000000d"] {
            let message = format!("expected a duration such as 90s, 5m, 12h or 7d, got {bad:?}");
            assert_eq!(parse_duration(bad), Err(message));
        }
    }
}
