//! Joining member clusters from the command line, and parsing kubeconfigs of any content.

use clap::Parser;
use foretide::cli::{Cli, Exit};
use foretide_kube::members::Access;
use serde_json::{Value, json};

use crate::cli::{matches_snapshot, run};

const EAST: &str =
    "members add east --kubeconfig tests/it/manifests/member.kubeconfig --context east";

#[test]
fn the_manifests_of_a_member_grant_the_least_and_hold_no_token() {
    let all = "--provider onprem --region eu --zone eu-a,eu-b --taint upkeep=soon:NoSchedule \
               --taint drain:NoExecute --prometheus eu -o yaml";
    let text = run(&format!("{EAST} {all}")).unwrap().text;
    matches_snapshot("members-add.yaml", &text);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let secret = documents.last().unwrap();
    let kubeconfig = secret["stringData"]["kubeconfig"].as_str().unwrap();
    let access = Access::parse(kubeconfig.as_bytes(), false).unwrap();
    assert_eq!(access.host(), "east.example:6443");
}

#[test]
fn placing_adds_the_rights_for_it_and_no_others() {
    let rules = |line: String| -> Vec<Value> {
        let text = run(&line).unwrap().text;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let role = documents.iter().find(|d| d["kind"] == "ClusterRole");
        role.unwrap()["rules"].as_array().unwrap().clone()
    };
    let without = rules(format!("{EAST} -o yaml"));
    let with = rules(format!("{EAST} --place -o yaml"));
    let (added, same) = with.split_last().unwrap();
    assert_eq!(same, without);
    let expected = json!({
        "apiGroups": ["apps"],
        "resources": ["deployments", "statefulsets", "replicasets"],
        "verbs": ["create", "patch", "delete"],
    });
    assert_eq!(*added, expected);
}

#[test]
fn a_dry_run_says_what_would_be_applied_where() {
    let text = run(&format!("{EAST} --dry-run")).unwrap().text;
    let expected = "\
member: would apply Namespace foretide-system
member: would apply ServiceAccount foretide-system/foretide-hub
member: would apply ClusterRole foretide-member
member: would apply ClusterRoleBinding foretide-member
member: would apply Secret foretide-system/foretide-hub-token
hub: would apply Secret foretide-system/east
";
    assert_eq!(text, expected);
}

#[test]
fn what_the_hub_would_refuse_is_refused_before_anything_is_done() {
    let failure = run(&format!("{EAST} --server https://127.0.0.1:6443")).unwrap_err();
    let message = "the hub would reject this member: clusters[0].cluster.server is this machine's own address; \
                   give one that is reachable from the hub; correct the kubeconfig, or set another address with --server";
    assert_eq!(failure.exit, Exit::Invalid);
    assert_eq!(failure.message, message);
    let other = EAST.replace("--context east", "--context other");
    let message = run(&other).unwrap_err().message;
    let expected = "certificate-authority-data is missing";
    assert!(message.contains(expected), "{message}");
    for flags in [
        "--taint a=b:Never",
        "--zone a_b",
        "--provider -x",
        "--secret-label =true",
        "--secret-label a=b,c=d",
        "--secret-key a/b",
    ] {
        let line = format!("foretide {EAST} {flags}");
        assert!(
            Cli::try_parse_from(line.split_whitespace()).is_err(),
            "{flags}"
        );
    }
}

/// Fields of kubeconfigs, each with a value of its own.
const FIELDS: [&str; 16] = [
    "server",
    "certificate-authority-data",
    "certificate-authority",
    "insecure-skip-tls-verify",
    "proxy-url",
    "tls-server-name",
    "token",
    "tokenFile",
    "exec",
    "auth-provider",
    "client-certificate",
    "client-certificate-data",
    "client-key-data",
    "username",
    "as",
    "extensions",
];

fn value(which: u8) -> Value {
    match which % 12 {
        0 => Value::Null,
        1 => json!(""),
        2 => json!(false),
        3 => json!(true),
        4 => json!("https://169.254.169.254"),
        5 => json!("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        6 => json!({"command": "id"}),
        7 => json!(
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFRSUQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
        ),
        8 => json!("https://a.example"),
        9 => json!(["x"]),
        10 => json!(1e300),
        _ => json!("x".repeat(70_000)),
    }
}

/// Checks an accepted kubeconfig.
fn harmless(text: &[u8], document: &Value) {
    let Ok(access) = Access::parse(text, false) else {
        return;
    };
    assert_eq!(access.server.scheme(), "https");
    assert!(access.server.username().is_empty() && access.server.password().is_none());
    assert_ne!(access.server.host_str(), Some("169.254.169.254"));
    let written = |pointer: &str| {
        let value = document.pointer(pointer).cloned().unwrap_or_default();
        !matches!(value, Value::Null | Value::Bool(false))
            && value != json!("")
            && value != json!([])
    };
    for at in ["/users/0/user", "/clusters/0/cluster"] {
        for field in [
            "exec",
            "auth-provider",
            "tokenFile",
            "client-certificate",
            "username",
            "as",
            "certificate-authority",
            "insecure-skip-tls-verify",
            "proxy-url",
        ] {
            assert!(
                !written(&format!("{at}/{field}")),
                "{field} was accepted: {document}"
            );
        }
    }
}

#[test]
fn kubeconfig() {
    let good = json!({
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": "https://a.example", "certificate-authority-data": value(7),
        }}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    assert!(Access::parse(good.to_string().as_bytes(), false).is_ok());
    bolero::check!()
        .with_iterations(3_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            drop(Access::parse(bytes, bytes.len() % 2 == 0));
            let mut document = good.clone();
            for change in bytes.chunks(3) {
                let [field, place, what] = *change else {
                    continue;
                };
                let field = FIELDS[usize::from(field) % FIELDS.len()];
                let at = match place % 3 {
                    0 => "/users/0/user",
                    1 => "/clusters/0/cluster",
                    _ => "/contexts/0/context",
                };
                document.pointer_mut(at).unwrap()[field] = value(what);
            }
            harmless(document.to_string().as_bytes(), &document);
        });
}
