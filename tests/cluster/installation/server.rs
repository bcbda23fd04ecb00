//! A server of metrics as a process of what its Deployment in the cluster says, with the permissions of its service
//! account. Only the addresses are those of this machine.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio};

use rig::eventually;
use tokio::process::{Child, Command};

use super::site::{SYSTEM, Site};
use crate::{
    leadership::signal,
    metrics_access::{free_address, get},
    world::TIMEOUT,
};

/// A running pod of a server.
pub(super) struct Server {
    process: Child,
    pub(super) listen: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a pod of the Deployment of this name, and returns when it is ready.
    pub(super) async fn start(site: &Site, name: &str) -> Self {
        let deployment = site.deployments(SYSTEM).get(name).await.unwrap();
        let pod = deployment.spec.unwrap().template.spec.unwrap();
        let account = pod.service_account_name.as_deref().unwrap();
        let kubeconfig = site.cluster.service_account_kubeconfig(SYSTEM, account);
        let (listen, probes) = (free_address(), free_address());
        let arguments = pod.containers[0].args.clone().unwrap().into_iter();
        let arguments = arguments.map(|argument| match argument.split_once('=') {
            Some((flag @ "--listen", _)) => format!("{flag}={listen}"),
            Some((flag @ "--probe-listen", _)) => format!("{flag}={probes}"),
            _ => argument,
        });
        let log = site.terminal.folder.join(format!("{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
        command
            .args(arguments)
            // A process outside of a pod knows neither.
            .arg("--kubeconfig")
            .arg(kubeconfig.await.unwrap())
            .arg(format!("--service-namespace={SYSTEM}"))
            .env_clear()
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .kill_on_drop(true);
        let process = command.spawn().unwrap();
        let server = Self {
            process,
            listen,
            log,
        };
        eventually(TIMEOUT, &format!("{name} is ready"), || async {
            match get(probes, "/readyz", None).await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", server.log())),
            }
        })
        .await;
        server
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it as the kubelet does.
    pub(super) async fn stop(mut self) {
        signal(&self.process, "-TERM").await;
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }
}
