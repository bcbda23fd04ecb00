//! The released binary as `deploy/` runs it, with a record of its decisions.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard},
};

use rig::eventually;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinHandle,
};

use super::{decisions::Decisions, machine};
use crate::{metrics_access::free_address, world::TIMEOUT};

/// One decision is one record of this module; the rest is logged when something is wrong.
const LOG: &str = "warn,foretide::controller::report=debug";

/// How to start the controller.
#[derive(Debug)]
pub(super) struct Launch {
    kubeconfig: PathBuf,
    flags: Vec<String>,
    decisions: Arc<Mutex<Decisions>>,
}

/// A controller that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    id: u32,
    metrics: String,
    log: JoinHandle<()>,
}

// === impl Launch ===

impl Launch {
    pub(super) fn new(kubeconfig: &Path, flags: Vec<String>) -> Self {
        Self {
            kubeconfig: kubeconfig.to_path_buf(),
            flags,
            decisions: Arc::default(),
        }
    }

    /// The decisions of every process that was started.
    pub(super) fn decisions(&self) -> MutexGuard<'_, Decisions> {
        self.decisions.lock().unwrap()
    }

    pub(super) fn start(&self) -> Process {
        let listen = free_address().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_foretide"))
            .arg("controller")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--listen", &listen, "--log-json", "--log", LOG])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let decisions = Arc::clone(&self.decisions);
        let log = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                decisions.lock().unwrap().read(&line);
            }
        });
        Process {
            id: child.id().unwrap(),
            child,
            metrics: format!("http://{listen}/metrics"),
            log,
        }
    }
}

// === impl Process ===

impl Process {
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    /// Waits until it ends, which it should not.
    pub(super) async fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().await.unwrap()
    }

    /// CPU time so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        machine::cpu_seconds(self.id)
    }

    /// The most memory that it had resident so far, in MiB.
    pub(super) fn peak_resident(&self) -> u64 {
        machine::peak_resident(self.id)
    }

    /// Values of the series of one metric, each with its labels as they are printed.
    pub(super) async fn series(&self, metric: &str) -> Vec<(String, f64)> {
        let text = eventually(TIMEOUT, "the controller shows its metrics", || async {
            let answer = reqwest::get(&self.metrics).await;
            let answer = answer.map_err(|error| error.to_string())?;
            answer.text().await.map_err(|error| error.to_string())
        })
        .await;
        let of_metric = text.lines().filter_map(|line| {
            let (labels, value) = line
                .strip_prefix(metric)?
                .strip_prefix('{')?
                .split_once("} ")?;
            Some((labels.to_owned(), value.parse().ok()?))
        });
        of_metric.collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.log.abort();
    }
}
