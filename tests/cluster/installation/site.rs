//! A cluster and a terminal at a checkout of the project, as of a reader of the page.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use rig::{Clients, Cluster, ClusterOptions};
use tokio::process::{Child, Command};

use super::page::Page;

/// The namespace of the page.
pub(super) const SYSTEM: &str = "foretide-system";

/// The folders of a checkout that the page uses.
const CHECKOUT: [&str; 3] = ["crds", "deploy", "examples"];

/// A cluster without Foretide, and a terminal in a checkout.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) page: Page,
    pub(super) terminal: Terminal,
    /// The addresses of the page, with their counterparts here.
    pub(super) addresses: Vec<(&'static str, String)>,
}

/// Runs commands in a folder, which is removed with it.
pub(super) struct Terminal {
    pub(super) folder: PathBuf,
    kubeconfig: Option<PathBuf>,
    path: String,
}

/// Version of Helm in the terminal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Helm {
    Three,
    Four,
}

impl Site {
    pub(super) async fn start(options: ClusterOptions, helm: Helm) -> Self {
        Self::at_pages(&["installation.md"], options, helm).await
    }

    pub(super) async fn at_pages(pages: &[&str], options: ClusterOptions, helm: Helm) -> Self {
        let mut terminal = Terminal::open(&options.name, helm);
        let cluster = Cluster::start(options).await.unwrap();
        terminal.kubeconfig = Some(cluster.kubeconfig_path());
        Self {
            terminal,
            page: Page::read(pages),
            addresses: Vec::new(),
            cluster,
        }
    }

    /// Follows a section, and returns the output of its commands.
    pub(super) async fn follow(&mut self, section: &str) -> String {
        let mut printed = String::new();
        for number in 0..self.page.count(section) {
            printed.push_str(&self.follow_block(section, number).await);
        }
        printed
    }

    /// Follows one block of a section.
    pub(super) async fn follow_block(&mut self, section: &str, number: usize) -> String {
        let block = self.page.follow(section, number);
        match block.language.as_str() {
            "sh" => self.terminal.run(&self.of_site(&block.text)).await,
            "yaml" => {
                self.write_values_of(&block.text);
                String::new()
            }
            other => panic!("the page has a block of {other} in {section}"),
        }
    }

    /// Starts one block of a section, whose last command does not end; it ends when it is dropped.
    pub(super) fn leave_running(&mut self, section: &str, number: usize) -> Child {
        let block = self.page.follow(section, number);
        let script = self.of_site(&block.text);
        // Replaces the shell, so that nothing remains when the shell is killed.
        let mut bash = self.terminal.bash(&script, "exec foretide");
        let log = fs::File::create(self.terminal.folder.join("running.log")).unwrap();
        bash.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// A text with the addresses of this site.
    fn of_site(&self, text: &str) -> String {
        let addresses = self.addresses.iter();
        addresses.fold(text.to_owned(), |text, (of_page, of_site)| {
            text.replace(of_page, of_site)
        })
    }

    /// Writes only the values of a section.
    pub(super) fn write_values(&mut self, section: &str) {
        for number in 0..self.page.count(section) {
            let block = self.page.follow(section, number);
            if block.language == "yaml" {
                self.write_values_of(&block.text);
            }
        }
    }

    /// Writes `values.yaml`, with the addresses of this site. Text that does not begin with the image is an addition.
    fn write_values_of(&self, text: &str) {
        let mut text = self.of_site(text);
        if !text.starts_with("image:") {
            text = self.terminal.read("values.yaml") + &text;
        }
        self.terminal.write("values.yaml", &text);
    }

    pub(super) fn deployments(&self, namespace: &str) -> Api<Deployment> {
        Api::namespaced(self.cluster.client(), namespace)
    }

    /// The Deployment of the controller.
    pub(super) async fn controller(&self) -> Deployment {
        let deployments = self.deployments(SYSTEM);
        deployments.get("foretide-controller").await.unwrap()
    }
}

impl Terminal {
    /// A terminal without a cluster.
    pub(super) fn open(name: &str, helm: Helm) -> Self {
        let ensure =
            |programs: fn() -> rig::Result<Clients>| tokio::task::block_in_place(programs).unwrap();
        let clients = ensure(Clients::ensure);
        let first = match helm {
            Helm::Three => ensure(Clients::ensure_helm_3),
            Helm::Four => clients.clone(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for part in CHECKOUT {
            let mut copy = std::process::Command::new("cp");
            copy.arg("-R").arg(root.join(part)).arg(&folder);
            assert!(copy.status().unwrap().success());
        }
        let programs = Path::new(env!("CARGO_BIN_EXE_foretide")).parent().unwrap();
        let path =
            [first.folder(), clients.folder(), programs].map(|folder| folder.display().to_string());
        Self {
            folder,
            kubeconfig: None,
            path: path.join(":"),
        }
    }

    /// Runs a script and returns what it printed on standard output.
    pub(super) async fn run(&self, script: &str) -> String {
        match self.attempt(script).await {
            Ok(printed) => printed,
            Err(printed) => panic!("{script}\nfailed: {printed}"),
        }
    }

    /// Runs a script; the error is its output if it fails.
    pub(super) async fn attempt(&self, script: &str) -> Result<String, String> {
        let output = self.bash(script, "foretide").output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        if output.status.success() {
            return Ok(printed);
        }
        Err(printed + &String::from_utf8_lossy(&output.stderr))
    }

    /// A shell that runs a script. In place of the program that the pages build from a checkout, `foretide` runs the
    /// program of this test; there are no pods that a port could be forwarded to.
    fn bash(&self, script: &str, foretide: &str) -> Command {
        let mut bash = Command::new("bash");
        let script = format!(
            "PATH={}:$PATH\n\
             cargo() {{ shift 2; {foretide} \"$@\"; }}\n\
             kubectl() {{ [ \"$1\" = port-forward ] || command kubectl \"$@\"; }}\n\
             {script}",
            self.path
        );
        bash.args(["-euo", "pipefail", "-c", &script])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        for (variable, place) in [
            ("HELM_CACHE_HOME", "helm/cache"),
            ("HELM_CONFIG_HOME", "helm/config"),
            ("HELM_DATA_HOME", "helm/data"),
            // The caches of kubectl and Helm by the address of an API server: another one may have had it before.
            ("KUBECACHEDIR", "kubectl/cache"),
        ] {
            bash.env(variable, self.folder.join(place));
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            bash.env("KUBECONFIG", kubeconfig);
        }
        // Any free port.
        bash.env("FORETIDE_LISTEN", "127.0.0.1:0");
        bash
    }

    pub(super) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap()
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}
