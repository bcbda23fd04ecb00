//! A real Prometheus. Its samples come from promtool's blocks, as a history that it has from the start, from remote
//! write, or from a target that it scrapes.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    Binaries, Component, Error, History, Identity, Result,
    place::{RunFolder, say},
    process::{Child, free_port},
    wait::within,
};

/// Samples out of order are accepted, so that a remote writer need not be on time.
const CONFIGURATION: &str = "\
global: {scrape_interval: 15s}
storage: {tsdb: {out_of_order_time_window: 30m}}
";

/// The time to be ready on a busy machine.
const READY: Duration = Duration::from_mins(3);
/// The most attempts to start a server that exits during the start.
const STARTS: u32 = 3;

/// Protection of a Prometheus (its `--web.config.file`).
#[derive(Debug)]
pub struct WebSecurity {
    /// The certificate that it shows.
    pub server: Identity,
    /// The authority of that certificate, and of its clients, in PEM.
    pub ca_pem: String,
    /// A client of that authority, if requests need a client certificate: that of the rig itself.
    pub client: Option<Identity>,
    /// Requests need [`WebSecurity::USER`] and [`WebSecurity::PASSWORD`].
    pub basic_auth: bool,
}

/// A Prometheus on loopback; it ends when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Mutex<Option<Child>>,
    http: reqwest::Client,
    security: Option<WebSecurity>,
    binaries: Binaries,
    folder: RunFolder,
    port: u16,
}

impl WebSecurity {
    /// The only user.
    pub const USER: &str = "foretide";
    /// The password of that user.
    pub const PASSWORD: &str = "open sesame, please";
    /// The password in the configuration of Prometheus (bcrypt).
    const PASSWORD_HASH: &str = "$2a$04$tp3Pr7ZU/ZWUP/dkaBeESu9VBucpAZUGQsA0/fP0aTLsluD7Ev2Sm";

    /// The configuration file, for files in the same folder.
    fn configuration(&self) -> String {
        let mut text = "tls_server_config: {cert_file: server.crt, key_file: server.key".to_owned();
        if self.client.is_some() {
            text.push_str(", client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert");
        }
        text.push_str("}\n");
        if self.basic_auth {
            let (user, hash) = (Self::USER, Self::PASSWORD_HASH);
            let users = format!("basic_auth_users: {{{user}: \"{hash}\"}}\n");
            text.push_str(&users);
        }
        text
    }
}

impl Prometheus {
    /// Starts a Prometheus like [`Prometheus::start`], with TLS and the other settings of `security`.
    ///
    /// # Errors
    /// As [`Prometheus::start`].
    pub async fn start_secured(history: &History, security: WebSecurity) -> Result<Self> {
        let prometheus = Self::prepare(Some(security), CONFIGURATION).await?;
        prometheus.import(&history.to_open_metrics()).await?;
        prometheus.started().await
    }

    /// Starts a Prometheus that holds `history`. Samples of the future are answered to queries at
    /// their own time; while a block reaches into the future, remote writes older than 30 minutes
    /// before its end are refused.
    ///
    /// # Errors
    /// As [`Binaries::ensure`]; [`Error::History`] when promtool refuses the samples;
    /// [`Error::NotReady`] or [`Error::Ended`] with the end of the log.
    pub async fn start(history: &History) -> Result<Self> {
        let prometheus = Self::prepare(None, CONFIGURATION).await?;
        prometheus.import(&history.to_open_metrics()).await?;
        prometheus.started().await
    }

    /// Starts a Prometheus without samples that scrapes a target with a bearer token, and evaluates these rules, each second.
    ///
    /// # Errors
    /// As [`Prometheus::start`].
    pub async fn start_scraping(target: SocketAddr, token: &str, rules: &str) -> Result<Self> {
        let configuration = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.yml"],
            "scrape_configs": [{
                "job_name": "foretide",
                "authorization": { "credentials_file": "token" },
                "static_configs": [{ "targets": [target] }],
            }],
        });
        // JSON is YAML.
        let prometheus = Self::prepare(None, &configuration.to_string()).await?;
        prometheus.folder.write("token", token)?;
        prometheus.folder.write("rules.yml", rules)?;
        prometheus.started().await
    }

    /// A Prometheus with its files, which does not run yet.
    async fn prepare(security: Option<WebSecurity>, configuration: &str) -> Result<Self> {
        crate::install_crypto();
        let prometheus = Self {
            child: Mutex::new(None),
            http: http_client(security.as_ref())?,
            security,
            binaries: crate::cluster::binaries().await?,
            folder: RunFolder::new("prometheus")?,
            port: free_port()?,
        };
        fs::create_dir_all(prometheus.data()).map_err(Error::file("create", prometheus.data()))?;
        prometheus.folder.write("prometheus.yml", configuration)?;
        if let Some(security) = &prometheus.security {
            prometheus.folder.write("ca.crt", &security.ca_pem)?;
            let Identity { certificate, key } = &security.server;
            prometheus.folder.write("server.crt", certificate)?;
            prometheus.folder.write("server.key", key)?;
            prometheus
                .folder
                .write("web.yml", security.configuration())?;
        }
        Ok(prometheus)
    }

    /// Starts the server for the first time, on another port if its own was taken meanwhile.
    async fn started(mut self) -> Result<Self> {
        let mut left = STARTS;
        loop {
            left -= 1;
            match self.launch().await {
                Ok(()) => return Ok(self),
                Err(failure @ Error::Ended { .. }) if left > 0 => {
                    say(&format!("starting Prometheus again: {failure}"));
                    self.port = free_port()?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Base URL, without a slash at the end; the same after a restart.
    pub fn url(&self) -> String {
        let scheme = if self.security.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    async fn launch(&self) -> Result<()> {
        let child = Child::spawn(&self.command(), &self.log())?;
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let ready = || async {
            if let Some(ended) = self.ended() {
                return Ok(Err(ended));
            }
            let answer = self.get(format!("{}/-/ready", self.url())).send().await;
            answer
                .and_then(reqwest::Response::error_for_status)
                .map(|_ready| Ok(()))
                .map_err(|no| no.to_string())
        };
        match within(READY, "prometheus is ready", ready).await {
            Ok(outcome) => outcome,
            Err(late) => Err(Error::NotReady {
                component: Component::Prometheus.to_string(),
                reason: late.to_string(),
                log: crate::process::tail(&self.log(), 25),
            }),
        }
    }

    /// Failure of the server, if it has ended.
    fn ended(&self) -> Option<Error> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let child = child.as_mut()?;
        let status = child.ended()?;
        Some(Error::Ended {
            component: Component::Prometheus.to_string(),
            status,
            log: child.log_tail(),
        })
    }

    /// The `data` of an instant query at unix second `at`.
    ///
    /// # Errors
    /// [`Error::Query`] when it does not answer, or with an error.
    pub async fn query(&self, promql: &str, at: f64) -> Result<Value> {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1/query", self.url()))
            .map_err(|no| Error::Url(no.to_string()))?;
        url.query_pairs_mut()
            .append_pair("query", promql)
            .append_pair("time", &at.to_string());
        self.data_of(url, promql).await
    }

    /// The alerts that are pending or firing, as `/api/v1/alerts` lists them.
    ///
    /// # Errors
    /// [`Error::Query`] when it does not answer, or with an error.
    pub async fn alerts(&self) -> Result<Vec<Value>> {
        let url = format!("{}/api/v1/alerts", self.url());
        let mut data = self.data_of(url, "alerts").await?;
        Ok(match data.get_mut("alerts").map(Value::take) {
            Some(Value::Array(alerts)) => alerts,
            _ => Vec::new(),
        })
    }

    /// The `data` of the answer to this query.
    async fn data_of(&self, url: impl reqwest::IntoUrl, query: &str) -> Result<Value> {
        let failed = |source| Error::Query {
            query: query.to_owned(),
            source,
        };
        let answer = self.get(url).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        let body = answer.map_err(failed)?.bytes().await.map_err(failed)?;
        let mut body: Value = serde_json::from_slice(&body).map_err(Error::json("an answer"))?;
        Ok(body.get_mut("data").map(Value::take).unwrap_or_default())
    }

    async fn import(&self, open_metrics: &str) -> Result<()> {
        let text = self.folder.write("history.om", open_metrics)?;
        let mut promtool = self.binaries.command(Component::Promtool);
        promtool
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"])
            .arg("--max-block-duration=168h")
            .args([&text, &self.data()]);
        let run = tokio::process::Command::from(promtool)
            .kill_on_drop(true)
            .output()
            .await;
        let program = "promtool".to_owned();
        let ended = run.map_err(|source| Error::Spawn { program, source })?;
        fs::remove_file(&text).map_err(Error::file("remove", &text))?;
        if ended.status.success() {
            return Ok(());
        }
        Err(Error::History {
            output: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }

    fn get(&self, url: impl reqwest::IntoUrl) -> reqwest::RequestBuilder {
        let request = self.http.get(url);
        match &self.security {
            Some(security) if security.basic_auth => {
                request.basic_auth(WebSecurity::USER, Some(WebSecurity::PASSWORD))
            }
            _ => request,
        }
    }

    fn command(&self) -> std::process::Command {
        let mut command = self.binaries.command(Component::Prometheus);
        command
            .arg(option(
                "config.file",
                &self.folder.path().join("prometheus.yml"),
            ))
            .arg(option("storage.tsdb.path", &self.data()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .args([
                "--storage.tsdb.retention.time=90d",
                "--web.enable-remote-write-receiver",
            ])
            .arg("--log.level=warn");
        if self.security.is_some() {
            command.arg(option(
                "web.config.file",
                &self.folder.path().join("web.yml"),
            ));
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("prometheus.log")
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn http_client(security: Option<&WebSecurity>) -> Result<reqwest::Client> {
    let build = || {
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10));
        if let Some(security) = security {
            let authority = reqwest::Certificate::from_pem(security.ca_pem.as_bytes())?;
            builder = builder.tls_certs_only([authority]);
            if let Some(client) = &security.client {
                let both = format!("{}{}", client.certificate, client.key);
                builder = builder.identity(reqwest::Identity::from_pem(both.as_bytes())?);
            }
        }
        builder.build()
    };
    build().map_err(|source| Error::Query {
        query: "anything".to_owned(),
        source,
    })
}
