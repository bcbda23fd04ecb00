//! The image, run as a container runtime runs it: its files read-only, as a user without rights and capabilities, with
//! what the kubelet mounts of a service account. It needs the files of an image, so `.ci/image` runs it. An image for
//! another processor is run by an emulator.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use rig::ClusterOptions;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    metrics_access::{free_address, ready},
    world::{NAMESPACE, World},
};

/// Path at which the kubelet mounts the files of the service account.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// Path of the emulator in the container, if there is one.
const EMULATOR: &str = "emulator";
/// All files of the image.
const FILES: [&str; 6] = [
    "etc/ssl/certs/ca-certificates.crt",
    "foretide",
    "foretide-servers",
    "usr/share/doc/foretide/LICENSE",
    "usr/share/doc/foretide/sbom-servers.cdx.json",
    "usr/share/doc/foretide/sbom.cdx.json",
];

/// The folder in which `.ci/image` has unpacked the image.
fn unpacked() -> PathBuf {
    std::env::var_os("IMAGE_ROOT").map(PathBuf::from).unwrap()
}

/// The paths of all files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let each = entries.flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            [path].into()
        }
    });
    each.collect()
}

/// The emulator that `.ci/image` names, if the image is for another processor.
fn emulator() -> Option<PathBuf> {
    let named = std::env::var_os("IMAGE_EMULATOR");
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A container whose only files are those of `root` and of the account; `variables` are its environment. The arguments
/// of the program follow.
fn container(root: &Path, account: &Path, variables: &[(&str, String)]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65532", "--regid=65532", "--clear-groups", "bwrap"]);
    command.args([
        "--die-with-parent",
        "--clearenv",
        "--unshare-user",
        "--unshare-pid",
    ]);
    command.args(["--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]);
    command.arg("--ro-bind").arg(root).arg("/");
    command.args(["--proc", "/proc"]);
    command
        .arg("--ro-bind")
        .arg(account)
        .arg(format!("/{ACCOUNT}"));
    for (name, value) in variables {
        command.args(["--setenv", name, value]);
    }
    if let Some(emulator) = emulator() {
        let place = format!("/{EMULATOR}");
        command
            .arg("--ro-bind")
            .arg(emulator)
            .args([&place, &place]);
    }
    command.arg("/foretide").kill_on_drop(true);
    command
}

/// The arguments and the environment of the container in `deploy/`, but for the port, which is used once only.
fn of_deployment(listen: SocketAddr) -> (Vec<String>, Vec<(String, String)>) {
    let manifests = include_str!("../../deploy/30-controller.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    let container = &documents[0]["spec"]["template"]["spec"]["containers"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut arguments: Vec<String> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect();
    let mut ports = arguments.iter_mut();
    *ports.find(|one| one.starts_with("--listen=")).unwrap() = format!("--listen={listen}");
    let variables = container["env"].as_array().unwrap().iter();
    let variables = variables.map(|one| (text(&one["name"]), text(&one["value"])));
    (arguments, variables.collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the files of an image: .ci/image builds one, and runs this"]
async fn the_image_runs_read_only_without_rights_and_scales() {
    let image = unpacked();
    let found = files(&image);
    let found: Vec<_> = found
        .iter()
        .map(|path| path.strip_prefix(&image).unwrap())
        .collect();
    assert_eq!(found, FILES.map(Path::new));
    let sbom = fs::read_to_string(image.join(FILES[5])).unwrap();
    let sbom: serde_json::Value = serde_json::from_str(&sbom).unwrap();
    let components = sbom["components"].as_array().unwrap();
    let names: Vec<_> = components
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in ["kube", "rustls", "foretide-models"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }

    let world = World::start(ClusterOptions::named("image")).await;
    world
        .apply(include_str!("../../deploy/23-leader-rbac.yaml"))
        .await;
    world
        .apply(include_str!("../../deploy/24-metrics-rbac.yaml"))
        .await;
    world.deployment("web", 1, "1m").await;
    // The user of the container has no way to the folders of cargo where those are below a home.
    let folder = std::env::temp_dir().join(format!("foretide-image-{}", std::process::id()));
    let account = folder.join("account");
    fs::create_dir_all(&account).unwrap();
    let mount =
        world
            .cluster
            .mount_service_account("foretide-system", "foretide-controller", &account);
    let variables = mount.await.unwrap();
    // A runtime makes the places for its mounts in a layer of the container.
    let root = folder.join("root");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(&image)
        .arg(&root)
        .status();
    assert!(copied.unwrap().success());
    for place in ["proc", ACCOUNT] {
        fs::create_dir_all(root.join(place)).unwrap();
    }

    if emulator().is_some() {
        fs::write(root.join(EMULATOR), "").unwrap();
    }

    let mut version = container(&root, &account, &[]);
    let version = version.arg("--version").output().await.unwrap();
    let version = String::from_utf8([version.stdout, version.stderr].concat()).unwrap();
    assert_eq!(
        version,
        concat!("foretide ", env!("CARGO_PKG_VERSION"), "\n")
    );

    let listen = free_address();
    let (arguments, more) = of_deployment(listen);
    let more = more
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let variables: Vec<_> = variables.into_iter().chain(more).collect();
    let mut controller = container(&root, &account, &variables);
    controller.args(arguments);
    let controller = controller.spawn().unwrap();
    ready(listen).await;
    let autoscaler = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 1,
            "maxReplicas": 9,
            "mode": "Direct",
            "crons": [{ "name": "always", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 3 }],
        },
    });
    world.apply(&autoscaler.to_string()).await;
    world.ready("web", "3", |count| count == 3).await;
    drop(controller);
    drop(fs::remove_dir_all(&folder));
    world.assert_nothing_forbidden();
}
