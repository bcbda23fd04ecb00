//! The Helm chart has the definitions, permissions and monitoring of `crds/` and `deploy/`, which it cannot read from
//! outside of its folder.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::{Args as _, Command};
use foretide::config::ControllerArgs;
use serde_json::{Value, json};

/// The folder of the copies.
fn copies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/helm/foretide/files")
}

/// Each file of the chart's folder `files`, with its source.
fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &str, copies: &str, wanted: fn(&str) -> bool| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let wanted = names.filter(|name| wanted(name));
        let pairs = wanted.map(|name| {
            let source = root.join(folder).join(&name);
            (format!("{copies}{name}"), source)
        });
        pairs.collect::<Vec<_>>()
    };
    let mut all = in_folder("crds", "crds/", is_yaml);
    all.extend(in_folder("deploy", "", |name| name.contains("rbac")));
    for folder in ["admission", "adapter", "adapter/upstream", "fleets", "keda"] {
        let copies = format!("{folder}/");
        all.extend(in_folder(&format!("deploy/{folder}"), &copies, is_yaml));
    }
    // The file of the controller takes values.
    let of_servers = |name: &str| is_yaml(name) && name != "controller.yaml";
    let policies = "network-policy/";
    all.extend(in_folder("deploy/network-policy", policies, of_servers));
    all.extend(in_folder("deploy/monitoring", "monitoring/", is_yaml));
    let dashboards = "monitoring/dashboards/";
    all.extend(in_folder(
        "deploy/monitoring/dashboards",
        dashboards,
        |_| true,
    ));
    all
}

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension() == Some("yaml".as_ref())
}

/// The paths of all files below a folder, relative to `base`.
fn files(folder: &Path, base: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let each = paths.flat_map(|path| {
        if path.is_dir() {
            return files(&path, base);
        }
        let relative = path.strip_prefix(base).unwrap();
        BTreeSet::from([relative.to_str().unwrap().to_owned()])
    });
    each.collect()
}

#[test]
fn the_chart_has_the_manifests_of_the_folders_that_it_installs() {
    let sources = sources();
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        drop(fs::remove_dir_all(copies()));
        for (copy, source) in &sources {
            let copy = copies().join(copy);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(source, copy).unwrap();
        }
    }
    let expected: BTreeSet<String> = sources.iter().map(|(copy, _)| copy.clone()).collect();
    assert_eq!(files(&copies(), &copies()), expected);
    for (copy, source) in &sources {
        let text = fs::read_to_string(copies().join(copy)).unwrap();
        assert!(
            text == fs::read_to_string(source).unwrap(),
            "{copy} is stale; run UPDATE=1 cargo test -p foretide --test it chart"
        );
    }
}

#[test]
fn the_page_memory_is_that_of_the_controller_unless_it_is_set() {
    let values = include_str!("../../deploy/helm/foretide/values.yaml");
    let values = serde_saphyr::from_str::<Value>(values).unwrap();
    let schema = include_str!("../../deploy/helm/foretide/values.schema.json");
    let schema = &serde_json::from_str::<Value>(schema).unwrap()["properties"]["pageMemory"];
    let command = ControllerArgs::augment_args(Command::new("controller"));
    let is_accepted = |memory: &Value| {
        let flag = format!("--page-memory={memory}");
        command.clone().try_get_matches_from(["controller", &flag])
    };
    let given = is_accepted(&schema["maximum"]).unwrap();
    assert_eq!(given.get_one::<u32>("page_memory"), Some(&4096));
    assert!(is_accepted(&json!(4097)).is_err());
    let usual = command.try_get_matches_from(["controller"]).unwrap();
    let usual = usual.get_one::<u32>("page_memory").unwrap();
    assert_eq!(values["pageMemory"], json!(usual));
    let template = include_str!("../../deploy/helm/foretide/templates/controller.yaml");
    let unless = format!("(eq (int .Values.pageMemory) {usual})");
    assert!(template.contains(&unless), "{unless}");
}

#[test]
fn the_scaler_is_closed_by_default_to_all_but_those_whom_the_manifest_lets_in() {
    let read = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let values = read(include_str!("../../deploy/helm/foretide/values.yaml"));
    let policy = read(include_str!("../../deploy/keda/network-policy.yaml"));
    let of_scaler = &values["networkPolicy"]["kedaScaler"];
    assert_eq!(of_scaler["enabled"], json!(true));
    assert_eq!(of_scaler["clients"], policy["spec"]["ingress"][0]["from"]);
}

#[test]
fn by_default_no_secret_can_be_read_and_no_image_is_chosen() {
    let values = include_str!("../../deploy/helm/foretide/values.yaml");
    let values = serde_saphyr::from_str::<Value>(values).unwrap();
    assert_eq!(values["fleets"]["enabled"], json!(false));
    let image = ["repository", "tag", "digest"].map(|field| &values["image"][field]);
    assert_eq!(image, [""; 3]);

    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let read = |path: &str| fs::read_to_string(deploy.join(path)).unwrap();
    let installed = serde_saphyr::from_str::<Value>(&read("Kustomization")).unwrap();
    let installed = installed["resources"].as_array().unwrap().iter();
    let ours = installed
        .filter_map(Value::as_str)
        .filter(|path| is_yaml(path));
    let rules = ours.flat_map(|path| serde_saphyr::from_multiple::<Value>(&read(path)).unwrap());
    for object in rules {
        let rules = object["rules"].to_string();
        assert!(!rules.contains("secrets"), "{rules}");
    }
}
